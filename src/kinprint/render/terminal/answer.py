"""Print the answer to a comparison in at most twenty lines of eighty columns."""

from rich.console import Console
from rich.text import Text

from kinprint._util.plain import printable
from kinprint.render.content.answer import answer_of
from kinprint.render.terminal.layout import line
from kinprint.render.terminal.report import CLASS_STYLES, print_report
from kinprint.render.texts.words import Words
from kinprint.results.report import Report

MARK = "• "


def print_answer(report: Report, console: Console, *, lang: str = "en") -> None:
    """Print verdict, sentence, reasons, a drawn cosine, what was not tested, and what to try next; words wrap at spaces."""
    words, made = Words(lang), answer_of(report, Words(lang))
    if made is None or report.verdict is None:
        print_report(report, console, details=False, lang=lang)
        return
    title = f"{words.say('verdict.title')} {made.verdict}"
    _wrapped(console, title, style=CLASS_STYLES.get(report.verdict.class_, "bold"))
    _wrapped(console, f"A {report.a.reference}   B {report.b.reference}", style="dim")
    _wrapped(console, made.sentence)
    for reason in made.reasons:
        _wrapped(console, reason, mark=MARK)
    for further in (made.picture, made.untested):
        if further is not None:
            _wrapped(console, further)
    _wrapped(console, words.say("answer.next", full="--full"))
    line(console, f"  {printable(made.next_step, 4000)}")


def _wrapped(console: Console, text: str, *, mark: str = "", style: str = "") -> None:
    """Print a text wrapped at spaces, further lines below the first word."""
    lines = Text(printable(text, 4000)).wrap(console, max(20, console.width - len(mark)))
    for number, each in enumerate(lines):
        line(console, (mark if number == 0 else " " * len(mark)) + each.plain.rstrip(), style=style)
