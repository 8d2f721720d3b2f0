"""The words of a report in the reader's language: labels by key, and the engine's English sentences by pattern.

Reports hold English alone, so that they are the same bytes for every reader. A page in another language translates while
it renders: its own labels come from ``<language>.json``, and sentences of the engine are recognised by patterns in
``engine_<language>.json``. A sentence that no pattern fits stays English and says so, so that a page can mark it;
half a translation is never returned.

The labels are also what terminal, Markdown and notebooks show, in English, for the engine's identifiers: classes of verdicts, kinds
of edits, tests, parts, states. JSON and CSV keep the identifiers, and so do roles, metrics and methods, which options take.

Patterns are English templates with placeholders: ``{x}`` is any text without a semicolon and is carried over as it is,
``{x:num}`` a number or a dash, ``{x:word}`` text without a space, ``{x:id}`` an identifier with an underscore, ``{x:name}`` a
name that may have a translation of its own, ``{x:engine}`` text that must be translated itself, and ``{x:list}`` such texts, or
identifiers, with commas and "and" between them. Text in square brackets may be missing. Names made by strangers end up in
these sentences, so matching never backtracks over them: each placeholder ends at the first place where what follows it fits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

import orjson

from kinprint.errors import BadSetting

ENGLISH = "en"
LANGUAGES = (ENGLISH, "ko")

MYRIAD = 10_000  # 만: Korean counts in its powers
_MYRIADS = ((MYRIAD**3, "조"), (MYRIAD**2, "억"), (MYRIAD, "만"))
_LONGEST = 4_000  # characters of a text that is looked at; sentences of the engine are a tenth of that
_DEPTH = 6  # how deep sentences may hold sentences
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
_RESULT = re.compile(  # as `kinprint.evidence.verdict.describe` writes it
    r"(?:strongest of (?P<of>\d+) tests: )?(?P<test>\w+) of (?P<scope>[^\n]{1,200}?)(?: in layer (?P<layer>\d+))?: "
    r"(?P<found>\S+) against (?P<mean>\S+) expected \(z (?P<z>\S+), log10 p (?P<p>\S+), (?P<corrected>\S+) corrected\)"
)
_EXPECTED = re.compile(r"\bexpected [a-z_]+, found [a-z_]+")  # of a control that failed: classes, as reports spell them
_PRECISE = (  # what the sentence of a verdict says, where one kind of edit has several names
    ("fine_tuned", "with only some tensors changed", "fine_tuned.some"),
    ("re_based", "residual dimensions reordered", "re_based.reordered"),
    ("re_based", "residual dimensions negated", "re_based.negated"),
    ("re_based", "residual dimensions rotated", "re_based.rotated"),
    ("re_based", "residual dimensions narrowed or widened", "re_based.resized"),
)


class Phrase(NamedTuple):
    """A text and the language it is in."""

    text: str
    lang: str


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


class Words:
    """The words of one language.

    Parameters
    ----------
    lang
        One of `LANGUAGES`.
    """

    def __init__(self, lang: str = ENGLISH) -> None:
        if lang not in LANGUAGES:
            raise BadSetting(f"no words in language {lang!r}", hint=f"known languages: {', '.join(LANGUAGES)}")
        self.lang = lang

    @cached_property
    def _labels(self) -> Mapping[str, str]:
        """Read when the first of them is asked for."""
        return _labels(self.lang)

    def say(self, key: str, **values: object) -> str:
        """Return the label `key` with `values` at its placeholders: plain text, still to be escaped."""
        return self._labels[key].format_map(values)

    def has(self, key: str) -> bool:
        """Return whether there is a label `key`."""
        return key in self._labels

    def engine(self, text: str) -> Phrase:
        """Return a sentence of the engine in this language, or as it is, in English, where no pattern fits."""
        if self.lang == ENGLISH or not text or len(text) > _LONGEST:
            return Phrase(text, ENGLISH)
        translated = _translate(self.lang, text, _DEPTH)
        return Phrase(text, ENGLISH) if translated is None else Phrase(translated, self.lang)

    # -- identifiers of the engine as people read them; what comes back is plain text, still to be made safe to show --------

    def label(self, prefix: str, value: str) -> str:
        """Return the label of an identifier; for one that has none, its own words."""
        key = f"{prefix}.{value}"
        return self.say(key) if self.has(key) else self.engine(value.replace("_", " ")).text

    def kind(self, kind: str, sentence: str = "") -> str:
        """Return what was done, in the words of the verdict's sentence where the kind alone is not as precise."""
        return self.label("kind", precise_kind(kind, sentence))

    def verdict(self, class_: str, kind: str | None, sentence: str = "") -> str:
        """Return a verdict in a few words, such as "derived, further training"."""
        label = self.label("class", class_)
        return f"{label}, {self.kind(kind, sentence)}" if kind else label

    def control(self, name: str) -> str:
        """Return what a control is: the label of one that is always run, else the model it is."""
        key = f"control.{name}"
        return self.say(key) if self.has(key) else name

    def result(self, text: str) -> str | None:
        """Return a test's result, given as a reason of the verdict, under the test's label; None for any other reason."""
        found = _RESULT.fullmatch(text)
        if found is None or not self.has(f"test.{found['test']}"):
            return None
        values = found.groupdict()
        where = self.engine(values["scope"]).text
        if values["layer"] is not None:
            where = self.say("picture.in_layer", scope=where, layer=values["layer"])
        values |= {"test": self.say(f"test.{values['test']}"), "scope": where}
        said = self.say("reason.test", **values)
        return said if values["of"] is None else self.say("reason.strongest", n=values["of"], result=said)

    def reason(self, text: str) -> str:
        """Return a reason of the verdict, or of a control, without identifiers."""
        return self.result(text) or plain_classes(self.engine(text).text)


IN_ENGLISH = Words()
"""For terminal, Markdown and notebooks."""


def precise_kind(kind: str, sentence: str) -> str:
    """Return the key of what was done, as precise as the verdict's sentence is."""
    return next((exact for name, phrase, exact in _PRECISE if name == kind and phrase in sentence), kind)


def plain_classes(text: str) -> str:
    """Return a sentence of the engine with the classes that a failed control names as words."""
    return _EXPECTED.sub(lambda found: found[0].replace("_", " "), text)


# -- numbers -------------------------------------------------------------------------------------------------------------


def three_digits(count: int) -> int:
    """Return a count rounded to three digits."""
    digits: int = 10 ** max(0, len(str(count)) - 3)
    return round(count / digits) * digits


def in_myriads(count: int) -> str:
    """Write a count as Koreans do, to three digits: 123,456,789 is 1.23억."""
    if count < MYRIAD:
        return f"{count:,}"
    rounded = three_digits(count)
    unit, name = next((unit, name) for unit, name in _MYRIADS if rounded >= unit)
    whole, rest = divmod(rounded, unit)
    return f"{whole:,}" + f"{rest / unit:.3f}".lstrip("0").rstrip("0").rstrip(".") + name


# -- tables --------------------------------------------------------------------------------------------------------------


def _strings(name: str) -> Any:
    return orjson.loads(files("kinprint.render.texts").joinpath(name).read_bytes())


@cache
def _labels(lang: str) -> Mapping[str, str]:
    # a label that is not translated is better read in English than not at all; a test sees to it that there is none
    return {**_strings(f"labels_{ENGLISH}.json"), **_strings(f"labels_{lang}.json")}


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
def _translate(lang: str, text: str, depth: int) -> str | None:
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
        return _translate(lang, text, depth)
    items = []
    for item in _BETWEEN_ITEMS.split(text):
        translated = _translate(lang, item, depth)
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
            head = _translate(lang, text, depth) if stop == start + 1 else _whole(lang, text, depth)
            if head is not None:
                rest[start] = head if stop == len(parts) else head + between + tail
                break
    return rest[0]
