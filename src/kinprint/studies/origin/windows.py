"""The window probe of the first accusation: the same places of the large tensors, compared by bytes and by direction."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.arch import Role
from kinprint.errors import DegenerateInput
from kinprint.formats.dtypes import Array
from kinprint.formats.plan import Run, windows
from kinprint.formats.tensors import TensorInfo
from kinprint.metrics import METRICS
from kinprint.model.reader import Want, take_rows
from kinprint.stats.moments import dot_moments
from kinprint.studies.opened import ModelWant, StudyRun
from kinprint.text import Text

TENSORS = {
    Role.ATTN_K: "self_attn.k_proj.weight",
    Role.ATTN_V: "self_attn.v_proj.weight",
    Role.ATTN_Q: "self_attn.q_proj.weight",
    Role.ATTN_O: "self_attn.o_proj.weight",
    Role.INPUT_NORM: "input_layernorm.weight",
    Role.POST_ATTENTION_NORM: "post_attention_layernorm.weight",
    Role.ROUTER: "mlp.gate.weight",
    Role.ROUTER_BIAS: "mlp.gate.e_score_correction_bias",
}
"""The tensors looked at, under the names of the publication."""

ROLES = tuple(TENSORS)
COUNT, LENGTH, SEED = 3, 262_144, 0
"""Number and length of the windows as published; their places are the same whatever the study's seed."""

USED = 32_768
"""Elements of each window that are read by default; all of them with the long settings."""

OK, TRUNCATED = Text("ok"), Text("truncated to the smaller’s rows")
MISSING, MISMATCH = Text("missing in one or both models"), Text("shape mismatch")
UNDEFINED = Text("no direction: all zero")


@dataclass(frozen=True)
class Plan:
    """One tensor of two models: which elements to read, counted along the flattened logical tensor."""

    layer: int
    role: Role
    status: Text
    shapes: tuple[tuple[int, ...] | None, tuple[int, ...] | None]
    runs: tuple[Run, ...] = ()


@dataclass(frozen=True)
class WindowRow:
    """What was found for one tensor of one layer. What does not apply is None."""

    plan: Plan
    status: Text
    n: int = 0
    cosine: float | None = None
    pearson: float | None = None
    rel_rmse: float | None = None
    rows_cosine: float | None = None  # on whole rows of the windows, where the null is exact
    null_mean: float | None = None
    null_sd: float | None = None
    identical: int = 0  # equal byte for byte, and not constant
    constant: int = 0  # one value throughout, on one side or both: equal bytes would say nothing
    windows: int = 0
    hashes: tuple[str, str] = ("", "")

    @property
    def z(self) -> float | None:
        """How far the cosine of whole rows lies from independence."""
        if self.rows_cosine is None or self.null_mean is None or not self.null_sd:
            return None
        return (self.rows_cosine - self.null_mean) / self.null_sd


def plan_windows(run: StudyRun, a: str, b: str, layer: int, role: Role) -> Plan:
    """Choose the elements to read of one tensor; pure.

    A tensor with more rows than its counterpart is cut to the smaller one's rows; other differences of shape are reported.
    """
    one, two = (run.part(name, role, layer) if run.holds(name, role, layer) else None for name in (a, b))
    shapes = (one.shape if one else None, two.shape if two else None)
    if one is None or two is None:
        return Plan(layer, role, MISSING, shapes)
    if one.shape[1:] != two.shape[1:] or (len(one.shape) == 1 and one.shape != two.shape):
        return Plan(layer, role, MISMATCH, shapes)
    smaller = min((one, two), key=lambda part: math.prod(part.shape))
    logical = TensorInfo(one.name, "U8", smaller.shape, 0, 0, math.prod(smaller.shape))
    runs = windows(logical, key=one.name, count=COUNT, length=LENGTH, seed=SEED).runs
    if not run.request.full and role.info.kind == "matrix":
        runs = tuple((start, min(stop, start + USED)) for start, stop in runs)
    return Plan(layer, role, OK if one.shape == two.shape else TRUNCATED, shapes, runs)


def wants(run: StudyRun, plan: Plan, names: tuple[str, str]) -> list[ModelWant]:
    """Return what to read for a plan; nothing if there is nothing to compare."""
    if not plan.runs:
        return []
    found = []
    for name in names:
        part = run.part(name, plan.role, plan.layer)
        if part.transposed:  # a window of the logical tensor is scattered in the stored one, which is small
            found.append((name, Want(plan.role, plan.layer)))
            continue
        tensor = run.model(name).checkpoint.tensors[part.name]
        width = math.prod(tensor.shape[1:])
        intervals = [(start * width, stop * width) for start, stop in part.rows or ((0, tensor.shape[0]),)]
        stored = [run for wanted in plan.runs for run in take_rows(intervals, wanted)]
        found.append((name, Want(plan.role, plan.layer, elements=tuple(stored))))
    return found


def measure(run: StudyRun, a: str, b: str, layers: Sequence[int], roles: Sequence[Role] = ROLES) -> Iterator[WindowRow]:
    """Compare two models window by window; one layer is held at a time, and the next is on its way."""
    plans = [[plan_windows(run, a, b, layer, role) for role in roles] for layer in layers]
    groups = [list(itertools.chain.from_iterable(wants(run, plan, (a, b)) for plan in group)) for group in plans]
    for group, arrays in zip(plans, run.stream(groups), strict=True):
        left = iter(arrays)
        for plan in group:
            if not plan.runs:
                yield WindowRow(plan, plan.status)
                continue
            sides = [_cut(next(left), plan) for _ in range(2)]
            kinds = (run.stored(a, plan.role, plan.layer), run.stored(b, plan.role, plan.layer))
            offsets = [run.part(name, plan.role, plan.layer).offset for name in (a, b)]
            yield _compare(plan, sides, kinds, offsets)


def _cut(values: Array, plan: Plan) -> Array:
    """Return the windows laid end to end; a tensor that was read whole is cut here."""
    count = sum(stop - start for start, stop in plan.runs)
    flat = values.reshape(-1)
    if values.ndim == 1 and flat.size == count:
        return flat
    return np.concatenate([flat[start:stop] for start, stop in plan.runs])


def _compare(plan: Plan, sides: Sequence[Array], kinds: tuple[str, str], offsets: Sequence[float]) -> WindowRow:
    cuts = np.cumsum([stop - start for start, stop in plan.runs])[:-1]
    pieces = [np.split(side, cuts) for side in sides]
    hashed = [[stored_hash(piece, kind) for piece in side] for side, kind in zip(pieces, kinds, strict=True)]
    flat = [any(_is_constant(piece) for piece in both) for both in zip(*pieces, strict=True)]
    alike = [kinds[0] == kinds[1] and x == y for x, y in zip(*hashed, strict=True)]
    identical = sum(same and not still for same, still in zip(alike, flat, strict=True))
    counts = {"identical": identical, "constant": sum(flat), "windows": len(flat)}
    row = WindowRow(plan, UNDEFINED, sides[0].size, hashes=(hashed[0][0][:16], hashed[1][0][:16]), **counts)
    left, right = (side.astype(np.float64) + offset for side, offset in zip(sides, offsets, strict=True))
    try:
        cosine, rmse = METRICS["cosine"](left, right), METRICS["rel_rmse"](left, right)
    except DegenerateInput:
        return row
    try:
        pearson: float | None = METRICS["pearson"](left, right)
    except DegenerateInput:
        pearson = None
    on_rows, mean, sd = window_null(plan, left, right)
    row = replace(row, status=plan.status, cosine=cosine, pearson=pearson, rel_rmse=rmse)
    return replace(row, rows_cosine=on_rows, null_mean=mean, null_sd=sd)


def _is_constant(values: Array) -> bool:
    return bool((values == values[:1]).all())


def stored_hash(values: Array, kind: str) -> str:
    """Return SHA-256 of the bytes as stored; decoding is one to one, so they can be had back."""
    if kind == "BF16":
        values = (np.ascontiguousarray(values).view(np.uint32) >> 16).astype("<u2")
    elif kind == "F16":
        values = values.astype("<f2")
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()


def window_null(plan: Plan, left: FloatArray, right: FloatArray) -> tuple[float | None, float | None, float | None]:
    """Return the cosine on whole rows, and its mean and sd over permutations of an axis that has no order of its own."""
    axes = plan.role.info.axes
    if len(axes) == 1:
        A, B = left[None, :], right[None, :]
        free = axes[0].exchangeable
    else:
        shape = plan.shapes[0]
        assert shape is not None  # only plans with runs come here
        A, B = (whole_rows(side, plan.runs, shape[1]) for side in (left, right))
        free = axes[1].exchangeable or axes[0].exchangeable
        if not axes[1].exchangeable:  # out of attention: the rows are the residual dimensions
            A, B = A.T, B.T
    lengths = float(np.linalg.norm(A)) * float(np.linalg.norm(B))
    if not free or lengths == 0.0 or A.shape[1] < 2:
        return None, None, None
    moments = dot_moments(A, B, shape=False)
    return float(np.vdot(A, B)) / lengths, moments.mean / lengths, moments.sd / lengths


def whole_rows(values: FloatArray, runs: Sequence[Run], width: int) -> FloatArray:
    """Return the complete rows that lie in the windows."""
    found, at = [], 0
    for start, stop in runs:
        first = at + -start % width
        count = max(0, (at + stop - start - first) // width)
        found.append(values[first : first + count * width].reshape(count, width))
        at += stop - start
    return np.concatenate(found)


def expected_magnitude(rows: Sequence[WindowRow]) -> float | None:
    """Return the mean |cosine| of independent pairs with these nulls (a folded normal)."""
    found = []
    for row in rows:
        if row.null_mean is not None and row.null_sd:
            scale = row.null_sd * math.sqrt(2)
            ratio = row.null_mean / scale
            found.append(scale / math.sqrt(math.pi) * math.exp(-(ratio**2)) + row.null_mean * math.erf(ratio))
    return float(np.mean(found)) if found else None
