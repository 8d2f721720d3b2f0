import json
import re
import string
from collections import Counter
from importlib.resources import files

import pytest

from kinprint.errors import BadSetting
from kinprint.evidence.words import word
from kinprint.render.texts.words import Words
from kinprint.results.p_values import PMethod
from kinprint.text import LANGUAGES, Phrase, Text

PLACE = re.compile(r"\{(\w+)(?::(\w+))?\}")
HANGUL = re.compile(r"[가-힣]")
ENGLISH_RUN = re.compile(r"[A-Za-z']{2,}(?: [A-Za-z']{2,}){2,}")
COMMAND = re.compile(r"kinprint(?: [a-z.-]+)+")  # is typed as it is, in any language
THE_SAME_IN_KOREAN = {
    "z", "n", "p = {p}", "log10 p", "−log10 p", "NaN/Inf", "CKA", "MLP", "{quantity} {x}", "English", "en", "z {low}~{high}",
    "API", "BibTeX", "kinprint: {answer}",
}  # fmt: skip


def strings(name):
    """Read a file of strings as pairs: a key given twice is a slip that a dict would hide."""
    raw = files("kinprint.render.texts").joinpath(name).read_text("utf-8")
    return json.loads(raw, object_pairs_hook=list)


ENGLISH, KOREAN = dict(strings("labels_en.json")), dict(strings("labels_ko.json"))


def places(text):
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


@pytest.fixture(scope="module")
def korean():
    return Words("ko")


# -- labels --------------------------------------------------------------------------------------------------------------


def test_no_key_is_given_twice():
    for name in ("labels_en.json", "labels_ko.json"):
        assert [key for key, count in Counter(key for key, _ in strings(name)).items() if count > 1] == []


def test_every_label_is_in_both_languages():
    assert ENGLISH.keys() - KOREAN.keys() == set()
    assert KOREAN.keys() - ENGLISH.keys() == set()


def test_labels_have_the_same_placeholders_in_both_languages():
    assert [key for key in ENGLISH if places(ENGLISH[key]) != places(KOREAN.get(key, ""))] == []


def test_placeholders_are_plain_names():
    """A value must not be able to reach into objects through our own strings."""
    for text in [*ENGLISH.values(), *KOREAN.values()]:
        for _, name, spec, conversion in string.Formatter().parse(text):
            assert name is None or (name.isidentifier() and not spec and not conversion), text


def test_korean_is_korean():
    texts = [*KOREAN.values()]
    assert [text for text in texts if not HANGUL.search(text) and text not in THE_SAME_IN_KOREAN] == []
    assert [text for text in texts if ENGLISH_RUN.search(COMMAND.sub("", PLACE.sub("", text)))] == []


@pytest.mark.parametrize("lang", LANGUAGES)
def test_labels_take_values_as_they_are(lang):
    words = Words(lang)
    assert words.lang == lang
    said = words.say("title", a="<script>{0.__class__}", b="모델")
    assert "<script>{0.__class__}" in said
    assert "모델" in said
    assert words.has("title")
    assert not words.has("no such label")
    with pytest.raises(KeyError):
        words.say("no such label")


def test_an_unknown_language_is_refused_with_the_known_ones():
    with pytest.raises(BadSetting, match="'tlh'") as caught:
        Words("tlh")
    assert caught.value.hint == "known languages: en, ko"


# -- sentences of the engine ---------------------------------------------------------------------------------------------


def result(**changes):
    found = {
        "test": word("fixed_points"),
        "scope": Text("mlp_up"),
        "x": 96.0,
        "m": 3.0,
        "z": None,
        "p": -3.4,
        "h": -1.2,
    }
    key = "{test} of {scope}: {x:.4g} against {m:.3g} expected (z {z:.1f}, log10 p {p:.1f}, {h:.1f} corrected)"
    return Text.of(key, found | changes)


def test_english_stays_as_it_is():
    assert Words().engine("derived") == Phrase("derived", "en")
    assert Words().engine(Text("derived")) == Phrase("derived", "en")


@pytest.mark.parametrize("text", ["", " ", "a sentence nobody wrote", "{x}", "{0.__class__}", "x" * 5000])
def test_what_is_not_known_stays_english(korean, text):
    assert korean.engine(text) == Phrase(text, "en")
    assert korean.reason(text) == Phrase(text, "en")


def test_a_result_stands_under_the_label_of_its_test(korean):
    said = "Rows match their own place (mlp_up): 96 against 3 expected (z –, log10 p -3.4, -1.2 corrected)"
    assert Words().reason(result()).text == said
    strongest = Text.of("strongest of {n} tests: {test}", {"n": 9, "test": result()})
    assert Words().reason(strongest).text == f"Strongest of 9 tests: {said}"
    assert korean.reason(strongest).text.startswith("검정 9개 가운데 가장 강한 결과: 같은 자리의 행끼리 일치(")
    assert Words().reason(result(test=word("a_new_test"))).text.startswith("a new test (mlp_up): 96 against")


def test_classes_in_a_reason_are_words(korean):
    reason = Text.of("expected {a}, found {b}", {"a": word("no_evidence"), "b": word("related")})
    assert Words().reason(reason).text == "expected no evidence, found related"
    assert "증거 없음" in korean.reason(reason).text


@pytest.mark.parametrize("method", PMethod)
def test_every_source_of_a_p_value_has_a_name(method):
    assert Words().how(method, 99)
    assert HANGUL.search(Words("ko").how(method, 99))


def test_one_thing_has_a_label_of_its_own():
    assert Words().say("head.layers", n=1) == "1 layer"
    assert Words().say("catalog.title", place="c.db", n="1") == "Catalog c.db: 1 entry"
    assert Words().say("head.layers", n=21) == "21 layers"
    assert Words("ko").say("head.layers", n=1) == Words("ko").say("head.layers", n=2).replace("2", "1")
