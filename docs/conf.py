"""Settings of Sphinx for `make docs`: the pages from where they are, so that one link serves the site and the repository."""

import json
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

project = "kinprint"
copyright = "the kinprint contributors, Apache-2.0"  # noqa: A001 - the name is Sphinx's
release = re.search(r'__version__ = "(.+)"', (ROOT / "src/kinprint/_version.py").read_text()).group(1)
extensions = ["myst_parser"]
root_doc = "README"
source_suffix = {".md": "markdown", ".ipynb": "markdown"}
include_patterns = ["*.md", "docs/*.md", "docs/*.ipynb", "demo/*.md", "bench/*.md"]
exclude_patterns = ["**/.*", ".*", "src", "tests", "tools", "requirements", "demo/models", "*-report", "docs-site"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]  # the bench writes sections without chapters
html_theme = "furo"
html_title = f"kinprint {release}"
html_copy_source = False
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_theme_options = {"top_of_page_buttons": []}

CONTENTS = {
    "Use": [
        "docs/notebook",
        "docs/examples",
        "docs/reports",
        "docs/bundles",
        "docs/serve",
        "docs/ci",
        "docs/api",
        "docs/glossary",
    ],
    "What it rests on": [
        "docs/verdicts",
        "docs/metrics",
        "docs/fingerprints",
        "docs/lineage",
        "docs/tree",
        "docs/search",
        "docs/scale",
        "docs/catalog",
    ],
    "The published analyses": ["docs/studies", "docs/gallery"],
    "Models": ["docs/formats", "docs/architectures", "demo/README"],
    "The project": [
        "ARCHITECTURE",
        "CONTRIBUTING",
        "SECURITY",
        "docs/reliability",
        "bench/RESULTS",
        "bench/CALIBRATION",
        "docs/LOG",
        "CHANGELOG",
    ],
}


def contents() -> str:
    """Return the table of contents, which GitHub and package pages would show as code if it stood in the README."""
    parts = [
        "\n".join(["```{toctree}", ":hidden:", ":maxdepth: 1", f":caption: {title}", "", *pages, "```"])
        for title, pages in CONTENTS.items()
    ]
    return "\n\n".join(["", *parts, ""])


def as_markdown(notebook: dict) -> str:
    """Return a notebook as a page: its text, its code, and what is kept of its outputs."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            data = output.get("data", {"text/plain": output.get("text", ())})
            if "image/png" in data:
                parts.append(f"```{{raw}} html\n<img alt='' src='data:image/png;base64,{data['image/png']}'>\n```")
            elif "text/html" in data:
                parts.append(f"```{{raw}} html\n{''.join(data['text/html'])}\n```")
            else:
                parts.append(f"```text\n{''.join(data['text/plain'])}\n```")
    return "\n\n".join(parts)


def read_source(_app: object, page: str, content: list[str]) -> None:
    """Give the first page its contents, and make a page of the notebook."""
    if page == root_doc:
        content[0] += contents()
    elif page == "docs/notebook":
        content[0] = as_markdown(json.loads(content[0]))


def finish(app: object, error: Exception | None) -> None:
    """Let the first page be what a server shows for the folder."""
    if error is None:
        shutil.copyfile(Path(app.outdir) / "README.html", Path(app.outdir) / "index.html")


def setup(app: object) -> None:
    app.connect("source-read", read_source)
    app.connect("build-finished", finish)
