"""A name for what was done to a matrix, with the reasons; "changed" whenever nothing more special is sure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kinprint.edits.pair import PairEdit
from kinprint.edits.rounding import is_float, stored_bits
from kinprint.edits.sparsity import Sparsity
from kinprint.text import Text

Name: TypeAlias = Literal[
    "identical",
    "cast",
    "scaled",
    "quantised",
    "pruned",
    "low_rank",
    "noise",
    "merged_or_reweighted",
    "changed",
    "unknown",
]

PRUNED = 0.05
"""Share of new zeros from which a child is called pruned; a few zeros come of themselves."""

KEPT = 0.95
"""Share of survivors that must be untouched, unless the zeros follow a pattern: quantising makes zeros too."""

MERGED_SLOPE = (0.1, 0.85)
MERGED_RESIDUAL = 0.2
MERGED_SPREAD = 0.05
"""A merge keeps one share of its parent in every row and adds much that is not of it. Training shrinks weights less evenly,
and rarely below 0.9 (0.899 at the least among the matrices of the demo family)."""

NOISE_SLOPE = 0.001
"""Distance of the slope from one within which noise counts as added to the parent and to nothing else."""


@dataclass(frozen=True)
class NamedEdit:
    """A name and why; ``symmetric`` if the same would be said with parent and child exchanged."""

    name: Name
    reasons: tuple[Text, ...]
    symmetric: bool = False


def name_edit(edit: PairEdit) -> Name:
    """Return the name alone; see `explain_edit`."""
    return explain_edit(edit).name


def explain_edit(edit: PairEdit) -> NamedEdit:
    """Return the most special name that is sure, else "changed"; "unknown" where nothing could be measured."""
    for rule in (_same, _undefined, _scaled, _quantised, _pruned, _low_rank, _noise, _merged):
        verdict = rule(edit)
        if verdict is not None:
            return verdict
    return _changed(edit)


def _same(edit: PairEdit) -> NamedEdit | None:
    same = edit.identity
    if same.cast is not None:
        return NamedEdit(
            "cast", (Text("equal after the cast from {a} to {b}", a=same.dtype_parent, b=same.dtype_child),)
        )
    if not same.same_values:
        return None
    if same.dtype_parent != same.dtype_child:
        return NamedEdit(
            "cast", (Text("equal values, stored as {a} and as {b}", a=same.dtype_parent, b=same.dtype_child),)
        )
    return NamedEdit(
        "identical", (Text("all bytes equal") if same.byte_identical else Text("equal values; signs of zeros differ"),)
    )


def _undefined(edit: PairEdit) -> NamedEdit | None:
    return NamedEdit("unknown", edit.limits) if edit.slope is None else None


def _scaled(edit: PairEdit) -> NamedEdit | None:
    if edit.common_scale is None:
        return None
    return NamedEdit("scaled", (Text("{x:.6g} times the parent, up to rounding", x=edit.common_scale),))


def _quantised(edit: PairEdit) -> NamedEdit | None:
    grid, same, slope = edit.grid, edit.identity, edit.slope
    if not is_float(same.dtype_child) and is_float(same.dtype_parent):
        if slope is not None and abs(slope.correlation or 0.0) > 0.5:
            reason = Text(
                "stored as {a}, correlated with the parent at {x:.3f}", a=same.dtype_child, x=slope.correlation
            )
            return NamedEdit("quantised", (reason,))
        return NamedEdit("unknown", (Text("stored as {a}: scales are kept elsewhere", a=same.dtype_child),))
    if not is_float(same.dtype_child) and not is_float(same.dtype_parent):
        return _both_quantised(edit)
    if grid is None or not grid.is_quantised:
        return None
    # the grid alone does not make the parent its origin
    if slope is None or (slope.correlation or 0.0) < 0.5:
        return None
    where = Text("a row") if grid.row_wise else Text("{m} neighbours", m=grid.group)
    return NamedEdit(
        "quantised",
        (
            Text(
                "{x:.0%} of groups on a grid of {n} levels ({b} bits) for {where}",
                x=grid.fitting_share,
                n=grid.levels,
                b=grid.bits,
                where=where,
            ),
            Text("{x:.1%} of the parent's values round to the child's", x=grid.rounded_share),
            Text("the parent is not on such a grid"),
        ),
    )


def _both_quantised(edit: PairEdit) -> NamedEdit | None:
    """Two quantised copies in different formats: whether they differ by more than the coarser one's rounding.

    In one format, two copies of one original have the same codes, so a difference there is a change of the weights.
    """
    same, slope = edit.identity, edit.slope
    bits = [stored_bits(dtype) for dtype in (same.dtype_parent, same.dtype_child)]
    known = [count for count in bits if count is not None]
    if len(known) < 2 or same.dtype_parent == same.dtype_child or slope is None or slope.correlation is None:
        return None
    apart = math.sqrt(max(0.0, 1.0 - slope.correlation**2))
    if slope.correlation < 0.5 or apart > 2.0 ** (1 - min(known)):
        return None
    return NamedEdit(
        "quantised",
        (
            Text("stored as {a} and as {b}", a=same.dtype_parent, b=same.dtype_child),
            Text("{x:.3f} of their size apart, no more than rounding to {n} bits leaves", x=apart, n=min(known)),
            Text("a change smaller than that could not be seen"),
        ),
        symmetric=True,
    )


def _pruned(edit: PairEdit) -> NamedEdit | None:
    zeros = edit.sparsity
    if zeros is None or zeros.new_zeros < PRUNED or zeros.survivors_equal is None:
        return None
    related = edit.slope is not None and (edit.slope.correlation or 0.0) > 0.5
    if zeros.survivors_equal < KEPT and not (zeros.pattern is not None and related):
        return None
    return NamedEdit(
        "pruned", (*_zero_reasons(zeros), Text("{x:.1%} of the others are the parent's", x=zeros.survivors_equal))
    )


def _zero_reasons(zeros: Sparsity) -> tuple[Text, ...]:
    reasons = [Text("{x:.1%} of elements became zero", x=zeros.new_zeros)]
    if zeros.pattern is not None:
        reasons.append(Text("in the pattern {p}", p=zeros.pattern))
    if zeros.small_first is not None:
        reasons.append(Text("a removed weight was smaller than a kept one in {x:.1%} of pairs", x=zeros.small_first))
    return tuple(reasons)


def _low_rank(edit: PairEdit) -> NamedEdit | None:
    found = edit.low_rank
    if found is None or not found.is_low_rank:
        return None
    if found.explained is None:
        said = Text("rank {n} of {m} explains all of the change", n=found.rank, m=found.side)
    else:
        said = Text("rank {n} of {m} explains {x:.1%} of the change", n=found.rank, m=found.side, x=found.explained)
    return NamedEdit("low_rank", (said, *found.limits))


def _noise(edit: PairEdit) -> NamedEdit | None:
    left, slope = edit.residual, edit.slope
    if left is None or slope is None or not left.white or abs(slope.slope - 1.0) > NOISE_SLOPE + 5.0 * slope.error:
        return None
    if (slope.correlation or 0.0) < 0.5:
        return None
    return NamedEdit(
        "noise",
        (
            Text("what was added is white, of root mean square {x:.3g}", x=left.level),
            Text("kurtosis {x:.2f}, rows correlated at z = {z:.1f}", x=left.kurtosis, z=left.row_z),
        ),
    )


def _merged(edit: PairEdit) -> NamedEdit | None:
    slope = edit.slope
    if slope is None or slope.spread is None:
        return None
    low, high = MERGED_SLOPE
    sure = slope.slope - 5.0 * slope.error > low and slope.slope + 5.0 * slope.error < high
    if not sure or slope.relative_residual < MERGED_RESIDUAL or slope.spread > MERGED_SPREAD:
        return None
    if edit.sparsity is not None and edit.sparsity.new_zeros > PRUNED:  # zeros shrink the slope too
        return None
    return NamedEdit(
        "merged_or_reweighted",
        (
            Text(
                "{x:.3f} ± {e:.2g} times the parent in every row (spread {s:.2g})",
                x=slope.slope,
                e=slope.error,
                s=slope.spread,
            ),
            Text("{x:.0%} of the norm is of other origin", x=slope.relative_residual),
        ),
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
