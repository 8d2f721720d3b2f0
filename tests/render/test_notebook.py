"""What a notebook shows: a small fragment without script, in which names of strangers are text and nothing else."""

import base64
import re
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from IPython.core.formatters import DisplayFormatter

from kinprint.family import TREE_SCHEMA, FamilyTree, TreeEdge, TreeModel, TreeRun, TreeSettings
from kinprint.findings import CLASSES
from kinprint.inspection import inspect
from kinprint.render.notebook import inspection_html, notebook_html, tree_html
from kinprint.results import Report
from kinprint.sources.settings import Settings
from kinprint.testing.reports import HOSTILE, empty_report, hostile_model, hostile_report

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
REPORT = Report.from_json((GOLDEN / "report_v1_annexes.json").read_bytes())
OLDER = Report.from_json((GOLDEN / "report_v1.json").read_bytes())
_TABLE = ("table", "caption", "thead", "tbody", "tr", "th", "td")
TAGS = {"div", "style", "p", "span", "bdi", "figure", "svg", "text", "rect", "path", "figcaption", "img", *_TABLE}
_DRAWN = ("viewbox", "x", "y", "width", "height", "text-anchor", "font-size", "d")
ATTRIBUTES = {"class", "role", "aria-label", "style", "scope", "src", "alt", *_DRAWN}  # none of which runs anything


class Page(HTMLParser):
    """Tags, attributes and text, as a browser would take them; complains of tags that do not close in order."""

    def __init__(self, fragment):
        super().__init__()
        self.tags, self.attributes, self.text, self.open = Counter(), {}, [], []
        self.feed(fragment)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags[tag] += 1
        self.attributes.update(dict(attrs))
        if tag != "img":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags[tag] += 1
        self.attributes.update(dict(attrs))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text.append(data)

    @property
    def words(self):
        return " ".join("".join(self.text).split())


def shown_by_ipython(thing):
    data, _ = DisplayFormatter().format(thing)
    return data["text/html"]


def tree(name="child"):
    models = tuple(
        TreeModel(i, one, one, one, None, "llama", 2, 0, 10, i, 0, None, ()) for i, one in enumerate(("parent", name))
    )
    edge = TreeEdge(0, 1, "fine_tuned", "s", -9.0, -8.0, 0.1, 3, False, None, None, "undirected", 0.5, ())
    settings = TreeSettings(None, False, False, 0, -6.0, 0.9, 1)
    return FamilyTree(TREE_SCHEMA, 1, models, (edge,), (), (), (f"note {name}",), settings, TreeRun("0", 0.0, 0))


def test_ipython_shows_a_report():
    page = Page(shown_by_ipython(REPORT))
    assert REPORT.verdict.sentence in page.words
    assert f"log10 p {REPORT.verdict.log10_p:.2f} after Holm's correction" in page.words
    for item in REPORT.summary:
        assert item.role in page.words
    for control in REPORT.evidence.controls:
        assert control.name in page.words
    assert REPORT.declared.sentence in page.words
    assert page.tags["table"] == 2
    assert page.tags["svg"] == 1


def test_figures_stand_beside_their_null():
    item = next(item for item in REPORT.summary if item.null is not None)
    row = re.search(rf"<tr><td>{item.role}</td>(.*?)</tr>", notebook_html(REPORT))[1]
    cells = re.findall(r"<td>(.*?)</td>", row)
    assert cells[1] == str(item.null.n)
    assert cells[7] == f"{item.null.z:.2f}"


def test_it_is_small_and_needs_nothing():
    fragment = notebook_html(REPORT)
    assert len(fragment) < 30_000
    assert not re.search(r"<script|https?:|@import|url\(", fragment)
    assert "prefers-color-scheme:dark" in fragment
    assert "--jp-content-font-color1" in fragment


def test_style_touches_nothing_else():
    style = re.search(r"<style>(.*?)</style>", notebook_html(REPORT), re.DOTALL)[1]
    selectors = re.findall(r"(?:^|[}{])\s*([^{}@]+)\{", style)
    assert len(selectors) > 8
    for selector in selectors:
        assert all(part.strip().startswith(".kinprint-nb") for part in selector.split(",")), selector


@pytest.mark.parametrize("found", CLASSES)
def test_every_class_of_verdict(found):
    page = Page(notebook_html(replace(REPORT, verdict=replace(REPORT.verdict, class_=found, kind=None))))
    assert found.replace("_", " ") in page.words
    assert ("not proof of independence" in page.words) == (found == "no_evidence")


@pytest.mark.parametrize("everything", [False, True])
def test_hostile_names_are_inert(everything):
    page = Page(notebook_html(hostile_report(REPORT, everything=everything)))
    tame = Page(notebook_html(REPORT))
    assert set(page.tags) <= TAGS
    assert set(page.attributes) <= ATTRIBUTES
    assert {tag: count for tag, count in page.tags.items() if tag != "bdi"} == tame.tags
    assert all(c.isprintable() or c == "\n" for c in "".join(page.text))


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_is_shown(text):
    page = Page(notebook_html(replace(REPORT, a=replace(REPORT.a, reference=text))))
    wanted = "".join(c if c.isprintable() else "\ufffd" for c in text)
    assert " ".join(wanted.split())[:40] in page.words


def test_an_older_report_and_one_without_anything_comparable(tmp_path):
    assert "Declared against measured" not in Page(notebook_html(OLDER)).words
    empty = empty_report(tmp_path)
    page = Page(notebook_html(empty))
    assert "Not comparable: " in page.words
    assert page.tags["table"] <= 1  # there are no roles to show
    bare = Page(notebook_html(replace(empty, verdict=None, evidence=None)))
    assert "asked for measurements alone" in bare.words
    assert bare.tags["svg"] == 0


def test_a_control_that_was_not_run_says_why():
    control = replace(REPORT.evidence.controls[0], status="not run", found=None, z=None, log10_p=None, reason="gone")
    fragment = notebook_html(replace(REPORT, evidence=replace(REPORT.evidence, controls=(control,))))
    assert f"{control.name}: gone" in Page(fragment).words
    cells = re.findall(r"<td>(?:<bdi>)?(.*?)(?:</bdi>)?</td>", fragment.rpartition("<tbody>")[2])
    assert cells == [control.name, control.expected, "–", "not run", "–", "–"]


def test_ipython_shows_an_inspection(tmp_path):
    page = Page(shown_by_ipython(inspect(str(ROOT / "demo" / "models" / "base"), settings=Settings())))
    assert "492,384 parameters" in page.words
    assert "input_norm" in page.words
    hostile = Page(inspection_html(inspect(str(hostile_model(tmp_path)), settings=Settings())))
    assert set(hostile.tags) <= TAGS
    assert set(hostile.attributes) <= ATTRIBUTES


@pytest.mark.parametrize("name", ["child", *HOSTILE], ids=range(len(HOSTILE) + 1))
def test_a_tree_is_an_image(name):
    page = Page(tree_html(tree(name)))
    assert page.tags["img"] == 1
    assert set(page.tags) <= TAGS
    assert set(page.attributes) <= ATTRIBUTES
    head, _, drawn = page.attributes["src"].partition(",")
    assert head == "data:image/svg+xml;base64"
    assert ET.fromstring(base64.b64decode(drawn)).tag.endswith("svg")
    assert page.attributes["alt"]
