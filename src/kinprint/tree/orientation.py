"""Orient the edges of a tree by cues: log-odds add up, a node has one parent, and doubt leaves an edge undirected."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from statistics import median

from kinprint.results.tree import BACKWARD, FORWARD, UNDIRECTED, Cue
from kinprint.text import Text
from kinprint.tree.arborescence import Arc, neighbours
from kinprint.tree.cues import LEANING, POSITION, STRONG, reversed_cue
from kinprint.tree.distances import Lengths, bend

DIRECTED_AT = 0.8  # probability from which an edge gets an arrow
FAINTER = 1.3
"""Log-odds (79 %) beyond which cues add up only if one of them is strong: an unseen common ancestor leaves all the others too."""

SUREST = 0.97  # no sum of cues is stated as surer than this: they are not independent, and none is proof
HUB = 0.55
"""Log-odds of a place at the rim of a star: at most one of a hub's neighbours is its parent. Kept small on purpose: the one
that is may be the very edge at hand (a base whose only child has many children of its own)."""

LEAST_NEIGHBOURS = 3
STRAIGHT = 0.3  # bend up to which a hub counts as lying between its neighbours


def log_odds(cues: Sequence[Cue]) -> float:
    """Return the summed strength of the cues that count."""
    return math.fsum(cue.strength for cue in cues if cue.counts)


def probability(odds: float) -> float:
    """Return the probability of "as written", never surer than `SUREST` either way."""
    found = 1.0 / (1.0 + math.exp(-max(-50.0, min(50.0, odds))))
    return min(SUREST, max(1.0 - SUREST, found))


def direction(chance: float) -> str:
    """Return "forward", "backward", or "undirected" where neither is likely enough."""
    if chance >= DIRECTED_AT:
        return FORWARD
    return BACKWARD if chance <= 1.0 - DIRECTED_AT else UNDIRECTED


class Cues:
    """All cues on all related pairs, given by (from, to), each pair once; readable from either end."""

    def __init__(self, found: Mapping[Arc, Sequence[Cue]]) -> None:
        self._found = {pair: list(cues) for pair, cues in found.items()}

    def add(self, source: int, target: int, cue: Cue) -> None:
        """Add a cue, written from `source` to `target`."""
        if (target, source) in self._found:
            self._found[target, source].append(reversed_cue(cue))
        else:
            self._found.setdefault((source, target), []).append(cue)

    def of(self, source: int, target: int) -> tuple[Cue, ...]:
        """Return the cues on a pair, written as if `source` were the parent."""
        if (source, target) in self._found:
            return tuple(self._found[source, target])
        return tuple(reversed_cue(cue) for cue in self._found.get((target, source), ()))

    def chance(self, source: int, target: int) -> float:
        """Return the probability that `source` is the parent, given that one of the two is."""
        cues = self.of(source, target)
        strong = any(cue.counts and abs(cue.strength) >= STRONG for cue in cues)
        return probability(log_odds(cues)) if strong else probability(max(-FAINTER, min(FAINTER, log_odds(cues))))


def median_bend(lengths: Lengths, hub: int, around: Sequence[int]) -> float | None:
    """Return how far a model typically lies off the paths between its neighbours; None if nothing tells."""
    found = [value for pair in combinations(around, 2) if (value := bend(lengths, hub, *pair)) is not None]
    return median(found) if found else None


def add_positions(cues: Cues, edges: Sequence[Arc], lengths: Lengths, name: Callable[[int], str]) -> None:
    """Add the cue that a hub which lies between its neighbours is the parent of all of them but one."""
    around = neighbours(edges)
    for hub, near in sorted(around.items()):
        off = median_bend(lengths, hub, near)
        if len(near) < LEAST_NEIGHBOURS or off is None or abs(off) > STRAIGHT:
            continue
        own, n = name(hub), len(near)
        text = Text("{name} lies between its {n} neighbours: at most one of them is its parent", name=own, n=n)
        for other in near:
            if len(around[other]) == 1:
                cues.add(hub, other, Cue(POSITION, POSITION, HUB, text))


def add_single_parents(
    cues: Cues, edges: Sequence[Arc], name: Callable[[int], str], merged: frozenset[int] = frozenset()
) -> None:
    """Lean the other edges of a node away from it where one surely runs into it: a model has one parent, unless merged."""
    # No more than that: a neighbour which is not the parent may be another child of the same one.
    around = neighbours(edges)
    sure = [(p, node) for node in sorted(around) for p in around[node] if direction(cues.chance(p, node)) == FORWARD]
    for parent, node in sure:
        text = Text("{a} is taken to be the parent of {b}, which has one only", a=name(parent), b=name(node))
        for other in around[node]:
            if node not in merged and other != parent and direction(cues.chance(node, other)) == UNDIRECTED:
                cues.add(node, other, Cue(POSITION, POSITION, LEANING, text))
