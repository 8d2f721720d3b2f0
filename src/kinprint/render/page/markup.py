"""How a page says things: labels, sentences of the engine, names from strangers, and numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from markupsafe import Markup, escape

from kinprint._util.plain import printable
from kinprint.render.terminal.layout import DASH, number
from kinprint.render.texts.words import MYRIAD, Words, in_myriads, plain_classes, precise_kind, three_digits

SENTENCE = 600  # characters of a sentence that are shown
NAME = 72
WHOLE = 12_000  # of a name that was cut, in its title
SPARE = 150_000  # characters that whole names may take on one page: a model may have thousands of long ones
_SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_BOUND = "upper bound"
_POWER = re.compile(r"10\^([-−]?\d+)(?!\.?\d)")  # whole ones: a decimal point has no raised form
_SOURCES = (
    ("Monte-Carlo", "how.draws"),
    ("normal tail on exact permutation moments,", "how.held"),
    ("normal", "how.normal"),
    ("Chernoff", "how.chernoff"),
    ("moment", "how.moments"),
    ("exact", "how.exact"),
    ("none", "how.none"),
)
_UNITS = ((10**12, 10**12, "T"), (10**9, 10**8, "B"), (10**6, 10**6, "M"))  # a unit, from where on it is used, its name


class Voice:
    """The words of one page in one language, ready for a template."""

    def __init__(self, lang: str) -> None:
        self.words = Words(lang)
        self.lang = lang
        self._spare = SPARE

    # -- words ---------------------------------------------------------------------------------------------------------

    def t(self, key: str, **values: object) -> str:
        """Return one of the page's own labels."""
        return self.words.say(key, **values)

    def engine(self, text: str | None, limit: int = SENTENCE) -> Markup:
        """Return a sentence of the engine, marked as English where this page's language has no words for it."""
        if not text:
            return escape(DASH)
        phrase = self.words.engine(text)
        shown = escape(_plain(printable(phrase.text, limit)))
        if phrase.lang == self.lang:
            return Markup('<span dir="auto">{}</span>').format(shown)
        return Markup('<span lang="{}" dir="auto">{}</span>').format(phrase.lang, shown)

    def said(self, text: str | None, limit: int = SENTENCE) -> str:
        """Return a sentence of the engine as plain text, for data that scripts show."""
        return _plain(printable(self.words.engine(text).text, limit)) if text else DASH

    def reason(self, text: str) -> Markup:
        """Return a reason of the verdict; where it is a test's result, under the plain name that the picture gives it."""
        said = self.words.result(text)
        return self.engine(text) if said is None else escape(printable(said, SENTENCE))

    def label(self, prefix: str, value: str | None) -> Markup:
        """Return the page's word for one of the engine's; for one it does not know, the engine's own."""
        if value is None:
            return escape(DASH)
        key = f"{prefix}.{value}"
        return escape(self.t(key)) if self.words.has(key) else self.engine(value.replace("_", " "), 80)

    def plain_label(self, prefix: str, value: str) -> str:
        """Return the same as plain text."""
        return _plain(printable(self.words.label(prefix, value), 80)) or DASH

    def kind(self, kind: str, sentence: str) -> Markup:
        """Return what was done, in the words of the verdict's sentence where the kind alone is not as precise."""
        return self.label("kind", precise_kind(kind, sentence))

    # -- names of strangers ----------------------------------------------------------------------------------------------

    def name(self, text: str | None, limit: int = NAME) -> Markup:
        """Return a name that a stranger chose: inert, set apart from the direction of the text around it, and cut."""
        if not text:
            return escape(DASH)
        shown = middle_cut(printable(text, WHOLE), limit)
        if len(text) <= limit:
            return Markup("<bdi>{}</bdi>").format(shown)
        whole = printable(text, WHOLE if len(text) <= self._spare else 4 * limit)
        self._spare -= len(whole)
        return Markup('<bdi class="cut" title="{}">{}</bdi>').format(whole, shown)

    def identity(self, text: str) -> Markup:
        """Return what tells a file from others: a hash, or that none is known. A size stands beside it already."""
        return escape(self.t("data.no_hash")) if text.startswith("size:") else self.name(text, 90)

    # -- numbers ---------------------------------------------------------------------------------------------------------

    def number(self, value: float | None) -> str:
        """Write a number with about four digits, or a dash for one that does not exist."""
        return number(value)

    def z(self, value: float | None) -> str:
        """Write a distance from a null in standard deviations."""
        if value is None:
            return DASH
        return f"{value:+.2f}" if abs(value) < 100 else f"{value:+.0f}"

    def log_p(self, value: float | None, method: str = "") -> str:
        """Write a log10 p, with a sign where it is only a bound."""
        if value is None:
            return DASH
        figure = min(value, 0.0) + 0.0
        return f"{'≤ ' if _BOUND in method else ''}{figure:.{2 if figure > -100 else 0}f}"

    def odds(self, log10_p: float | None) -> str:
        """Write a p-value as people say it. Powers are rounded towards what is less surprising, so "1 in" stays true."""
        if log10_p is None:
            return DASH
        size = max(0.0, -log10_p)
        if size < 1.0:
            return self.t("odds.p", p=f"{10**-size:.2f}")
        if size < 7.0:  # a million is still read as a number
            digits = 10 ** max(0, math.floor(size) - 1)
            return self.t("odds.one_in", n=self._whole(math.floor(10**size / digits) * digits))
        return self.t("odds.one_in", n=power_of_ten(math.floor(size)))

    def parameters(self, count: int) -> str:
        """Write how many parameters a model has, to three digits."""
        if self.lang == "ko":
            return in_myriads(count)
        if count < 10**6:
            return f"{count:,}"
        rounded = three_digits(count)
        return next(f"{rounded / unit:.3g} {name}" for unit, start, name in _UNITS if rounded >= start)

    def _whole(self, count: int) -> str:
        """Write a whole number as people say it."""
        if self.lang == "ko" and count >= MYRIAD and count % MYRIAD == 0:
            return f"{count // MYRIAD:,}만"
        return f"{count:,}"

    def how(self, method: str, draws: int | None = None) -> str:
        """Name the source of a p-value in a word or two; the full description stands in the cell's title."""
        for start, key in _SOURCES:
            if method.startswith(start):
                return self.t(key, draws=draws or 0)
        return self.said(method.split(" ", 1)[0].rstrip(":,") if method else None, 40)


def _plain(text: str) -> str:
    """Write powers and classes as people do."""
    return plain_classes(powers(text))


def powers(text: str) -> str:
    """Write 10^-140 as 10⁻¹⁴⁰."""
    return _POWER.sub(lambda found: power_of_ten(int(found[1].replace("−", "-"))), text)


def power_of_ten(exponent: int) -> str:
    """Return 10¹⁴⁰."""
    return "10" + str(exponent).translate(_SUPERSCRIPT)


def middle_cut(text: str, limit: int) -> str:
    """Cut text in its middle: names of tensors and models differ at their ends."""
    if len(text) <= limit:
        return text
    left = (limit - 1) * 2 // 3
    return f"{text[:left]}…{text[len(text) - (limit - 1 - left) :]}"


def ranges(numbers: Sequence[int]) -> str:
    """Write sorted numbers as runs: ``0–3, 7``."""
    runs: list[list[int]] = []
    for item in numbers:
        if runs and item == runs[-1][1] + 1:
            runs[-1][1] = item
        else:
            runs.append([item, item])
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in runs)
