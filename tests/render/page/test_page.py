"""The HTML report without a browser: self-contained, inert, complete, and the same bytes every time."""

import base64
import hashlib
import json
import re
import zlib
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import pytest

from kinprint._util.numeric import median
from kinprint._util.plain import ranges
from kinprint.errors import BadSetting
from kinprint.render.page.both_languages import differences
from kinprint.render.page.layer_maps import closeness, role_map
from kinprint.render.page.markup import PageWords, middle_cut, powers
from kinprint.render.page.report import report_html
from kinprint.render.texts.words import power_of_ten
from kinprint.results.findings import CLASSES, ControlFinding
from kinprint.results.measurements import NOT_COMPARABLE
from kinprint.results.report import Report
from kinprint.text import Text
from support.places import GOLDEN_REPORTS
from support.reports import hostile_report

GOLDEN = GOLDEN_REPORTS
ASSETS = files("kinprint.render.page").joinpath("assets")
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


class Page(HTMLParser):
    """What a page consists of; fails on tags that do not nest."""

    def __init__(self, raw: bytes) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.content: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(raw.decode())
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), f"an attribute stands twice in {tag}"
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> ends nothing"
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open:
            self.content.setdefault(self._open[-1], []).append(data)

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.elements)

    @property
    def text(self) -> str:
        hidden = ("script", "style")
        return " ".join(" ".join(parts) for tag, parts in self.content.items() if tag not in hidden)


@pytest.fixture(scope="module")
def report() -> Report:
    return Report.from_json((GOLDEN / "report_v2.json").read_bytes())


@pytest.fixture(scope="module")
def old() -> Report:
    return Report.from_json((GOLDEN / "report_v1.json").read_bytes())


@pytest.fixture(scope="module")
def html(report: Report) -> bytes:
    return report_html(report)


def payload(raw: bytes) -> tuple[dict, bytes]:
    """Return what scripts show, and the report's JSON that is saved."""
    found = re.search(rb'<script type="text/plain" id="kinprint-data">([A-Za-z0-9+/=]*)</script>', raw)
    assert found
    head, _, report = zlib.decompress(base64.b64decode(found[1])).partition(b"\n")
    return json.loads(head), report


# -- one file, and nothing else --------------------------------------------------------------------------------------------


def test_same_report_same_bytes(report: Report, html: bytes) -> None:
    assert html.startswith(b"<!DOCTYPE html>")
    assert report_html(report) == html
    assert report_html(Report.from_json(report.to_json())) == html


def test_the_policy_allows_the_two_inlined_texts_alone(html: bytes) -> None:
    text = html.decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy
    rules = dict(part.strip().split(" ", 1) for part in policy[1].replace("&#39;", "'").split(";"))
    assert rules["default-src"] == "'none'"
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        content = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert len(content) == 1
        digest = base64.b64encode(hashlib.sha256(content[0].encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    assert "unsafe" not in policy[1]


def test_nothing_is_loaded_and_nothing_runs_from_an_attribute(html: bytes) -> None:
    for tag, attributes in Page(html).elements:
        for name, value in attributes.items():
            assert name != "style", tag  # the policy would refuse it
            assert not name.startswith("on"), tag
            assert name not in ("src", "srcset", "action", "formaction", "xlink:href", "poster"), tag
            if name == "href":
                assert value is not None
                assert value.startswith(("#", "data:,")), value


def test_scripts_never_parse_markup() -> None:
    for part in ASSETS.iterdir():
        if part.name.endswith(".js"):
            source = part.read_text(encoding="utf-8")
            for word in (
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "new Function",
                "</script",
                "<!--",
            ):
                assert word not in source, f"{part.name}: {word}"
            assert not re.search(
                r"\b(fetch|XMLHttpRequest|WebSocket|EventSource|sendBeacon|localStorage|import)\s*[(.]", source
            )


def test_ids_are_unique_and_references_lead_somewhere(html: bytes) -> None:
    found = Page(html).elements
    ids = [attributes["id"] for _, attributes in found if "id" in attributes]
    assert len(ids) == len(set(ids))
    for tag, attributes in found:
        for name in ("aria-labelledby", "aria-describedby", "for"):
            assert set((attributes.get(name) or "").split()) <= set(ids), (tag, attributes)
        if (attributes.get("href") or "").startswith("#"):
            assert attributes["href"][1:] in ids


def test_headings_step_down_one_at_a_time(html: bytes) -> None:
    levels = [int(tag[1]) for tag, _ in Page(html).elements if re.fullmatch("h[1-6]", tag)]
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


# -- what it says --------------------------------------------------------------------------------------------------------


def test_the_verdict_and_the_tables_stand_in_plain_html(report: Report, html: bytes) -> None:
    text = Page(html).text
    assert report.verdict is not None
    assert powers(report.verdict.sentence) in text
    for untested in report.verdict.untested:
        assert PageWords("en").reason(untested).text in text
    for item in report.summary:
        assert item.role in text
    for side in (report.a, report.b):
        for file in side.files:
            assert file.name in text
    for item in report.reads:
        assert item.sha256 in text
    assert "kinprint compare" in text


@pytest.mark.parametrize("class_", CLASSES)
def test_every_class_of_verdict_has_its_words(report: Report, class_: str) -> None:
    assert report.verdict is not None
    found = Page(report_html(replace(report, verdict=replace(report.verdict, class_=class_, kind=None))))
    voice = PageWords("en")
    assert voice.say(f"class.{class_}").capitalize() in found.text
    assert voice.say(f"claim.{class_}") in found.text


def test_a_failed_control_stands_before_the_verdict(report: Report) -> None:
    assert report.evidence is not None
    bad = ControlFinding("self", "identical", "failed", "no_evidence", -1.0, 0.5, Text("not as expected"))
    raw = report_html(replace(report, evidence=replace(report.evidence, controls=(bad,)))).decode()
    warning = PageWords("en").say("verdict.control_failed")
    assert 0 < raw.index(warning) < raw.index('id="verdict-title"')


PARTS = (
    "role-map",
    "tests",
    "roles",
    "measured",
    "heatmap",
    "maps",
    "controls",
    "untested",
    "declared",
    "reading",
    "data",
)


def parts(raw: bytes) -> list[str | None]:
    """Return the parts of a page that can be opened, and see that all of them are closed."""
    found = [
        attributes for tag, attributes in Page(raw).elements if (tag, attributes.get("class")) == ("details", "part")
    ]
    assert not any("open" in attributes for attributes in found)
    return [attributes["id"] for attributes in found]


def test_all_evidence_is_there_and_closed(html: bytes) -> None:
    assert parts(html) == [*PARTS]
    assert [attributes["id"] for tag, attributes in Page(html).elements if tag == "section"] == ["verdict"]


def test_an_older_report_has_no_empty_part(old: Report) -> None:
    assert (old.grids, old.declared, old.reads) == ((), None, ())
    assert not {"heatmap", "declared"} & {*parts(report_html(old))}


def test_nothing_comparable_still_renders_and_says_why(report: Report) -> None:
    empty = replace(
        report,
        status=NOT_COMPARABLE,
        reason="no role is in both models",
        summary=(),
        comparisons=(),
        grids=(),
        verdict=None,
        evidence=None,
        methods=(),
        declared=None,
        reads=(),
    )
    raw = report_html(empty)
    assert Page(raw).text.count("no role is in both models") >= 2
    assert parts(raw) == ["untested", "reading", "data"]
    assert b'id="picture"' not in raw


def test_evidence_without_a_single_p_value_still_renders(report: Report) -> None:
    assert report.evidence is not None
    off = tuple(
        replace(test, status="off", reason="constant", log10_p=None, log10_p_holm=None)
        for test in report.evidence.tests
    )
    bare = replace(report.evidence, tests=off, controls=(), components=(), edits=(), power=(), experts=(), merge=None)
    assert report.verdict is not None
    raw = report_html(replace(report, evidence=bare, verdict=replace(report.verdict, log10_p=None, rules=())))
    assert not {"tests", "controls"} & {*parts(raw)}


def test_korean_page_says_so(report: Report) -> None:
    raw = report_html(report, lang="ko")
    assert b'<html lang="ko"' in raw
    assert PageWords("ko").say("verdict.not_said") in raw.decode()
    assert payload(raw)[0]["lang"] == "ko"


@pytest.mark.parametrize("older", [False, True])
def test_one_file_can_show_both_languages(report: Report, old: Report, older: bool) -> None:
    """Texts and attributes of the English page, exchanged as the scripts do, make the Korean one."""
    shown = old if older else hostile_report(report)
    english, korean = (report_html(shown, lang=lang) for lang in ("en", "ko"))
    changes = payload(english)[0]["other"]
    made, wanted = _pieces(english), _pieces(korean)
    for place, text in changes["texts"]:
        made[1][place] = text
    for place, name, value in changes["attributes"]:
        made[0][place][1].pop(name, None)
        made[0][place][1].update({} if value is None else {name: value})
    assert made == wanted
    assert len(changes["texts"]) > 100


def _pieces(raw: bytes) -> tuple[list[tuple[str, dict[str, str]]], list[str]]:
    page = raw.decode().split('<script type="text/plain"')[0]
    tags = [tag for tag in re.findall(r"<[^>]*>", page) if not tag.startswith(("</", "<!"))]
    elements = [(tag.split()[0].rstrip(">"), dict(re.findall(r'([\w-]+)="([^"]*)"', unescape(tag)))) for tag in tags]
    return elements, [unescape(text) for text in re.split(r"<[^>]*>", page) if text.strip()]


def test_pages_of_other_elements_are_not_exchanged() -> None:
    assert differences("<p>a</p>", "<p>b</p>") == {"texts": [[0, "b"]], "attributes": []}
    assert differences('<p lang="en">a</p>', '<p title="&lt;">a</p>') == {
        "texts": [],
        "attributes": [[0, "lang", None], [0, "title", "<"]],
    }
    assert differences("<p>a</p>", "<b>b</b>") is None
    assert differences("<p>a</p>", "<p> </p>") is None


def test_an_unknown_language_is_refused(report: Report) -> None:
    with pytest.raises(BadSetting, match="xx"):
        report_html(report, lang="xx")


# -- names of strangers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("everything", [False, True])
def test_hostile_names_make_no_element_and_no_attribute(report: Report, html: bytes, everything: bool) -> None:
    clean, poisoned = Page(html), Page(report_html(hostile_report(report, everything=everything)))
    allowed = {tag for tag, _ in clean.elements}
    assert {tag for tag, _ in poisoned.elements} <= allowed | {"small"}
    for tag in ("script", "style", "a", "meta", "link", "img", "iframe"):
        assert poisoned.count(tag) == clean.count(tag), tag
    names = {name for _, attributes in clean.elements for name in attributes} | {"title"}
    assert {name for _, attributes in poisoned.elements for name in attributes} <= names


def test_hostile_text_is_shown_as_text(report: Report) -> None:
    raw = report_html(hostile_report(report)).decode()
    found = Page(raw.encode())
    assert "<script>alert(1)</script>" in found.text
    assert "{{7*7}}" in found.text
    assert "49" not in [part.strip() for part in found.content["bdi"]]
    for mark in "\u202e\u2066\u200f\x00\x07\x1b\u2028\u2029\ufeff":
        assert mark not in raw
    assert len(raw) < 3_000_000


def test_a_long_name_is_cut_and_its_whole_is_in_the_title() -> None:
    name = "model." + "x" * 500 + ".weight"
    shown = str(PageWords("en").name(name))
    assert f'title="{name}"' in shown
    assert middle_cut(name, 72) in shown
    assert middle_cut(name, 72).endswith("weight")


def test_whole_names_cannot_blow_up_the_page() -> None:
    voice = PageWords("en")
    assert sum(len(str(voice.name("y" * 10_000 + str(i)))) for i in range(500)) < 600_000


# -- figures --------------------------------------------------------------------------------------------------------------


def test_the_page_holds_the_report_itself(report: Report, html: bytes) -> None:
    shown, saved = payload(html)
    assert saved == report.to_json()
    data = shown["measured"]
    flat = [(item, m) for item in report.comparisons for m in item.measurements]
    assert len(data["rows"]) == len(flat)
    for (place, metric, how, *_), (item, measured) in zip(data["rows"], flat, strict=True):
        role, layer, expert, *names = data["places"][place]
        assert (data["roles"][role], layer, expert) == (item.role, item.layer, item.expert)
        assert [data["names"][name] for name in names] == [item.a.tensor, item.b.tensor]
        assert data["metrics"][metric] == measured.metric
        assert bool(data["hows"][how]["ko"]) == (measured.null is not None)
    assert [grid["role"] for grid in shown["grids"]] == [grid.role for grid in report.grids]
    assert [grid["off"] is None for grid in shown["grids"]] == [grid.status == "ok" for grid in report.grids]


def test_the_map_of_roles_has_a_cell_for_every_tensor(report: Report) -> None:
    found = role_map(report)
    assert found is not None
    assert sum(cell["count"] for cell in found["bins"]) == len({(item.role, item.layer) for item in report.comparisons})
    for bin_ in found["bins"]:
        for column, row in re.findall(r"M(\d+) (\d+)h", bin_["path"]):
            role, layer = found["roles"][int(row)], found["columns"][int(column)]
            own = [closeness(item) for item in report.comparisons if (item.role, item.layer) == (role, layer)]
            z = median([value for value in own if value is not None])
            assert bin_["low"] is None or z > bin_["low"]
            assert bin_["high"] is None or z <= bin_["high"]


@pytest.mark.parametrize(
    "log10_p", [-0.1, -0.5, -1.0, -1.3, -2.999, -3.0, -5.99, -6.0, -6.5, -7.0, -140.4, -140.99, -1663.5]
)
def test_odds_never_claim_more_than_the_p_value(log10_p: float) -> None:
    said = PageWords("en").odds(log10_p)
    if said.startswith("p = "):
        assert float(said[4:]) == pytest.approx(10**log10_p, abs=0.005)
        return
    n = said.removeprefix("1 in ")
    exponent = float(n[2:].translate(str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789"))) if re.search("[⁰-⁹¹²³]", n) else None
    if exponent is not None:
        assert -1.0 < log10_p + exponent <= 0.0
    else:
        assert 10**log10_p <= 1.0 / int(n.replace(",", "")) * (1 + 1e-9)


def test_small_words() -> None:
    assert power_of_ten(-140) == "10⁻¹⁴⁰"
    assert powers("a chance below 10^-140.") == "a chance below 10⁻¹⁴⁰."
    assert powers("the level of 10^-17.3") == "the level of 10^-17.3"
    assert ranges([0, 1, 2, 5, 7, 8]) == "0–2, 5, 7–8"
    assert PageWords("en").odds(0.0) == "p = 1.00"
    assert PageWords("en").odds(-6.0) == "1 in 1,000,000"


# -- words ----------------------------------------------------------------------------------------------------------------


def sources() -> str:
    """Return all that may name a word: templates, scripts and modules of pages and of what shows them."""
    folders = [Path(str(files(f"kinprint.{room}"))) for room in ("render", "serve", "cli")]
    parts = [part for folder in folders for kind in ("html", "js", "py") for part in folder.rglob(f"*.{kind}")]
    return "\n".join(part.read_text(encoding="utf-8") for part in parts)


def test_no_word_is_left_over_and_none_is_missing() -> None:
    words = json.loads(files("kinprint.render.texts").joinpath("labels_en.json").read_bytes())
    text = sources()
    named = set(re.findall(r"""["'`]([a-z_]+(?:\.[a-z_A-Z]+)+|[a-z_]+)["'`]""", text))
    prefixes = set(re.findall(r'"([a-z_.]+\.)" ~', text)) | {f"{p}." for p in re.findall(r'label\("([a-z_]+)"', text)}
    prefixes |= {f"{p}." for p in re.findall(r":(?:label|state)\.([a-z_]+)", text)}  # columns of tables
    prefixes |= {
        "col.",
        "test.",
        "control.",
        "how.",
        "js.heat.",
        "null.",
        "settings.",
        "data.",
        "many.",
        "picture.says.",
        "part.",
    }
    prefixes |= {"cosine.example.", "tokenizer.", "axis.", "cue.", "source.", "check.", "problem.", "fingerprint.kind."}
    prefixes |= {"tree.copies.", "tree.families.", "tree.alone.", "tree.tie."}
    prefixes |= {"serve.state.", "serve.stage."}  # by the names that jobs have for them
    prefixes |= {"catalog.signature.", "graph.state.", "search.class.", "search.same.", "search.family."}  # of results
    named |= {"catalog.already", "catalog.failed"}  # kinds of what catalog add did
    for key in words:
        key = key if key in named else key.removesuffix(".one")  # the same of one thing
        assert key in named or any(key.startswith(prefix) for prefix in prefixes), f"nobody says {key}"
    for key in re.findall(r"""\b(?:v|words)\.say\(["']([a-z_.A-Z]+)["'][,)]""", text):
        assert key in words, f"no words for {key}"


def test_scripts_say_only_what_they_are_given() -> None:
    text = "".join(part.read_text(encoding="utf-8") for part in ASSETS.iterdir() if part.name.endswith(".js"))
    said = set(re.findall(r"say\('(js\.[a-z_.]+)'", text))
    said |= {"js.heat.cosine", "js.heat.pearson", "js.heat.z"}
    assert said == set(PageWords("en").templates("js."))
