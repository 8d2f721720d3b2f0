"""Turn the words of one page into safe markup: sentences of the engine, untrusted names, cells of tables."""

import re

from markupsafe import Markup, escape

from kinprint._util.plain import printable
from kinprint.render.content.blocks import CODE, NAME, SENTENCE, STATE, Cell
from kinprint.render.texts.words import DASH, Words, power_of_ten
from kinprint.text import Phrase

LONGEST = 600  # characters of a sentence that are shown
LONGEST_NAME = 72
WHOLE = 12_000  # of a name that was cut, in its title
SPARE = 150_000  # characters that whole names may take on one page: a model may have thousands of long ones
_POWER = re.compile(r"10\^([-−]?\d+)(?!\.?\d)")  # whole ones: a decimal point has no raised form
_STATES = frozenset({"shared", "partly shared", "not shared", "not tested", "passed", "failed", "not run"})


class PageWords(Words):
    """The words of one page in one language, ready for a template."""

    def __init__(self, lang: str) -> None:
        super().__init__(lang)
        self._spare = SPARE

    def label(self, prefix: str, value: str | None) -> str:
        """Return the label of an identifier, safe to show; for one that has none, its own words."""
        return DASH if value is None else powers(printable(super().label(prefix, value), 400)) or DASH

    @staticmethod
    def heading(label: str) -> str:
        """Return the heading of a column, broken nowhere inside "log10 p"."""
        return label.replace("log10 p", "log10\N{NO-BREAK SPACE}p")

    def sentence(self, text: str | None, limit: int = LONGEST) -> Markup:
        """Return a sentence of the engine, marked as English where this page's language has no words for it."""
        return self._marked(self.engine(text), limit) if text else escape(DASH)

    def why(self, text: str) -> Markup:
        """Return a reason of the verdict; where it is a test's result, under the plain name that the chart gives it."""
        return self._marked(self.reason(text), LONGEST)

    def _marked(self, phrase: Phrase, limit: int) -> Markup:
        shown = powers(printable(phrase.text, limit))
        if phrase.lang == self.lang:
            return Markup('<span dir="auto">{}</span>').format(shown)
        return Markup('<span lang="{}" dir="auto">{}</span>').format(phrase.lang, shown)

    def said(self, text: str | None, limit: int = LONGEST) -> str:
        """Return a sentence of the engine as plain text, for data that scripts show."""
        return powers(printable(self.engine(text).text, limit)) if text else DASH

    def name(self, text: str | None, limit: int = LONGEST_NAME) -> Markup:
        """Return an untrusted name: escaped, isolated from the direction of the text around it, and cut."""
        if not text:
            return escape(DASH)
        shown = middle_cut(printable(text, WHOLE), limit)
        if len(text) <= limit:
            return Markup("<bdi>{}</bdi>").format(shown)
        whole = printable(text, WHOLE if len(text) <= self._spare else 4 * limit)
        self._spare -= len(whole)
        return Markup('<bdi class="cut" title="{}">{}</bdi>').format(whole, shown)

    def state(self, word: str, shown: str) -> Markup:
        """Return one of the states of a part or a control, with its shape."""
        known = word.replace(" ", "-") if word in _STATES else "other"
        return Markup('<span class="state state-{}"><span class="shape" aria-hidden="true"></span>{}</span>').format(
            known, printable(shown, 80)
        )

    def cell(self, cell: Cell) -> Markup:
        """Return what stands in a cell of a table."""
        if cell.kind == NAME:
            return self.name(cell.text, 90)
        if cell.kind == STATE:
            return self.state(str(cell.value), cell.text)
        if cell.kind == CODE:
            shown = Markup("<code>{}</code>").format(printable(cell.text, 80))
            return shown + Markup(" {}").format(printable(cell.full, 160)) if cell.full else shown
        if cell.kind == SENTENCE:
            return self._marked(Phrase(cell.full or cell.text, cell.lang), 300)
        text = escape(powers(printable(cell.text, 300)))
        if cell.code:
            return text + Markup(" <code>{}</code>").format(printable(cell.code, 60))
        return Markup('<span title="{}">{}</span>').format(printable(cell.full, 200), text) if cell.full else text


def powers(text: str) -> str:
    """Write 10^-140 as 10⁻¹⁴⁰."""
    return text if "^" not in text else _POWER.sub(lambda found: power_of_ten(int(found[1].replace("−", "-"))), text)


def middle_cut(text: str, limit: int) -> str:
    """Cut text in its middle: names of tensors and models differ at their ends."""
    if len(text) <= limit:
        return text
    left = (limit - 1) * 2 // 3
    return f"{text[:left]}…{text[len(text) - (limit - 1 - left) :]}"
