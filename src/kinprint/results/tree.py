"""Define a proposed family tree of models, edge by edge with its evidence, and the report on all pairs.

A tree is a hypothesis. That two models are related rests on exact tests; which of two related models came first never does.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from kinprint._util.plain import printable
from kinprint.results.context import DeclaredFinding
from kinprint.results.findings import BACKWARD as BACKWARD
from kinprint.results.findings import FORWARD as FORWARD
from kinprint.results.findings import NO_EVIDENCE, NOT_TESTABLE, ComponentFinding
from kinprint.results.later import LATER
from kinprint.results.models import FileSummary
from kinprint.results.options import Options
from kinprint.results.result import Result
from kinprint.text import Text

UNDIRECTED = "undirected"

COUNTED, SHOWN_ONLY, TRUSTED = "hypothesis", "metadata, not counted", "metadata, counted because it was asked for"


@dataclass(frozen=True)
class Cue:
    """One hint at which end of an edge came first.

    Attributes
    ----------
    name, source : What it is, and where it comes from: "weights", "structure", "tokenizer", "position" or "metadata".
    strength : Log-odds (nats) that the edge runs as written, from ``parent`` to ``child``; negative speaks for the reverse.
        A prior that someone chose, no measured probability.
    says : The observation, in words.
    status : "hypothesis" for all that counts; metadata say themselves whether they were counted.
    """

    name: str
    source: str
    strength: float
    says: Text
    status: str = COUNTED

    @property
    def counts(self) -> bool:
        """Whether the cue enters the direction."""
        return self.status != SHOWN_ONLY


@dataclass(frozen=True)
class TreeModel:
    """One model that was named. ``node`` is the model that stands for it: the first of several equal ones."""

    index: int
    name: str
    reference: str
    location: str
    commit: str | None
    architecture: str
    layers: int
    experts: int
    parameters: int
    node: int
    family: int | None  # number of its family, None if it stands alone
    kurtosis: float | None
    declares: tuple[str, ...]  # parents that its config or card names, for what that is worth
    kind: str = field(default="", metadata=LATER)  # where it is: "hub", "folder", …; empty in reports that do not tell
    files: tuple[FileSummary, ...] = field(default=(), metadata=LATER)


@dataclass(frozen=True)
class TreeEdge:
    """Two related models, next to each other in the tree.

    Attributes
    ----------
    parent, child : Ends, as drawn: away from the root. Only ``direction`` says whether that is more than a way to draw it.
    kind, sentence, log10_p, log10_p_pairs : The pair's verdict; its p-value after Holm's correction in the pair, and after
        Bonferroni's over all pairs.
    distance, roles, reordered : −ln of the correlation of weights in the same place, from so many roles; after a
        reordering, of embeddings and norms.
    support : Share of resamplings of the roles in which the two are neighbours; None with fewer than three roles, after a
        reordering, and for the parents of a merge.
    alternative : Least distance of any other pair that could join the two sides; None if there is none.
    direction, probability : "forward" (parent to child), "backward" or "undirected", and the probability of "parent to
        child" that the cues add up to: a stated prior, not a measured frequency.
    merge : Share of the parent in the child, where the child is a weighted sum of two parents.
    """

    parent: int
    child: int
    kind: str | None
    sentence: Text
    log10_p: float | None
    log10_p_pairs: float | None
    distance: float | None
    roles: int
    reordered: bool
    support: float | None
    alternative: float | None
    direction: str
    probability: float
    cues: tuple[Cue, ...]
    merge: float | None = None
    variant: str | None = field(default=None, metadata=LATER)


@dataclass(frozen=True)
class KinLink:
    """Two models that share something without one being made of the other: parts, or only their random start."""

    a: int
    b: int
    shares: str  # class of verdict
    log10_p: float | None
    sentence: Text


@dataclass(frozen=True)
class PairLine:
    """One compared pair, related or not."""

    a: int
    b: int
    found: str  # class of verdict
    kind: str | None
    log10_p: float | None
    distance: float | None


@dataclass(frozen=True)
class TreeSettings:
    """Choices of the user; with the models, they determine the tree."""

    budget_bytes: int | None  # for each pair
    deep: bool
    trust_metadata: bool
    seed: int
    log10_alpha: float
    directed_at: float
    pairs: int


@dataclass(frozen=True)
class TreeRun:
    """Version, time and bytes of a run: the only fields that may differ between two runs."""

    kinprint: str
    elapsed_s: float
    bytes_read: int


@dataclass(frozen=True)
class FamilyTree(Result):
    """The proposed tree, or forest: edges, links that are no descent, models that stand alone, and all pairs."""

    SCHEMA: ClassVar = "kinprint.tree"
    CALLED: ClassVar = "a tree"

    schema: str
    schema_version: int
    models: tuple[TreeModel, ...]
    edges: tuple[TreeEdge, ...]
    links: tuple[KinLink, ...]
    pairs: tuple[PairLine, ...]
    notes: tuple[Text, ...]
    settings: TreeSettings
    run: TreeRun

    def __post_init__(self) -> None:
        rooted: set[int] = set()  # whatever hangs on these comes to an end
        for node in self._above:
            way: set[int] = set()
            while node in self._above and node not in rooted:
                if node in way:
                    raise ValueError(f"the edges of the tree lead from model {node} back to it")
                way.add(node)
                node = self._above[node].parent
            rooted |= way

    @property
    def nodes(self) -> tuple[TreeModel, ...]:
        """The models that stand in the tree: one for each group of equal ones."""
        return tuple(model for model in self.models if model.node == model.index)

    def equal_to(self, node: int) -> tuple[TreeModel, ...]:
        """Return the further models that are the same as this one, weight for weight."""
        return tuple(model for model in self.models if model.node == node and model.index != node)

    def children(self, node: int) -> tuple[TreeEdge, ...]:
        """Return the edges that are drawn below a node, nearest first; the lesser parent of a merge is not among them."""
        return self._below.get(node, ())

    def above(self, node: int) -> TreeEdge | None:
        """Return the edge that a node hangs on: of two parents of a merge, the one with the larger share."""
        return self._above.get(node)

    @cached_property
    def _above(self) -> dict[int, TreeEdge]:
        found: dict[int, TreeEdge] = {}
        for edge in self.edges:
            if edge.child not in found or (edge.merge or 0.0) > (found[edge.child].merge or 0.0):
                found[edge.child] = edge
        return found

    @cached_property
    def _below(self) -> dict[int, tuple[TreeEdge, ...]]:
        found: dict[int, list[TreeEdge]] = {}
        for edge in sorted(
            self._above.values(), key=lambda edge: (edge.distance is None, edge.distance or 0.0, edge.child)
        ):
            found.setdefault(edge.parent, []).append(edge)
        return {node: tuple(edges) for node, edges in found.items()}

    def roots(self) -> tuple[TreeModel, ...]:
        """Return the nodes that hang on no other, members of families first."""
        found = [model for model in self.nodes if self.above(model.index) is None]
        return tuple(sorted(found, key=lambda model: (model.family is None, model.family or 0, model.index)))

    def __repr__(self) -> str:
        return f"<FamilyTree: {_few_names(self.models)}: {len(self.edges)} edges, {len(self.links)} other links>"

    def untested(self, node: int) -> int:
        """Return in how many of a node's comparisons nothing could be tested."""
        return sum(node in (pair.a, pair.b) and pair.found == NOT_TESTABLE for pair in self.pairs)

    def testable(self, node: int) -> bool:
        """Whether at least one comparison of a node could be tested."""
        return any(node in (pair.a, pair.b) and pair.found != NOT_TESTABLE for pair in self.pairs)


@dataclass(frozen=True)
class PairSummary:
    """Result of one of many comparisons.

    Attributes
    ----------
    a, b : Numbers of the models, in the order in which they were compared.
    class_, kind, sentence, log10_p, log10_p_pairs : The pair's verdict; its p-value after Holm's correction in the pair,
        and after Bonferroni's over all pairs.
    significant : Whether the verdict stands after the correction for the number of pairs. "identical" needs none.
    norm_cosine, norm_cosine_null : Medians over layers of the raw cosine of norm weights, and of what it would be by
        chance: the figure that misleads.
    components, declared, against, untested : As in the pair's own report.
    controls_passed, controls_run : Of the comparisons whose answer is known.
    """

    a: int
    b: int
    class_: str
    kind: str | None
    sentence: Text
    log10_p: float | None
    log10_p_pairs: float | None
    significant: bool
    norm_cosine: float | None
    norm_cosine_null: float | None
    components: tuple[ComponentFinding, ...]
    declared: DeclaredFinding | None
    against: tuple[Text, ...]
    untested: tuple[Text, ...]
    controls_passed: int
    controls_run: int
    bytes_read: int
    variant: str | None = field(default=None, metadata=LATER)  # of the kind, where one has several

    @property
    def stands(self) -> bool:
        """Whether the verdict is that of the pair among all pairs: "no evidence" and "not testable" claim nothing."""
        return self.significant or self.class_ in (NO_EVIDENCE, NOT_TESTABLE)


@dataclass(frozen=True)
class PairsReport(Result):
    """All pairs of several models: each pair's verdict, the groups they fall into, and the proposed tree.

    ``clusters`` are lists of models that derivation joins, larger ones first; a model that derives from none of the others
    stands alone. Pairs with a model that is equal to an earlier one were not compared again and are not among ``pairs``.
    """

    SCHEMA: ClassVar = "kinprint.pairs"
    CALLED: ClassVar = "a report on all pairs"

    schema: str
    schema_version: int
    clusters: tuple[tuple[int, ...], ...]
    pairs: tuple[PairSummary, ...]
    tree: FamilyTree
    settings: Options | None = field(default=None, metadata=LATER)  # of each comparison

    def pair(self, one: int, two: int) -> PairSummary | None:
        """Return the comparison of two models, in whatever order, or of those that stand for them."""
        wanted = {self.tree.models[one].node, self.tree.models[two].node}
        return next((pair for pair in self.pairs if {pair.a, pair.b} == wanted), None)

    def __repr__(self) -> str:
        joined = sum(len(group) > 1 for group in self.clusters)
        groups = f"{joined} group{'' if joined == 1 else 's'} of derived models"
        return f"<PairsReport: {_few_names(self.tree.models)}: {len(self.pairs)} pairs, {groups}>"

    @property
    def alone(self) -> tuple[int, ...]:
        """The models that derive from none of the others, as far as was seen."""
        return tuple(group[0] for group in self.clusters if len(group) == 1 and self.tree.testable(group[0]))

    @property
    def not_testable(self) -> tuple[int, ...]:
        """The models of which no comparison could be tested."""
        return tuple(group[0] for group in self.clusters if len(group) == 1 and not self.tree.testable(group[0]))


def _few_names(models: tuple[TreeModel, ...]) -> str:
    """Return the first few names, for a line that a prompt shows."""
    names = [printable(model.name, 40) for model in models[:4]]
    return f"{len(models)} models ({', '.join([*names, '…'] if len(models) > len(names) else names)})"
