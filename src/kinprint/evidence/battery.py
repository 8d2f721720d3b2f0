"""The exact tests: norms, fixed points of rows and heads, correlation of matrices and of token rows.

Each is of one hypothesis, "the two models share nothing", under which the order of residual dimensions, neurons and heads
of one model says nothing about the other's. None uses the data to align anything; tests after an alignment are elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from kinprint._util.numeric import NEAR_CONSTANT, FloatArray
from kinprint.arch import Axis, Role
from kinprint.arch.exchangeable import permuted_axis
from kinprint.errors import DegenerateInput
from kinprint.evidence.probe import Probe
from kinprint.model.reader import Sample
from kinprint.results.findings import OFF, EvidenceTest
from kinprint.results.measurements import NullResult
from kinprint.results.p_values import PMethod
from kinprint.stats import block_nulls, check_range, joint_independent, joint_tail, null_for
from kinprint.stats.fixedpoints import combined_fixed_points, fixed_points
from kinprint.text import Text, verbatim

ORDER_Z, NEIGHBOUR_Z = 2.0, 6.0
"""How many standard deviations a common trend over the index may be worth, and how clearly neighbours may be alike."""

WAVES = 4

COPY_R = 0.1
"""Correlation of two layers' slices in either model beyond which they are taken for copies of one layer."""

_CORNER = (16, 512)

RESIDUAL_ORDER = Text("residual dimensions have no order of their own")
NEURON_ORDER = Text("neurons have no order of their own")
ONE_PERMUTATION = Text("one permutation of residual dimensions")
HEAD_ORDER = Text("key/value heads have no order of their own")

LayerMap = Mapping[int, int]  # layer of B to layer of A
Block = tuple[FloatArray, FloatArray]


@dataclass(frozen=True)
class SamplePair:
    """One pair of slices: where it is in B, and both samples."""

    role: Role
    layer: int | None
    expert: int | None
    a: Sample
    b: Sample


def sample_pairs(a: Probe, b: Probe, layer_map: LayerMap) -> Iterator[SamplePair]:
    """Pair the slices of B with those of A under a layer map; what has no partner is left to the caller to count."""
    for (role, layer, expert), sample in b.samples.items():
        source = None if layer is None else layer_map.get(layer)
        if layer is not None and source is None:
            continue
        partner = a.samples.get((role, source, expert))
        if partner is not None:
            yield SamplePair(role, layer, expert, partner, sample)


def run_battery(a: Probe, b: Probe, layer_map: LayerMap, *, seed: int = 0) -> list[EvidenceTest]:
    """Run every test that the two probes allow. What an assumption forbids is in the list too, switched off."""
    ordered = orders_of(a, b)
    by_role: dict[Role, list[SamplePair]] = {}
    for place in sample_pairs(a, b, layer_map):
        by_role.setdefault(place.role, []).append(place)
    tests: list[EvidenceTest] = []
    for role in (role for role in Role if role in by_role):
        group = by_role[role]
        kind = role.info.kind
        if kind == "norm" and role.info.axes[0] is Axis.RESIDUAL:
            tests.append(_guarded("norm_joint", role, partial(norm_test, role, group, ordered, seed)))
        elif kind == "matrix":
            tests.append(_guarded("matrix_correlation", role, partial(matrix_test, role, group, ordered, seed)))
            if role.info.axes == (Axis.NEURON, Axis.RESIDUAL):
                tests.append(_guarded("fixed_points", role, partial(row_test, role, group)))
            elif role is Role.ATTN_V and b.kv_heads and a.kv_heads == b.kv_heads:
                size = b.head_size(group[0].b)
                tests.append(_guarded("fixed_points", role, partial(row_test, role, group, size)))
    for role in (Role.ATTN_K, Role.ATTN_V):
        common = [(k, s) for k, s in b.heads.items() if k[0] is role and k[1] is not None and k[1] in layer_map]
        pairs = [(a.heads.get((role, layer_map[k[1] or 0], None)), s) for k, s in common]
        blocks = [(one, two) for one, two in pairs if one is not None]
        if blocks:
            tests.append(_guarded("head_fixed_points", role, partial(head_test, role, blocks)))
    for key, two in b.tokens.items():
        if (one := a.tokens.get(key)) is not None:
            tests.append(_guarded("token_rows", key[0], partial(token_test, one, two, ordered, seed)))
    return tests


def _guarded(name: str, role: Role, test: Callable[[], EvidenceTest]) -> EvidenceTest:
    try:
        return test()
    except DegenerateInput as error:
        return EvidenceTest(name, verbatim(role.value), status=OFF, reason=error.reason)


# -- the tests ---------------------------------------------------------------------------------------------------------


def norm_test(role: Role, group: Sequence[SamplePair], ordered: Mapping[Axis, Text], seed: int) -> EvidenceTest:
    """Test the scales of one norm role in all layers at once, under ONE permutation of the residual stream."""
    if Axis.RESIDUAL in ordered:
        raise DegenerateInput(ordered[Axis.RESIDUAL])
    varying = []
    for place in group:
        one, two = _values(place)
        if one.shape != two.shape:
            raise DegenerateInput("widths differ: {a} and {b}", a=one.size, b=two.size)
        if not (_is_constant(one) or _is_constant(two)):
            varying.append((one[None, :], two[None, :]))
    if not varying:
        raise DegenerateInput(
            "all {n} norms are constant on at least one side: there is no order to compare", n=len(group)
        )
    blocks = varying
    null = joint_tail(blocks, seed=seed)
    if null.sd > 0.0 and (order := _own_order(blocks, null.sd)) is not None:
        raise DegenerateInput(order)
    test = _from_null("norm_joint", role, null, len(blocks), ONE_PERMUTATION, RESIDUAL_ORDER)
    return replace(test, reason=_left_out(len(group) - len(blocks), len(group)))


def matrix_test(role: Role, group: Sequence[SamplePair], ordered: Mapping[Axis, Text], seed: int) -> EvidenceTest:
    """Test the Pearson correlation of equal slices, averaged over layers, under permutation of a free axis."""
    axis, name = permuted_axis(role, ordered)
    if axis is None:
        raise DegenerateInput("no axis may be permuted: {why}", why=name)
    residual = role.info.axes[axis] is Axis.RESIDUAL
    # one permutation serves all layers along the residual stream, so copies do no harm there
    places = group if residual else _distinct(group)
    blocks = [block for place in places if (block := _matrix_block(place, axis)) is not None]
    if not blocks:
        raise DegenerateInput("no slice has equal shapes, finite and varying values on both sides")
    if residual:
        null = joint_tail(blocks, seed=seed)
        permutation, order = Text("one permutation of {axis} units for all layers", axis=name), RESIDUAL_ORDER
    else:
        permutation, order = Text("its own permutation of {axis} units for each layer", axis=name), NEURON_ORDER
        if len(blocks) > 1:
            null = joint_independent(*block_nulls(blocks))
        else:
            observed = _correlation(*blocks[0])
            null = null_for("pearson", *blocks[0], observed=observed, higher_is_closer=True)
    test = _from_null("matrix_correlation", role, null, len(blocks), permutation, order)
    return replace(test, reason=_left_out(len(places) - len(blocks), len(places)))


def row_test(role: Role, group: Sequence[SamplePair], rows: int | None = None) -> EvidenceTest:
    """Count rows whose nearest row in the other model stands at the same place; each layer has its own order."""
    counts, sizes = [], []
    for place in _distinct(group):
        one, two = _values(place)
        m = min(len(one), len(two), rows or len(one))
        if m < 2 or one.shape[1] != two.shape[1]:
            continue
        found = fixed_points(one[:m], two[:m])
        counts.append(found.count)
        sizes.append(found.n)
    if not counts:
        raise DegenerateInput("no slice has two rows of equal width on both sides")
    return _counted("fixed_points", role, counts, sizes, NEURON_ORDER)


def head_test(role: Role, group: Sequence[tuple[Sample, Sample]]) -> EvidenceTest:
    """Count key/value heads whose nearest head in the other model stands at the same place."""
    counts, sizes = [], []
    for place in _distinct([SamplePair(role, None, None, one, two) for one, two in group]):
        one, two = place.a, place.b
        if one.stored.shape == two.stored.shape and len(one.stored) > 1 and one.finite and two.finite:
            found = fixed_points(one.values, two.values)
            counts.append(found.count)
            sizes.append(found.n)
    if not counts:
        raise DegenerateInput("the numbers of key/value heads differ, or there is only one")
    return _counted("head_fixed_points", role, counts, sizes, HEAD_ORDER)


def token_test(a: Sample, b: Sample, ordered: Mapping[Axis, Text], seed: int) -> EvidenceTest:
    """Test the embeddings of the same token strings under permutation of residual dimensions."""
    if Axis.RESIDUAL in ordered:
        raise DegenerateInput(ordered[Axis.RESIDUAL])
    one, two = _values(SamplePair(Role.EMBEDDING, None, None, a, b))
    if one.shape != two.shape:
        raise DegenerateInput("widths differ: {a} and {b}", a=one.shape[1], b=two.shape[1])
    if _is_constant(one) or _is_constant(two):
        raise DegenerateInput("the rows of one side are constant")
    null = joint_tail([(one, two)], seed=seed)
    test = _from_null("token_rows", Role.EMBEDDING, null, 1, ONE_PERMUTATION, RESIDUAL_ORDER)
    return replace(test, assumptions=(*test.assumptions, Text("rows are paired by token string")))


# -- their parts -------------------------------------------------------------------------------------------------------


def _values(place: SamplePair) -> Block:
    for side, sample in (("A", place.a), ("B", place.b)):
        if not sample.finite:
            if place.layer is None:
                raise DegenerateInput("NaN or infinity in what was read of {side}", side=side)
            raise DegenerateInput("NaN or infinity in what was read of {side} in layer {n}", side=side, n=place.layer)
    one, two = place.a.values, place.b.values
    check_range(one, "A")
    check_range(two, "B")
    return one, two


def _matrix_block(place: SamplePair, axis: int) -> Block | None:
    """Return the pair with the permuted axis last, or None where it cannot be correlated."""
    if place.a.stored.ndim != 2 or place.b.stored.ndim != 2 or not (place.a.finite and place.b.finite):
        return None
    if place.a.shape[1] != place.b.shape[1]:
        return None
    if place.role.info.axes[0] is Axis.RESIDUAL and place.a.shape[0] != place.b.shape[0]:
        return None
    one, two = _values(place)
    rows, columns = (min(x, y) for x, y in zip(one.shape, two.shape, strict=True))
    one, two = one[:rows, :columns], two[:rows, :columns]
    if _is_constant(one) or _is_constant(two):
        return None
    return (one, two) if axis == 1 else (one.T, two.T)


def _left_out(count: int, total: int) -> Text | None:
    return (
        Text("{n} of {m} left out: NaN, infinity, constant values, unequal shapes", n=count, m=total) if count else None
    )


def _is_constant(values: FloatArray) -> bool:
    return bool(np.linalg.norm(values - values.mean()) <= NEAR_CONSTANT * abs(float(values.mean())))


def _correlation(one: FloatArray, two: FloatArray) -> float:
    left, right = one - one.mean(), two - two.mean()
    return float(np.vdot(left, right) / (np.linalg.norm(left) * np.linalg.norm(right)))


def waves(values: FloatArray) -> FloatArray:
    """Return how far the ranks of one vector follow the slowest waves over its index: cosines of 1 to `WAVES` half turns."""
    d = values.size
    ranks = np.argsort(np.argsort(values, kind="stable")) - (d - 1) / 2.0
    ranks = ranks / np.linalg.norm(ranks)
    waves = np.cos(np.pi * np.arange(1, WAVES + 1)[:, None] * (np.arange(d) + 0.5) / d)
    following: FloatArray = (waves / np.linalg.norm(waves, axis=1, keepdims=True)) @ ranks
    return following


def _follows_neighbours(values: FloatArray) -> float:
    """Return the rank correlation of entries with their neighbours."""
    ranks = np.argsort(np.argsort(values, kind="stable")) - (values.size - 1) / 2.0
    return float(ranks @ np.roll(ranks, 1) / (ranks @ ranks))


def _own_order(blocks: Sequence[Block], sd: float) -> Text | None:
    """Say if the entries of both sides follow their index, or their neighbours: then their order is not arbitrary.

    A trend that both sides have adds to the correlation as much as the product of the two; it may not be worth more than
    `ORDER_Z` standard deviations of the statistic.
    """
    products = np.mean([waves(one[0]) * waves(two[0]) for one, two in blocks], axis=0)
    excess = float(np.abs(products).sum()) / sd
    if excess > ORDER_Z:
        return Text(
            "in both models entries follow their index, worth {x:.1f} standard deviations: the order has a meaning",
            x=excess,
        )
    near = [float(np.mean([_follows_neighbours(block[side][0]) for block in blocks])) for side in (0, 1)]
    if min(abs(x) for x in near) * math.sqrt(blocks[0][0].shape[1]) > NEIGHBOUR_Z:
        return Text("in both models entries follow their neighbours: the order has a meaning")
    return None


def orders_of(a: Probe, b: Probe) -> dict[Axis, Text]:
    """Return the axes that have an order in this pair: as the configs tell, or as the columns of matrices show.

    Recipes that sort or slice residual dimensions by importance leave columns whose lengths follow their index.
    """
    ordered = {**a.ordered, **b.ordered}
    profiles = [_column_lengths(probe) for probe in (a, b)]
    one, two = profiles
    if Axis.RESIDUAL not in ordered and one is not None and two is not None and one.size == two.size > WAVES:
        excess = float(np.abs(waves(one) * waves(two)).sum()) * math.sqrt(one.size)
        if excess > ORDER_Z:
            ordered[Axis.RESIDUAL] = Text(
                "in both models the lengths of columns follow their index: their order has a meaning"
            )
    return ordered


def _column_lengths(probe: Probe) -> FloatArray | None:
    """Return the mean length of each residual column over the matrices that read the residual stream."""
    found: list[FloatArray] = []
    for (role, layer, _), sample in probe.samples.items():
        if layer is None or role.info.kind != "matrix" or role.info.axes[1] is not Axis.RESIDUAL or not sample.finite:
            continue
        if sample.columns is None and sample.stored.ndim == 2 and sample.stored.size and len(found) < 64:
            lengths = np.linalg.norm(sample.values, axis=0)
            total = float(lengths.sum())
            if total > 0.0 and (not found or found[0].size == lengths.size):
                found.append(lengths / total)
    return np.mean(found, axis=0) if found else None


def _distinct(group: Sequence[SamplePair]) -> list[SamplePair]:
    """Leave out places that stand for another one in both models: copied layers or experts have one order between them.

    Two models deepened alike, or upcycled alike, would else be counted as if each copy had been ordered by a draw of its own.
    """
    kept: list[tuple[SamplePair, FloatArray, FloatArray]] = []
    for place in group:
        one, two = corner(place.a), corner(place.b)
        if not any(_alike(one, a) and _alike(two, b) for _, a, b in kept):
            kept.append((place, one, two))
    return [place for place, _, _ in kept]


def corner(sample: Sample) -> FloatArray:
    """Return a corner of a slice without what all its rows have in common, at unit length."""
    part = np.nan_to_num(sample.stored[: _CORNER[0], : _CORNER[1]].astype(np.float64), posinf=0.0, neginf=0.0)
    if not part.size:
        return part
    part -= part.mean(axis=0)
    length = float(np.linalg.norm(part))
    return part / length if length > 0.0 else part


def _alike(one: FloatArray, two: FloatArray) -> bool:
    return one.shape == two.shape and float(np.vdot(one, two)) > COPY_R


def _from_null(name: str, role: Role, null: NullResult, blocks: int, permutation: Text, order: Text) -> EvidenceTest:
    statistic = None if null.z is None else null.mean + null.z * null.sd
    return EvidenceTest(
        name=name,
        scope=verbatim(role.value),
        statistic=statistic,
        null_mean=null.mean,
        null_sd=null.sd,
        z=null.z,
        log10_p=null.log10_p,
        n=null.n,
        blocks=blocks,
        null=permutation,
        p_method=null.p_method,
        assumptions=(order,),
        p_detail=null.p_detail,
    )


def _counted(name: str, role: Role, counts: Sequence[int], sizes: Sequence[int], assumption: Text) -> EvidenceTest:
    """Return the test of a number of fixed points: mean and spread as of a random order, one expected in each layer."""
    total, layers = sum(counts), len(counts)
    return EvidenceTest(
        name=name,
        scope=verbatim(role.value),
        statistic=float(total),
        null_mean=float(layers),
        null_sd=math.sqrt(layers),
        z=(total - layers) / math.sqrt(layers),
        log10_p=combined_fixed_points(counts, sizes),
        n=sum(sizes),
        blocks=layers,
        null=Text("a random order in each layer"),
        p_method=PMethod.FACTORIAL,
        assumptions=(assumption,),
    )
