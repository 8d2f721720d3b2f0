"""Find the layer of A that each layer of B matches, by matrices, with a p-value for each entry of the map."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import field
from functools import partial

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint._util.records import dataclass
from kinprint.align.layer_alignment import IDENTITY, NONE, LayerScores, best_map, choose_map, kind_of_map, pair_scores
from kinprint.arch import Axis, Role
from kinprint.arch.roles import GATES_AND_UPS
from kinprint.errors import DegenerateInput
from kinprint.evidence.attempts import attempt
from kinprint.evidence.exact_tests import matrix_test, row_test
from kinprint.evidence.exchangeability import OrderedAxes, ordered_axes_of
from kinprint.evidence.probe import Probe, SamplePair, has_neuron_rows, residual_columns
from kinprint.evidence.words import word
from kinprint.formats.dtypes import Array
from kinprint.model.reader import Sample
from kinprint.results.findings import OFF, TESTED, EvidenceTest, LayerAlignment, LayerFinding
from kinprint.stats.combine import bonferroni, holm
from kinprint.text import Text

STACK_ELEMENTS = 40 * 4096  # of one layer's stack: all pairs of layers are formed, so this is what the map costs
WIDE = 2048  # width from which stacks are in float32, to which most weights were rounded anyway: half of the memory
ALL_STACKS = 1 << 25  # elements of all stacks together: a quarter of a gigabyte
ENOUGH = -12.0  # log10 p of one layer below which no costlier test is run

LAYER_ALPHA = -4.0
"""log10 of the level at which one layer, after correction, counts as shared. The verdict itself needs far more."""

ATTENTION = (  # what mixes tokens: attention, or a mixer in its place
    Role.ATTN_Q, Role.ATTN_K, Role.ATTN_V, Role.ATTN_Q_A, Role.ATTN_KV_A,
    Role.MIXER_IN, Role.MIXER_VALUE, Role.MIXER_GATE, Role.SSM_IN, Role.SSM_GATE,
)  # fmt: skip
PARTS = {"attention": ATTENTION, "mlp": GATES_AND_UPS}  # parts of a layer that are tested apart, with their roles
Place = tuple[int, int]  # a layer of A, and one of B


@dataclass(frozen=True)
class LayerEvidence:
    """The layer map, and log10 p of attention and of the MLP in each matched layer of B, as far as they could be tested."""

    alignment: LayerAlignment
    attention: dict[int, float]
    mlp: dict[int, float]
    testable: frozenset[str] = frozenset()  # "attention", "mlp": parts that both models have
    layer_map: Mapping[int, int] = field(default_factory=dict)
    """Layers of B that share, each with one layer of A; of copies on either side the nearest, so that no layer counts twice."""
    by_place: Mapping[Place, Mapping[str, float]] = field(default_factory=dict)
    """log10 p of the parts of every pair of layers, of A and of B, that was tested."""
    looked_at: int = 0  # layers of the shallower model
    tries: int = 1  # pairs of layers that were looked at

    def unmatched(self, part: str) -> bool:
        """Whether a part of some layer has no partner in place, seen from the shallower model, whichever of the two that is."""
        pairs = [self.by_place[source, layer].get(part, 0.0) for layer, source in self.layer_map.items()]
        return sum(bonferroni(p, self.tries) <= LAYER_ALPHA for p in pairs) < self.looked_at


def align_layers(a: Probe, b: Probe, *, seed: int = 0) -> LayerEvidence:
    """Find the layer map from row slices along the residual stream, and test every entry of it."""
    # The answer does not depend on which model is called A, but for the side from which the map is read.
    ordered = ordered_axes_of(a, b)
    scopes, reason = _scopes(a, b, ordered)
    if not scopes:
        return _in_order(a, b, reason, ordered, seed)
    rows = _rows(scopes, (a, b))
    (layers_a, stacks_a), (layers_b, stacks_b) = (_stacks(probe, scopes, rows) for probe in (a, b))
    try:
        scores = pair_scores(stacks_a, stacks_b)
    except DegenerateInput as error:
        return _in_order(a, b, error.reason, ordered, seed)
    kind, places = _matched_places(scores)
    found = {(layers_a[i], layers_b[j]): float(scores.correlation[i, j]) for i, j in places}
    by_pair = _test_parts(a, b, found, ordered, seed)
    tries, lines = sorted((len(layers_a), len(layers_b)))  # of a search in either direction
    raw = {at: bonferroni(min(ps.values()), tries * len(ps)) for at, ps in by_pair.items() if ps}
    # layers without a candidate were looked at too, and count in the correction
    adjusted = dict(zip(raw, holm([*raw.values(), *[0.0] * (lines - len(raw))]), strict=False))
    shared = {at for at, p in adjusted.items() if p <= LAYER_ALPHA}
    _, rivals = best_map(scores)
    findings, main = [], {}
    for j, layer in enumerate(layers_b):
        sources = [source for source, at in found if at == layer]
        sources.sort(key=lambda source: ((source, layer) not in shared, *_by_nearness(found, (source, layer))))
        source = sources[0] if sources else None
        if source is not None:
            main[layer] = by_pair[source, layer]
        i, second = None if source is None else layers_a.index(source), rivals[j]
        findings.append(
            LayerFinding(
                layer=layer,
                source=source,
                correlation=_entry(scores.correlation, i, j),
                z=_entry(scores.z, i, j),
                log10_p=None if source is None else adjusted.get((source, layer)),
                tries=tries,
                shared=(source, layer) in shared,
                runner_up=None if second is None else layers_a[second],
                runner_up_z=_entry(scores.z, second, j),
                also=tuple(sorted(one for one in sources[1:] if (one, layer) in shared)),
            )
        )
    alignment = LayerAlignment(
        TESTED, kind, tuple(findings), tuple(role.value for role in scopes), unread=_unread(b), unread_a=_unread(a)
    )
    layer_map = _one_to_one(found, shared)
    return LayerEvidence(alignment, *_by_part(main), _testable(a, b), layer_map, by_pair, tries, tries * lines)


def _matched_places(scores: LayerScores) -> tuple[str, list[Place]]:
    """Return the kind of map, and the places (i of A, j of B) that match, whichever of the models is called A."""
    # Where one model repeats layers of the other, only a search from its own side sees all copies: that which matches more
    # layers is taken, then that of the larger correlations; if neither is better, what both find.
    forth, back = choose_map(scores), choose_map(LayerScores(scores.z.T, scores.correlation.T))
    ways = [
        [(i, j) for j, i in enumerate(forth) if i is not None],
        [(i, j) for i, j in enumerate(back) if j is not None],
    ]
    merits = [(len(way), round(sum(float(scores.correlation[at]) for at in way), 6)) for way in ways]
    if merits[0] < merits[1]:
        return kind_of_map(back, len(forth)), ways[1]
    return kind_of_map(forth, len(back)), [at for at in ways[0] if merits[0] > merits[1] or at in ways[1]]


def _by_nearness(found: Mapping[Place, float], at: Place) -> tuple[float, int, int]:
    """Order pairs of layers: the most alike first, then the lowest, with a hair's breadth of rounding."""
    return -round(found[at], 9), sum(at), max(at)


def _one_to_one(found: Mapping[Place, float], shared: Set[Place]) -> dict[int, int]:
    """Pair each layer of B that shares with one layer of A, no layer twice."""
    one_to_one: dict[int, int] = {}
    for source, layer in sorted(shared, key=lambda at: _by_nearness(found, at)):
        if layer not in one_to_one and source not in one_to_one.values():
            one_to_one[layer] = source
    return dict(sorted(one_to_one.items()))


def _unread(probe: Probe) -> tuple[int, ...]:
    """Return the layers of which nothing was read."""
    read = {key[1] for key in probe.samples}
    return tuple(layer for layer in range(probe.layers) if layer not in read)


def _testable(a: Probe, b: Probe) -> frozenset[str]:
    common = {key[0] for key in a.samples} & {key[0] for key in b.samples}
    return frozenset(name for name, roles in PARTS.items() if not common.isdisjoint(roles))


def _test_parts(
    a: Probe, b: Probe, places: Iterable[Place], ordered: OrderedAxes, seed: int
) -> dict[Place, dict[str, float]]:
    """Return log10 p of the parts of each pair of a layer of A and one of B."""
    found: dict[Place, dict[str, float]] = {}
    for source, layer in places:
        ps = {name: layer_p(a, b, source, layer, roles, ordered, seed=seed) for name, roles in PARTS.items()}
        found[source, layer] = {name: p for name, p in ps.items() if p is not None}
    return found


def _by_part(layers: Mapping[int, Mapping[str, float]]) -> tuple[dict[int, float], dict[int, float]]:
    attention, mlp = ({layer: ps[name] for layer, ps in layers.items() if name in ps} for name in PARTS)
    return attention, mlp


def _in_order(a: Probe, b: Probe, reason: Text, ordered: OrderedAxes, seed: int) -> LayerEvidence:
    """Test layers at their own places, where no map can be sought: tests that need no residual order remain."""
    places = [(layer, layer) for layer in range(min(a.layers, b.layers))]
    by_place = {at: ps for at, ps in _test_parts(a, b, places, ordered, seed).items() if ps}
    tested = {at[1]: ps for at, ps in by_place.items()}
    adjusted = dict(zip(tested, holm([bonferroni(min(ps.values()), 2) for ps in tested.values()]), strict=True))
    found = sorted(adjusted.items())
    findings = tuple(LayerFinding(layer, layer, None, None, p, 1, p <= LAYER_ALPHA) for layer, p in found)
    kind = IDENTITY if any(item.shared for item in findings) else NONE
    alignment = untested_layers(a, b, reason, kind, findings)
    layer_map = {item.layer: item.layer for item in findings if item.shared}
    count = len(tested)
    return LayerEvidence(alignment, *_by_part(tested), _testable(a, b), layer_map, by_place, count, max(1, count))


def untested_layers(
    a: Probe, b: Probe, reason: Text, kind: str = NONE, findings: tuple[LayerFinding, ...] = ()
) -> LayerAlignment:
    """Return a layer map that was not sought, with the reason, and what is known of layers at their places."""
    return LayerAlignment(OFF, kind, findings, (), reason, unread=_unread(b), unread_a=_unread(a))


def layer_p(
    a: Probe, b: Probe, source: int, layer: int, roles: Sequence[Role], ordered: OrderedAxes, *, seed: int
) -> float | None:
    """Return log10 p of the null that one layer of B has nothing to do with one of A, from the slices of these roles."""
    cheap: list[Callable[[], EvidenceTest]] = []
    costly: list[Callable[[], EvidenceTest]] = []
    for (role, at, expert), sample in b.samples.items():
        partner = a.samples.get((role, source, expert))
        if at != layer or role not in roles or partner is None:
            continue
        place = [SamplePair(role, layer, expert, partner, sample)]
        costly.append(partial(matrix_test, role, place, ordered, seed))
        if has_neuron_rows(role):
            cheap.append(partial(row_test, role, place))
        elif role is Role.ATTN_V and a.kv_heads == b.kv_heads and (size := b.head_size(sample)) is not None:
            cheap.append(partial(row_test, role, place, size))
    least: float | None = None
    for test in (*cheap, *costly):
        if least is not None and least <= ENOUGH:
            break  # nothing depends on a smaller number; the correction below counts the tests left out all the same
        with suppress(DegenerateInput):
            log10_p = attempt(lambda: test().log10_p, lambda _why: None)  # noqa: B023 - called at once
            least = log10_p if least is None else min(least, log10_p or 0.0)
    return None if least is None else bonferroni(least, len(cheap) + len(costly))


def _entry(scores: FloatArray, i: int | None, j: int) -> float | None:
    return float(scores[i, j]) if i is not None and np.isfinite(scores[i, j]) else None


def _scopes(a: Probe, b: Probe, ordered: OrderedAxes) -> tuple[list[Role], Text]:
    """Return the roles whose row slices all layers of both models have, with equal width along the residual stream."""
    if Axis.RESIDUAL in ordered:
        return [], ordered[Axis.RESIDUAL]
    if a.hidden != b.hidden:
        one, two = (probe.hidden or word("unknown") for probe in (a, b))
        return [], Text("residual widths differ: {a} and {b}", a=one, b=two)
    layers = [{key[1] for key in probe.samples if residual_columns(key[0])} - {None} for probe in (a, b)]
    every = [role for roles in PARTS.values() for role in roles]
    candidates = [role for role in every if role.info.scope == "layer" and residual_columns(role)]
    read = [sample for probe in (a, b) for role in candidates for sample in probe.of(role).values()]
    widths = Counter(sample.stored.shape[-1] for sample in read)
    usual = {max(widths, key=lambda width: (widths[width], width))} if widths else set()

    def usable(role: Role) -> bool:
        found = [probe.of(role) for probe in (a, b)]
        complete = all(len(side) == max(len(read), 1) for side, read in zip(found, layers, strict=True))
        samples = [sample for side in found for sample in side.values()]
        even = {sample.stored.shape[-1] for sample in samples} <= usual  # one odd matrix must not spoil the map
        return complete and even and all(sample.finite for sample in samples)

    none = Text("no matrix that reads the residual stream was read in every layer of both models")
    return [role for role in candidates if usable(role)], none


def _rows(scopes: Sequence[Role], probes: Sequence[Probe]) -> dict[Role, int]:
    """Return how many rows of each role enter a stack: as many as all layers have, within the limit."""
    least = {role: min(len(s.stored) for probe in probes for s in probe.of(role).values()) for role in scopes}
    width = next(iter(probes[0].of(scopes[0]).values())).stored.shape[1]
    layers = sum(len(probe.of(scopes[0])) for probe in probes)
    share = max(1, min(STACK_ELEMENTS, ALL_STACKS // layers) // (width * len(scopes)))
    return {role: min(count, share) for role, count in least.items()}


def _stacks(probe: Probe, scopes: Sequence[Role], rows: dict[Role, int]) -> tuple[list[int], list[Array]]:
    """Return the layers, and each one's slices on top of each other, every role at unit length so that all weigh alike."""
    slices = {role: probe.of(role) for role in scopes}
    layers = sorted({layer for found in slices.values() for layer in found if layer is not None})
    stacks: list[Array] = []
    for layer in layers:
        parts = [_unit(found[layer], rows[role]) for role, found in slices.items() if layer in found]
        stacks.append(np.concatenate(parts, dtype=np.float32 if parts[0].shape[1] >= WIDE else np.float64))
    return layers, stacks


def _unit(sample: Sample, rows: int) -> FloatArray:
    values = sample.part(slice(rows))
    length = float(np.linalg.norm(values))
    return values / length if length > 0.0 else values
