"""What the drawings of a family tree say in words, in the terminal and in SVG alike."""

from __future__ import annotations

from dataclasses import dataclass

from kinprint.family import BACKWARD, FORWARD, UNDIRECTED, FamilyTree, TreeEdge, TreeModel
from kinprint.plain import printable

NAME_LENGTH = 60
SHARED = {
    "shares_components": "shares parts with",
    "shares_initialisation": "shares its random start, or weights too little to tell, with",
}
ALONE = "unrelated to the others, as far as weights tell"
NOT_TESTED = "could not be tested against any of the others"


@dataclass(frozen=True)
class Tie:
    """A model, or family, that shares something with another without descent: one line for all such pairs of the two."""

    one: int  # node to draw at
    two: int
    shares: str
    pairs: int
    of: int


def title(model: TreeModel) -> str:
    """Return a model's name, safe to show; a long one is cut in the middle, since names of models differ at their ends."""
    name = printable(model.name, 10 * NAME_LENGTH)
    half = NAME_LENGTH // 2
    return name if len(name) <= NAME_LENGTH else f"{name[:half]}…{name[1 - half :]}"


def label(tree: FamilyTree, model: TreeModel) -> str:
    """Return a node's name with those of the models that equal it."""
    return " = ".join(title(item) for item in (model, *tree.equal_to(model.index)))


def standing_alone(tree: FamilyTree, model: TreeModel) -> str:
    """Say of a model that hangs on no other what that means."""
    if not tree.testable(model.index):
        return NOT_TESTED
    left = tree.untested(model.index)
    return f"{ALONE}; {left} of its pairs could not be tested" if left else ALONE


def size(model: TreeModel) -> str:
    """Return depth and parameters in a few words."""
    experts = f", {model.experts} experts" if model.experts else ""
    return f"{model.layers} layers{experts}, {_count(model.parameters)} parameters"


def _count(number: int) -> str:
    for limit, unit in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if number >= limit:
            return f"{number / limit:.3g} {unit}"
    return str(number)


def kind(edge: TreeEdge) -> str:
    """Return what was done, as far as it is known."""
    name = (edge.kind or "related").replace("_", " ")
    return f"{name}, {edge.merge:.0%} of it" if edge.merge is not None else name


def firmness(edge: TreeEdge) -> str:
    """Return the distance and how firm the neighbourhood is."""
    distance = "distance unknown" if edge.distance is None else f"distance {edge.distance:.3g}"
    if edge.reordered:
        distance += " (embeddings and norms only)"
    if edge.support is None:
        return distance
    return f"{distance}, neighbours in {edge.support:.0%}"


def heading(tree: FamilyTree, edge: TreeEdge) -> str:
    """Return which way an edge runs and how sure that is."""
    names = {model.index: title(model) for model in tree.models}
    ends, chance = (names[edge.parent], names[edge.child]), edge.probability
    if edge.direction == FORWARD:
        return f"{ends[0]} → {ends[1]} ({chance:.0%})"
    if edge.direction == BACKWARD:
        return f"{ends[1]} → {ends[0]} ({1 - chance:.0%})"
    if abs(chance - 0.5) < 0.05:
        return "direction open"
    one, two = ends if chance > 0.5 else ends[::-1]
    return f"direction open, leaning {one} → {two} ({max(chance, 1 - chance):.0%})"


def ties(tree: FamilyTree) -> list[Tie]:
    """Sum up what is shared without descent: one tie for two families or lone models, none inside a family."""
    roots = {model.index: _root(tree, model.index) for model in tree.nodes}
    sizes: dict[int, int] = {}
    for root in roots.values():
        sizes[root] = sizes.get(root, 0) + 1
    found: dict[tuple[int, int, str], int] = {}
    for link in tree.links:
        one, two = sorted((roots[link.a], roots[link.b]), key=lambda root: (sizes[root], -root))
        if one != two:
            found[one, two, link.shares] = found.get((one, two, link.shares), 0) + 1
    return [Tie(one, two, shares, count, sizes[one] * sizes[two]) for (one, two, shares), count in found.items()]


def _root(tree: FamilyTree, node: int) -> int:
    while (edge := tree.above(node)) is not None:
        node = edge.parent
    return node


def tie_line(tree: FamilyTree, tie: Tie) -> str:
    """Say a tie in a line."""
    names = {model.index: title(model) for model in tree.models}
    text = f"{names[tie.one]} {SHARED.get(tie.shares, 'shares with')} {names[tie.two]}"
    return text if tie.of == 1 else f"{text} and its family ({tie.pairs} of {tie.of} pairs)"


def summary(tree: FamilyTree) -> str:
    """Say in one line what came out."""
    families = {model.family for model in tree.nodes if model.family is not None}
    alone = sum(model.family is None for model in tree.nodes)
    copies = len(tree.models) - len(tree.nodes)
    parts = []
    if copies:
        parts.append("one equals another" if copies == 1 else f"{copies} equal others")
    if families:
        parts.append("one family" if len(families) == 1 else f"{len(families)} families")
        if alone:
            parts.append("one on its own" if alone == 1 else f"{alone} on their own")
        arrows = sum(edge.direction != UNDIRECTED for edge in tree.edges)
        parts.append(f"{arrows} of {len(tree.edges)} edges have a direction")
    elif len(tree.nodes) > 1:
        parts.append("no two derive from one another, as far as weights tell")
    return f"{len(tree.models)} models: {', '.join(parts)}"
