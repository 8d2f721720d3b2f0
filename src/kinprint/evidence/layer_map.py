"""The layer map: which layer of A each layer of B matches, decided by matrices, each entry with its own p-value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.align.layer_alignment import IDENTITY, NONE, best_map, choose_map, pair_scores
from kinprint.arch import Axis, Role
from kinprint.arch.roles import GATES_AND_UPS
from kinprint.errors import DegenerateInput
from kinprint.evidence.battery import SamplePair, matrix_test, orders_of, row_test
from kinprint.evidence.probe import Probe, layer_keys, residual_columns
from kinprint.evidence.words import word
from kinprint.model.reader import Sample
from kinprint.results.findings import OFF, TESTED, EvidenceTest, LayerAlignment, LayerFinding
from kinprint.stats.combine import bonferroni, holm
from kinprint.text import Text

STACK_ELEMENTS = 40 * 4096  # of one layer's stack: all pairs of layers are formed, so this is what the map costs
ALL_STACKS = 1 << 25  # elements of all stacks together: a quarter of a gigabyte
ENOUGH = -12.0  # log10 p of one layer below which no costlier test is run

LAYER_ALPHA = -4.0
"""log10 of the level at which one layer, after correction, counts as shared. The verdict itself needs far more."""

ATTENTION = (Role.ATTN_Q, Role.ATTN_K, Role.ATTN_V, Role.ATTN_Q_A, Role.ATTN_KV_A)
MLP = GATES_AND_UPS


@dataclass(frozen=True)
class LayerEvidence:
    """The map, and for each of its entries the evidence of attention and MLP apart (log10 p, None if not testable)."""

    alignment: LayerAlignment
    attention: dict[int, float]
    mlp: dict[int, float]
    testable: frozenset[str] = frozenset()  # "attention", "mlp": parts that both models have

    @property
    def layer_map(self) -> dict[int, int]:
        """Layers of B that share, with the layer of A each comes from."""
        return {item.layer: item.source for item in self.alignment.layers if item.shared and item.source is not None}


def align_layers(a: Probe, b: Probe, *, seed: int = 0) -> LayerEvidence:
    """Find the layer map from row slices along the residual stream, and test every entry of it."""
    ordered = orders_of(a, b)
    scopes, reason = _scopes(a, b, ordered)
    if not scopes:
        return _in_order(a, b, reason, ordered, seed)
    stacks = [_stacks(probe, scopes, _rows(scopes, (a, b))) for probe in (a, b)]
    numbers = [sorted(stack) for stack in stacks]
    try:
        scores = pair_scores(*([stack[n] for n in order] for stack, order in zip(stacks, numbers, strict=True)))
    except DegenerateInput as error:
        return _in_order(a, b, error.reason, ordered, seed)
    chosen, rivals = choose_map(scores), best_map(scores)
    tries = len(numbers[0])
    attention: dict[int, float] = {}
    mlp: dict[int, float] = {}
    raw: dict[int, float] = {}
    for position, layer in enumerate(numbers[1]):
        source = chosen.pairs[position]
        if source is None:
            continue
        for roles, found in ((ATTENTION, attention), (MLP, mlp)):
            p = layer_p(a, b, numbers[0][source], layer, roles, ordered, seed=seed)
            if p is not None:
                found[layer] = p
        tested = [found[layer] for found in (attention, mlp) if layer in found]
        if tested:
            raw[layer] = bonferroni(min(tested), tries * len(tested))
    # layers without a candidate were looked at too, and count in the correction
    padded = [raw.get(layer, 0.0) for layer in numbers[1]]
    adjusted = {n: p for n, p in zip(numbers[1], holm(padded), strict=True) if n in raw}
    findings = []
    for position, layer in enumerate(numbers[1]):
        source, second = chosen.pairs[position], rivals.runner_up[position]
        findings.append(
            LayerFinding(
                layer=layer,
                source=None if source is None else numbers[0][source],
                correlation=None if source is None else _number(scores.correlation[source, position]),
                z=None if source is None else _number(scores.z[source, position]),
                log10_p=adjusted.get(layer),
                tries=tries,
                shared=adjusted.get(layer, 0.0) <= LAYER_ALPHA,
                runner_up=None if second is None else numbers[0][second],
                runner_up_z=None if second is None else _number(scores.z[second, position]),
            )
        )
    alignment = LayerAlignment(TESTED, chosen.kind, tuple(findings), tuple(role.value for role in scopes))
    return LayerEvidence(alignment, attention, mlp, _testable(a, b))


def _testable(a: Probe, b: Probe) -> frozenset[str]:
    groups = {"attention": ATTENTION, "mlp": MLP}
    return frozenset(name for name, roles in groups.items() if _common(a, b, roles))


def _common(a: Probe, b: Probe, roles: Sequence[Role]) -> bool:
    found = [{key[0] for key in probe.samples} for probe in (a, b)]
    return any(role in found[0] and role in found[1] for role in roles)


def _in_order(a: Probe, b: Probe, reason: Text, ordered: Mapping[Axis, Text], seed: int) -> LayerEvidence:
    """Test layers at their own places, where no map can be sought: what needs no residual order may still speak."""
    attention: dict[int, float] = {}
    mlp: dict[int, float] = {}
    count = min(a.layers, b.layers)
    for layer in range(count):
        for roles, found in ((ATTENTION, attention), (MLP, mlp)):
            p = layer_p(a, b, layer, layer, roles, ordered, seed=seed)
            if p is not None:
                found[layer] = p
    tested = {layer: min(side[layer] for side in (attention, mlp) if layer in side) for layer in {*attention, *mlp}}
    adjusted = dict(zip(tested, holm([bonferroni(p, 2) for p in tested.values()]), strict=True))
    findings = tuple(
        LayerFinding(layer, layer, None, None, p, 1, p <= LAYER_ALPHA) for layer, p in sorted(adjusted.items())
    )
    kind = IDENTITY if any(item.shared for item in findings) else NONE
    return LayerEvidence(LayerAlignment(OFF, kind, findings, (), reason), attention, mlp, _testable(a, b))


def layer_p(
    a: Probe,
    b: Probe,
    source: int,
    layer: int,
    roles: Sequence[Role],
    ordered: Mapping[Axis, Text],
    *,
    seed: int,
) -> float | None:
    """Return log10 p that one layer of B has nothing to do with one of A, from the slices of these roles."""
    cheap: list[Callable[[], EvidenceTest]] = []
    costly: list[Callable[[], EvidenceTest]] = []
    for (role, at, expert), sample in b.samples.items():
        partner = a.samples.get((role, source, expert))
        if at != layer or role not in roles or partner is None:
            continue
        place = [SamplePair(role, layer, expert, partner, sample)]
        costly.append(partial(matrix_test, role, place, ordered, seed))
        if role.info.axes == (Axis.NEURON, Axis.RESIDUAL):
            cheap.append(partial(row_test, role, place))
        elif role is Role.ATTN_V and a.kv_heads == b.kv_heads and (size := b.head_size(sample)) is not None:
            cheap.append(partial(row_test, role, place, size))
    least: float | None = None
    for test in (*cheap, *costly):
        if least is not None and least <= ENOUGH:
            break  # nothing depends on a smaller number; the correction below counts the tests left out all the same
        with suppress(DegenerateInput):
            log10_p = test().log10_p
            least = log10_p if least is None else min(least, log10_p or 0.0)
    return None if least is None else bonferroni(least, len(cheap) + len(costly))


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _scopes(a: Probe, b: Probe, ordered: Mapping[Axis, Text]) -> tuple[list[Role], Text]:
    """Return the roles whose row slices all layers of both models have, with equal width along the residual stream."""
    if Axis.RESIDUAL in ordered:
        return [], ordered[Axis.RESIDUAL]
    if a.hidden != b.hidden:
        return [], Text(
            "residual widths differ: {a} and {b}", a=a.hidden or word("unknown"), b=b.hidden or word("unknown")
        )
    candidates = [role for role in (*ATTENTION, *MLP) if residual_columns(role) and role.info.scope == "layer"]
    usable = []
    for role in candidates:
        found = [probe.of(role) for probe in (a, b)]
        if all(len(side) == max(_layers_read(probe), 1) for side, probe in zip(found, (a, b), strict=True)) and all(
            sample.finite for side in found for sample in side.values()
        ):
            usable.append(role)
    return usable, Text("no matrix that reads the residual stream was read in every layer of both models")


def _layers_read(probe: Probe) -> int:
    return len({key[1] for key in probe.samples if key[1] is not None and residual_columns(key[0])})


def _rows(scopes: Sequence[Role], probes: Sequence[Probe]) -> dict[Role, int]:
    """Return how many rows of each role enter a stack: as many as all layers have, within the limit."""
    least = {role: min(len(s.stored) for probe in probes for s in probe.of(role).values()) for role in scopes}
    width = next(iter(probes[0].of(scopes[0]).values())).stored.shape[1]
    layers = sum(len(probe.of(scopes[0])) for probe in probes)
    share = max(1, min(STACK_ELEMENTS, ALL_STACKS // layers) // (width * len(scopes)))
    return {role: min(count, share) for role, count in least.items()}


def _stacks(probe: Probe, scopes: Sequence[Role], rows: dict[Role, int]) -> dict[int, FloatArray]:
    """Return each layer's slices on top of each other, every role at unit length so that none drowns the others."""
    stacks = {}
    for layer, keys in layer_keys(probe, scopes).items():
        parts = [_unit(probe.samples[key], rows[key[0]]) for key in keys if key[2] is None]
        stacks[layer] = np.concatenate(parts)
    return stacks


def _unit(sample: Sample, rows: int) -> FloatArray:
    values = sample.values[:rows]
    length = float(np.linalg.norm(values))
    return values / length if length > 0.0 else values
