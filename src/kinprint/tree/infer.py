"""Infer a family tree from facts about models and pairs, without reading anything."""

import math
from collections.abc import Mapping, Sequence
from itertools import permutations
from statistics import fmean

from kinprint._version import __version__
from kinprint.evidence.facts import shared_fields
from kinprint.evidence.rules import LOG10_ALPHA
from kinprint.results import tree as results
from kinprint.results.findings import DERIVED, IDENTICAL, NOT_TESTABLE
from kinprint.results.options import Options
from kinprint.results.result import SCHEMA_VERSION
from kinprint.results.tree import BACKWARD, UNDIRECTED, Cue, FamilyTree, PairLine, TreeEdge, TreeModel
from kinprint.text import Text
from kinprint.tree.arborescence import Arc, components, minimum_arborescence, neighbours, pair_key, spanning_forest
from kinprint.tree.cues import STRONG, WEIGHTS, declared, weakened
from kinprint.tree.distances import Lengths
from kinprint.tree.facts import LINKED, SHARING, ModelFacts, PairFacts, over_pairs
from kinprint.tree.merges import Mix
from kinprint.tree.orientation import DIRECTED_AT, Cues, add_positions, add_single_parents, direction, median_bend

NO_LIMIT = Options(budget_bytes=None)

AGAINST = 1.0
"""An arc against the arrow that its cues make costs up to so much of its length more. Hints too faint for an arrow cost
nothing: there the most central model becomes the root, which is a way to draw and no claim."""

TIE = 1e-3  # likewise added to an arc of no length
SURE_MERGE = 1.0 - 1e-5
"""Share of the child that its parents explain from which they, and no relatives of theirs, are its parents: rounding to
BF16 leaves 3e-6, a light fine-tune in place of a parent (MiniLM's, r = 0.9999) 2e-4 of its share."""
HIDDEN = 0.4
"""Typical bend at a node from which its neighbours are taken to share an ancestor that is not among the models."""


def infer_tree(
    models: Sequence[ModelFacts],
    pairs: Sequence[PairFacts],
    mixes: Sequence[Mix] = (),
    options: Options = NO_LIMIT,
    *,
    trust_metadata: bool = False,
    notes: Sequence[Text] = (),
) -> FamilyTree:
    """Propose a tree.

    A pair of a model that equals an earlier one may be missing. `mixes` are children of two parents; the seed of `options` draws
    the resamplings; `trust_metadata` lets declared parents turn edges; `notes` are remarks on what happened before.
    """
    count = math.comb(len(models), 2)
    same = components(range(len(models)), [pair.key for pair in pairs if pair.found == IDENTICAL])
    node_of = {index: part[0] for part in same for index in part}  # the first that is equal, weight for weight
    kept = [pair for pair in pairs if node_of[pair.a] == pair.a and node_of[pair.b] == pair.b]
    sure = [pair for pair in kept if pair.significant(count)]
    tested = {pair.key for pair in sure if pair.found in SHARING}
    mixes = [mix for mix in mixes if set(mix.pairs) <= tested]  # no edge without tests that show shared weights
    mixed = {key for mix in mixes for key in mix.pairs}
    related = [pair for pair in sure if pair.found == DERIVED or pair.key in mixed]
    lengths = Lengths(related)
    parts = components(sorted(set(node_of.values())), [pair.key for pair in related])
    families = [family for family in parts if len(family) > 1]
    cues = _all_cues(models, related, mixes, trust_metadata=trust_metadata)
    plain = spanning_forest({key: length.cost for key, length in lengths.lengths.items()})
    add_positions(cues, plain, lengths, lambda node: models[node].name)
    arcs = [arc for family in families for arc in _grow(family, lengths, cues, mixes)]
    add_single_parents(cues, arcs, lambda node: models[node].name, frozenset(mix.child for mix in mixes))
    support = lengths.support(seed=options.seed) or {}
    shares = {(p, mix.child): share for mix in mixes for p, share in zip(mix.parents, mix.shares, strict=True)}
    second_parents = [arc for arc in shares if arc not in arcs]  # of merges, which a tree has no room for
    edges = [_edge(arc, lengths, cues, support, shares.get(arc), count) for arc in [*arcs, *second_parents]]
    number = {node: index for index, family in enumerate(families) for node in family}
    linked = sorted((pair for pair in sure if pair.found in LINKED), key=lambda pair: pair.key)
    chosen = options.budget_bytes, options.deep, trust_metadata, options.seed
    return FamilyTree(
        schema=FamilyTree.SCHEMA,
        schema_version=SCHEMA_VERSION,
        models=tuple(_model(index, model, node_of[index], number) for index, model in enumerate(models)),
        edges=tuple(sorted(edges, key=lambda edge: (edge.parent, edge.child))),
        links=tuple(results.KinLink(*pair.key, pair.found, pair.log10_p, pair.sentence) for pair in linked),
        pairs=tuple(_line(pair, lengths) for pair in pairs),
        notes=(*notes, *_remarks(models, kept, edges, arcs, lengths, count)),
        settings=results.TreeSettings(*chosen, LOG10_ALPHA, DIRECTED_AT, count),
        run=results.TreeRun(__version__, 0.0, 0),
    )


def _all_cues(
    models: Sequence[ModelFacts], related: Sequence[PairFacts], mixes: Sequence[Mix], *, trust_metadata: bool
) -> Cues:
    """Gather the cues of comparisons, of declared parents and of merges."""
    cues = Cues({(pair.a, pair.b): pair.cues for pair in related})
    for pair in related:
        for parent, child in ((pair.a, pair.b), (pair.b, pair.a)):
            for cue in declared(models, child, parent, trusted=trust_metadata):
                cues.add(parent, child, cue)
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
        cue = Cue("merge", WEIGHTS, STRONG, text)
        for parent in mix.parents:  # relatives of the true parents explain less
            cues.add(parent, mix.child, cue if mix.r_squared >= SURE_MERGE else weakened(cue))
    return cues


def _grow(family: Sequence[int], lengths: Lengths, cues: Cues, mixes: Sequence[Mix]) -> list[Arc]:
    """Return the arcs of the least arborescence of one family, with a virtual root."""
    # The virtual root's arcs cost more than all others together, so that a family has one root unless it cannot be reached
    # from one; and a little more the less central a model is, which decides where no cue does.
    major = {mix.child: max(zip(mix.shares, mix.parents, strict=True))[1] for mix in mixes}
    minor = {(mix.child, parent) for mix in mixes for parent in mix.parents}
    costs: dict[Arc, float] = {}
    reach = {node: [each.cost for other in family if (each := lengths.get(node, other)) is not None] for node in family}
    far = {node: fmean(costs) if costs else 0.0 for node, costs in reach.items()}
    for source, target in permutations(family, 2):
        length = lengths.get(source, target)
        if length is None or (source, target) in minor or major.get(target, source) != source:
            continue
        chance = cues.chance(source, target)
        wrong = 1.0 - chance if direction(chance) == BACKWARD else 0.0
        # of equal ways in, the one from the more central model
        costs[source, target] = length.cost * (1.0 + AGAINST * wrong) + TIE * wrong + TIE * TIE * far[source]
    root, heavy = -1, math.fsum(costs.values()) + 1.0
    for node in family:
        costs[root, node] = heavy + TIE * TIE * far[node]
    return [(parent, child) for child, parent in minimum_arborescence(costs, root).items() if parent != root]


def _edge(
    arc: Arc, lengths: Lengths, cues: Cues, support: Mapping[Arc, float], share: float | None, pairs: int
) -> TreeEdge:
    """Put together an edge; `share` is that of the parent in a merge, which neither resampling nor alternatives speak of."""
    parent, child = arc
    key, merged = pair_key(*arc), share is not None
    pair, length = lengths.pairs[key], lengths.lengths[key]
    chance = cues.chance(parent, child)
    return TreeEdge(
        parent=parent,
        child=child,
        kind="merged" if merged else pair.kind,
        variant=None if merged else pair.variant,
        sentence=pair.sentence,
        log10_p=pair.log10_p,
        log10_p_pairs=over_pairs(pair.log10_p, pairs),
        distance=length.value,
        roles=length.roles,
        reordered=length.reordered,
        support=None if merged or length.reordered else support.get(key),
        alternative=None if merged else _alternative(key, lengths),
        direction=direction(chance),
        probability=round(chance, 6),
        cues=tuple(sorted(cues.of(parent, child), key=lambda cue: -abs(cue.strength))),
        merge=share,
    )


def _alternative(edge: Arc, lengths: Lengths) -> float | None:
    """Return the longest step of the best path between the two ends that avoids this edge; None if there is none."""
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
                ways.append((other, max(longest, others[pair_key(node, other)])))
    return None


def _model(index: int, model: ModelFacts, node: int, number: Mapping[int, int]) -> TreeModel:
    own = {
        "index": index,
        "reference": model.reference or model.name,
        "node": node,
        "family": number.get(node),
        "kurtosis": fmean(model.kurtosis.values()) if model.kurtosis else None,
        "declares": tuple(f"{where}: {what}" for where, what in model.declares),
    }
    return TreeModel(**shared_fields(model, TreeModel) | own)


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
    count: int,
) -> list[Text]:
    """Say what the tree cannot show."""
    found = []
    if silent := sum(pair.found == NOT_TESTABLE for pair in pairs):
        found.append(
            Text("pairs that could not be tested, so that it is not known whether they are related: {n}", n=silent)
        )
    if n := sum(pair.found in SHARING and not pair.significant(count) for pair in pairs):
        said = Text(
            "pairs related by themselves, but not after the correction for all pairs, so without an edge: {n}", n=n
        )
        found.append(said)
    for node, near in sorted(neighbours(arcs).items()):
        off = median_bend(lengths, node, near)
        names = tuple(models[other].name for other in near)
        if off is not None and off > HIDDEN:
            said = Text(
                "{name} does not lie between its neighbours ({names:commas}): they share what it has not, as from "
                "a common ancestor that is not among these models",
                name=models[node].name,
                names=names,
            )
            found.append(said)
        elif len(near) == 2 and not any(node in (e.parent, e.child) for e in edges if e.direction != UNDIRECTED):
            said = Text(
                "{a} – {name} – {b}: a chain from either end, two children of the one in the middle, and children of "
                "one parent that were trained alike look the same",
                a=names[0],
                name=models[node].name,
                b=names[1],
            )
            found.append(said)
    against = [edge for edge in edges if edge.direction == BACKWARD]
    if arrows := tuple(f"{models[edge.child].name} → {models[edge.parent].name}" for edge in against):
        said = Text(
            "cues for more than one parent: {names:commas}; a merge with a model that is not here would look so",
            names=arrows,
        )
        found.append(said)
    return found
