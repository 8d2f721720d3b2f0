"""All pairs of several models as terminal text: the matrix of verdicts, the groups, the tree, and a line for each pair."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from kinprint._util.plain import printable
from kinprint.render.drawing.tree_labels import title
from kinprint.render.terminal.layout import DASH, figures, line, number, show, table
from kinprint.render.terminal.tree import print_tree
from kinprint.render.texts.words import IN_ENGLISH
from kinprint.results.context import NOT_SHOWN, UNDECLARED
from kinprint.results.findings import (
    DERIVED,
    IDENTICAL,
    NO_EVIDENCE,
    NOT_TESTABLE,
    SHARES_COMPONENTS,
    SHARES_INITIALISATION,
)
from kinprint.results.tree import PairsReport, PairSummary, TreeModel

MARKS = {
    IDENTICAL: "=",
    DERIVED: "D",
    SHARES_COMPONENTS: "c",
    SHARES_INITIALISATION: "i",
    NO_EVIDENCE: "·",
    NOT_TESTABLE: "?",
}
_STYLES = {
    IDENTICAL: "bold magenta",
    DERIVED: "bold magenta",
    SHARES_COMPONENTS: "yellow",
    SHARES_INITIALISATION: "yellow",
}
LEGEND = "   ".join(
    [
        *(f"{sign} {IN_ENGLISH.label('class', name)}" for name, sign in MARKS.items()),
        "( ) not after correction for all pairs",
    ]
)


def mark(pair: PairSummary) -> str:
    """Return a cell of the matrix; in brackets what does not stand after the correction for all pairs."""
    sign = MARKS[pair.class_]
    return sign if pair.stands else f"({sign})"


def sign(report: PairsReport, one: TreeModel, two: TreeModel) -> str:
    """Return the cell of two models; empty for a model and itself, and for what was not compared."""
    if one.node == two.node:
        return "" if one.index == two.index else MARKS[IDENTICAL]
    pair = report.pair(one.index, two.index)
    return "" if pair is None else mark(pair)


def strongest_first(report: PairsReport) -> list[PairSummary]:
    """Return the pairs in the order in which tables show them."""
    return sorted(report.pairs, key=lambda item: (item.log10_p_pairs or 0.0, item.a, item.b))


def found(pair: PairSummary) -> str:
    """Return a pair's verdict in words, and whether it stands after the correction for all pairs."""
    said = IN_ENGLISH.verdict(pair.class_, pair.kind, pair.sentence)
    return said if pair.stands else f"{said} (not after correction)"


def print_pairs(report: PairsReport, console: Console, *, details: bool = True) -> None:
    """Print matrix, groups, tree, and every pair beside its null."""
    _matrix(report, console)
    _clusters(report, console)
    _pairs(report, console)
    _declared(report, console)
    line(console, "")
    print_tree(report.tree, console, details=details)


def _matrix(report: PairsReport, console: Console) -> None:
    models = report.tree.models
    shown = table()
    shown.add_column("", justify="right")
    shown.add_column("model", overflow="fold")
    for model in models:
        shown.add_column(str(model.index + 1), justify="center", no_wrap=True)
    for one in models:
        cells = []
        for two in models:
            pair = None if one.node == two.node else report.pair(one.index, two.index)
            same = one.node == two.node and one.index != two.index
            cells.append(Text("=", _STYLES[IDENTICAL]) if same else _cell(pair))
        shown.add_row(str(one.index + 1), Text(title(one)), *cells)
    show(console, f"Verdicts of {len(report.pairs)} pairs", shown)
    line(console, LEGEND, style="dim")


def _cell(pair: PairSummary | None) -> Text:
    return Text(" ") if pair is None else Text(mark(pair), _STYLES.get(pair.class_, ""))


def _clusters(report: PairsReport, console: Console) -> None:
    names = [title(model) for model in report.tree.models]
    line(console, "")
    for group in report.clusters:
        if len(group) > 1:
            line(console, f"group: {', '.join(names[index] for index in group)}", style="bold")
    if report.alone:
        line(
            console, f"derives from none of the others, as far as was seen: {', '.join(names[i] for i in report.alone)}"
        )
    if report.not_testable:
        found = ", ".join(names[index] for index in report.not_testable)
        line(console, f"could not be tested against any of the others: {found}", style="yellow")


def _pairs(report: PairsReport, console: Console) -> None:
    names = [title(model) for model in report.tree.models]
    shown = table()
    shown.add_column("pair", overflow="fold")
    shown.add_column("verdict", overflow="fold")
    figures(shown, "log10 p", "all pairs", "norm cosine", "its null")
    shown.add_column("controls", no_wrap=True)
    for pair in strongest_first(report):
        shown.add_row(
            Text(f"{names[pair.a]} – {names[pair.b]}"),
            Text(printable(found(pair)), _STYLES.get(pair.class_, "")),
            *(DASH if p is None else f"{p:.1f}" for p in (pair.log10_p, pair.log10_p_pairs)),
            number(pair.norm_cosine),
            number(pair.norm_cosine_null),
            f"{pair.controls_passed} of {pair.controls_run}",
        )
    show(console, "Pairs, strongest first", shown)
    line(
        console,
        "A raw cosine of norms near its null says nothing, however high: it follows from the spreads.",
        style="dim",
    )


def _declared(report: PairsReport, console: Console) -> None:
    names = [title(model) for model in report.tree.models]
    for pair in report.pairs:
        if pair.stands and pair.declared is not None and pair.declared.state in (UNDECLARED, NOT_SHOWN):
            where = f"{names[pair.a]} (A) and {names[pair.b]} (B)"
            line(console, f"{where}: {printable(pair.declared.sentence, 300)}", style="yellow")
