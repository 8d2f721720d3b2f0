"""Sentences of the engine recognised by patterns: for results whose sentences are plain strings still."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from importlib.resources import files
from typing import Any

import orjson

LONGEST = 4_000  # characters of a text that is looked at; sentences of the engine are a tenth of that
DEPTH = 6  # how deep sentences may hold sentences
_CLAUSES = 3  # parts with semicolons between them that one entry may have
_PLACE = re.compile(r"\{(\w+)(?::(\w+))?\}")
_OPTIONAL = re.compile(r"\[([^\]]*)\]")
_IDENTIFIER = re.compile(r"[a-z0-9]+(?:_[a-z0-9]+)+")
_ANY = r"[^\n]*?"
_CLAUSE = r"(?:(?!; )[^\n])*?"  # a name with a clause behind it is no name: the clause would stay English unnoticed
_KINDS = {
    None: _CLAUSE,
    "num": r"(?:[-−+]?\d++(?:,\d{3})*+(?:\.\d+)?+(?:e[-+−]?\d+)?+%?|–)",
    "word": r"\S+?",
    "id": _IDENTIFIER.pattern,
    "name": _CLAUSE,
    "engine": _ANY,
    "list": _ANY,
}
_BETWEEN_ITEMS = re.compile(r", | and ")
_BETWEEN_SENTENCES = re.compile(r"(?<=\.) (?=[A-Z])")


@dataclass(frozen=True)
class _Pattern:
    template: str
    translation: str
    longest: str  # piece of fixed text: a sentence without it cannot fit, and looking for it is cheap

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """Made when a sentence first looks like this one: a page needs a few of the hundreds there are."""
        return re.compile(_regex(self.template))

    @cached_property
    def inner(self) -> tuple[tuple[str, str], ...]:
        """Placeholders that are translated in turn, with their kind."""
        return tuple(entry for entry in _PLACE.findall(self.template) if entry[1] in {"name", "engine", "list"})


@dataclass(frozen=True)
class _Table:
    exact: Mapping[str, str]
    by_start: Mapping[str, tuple[_Pattern, ...]]  # under the first word, for patterns that start with one
    others: tuple[_Pattern, ...]

    def fitting(self, text: str) -> Iterator[tuple[_Pattern, re.Match[str]]]:
        """Yield patterns that fit the whole of `text`, those with more fixed text first."""
        for pattern in (*self.by_start.get(_first_word(text), ()), *self.others):
            if pattern.longest in text and (match := pattern.regex.fullmatch(text)):
                yield pattern, match


# -- tables --------------------------------------------------------------------------------------------------------------


def _strings(name: str) -> Any:
    return orjson.loads(files("kinprint.render.texts").joinpath(name).read_bytes())


@cache
def _table(lang: str) -> _Table:
    exact: dict[str, str] = {}
    by_start: dict[str, list[_Pattern]] = {}
    others: list[_Pattern] = []
    entries = [entry for group in _strings(f"engine_{lang}.json").values() for entry in group.items()]
    # the longer its fixed text, the more a pattern knows of the sentence
    for template, translation in sorted(entries, key=lambda entry: -len(_PLACE.sub("", entry[0]))):
        first = _first_word(template)
        if not (_PLACE.search(template) or _OPTIONAL.search(template)):
            exact[template] = translation
            if _IDENTIFIER.fullmatch(template):  # pages show some identifiers as words
                exact.setdefault(template.replace("_", " "), translation)
        elif _PLACE.search(first) or _OPTIONAL.search(first):
            others.append(_pattern(template, translation))
        else:
            by_start.setdefault(first, []).append(_pattern(template, translation))
    return _Table(exact, {word: tuple(patterns) for word, patterns in by_start.items()}, tuple(others))


def _pattern(template: str, translation: str) -> _Pattern:
    pieces = _OPTIONAL.sub("\n", _PLACE.sub("\n", template)).split("\n")
    return _Pattern(template, translation, max(pieces, key=len))


def _regex(template: str) -> str:
    regex, at, opened = "", 0, False
    for place in _PLACE.finditer(template):
        name, kind = place.groups()
        regex += _literal(template[at : place.start()])
        if kind != "num":
            # atomic: free text and what follows it are never tried a second time
            regex += ")(?>" if opened else "(?>"
            opened = True
        regex += f"(?P<{name}>{_KINDS[kind]})"
        at = place.end()
    return regex + _literal(template[at:]) + (r"\Z)" if opened else "")


def _literal(text: str) -> str:
    pieces = _OPTIONAL.split(text)  # every second piece was in brackets
    return "".join(f"(?:{re.escape(piece)})?" if i % 2 else re.escape(piece) for i, piece in enumerate(pieces))


def _first_word(text: str) -> str:
    return text.split(" ", 1)[0]


# -- translating ---------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=8192)
def translate(lang: str, text: str, depth: int) -> str | None:
    """Return the translation of all of `text`, or None."""
    found = _whole(lang, text, depth)
    if found is None and depth > 0:
        found = _in_turn(lang, _BETWEEN_SENTENCES.split(text), " ", 1, depth - 1)
    if found is None and depth > 0:
        found = _in_turn(lang, text.split("; "), "; ", _CLAUSES, depth - 1)
    return found


def _whole(lang: str, text: str, depth: int) -> str | None:
    """Translate `text` by one entry."""
    table = _table(lang)
    if text in table.exact:
        return table.exact[text]
    for pattern, match in table.fitting(text) if depth > 0 else ():
        values = match.groupdict()
        for name, kind in pattern.inner:
            translated = _inner(lang, values[name], kind, depth - 1)
            if translated is None:
                break
            values[name] = translated
        else:
            return pattern.translation.format_map(values)
    return None


def _inner(lang: str, text: str, kind: str, depth: int) -> str | None:
    if kind == "name":
        return _table(lang).exact.get(text, text)
    if kind == "engine":
        return translate(lang, text, depth)
    items = []
    for item in _BETWEEN_ITEMS.split(text):
        translated = translate(lang, item, depth)
        if translated is None and not _IDENTIFIER.fullmatch(item):
            return None
        items.append(translated or item)
    return ", ".join(items)


def _in_turn(lang: str, parts: list[str], between: str, most: int, depth: int) -> str | None:
    """Translate parts that stand one after another, up to `most` of them by one entry."""
    if len(parts) < 2:
        return None
    rest: list[str | None] = [None] * len(parts)  # translations of all from a part on
    for start in range(len(parts) - 1, -1, -1):
        for stop in range(start + 1, min(start + most, len(parts)) + 1):
            tail = "" if stop == len(parts) else rest[stop]
            if (start, stop) == (0, len(parts)) or tail is None:
                continue
            # a few clauses together are one entry or nothing; a single part may hold others
            text = between.join(parts[start:stop])
            head = translate(lang, text, depth) if stop == start + 1 else _whole(lang, text, depth)
            if head is not None:
                rest[start] = head if stop == len(parts) else head + between + tail
                break
    return rest[0]
