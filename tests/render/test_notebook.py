"""What a notebook shows: a small fragment without script, in which names of strangers are text and nothing else."""

import base64
import re
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from IPython.core.formatters import DisplayFormatter

from kinprint.model.inspection import inspect
from kinprint.render.notebook.report import inspection_notebook, pairs_notebook, report_notebook, tree_notebook
from kinprint.render.texts.words import Words
from kinprint.results.findings import CLASSES, SIGN_FLIPS
from kinprint.results.report import Report
from kinprint.results.tree import FamilyTree, TreeEdge, TreeModel, TreeRun, TreeSettings
from kinprint.sources.settings import Settings
from support.places import ROOT
from support.reports import HOSTILE, empty_report, hostile_model, hostile_report, pairs_report

GOLDEN = ROOT / "tests" / "golden"
IN_ENGLISH = Words()
REPORT = Report.from_json((GOLDEN / "report_v2.json").read_bytes())
OLDER = Report.from_json((GOLDEN / "report_v1.json").read_bytes())
_TABLE = ("table", "caption", "thead", "tbody", "tr", "th", "td")
TAGS = {"div", "style", "p", "span", "bdi", "figure", "svg", "text", "rect", "figcaption", "img", *_TABLE}
_DRAWN = ("viewbox", "x", "y", "width", "height", "text-anchor", "font-size", "dx")
ATTRIBUTES = {
    "class",
    "role",
    "lang",
    "aria-label",
    "style",
    "scope",
    "src",
    "alt",
    *_DRAWN,
}  # none of which runs anything


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
    return FamilyTree(FamilyTree.SCHEMA, 1, models, (edge,), (), (), (f"note {name}",), settings, TreeRun("0", 0.0, 0))


def test_ipython_shows_a_report():
    page = Page(shown_by_ipython(REPORT))
    assert REPORT.verdict.sentence in page.words
    assert f"log10 p {REPORT.verdict.log10_p:.1f} after Holm's correction" in page.words
    for item in REPORT.summary:
        assert item.role in page.words
    for control in REPORT.evidence.controls:
        assert IN_ENGLISH.control(control.name) in page.words
    assert REPORT.declared.sentence in page.words
    assert page.tags["table"] == 2
    assert page.tags["svg"] == 1


def test_figures_stand_beside_their_null():
    item = next(item for item in REPORT.summary if item.null is not None)
    row = re.search(rf"<tr><td>{item.role}</td>(.*?)</tr>", report_notebook(REPORT))[1]
    cells = re.findall(r"<td>(.*?)</td>", row)
    assert cells[1] == str(item.null.n)
    assert cells[7] == f"{item.null.z:+.2f}"


def test_it_is_small_and_needs_nothing():
    fragment = report_notebook(REPORT)
    assert len(fragment) < 30_000
    assert not re.search(r"<script|https?:|@import|url\(", fragment)
    assert "prefers-color-scheme:dark" in fragment
    assert "--jp-content-font-color1" in fragment


def test_style_touches_nothing_else():
    style = re.search(r"<style>(.*?)</style>", report_notebook(REPORT), re.DOTALL)[1]
    selectors = re.findall(r"(?:^|[}{])\s*([^{}@]+)\{", style)
    assert len(selectors) > 8
    for selector in selectors:
        assert all(part.strip().startswith(".kinprint-nb") for part in selector.split(",")), selector


@pytest.mark.parametrize("found", CLASSES)
def test_every_class_of_verdict(found):
    page = Page(report_notebook(replace(REPORT, verdict=replace(REPORT.verdict, class_=found, kind=None))))
    assert found.replace("_", " ") in page.words
    assert ("not proof of independence" in page.words) == (found == "no_evidence")


@pytest.mark.parametrize("everything", [False, True])
def test_hostile_names_are_inert(everything):
    page = Page(report_notebook(hostile_report(REPORT, everything=everything)))
    tame = Page(report_notebook(REPORT))
    assert set(page.tags) <= TAGS
    assert set(page.attributes) <= ATTRIBUTES
    assert page.tags | Counter(bdi=1000) == tame.tags | Counter(bdi=1000)
    assert all(c.isprintable() or c == "\n" for c in "".join(page.text))


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_is_shown(text):
    page = Page(report_notebook(replace(REPORT, a=replace(REPORT.a, reference=text))))
    wanted = "".join(c if c.isprintable() else "\ufffd" for c in text)
    assert " ".join(wanted.split())[:40] in page.words


def test_an_older_report_and_one_without_anything_comparable(tmp_path):
    assert "Declared, and measured" not in Page(report_notebook(OLDER)).words
    empty = empty_report(tmp_path)
    page = Page(report_notebook(empty))
    assert "Nothing could be compared: " in page.words
    assert page.tags["table"] <= 1  # there are no roles to show
    bare = Page(report_notebook(replace(empty, verdict=None, evidence=None)))
    assert "asked for measurements alone" in bare.words
    assert bare.tags["svg"] == 0


def test_a_control_that_was_not_run_says_why():
    control = replace(REPORT.evidence.controls[0], status="not run", found=None, z=None, log10_p=None, reason="gone")
    fragment = report_notebook(replace(REPORT, evidence=replace(REPORT.evidence, controls=(control,))))
    assert "A against itself: gone" in Page(fragment).words
    cells = re.findall(r"<td>(?:<bdi>)?(.*?)(?:</bdi>)?</td>", fragment.rpartition("<tbody>")[2])
    assert cells == ["A against itself", control.expected, "–", "not run", "–", "–"]


def test_ipython_shows_an_inspection(tmp_path):
    page = Page(shown_by_ipython(inspect(str(ROOT / "demo" / "models" / "base"), settings=Settings())))
    assert "492,384 parameters" in page.words
    assert "input_norm" in page.words
    hostile = Page(inspection_notebook(inspect(str(hostile_model(tmp_path)), settings=Settings())))
    assert set(hostile.tags) <= TAGS
    assert set(hostile.attributes) <= ATTRIBUTES


@pytest.mark.parametrize("name", ["child", *HOSTILE], ids=range(len(HOSTILE) + 1))
def test_a_tree_is_an_image(name):
    page = Page(tree_notebook(tree(name)))
    assert page.tags["img"] == 1
    assert set(page.tags) <= TAGS
    assert set(page.attributes) <= ATTRIBUTES
    head, _, drawn = page.attributes["src"].partition(",")
    assert head == "data:image/svg+xml;base64"
    assert ET.fromstring(base64.b64decode(drawn)).tag.endswith("svg")
    assert page.attributes["alt"]


# -- all pairs -----------------------------------------------------------------------------------------------------------


def test_ipython_shows_all_pairs():
    report = pairs_report(("base", "tuned", "other"))
    fragment = shown_by_ipython(report)
    page = Page(fragment)
    assert page.tags["table"] == 2
    assert page.tags["img"] == 1
    assert "Verdict of every pair" in page.words
    rows = [re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr>(<td>.*?)</tr>", fragment)]
    assert [row[2:] for row in rows[:3]] == [["", "D", "·"], ["D", "", "·"], ["·", "·", ""]]
    assert [" ".join(row[:2]) for row in rows[:3]] == ["1 base", "2 tuned", "3 other"]
    strongest = report.pairs[0]
    assert rows[3][2:4] == [f"{strongest.log10_p:.2f}", f"{strongest.log10_p_pairs:.2f}"]
    assert "common ancestor: base, tuned" in page.words
    assert "Derives from none of the others, as far as was seen: other" in page.words
    assert fragment.index("<table>") < fragment.index("<img")
    assert len(fragment) < 30_000


def test_a_pair_that_does_not_stand_says_so():
    assert "derived" in (text := Page(pairs_notebook(pairs_report(log10_p=-6.2))).words)
    assert "(D)" in text
    assert "does not stand after correction for all pairs" in text


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_names_of_strangers_in_all_pairs(text):
    page = Page(pairs_notebook(pairs_report((text, "b", text + "c"))))
    assert set(page.tags) <= TAGS
    assert set(page.attributes) <= ATTRIBUTES
    assert page.tags["img"] == 1
    assert all(c.isprintable() or c == "\n" for c in "".join(page.text))


# -- figures and words ---------------------------------------------------------------------------------------------------


def test_bounds_are_marked_and_nothing_else_is():
    fragment = report_notebook(REPORT)
    bounds = 0
    for item in REPORT.summary:
        row = re.search(rf"<tr><td>{item.role}</td>(.*?)</tr>", fragment)[1]
        bound = item.null is not None and item.null.p_method.bound
        assert re.findall(r"<td>(.*?)</td>", row)[-1].startswith("≤ ") == bound
        bounds += bound
    assert 0 < bounds < len(REPORT.summary)


def test_tests_have_plain_names():
    drawn = "".join(re.findall(r"<text.*?</text>", report_notebook(REPORT)))
    assert "Rows match their own place: MLP up matrices" in drawn
    assert not any(test.name in drawn for test in REPORT.evidence.tests)
    tests = tuple(replace(test, name="a_new_test") for test in REPORT.evidence.tests)
    unknown = report_notebook(replace(REPORT, evidence=replace(REPORT.evidence, tests=tests)))
    assert "a new test: MLP up matrices" in unknown


def test_the_chart_fits_any_width_and_says_its_scale():
    drawn = re.search(r"<figure.*?</figure>", report_notebook(REPORT), re.DOTALL)[0]
    assert "viewBox" not in drawn
    assert 'width="100%"' in drawn
    ends = [float(x) for x in re.findall(r'<rect x="0"[^>]* width="([\d.]+)%"', drawn)]
    assert max(ends) <= 76
    assert "lengths on a logarithmic scale" in drawn
    assert "claim nothing by themselves" not in drawn
    last = replace(REPORT.evidence.tests[0], name=SIGN_FLIPS, status="ok", log10_p_holm=-999.0)
    found = replace(REPORT, evidence=replace(REPORT.evidence, tests=(*REPORT.evidence.tests, last)))
    assert "claim nothing by themselves" in report_notebook(found)


# -- as text -------------------------------------------------------------------------------------------------------------


def test_text_is_one_short_line():
    verdict = REPORT.verdict
    words = f"{verdict.class_}, {verdict.kind}, log10 p {verdict.log10_p:.1f}"
    assert repr(REPORT) == f"<Report: {REPORT.a.reference} and {REPORT.b.reference}: {words}>"
    assert repr(replace(REPORT, verdict=None)).endswith(": no verdict>")
    assert repr(tree()) == "<FamilyTree: 2 models (parent, child): 1 edges, 0 other links>"
    found = inspect(str(ROOT / "demo" / "models" / "base"), settings=Settings())
    assert repr(found).endswith("base: llama, 4 layers, 492,384 parameters>")
    report = pairs_report(("base", "tuned", "other"))
    assert repr(report) == "<PairsReport: 3 models (base, tuned, other): 3 pairs, 1 group of derived models>"
    data, _ = DisplayFormatter().format(report)
    assert data["text/plain"] == repr(report)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_text_of_strangers_is_cut_and_printable(text):
    model = replace(REPORT.a, reference=text, architecture=text)
    report = replace(REPORT, a=model, b=model, verdict=replace(REPORT.verdict, kind=text))
    for thing in (report, tree(text), pairs_report((text, text, text))):
        assert repr(thing).isprintable()
        assert len(repr(thing)) < 400
