"""Sentences as data: what a Text says, in which language, and what it refuses of strangers."""

import copy
import pickle  # noqa: TID251 - what processes send each other

import numpy as np
import orjson
import pytest

from kinprint import text as text_module
from kinprint.errors import DegenerateInput, NotFound
from kinprint.text import Phrase, Text, joined, text_from_data, verbatim

TABLE = {
    "widths differ: {a} and {b}": "폭이 다름: {a}, {b}",
    "attention": "어텐션",
    "only {part} has it": "{part}에만 있음",
    "{n:,} of {m:,} weights ({share:.1%})": "가중치 {m:,}개 중 {n:,}개({share:.1%})",
}


@pytest.fixture(autouse=True)
def korean(monkeypatch):
    monkeypatch.setattr(text_module, "translations", lambda lang: TABLE)


def test_a_text_is_its_english_and_remembers_template_and_values():
    text = Text("widths differ: {a} and {b}", a=64, b=128)
    assert text == "widths differ: 64 and 128"
    assert (text.key, dict(text.values)) == ("widths differ: {a} and {b}", {"a": 64, "b": 128})
    assert text.render("ko") == "폭이 다름: 64, 128"
    assert text.phrase("en") == Phrase("widths differ: 64 and 128", "en")


def test_numbers_are_formatted_by_the_template_in_every_language():
    text = Text("{n:,} of {m:,} weights ({share:.1%})", n=np.int64(1200), m=10_000, share=np.float32(0.125))
    assert text == "1,200 of 10,000 weights (12.5%)"
    assert text.render("ko") == "가중치 10,000개 중 1,200개(12.5%)"
    assert Text("x {p:.1f}", p=None) == "x –"


def test_sizes_stand_without_a_space_in_korean(monkeypatch):
    monkeypatch.setitem(TABLE, "read {size} of {name}", "{name}: {size} 읽음")
    text = Text("read {size} of {name}", size="1.8 MB", name="a 7 B")
    assert (str(text), text.render("ko")) == ("read 1.8 MB of a 7 B", "a 7 B: 1.8MB 읽음")


def test_texts_in_texts_are_translated_and_names_are_not():
    assert Text("only {part} has it", part=Text("attention")).render("ko") == "어텐션에만 있음"
    assert Text("only {part} has it", part="attention").render("ko") == "attention에만 있음"


def test_a_text_with_an_untranslated_part_stays_english_whole():
    text = Text("only {part} has it", part=Text("the roof"))
    assert text.phrase("ko") == Phrase("only the roof has it", "en")
    assert Text("no entry").phrase("ko") == Phrase("no entry", "en")


@pytest.mark.parametrize(
    ("how", "english", "translated"),
    [
        ("and", "attention, b and c", "어텐션, b, c"),
        ("commas", "attention, b, c", "어텐션, b, c"),
        ("semicolons", "attention; b; c", "어텐션; b; c"),
    ],
)
def test_joined(how, english, translated):
    text = joined([Text("attention"), "b", "c"], how)
    assert (str(text), text.render("ko")) == (english, translated)


def test_joined_of_few():
    one = Text("attention")
    assert joined([one]) is one
    assert joined([]) == ""
    assert joined(["a", "b"], "and") == "a and b"


def test_verbatim_has_no_language():
    assert verbatim("models/{a}").phrase("ko") == Phrase("models/{a}", "ko")
    text = Text("attention")
    assert verbatim(text) is text


def test_pickle_and_copies_keep_the_data():
    text = Text("only {part} has it", part=joined([Text("attention"), "x"]))
    for again in (pickle.loads(pickle.dumps(text)), copy.deepcopy(text), text_from_data(text.to_data())):
        assert (again, again.key, again.render("ko")) == (text, text.key, text.render("ko"))


def test_data_survive_json():
    text = Text("only {part} has it", part=(Text("attention"), "x", 3, None))
    assert text_from_data(orjson.loads(orjson.dumps(text.to_data()))).render("ko") == text.render("ko")
    assert Text("attention").to_data() == {"key": "attention"}


@pytest.mark.parametrize(
    ("template", "values"),
    [
        ("{a}", {}),
        ("{a}", {"b": 1}),
        ("{a} {b}", {"a": 1}),
        ("{a", {"a": 1}),
        ("{a.real}", {"a": 1}),
        ("{a[0]}", {"a": "x"}),
        ("{a!r}", {"a": "x"}),
        ("{a:>9999999999}", {"a": 1}),
        ("{a:.99f}", {"a": 1.0}),
        ("{a:{b}}", {"a": 1, "b": 2}),
    ],
)
def test_templates_that_ask_for_more_than_names_and_numbers_are_refused(template, values):
    with pytest.raises(ValueError, match=r"^(no value for|no place for|a lone brace|expected a number format)"):
        Text(template, **values)


def nested(depth):
    data = {"key": "x"}
    for _ in range(depth):
        data = {"key": "{a}", "values": {"a": data}}
    return data


def tuples(depth):
    data = []
    for _ in range(depth):
        data = [data]
    return {"key": "{a}", "values": {"a": data}}


@pytest.mark.parametrize(
    "data",
    [
        None,
        "x",
        {"values": {}},
        {"key": 1},
        {"key": "x", "extra": 1},
        {"key": "{a}", "values": []},
        {"key": "{a}", "values": {"a": {"no": "key"}}},
        {"key": "{a}", "values": {"b": 1}},
        nested(50),
        tuples(50),
        {"key": "{a}" * 10_000, "values": {"a": "x" * 10_000}},
    ],
    ids=range(11),
)
def test_data_of_strangers_are_refused(data):
    with pytest.raises(ValueError, match=r"^(expected|no value for) "):
        text_from_data(data)


def test_a_text_cannot_hold_other_things():
    with pytest.raises(TypeError, match="cannot hold a dict"):
        Text("{a}", a={})


def test_braces_of_a_text_without_values_are_no_places():
    assert Text.of("{0.__class__}", {}).render("ko") == "{0.__class__}"


def test_errors_have_texts():
    reason = Text("widths differ: {a} and {b}", a=1, b=2)
    assert DegenerateInput(reason).reason is reason
    assert str(NotFound("no {file}", hint="look").reason) == "no {file}"
    assert NotFound("no {file}").reason.phrase("ko").lang == "ko"
