"""A family tree as terminal text. Names come from strangers and are shown as plain text."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from kinprint._util.plain import printable
from kinprint.render.drawing.tree_labels import (
    firmness,
    heading,
    kind,
    label,
    second_parents,
    size,
    standing_alone,
    summary,
    tie_line,
    ties,
    title,
)
from kinprint.render.terminal.layout import DASH, figures, line, number, show, table
from kinprint.results.tree import BACKWARD, FORWARD, FamilyTree, TreeEdge, TreeModel

_ARROWS = {FORWARD: "──▶ ", BACKWARD: "◀── "}
_OPEN = "─── "
_STYLES = {FORWARD: "bold blue", BACKWARD: "bold yellow"}
LEGEND = "──▶ parent to child   ─── related, direction open   ◀── cues point against the drawing"
_SHOWN_CUES = 4


def print_tree(tree: FamilyTree, console: Console, *, details: bool = True) -> None:
    """Print the drawing, the evidence of each edge, and what is shared without descent."""
    line(console, printable(summary(tree), 300), style="bold")
    roots = tree.roots()
    for root in roots:
        if root.family is not None:
            line(console, "")
            _node(tree, root, None, "", "", console)
    alone = [root for root in roots if root.family is None]
    tied = {node for tie in ties(tree) for node in (tie.one, tie.two)}
    if alone:
        line(console, "")
    for model in alone:
        why = (
            "derives from none of the others, but shares something (below)"
            if model.index in tied
            else standing_alone(tree, model)
        )
        _say(console, (label(tree, model), "bold"), (f"  {why}; {size(model)}", "dim"))
    if tree.edges:
        line(console, "")
        line(console, LEGEND, style="dim")
    for tie in ties(tree):
        line(console, f"no descent: {tie_line(tree, tie)}", style="yellow")
    if details and tree.edges:
        _edges(tree, console)
    for note in tree.notes:
        line(console, f"note: {printable(note, 600)}")
    if tree.edges:
        line(console, LIMITS.format(alpha=tree.settings.log10_alpha, pairs=tree.settings.pairs), style="dim")


LIMITS = (
    "That two models are related rests on tests (log10 p below {alpha:g} after correction for {pairs} pairs). Which came first "
    "is a hypothesis: percentages add up stated priors, see docs/tree.md."
)


def _node(tree: FamilyTree, model: TreeModel, edge: TreeEdge | None, lead: str, below: str, console: Console) -> None:
    arrow = "" if edge is None else _ARROWS.get(edge.direction, _OPEN)
    style = "" if edge is None else _STYLES.get(edge.direction, "")
    what = size(model) if edge is None else f"{kind(edge)}; {firmness(edge)}"
    what += second_parents(tree, model.index, edge)
    _say(console, (lead, ""), (arrow, style), (label(tree, model), "bold"), (f"  {what}", "dim"))
    below_edges = tree.children(model.index)
    nodes = {item.index: item for item in tree.nodes}
    for position, child in enumerate(below_edges):
        last = position == len(below_edges) - 1
        lead, deeper = (f"{below}└", f"{below}     ") if last else (f"{below}├", f"{below}│    ")
        _node(tree, nodes[child.child], child, lead, deeper, console)


def _say(console: Console, *parts: tuple[str, str]) -> None:
    text = Text()
    for part, style in parts:
        text.append(part, style=style or None)
    console.print(text, soft_wrap=True)


def _edges(tree: FamilyTree, console: Console) -> None:
    shown = table()
    shown.add_column("edge", overflow="fold")
    figures(shown, "log10 p", "distance", "neighbours", "next best")
    shown.add_column("direction, and hints at it (hypotheses; log-odds)", overflow="fold", ratio=1)
    names = {model.index: title(model) for model in tree.models}
    for edge in tree.edges:
        arrow = {FORWARD: "→", BACKWARD: "←"}.get(edge.direction, "–")
        support = DASH if edge.support is None else f"{edge.support:.0%}"
        shown.add_row(
            Text(f"{names[edge.parent]} {arrow} {names[edge.child]}"),
            DASH if edge.log10_p_pairs is None else f"{edge.log10_p_pairs:.1f}",
            number(edge.distance),
            support,
            number(edge.alternative),
            Text(_cues(tree, edge)),
        )
    show(console, "Edges", shown)


def _cues(tree: FamilyTree, edge: TreeEdge) -> str:
    lines = [heading(tree, edge)]
    for cue in edge.cues[:_SHOWN_CUES]:
        strength = f"{cue.strength:+.2f}" if cue.counts else "not counted"
        lines.append(f"· {cue.name} ({cue.source}, {strength}): {printable(cue.says, 240)}")
    if len(edge.cues) > _SHOWN_CUES:
        lines.append(f"· and {len(edge.cues) - _SHOWN_CUES} more, in tree.json")
    return "\n".join(lines)
