"""Fingerprint methods as terminal tables: each value beside its null."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from kinprint._util.plain import printable
from kinprint.render.terminal.layout import DASH, figures, line, number, show, table
from kinprint.results.findings import BEYOND, TESTED, MethodFinding, MethodNull

_NARROW = 100


def print_methods(findings: Sequence[MethodFinding], console: Console) -> None:
    """Print one row for each method, then why some are off and what a reader must know of the others."""
    rows = table()
    rows.add_column("method", no_wrap=True)
    figures(rows, "value", "null mean", "null sd", "z", "log10 p", "n")
    rows.add_column("null")
    rows.add_column("reading", no_wrap=True)
    ran = [item for item in findings if item.status == TESTED]
    for item in ran:
        null = _deciding(item)
        shown = ("–",) * 5 if null is None else _null_figures(null)
        kind = (
            DASH
            if null is None
            else "exact"
            if null.exact
            else "empirical"
            if null.largest is not None
            else "approximate"
        )
        style = "bold" if item.reading == BEYOND else ""
        rows.add_row(item.method, number(item.value), *shown, kind, Text(item.reading, style=style))
    show(console, "Fingerprint methods (larger is more alike; each beside its own null)", rows)
    for item in ran:
        extra = ", ".join(f"{printable(detail.name)} {number(detail.value)}" for detail in item.details)
        if extra and console.width >= _NARROW:
            line(console, f"  {item.method}: {extra}", style="dim")
        for note in item.notes:
            line(console, f"  {item.method}: {printable(note)}", style="yellow")
    for item in findings:
        if item.status != TESTED:
            line(console, f"  {item.method}: not run: {printable(item.reason or DASH)}", style="yellow")
    if any(item.empirical is not None for item in ran):
        name = next(item.empirical.name for item in ran if item.empirical is not None)
        line(console, f"  empirical null: {printable(name)}; its p-values cannot fall below 1/(n + 1)", style="dim")


def _deciding(item: MethodFinding) -> MethodNull | None:
    """Return the null that the reading rests on: an exact one, else the empirical one, else what there is."""
    if item.chance is not None and item.chance.exact:
        return item.chance
    return item.empirical or item.chance


def _null_figures(null: MethodNull) -> tuple[str, ...]:
    z = DASH if null.z is None else f"{null.z:.1f}"
    p = DASH if null.log10_p is None else f"{null.log10_p:.1f}"
    return number(null.mean), number(null.sd), z, p, str(null.n)
