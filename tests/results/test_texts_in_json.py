"""Texts in results: English under the field's name, the data beside it, and a report whose two do not agree is refused."""

from dataclasses import dataclass

import orjson
import pytest
from jsonschema import Draft202012Validator

from kinprint.results.plain_json import build, write_json
from kinprint.results.schema import json_schema
from kinprint.text import Text, verbatim


@dataclass(frozen=True)
class Said:
    """A thing with texts."""

    name: str
    sentence: Text
    notes: tuple[Text, ...] = ()
    reason: Text | None = None


SAID = Said("x", Text("as it is"), (Text("plain"), Text("{n} of {m}", n=1, m=2)), Text("only {what}", what=Text("a")))


def plain(value):
    return orjson.loads(write_json(value))


def test_data_stand_beside_texts_that_have_values():
    assert plain(SAID) == {
        "name": "x",
        "sentence": "as it is",
        "notes": ["plain", "1 of 2"],
        "notes_data": [None, {"key": "{n} of {m}", "values": {"n": 1, "m": 2}}],
        "reason": "only a",
        "reason_data": {"key": "only {what}", "values": {"what": {"key": "a"}}},
    }
    assert plain(Said("x", Text("as it is"), (Text("plain"),))).keys() == {"name", "sentence", "notes", "reason"}


def test_there_and_back():
    again = build(Said, plain(SAID))
    assert again == SAID
    assert [(text.key, text.values) for text in again.notes] == [(text.key, text.values) for text in SAID.notes]
    assert again.reason.to_data() == SAID.reason.to_data()


def test_english_alone_is_read_too():
    again = build(Said, {"name": "x", "sentence": "{a}", "notes": ["b"], "reason": None})
    assert (again.sentence, again.sentence.key, dict(again.sentence.values)) == ("{a}", "{a}", {})
    assert isinstance(again.notes[0], Text)


@pytest.mark.parametrize(
    "change",
    [
        {"reason": "only b"},
        {"reason": None},
        {"reason_data": {"key": "only {what}", "values": {"what": "b"}}},
        {"reason_data": []},
        {"reason_data": {"key": "only {what}"}},
        {"notes": ["plain"]},
        {"notes": "plain"},
        {"notes_data": [None]},
        {"notes_data": {"key": "{n} of {m}", "values": {"n": 1, "m": 2}}},
        {"notes_data": [None, None, None]},
        {"sentence": 3},
    ],
)
def test_text_and_data_must_agree(change):
    with pytest.raises((TypeError, ValueError)):
        build(Said, plain(SAID) | change)


def test_the_schema_knows_the_data():
    validator = Draft202012Validator(json_schema(Said))
    validator.validate(plain(SAID))
    validator.validate(plain(Said("x", verbatim("y"))))
    assert not validator.is_valid(plain(SAID) | {"name_data": {"key": "x"}})
    assert not validator.is_valid(plain(SAID) | {"reason_data": {"values": {}}})
    assert not validator.is_valid(plain(SAID) | {"notes_data": {"key": "x"}})
