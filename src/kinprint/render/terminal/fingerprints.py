"""Fingerprint files as terminal pages: what one holds, which methods there are, what two of them say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from kinprint._util.plain import printable
from kinprint._util.sizes import format_size
from kinprint.render.terminal.layout import DASH, line, show, table
from kinprint.render.terminal.methods import print_methods


def print_fingerprint(description: Any, name: str, size: int, read: int, console: Console) -> None:
    """Say what was written, of which model, and which methods have nothing in it."""
    rows = table(header=False)
    rows.add_column("")
    rows.add_column("", overflow="fold")
    facts = [
        ("model", description.model),
        ("architecture", f"{description.architecture}, {description.layers} layers, width {description.hidden}"),
        ("file", f"{name}, {format_size(size)}"),
        ("read", format_size(read)),
        ("methods", ", ".join(item.method for item in description.methods if item.reason is None) or DASH),
    ]
    for what, value in facts:
        rows.add_row(what, Text(printable(value)))
    show(console, "Fingerprint", rows)
    for item in description.methods:
        if item.reason is not None:
            line(console, f"  {item.method}: not in it: {printable(item.reason)}", style="yellow")


def print_catalogue(methods: Sequence[Mapping[str, Any]], console: Console) -> None:
    """List the methods: what they need, whether they work on fingerprint files, which changes cannot hide from them."""
    rows = table()
    for column in ("method", "needs", "files", "unmoved by", "what it does"):
        rows.add_column(column, overflow="fold")
    for item in methods:
        unmoved = ", ".join(item["invariant_to"]) or DASH
        rows.add_row(
            item["method"], ", ".join(item["needs"]), "yes" if item["portable"] else "no", unmoved, item["summary"]
        )
    show(console, "Fingerprint methods", rows)


def print_fingerprint_report(report: Any, console: Console) -> None:
    """Print both sides, the methods, and the conclusion last."""
    rows = table()
    rows.add_column("")
    for side in ("A", "B"):
        rows.add_column(side, overflow="fold")
    lines = [
        (
            ("given", side.reference),
            ("as", side.kind),
            ("model", side.model),
            ("architecture", f"{side.architecture}, {side.layers} layers, width {side.hidden}"),
            ("digest", side.digest or DASH),
        )
        for side in (report.a, report.b)
    ]
    for (what, left), (_, right) in zip(*lines, strict=True):
        rows.add_row(what, Text(printable(left)), Text(printable(right)))
    show(console, "Fingerprints", rows)
    print_methods(report.methods, console)
    line(console, "")
    line(console, f"{report.class_.upper().replace('_', ' ')}: {printable(report.sentence)}", style="bold")
