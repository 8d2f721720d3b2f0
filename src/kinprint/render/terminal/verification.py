"""Print the result of a verification: the checks, what does not agree, and one line at the end."""

from rich.console import Console

from kinprint._util.plain import printable
from kinprint.render.content.blocks import STRONG, WARNING, Block, Cell, Line, Section
from kinprint.render.content.cells import count, listing, name, sentence, table, titled
from kinprint.render.terminal.layout import print_blocks, print_sections
from kinprint.render.terminal.lines import line
from kinprint.render.texts.words import Words
from kinprint.results.verification import FAILED, VERIFIED, ModelRead, Problem, Verification

_MOST = 20  # lines of a list; JSON has more


def print_verification(found: Verification, console: Console, *, lang: str = "en") -> None:
    """Print what was checked, what does not agree, what could not be checked, and the result last."""
    words = Words(lang)
    blocks: list[Block] = [Line(words.say("verify.about", bundle=found.bundle, a=found.a, b=found.b))]
    if found.verdict:
        blocks.append(Line(words.say("verify.verdict", verdict=words.engine(found.verdict).text)))
    blocks += [_read(model, words, offline=found.offline) for model in found.models[:_MOST]]
    if found.null:
        blocks.append(Line(words.say("verify.null", digest=found.null), WARNING))
    print_blocks(blocks, console, words)
    differences = words.say("verify.differences", n=f"{found.problems_in_all:,}")
    close = words.say("verify.close", tolerance=f"{found.tolerance:g}")
    sections = [
        _checks(found, words),
        _problems(differences, found.problems, found.problems_in_all, words),
        _problems(close, found.close_figures, found.close, words),
    ]
    print_sections(sections, console, words)
    for item in found.unchecked[:_MOST]:
        said = f"{words.engine(item.what).text}: {words.engine(item.reason).text}"
        line(console, f"{words.label('check', 'not checked')}: {printable(said, 600)}", style="yellow")
    if found.versions:
        said = "; ".join(words.engine(text).text for text in found.versions)
        line(console, printable(words.say("verify.versions", versions=said), 600), style="yellow")
    line(console, "")
    line(console, words.say("verify.digest", digest=printable(found.digest)))
    style = "bold green" if found.outcome == VERIFIED else "bold red" if found.outcome == FAILED else "bold yellow"
    line(console, printable(words.engine(found.sentence).text, 700), style=style)


def _read(model: ModelRead, words: Words, *, offline: bool) -> Line:
    """Return where a model was read, and notes on that."""
    parts = [words.say("verify.read", model=model.reference, location=model.location)]
    parts += [f"{words.say('head.commit')} {model.commit}"] if model.commit else []
    parts += [] if model.asked or offline else [words.say("verify.not_asked")]
    parts += [words.engine(model.said).text] if model.said else []
    return Line("; ".join(parts), WARNING if model.said else "")


def _checks(found: Verification, words: Words) -> Section:
    made = listing(
        words,
        "verify.checks",
        "check=name:label.check result=state:state.check checked# agree# note=said:sentence",
        found.checks,
        checked=lambda check: count(check.checked or None),
        agree=lambda check: count(check.agree if check.checked else None),
    )
    return titled(made)


def _problems(title: str, problems: tuple[Problem, ...], in_all: int, words: Words) -> Section:
    rows = [
        (
            Cell(words.label("problem", each.kind)),
            name(each.where),
            sentence(words, each.recorded),
            sentence(words, each.found),
        )
        for each in problems[:_MOST]
    ]
    if not rows:
        return Section(title, ())
    left = in_all - _MOST
    more = [Line(words.say("verify.more", n=f"{left:,}", listed=f"{len(problems):,}"), STRONG)] if left > 0 else []
    return titled(table(words, title, "what place recorded found", rows), *more)
