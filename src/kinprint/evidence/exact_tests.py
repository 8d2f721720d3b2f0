"""Test the null "the two models share nothing" exactly: norms, matrices, rows of neurons and heads, rows of tokens.

Under the null the order of residual dimensions, neurons and heads of one model is independent of the other model. No test here
aligns anything by the data. `kinprint.evidence.battery` says which test runs on which role.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kinprint._util.numeric import NEAR_CONSTANT, FloatArray
from kinprint.arch import Axis, Role
from kinprint.arch.roles import permuted_axis
from kinprint.edits.regression import correlation
from kinprint.errors import DegenerateInput
from kinprint.evidence import exchangeability
from kinprint.evidence.exchangeability import Block, OrderedAxes, fair_pair, without_copies
from kinprint.evidence.probe import SamplePair
from kinprint.model.reader import Sample
from kinprint.results.findings import EvidenceTest
from kinprint.results.measurements import NullResult
from kinprint.results.p_values import PMethod
from kinprint.stats.fixedpoints import FixedPoints, fixed_points, log10_p_total
from kinprint.stats.joint import block_nulls, joint_independent, joint_tail, of_usual_width, rows_taken
from kinprint.stats.moments import check_magnitude
from kinprint.stats.nulls import null_for
from kinprint.text import Text, verbatim

RESIDUAL_ORDER = Text("residual dimensions have no order of their own")
NEURON_ORDER = Text("neurons have no order of their own")
ONE_PERMUTATION = Text("one permutation of residual dimensions")
HEAD_ORDER = Text("key/value heads have no order of their own")
STANDS_OUT = -4.0  # log10 p from which a test is asked whether weights are tied: the level of single layers


def norm_test(
    role: Role, group: Sequence[SamplePair], ordered: OrderedAxes, seed: int, draws: int | None = None
) -> EvidenceTest:
    """Test the scales of one norm role in all layers at once, under ONE permutation of the residual stream."""
    _require_free_residual(ordered)
    values = [_values(pair) for pair in group]
    for one, two in values:
        if one.shape != two.shape:
            raise DegenerateInput("widths differ: {a} and {b}", a=one.size, b=two.size)
    values = list(of_usual_width(values))
    # a scale of zero is a pruned dimension: which those are, a recipe may have fixed by place
    kept = np.all([(one != 0.0) & (two != 0.0) for one, two in values], axis=0)
    varying = [(a, b) for one, two in values if not (is_constant(a := one[kept]) or is_constant(b := two[kept]))]
    if not varying:
        n = len(group)
        raise DegenerateInput("all {n} norms are constant on at least one side: there is no order to compare", n=n)
    null = joint_tail([(one[None, :], two[None, :]) for one, two in varying], seed=seed, draws=draws)
    ranks = [exchangeability.unit_ranks(np.array(side)) for side in zip(*varying, strict=True)]
    if null.sd > 0.0 and (order := exchangeability.common_order(ranks[0], ranks[1], null.sd)) is not None:
        raise DegenerateInput(order)
    return _from_null("norm_joint", role, null, (len(varying), len(group)), ONE_PERMUTATION, RESIDUAL_ORDER)


def matrix_test(role: Role, group: Sequence[SamplePair], ordered: OrderedAxes, seed: int) -> EvidenceTest:
    """Test the Pearson correlation of equal slices, averaged over layers, under permutation of a free axis."""
    axis, name = permuted_axis(role, ordered)
    if axis is None:
        raise DegenerateInput("no axis may be permuted: {why}", why=name)
    residual = role.info.axes[axis] is Axis.RESIDUAL
    # one permutation serves all layers along the residual stream, so copies do no harm there
    pairs = group if residual else without_copies(group)
    blocks = _leading_blocks(pairs, axis) if residual else _blocks(pairs, axis)
    if not blocks:
        raise DegenerateInput("no slice has equal shapes, finite and varying values on both sides")
    if residual:
        blocks = list(of_usual_width(blocks))
        null = joint_tail(blocks, seed=seed)
        permutation, order = Text("one permutation of {axis} units for all layers", axis=name), RESIDUAL_ORDER
    else:
        permutation, order = Text("its own permutation of {axis} units for each layer", axis=name), NEURON_ORDER
        if len(blocks) > 1:
            null = joint_independent(*block_nulls(blocks))
        else:
            null = null_for("pearson", *blocks[0], observed=correlation(*blocks[0]), higher_is_closer=True)
    test = _from_null("matrix_correlation", role, null, (len(blocks), len(pairs)), permutation, order)
    return _unless_tied(test, pairs)


def _blocks(pairs: Sequence[SamplePair], axis: int) -> list[Block]:
    return [block for pair in pairs if (block := matrix_block(pair, axis)) is not None]


def _leading_blocks(pairs: Sequence[SamplePair], axis: int) -> list[Block]:
    """Return the blocks as far as `joint_tail` looks at them: copies, that let go of the other rows (100 MB of 46 layers)."""
    found: list[Block] = []
    for pair in pairs:
        if (block := matrix_block(pair, axis)) is None:
            break
        one, two = block
        share = rows_taken(len(pairs), one.shape[-1])
        found.append(block if len(one) <= share else (one[:share].copy(), two[:share].copy()))
    alike = len(found) == len(pairs) and len({one.shape[-1] for one, _ in found}) == 1
    return found if alike else _blocks(pairs, axis)  # of fewer layers more rows are looked at


def row_test(role: Role, group: Sequence[SamplePair], rows: int | None = None) -> EvidenceTest:
    """Count rows whose nearest row in the other model stands at the same place; each layer has its own order."""
    found = []
    for pair in without_copies(group):
        _check(pair)
        (many, width), (count, other) = pair.a.stored.shape, pair.b.stored.shape
        m = min(many, count, rows or many)
        if m >= 2 and width == other:
            found.append(fixed_points(*fair_pair(pair, m)))
    if not found:
        raise DegenerateInput("no slice has two rows of equal width on both sides")
    return _unless_tied(counted("fixed_points", verbatim(role.value), found, NEURON_ORDER), group)


def head_test(role: Role, group: Sequence[tuple[Sample, Sample]]) -> EvidenceTest:
    """Count key/value heads whose nearest head in the other model stands at the same place."""
    found = [
        fixed_points(pair.a.values, pair.b.values)
        for pair in without_copies([SamplePair(role, None, None, one, two) for one, two in group])
        if pair.a.stored.shape == pair.b.stored.shape and len(pair.a.stored) > 1 and pair.finite
    ]
    if not found:
        raise DegenerateInput("the numbers of key/value heads differ, or there is only one")
    return counted("head_fixed_points", verbatim(role.value), found, HEAD_ORDER)


def token_test(a: Sample, b: Sample, ordered: OrderedAxes, seed: int) -> EvidenceTest:
    """Test the embeddings of the same token strings under permutation of residual dimensions."""
    _require_free_residual(ordered)
    one, two = _values(SamplePair(Role.EMBEDDING, None, None, a, b))
    if one.shape != two.shape:
        raise DegenerateInput("widths differ: {a} and {b}", a=one.shape[1], b=two.shape[1])
    if is_constant(one) or is_constant(two):
        raise DegenerateInput("the rows of one side are constant")
    null = joint_tail([(one, two)], seed=seed)
    test = _from_null("token_rows", Role.EMBEDDING, null, (1, 1), ONE_PERMUTATION, RESIDUAL_ORDER)
    test = _unless_tied(test, [SamplePair(Role.EMBEDDING, None, None, a, b)])
    return replace(test, assumptions=(*test.assumptions, Text("rows are paired by token string")))


def _unless_tied(test: EvidenceTest, group: Sequence[SamplePair]) -> EvidenceTest:
    if (test.log10_p or 0.0) <= STANDS_OUT:
        finite = [pair for pair in group if pair.finite]
        if (why := exchangeability.tied_alike(finite) or exchangeability.few_entries(finite)) is not None:
            raise DegenerateInput(why)
    return test


def _require_free_residual(ordered: OrderedAxes) -> None:
    if Axis.RESIDUAL in ordered:
        raise DegenerateInput(ordered[Axis.RESIDUAL])


def _check(pair: SamplePair) -> None:
    """Raise DegenerateInput for values that no test can use."""
    for side, sample in (("A", pair.a), ("B", pair.b)):
        if not sample.finite and pair.layer is None:
            raise DegenerateInput("NaN or infinity in what was read of {side}", side=side)
        if not sample.finite:
            raise DegenerateInput("NaN or infinity in what was read of {side} in layer {n}", side=side, n=pair.layer)
        check_magnitude(sample.largest, side)


def _values(pair: SamplePair) -> Block:
    _check(pair)
    return pair.a.values, pair.b.values


def matrix_block(pair: SamplePair, axis: int) -> Block | None:
    """Return the pair with the permuted axis last, or None where no correlation is defined."""
    if pair.a.stored.ndim != 2 or pair.b.stored.ndim != 2 or not pair.finite or pair.a.shape[1] != pair.b.shape[1]:
        return None
    if pair.role.info.axes[0] is Axis.RESIDUAL and pair.a.shape[0] != pair.b.shape[0]:
        return None
    _check(pair)
    rows, columns = (min(x, y) for x, y in zip(pair.a.stored.shape, pair.b.stored.shape, strict=True))
    one, two = fair_pair(pair, rows, columns)
    # taking means off at most doubles a value along either axis
    if is_constant(one, 4.0 * pair.a.largest) or is_constant(two, 4.0 * pair.b.largest):
        return None
    return (one, two) if axis == 1 else (one.T, two.T)


def is_constant(values: FloatArray, most: float | None = None) -> bool:
    """Whether all values are the same, up to rounding, or there are none; `most` is a magnitude that none exceeds, if known."""
    if not values.size:
        return True
    few = values[..., :64]  # if these spread more than rounding of any mean can, which is no larger than the length
    spread = float(few.max() - few.min())
    if most is not None and spread > 2.0 * NEAR_CONSTANT * most * math.sqrt(values.size):
        return False
    if spread > 2.0 * NEAR_CONSTANT * float(np.linalg.norm(values)):
        return False
    mean = float(values.mean())
    return bool(np.linalg.norm(values - mean) <= NEAR_CONSTANT * abs(mean))


def _from_null(
    name: str, role: Role, null: NullResult, blocks: tuple[int, int], permutation: Text, order: Text
) -> EvidenceTest:
    """Return the test of a correlation under a permutation null; `blocks` counts layers used, and layers there were."""
    used, total = blocks
    reason = None
    if used < total:
        reason = Text("{n} of {m} left out: NaN, infinity, constant values, unequal shapes", n=total - used, m=total)
    return EvidenceTest(
        name=name,
        scope=verbatim(role.value),
        statistic=None if null.z is None else null.mean + null.z * null.sd,
        null_mean=null.mean,
        null_sd=null.sd,
        z=null.z,
        log10_p=null.log10_p,
        n=null.n,
        blocks=used,
        null=permutation,
        p_method=null.p_method,
        p_detail=null.p_detail,
        assumptions=(order,),
        reason=reason,
    )


def counted(name: str, scope: Text, found: Sequence[FixedPoints], assumption: Text) -> EvidenceTest:
    """Return the test of a number of fixed points: mean and spread as of a random order, one expected in each layer."""
    total, layers = sum(item.count for item in found), len(found)
    return EvidenceTest(
        name=name,
        scope=scope,
        statistic=float(total),
        null_mean=float(layers),
        null_sd=math.sqrt(layers),
        z=(total - layers) / math.sqrt(layers),
        log10_p=log10_p_total(total, tuple(item.n for item in found)),
        n=sum(item.n for item in found),
        blocks=layers,
        null=Text("a random order in each layer"),
        p_method=PMethod.FACTORIAL,
        assumptions=(assumption,),
    )
