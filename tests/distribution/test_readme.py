"""What README and pages tell people to type exists: commands, options, exit codes, extras, packages."""

import ast
import re
import shlex
import tomllib

import click
import pytest

from kinprint import errors
from kinprint.cli.judging import DECLARED_CODES, EXIT_CODES, NO_EVIDENCE_CODE
from kinprint.cli.main import main
from kinprint.metrics import METRICS
from kinprint.render.forms import FORMS
from support.places import ROOT
from support.shipping import commands

README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_it_begins_with_what_is_asked_and_with_two_commands():
    title, answer, block, *_ = README.split("\n\n")
    assert title == "# kinprint"
    assert "?" in answer
    assert len(answer) < 500
    assert [line.split("#")[0].strip() for line in block.splitlines()[1:-1]] == ["make demo", "make test"]


def test_commands_are_found():
    found = [words for page in PAGES for words in commands(page.read_text(encoding="utf-8"))]
    assert len(found) > 30
    assert {words[0] for words in found} >= {"compare", "inspect", "verify", "tree", "study", "report", "fingerprint"}
    assert commands("```python\nx\n```\nkinprint no\n```sh\nkinprint a \\\n  b  # c\n```\n") == [["a", "b"]]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_commands_and_options_exist(page):
    for line in commands(page.read_text(encoding="utf-8")):
        command = main.get_command(click.Context(main), line[0])
        assert command is not None, line
        command.make_context(line[0], line[1:], resilient_parsing=False).close()


def test_exit_codes_are_those_of_the_program():
    page = (ROOT / "docs" / "reports.md").read_text(encoding="utf-8").split("## Exit codes")[1].split("\n## ")[0]
    codes = {int(code): said for code, said in re.findall(r"^\| (\d+) \| (.+) \|$", page, re.MULTILINE)}
    raised = {kind.exit_code for kind in vars(errors).values() if isinstance(kind, type) and hasattr(kind, "exit_code")}
    assert raised | set(EXIT_CODES.values()) | {0, 2, 14, 130} == codes.keys()
    for name, code in (DECLARED_CODES | {"no_evidence": NO_EVIDENCE_CODE}).items():
        assert f"{code} `{name.replace('_', '-')}`" in page or f"{code} is\n`{name.replace('_', '-')}`" in page


def test_extras_are_those_of_the_project():
    listed = re.search(r"^Extras: (.+?)\. ", README, re.DOTALL | re.MULTILINE).group(1)
    assert set(re.findall(r"(?:^|[,)] |,\n)`(\w+)`", listed)) == set(EXTRAS)
    for page in PAGES:
        for asked in re.findall(r"extra `(\w+)`", page.read_text(encoding="utf-8")):
            assert asked in EXTRAS


# -- messages ------------------------------------------------------------------------------------------------------------


def extras_in_code():
    """Return the extras that the program asks for, wherever it does."""
    found = {form.needs[1] for form in FORMS.values() if form.needs}
    for path in (ROOT / "src").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if (
            "NeedsExtra(" not in text and "imported(" not in text
        ) or path.name == "errors.py":  # which passes on what it is given
            continue
        tree = ast.parse(text)
        constants = {
            node.targets[0].id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.targets[0], ast.Name)
        }
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and getattr(call.func, "id", None) in ("NeedsExtra", "imported"):
                (value,) = [word.value for word in call.keywords if word.arg == "extra"]
                if not isinstance(value, ast.Subscript):  # of a form, which is among those above
                    found.add(value.value if isinstance(value, ast.Constant) else constants[value.id])
    return found


def test_messages_name_packages_that_are_there():
    """No index has a kinprint of ours: what is missing is advised by the names of its own packages."""
    assert extras_in_code() == set(EXTRAS)
    for extra, packages in EXTRAS.items():
        hint = errors.NeedsExtra("this", extra=extra).hint
        assert sorted(shlex.split(hint)[2:]) == sorted(packages), (
            "make installs this project anew if pyproject.toml changes"
        )
        assert "kinprint" not in hint


def test_no_text_advises_to_install_from_an_index():
    sources = [path for path in (ROOT / "src").rglob("*") if path.suffix in (".py", ".json", ".html", ".jinja")]
    for path in [*sources, *PAGES, ROOT / "demo" / "README.md"]:
        for advised in re.findall(r"pip install ([^`\n]+)", path.read_text(encoding="utf-8")):
            assert re.match(r"\.|'\.\[|-r requirements|\{brought\}", advised), f"{path.name}: {advised}"


# -- the page of the package ---------------------------------------------------------------------------------------------


def test_no_link_of_the_package_page_leads_nowhere():
    page = README
    for change in PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        page = re.sub(change["pattern"], change["replacement"], page)
    assert re.findall(r"\]\((?!https://|#)", page) == []
    assert "`docs/ci.md`" in page
    assert "Worked examples (`docs/examples.md`)" in page
    assert len(page) > 0.9 * len(README)


def test_counts_told_are_counts():
    assert len(PROJECT["project"]["dependencies"]) == 8
    assert "eight dependencies" in README
    assert len(list(METRICS)) == 2 + 15
    assert "fifteen" in README
