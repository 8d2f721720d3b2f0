"""Keep sentences as data, an English template and its values, so that they can be rendered in every language.

A `Text` is a ``str``, the English sentence, that remembers how it was made::

    Text("widths differ: {a} and {b}", a=64, b=128)

The template is the key, as in gettext: code reads as the sentence it says, and a language is a table from English templates to
its own. Such tables are files named ``<language>.json`` beside the code whose sentences they hold (``evidence/ko.json``). A
sentence without an entry stays English, whole, and says so.

Values are numbers, formatted by the template (``{x:.2f}``); strings, which are names and are never translated; other Texts, which
are; and tuples of these, joined as the template says: ``{x:and}`` "a, b and c", ``{x:commas}`` "a, b, c", ``{x:semicolons}``
"a; b; c". Templates and values may come from a stranger's report: nothing but names and a few number formats may stand in braces.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

ENGLISH = "en"
LANGUAGES = (ENGLISH, "ko")
NOTHING = "–"  # shown for a value that does not exist

Value: TypeAlias = "str | int | float | Text | tuple[Value, ...] | None"

_BRACES = re.compile(r"\{(\w{1,40})(?::([^{}]{0,12}))?\}|\{\{|\}\}|[{}]")
_NUMBER = re.compile(r"[+]?,?(?:\.\d)?[defg%]?")
_SIZE = re.compile(r"[\d.,]+ [kMGT]?B")
_DEPTH = 8  # how deep texts may hold texts
_LONGEST = 200_000  # characters: a short template can repeat a long value, and a text that one
_NO_VALUES: Mapping[str, Value] = MappingProxyType({})
_JOINTS = {"commas": (", ", ", "), "semicolons": ("; ", "; "), "spaces": (" ", " ")}
_AND = {ENGLISH: (", ", " and "), "ko": (", ", ", ")}


class Phrase(NamedTuple):
    """A text and the language it is in."""

    text: str
    lang: str


class Text(str):
    """An English sentence that remembers its template (``key``, with names in braces) and its ``values``."""

    __slots__ = ("key", "values")
    key: str
    values: Mapping[str, Value]

    def __new__(cls, template: str, /, **values: Value) -> Text:
        """Make the sentence; a value without a place or a place without a value is an error."""
        if isinstance(template, Text) and not values:
            return template
        if not values and places(template):
            raise ValueError(f"no value for {places(template)[0][0]!r} in {template!r:.80}")
        return cls.of(template, {name: _plain(value) for name, value in values.items()})

    @classmethod
    def of(cls, key: str, values: Mapping[str, Value]) -> Text:
        """Make a sentence from data, such as a report's.

        Raise ValueError if template and values do not fit each other, or a template asks for more than names and numbers.
        """
        made = str.__new__(cls, _fill(key, values, None).text if values else key)
        made.key, made.values = key, values or _NO_VALUES
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Text.of, (self.key, dict(self.values))

    def phrase(self, lang: str) -> Phrase:
        """Return the sentence in a language; where any part has no translation all of it stays English, and says so."""
        if lang == ENGLISH:
            return Phrase(str(self), ENGLISH)
        if self.values:
            found = _fill(self.key, self.values, lang)
        else:  # what stands in braces, if anything, is no place: a stranger's text, or one of an older report
            found = Phrase(translations(lang).get(self.key, ""), lang)
        return found if found.lang == lang and found.text else Phrase(str(self), ENGLISH)

    def render(self, lang: str = ENGLISH) -> str:
        """Return the sentence in a language, or in English where it has no translation."""
        return self.phrase(lang).text

    def to_data(self) -> dict[str, Any]:
        """Return the sentence as plain data: its key, and its values if there are any."""
        values = {name: _to_data(value) for name, value in self.values.items()}
        return {"key": self.key, "values": values} if values else {"key": self.key}


def text_from_data(data: Any, depth: int = _DEPTH) -> Text:
    """Make a Text from what `Text.to_data` returned; raise ValueError for other data."""
    if not isinstance(data, dict) or not data.keys() <= {"key", "values"} or not isinstance(data.get("key"), str):
        raise ValueError(f"expected a text with key and values, got {data!r:.80}")
    values = data.get("values", {})
    if not isinstance(values, dict) or depth == 0:
        raise ValueError(f"expected the values of a text, at most {_DEPTH} deep, got {values!r:.80}")
    return Text.of(data["key"], {name: _from_data(value, depth - 1) for name, value in values.items()})


def joined(parts: Iterable[Value], how: str = "semicolons") -> Text:
    """Return texts one after another: ``semicolons``, ``commas``, ``spaces`` or ``and`` between them."""
    found = tuple(parts)
    if len(found) == 1 and isinstance(found[0], Text):
        return found[0]
    return Text.of(f"{{parts:{how}}}", {"parts": tuple(_plain(part) for part in found)})


def labelled(topic: Text, said: Value) -> Text:
    """Return what is said of something, after its name and a colon."""
    return Text.of("{topic}: {said}", {"topic": topic, "said": _plain(said)})


def within(parts: Iterable[Text], most: int) -> list[Text]:
    """Return the first texts that have at most `most` characters together, at least one of them."""
    kept: list[Text] = []
    for part in parts:
        most -= len(part)
        if kept and most < 0:
            break
        kept.append(part)
    return kept


def verbatim(text: str) -> Text:
    """Return text that no language changes: a name, a number, what the operating system says. A Text stays what it is."""
    return text if isinstance(text, Text) else Text.of("{text}", {"text": text})


@cache
def translations(lang: str) -> Mapping[str, str]:
    """Return English templates with those of another language, from all files of that language in the package."""
    import orjson

    found: dict[str, str] = {}
    for file in tables(lang):
        found |= orjson.loads(file.read_bytes())
    return found


def tables(lang: str) -> list[Path]:
    """Return the files that hold a language."""
    return sorted(Path(__file__).parent.rglob(f"{lang}.json"))


def has_words(template: str) -> bool:
    """Whether a template says anything beside its values: braces and punctuation alone have no language."""
    return bool(_BRACES.sub("", template).strip(" ,:;()"))


def places(template: str) -> list[tuple[str, str]]:
    """Return the names in a template's braces, each with its format; a translation has the same names."""
    return [(match[1], match[2] or "") for match in _BRACES.finditer(template) if match[1]]


def unspaced(size: str, lang: str) -> str:
    """Return a size such as "1.8 MB" as a language writes it, Korean without the space; other text as it is."""
    return size.replace(" ", "") if lang == "ko" and _SIZE.fullmatch(size) else size


def _plain(value: Any) -> Value:
    """Return a value as data: numpy's numbers as Python's, lists as tuples."""
    if isinstance(value, list | tuple):
        return tuple(_plain(item) for item in value)
    if hasattr(value, "item"):
        return _plain(value.item())
    if value is None or isinstance(value, str | int | float):
        return value
    raise TypeError(f"a text cannot hold a {type(value).__name__}")


def _to_data(value: Value) -> Any:
    if isinstance(value, Text):
        return value.to_data()
    return [_to_data(item) for item in value] if isinstance(value, tuple) else value


def _from_data(value: Any, depth: int) -> Value:
    if isinstance(value, dict):
        return text_from_data(value, depth)
    if isinstance(value, list):
        if depth == 0:
            raise ValueError(f"expected values of a text at most {_DEPTH} deep")
        return tuple(_from_data(item, depth - 1) for item in value)
    if value is None or isinstance(value, str | int | float):
        return value
    raise ValueError(f"expected a value of a text, got {value!r:.80}")


def _fill(key: str, values: Mapping[str, Value], lang: str | None) -> Phrase:
    """Return a template with its values, in English or in `lang`; in English too where `lang` lacks any of it."""
    lacking, length = False, len(key)
    template = key
    if lang is not None and has_words(key):
        translated = translations(lang).get(key)
        lacking, template = translated is None, translated or key

    def put(match: re.Match[str]) -> str:
        nonlocal lacking, length
        name, form = match[1], match[2] or ""
        if name is None:
            if len(match[0]) == 1:
                raise ValueError(f"a lone brace in {template!r:.80}")
            return match[0][0]
        if name not in values:
            raise ValueError(f"no value for {name!r} in {template!r:.80}")
        said = _say(values[name], form, lang)
        lacking |= said.lang != (lang or ENGLISH)
        length += len(said.text)
        if length > _LONGEST:
            raise ValueError(f"expected a text of at most {_LONGEST:,} characters, got more from {template!r:.80}")
        return said.text

    text = _BRACES.sub(put, template)
    if extra := values.keys() - {name for name, _ in places(key)}:
        raise ValueError(f"no place for {min(extra)!r:.60} in {key!r:.80}")
    return Phrase(text, ENGLISH if lacking or lang is None else lang)


def _say(value: Value, form: str, lang: str | None) -> Phrase:
    own = lang or ENGLISH
    if isinstance(value, tuple):
        said = [_say(item, "", lang) for item in value]
        between, last = _AND[own] if form == "and" else _JOINTS.get(form, _JOINTS["commas"])
        words = [item.text for item in said]
        text = last.join([between.join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)
        return Phrase(text, own if all(item.lang == own for item in said) else ENGLISH)
    if isinstance(value, Text):
        return value.phrase(own)
    if value is None or isinstance(value, str):
        return Phrase(NOTHING if value is None else unspaced(value, own), own)
    if not _NUMBER.fullmatch(form):
        raise ValueError(f"expected a number format such as .2f, got {form!r}")
    return Phrase(format(value, form), own)
