"""Compare windows at the same places of two models' large tensors, by bytes and by direction."""

import hashlib
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.arch import Role
from kinprint.arch.roles import BIASES
from kinprint.errors import DegenerateInput
from kinprint.formats.dtypes import Array
from kinprint.formats.plan import Run, TensorSlice
from kinprint.formats.tensors import TensorInfo
from kinprint.metrics import METRICS
from kinprint.model.reader import Want, take_rows
from kinprint.refs import join_runs
from kinprint.stats.moments import dot_moments
from kinprint.studies.opened import ModelWant, StudyRun
from kinprint.studies.origin import sigma
from kinprint.studies.origin.shared import EVERY, NORMS, control_pairs, norm_pair, summarised
from kinprint.studies.outcome import Cell, Missing, Section, columns
from kinprint.text import Text

CONTROL_ROLES = (Role.ATTN_K, Role.ATTN_V, Role.ATTN_Q, Role.ATTN_O, Role.ROUTER)
ROLES = (*CONTROL_ROLES[:4], *NORMS, Role.ROUTER, BIASES[Role.ROUTER])
COUNT, LENGTH, SEED = 3, 262_144, 0
"""Number and length of the windows as published; their places are the same whatever the study's seed."""

USED = 32_768  # elements of each window that are read by default; all of them with the long settings
OK, TRUNCATED = Text("ok"), Text("truncated to the smaller’s rows")
MISSING, MISMATCH = Text("missing in one or both models"), Text("shape mismatch")
UNDEFINED = Text("no direction: all zero")
BANDS = {100: Text("“definitive proof”"), 50: Text("“strong evidence”"), 20: Text("“moderate, not conclusive”")}
_ROWS = columns(
    "layer; role; status; shape_a: shape A; shape_b: shape B; n: elements; cosine .5; pearson .5; "
    "rel_rmse: relative RMSE .4; rows_cosine: cosine, whole rows .5; null_mean: if independent .5; null_sd: its sd .5; z; "
    "identical: windows equal byte for byte; constant: windows constant on a side; windows; "
    "sha256_a: SHA-256 of A’s first window; sha256_b: SHA-256 of B’s first window"
)
_SUMMARY = columns(
    "pair; role; status; layers; n: elements each; mean: mean cosine .5; sd: sd over layers .5; min: least .5; "
    "max: greatest .5; magnitude: mean |cosine| .5; magnitude_null: mean |cosine| if independent .5; "
    "rel_rmse: mean relative RMSE .3; z: root mean square z .2; identical: windows equal byte for byte; "
    "constant: windows constant on a side"
)


@dataclass(frozen=True)
class WindowRow:
    """One tensor of one layer of two models: which elements to read, and what was found. What does not apply is None."""

    layer: int
    role: Role
    status: Text
    shapes: tuple[tuple[int, ...] | None, tuple[int, ...] | None]
    runs: tuple[Run, ...] = ()  # of elements, counted along the flattened logical tensor
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


# -- what is read ------------------------------------------------------------------------------------------------------


def windows(tensor: TensorInfo, *, key: str, count: int, length: int, seed: int = 0) -> TensorSlice:
    """Select `count` windows of `length` elements at places given by a hash of (key, seed, window).

    Two tensors of equal size read with one key are read at the same places. Windows that overlap are merged, so no element
    counts twice; a tensor no larger than a window is read whole, once.
    """
    total = tensor.elements
    if total <= length:
        return TensorSlice(tensor, ((0, total),), (total,))
    starts = []
    for number in range(count):
        digest = hashlib.sha256(f"{key}|{seed}|{number}".encode()).digest()
        starts.append(int.from_bytes(digest[:8], "little") % (total - length + 1))
    runs = join_runs((start, start + length) for start in sorted(starts))
    return TensorSlice(tensor, tuple(runs), (sum(stop - start for start, stop in runs),))


def plan_windows(run: StudyRun, a: str, b: str, layer: int, role: Role) -> WindowRow:
    """Choose the elements to read of one tensor; pure.

    A tensor with more rows than its counterpart is cut to the smaller one's rows; other differences of shape are reported.
    """
    one, two = (run.part(name, role, layer) if run.holds(name, role, layer) else None for name in (a, b))
    shapes = (one.shape if one else None, two.shape if two else None)
    if one is None or two is None:
        return WindowRow(layer, role, MISSING, shapes)
    if one.shape[1:] != two.shape[1:] or (len(one.shape) == 1 and one.shape != two.shape):
        return WindowRow(layer, role, MISMATCH, shapes)
    smaller = min(one.shape, two.shape, key=math.prod)
    logical = TensorInfo(one.name, "U8", smaller, 0, 0, math.prod(smaller))
    runs = windows(logical, key=one.name, count=COUNT, length=LENGTH, seed=SEED).runs
    if not run.request.full and role.info.kind == "matrix":
        runs = tuple((start, min(stop, start + USED)) for start, stop in runs)
    return WindowRow(layer, role, OK if one.shape == two.shape else TRUNCATED, shapes, runs)


def wants(run: StudyRun, plan: WindowRow, names: tuple[str, str]) -> list[ModelWant]:
    """Return what to read for a plan; nothing if there is nothing to compare."""
    found = []
    for name in names if plan.runs else ():
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


# -- what is measured --------------------------------------------------------------------------------------------------


def measure(run: StudyRun, a: str, b: str, layers: Sequence[int], roles: Sequence[Role] = ROLES) -> Iterator[WindowRow]:
    """Compare two models window by window; one layer is held at a time, and the next is read meanwhile."""
    plans = [[plan_windows(run, a, b, layer, role) for role in roles] for layer in layers]
    groups = [list(itertools.chain.from_iterable(wants(run, plan, (a, b)) for plan in group)) for group in plans]
    for group, arrays in zip(plans, run.stream(groups), strict=True):
        left = iter(arrays)
        for plan in group:
            if not plan.runs:
                yield plan
                continue
            sides = [_cut(next(left), plan) for _ in range(2)]
            kinds = [run.stored(name, plan.role, plan.layer) for name in (a, b)]
            offsets = [run.part(name, plan.role, plan.layer).offset for name in (a, b)]
            yield _compare(plan, sides, kinds, offsets)


def _cut(values: Array, plan: WindowRow) -> Array:
    """Return the windows laid end to end; a tensor that was read whole is cut here."""
    flat = values.reshape(-1)
    if values.ndim == 1 and flat.size == sum(stop - start for start, stop in plan.runs):
        return flat
    return np.concatenate([flat[start:stop] for start, stop in plan.runs])


def _compare(plan: WindowRow, sides: Sequence[Array], kinds: Sequence[str], offsets: Sequence[float]) -> WindowRow:
    cuts = np.cumsum([stop - start for start, stop in plan.runs])[:-1]
    pieces = [np.split(side, cuts) for side in sides]
    hashed = [[stored_hash(piece, kind) for piece in side] for side, kind in zip(pieces, kinds, strict=True)]
    flat = [any((piece == piece[:1]).all() for piece in both) for both in zip(*pieces, strict=True)]
    alike = [kinds[0] == kinds[1] and x == y for x, y in zip(*hashed, strict=True)]
    identical = sum(same and not still for same, still in zip(alike, flat, strict=True))
    counts = {"identical": identical, "constant": sum(flat), "windows": len(flat)}
    hashes = hashed[0][0][:16], hashed[1][0][:16]
    row = replace(plan, status=UNDEFINED, n=sides[0].size, hashes=hashes, **counts)
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


def stored_hash(values: Array, kind: str) -> str:
    """Return SHA-256 of the bytes as stored; decoding is one to one, so the bytes can be recovered."""
    if kind == "BF16":
        values = (np.ascontiguousarray(values).view(np.uint32) >> 16).astype("<u2")
    elif kind == "F16":
        values = values.astype("<f2")
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()


def window_null(
    plan: WindowRow, left: FloatArray, right: FloatArray
) -> tuple[float | None, float | None, float | None]:
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


# -- what is reported --------------------------------------------------------------------------------------------------


def window_probe(run: StudyRun, section: Section, a: str, b: str) -> None:
    """Compare windows of the large tensors."""
    layers = _shared(run, a, b)
    rows = list(measure(run, a, b, layers, run.request.roles or ROLES))
    compared = {f"{a}–{b}": rows}
    for one, control in control_pairs(run):
        found = _control(run, one, control, section.missing)
        compared |= {f"{one}–{control}": found} if found else {}
    summary = _summary_rows(compared)
    section.add_table("window_summary", Text("By tensor"), _SUMMARY, summary)
    title = Text("Every tensor and layer, {a} (A) against {b} (B)", a=a, b=b)
    section.add_table("windows", title, _ROWS, [_row(row) for row in rows], shown=16)
    _add_notes(run, section, compared)
    shown = {name: [row for row in found if row.cosine is not None] for name, found in compared.items()}
    if first := shown[f"{a}–{b}"]:
        section.add_picture("window_histograms", "origin.window_histograms", f"{a}–{b}", first, a=a, b=b)
        section.add_picture("window_magnitudes", "origin.window_magnitudes", shown)
    section.comparable = len(layers) == 46
    section.values |= {f"{role} {status}": count for pair, role, status, count, *_ in summary if pair == f"{a}–{b}"}
    try:
        cosines = np.concatenate([norm_pair(run, a, b, role).cosine for role in NORMS])
        within = float(sigma.compute(run, a, b).within_b.mean())  # layer 0 against later layers of B
    except (Missing, DegenerateInput):
        return
    attention = column_of([row for row in rows if row.role in (Role.ATTN_K, Role.ATTN_V)], "cosine")
    attention_mean = float(attention.mean()) if attention.size else None
    scored = score(float(cosines.mean()), within, attention_mean, sum(row.identical for row in rows))
    title = Text("The “definitive” script’s score by its own rules, of 100")
    section.add_table("score", title, columns("rule; value .4; points"), scored)
    section.values["score"] = float(scored[-1][2])


def _shared(run: StudyRun, a: str, b: str) -> list[int]:
    asked = run.request.layers
    return [layer for layer in range(min(run.depth(a), run.depth(b))) if asked is None or layer in asked]


def _control(run: StudyRun, a: str, b: str, missing: list[Text]) -> list[WindowRow]:
    """Return the rows of a control on every fifth layer; none where its width differs, or nothing is stored in the windows."""
    n, m = run.width(a), run.width(b)
    if n != m:
        missing.append(Text("windows of {a} and {b} are not comparable: width {n} and {m}", a=a, b=b, n=n, m=m))
        return []
    roles = [role for role in CONTROL_ROLES if not run.request.roles or role in run.request.roles]
    try:
        rows = list(measure(run, a, b, _shared(run, a, b)[::EVERY], roles))
    except (Missing, DegenerateInput) as error:
        missing.append(Text("windows of {a} and {b}: {why}", a=a, b=b, why=error.message))
        return []
    if any(row.cosine is not None for row in rows):
        return rows
    missing.append(
        Text("windows of {a} and {b}: no tensor that both have in one shape and that is not all zero", a=a, b=b)
    )
    return []


def _add_notes(run: StudyRun, section: Section, compared: dict[str, list[WindowRow]]) -> None:
    rows = next(iter(compared.values()))
    section.note(
        "Matrices: {count} windows of {length} elements at places given by a hash of the tensor’s name, the first "
        "{used} of each used; windows that overlap are merged. Norms and biases are read whole and once. "
        "{identical} of {windows} windows are equal byte for byte (SHA-256); {constant} more are constant on a side and "
        "not counted.",
        count=COUNT,
        length=LENGTH,
        used=LENGTH if run.request.full else USED,
        **{name: sum(getattr(row, name) for row in rows) for name in ("identical", "windows", "constant")},
    )
    section.note(
        "The null permutes the residual dimensions (columns; rows of the attention output; experts of a bias) of "
        "one side, on the whole rows that lie in the windows. Mean and sd are exact. A cosine near 0 is what "
        "independent matrices have; a script that reads it as “retrained”, and a high norm cosine as “copied”, "
        "finds descent in any pair."
    )
    holes = {pair: dict.fromkeys(row.role.value for row in found if row.constant) for pair, found in compared.items()}
    listed = "; ".join(f"{pair}: {', '.join(roles)}" for pair, roles in holes.items() if roles)
    if run.request.replicas and listed:  # what replicas leave out reads as zero
        section.note(
            "Not modelled in the replicas where these windows lie, in some layers or all, and zero there: {listed}. "
            "Nothing follows from it for the models.",
            listed=listed,
        )


def _row(row: WindowRow) -> tuple[Cell, ...]:
    shapes = (None if shape is None else "×".join(map(str, shape)) for shape in row.shapes)
    values = (getattr(row, item.key) for item in _ROWS[5:16])
    return row.layer, row.role.value, row.status, *shapes, *values, *row.hashes


def column_of(rows: Sequence[WindowRow], name: str) -> FloatArray:
    """Return one field of all rows that have it."""
    return np.array([value for row in rows if (value := getattr(row, name)) is not None], dtype=np.float64)


def _summary_rows(compared: dict[str, list[WindowRow]]) -> list[tuple[Any, ...]]:
    """Return a row for each pair, role and status."""
    groups: dict[tuple[str, Role], dict[Text, list[WindowRow]]] = {}
    for pair, found in compared.items():
        for row in found:
            groups.setdefault((pair, row.role), {}).setdefault(row.status, []).append(row)
    made: list[tuple[Any, ...]] = []
    for (pair, role), status, rows in ((key, *item) for key, by_status in groups.items() for item in by_status.items()):
        cosines, scores = column_of(rows, "cosine"), column_of(rows, "z")
        cells: list[Cell] = [None] * 8
        if cosines.size:
            root = math.sqrt(float(np.square(scores).mean())) if scores.size else None
            error = float(column_of(rows, "rel_rmse").mean())
            magnitude = float(np.abs(cosines).mean()), expected_magnitude(rows)
            cells = [*summarised(cosines).values(), *magnitude, error, root]
        counts = sum(row.identical for row in rows), sum(row.constant for row in rows)
        made.append((pair, role.value, status, len(rows), rows[0].n, *cells, *counts))
    return made


def score(norm_mean: float, within_mean: float, attention_mean: float | None, identical: int) -> list[tuple[Any, ...]]:
    """Return what each rule of the “definitive” script gives, and the total: rule, value and points."""
    norm_points = (30 if norm_mean > within_mean + 0.05 else 10) if norm_mean > 0.95 else 0
    attention_points = 10 if attention_mean is not None and abs(attention_mean) < 0.01 else 0
    points = (100 if identical else 0, norm_points, attention_points)
    total = sum(points)
    band = next((name for least, name in BANDS.items() if total >= least), Text("“weak or none”"))
    return [
        (Text("identical bytes anywhere (constant windows apart): 100"), float(identical), points[0]),
        (Text("mean norm cosine above 0.95: 30 if 0.05 above the baseline, else 10"), norm_mean, points[1]),
        (Text("mean attention cosine within 0.01 of 0: 10"), attention_mean, points[2]),
        (Text("total, {band}", band=band), None, total),
    ]
