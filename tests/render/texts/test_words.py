import json
import re
import string
import time
from collections import Counter
from importlib.resources import files

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinprint.errors import BadSetting
from kinprint.evidence.edit_kinds import _PLAIN, _REPLACED
from kinprint.evidence.verdict import DISTILLATION, OWN_CONTROLS
from kinprint.render.texts.words import LANGUAGES, Phrase, Words
from kinprint.results.findings import CLASSES

PLACE = re.compile(r"\{(\w+)(?::(\w+))?\}")
HANGUL = re.compile(r"[가-힣]")
ENGLISH_RUN = re.compile(r"[A-Za-z']{2,}(?: [A-Za-z']{2,}){2,}")
FILLED = {
    None: "some name",
    "num": "7",
    "word": "x_y",
    "id": "x_y",
    "name": "x_y",
    "engine": "derived",
    "list": "derived",
}
THE_SAME_IN_KOREAN = {
    "z", "n", "p = {p}", "log10 p", "−log10 p", "NaN/Inf", "CKA", "MLP", "MXFP4", "NVFP4", "AWM", "REEF", "HuRef (ICS)",
    "bitsandbytes int8", "{a}: {b}", "{a}, {b}", "{null}; {method}", "{test}, {scope}: {reason}",
    "{scope}: {edit}, {reasons}",
}  # fmt: skip


def strings(name):
    """Read a file of strings as pairs: a key given twice is a slip that a dict would hide."""
    raw = files("kinprint.render.texts").joinpath(name).read_text("utf-8")
    return json.loads(raw, object_pairs_hook=list)


def engine_entries(lang):
    return [entry for _, group in strings(f"engine_{lang}.json") for entry in group]


ENTRIES = engine_entries("ko")
ENGLISH, KOREAN = dict(strings("labels_en.json")), dict(strings("labels_ko.json"))


def places(text):
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def digits(text):
    return Counter(c for c in text if c in string.digits)


@pytest.fixture(scope="module")
def korean():
    return Words("ko")


# -- labels --------------------------------------------------------------------------------------------------------------


def test_no_key_is_given_twice():
    for name in ("labels_en.json", "labels_ko.json"):
        assert [key for key, count in Counter(key for key, _ in strings(name)).items() if count > 1] == []
    assert [key for key, count in Counter(key for key, _ in ENTRIES).items() if count > 1] == []


def test_every_label_is_in_both_languages():
    assert ENGLISH.keys() - KOREAN.keys() == set()
    assert KOREAN.keys() - ENGLISH.keys() == set()


def test_labels_have_the_same_placeholders_in_both_languages():
    assert [key for key in ENGLISH if places(ENGLISH[key]) != places(KOREAN.get(key, ""))] == []


def test_placeholders_are_plain_names():
    """A value must not be able to reach into objects through our own strings."""
    for text in [*ENGLISH.values(), *KOREAN.values(), *(korean for _, korean in ENTRIES)]:
        for _, name, spec, conversion in string.Formatter().parse(text):
            assert name is None or (name.isidentifier() and not spec and not conversion), text


def test_korean_is_korean():
    texts = [*KOREAN.values(), *(korean for _, korean in ENTRIES)]
    assert [text for text in texts if not HANGUL.search(text) and text not in THE_SAME_IN_KOREAN] == []
    assert [text for text in texts if ENGLISH_RUN.search(PLACE.sub("", text))] == []


def test_no_korean_particle_depends_on_a_value():
    """은/는, 이/가, 을/를 and 과/와 change with the sound before them, which a placeholder does not know."""
    bare = re.compile(r"\}(은|는|이|가|을|를|과|와|으로|로)(?=[ ,.)]|$)")
    assert [text for text in (*KOREAN.values(), *(korean for _, korean in ENTRIES)) if bare.search(text)] == []


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


def test_english_stays_as_it_is():
    assert Words().engine("derived") == Phrase("derived", "en")


def test_a_sentence_with_names_and_numbers(korean):
    found = korean.engine(
        "One of the two models derives from the other by a low-rank update, as when a LoRA adapter is merged (rank 4): "
        "if they were unrelated, agreement like this would have a chance below 10^-140."
    )
    assert found == Phrase(
        "두 모델 중 하나는 다른 하나에서 파생되었습니다(방식: LoRA 어댑터 병합과 같은 저랭크 갱신, 랭크 4). "
        "서로 무관하다면 이 정도로 일치할 확률은 10^-140 미만입니다.",
        "ko",
    )


def test_sentences_in_a_row_and_clauses_with_semicolons(korean):
    assert korean.engine("No exact method finds a relation. This does not prove training from scratch.") == Phrase(
        "정확한 방법 가운데 관계를 찾은 것은 없습니다. 그렇다고 처음부터 독자적으로 학습했다는 증명은 아닙니다.", "ko"
    )
    # the middle entry has a semicolon of its own
    assert korean.engine("all bytes equal; equal values; signs of zeros differ; no test applies") == Phrase(
        "모든 바이트가 같음; 값은 같음; 0의 부호가 다름; 적용할 수 있는 검정 없음", "ko"
    )


def test_lists_keep_identifiers_and_translate_words(korean):
    end = "and not most of their layers: if they were unrelated, agreement like this would have a chance below 10^-9."
    found = korean.engine(f"The two models share norms, attn_q and mlp (in 3 of 4 places), {end}")
    assert "정규화(norm), attn_q, MLP(4곳 중 3곳)" in found.text
    assert korean.engine(f"The two models share norms and frobnicators, {end}").lang == "en"


def test_names_of_strangers_pass_verbatim(korean):
    name = "<b>{x}</b> & 100 % of {0}"
    assert korean.engine(f"{name}: passed") == Phrase(f"{name}: 통과", "ko")
    assert korean.engine(f"control {name} was not run: nothing was read") == Phrase(
        f"대조군 {name} 실행하지 않음: 읽은 것이 없음", "ko"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "a sentence nobody wrote",
        "Not testable: a reason nobody wrote.",
        "self: passed (for a reason nobody wrote)",
        "derived; a clause nobody wrote",
        "derived\n",
        "widths differ: 3 and many",
        "same role as model.norm; and a clause nobody wrote",
        "the vocabulary has no order",
        "x" * 5000 + ": passed",
    ],
)
def test_what_is_not_known_in_whole_stays_english(korean, text):
    assert korean.engine(text) == Phrase(text, "en")


def filled(english):
    """Write a sentence by a template, once without and once with the parts that may be missing."""
    for optional in ("", r"\1"):
        yield PLACE.sub(lambda place: FILLED[place[2]], re.sub(r"\[([^\]]*)\]", optional, english))


def test_no_entry_drops_a_placeholder_or_a_digit():
    for english, translation in ENTRIES:
        assert {name for name, _ in PLACE.findall(english)} == places(translation), english
        assert not digits(PLACE.sub("", english)) - digits(PLACE.sub("", translation)), english


def test_no_entry_is_hidden_by_another(korean):
    for english, translation in ENTRIES:
        found = PLACE.findall(english)
        values = {name: "파생" if kind in {"engine", "list"} else FILLED[kind or None] for name, kind in found}
        for sample in filled(english):
            assert korean.engine(sample) == Phrase(translation.format_map(values), "ko")


def test_the_engine_s_own_tables_are_covered(korean):
    phrases = [phrase.strip() for _, phrase in (*_PLAIN.values(), *_REPLACED.values())]
    kinds = [kind for kind, _ in (*_PLAIN.values(), *_REPLACED.values())]
    words = [*phrases, *kinds, *_PLAIN, *CLASSES, *OWN_CONTROLS, DISTILLATION]
    assert [text for text in words if korean.engine(text).lang != "ko"] == []
    shown_as_words = [text.replace("_", " ") for text in (*kinds, *_PLAIN, *CLASSES)]
    assert [text for text in shown_as_words if korean.engine(text).lang != "ko"] == []


# -- properties ----------------------------------------------------------------------------------------------------------

NUMBERS = st.one_of(st.integers().map(str), st.floats(allow_nan=False, allow_infinity=False).map("{:.3g}".format))


@st.composite
def sentences(draw):
    """Sentences the engine could write, with any text where names stand."""
    template = draw(st.sampled_from([english for english, _ in ENTRIES]))
    inner = st.sampled_from([english for english, _ in ENTRIES if not PLACE.search(english)])
    by_kind = {"num": NUMBERS, "engine": inner, "list": inner}
    return PLACE.sub(lambda place: draw(by_kind.get(place[2], st.text(max_size=12))), template)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.one_of(st.text(max_size=300), sentences(), st.lists(sentences(), max_size=4).map("; ".join)))
def test_a_translation_keeps_all_digits_or_is_none(text):
    found = Words("ko").engine(text)
    if found.lang == "en":
        assert found.text == text
    else:
        assert not digits(text) - digits(found.text)


def test_hostile_names_cost_no_time():
    pieces = (
        "; ",
        ": ",
        " of ",
        ", ",
        " and ",
        ". A",
        " (",
        "1 of ",
        "derived; ",
        "fixed_points of x: ",
        "A declares ",
    )
    texts = [
        start + piece * (3900 // len(piece))
        for piece in pieces
        for start in ("", "self: ", "The weights are related; ")
    ]
    began = time.process_time()
    for text in texts:
        assert Words("ko").engine(text) == Phrase(text, "en")
    assert time.process_time() - began < 2.0


def test_thousands_of_sentences_take_a_blink():
    """Measured at 90 ms of CPU for these 3,000; the bound leaves room for a slower machine."""
    words = Words("ko")
    words.engine("derived")  # loads the tables
    texts = [
        f"matrix_correlation of attn_q in layer {n}: 0.5 against 0 expected (z {n}, log10 p -3.1, -1.0 corrected)"
        for n in range(1000)
    ]
    texts += [f"attn_v: changed, {n}% of elements differ; slope 0.9, relative residual 0.1" for n in range(1000)]
    texts += [
        f"cv_diff: the mean of a is near zero (|mean| is {n} of its std): expected at least 0.1" for n in range(1000)
    ]
    began = time.process_time()
    assert all(words.engine(text).lang == "ko" for text in texts)
    assert time.process_time() - began < 0.5
