"""Print the answer to a comparison in at most twenty lines of eighty columns."""

import shlex
from collections.abc import Mapping

from rich.cells import cell_len
from rich.console import Console

from kinprint._util.plain import printable
from kinprint.render.content.answer import Answer, answer_of, next_step
from kinprint.render.terminal.lines import CLASS_STYLES, line, whole_line, wrapped
from kinprint.render.texts.words import Words
from kinprint.results.report import Report

MARK = "• "
WIDEST, NARROWEST = 25, 13  # columns of the drawn cosine


def print_answer(report: Report, console: Console, *, page: bool = False, lang: str = "en") -> None:
    """Print verdict, sentence, reasons, a drawn cosine, what was not tested, and what to try next; `page`: one was written."""
    words, made = Words(lang), answer_of(report, Words(lang))
    if made is None or report.verdict is None:
        from kinprint.render.terminal.report import (
            print_report,  # tables, sections and trees, which an answer has none of
        )

        print_report(report, console, details=False, lang=lang)
        return
    title = f"{words.say('verdict.title')} {made.verdict}"
    _say(console, title, style=CLASS_STYLES.get(report.verdict.class_, "bold"))
    _say(console, f"A {report.a.reference}   B {report.b.reference}", style="dim")
    _say(console, made.sentence)
    for reason in made.reasons:
        _say(console, reason, mark=MARK)
    _print_picture(console, made)
    if made.untested is not None:
        _say(console, f"{words.say('nav.untested')}: {made.untested}")
    _say(console, words.say("answer.next", full="--full"))
    whole_line(console, f"  {printable(next_step(report, report.verdict, page=page), 4000)}")


def print_lesson(found: Mapping[str, Report], models: str, console: Console, *, lang: str = "en") -> None:
    """Print verdict and drawn cosine of the demo's pairs, `found` by the name of B, and what they teach."""
    words = Words(lang)
    _say(console, words.say("demo.models"))
    for name, report in found.items():
        made = answer_of(report, words)
        assert made is not None  # the models that ship are judged
        line(console, "")
        _say(
            console, f"base, {name}: {made.verdict}", style=CLASS_STYLES[str(report.verdict and report.verdict.class_)]
        )
        _print_picture(console, made)
    for key, style in (("demo.lesson", "bold"), ("demo.why", ""), ("demo.next", "")):
        line(console, "")
        _say(console, words.say(key), style=style)
    own = shlex.join(["kinprint", "compare", f"{models}/base", f"{models}/finetune", "--full"])
    for step in ("kinprint compare owner/base owner/model --html report.html", own):
        whole_line(console, f"  {printable(step, 4000)}")


def _print_picture(console: Console, made: Answer) -> None:
    """Draw the cosine in one line where there is room for it; else it wraps after what is drawn."""
    if made.picture is not None:
        room = WIDEST - max(0, cell_len(made.picture(WIDEST)) - console.width)
        _say(console, made.picture(room if room >= NARROWEST else WIDEST))


def _say(console: Console, text: str, *, mark: str = "", style: str = "") -> None:
    wrapped(console, printable(text, 4000), mark=mark, style=style)
