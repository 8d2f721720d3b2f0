"""Write dataclasses as JSON and read them back, following their declared types. JSON holds no NaN.

A field typed `Text`, or as several of them, is written as its English under its own name; where it has values, the data that
it was made of follow as ``<name>_data``, for readers in another language. English and data that disagree are refused.
"""

import types
import typing
from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar

from kinprint._util.strange_json import parse_json
from kinprint.errors import SchemaError
from kinprint.results.later import MARK
from kinprint.results.older_reports import upgrade
from kinprint.text import Text, text_from_data

DATA = "_data"  # ends the name under which the data of a text stand beside it
T = TypeVar("T")


class _Part(NamedTuple):
    """One field of a dataclass: attribute, its name in JSON, whether it may be missing, whether it holds text, its converter."""

    name: str
    key: str
    later: bool
    text: bool
    convert: Callable[[Any], Any]


_PLACES = frozenset({"layers", "layer", "layers_a", "layers_b", "layer_map", "unread", "unread_a", "also", "source"})
_PLACES |= {"runner_up", "expert", "experts"}
_CHOSEN = ("kinprint.results.options", "kinprint.bundle", "kinprint.sources")
MOST_PLACES = 9_999
"""Number of layers, or of experts, that no model goes beyond (`arch/configs.py`): pages and tables run over all of them."""


def _placed(kind: Any) -> Callable[[Any], Any]:
    """Return a converter that refuses numbers of layers and experts that no model has: one integer must not take all memory."""
    convert = _converter(kind)

    def bounded(data: Any) -> Any:
        made = convert(data)
        for number in made if isinstance(made, tuple) else (made,):
            if type(number) is int and not 0 <= number <= MOST_PLACES:
                raise ValueError(f"expected a number of layers or experts from 0 to {MOST_PLACES}, got {number}")
        return made

    return bounded


@cache
def _parts(kind: type) -> tuple[_Part, ...]:
    hints = typing.get_type_hints(kind)
    named = [(field.name, MARK in field.metadata, hints[field.name]) for field in fields(kind)]
    # what a user chooses may be any number, and the sources of a bundle are no layers
    places = _PLACES if not kind.__module__.startswith(_CHOSEN) else frozenset()
    # ``class_`` is written as ``class``
    return tuple(
        _Part(name, name.rstrip("_"), later, holds_text(t), _placed(t) if name in places else _converter(t))
        for name, later, t in named
    )


@cache
def holds_text(kind: Any) -> bool:
    """Whether a declared type is a text, an optional one, or a tuple of texts."""
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return any(holds_text(option) for option in typing.get_args(kind))
    return kind is Text or kind == tuple[Text, ...]


def write_json(value: Any, *, indent: bool = True) -> bytes:
    """Return a dataclass as JSON (UTF-8)."""
    import orjson  # here: `kinprint --help` reads the options of reports, and must not wait for it

    option = orjson.OPT_PASSTHROUGH_DATACLASS | (orjson.OPT_INDENT_2 if indent else 0)
    return orjson.dumps(value, default=to_plain, option=option)


def to_plain(value: Any) -> dict[str, Any]:
    """Return a dataclass as orjson is to write it, one level deep."""
    if not is_dataclass(value) or isinstance(value, type):
        raise TypeError(f"cannot write a {type(value).__name__}")
    plain = {}
    for part in _parts(type(value)):
        plain[part.key] = found = getattr(value, part.name)
        if part.text and found and (data := _data(found)) is not None:
            plain[part.key + DATA] = data
    return plain


def _data(found: Any) -> Any:
    if isinstance(found, tuple):
        data = [_data(item) for item in found]
        return data if any(data) else None
    return found.to_data() if isinstance(found, Text) and found.values else None


def read_json(kind: type[T], raw: bytes, what: str, schema: str, versions: tuple[int, ...]) -> T:
    """Read a dataclass back, as one of the newest version; a schema of a version that is not listed is refused, not guessed at."""
    try:
        data = parse_json(raw)
    except ValueError as error:
        raise SchemaError(f"not {what}: {error}") from error
    found = (data.get("schema"), data.get("schema_version")) if isinstance(data, dict) else (None, None)
    if found[0] != schema or found[1] not in versions:
        expected = " or ".join(map(str, versions))
        raise SchemaError(
            f"cannot read {what} of schema {found[0]!r}, version {found[1]!r}; expected {schema!r}, {expected}",
            hint="use the version of kinprint that wrote it, or run the comparison again",
        )
    if found[1] < versions[-1]:
        upgrade(data)
    try:
        return build(kind, data | {"schema_version": versions[-1]})
    except (KeyError, TypeError, ValueError) as error:
        raise SchemaError(f"{what} does not fit schema version {found[1]}: {error}") from error


def build(kind: type[T], data: Any) -> T:
    """Make a dataclass of this module from plain JSON data, following the declared types."""
    return typing.cast(T, _converter(typing.cast(Hashable, kind))(data))


def between_forks(kind: type[T]) -> tuple[Callable[[T], bytes], Callable[[bytes], T]]:
    """Return what writes and reads such results on their way from a fork of this process."""
    import orjson

    return partial(write_json, indent=False), lambda raw: build(kind, orjson.loads(raw))


@cache
def _converter(kind: Any) -> Callable[[Any], Any]:
    """Return the function that makes a value of a declared type: found once, as a report has hundreds of thousands of values."""
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        given = _converter(next(option for option in typing.get_args(kind) if option is not types.NoneType))
        return lambda data: None if data is None else given(data)
    if origin is tuple:
        return _tuple_converter(typing.get_args(kind))
    if is_dataclass(kind) and isinstance(kind, type):
        return partial(_build_dataclass, kind)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return kind
    if kind is Text:
        return _english

    def plain(data: Any) -> Any:
        if type(data) is kind:
            return data
        if kind is float and type(data) is int:
            return float(data)
        raise TypeError(f"expected {kind.__name__}, got {data!r:.80}")

    return plain


def _tuple_converter(items: tuple[Any, ...]) -> Callable[[Any], Any]:
    alike = len(items) == 2 and items[1] is Ellipsis
    made = [_converter(item) for item in items if item is not Ellipsis]

    def convert(data: Any) -> tuple[Any, ...]:
        if not isinstance(data, list):
            raise TypeError(f"expected a list, got {type(data).__name__}")
        if alike:
            return tuple(map(made[0], data))
        return tuple(one(entry) for one, entry in zip(made, data, strict=True))

    return convert


def _english(data: Any) -> Text:
    """Make a text that has no values, or whose values are not known: reports of schema 1 hold English alone."""
    if type(data) is not str:
        raise TypeError(f"expected a text, got {data!r:.80}")
    return Text.of(data, {})


def _with_data(text: Any, data: Any) -> Any:
    """Make texts from their data; the English beside the data must be what they say."""
    if isinstance(text, list) and isinstance(data, list):
        pairs = zip(text, data, strict=True)
        return tuple(_english(one) if two is None else _with_data(one, two) for one, two in pairs)
    made = text_from_data(data)
    if made != text:
        raise ValueError(f"the text {text!r:.80} and its data, {str(made)!r:.80}, disagree")
    return made


def _build_dataclass(kind: type, data: Any) -> Any:
    if not isinstance(data, dict):
        raise TypeError(f"{kind.__name__}: expected an object, got {type(data).__name__}")
    data, made = getattr(kind, "older", lambda same: same)(data), {}
    for part in _parts(kind):
        if part.later and part.key not in data:
            continue  # a report without what was added later is older, not broken
        known = data.get(part.key + DATA) if part.text else None
        made[part.name] = part.convert(data[part.key]) if known is None else _with_data(data[part.key], known)
    return kind(**made)
