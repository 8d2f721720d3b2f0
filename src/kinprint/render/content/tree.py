"""Describe models and edges of a family tree in one language, for the terminal, notebooks and the drawing."""

from collections import Counter
from dataclasses import dataclass

from kinprint._util.plain import printable
from kinprint.render.content.blocks import LINES, Cell, Table
from kinprint.render.content.cells import figure, listing, name
from kinprint.render.texts.words import DASH, Words
from kinprint.results.tree import BACKWARD, FORWARD, UNDIRECTED, FamilyTree, TreeEdge, TreeModel

NAME_LENGTH = 60
_CUES = 4  # shown of each edge
_SHARES = ("shares_components", "shares_initialisation")


@dataclass(frozen=True)
class Tie:
    """Two models, or families, that share weights without descent: one line for all such pairs between them."""

    one: int  # node to draw at
    two: int
    shares: str
    pairs: int
    of: int


def title(model: TreeModel) -> str:
    """Return a model's name, safe to show; a long one is cut in the middle, since names of models differ at their ends."""
    shown = printable(model.name, 10 * NAME_LENGTH)
    half = NAME_LENGTH // 2
    return shown if len(shown) <= NAME_LENGTH else f"{shown[:half]}…{shown[1 - half :]}"


def label(tree: FamilyTree, model: TreeModel) -> str:
    """Return a node's name with those of the models that equal it."""
    return " = ".join(title(item) for item in (model, *tree.equal_to(model.index)))


def standing_alone(tree: FamilyTree, model: TreeModel, words: Words) -> str:
    """Say why a model has no edge: unrelated to all others, or not testable."""
    if not tree.testable(model.index):
        return words.say("tree.not_tested")
    left = tree.untested(model.index)
    return words.say("tree.unrelated.in_part", n=left) if left else words.say("tree.unrelated")


def size(model: TreeModel, words: Words) -> str:
    """Return depth and parameters in a few words."""
    key = "tree.size.experts" if model.experts else "tree.size"
    return words.say(key, layers=model.layers, experts=model.experts, parameters=words.parameters(model.parameters))


def kind(edge: TreeEdge, words: Words) -> str:
    """Return what was done, as far as it is known."""
    done = words.label("class", "related") if edge.kind is None else words.kind(edge.kind, edge.variant)
    return words.say("tree.merge", kind=done, share=f"{edge.merge:.0%}") if edge.merge is not None else done


def firmness(edge: TreeEdge, words: Words) -> str:
    """Return the distance, and the share of resamplings in which the two are neighbours."""
    key = "tree.distance.unknown" if edge.distance is None else "tree.distance"
    said = words.say(key, distance=f"{edge.distance or 0.0:.3g}")
    if edge.reordered:
        said = words.say("tree.distance.reordered", distance=said)
    return said if edge.support is None else words.say("tree.support", distance=said, share=f"{edge.support:.0%}")


def heading(tree: FamilyTree, edge: TreeEdge, words: Words) -> str:
    """Return the direction of an edge and its probability."""
    ends, chance = [title(tree.models[end]) for end in (edge.parent, edge.child)], edge.probability
    if edge.direction == FORWARD:
        return f"{ends[0]} → {ends[1]} ({chance:.0%})"
    if edge.direction == BACKWARD:
        return f"{ends[1]} → {ends[0]} ({1 - chance:.0%})"
    if abs(chance - 0.5) < 0.05:
        return words.say("tree.open")
    one, two = ends if chance > 0.5 else ends[::-1]
    return words.say("tree.open.leaning", one=one, two=two, chance=f"{max(chance, 1 - chance):.0%}")


def second_parents(tree: FamilyTree, child: int, edge: TreeEdge | None, words: Words) -> str:
    """Name the parents of a merge besides the one that `edge` leads from; empty if there are none."""
    return "".join(
        words.say("tree.second", name=title(tree.models[item.parent]), share=f"{item.merge or 0.0:.0%}")
        for item in tree.edges
        if item.child == child and item is not edge
    )


def ties(tree: FamilyTree) -> list[Tie]:
    """Count pairs that share weights without descent: one tie for two families or lone models, none inside a family."""
    roots = {model.index: _root(tree, model.index) for model in tree.nodes}
    sizes = Counter(roots.values())
    found: Counter[tuple[int, int, str]] = Counter()
    for link in tree.links:
        one, two = sorted((roots[link.a], roots[link.b]), key=lambda root: (sizes[root], -root))
        if one != two:
            found[one, two, link.shares] += 1
    return [Tie(one, two, shares, count, sizes[one] * sizes[two]) for (one, two, shares), count in found.items()]


def _root(tree: FamilyTree, node: int) -> int:
    while (edge := tree.above(node)) is not None:
        node = edge.parent
    return node


def tie_line(tree: FamilyTree, tie: Tie, words: Words) -> str:
    """Describe a tie in one line."""
    key = f"tree.tie.{tie.shares if tie.shares in _SHARES else 'other'}"
    ends = {"one": title(tree.models[tie.one]), "two": title(tree.models[tie.two])}
    return words.say(key, **ends) if tie.of == 1 else words.say(f"{key}.family", **ends, pairs=tie.pairs, of=tie.of)


def summary(tree: FamilyTree, words: Words) -> str:
    """Describe the tree in one line: copies, families, lone models, directed edges."""

    def counted(key: str, count: int) -> str:
        return words.say(f"{key}.one") if count == 1 else words.say(key, n=count)

    families = {model.family for model in tree.nodes if model.family is not None}
    alone = sum(model.family is None for model in tree.nodes)
    copies = len(tree.models) - len(tree.nodes)
    parts = []
    if copies:
        parts.append(counted("tree.copies", copies))
    if families:
        parts.append(counted("tree.families", len(families)))
        if alone:
            parts.append(counted("tree.alone", alone))
        arrows = sum(edge.direction != UNDIRECTED for edge in tree.edges)
        parts.append(words.say("tree.directed" if arrows else "tree.directed.none", n=arrows, edges=len(tree.edges)))
    elif len(tree.nodes) > 1:
        parts.append(words.say("tree.none"))
    return words.say("tree.summary", n=len(tree.models), parts=", ".join(parts))


def edges_table(tree: FamilyTree, words: Words) -> Table:
    """Return one row for each edge: its p-value, its distance, and the cues for its direction."""

    def ends(edge: TreeEdge) -> Cell:
        arrow = {FORWARD: "→", BACKWARD: "←"}.get(edge.direction, "–")
        return name(f"{title(tree.models[edge.parent])} {arrow} {title(tree.models[edge.child])}")

    return listing(
        words,
        "tree.edges",
        "edge log_p=log10_p_pairs:p distance:number neighbours# next_best=alternative:number direction",
        tree.edges,
        edge=ends,
        neighbours=lambda edge: figure(DASH if edge.support is None else f"{edge.support:.0%}", edge.support),
        direction=lambda edge: Cell("\n".join(printable(text, 400) for text in _hints(tree, edge, words)), LINES),
    )


def _hints(tree: FamilyTree, edge: TreeEdge, words: Words) -> list[str]:
    lines = [heading(tree, edge, words)]
    for cue in edge.cues[:_CUES]:
        strength = f"{cue.strength:+.2f}" if cue.counts else words.say("tree.not_counted")
        about = f"{words.label('cue', cue.name)} ({words.label('source', cue.source)}, {strength})"
        lines.append(f"· {about}: {words.engine(cue.says).text}")
    left = len(edge.cues) - _CUES
    return [*lines, f"· {words.say('and_more_json', n=left)}"] if left > 0 else lines
