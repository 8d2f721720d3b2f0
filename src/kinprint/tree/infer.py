"""From facts about models and pairs to a family tree. Pure: nothing is read here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from kinprint._version import __version__
from kinprint.evidence.verdict import LOG10_ALPHA
from kinprint.results.findings import DERIVED, IDENTICAL, NOT_TESTABLE
from kinprint.results.tree import (
    BACKWARD,
    TREE_SCHEMA,
    TREE_SCHEMA_VERSION,
    UNDIRECTED,
    Cue,
    FamilyTree,
    KinLink,
    PairLine,
    TreeEdge,
    TreeModel,
    TreeRun,
    TreeSettings,
)
from kinprint.text import Text
from kinprint.tree.arborescence import Arc, components, minimum_arborescence, spanning_forest
from kinprint.tree.cues import STRONG, WEIGHTS, declared
from kinprint.tree.distances import Lengths
from kinprint.tree.facts import LINKED, RELATED, ModelFacts, PairFacts
from kinprint.tree.merges import Mix
from kinprint.tree.orientation import (
    DIRECTED_AT,
    Cues,
    add_positions,
    add_single_parents,
    direction,
    median_bend,
    neighbours,
)

AGAINST = 1.0
"""An arc against the arrow that its cues make costs up to so much of its length more. Hints too faint for an arrow cost
nothing: there the most central model becomes the root, which is a way to draw and no claim."""

TIE = 1e-3  # what that adds to an edge of no length
HIDDEN = 0.4
"""Typical bend at a node from which its neighbours are taken to share an ancestor that is not among the models."""


@dataclass(frozen=True)
class Wishes:
    """What the user chose."""

    budget_bytes: int | None = None
    deep: bool = False
    trust_metadata: bool = False
    seed: int = 0


def infer_tree(
    models: Sequence[ModelFacts],
    pairs: Sequence[PairFacts],
    mixes: Sequence[Mix] = (),
    wishes: Wishes | None = None,
    *,
    notes: Sequence[Text] = (),
) -> FamilyTree:
    """Propose a tree.

    Parameters
    ----------
    models, pairs : what is known; a pair of a model that equals an earlier one may be missing.
    mixes : children of two parents.
    wishes : how directions are to be taken, and what is recorded.
    notes : what happened before, for the reader.
    """
    wishes = wishes or Wishes()
    count = len(models) * (len(models) - 1) // 2
    node_of = _groups(len(models), pairs)
    nodes = sorted(set(node_of))
    kept = [pair for pair in pairs if node_of[pair.a] == pair.a and node_of[pair.b] == pair.b]
    sure = [pair for pair in kept if pair.significant(LOG10_ALPHA, count)]
    mixes = _tested(mixes, sure)
    mixed = {key for mix in mixes for key in mix.pairs}
    related = [pair for pair in sure if pair.found == DERIVED or pair.key in mixed]
    lengths = Lengths(related)
    families = components(nodes, [pair.key for pair in related])
    cues = _all_cues(models, related, wishes)
    _add_mixes(cues, mixes, models)
    plain = spanning_forest({key: length.cost for key, length in lengths.lengths.items()})
    add_positions(cues, plain, lengths, lambda node: models[node].name)
    arcs = [arc for family in families if len(family) > 1 for arc in _grow(family, lengths, cues, mixes)]
    merged = frozenset(mix.child for mix in mixes)
    add_single_parents(cues, arcs, lambda node: models[node].name, merged)
    support = lengths.support(seed=wishes.seed)
    facts = {pair.key: pair for pair in related}
    edges = [_edge(arc, facts, lengths, cues, support, mixes, count) for arc in [*arcs, *_second_parents(arcs, mixes)]]
    number = {node: index for index, family in enumerate([f for f in families if len(f) > 1]) for node in family}
    return FamilyTree(
        schema=TREE_SCHEMA,
        schema_version=TREE_SCHEMA_VERSION,
        models=tuple(_model(index, model, node_of[index], number) for index, model in enumerate(models)),
        edges=tuple(sorted(edges, key=lambda edge: (edge.parent, edge.child))),
        links=tuple(_links(sure)),
        pairs=tuple(_line(pair, lengths) for pair in pairs),
        notes=(*notes, *_remarks(models, kept, edges, arcs, lengths)),
        settings=TreeSettings(
            wishes.budget_bytes, wishes.deep, wishes.trust_metadata, wishes.seed, LOG10_ALPHA, DIRECTED_AT, count
        ),
        run=TreeRun(__version__, 0.0, 0),
    )


def with_run(tree: FamilyTree, elapsed_s: float, bytes_read: int) -> FamilyTree:
    """Return the tree with what the run took."""
    return replace(tree, run=replace(tree.run, elapsed_s=round(elapsed_s, 3), bytes_read=bytes_read))


def _groups(count: int, pairs: Sequence[PairFacts]) -> list[int]:
    """Return for each model the first one that is the same, weight for weight."""
    same = [pair.key for pair in pairs if pair.found == IDENTICAL]
    first = {node: part[0] for part in components(range(count), same) for node in part}
    return [first[node] for node in range(count)]


def _tested(mixes: Sequence[Mix], sure: Sequence[PairFacts]) -> list[Mix]:
    """Return the merges of whose child and parents tests say that they share weights: no edge without that."""
    known = {pair.key for pair in sure if pair.found in (*RELATED, *LINKED)}
    return [mix for mix in mixes if set(mix.pairs) <= known]


def _all_cues(models: Sequence[ModelFacts], related: Sequence[PairFacts], wishes: Wishes) -> Cues:
    cues = Cues({(pair.a, pair.b): pair.cues for pair in related})
    for pair in related:
        for parent, child in ((pair.a, pair.b), (pair.b, pair.a)):
            for cue in declared(models, child, parent, trusted=wishes.trust_metadata):
                cues.add(parent, child, cue)
    return cues


def _add_mixes(cues: Cues, mixes: Sequence[Mix], models: Sequence[ModelFacts]) -> None:
    for mix in mixes:
        text = Text(
            "{child} = {x:.2f} × {a} + {y:.2f} × {b} explains {r:.1%} of it",
            child=models[mix.child].name,
            x=mix.shares[0],
            a=models[mix.parents[0]].name,
            y=mix.shares[1],
            b=models[mix.parents[1]].name,
            r=mix.r_squared,
        )
        for parent in mix.parents:
            cues.add(parent, mix.child, Cue("merge", WEIGHTS, STRONG, text))


def _grow(family: Sequence[int], lengths: Lengths, cues: Cues, mixes: Sequence[Mix]) -> list[Arc]:
    """Return the arcs of the least arborescence of one family, hung on a virtual root.

    The virtual root's arcs cost more than all others together, so that a family has one root unless it cannot be reached
    from one; and a little more the less central a model is, which decides where no cue does.
    """
    major = {mix.child: max(zip(mix.shares, mix.parents, strict=True))[1] for mix in mixes}
    minor = {(mix.child, parent) for mix in mixes for parent in mix.parents}
    costs: dict[Arc, float] = {}
    far = {node: _remoteness(node, family, lengths) for node in family}
    for source in family:
        for target in family:
            length = lengths.get(source, target)
            if source == target or length is None or (source, target) in minor:
                continue
            if target in major and source != major[target]:
                continue
            chance = cues.chance(source, target)
            wrong = 1.0 - chance if direction(chance) == BACKWARD else 0.0
            # of equal ways in, the one from the more central model
            costs[source, target] = length.cost * (1.0 + AGAINST * wrong) + TIE * wrong + TIE * TIE * far[source]
    root, heavy = -1, math.fsum(costs.values()) + 1.0
    for node in family:
        costs[root, node] = heavy + TIE * TIE * far[node]
    return [(parent, child) for child, parent in minimum_arborescence(costs, root).items() if parent != root]


def _remoteness(node: int, family: Sequence[int], lengths: Lengths) -> float:
    reach = [length.cost for other in family if (length := lengths.get(node, other)) is not None]
    return fmean(reach) if reach else 0.0


def _second_parents(arcs: Sequence[Arc], mixes: Sequence[Mix]) -> list[Arc]:
    """Return the arcs from the lesser parents of merges, which a tree has no room for."""
    return [(parent, mix.child) for mix in mixes for parent in mix.parents if (parent, mix.child) not in arcs]


def _edge(
    arc: Arc,
    facts: dict[Arc, PairFacts],
    lengths: Lengths,
    cues: Cues,
    support: dict[Arc, float] | None,
    mixes: Sequence[Mix],
    pairs: int,
) -> TreeEdge:
    parent, child = arc
    key = (min(arc), max(arc))
    pair, length = facts[key], lengths[key]
    chance = cues.chance(parent, child)
    shares = {(p, mix.child): share for mix in mixes for p, share in zip(mix.parents, mix.shares, strict=True)}
    drawn = support is not None and not length.reordered and arc not in shares  # what the resampling speaks of
    corrected = None if pair.log10_p is None else min(0.0, pair.log10_p + math.log10(pairs))
    return TreeEdge(
        parent=parent,
        child=child,
        kind="merged" if arc in shares else pair.kind,
        variant=None if arc in shares else pair.variant,
        sentence=pair.sentence,
        log10_p=pair.log10_p,
        log10_p_pairs=corrected,
        distance=length.value,
        roles=length.roles,
        reordered=length.reordered,
        support=support[key] if support is not None and drawn else None,
        alternative=_alternative(key, lengths) if arc not in shares else None,
        direction=direction(chance),
        probability=round(chance, 6),
        cues=tuple(sorted(cues.of(parent, child), key=lambda cue: -abs(cue.strength))),
        merge=shares.get(arc),
    )


def _alternative(edge: Arc, lengths: Lengths) -> float | None:
    """Return the least length that would join the two ends in another way: by the best path that avoids this edge.

    A spanning forest without the edge joins the two ends by its longest step at best.
    """
    others = {key: length.cost for key, length in lengths.lengths.items() if key != edge}
    near = neighbours(spanning_forest(others))
    ways = [(edge[0], 0.0)]
    seen = {edge[0]}
    while ways:
        node, longest = ways.pop()
        if node == edge[1]:
            return longest
        for other in near.get(node, ()):
            if other not in seen:
                seen.add(other)
                step = others[(min(node, other), max(node, other))]
                ways.append((other, max(longest, step)))
    return None


def _model(index: int, model: ModelFacts, node: int, number: dict[int, int]) -> TreeModel:
    return TreeModel(
        index=index,
        name=model.name,
        reference=model.reference or model.name,
        location=model.location,
        commit=model.commit,
        architecture=model.architecture,
        layers=model.layers,
        experts=model.experts,
        parameters=model.parameters,
        node=node,
        family=number.get(node),
        kurtosis=fmean(model.kurtosis.values()) if model.kurtosis else None,
        declares=tuple(f"{where}: {what}" for where, what in model.declares),
        kind=model.kind,
        files=model.files,
    )


def _links(sure: Sequence[PairFacts]) -> list[KinLink]:
    found = [pair for pair in sure if pair.found in LINKED]
    return [KinLink(*pair.key, pair.found, pair.log10_p, pair.sentence) for pair in sorted(found, key=lambda p: p.key)]


def _line(pair: PairFacts, lengths: Lengths) -> PairLine:
    length = lengths.get(pair.a, pair.b)
    value = 0.0 if pair.found == IDENTICAL else None if length is None else length.value
    return PairLine(pair.a, pair.b, pair.found, pair.kind, pair.log10_p, value)


def _remarks(
    models: Sequence[ModelFacts],
    pairs: Sequence[PairFacts],
    edges: Sequence[TreeEdge],
    arcs: Sequence[Arc],
    lengths: Lengths,
) -> list[Text]:
    """Say what the tree cannot show."""
    found = []
    silent = sum(pair.found == NOT_TESTABLE for pair in pairs)
    if silent:
        found.append(Text("{n} pairs could not be tested: whether they are related is not known", n=silent))
    weak = [p for p in pairs if p.found in (*RELATED, *LINKED) and not p.significant(LOG10_ALPHA, _all(models))]
    if weak:
        found.append(
            Text(
                "{n} pairs are related by themselves, but not after the correction for all pairs: no edge", n=len(weak)
            )
        )
    for node, near in sorted(neighbours(arcs).items()):
        off = median_bend(lengths, node, near)
        names = tuple(models[other].name for other in near)
        if off is not None and off > HIDDEN:
            found.append(
                Text(
                    "{name} does not lie between its neighbours ({names:commas}): they share what it has not, as from "
                    "a common ancestor that is not among these models",
                    name=models[node].name,
                    names=names,
                )
            )
        elif len(near) == 2 and not any(node in (e.parent, e.child) for e in edges if e.direction != UNDIRECTED):
            found.append(
                Text(
                    "{a} – {name} – {b}: a chain from either end, two children of the one in the middle, and children of "
                    "one parent that were trained alike look the same",
                    a=names[0],
                    name=models[node].name,
                    b=names[1],
                )
            )
    against = [edge for edge in edges if edge.direction == BACKWARD]
    if against:
        arrows = tuple(f"{models[edge.child].name} → {models[edge.parent].name}" for edge in against)
        found.append(
            Text(
                "cues for more than one parent: {names:commas}; a merge with a model that is not here would look so",
                names=arrows,
            )
        )
    return found


def _all(models: Sequence[ModelFacts]) -> int:
    return len(models) * (len(models) - 1) // 2
