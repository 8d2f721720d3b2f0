"""What the HTML report says in words: headlines, names of edits, controls that failed, counts in two languages."""

import hashlib
import re
from dataclasses import replace
from itertools import pairwise

import pytest

from kinprint.evidence.edit_kinds import _PLAIN, _REPLACED
from kinprint.evidence.words import word
from kinprint.render.content.report import identity
from kinprint.render.page import page_html
from kinprint.render.page.evidence_chart import Axis, _ticks, evidence_chart
from kinprint.render.page.markup import PageWords
from kinprint.render.page.report import nothing_found
from kinprint.results.findings import ControlFinding
from kinprint.results.report import Report
from kinprint.sources.ledger import RangeRead, digest_of
from kinprint.text import Text
from support.places import GOLDEN_REPORTS

GOLDEN = GOLDEN_REPORTS / "report_v2.json"
SEEN = Text(
    "No evidence that either model derives from the other; a {q} of {x:.2g} or a {r} of {y:.2g} would have been seen with "
    "95 % probability, dimensions and rows being in place.",
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


@pytest.mark.parametrize("lang", ["en", "ko"])
def test_a_headline_keeps_what_readers_want_first(lang: str) -> None:
    said, seen = nothing_found(NOTHING, PageWords(lang))
    assert re.findall(r"\d[\d.]*\d", said + seen) == ["95", "0.95", "0.12"]
    assert "0.95" not in said
    assert bool(re.search("[가-힣]", said) and re.search("[가-힣]", seen)) == (lang == "ko")


@pytest.mark.parametrize("text", ["A sentence.", str(NOTHING), Text("A sentence."), ""])
def test_a_sentence_without_data_stays_whole(text: str) -> None:
    assert nothing_found(text, PageWords("en")) == ("", "")


def test_what_would_have_been_seen_stands_under_how_sure(report: Report) -> None:
    assert report.verdict is not None
    verdict = replace(report.verdict, class_="no_evidence", kind=None, sentence=NOTHING)
    raw = page_html(replace(report, verdict=verdict)).decode()
    first = re.search(r'<p class="sentence">(.*?)</p>', raw)
    assert first
    assert "cosine of rows" not in first[1]
    sure = raw[raw.index('<dl class="facts">') : raw.index("</dl>", raw.index('<dl class="facts">'))]
    assert "a cosine of rows of 0.12" in sure


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
    raw = page_html(with_controls(report, control)).decode()
    banner = re.search(r'<p class="alert">(.*?)</p>', raw)
    assert banner
    for each in ("verdict.control_failed.unrelated", "verdict.control_failed.related"):
        assert (PageWords("en").say(each) in banner[1]) == (each == key)
    assert "no_evidence" not in banner[1]
    assert "no evidence" in banner[1]


def test_a_failed_control_has_a_mark_of_its_own(report: Report) -> None:
    passed = replace(GIVEN, status="passed", found="no_evidence", reason=None)
    found = evidence_chart(report.verdict, with_controls(report, passed, GIVEN).evidence, PageWords("en"))
    assert found is not None
    assert [mark.shape for mark in found.controls] == ["control", "failed"]
    raw = page_html(with_controls(report, passed, GIVEN)).decode()
    assert raw.count('class="mark failed"') == raw.count('class="mark control"') == 1


# -- tests that did not run, and the axis ----------------------------------------------------------------------------------------


def test_tests_that_did_not_run_are_counted(report: Report) -> None:
    assert report.evidence is not None
    first, *rest = [test for test in report.evidence.tests if test.status != "off"]
    report = replace(report, evidence=replace(report.evidence, tests=(first, *rest)))
    off = replace(first, status="off", reason="constant", log10_p=None, log10_p_holm=None)
    raw = page_html(replace(report, evidence=replace(report.evidence, tests=(off, *rest)))).decode()
    voice, every = PageWords("en"), len(rest) + 1
    assert voice.say("tests.title.off", n=every, off=1) in raw
    assert voice.say("picture.pair.note.off", n=len(rest), all=every) in raw
    assert voice.say("tests.title", n=every) in page_html(report).decode()


@pytest.mark.parametrize("last", [12.0, 50.0, 147.0, 213.0, 300.0, 1700.0, 9e4])
def test_ticks_keep_their_distance(last: float) -> None:
    ticks = list(_ticks(Axis(last), -6.0))
    assert len([tick for tick in ticks if not tick.minor]) >= 2
    for one, two in pairwise(ticks):
        assert two.at - one.at > 8
        assert two.anchor != "end" or two.at - one.at > 12  # its text grows to the left


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


def test_the_recipe_of_the_digest_is_the_one_used(report: Report) -> None:
    ranges = (RangeRead(0, 8, "aa"), RangeRead(8, 20, "bb"))
    line = PageWords("en").say("reads.line").replace("\\n", "\n")
    text = "".join(
        line.replace("start", str(item.start)).replace("end", str(item.end)).replace("sha256-of-the-range", item.sha256)
        for item in ranges
    )
    assert digest_of(ranges) == hashlib.sha256(text.encode()).hexdigest()
    raw = page_html(report).decode()
    assert PageWords("en").say("col.digest") in raw
    assert PageWords("en").say("reads.line") in raw


def test_a_note_is_set_apart_from_figures(report: Report) -> None:
    assert report.evidence is not None
    first, *rest = report.evidence.components
    part = replace(first, state="shared", tested=4, shared=4, log10_p=-148.0, note="compared after an alignment")
    changed = replace(report, evidence=replace(report.evidence, components=(part, *rest)))
    for lang in ("en", "ko"):
        raw = re.sub(r"<[^>]+>", "", page_html(changed, lang=lang).decode())
        assert f"log10 p -148.0; {PageWords(lang).said(part.note)}" in raw
