"""Print a family tree. Names come from untrusted files and are shown as plain text."""

from rich.console import Console
from rich.text import Text

from kinprint._util.plain import printable
from kinprint.render.content import tree as content
from kinprint.render.content.cells import titled
from kinprint.render.terminal.layout import print_sections
from kinprint.render.terminal.lines import hanging, line
from kinprint.render.texts.words import Words
from kinprint.results.tree import BACKWARD, FORWARD, FamilyTree, TreeEdge, TreeModel

_ARROWS = {FORWARD: "──▶ ", BACKWARD: "◀── "}
_OPEN = "─── "
_STYLES = {FORWARD: "bold blue", BACKWARD: "bold yellow"}


def print_tree(tree: FamilyTree, console: Console, *, details: bool = True, lang: str = "en") -> None:
    """Print the drawing, the evidence of each edge, and what is shared without descent."""
    words = Words(lang)
    line(console, printable(content.summary(tree, words), 300), style="bold")
    roots = tree.roots()
    for root in roots:
        if root.family is not None:
            line(console, "")
            _node(tree, root, None, ("", ""), console, words)
    alone = [root for root in roots if root.family is None]
    tied = {node for tie in content.ties(tree) for node in (tie.one, tie.two)}
    if alone:
        line(console, "")
    for model in alone:
        why = words.say("tree.tied") if model.index in tied else content.standing_alone(tree, model, words)
        _say(console, content.label(tree, model), f"{why}; {content.size(model, words)}", (Text(), "  "))
    if tree.edges:
        line(console, "")
        line(console, words.say("tree.legend.arrows"), style="dim")
        line(console, words.say("tree.legend.plain"), style="dim")
    for tie in content.ties(tree):
        line(console, f"{words.say('tree.no_descent')} {content.tie_line(tree, tie, words)}", style="yellow")
    if details and tree.edges:
        print_sections([titled(content.edges_table(tree, words))], console, words)
    for note in tree.notes:
        line(console, f"· {printable(words.engine(note).text, 600)}")
    if tree.edges:
        settings = tree.settings
        line(console, words.say("tree.limits", alpha=f"{settings.log10_alpha:g}", pairs=settings.pairs), style="dim")


def _node(
    tree: FamilyTree, model: TreeModel, edge: TreeEdge | None, rails: tuple[str, str], console: Console, words: Words
) -> None:
    """Print a model and those below it; `rails` are the lines drawn before its own line, and before those below."""
    lead, below = rails
    arrow = "" if edge is None else _ARROWS.get(edge.direction, _OPEN)
    style = "" if edge is None else _STYLES.get(edge.direction, "")
    what = (
        content.size(model, words) if edge is None else f"{content.kind(edge, words)}; {content.firmness(edge, words)}"
    )
    what += content.second_parents(tree, model.index, edge, words)
    nodes = {item.index: item for item in tree.nodes}
    children = tree.children(model.index)
    marks = Text.assemble(lead, (arrow, style)), below + ("│ " if children else "  ")
    _say(console, content.label(tree, model), what, marks)
    for child in children:
        last = child is children[-1]
        deeper = (f"{below}└", f"{below}     ") if last else (f"{below}├", f"{below}│    ")
        _node(tree, nodes[child.child], child, deeper, console, words)


def _say(console: Console, name: str, what: str, marks: tuple[Text, str]) -> None:
    hanging(console, Text.assemble((name, "bold"), (f"  {what}", "dim")), marks)
