"""Compute every metric on pairs of tensors, each beside its permutation null."""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.arch import Axis, Role
from kinprint.arch.roles import permuted_axis
from kinprint.comparison.selection import Pair
from kinprint.errors import DegenerateInput, UnsupportedDtype
from kinprint.formats.dtypes import FLOATS, Array
from kinprint.metrics import Metric
from kinprint.metrics.explain import CosineIdentity, can_be_explained, cosine_identities, cosine_identity
from kinprint.metrics.identity import mean_steps, on_grid, ordinals
from kinprint.model.reader import Sample
from kinprint.results import measurements
from kinprint.results.measurements import OK, CosineExplained, Measurement, NullResult, TensorComparison, TensorSide
from kinprint.stats.dot_products import DOT_KINDS
from kinprint.stats.moments import as_rows, check_magnitude, pairs_at_once
from kinprint.stats.shared import PermutationNulls
from kinprint.text import Text

CHUNK = 1 << 16  # elements of one side measured together: a few passes over them stay in the cache
KERNEL_UNITS = 128  # units of the permuted axis that CKA looks at: its kernels grow with the square of their number


Job = tuple[Pair, Sample, Sample]  # a pair to be measured, with both sides as read


def in_chunks(jobs: Sequence[Job]) -> list[list[int]]:
    """Group jobs of one role and shape, by their numbers: their nulls are computed together, as many as fit the cache."""
    alike: dict[tuple[Role, tuple[int, ...]], list[int]] = {}
    for number, (pair, sample, _) in enumerate(jobs):
        alike.setdefault((pair.role, sample.stored.shape), []).append(number)
    chunks = []
    for (_, shape), numbers in alike.items():
        step = pairs_at_once(math.prod(shape[:-1]), math.prod(shape[-1:]), CHUNK)
        chunks += [numbers[start : start + step] for start in range(0, len(numbers), step)]
    return chunks


def measure(
    jobs: Sequence[Job], metrics: Sequence[Metric], *, seed: int, ordered: Mapping[Axis, Text] = MappingProxyType({})
) -> list[TensorComparison]:
    """Compare pairs of tensors of one role and shape by all `metrics`. Nothing that cannot be computed becomes a number."""
    axis, axis_name = permuted_axis(jobs[0][0].role, ordered)
    reasons = [_why_not(a, b) for _, a, b in jobs]
    usable = [k for k, reason in enumerate(reasons) if reason is None]
    found: dict[int, list[Measurement]] = {k: [] for k in usable}
    explained: dict[int, CosineExplained | None] = {}
    if usable:
        stack = _PairStack([jobs[k][1:] for k in usable], axis, axis_name, seed)
        kind = "matrix" if jobs[0][1].stored.ndim == 2 else "vector"
        for metric in metrics:
            if kind in metric.kinds:
                for k, measured in zip(usable, stack.run(metric), strict=True):
                    found[k].append(measured)
        explained = dict(zip(usable, stack.explained(), strict=True))
    shown = axis_name if axis is not None else None
    return [_compared(job, reasons[k], found.get(k, []), shown, explained.get(k)) for k, job in enumerate(jobs)]


def _compared(
    job: Job, reason: Text | None, measured: Sequence[Measurement], axis: str | None, explained: CosineExplained | None
) -> TensorComparison:
    pair, a, b = job
    if reason is None and not any(item.status in (OK, measurements.NO_NULL) for item in measured):
        reason = measured[0].reason if measured else Text("no metric fits")
    side_a, side_b = (
        TensorSide(part.name, sample.dtype, part.shape, _nonfinite(sample))
        for part, sample in ((pair.a, a), (pair.b, b))
    )
    return TensorComparison(
        role=pair.role.value,
        layer=pair.layer,
        expert=pair.expert,
        a=side_a,
        b=side_b,
        status=OK if reason is None else measurements.NOT_COMPARABLE,
        reason=reason,
        rows=pair.rows,
        columns=pair.columns,
        elements=int(a.stored.size),
        permuted_axis=axis,
        measurements=tuple(measured),
        explained=explained,
    )


def not_compared(pair: Pair, dtype_a: str, dtype_b: str) -> TensorComparison:
    """Return the record of a pair whose shapes rule a comparison out."""
    a, b = TensorSide(pair.a.name, dtype_a, pair.a.shape), TensorSide(pair.b.name, dtype_b, pair.b.shape)
    return TensorComparison(pair.role.value, pair.layer, pair.expert, a, b, measurements.NOT_COMPARABLE, pair.reason)


def _nonfinite(sample: Sample) -> int:
    return 0 if sample.finite else int(sample.stored.size - np.isfinite(sample.stored).sum())


def _why_not(a: Sample, b: Sample) -> Text | None:
    """Return why two tensors cannot be compared: NaN, or, in a hostile file, values whose powers leave float64."""
    bad_a, bad_b, n = _nonfinite(a), _nonfinite(b), a.stored.size
    if bad_a or bad_b:
        return Text("NaN or infinity in {a} of {n} values of A and {b} of {n} values of B", a=bad_a, n=n, b=bad_b)
    try:
        check_magnitude(a.largest, "A")
        check_magnitude(b.largest, "B")
    except DegenerateInput as error:
        return error.reason
    return None


def _explained(parts: CosineIdentity) -> CosineExplained | None:
    if parts.r is None or parts.predicted is None or parts.cv_a is None or parts.cv_b is None:
        return None
    assert parts.if_independent is not None
    return CosineExplained(parts.r, parts.cv_a, parts.cv_b, parts.predicted, parts.observed, parts.if_independent)


class _PairStack:
    """Pairs of one shape laid out so that the last axis is the one permuted, with what their nulls share computed once."""

    def __init__(self, sides: Sequence[tuple[Sample, Sample]], axis: int | None, axis_name: Text, seed: int) -> None:
        self._pairs = [_TensorPair(a, b, axis, axis_name, seed) for a, b in sides]
        left, right = (np.stack(side) for side in zip(*(pair.rows for pair in self._pairs), strict=True))
        self._flat = left.reshape(len(sides), -1), right.reshape(len(sides), -1)
        self._nulls = PermutationNulls(left, right, seed=seed) if axis is not None else None

    def run(self, metric: Metric) -> list[Measurement]:
        """Return values and nulls of all pairs, or why there are none."""
        values: Sequence[float | None] = [None] * len(self._pairs)
        if metric.stacked:
            try:
                values = known = metric.each(*self._flat)
                if self._nulls is not None and metric.null in DOT_KINDS:
                    nulls = self._nulls.each(metric.null, observed=known, higher_is_closer=metric.higher_is_closer)
                    return [_measured(metric, value, null) for value, null in zip(known, nulls, strict=True)]
            except DegenerateInput:
                pass  # one of them has no value or no null: which, and why, is found below
        return [pair.run(metric, value) for pair, value in zip(self._pairs, values, strict=True)]

    def explained(self) -> list[CosineExplained | None]:
        """Take the cosines apart, where both sides have a direction and a mean."""
        if not can_be_explained(*self._flat):
            return [None] * len(self._pairs)
        try:
            return [_explained(parts) for parts in cosine_identities(*self._flat)]
        except DegenerateInput:
            return [pair.explained() for pair in self._pairs]


def _measured(metric: Metric, value: float, null: NullResult) -> Measurement:
    shown = (value, null.mean, null.sd, null.z or 0.0, null.log10_p or 0.0)
    if not all(map(math.isfinite, shown)):
        return _out_of_range(metric)
    return Measurement(metric.name, OK, value, null)


def _out_of_range(metric: Metric) -> Measurement:
    reason = Text("{metric}: a figure leaves the range of float64", metric=metric.name)
    return Measurement(metric.name, measurements.NOT_COMPARABLE, reason=reason)


class _TensorPair:
    """One pair of tensors, laid out for its metrics and nulls."""

    def __init__(self, a: Sample, b: Sample, axis: int | None, axis_name: Text, seed: int) -> None:
        self._axis_name = axis_name
        self._a, self._b = (
            _units_last(a.values, axis),
            _units_last(b.values, axis),
        )  # as the model uses them: converted once
        self._stored = _units_last(a.stored, axis), _units_last(b.stored, axis)
        dtypes = {a.dtype, b.dtype}
        # FLOATS runs from fine to coarse, except that F16 and BF16 do not nest: BF16 has fewer digits and counts as coarser
        self._grid = max(dtypes, key=FLOATS.index) if dtypes <= set(FLOATS) else None
        self._same_dtype = len(dtypes) == 1
        self._seed = seed
        self._nulls = PermutationNulls(*(X[None] for X in self.rows), seed=seed) if axis is not None else None

    @property
    def rows(self) -> tuple[FloatArray, FloatArray]:
        """Both sides as (rows, units)."""
        return as_rows(self._a), as_rows(self._b)

    def run(self, metric: Metric, known: float | None) -> Measurement:
        """Return the value, unless it is known, and its null, or why there is none."""
        try:
            value, null = self._evaluate(metric, known)
        except (DegenerateInput, UnsupportedDtype) as error:
            return Measurement(metric.name, measurements.NOT_COMPARABLE, reason=error.reason)
        if null is not None:
            return _measured(metric, value, null)
        if not math.isfinite(value):
            return _out_of_range(metric)
        reason = Text("no axis may be permuted: {why}", why=self._axis_name)
        return Measurement(metric.name, measurements.NO_NULL, value, reason=reason)

    def explained(self) -> CosineExplained | None:
        """Take the cosine apart."""
        try:
            return _explained(cosine_identity(self._a, self._b))
        except DegenerateInput:
            return None

    def _evaluate(self, metric: Metric, known: float | None) -> tuple[float, NullResult | None]:
        if metric.null == "ulp":
            return self._ulps(metric)
        a, b = self._a, self._b
        if metric.null in ("changed", "identity"):
            a, b = self._stored
        elif metric.kinds == ("matrix",):
            a, b = a[:, :KERNEL_UNITS].T, b[:, :KERNEL_UNITS].T
        options = {"same_dtype": self._same_dtype} if metric.null == "identity" else {}
        value = metric(a, b, **options) if known is None else known
        if self._nulls is None:
            return value, None
        closer = metric.higher_is_closer
        return value, self._nulls.get(metric.null, a, b, observed=value, higher_is_closer=closer, statistic=metric)

    def _ulps(self, metric: Metric) -> tuple[float, NullResult | None]:
        if self._grid is None:
            raise DegenerateInput("ulp_distance: expected floating-point storage on both sides")
        # also of what is stored in that format: a tensor that is made of codes and scales lies between its numbers
        a, b = (ordinals(on_grid(values, self._grid), self._grid) for values in self._stored)
        value = mean_steps(a, b)
        if self._nulls is None:
            return value, None
        return value, self._nulls.get("ulp", a, b, observed=value, higher_is_closer=metric.higher_is_closer)


def _units_last(values: Array, axis: int | None) -> Array:
    return values.T if values.ndim == 2 and axis == 0 else values
