"""The result of a verification as a terminal page: the checks, what does not agree, and one line at the end."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from kinprint._util.plain import printable
from kinprint.render.terminal.layout import DASH, figures, line, show, table
from kinprint.results.verification import FAILED, OPEN, PASSED, VERIFIED, Problem, Verification

_STYLES = {PASSED: "green", OPEN: "yellow"}
_MOST = 20  # lines of a list; JSON has more


def print_verification(found: Verification, console: Console) -> None:
    """Print what was checked, what does not agree, what could not be checked, and the result last."""
    line(console, f"{printable(found.bundle)}: {found.a} against {found.b}")
    if found.verdict:
        line(console, f"its report says: {found.verdict}")
    for model in found.models[:_MOST]:
        commit = f", commit {model.commit}" if model.commit else ""
        asked = "" if model.asked or found.offline else "; not asked"
        said = f" ({model.said})" if model.said else ""
        style = "yellow" if model.said else ""
        line(console, f"read: {model.reference} at {model.location}{commit}{asked}{said}", style=style)
    if found.null:
        line(console, f"judged by an empirical null supplied with the bundle (sha256 {found.null})", style="yellow")
    rows = table()
    rows.add_column("check", no_wrap=True)
    rows.add_column("result", no_wrap=True)
    figures(rows, "checked", "agree")
    rows.add_column("", overflow="fold")
    for check in found.checks:
        counts = (f"{check.checked:,}", f"{check.agree:,}") if check.checked else (DASH, DASH)
        rows.add_row(check.name, Text(check.state, style=_STYLES.get(check.state, "red")), *counts, Text(check.said))
    show(console, "checks", rows)
    _problems(f"{found.problems_in_all:,} differences", found.problems, found.problems_in_all, console)
    _problems(f"equal within {found.tolerance:g} only, not to the last bit", found.close_figures, found.close, console)
    for item in found.unchecked[:_MOST]:
        line(console, f"not checked: {printable(item.what)}: {printable(item.reason, 600)}", style="yellow")
    if found.versions:
        said = "; ".join(found.versions)
        line(console, f"note: made with {said}, so figures may differ in their last digits", style="yellow")
    line(console, "")
    line(console, f"digest of the bundle: {found.digest}")
    style = "bold green" if found.outcome == VERIFIED else "bold red" if found.outcome == FAILED else "bold yellow"
    line(console, found.sentence, style=style)


def _problems(title: str, problems: tuple[Problem, ...], in_all: int, console: Console) -> None:
    if not problems:
        return
    rows = table()
    rows.add_column("what", no_wrap=True)
    rows.add_column("where", overflow="fold")
    rows.add_column("recorded", overflow="fold")
    rows.add_column("found", overflow="fold")
    for problem in problems[:_MOST]:
        rows.add_row(*(Text(part) for part in (problem.kind, problem.where, problem.recorded, problem.found)))
    show(console, title, rows)
    if in_all > _MOST:
        line(console, f"and {in_all - _MOST:,} more: --format json lists {len(problems):,}")
