"""A family tree as terminal text. Names come from strangers and are shown as plain text."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from kinprint._util.plain import printable
from kinprint.render.content.blocks import Section
from kinprint.render.content.tree import (
    edges_table,
    firmness,
    kind,
    label,
    second_parents,
    size,
    standing_alone,
    summary,
    tie_line,
    ties,
)
from kinprint.render.terminal.layout import line, print_section
from kinprint.render.texts.words import Words
from kinprint.results.tree import BACKWARD, FORWARD, FamilyTree, TreeEdge, TreeModel

_ARROWS = {FORWARD: "──▶ ", BACKWARD: "◀── "}
_OPEN = "─── "
_STYLES = {FORWARD: "bold blue", BACKWARD: "bold yellow"}


def print_tree(tree: FamilyTree, console: Console, *, details: bool = True, lang: str = "en") -> None:
    """Print the drawing, the evidence of each edge, and what is shared without descent."""
    words = Words(lang)
    line(console, printable(summary(tree, words), 300), style="bold")
    roots = tree.roots()
    for root in roots:
        if root.family is not None:
            line(console, "")
            _node(tree, root, None, ("", ""), console, words)
    alone = [root for root in roots if root.family is None]
    tied = {node for tie in ties(tree) for node in (tie.one, tie.two)}
    if alone:
        line(console, "")
    for model in alone:
        why = words.say("tree.tied") if model.index in tied else standing_alone(tree, model, words)
        _say(console, (label(tree, model), "bold"), (f"  {why}; {size(model, words)}", "dim"))
    if tree.edges:
        line(console, "")
        line(console, words.say("tree.legend.arrows"), style="dim")
    for tie in ties(tree):
        line(console, f"{words.say('tree.no_descent')} {tie_line(tree, tie, words)}", style="yellow")
    if details and tree.edges:
        made = edges_table(tree, words)
        print_section(Section(made.title, (made,)), console, words)
    for note in tree.notes:
        line(console, f"· {printable(words.engine(note).text, 600)}")
    if tree.edges:
        settings = tree.settings
        line(console, words.say("tree.limits", alpha=f"{settings.log10_alpha:g}", pairs=settings.pairs), style="dim")


def _node(
    tree: FamilyTree, model: TreeModel, edge: TreeEdge | None, rails: tuple[str, str], console: Console, words: Words
) -> None:
    """Print a model and those below it; `rails` stand before its line, and before the lines below it."""
    lead, below = rails
    arrow = "" if edge is None else _ARROWS.get(edge.direction, _OPEN)
    style = "" if edge is None else _STYLES.get(edge.direction, "")
    what = size(model, words) if edge is None else f"{kind(edge, words)}; {firmness(edge, words)}"
    what += second_parents(tree, model.index, edge, words)
    _say(console, (lead, ""), (arrow, style), (label(tree, model), "bold"), (f"  {what}", "dim"))
    nodes = {item.index: item for item in tree.nodes}
    children = tree.children(model.index)
    for child in children:
        last = child is children[-1]
        deeper = (f"{below}└", f"{below}     ") if last else (f"{below}├", f"{below}│    ")
        _node(tree, nodes[child.child], child, deeper, console, words)


def _say(console: Console, *parts: tuple[str, str]) -> None:
    text = Text()
    for part, style in parts:
        text.append(part, style=style or None)
    console.print(text, soft_wrap=True)
