"""Test roles by signs: a second family of exact tests, for which places may have any meaning."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from kinprint._util.numeric import FloatArray, spaced_places
from kinprint.arch import Axis, Role
from kinprint.arch.roles import MLPS
from kinprint.errors import DegenerateInput
from kinprint.evidence.exact_tests import matrix_block
from kinprint.evidence.exchangeability import Block, without_copies
from kinprint.evidence.probe import Probe, SamplePair
from kinprint.results.findings import SIGN_FLIPS, EvidenceTest
from kinprint.results.p_values import PMethod
from kinprint.stats.sign_flips import one_coin, sign_flips, unit_products
from kinprint.text import Text, verbatim

UNITS = 1024  # of one layer: 10⁻²²² can be reached with one layer's, and copies among them are searched in a moment

LEAST_COINS = 64  # a copy reaches 10⁻¹³ with so many, which Holm's correction leaves below the threshold

_GATES = {role: mlp.gate for mlp in MLPS for role in (mlp.up, mlp.down)}
_VALUES = (Role.ATTN_V, Role.ATTN_O)
_SIGNED = (*_GATES, *_VALUES)
COINS = {
    Axis.RESIDUAL: Text("a random sign for each residual dimension, the same in all layers"),
    Axis.NEURON: Text("a random sign for each neuron"),
    Axis.HEAD: Text("a random sign for each value channel"),
}
EVEN = Text("random starts and training treat both signs of a unit alike")


NEGATED_RMS = 0.7
"""Cosine of units up to sign from which they are the same units: independent ones of 32 entries or more stay below 0.3."""

NEGATED_SHARE = 0.1  # of agreement up to sign, with the other sign: units with nothing in common leave 0.05 at most


def negated_units(tests: Iterable[EvidenceTest], axis: Axis) -> list[str]:
    """Return the roles whose units along an axis are those of the other model, but for the signs of some."""
    return [
        str(test.scope)
        for test in tests
        if test.name == SIGN_FLIPS and test.null == COINS[axis] and test.n and (test.negated or 0.0) > NEGATED_SHARE
        if (test.null_sd or 0.0) >= NEGATED_RMS * math.sqrt(test.n)
    ]


def signs_undone(pair: SamplePair, tests: Iterable[EvidenceTest]) -> SamplePair:
    """Return slices of a role with B's units in the signs of A's, where the signs of such units were changed."""
    axis = next((at for at in (0, 1) if pair.role.info.axes[at] in (Axis.NEURON, Axis.HEAD)), None)
    if axis is None or pair.role not in _SIGNED or not negated_units(tests, pair.role.info.axes[axis]):
        return pair
    products = np.sum(pair.a.values * pair.b.values, axis=1 - axis, keepdims=True)
    signs = np.where(products < 0.0, -1, 1).astype(pair.b.stored.dtype)
    return replace(pair, b=replace(pair.b, stored=pair.b.stored * signs))


def sign_axis(role: Role, probes: Sequence[Probe], ordered: Mapping[Axis, Text]) -> int | None:
    """Return the axis of a role (0 rows, 1 columns) whose units may change their signs in both models; None if there is none."""
    # Columns first, as every slice holds all of them, while rows are a sample.
    if role.info.kind != "matrix" or role.info.axes.count(Axis.RESIDUAL) > 1 or role.info.axes[0] is Axis.POSITION:
        return None
    for position in (1, 0):
        axis = role.info.axes[position]
        if axis is Axis.RESIDUAL and axis not in ordered and all(probe.mean_free for probe in probes):
            return position
        if axis is Axis.NEURON and role in _GATES and all(probe.has((_GATES[role],)) for probe in probes):
            return position
        if axis is Axis.HEAD and role in _VALUES and all(probe.kv_heads for probe in probes):
            return position
    return None


def sign_test(role: Role, position: int, group: Sequence[SamplePair], probes: tuple[Probe, Probe]) -> EvidenceTest:
    """Test the signs of a role's units, along the axis that has the symmetry, in all layers."""
    axis = role.info.axes[position]
    residual = axis is Axis.RESIDUAL
    places = group if residual else without_copies(group)
    channels = role is Role.ATTN_O and axis is Axis.HEAD
    blocks, rows = [], []
    for block in (block for place in places if (block := matrix_block(place, position)) is not None):
        blocks.append(_some_units(_channels(block, probes) if channels else block, scaled=residual))
        rows += [_across(*block)] if residual else []
    if not blocks:
        raise DegenerateInput("no slice has equal shapes, finite and varying values on both sides")
    across = None
    if residual:  # one coin serves all layers
        coins = np.concatenate(rows)
        across = sign_flips(coins).log10_p if coins.size >= LEAST_COINS else None
        alike = [block for block in blocks if block[0].shape[1] == blocks[0][0].shape[1]]
        blocks = [(np.concatenate([one for one, _ in alike]), np.concatenate([two for _, two in alike]))]
    r = np.concatenate([one_coin(*block, unit_products(*block)) for block in blocks])
    found = sign_flips(r)
    # of a large layer few units are left if a recipe made most of them zero or copies: then order may not speak alone
    small = r.size < LEAST_COINS or Axis.TOKEN in role.info.axes  # rows of unused tokens are all alike
    if found.n < LEAST_COINS and small:
        raise DegenerateInput("only {n} units could change their signs: too few to be sure of seeing a copy", n=found.n)
    return EvidenceTest(
        name=SIGN_FLIPS,
        scope=verbatim(role.value),
        statistic=found.statistic,
        null_mean=0.0,
        null_sd=found.sd,
        z=found.z,
        log10_p=found.log10_p if across is None else max(found.log10_p, across),
        n=found.n,
        blocks=len(places),
        null=COINS[axis],
        p_method=PMethod.HOEFFDING,
        assumptions=(EVEN,),
        negated=float(np.abs(r[r < 0.0]).sum() / np.abs(r).sum()) if found.n else None,
    )


def _across(one: FloatArray, two: FloatArray) -> FloatArray:
    """Return the products of rows across the residual stream, each with a coin of its own."""
    # Where all rows of both models lie in one subspace, as a public projection makes them, residual dimensions are not drawn one by
    # one, and sums over them scatter more than their coins say, either way. Rows are drawn one by one all the same.
    return one_coin(one.T, two.T, unit_products(one.T, two.T))


def _channels(block: Block, probes: Sequence[Probe]) -> Block:
    """Lay out the columns of o by value channel: query heads of one group share the channels of their value head."""
    one, two = block
    channels = {probe.value_channels for probe in probes}
    if len(channels) != 1 or not (count := channels.pop()) or one.shape[1] % count:
        raise DegenerateInput("it is not known which columns belong to one value head")
    return _by_channel(one, count, probes[0].kv_heads or 1), _by_channel(two, count, probes[1].kv_heads or 1)


def _by_channel(X: FloatArray, channels: int, kv_heads: int) -> FloatArray:
    size = channels // kv_heads
    groups = X.reshape(len(X), kv_heads, -1, size)  # (rows, value head, query head of the group, channel)
    return np.ascontiguousarray(groups.transpose(0, 2, 1, 3)).reshape(-1, channels)


def _some_units(block: Block, *, scaled: bool) -> Block:
    """Return up to `UNITS` evenly spaced units (columns); `scaled` gives each layer the same weight, whatever its scale."""
    count = block[0].shape[1]
    taken = spaced_places(count, UNITS) if count > UNITS else slice(None)
    scales = [math.sqrt(float(np.vdot(x, x)) / x.size) or 1.0 if scaled else 1.0 for x in block]
    one, two = (x[:, taken] / scale for x, scale in zip(block, scales, strict=True))
    return one, two
