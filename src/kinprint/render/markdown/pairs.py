"""All pairs of several models as Markdown: the matrix, the groups, every pair beside its null, and the proposed tree."""

from __future__ import annotations

from collections.abc import Iterator

from kinprint.render.drawing.tree_labels import heading, kind, title
from kinprint.render.markdown.report import bullets, markdown_table, name, prose
from kinprint.render.terminal.layout import DASH, number
from kinprint.render.terminal.pairs import LEGEND, found, sign, strongest_first
from kinprint.results.context import NOT_SHOWN, UNDECLARED
from kinprint.results.tree import FORWARD, PairsReport

_LIMITS = (
    "That two models are related rests on tests, corrected for their number and for the number of pairs. Which of two came first "
    "is a hypothesis from hints. No evidence is not proof of independence: distillation leaves no trace in weights."
)


def pairs_markdown(report: PairsReport) -> str:
    """Return the report as Markdown, ending in a newline."""
    return "\n\n".join(part for part in _parts(report) if part) + "\n"


def _parts(report: PairsReport) -> Iterator[str]:
    models = report.tree.models
    names = [name(title(model)) for model in models]
    yield f"# All pairs of {len(models)} models"
    header = ["", "model", *(str(model.index + 1) for model in models)]
    rows = [[str(one.index + 1), names[one.index], *(sign(report, one, two) for two in models)] for one in models]
    yield markdown_table(header, rows)
    yield prose(LEGEND.replace("   ", ", "))
    yield "## Groups"
    groups = [", ".join(names[index] for index in group) for group in report.clusters if len(group) > 1]
    alone = [names[index] for index in report.alone]
    lines = [f"{group} derive from one another or from a common ancestor" for group in groups]
    lines += [f"{who} derives from none of the others, as far as was seen" for who in alone]
    lines += [f"{names[index]} could not be tested against any of the others" for index in report.not_testable]
    yield bullets(lines)
    yield "## Pairs, strongest first"
    yield markdown_table(
        ["pair", "verdict", "log10 p", "for all pairs", "raw norm cosine", "its null", "controls passed"],
        [
            [
                f"{names[pair.a]} – {names[pair.b]}",
                prose(found(pair)),
                *(DASH if p is None else f"{p:.1f}" for p in (pair.log10_p, pair.log10_p_pairs)),
                number(pair.norm_cosine),
                number(pair.norm_cosine_null),
                f"{pair.controls_passed} of {pair.controls_run}",
            ]
            for pair in strongest_first(report)
        ],
        figures=5,
    )
    declared = [
        f"{names[pair.a]} (A) and {names[pair.b]} (B): {prose(pair.declared.sentence)}"
        for pair in report.pairs
        if pair.stands and pair.declared is not None and pair.declared.state in (UNDECLARED, NOT_SHOWN)
    ]
    if declared:
        yield "## Declared against measured"
        yield bullets(declared)
    if report.tree.edges:
        yield "## Proposed tree"
        yield bullets(
            f"{names[edge.parent]} {'→' if edge.direction == FORWARD else '–'} {names[edge.child]}: {prose(kind(edge))}; "
            f"{prose(heading(report.tree, edge))}"
            for edge in report.tree.edges
        )
    yield _LIMITS
    yield bullets(prose(note) for note in report.tree.notes)
