"""Every link in a page of the repository leads to something that is there, down to the heading."""

import importlib.util
import json
import re
from functools import cache
from itertools import pairwise
from urllib.parse import unquote

import pytest
from markdown_it import MarkdownIt

from kinprint import __version__
from support.places import ROOT

# A reader may have written a report here, as the pages show it: those of the project are named in capitals.
OWN = [path for path in ROOT.glob("*.md") if path.stem.isupper()]
PAGES = sorted([*OWN, *(path for room in ("docs", "demo", "bench") for path in (ROOT / room).glob("*.md"))])
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"
MARKDOWN = MarkdownIt("commonmark").enable("table")


def text_of(path):
    if path.suffix == ".md":
        return path.read_text(encoding="utf-8")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def links(path):
    inline = [token for token in MARKDOWN.parse(text_of(path)) if token.type == "inline"]
    found = [(child.attrGet("href") or child.attrGet("src")) for token in inline for child in token.children or ()]
    return [unquote(address) for address in found if address]


@cache
def anchors(path):
    """Return the names that headings have on GitHub and on the site."""
    tokens, names, seen = MARKDOWN.parse(text_of(path)), set(), {}
    for token, inside in pairwise(tokens):
        if token.type == "heading_open":
            plain = "".join(child.content for child in inside.children if child.type in ("text", "code_inline"))
            name = re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")
            count = seen[name] = seen.get(name, -1) + 1
            names.add(name if count == 0 else f"{name}-{count}")
    return names


@pytest.mark.parametrize("page", [*PAGES, NOTEBOOK], ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    lost = []
    for address in links(page):
        if re.match(r"[a-z]+:", address):
            continue
        name, _, anchor = address.partition("#")
        target = (page.parent / name).resolve() if name else page
        there = target.exists() and target.is_relative_to(ROOT)
        if not there or (anchor and anchor not in anchors(target)):
            lost.append(address)
    assert lost == []


def test_a_lost_link_would_be_seen():
    assert len(PAGES) > 20
    assert sum(len(links(page)) for page in PAGES) > 100
    assert "in-ci" in anchors(ROOT / "docs" / "reports.md")
    assert "reports.md#in-ci" in links(ROOT / "docs" / "ci.md")


# -- the site (`make docs`) ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site():
    place = importlib.util.spec_from_file_location("site_settings", ROOT / "docs" / "conf.py")
    settings = importlib.util.module_from_spec(place)
    place.loader.exec_module(settings)
    return settings


def test_every_page_is_in_the_contents_of_the_site(site):
    listed = [page for pages in site.CONTENTS.values() for page in pages]
    files = [path.relative_to(ROOT).with_suffix("").as_posix() for path in [*PAGES, NOTEBOOK]]
    assert sorted([site.root_doc, *listed]) == sorted(files)
    assert site.release == __version__


def test_a_notebook_becomes_a_page(site):
    page = site.as_markdown(json.loads(NOTEBOOK.read_text(encoding="utf-8")))
    assert page.startswith("# 0.99 means nothing\n")
    assert page.count("<img ") == 2
    assert "```text\ncosine" in page
