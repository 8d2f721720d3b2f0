"""Dataclasses to JSON and back, following their declared types. JSON holds no NaN."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass
from functools import cache, partial
from typing import Any, TypeVar

LATER = {"later": True}
"""Marks a field that was added after reports of this schema were written: it has a default, and may be missing."""

T = TypeVar("T")


@cache
def _names(kind: type) -> tuple[tuple[str, str], ...]:
    """Return attribute names with the names they have in JSON: ``class_`` is written as ``class``."""
    return tuple((field.name, field.name.rstrip("_")) for field in fields(kind))


@cache
def _optional(kind: type) -> frozenset[str]:
    return frozenset(field.name for field in fields(kind) if LATER.items() <= field.metadata.items())


def to_plain(value: Any) -> dict[str, Any]:
    """Return a dataclass as orjson is to write it, one level deep."""
    if not is_dataclass(value) or isinstance(value, type):
        raise TypeError(f"cannot write a {type(value).__name__}")
    return {key: getattr(value, name) for name, key in _names(type(value))}


def build(kind: type[T], data: Any) -> T:
    """Make a dataclass of this module from plain JSON data, following the declared types."""
    return typing.cast(T, _converter(typing.cast(Hashable, kind))(data))


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


@cache
def _parts(kind: type) -> tuple[tuple[str, str, bool, Callable[[Any], Any]], ...]:
    """Return what a dataclass is made of: attribute, its name in JSON, whether it may be missing, and its converter."""
    hints = typing.get_type_hints(kind)
    return tuple((name, key, name in _optional(kind), _converter(hints[name])) for name, key in _names(kind))


def _build_dataclass(kind: type, data: Any) -> Any:
    if not isinstance(data, dict):
        raise TypeError(f"{kind.__name__}: expected an object, got {type(data).__name__}")
    # a report without what was added later is older, not broken
    return kind(**{name: one(data[key]) for name, key, later, one in _parts(kind) if not later or key in data})
