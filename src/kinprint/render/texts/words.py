"""Translate labels, sentences of the engine and numbers into one language.

Reports hold English beside the data of each sentence, so that they are the same bytes for every reader. Every form takes one
`Words` and passes it down. Labels stand in ``labels_<language>.json``; sentences of the engine are `kinprint.text.Text`. A
sentence without a translation stays English, whole, and says so, so that a page can mark it. JSON and CSV keep identifiers, and
so do roles, metrics and methods, which options take.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import orjson

from kinprint._util.sizes import format_size
from kinprint.errors import BadSetting
from kinprint.results.p_values import PMethod
from kinprint.text import ENGLISH, LANGUAGES, Phrase, Text, Value, unspaced, verbatim

DASH = "–"
MYRIAD = 10_000  # 만: Korean counts in its powers
_MYRIADS = ((MYRIAD**3, "조"), (MYRIAD**2, "억"), (MYRIAD, "만"))
_UNITS = ((10**12, 10**12, "T"), (10**9, 10**8, "B"), (10**6, 10**6, "M"))  # a unit, from where on it is used, its name
_SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_RESULT = (("found", "x", ".4g"), ("mean", "m", ".3g"), ("z", "z", ".1f"), ("p", "p", ".1f"), ("corrected", "h", ".1f"))
"""Figures of a test's result: names in the label, in the engine's sentence, and how they are written."""
_MOST_PLACES = 10  # decimals beyond which what is less than 1 is rounding
_NAMED = ("test", "class", "control", "component")  # identifiers that sentences hold, and that have labels


class Words:
    """The words of one of `LANGUAGES`. All methods return plain text, still to be made safe to show."""

    def __init__(self, lang: str = ENGLISH) -> None:
        if lang not in LANGUAGES:
            raise BadSetting(f"no words in language {lang!r}", hint=f"known languages: {', '.join(LANGUAGES)}")
        self.lang = lang

    def say(self, key: str, **values: object) -> str:
        """Return the label `key` with `values` at its places: that for one thing (``key.one``), if there is, where a value is 1."""
        labels = _labels(self.lang)
        one = labels.get(f"{key}.one") if 1 in values.values() or "1" in values.values() else None
        return (one or labels[key]).format_map(values)

    def templates(self, prefix: str) -> dict[str, str]:
        """Return labels with their places still open, for scripts that fill them."""
        return {key: text for key, text in _labels(self.lang).items() if key.startswith(prefix)}

    def has(self, key: str) -> bool:
        """Return whether there is a label `key`."""
        return key in _labels(self.lang)

    def engine(self, text: str) -> Phrase:
        """Return a sentence of the engine in this language, or in English where it has no translation."""
        return (text if isinstance(text, Text) else Text.of(text, {})).phrase(self.lang)

    # -- identifiers ---------------------------------------------------------------------------------------------------

    def label(self, prefix: str, value: str) -> str:
        """Return the label of an identifier; for one that has none, its own words."""
        key = f"{prefix}.{value}"
        return self.say(key) if self.has(key) else self.engine(value.replace("_", " ")).text

    def part(self, scope: str) -> str:
        """Return what a role is called by readers who do not know our names; for what has no label, its own words."""
        key = f"part.{scope}"
        return self.say(key) if self.has(key) else self.engine(scope).text

    def kind(self, kind: str, variant: str | None = None) -> str:
        """Return what was done, as precisely as is known."""
        return self._variant_label("kind", kind, variant)

    def verdict(self, class_: str, kind: str | None, variant: str | None = None, kinds: Sequence[str] = ()) -> str:
        """Return a verdict in a few words, such as "derived, further training"; after the kind, further edits that show."""
        more = [self.kind(item) for item in kinds if kind in kinds and item != kind]
        done = [self.kind(kind, variant)] if kind else []
        return ", ".join([self._variant_label("class", class_, variant), *done, *more])

    def _variant_label(self, prefix: str, value: str, variant: str | None) -> str:
        exact = f"{value}.{variant}"
        return self.label(prefix, exact if self.has(f"{prefix}.{exact}") else value)

    def control(self, name: str) -> str:
        """Return the label of a built-in control, else the name of the model that was given."""
        key = f"control.{name}"
        return self.say(key) if self.has(key) else name

    def reason(self, text: str) -> Phrase:
        """Return a reason of the verdict, a rule or a control, with labels in place of identifiers."""
        if not isinstance(text, Text) or not text.values:
            return self.engine(text)
        values = text.values
        test = values.get("test")
        if isinstance(test, Text) and "reason" in values:
            return self._off(test, values)
        if isinstance(test, Text) and "h" in values:
            return self._result(test, values)
        if isinstance(test, Text) and "h" in test.values:  # the strongest of n tests
            result = self.reason(test)
            return Phrase(self.say("reason.strongest", n=values["n"], result=result.text), result.lang)
        return Text.of(text.key, {name: self._named(value) for name, value in values.items()}).phrase(self.lang)

    def _result(self, test: Text, values: Mapping[str, Any]) -> Phrase:
        """Return the result of a test, as `kinprint.evidence.verdict.describe` has it, under the test's label."""
        where = self.engine(values["scope"])
        scope = self.in_layer(where.text, values.get("n"))
        figures = {name: DASH if values[key] is None else format(values[key], form) for name, key, form in _RESULT}
        said = self.say("reason.test", test=self.label("test", test), scope=scope, **figures)
        return Phrase(said, where.lang)

    def off(self, test: str, scope: str, layer: int | None = None) -> str:
        """Name what a test that did not run would have told: its label would be a claim."""
        what = self.label("off" if self.has(f"off.{test}") else "test", test)
        return f"{what} ({self.in_layer(self.part(scope), layer)})"

    def _off(self, test: Text, values: Mapping[str, Any]) -> Phrase:
        """Return why a test did not run, as `kinprint.evidence.untested` has it, after what it would have told."""
        why = self.engine(values["reason"])
        return Phrase(f"{self.off(test, values['scope'])}: {why.text}", why.lang)

    def in_layer(self, scope: str, layer: int | None) -> str:
        """Return what a test is of, with the layer if it is of one."""
        return scope if layer is None else self.say("picture.in_layer", scope=scope, layer=layer)

    def _named(self, value: Value) -> Value:
        if isinstance(value, Text) and not value.values:
            known = next((f"{prefix}.{value}" for prefix in _NAMED if self.has(f"{prefix}.{value}")), None)
            return verbatim(self.say(known)) if known else value
        return value

    # -- numbers -------------------------------------------------------------------------------------------------------

    @staticmethod
    def number(value: float | None) -> str:
        """Write a number with about four digits, or a dash for one that does not exist."""
        if value is None:
            return DASH
        if abs(value) < 1e-12:
            return "0"
        if 100 <= abs(value) < 1e5:
            return f"{value:.1f}"
        return decimals(value, 4) if 1e-3 <= abs(value) < 100 else f"{value:.2e}"

    def z(self, value: float | None) -> str:
        """Write a distance from a null in standard deviations."""
        return DASH if value is None else f"{value:+.{2 if abs(value) < 100 else 1}f}"

    def log_p(self, value: float | None, *, bound: bool = False) -> str:
        """Write a log10 p, with a sign where it is only a bound."""
        if value is None:
            return DASH
        figure = min(value, 0.0) + 0.0
        return f"{'≤ ' if bound else ''}{figure:.{2 if figure > -100 else 1}f}"

    def share(self, value: float | None) -> str:
        """Write a share as per cent."""
        if value is None:
            return DASH
        shown = f"{100 * value:.4g}"
        return f"{'99.99' if shown == '100' and value < 1 else shown}%"  # what is less than all is not written as all

    def size(self, count: float) -> str:
        """Write a number of bytes; Korean has no space before a unit."""
        return unspaced(format_size(count), self.lang)

    def odds(self, log10_p: float | None, *, bound: bool = False) -> str:
        """Write a p-value as people say it, or what it is below. Powers are rounded towards what is less surprising."""
        if bound and log10_p is not None:
            return self.say("odds.fewer", odds=self.odds(log10_p))
        if log10_p is None:
            return DASH
        size = max(0.0, -log10_p)
        if size < 1.0:
            return self.say("odds.p", p=f"{10**-size:.2f}")
        if size < 7.0:  # a million is still read as a number
            digits = 10 ** max(0, math.floor(size) - 1)
            return self.say("odds.one_in", n=self._whole(math.floor(10**size / digits) * digits))
        return self.say("odds.one_in", n=power_of_ten(math.floor(size)))

    def parameters(self, count: int) -> str:
        """Write how many parameters a model has, to three digits."""
        if self.lang == "ko":
            return in_myriads(count)
        if count < 10**6:
            return f"{count:,}"
        rounded = _three_digits(count)
        return next(f"{rounded / unit:.3g} {name}" for unit, start, name in _UNITS if rounded >= start)

    def _whole(self, count: int) -> str:
        """Write a whole number as people say it."""
        if self.lang == "ko" and count >= MYRIAD and count % MYRIAD == 0:
            return f"{count // MYRIAD:,}만"
        return f"{count:,}"

    def how(self, method: PMethod, draws: int | None = None) -> str:
        """Name the source of a p-value in a word or two."""
        key = f"how.{method}"
        return self.say(key, draws=draws or 0) if self.has(key) else method.label.render(self.lang)


def decimals(value: float, places: int) -> str:
    """Write a number with so many decimals, or with more where it is less than 1 and they would make it 1."""
    more = next((n for n in range(places, _MOST_PLACES) if abs(round(value, n)) < 1), places)
    return f"{round(value, more) + 0.0:.{more}f}"


def power_of_ten(exponent: int) -> str:
    """Return 10¹⁴⁰."""
    return "10" + str(exponent).translate(_SUPERSCRIPT)


def in_myriads(count: int) -> str:
    """Write a count as Koreans do, to three digits: 123,456,789 is 1.23억."""
    if count < MYRIAD:
        return f"{count:,}"
    rounded = _three_digits(count)
    unit, name = next((unit, name) for unit, name in _MYRIADS if rounded >= unit)
    whole, rest = divmod(rounded, unit)
    return f"{whole:,}" + f"{rest / unit:.3f}".lstrip("0").rstrip("0").rstrip(".") + name


def _three_digits(count: int) -> int:
    digits: int = 10 ** max(0, len(str(count)) - 3)
    return round(count / digits) * digits


@cache
def _labels(lang: str) -> Mapping[str, str]:
    # a label that is not translated is better read in English than not at all; a test sees to it that there is none
    folder = files("kinprint.render.texts")
    found: dict[str, str] = {}
    for each in dict.fromkeys((ENGLISH, lang)):
        found |= orjson.loads(folder.joinpath(f"labels_{each}.json").read_bytes())
    return found
