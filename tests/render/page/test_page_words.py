"""What the HTML report says in words: headlines, names of edits, controls that failed, counts in two languages."""

import re
from dataclasses import replace

import pytest

from kinprint.evidence.edit_kinds import _PLAIN, _REPLACED
from kinprint.evidence.words import word
from kinprint.render.content.answer import picture_of
from kinprint.render.content.report import identity
from kinprint.render.page.first_screen import first_screen
from kinprint.render.page.markup import PageWords
from kinprint.render.page.report import report_html
from kinprint.results.findings import ControlFinding, PowerFinding, Rule
from kinprint.results.measurements import TensorComparison
from kinprint.results.models import SYNTHETIC
from kinprint.results.options import Options
from kinprint.results.report import Report
from kinprint.text import Text
from support.places import GOLDEN_REPORTS

GOLDEN = GOLDEN_REPORTS / "report_v2.json"
SEEN = Text(
    "No evidence that either model derives from the other; a {q} of {x:.2g} or a {r} of {y:.2g} would have been seen with "
    "95% probability, dimensions and rows being in place.",
    q=Text("correlation of norm scales"), x=0.954, r=Text("cosine of rows"), y=0.12,
)  # fmt: skip
NOTHING = Text("{found} This does not prove training from scratch.", found=SEEN)


@pytest.fixture(scope="module")
def report() -> Report:
    return Report.from_json(GOLDEN.read_bytes())


def with_controls(report: Report, *controls: ControlFinding) -> Report:
    assert report.evidence is not None
    return replace(report, evidence=replace(report.evidence, controls=controls))


# -- the headline ----------------------------------------------------------------------------------------------------------


def _nothing(report: Report) -> Report:
    assert report.verdict is not None
    assert report.evidence is not None
    verdict = replace(report.verdict, class_="no_evidence", kind=None, kinds=(), sentence=NOTHING, log10_p=0.0)
    power = [
        PowerFinding("fixed_points", role, Text("cosine of rows"), least, 0.95, -7.4, 32, 96, 4)
        for role, least in (("attn_v", 0.2), ("mlp_up", 0.15))
    ]
    return replace(report, verdict=verdict, evidence=replace(report.evidence, power=tuple(power)))


@pytest.mark.parametrize("lang", ["en", "ko"])
def test_no_evidence_says_how_small_a_share_would_have_been_noticed(report: Report, lang: str) -> None:
    found = first_screen(_nothing(report), PageWords(lang))
    assert found["light"] == "none"
    assert found["sentence"] == PageWords(lang).say("verdict.nothing_found")
    assert [
        text for text in found["reasons"] if "15%" in text and "95%" in text and PageWords(lang).part("mlp_up") in text
    ]
    raw = report_html(_nothing(report), lang=lang).decode()
    assert "0.95" in raw[raw.index('id="controls"') :]  # the engine's own sentence stands beside the power of the tests


def test_what_cannot_be_tested_says_why_in_the_headline(report: Report) -> None:
    assert report.verdict is not None
    rule = Rule("comparable", Text("?"), (), True, "not_testable")
    verdict = replace(report.verdict, class_="not_testable", kind=None, kinds=(), tests=0, log10_p=None, rules=(rule,))
    wide = replace(report, verdict=verdict, a=replace(report.a, hidden=96), b=replace(report.b, hidden=4096))
    assert first_screen(wide, PageWords("en"))["headline"] == "Not testable: their widths differ: 96 and 4,096"
    same = replace(wide, b=replace(wide.b, hidden=96), verdict=replace(verdict, reasons=(Text("nothing was read"),)))
    assert first_screen(same, PageWords("en"))["headline"] == "Not testable: nothing was read"


def test_the_picture_stands_where_the_figures_say(report: Report) -> None:
    shown, drawn = first_screen(report, PageWords("en"))["picture"], picture_of(report)
    assert drawn is not None
    assert drawn.z > 3
    assert shown["x"] > shown["left"] + shown["width"] > shown["mean"] > shown["left"]
    assert f"{drawn.x:.4f}" in shown["here"]
    assert f"{drawn.mean:.4f} ± {drawn.sd:.4f}" in shown["shuffled"]
    inside = replace(report, comparisons=tuple(_at_its_null(item) for item in report.comparisons))
    shown = first_screen(inside, PageWords("en"))["picture"]
    assert shown["x"] == shown["mean"]
    assert "the verdict rests on other tests" in shown["says"]


def _at_its_null(item: TensorComparison) -> TensorComparison:
    return replace(
        item, measurements=tuple(replace(m, value=m.null.mean if m.null else None) for m in item.measurements)
    )


def test_synthetic_data_is_called_so_inside_the_picture(report: Report) -> None:
    said = PageWords("en").say("picture.synthetic")
    assert said not in report_html(report).decode()
    raw = report_html(replace(report, b=replace(report.b, notes=(SYNTHETIC,)))).decode()
    picture = raw[raw.index('<figure id="picture"') : raw.index("</figure>")]
    assert said in picture[: picture.index("<figcaption")]


def test_names_stand_for_paths_but_in_the_provenance(report: Report) -> None:
    sides = {side: replace(getattr(report, side), kind="local", reference=f"/home/someone/{side}-7B") for side in "ab"}
    local = replace(report, **sides, reads=())
    first, data = report_html(local).decode().split('id="data"')
    assert "/home/someone" not in first
    assert "a-7B" in first
    assert "/home/someone/a-7B" in data
    named = replace(local, settings=Options.of(local.settings, label_a="Model <one>", label_b="Two"))
    first = report_html(named).decode().split('id="data"')[0]
    assert "Model &lt;one&gt;" in first
    assert "b-7B" not in first


# -- one thing, one name -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["reordered", "negated", "rotated", "resized"])
def test_a_variant_is_more_precise_than_its_kind(variant: str) -> None:
    for lang in ("en", "ko"):
        words = PageWords(lang)
        assert words.kind("re_based", variant) == words.say(f"kind.re_based.{variant}") != words.kind("re_based")
        assert words.kind("re_based", "unheard of") == words.kind("re_based")


def test_labels_of_edits_use_the_words_of_the_sentence() -> None:
    """Each word of a label, or its stem, is in one of the phrases that the engine has for this kind."""
    said: dict[str, str] = {}
    for kind, phrase in (*_PLAIN.values(), *_REPLACED.values()):
        said[kind] = said.get(kind, "") + phrase
    for kind, phrases in said.items():
        for stem in re.findall(r"\b[A-Za-z]{4}", PageWords("en").say(f"kind.{kind}")):
            assert stem.lower() in phrases.lower() or kind in ("merged", "scaled"), (kind, stem)


# -- controls that failed ------------------------------------------------------------------------------------------------------


def _expected(one: str, two: str) -> Text:
    return Text("expected {a}, found {b}", a=word(one), b=word(two))


GIVEN = ControlFinding(
    "some/model", "no_evidence", "failed", "related", -90.0, 30.0, _expected("no_evidence", "related")
)
KNOWN = replace(
    GIVEN, expected="related", found="no_evidence", log10_p=-0.1, reason=_expected("related", "no_evidence")
)
OWN = replace(GIVEN, name="shuffled self")


@pytest.mark.parametrize(
    ("control", "key"),
    [(GIVEN, "verdict.control_failed.unrelated"), (KNOWN, "verdict.control_failed.related"), (OWN, None)],
)
def test_a_failed_control_says_what_it_may_mean(report: Report, control: ControlFinding, key: str | None) -> None:
    raw = report_html(with_controls(report, control)).decode()
    banner = re.search(r'<p class="alert">(.*?)</p>', raw)
    assert banner
    for each in ("verdict.control_failed.unrelated", "verdict.control_failed.related"):
        assert (PageWords("en").say(each) in banner[1]) == (each == key)
    assert "no_evidence" not in banner[1]
    assert "no evidence" in banner[1]


# -- tests that did not run ----------------------------------------------------------------------------------------


def test_tests_that_did_not_run_are_counted(report: Report) -> None:
    assert report.evidence is not None
    first, *rest = [test for test in report.evidence.tests if test.status != "off"]
    report = replace(report, evidence=replace(report.evidence, tests=(first, *rest)))
    off = replace(first, status="off", reason="constant", log10_p=None, log10_p_holm=None)
    raw = report_html(replace(report, evidence=replace(report.evidence, tests=(off, *rest)))).decode()
    voice, every = PageWords("en"), len(rest) + 1
    assert voice.say("tests.title.off", n=every, off=1) in raw
    assert voice.say("tests.title", n=every) in report_html(report).decode()


# -- counts and digests ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "english", "korean"),
    [
        (0, "0", "0"),
        (9_999, "9,999", "9,999"),
        (123_456, "123,456", "12.3만"),
        (1_380_000, "1.38 M", "138만"),
        (12_345_678, "12.3 M", "1,230만"),
        (494_032_768, "0.494 B", "4.94억"),
        (7_615_616_512, "7.62 B", "76.2억"),
        (99_950_000_000, "100 B", "1,000억"),
        (999_900_000_000, "1 T", "1조"),
        (1_026_408_232_448, "1.03 T", "1.03조"),
    ],
)
def test_parameters_are_counted_as_people_do(count: int, english: str, korean: str) -> None:
    assert PageWords("en").parameters(count) == english
    assert PageWords("ko").parameters(count) == korean


def test_korean_odds_count_in_ten_thousands() -> None:
    voice = PageWords("ko")
    assert voice.odds(-6.0) == "100만분의 1"
    assert voice.odds(-4.0) == "1만분의 1"
    assert voice.odds(-3.0) == "1,000분의 1"
    assert voice.odds(-4.1) == "12,000분의 1"


def test_a_size_is_no_hash() -> None:
    words = PageWords("en")
    assert identity("size:988816", words).text == "no hash stated"
    assert "etag:abc" in words.cell(identity("etag:abc", words))


def test_byte_ranges_are_left_to_the_bundle(report: Report) -> None:
    long = replace(report.reads[0], spans=((123_456, 7_654_321),))
    raw = report_html(replace(report, reads=(long,))).decode()
    assert "7,654,321" not in raw
    assert "7654321" not in raw
    assert long.sha256 in raw
    assert "--bundle" in raw


def test_a_note_is_set_apart_from_figures(report: Report) -> None:
    assert report.evidence is not None
    first, *rest = report.evidence.components
    part = replace(first, state="shared", tested=4, shared=4, log10_p=-148.0, note="compared after an alignment")
    changed = replace(report, evidence=replace(report.evidence, components=(part, *rest)))
    for lang in ("en", "ko"):
        raw = re.sub(r"<[^>]+>", "", report_html(changed, lang=lang).decode())
        assert f"log10 p -148.0; {PageWords(lang).said(part.note)}" in raw
