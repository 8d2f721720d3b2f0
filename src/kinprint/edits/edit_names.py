"""Name what was done to a matrix, with the reasons; "changed" whenever nothing more special is sure."""

import math
from dataclasses import replace
from typing import Literal, TypeAlias

from kinprint._util.records import dataclass
from kinprint.edits.pair import PairEdit
from kinprint.edits.quantisation_grids import ROUNDED, GridFit
from kinprint.edits.rounding import ZERO_LEVEL, is_float, stored_bits
from kinprint.text import Text

Name: TypeAlias = Literal[
    "identical", "cast", "scaled", "rescaled", "quantised", "pruned", "truncated", "low_rank", "noise",
    "merged_or_reweighted", "changed", "unknown",
]  # fmt: skip
"""The most special first."""

PRUNED = 0.05  # share of new zeros from which a child is called pruned; a few zeros come of themselves
KEPT = 0.95  # share of survivors that must be untouched, unless the zeros follow a pattern: quantising makes zeros too
MERGED_SLOPE = (0.1, 0.85)
MERGED_RESIDUAL = 0.2
MERGED_SPREAD = 0.05
"""A merge keeps one share of its parent in every row and adds much that is not of it. Training shrinks weights less evenly,
and rarely below 0.9 (0.899 at the least among the matrices of the demo family)."""

ABOVE_ROUNDING = 3.0  # noise of fewer rounding errors of a grid is not told from training that the grid hides
CODED = 0.9
"""Correlation of codes without scales with the parent's values from which rounding may explain them: rows differ in scale."""

NOISE_SLOPE = 0.001
"""Distance of the slope from one within which noise counts as added to the parent and to nothing else."""


@dataclass(frozen=True)
class NamedEdit:
    """A name and why; ``symmetric`` if the same would be said with parent and child exchanged."""

    # ``bits`` is the width of a code that the child was rounded to, be that all that was done ("quantised") or not.
    name: Name
    reasons: tuple[Text, ...]
    symmetric: bool = False
    bits: int | None = None


def explain_edit(edit: PairEdit) -> NamedEdit:
    """Return the most special name that is sure, else "changed"; "unknown" where nothing could be measured."""
    for rule in (_same, _undefined, _scaled, _rescaled, _quantised, _pruned, _truncated, _low_rank, _noise, _merged):
        verdict = rule(edit)
        if verdict is not None:
            break
    else:
        verdict = _changed(edit)
    grid = edit.grid
    if verdict.name == "unknown" or grid is None or not grid.is_quantised or not _correlated(edit):
        return verdict
    explained = verdict.name == "quantised" or grid.factor is not None
    reasons = verdict.reasons if explained else (*verdict.reasons, *_rounding(grid))
    return replace(verdict, bits=grid.bits, reasons=reasons)


def _named(name: Name, *reasons: Text, symmetric: bool = False) -> NamedEdit:
    return NamedEdit(name, reasons, symmetric)


def _same(edit: PairEdit) -> NamedEdit | None:
    same = edit.identity
    if same.through is not None:
        return _named("cast", Text("equal after a cast to {a} and back", a=same.through))
    if same.cast is not None:
        return _named("cast", Text("equal after the cast from {a} to {b}", a=same.dtype_parent, b=same.dtype_child))
    if not same.same_values:
        return None
    if same.dtype_parent != same.dtype_child:
        return _named("cast", Text("equal values, stored as {a} and as {b}", a=same.dtype_parent, b=same.dtype_child))
    reason = Text("all bytes equal") if same.byte_identical else Text("equal values; signs of zeros differ")
    return _named("identical", reason)


def _undefined(edit: PairEdit) -> NamedEdit | None:
    return NamedEdit("unknown", edit.limits) if edit.slope is None else None


def _scaled(edit: PairEdit) -> NamedEdit | None:
    if edit.common_scale is None or (edit.sparsity is not None and edit.sparsity.new_zeros >= PRUNED):
        return None
    return _named("scaled", Text("{x:.6g} times the parent, up to rounding", x=edit.common_scale))


def _rescaled(edit: PairEdit) -> NamedEdit | None:
    if edit.rescaling is None:
        return None
    r, s = edit.rescaling.rows, edit.rescaling.columns
    said = Text("factors for rows (spread {r:.2g}) and columns (spread {s:.2g}) explain it up to rounding", r=r, s=s)
    return _named("rescaled", said, symmetric=True)


def _correlated(edit: PairEdit) -> bool:
    """Whether the parent explains enough of the child to be its origin."""
    return edit.slope is not None and (edit.slope.correlation or 0.0) >= 0.5


def _quantised(edit: PairEdit) -> NamedEdit | None:
    """Name rounding, if the parent's values round to nearly all of the child's; the grid alone does not make it the origin."""
    grid, same = edit.grid, edit.identity
    if not is_float(same.dtype_child):
        if not is_float(same.dtype_parent):
            return _both_quantised(edit)
        if grid is None or grid.rounded_share is None:
            return _codes(edit)
    if grid is None or not grid.is_quantised or (grid.rounded_share or 0.0) < ROUNDED or not _correlated(edit):
        return None
    if grid.factor is not None:
        return _named("scaled", Text("{x:.6g} times the parent, up to rounding", x=grid.factor), *_rounding(grid))
    if edit.low_rank is not None and edit.low_rank.is_low_rank:  # rounding has no rank
        return None
    return _named("quantised", *_rounding(grid))


def _rounding(grid: GridFit) -> tuple[Text, ...]:
    """Describe a child's grid, and what of the child rounding explains."""
    rounded = Text("{x:.1%} of the parent's values round to the child's", x=grid.rounded_share)
    if grid.levels is None:
        return (*grid.limits, rounded)
    where = Text("a row") if grid.row_wise else Text("{m} neighbours", m=grid.group)
    found = {"x": grid.fitting_share, "n": grid.levels, "b": grid.bits, "where": where}
    return (
        Text("{x:.0%} of groups on a grid of {n} levels ({b} bits) for {where}", **found),
        rounded,
        Text("the parent is not on such a grid"),
    )


def _codes(edit: PairEdit) -> NamedEdit | None:
    """Name codes whose scales are not at hand: what a scale for each row explains is all that can be said."""
    dtype, slope = edit.identity.dtype_child, edit.slope
    if slope is not None and abs(slope.correlation or 0.0) > 0.5:
        said = Text("stored as {a}, correlated with the parent at {x:.3f}", a=dtype, x=slope.correlation)
        # codes of at least four bits keep a parent's rows to a hundredth; what is farther away was changed
        return _named("quantised", said) if abs(slope.correlation or 0.0) >= CODED else None
    return _named("unknown", Text("stored as {a}: scales are kept elsewhere", a=dtype))


def _both_quantised(edit: PairEdit) -> NamedEdit | None:
    """Two quantised copies in different formats: whether they differ by more than the coarser one's rounding."""
    # In one format, two copies of one original have the same codes, so a difference there is a change of the weights.
    same, slope = edit.identity, edit.slope
    bits = [count for count in map(stored_bits, (same.dtype_parent, same.dtype_child)) if count is not None]
    if len(bits) < 2 or same.dtype_parent == same.dtype_child or slope is None or slope.correlation is None:
        return None
    apart = math.sqrt(max(0.0, 1.0 - slope.correlation**2))
    if slope.correlation < 0.5 or apart > 2.0 ** (1 - min(bits)):
        return None
    return _named(
        "quantised",
        Text("stored as {a} and as {b}", a=same.dtype_parent, b=same.dtype_child),
        Text("{x:.3f} of their size apart, no more than rounding to {n} bits leaves", x=apart, n=min(bits)),
        Text("a change smaller than that could not be seen"),
        symmetric=True,
    )


def _pruned(edit: PairEdit) -> NamedEdit | None:
    zeros = edit.sparsity
    if zeros is None or zeros.new_zeros < PRUNED or zeros.survivors_equal is None:
        return None
    related = edit.slope is not None and (edit.slope.correlation or 0.0) > 0.5
    quantised = edit.grid is not None and edit.grid.is_quantised  # its zeros are those of the grid, unless most are
    near = (zeros.survivors_near or 0.0) if edit.common_scale is None else 1.0
    if quantised and edit.grid is not None:
        near = max(near, edit.grid.kept_share or 0.0)
    if quantised and (zeros.new_zeros < ZERO_LEVEL or near < KEPT):
        return None
    if max(zeros.survivors_equal, near) < KEPT and not (zeros.pattern is not None and related):
        return None
    reasons = [Text("{x:.1%} of elements became zero", x=zeros.new_zeros)]
    if zeros.pattern is not None:
        reasons.append(Text("in the pattern {p}", p=zeros.pattern))
    if zeros.small_first is not None:
        reasons.append(Text("a removed weight was smaller than a kept one in {x:.1%} of pairs", x=zeros.small_first))
    reasons.append(Text("{x:.1%} of the others are the parent's", x=zeros.survivors_equal))
    if edit.common_scale is not None:
        reasons.append(Text("{x:.6g} times the parent, up to rounding", x=edit.common_scale))
    elif zeros.survivors_equal < KEPT and zeros.survivors_near is not None:
        reasons.append(Text("{x:.1%} as near as eight bits would leave them", x=zeros.survivors_near))
    return _named("pruned", *reasons)


def _truncated(edit: PairEdit) -> NamedEdit | None:
    found = edit.truncation
    if found is None:
        return None
    n, m = found.rank, found.side
    said = Text("of rank {n}, which {m} rows and columns show, while the parent is not", n=n, m=m)
    left = Text("the parent cut to these directions leaves {x:.1%} of the change", x=found.left)
    return _named("truncated", said, left)


def _low_rank(edit: PairEdit) -> NamedEdit | None:
    found = edit.low_rank
    if found is None or not found.is_low_rank:
        return None
    if found.explained is None:
        said = Text("rank {n} of {m} explains all of the change", n=found.rank, m=found.side)
    else:
        said = Text("rank {n} of {m} explains {x:.1%} of the change", n=found.rank, m=found.side, x=found.explained)
    return _named("low_rank", said, *found.limits)


def _noise(edit: PairEdit) -> NamedEdit | None:
    left, slope = edit.residual, edit.slope
    if left is None or slope is None or not left.white or abs(slope.slope - 1.0) > NOISE_SLOPE + 5.0 * slope.error:
        return None
    grid = edit.grid
    if grid is not None and grid.is_quantised and left.level < ABOVE_ROUNDING * (grid.rounding or 0.0):
        return None
    if not _correlated(edit):
        return None
    return _named(
        "noise",
        Text("what was added is white, of root mean square {x:.3g}", x=left.level),
        Text("kurtosis {x:.2f}, rows correlated at z = {z:.1f}", x=left.kurtosis, z=left.row_z),
    )


def _merged(edit: PairEdit) -> NamedEdit | None:
    slope = edit.slope
    if slope is None or slope.spread is None:
        return None
    x, e, s = slope.slope, slope.error, slope.spread
    sure = x - 5.0 * e > MERGED_SLOPE[0] and x + 5.0 * e < MERGED_SLOPE[1]
    if not sure or slope.relative_residual < MERGED_RESIDUAL or s > MERGED_SPREAD:
        return None
    zeros = edit.sparsity  # they shrink the slope too
    if zeros is not None and max(zeros.new_zeros, zeros.parent_zeros - zeros.child_zeros) > PRUNED:
        return None
    return _named(
        "merged_or_reweighted",
        Text("{x:.3f} ± {e:.2g} times the parent in every row (spread {s:.2g})", x=x, e=e, s=s),
        Text("{x:.0%} of the norm is of other origin", x=slope.relative_residual),
    )


def _changed(edit: PairEdit) -> NamedEdit:
    slope, reasons = edit.slope, [Text("{x:.1%} of elements differ", x=edit.identity.changed_share)]
    if slope is not None:
        reasons.append(Text("slope {x:.3f}, relative residual {y:.2g}", x=slope.slope, y=slope.relative_residual))
        if abs(slope.correlation or 0.0) < 5.0 / (edit.shape[0] * edit.shape[1]) ** 0.5:
            reasons.append(Text("no linear relation to the parent is seen"))
    if edit.low_rank is not None:
        reasons.extend(edit.low_rank.limits)
    return NamedEdit("changed", (*reasons, *edit.limits))
