"""Multiply two stored tensors that are the factors of one matrix, as low-rank and factored checkpoints have them."""

from collections.abc import Collection, Mapping

import numpy as np

from kinprint.formats.dtypes import Array
from kinprint.formats.plan import TensorSlice, rows
from kinprint.formats.row_maker import entire, made_of
from kinprint.formats.tensors import TensorInfo, Tensors

ENDINGS = (
    (".u", ".v"), (".U", ".V"), (".u.weight", ".v.weight"), (".U.weight", ".V.weight"), (".weight_u", ".weight_v"),
    (".v", ".u"), (".V", ".U"), (".v.weight", ".u.weight"), (".V.weight", ".U.weight"), (".weight_v", ".weight_u"),
    (".u_proj.weight", ".v_proj.weight"), (".left", ".right"), (".left.weight", ".right.weight"),
    (".1.weight", ".0.weight"), (".weight_b", ".weight_a"), (".weight_a", ".weight_b"), (".B.weight", ".A.weight"),
    (".A.weight", ".B.weight"), (".b.weight", ".a.weight"), (".a.weight", ".b.weight"),
)  # fmt: skip
"""Endings of the left factor (out × rank) and of the right one (rank × in); a sequence applies its first matrix first,
and of u and v either may be the left one: shapes tell."""

MOST_ELEMENTS = 1 << 28  # of the right factor, which is read whole
BLOCK = 64  # rows multiplied at a time, always the same: a row is the same, bit for bit, whichever are read with it


def factor_pairs(shapes: Mapping[str, tuple[int, ...]], names: Collection[str]) -> dict[str, tuple[str, str]]:
    """Return the pairs of these tensors that multiply to one no smaller than their rank, by the name that one would have."""
    found: dict[str, tuple[str, str]] = {}
    known = set(names)
    for name in names:
        for left, right in ENDINGS:
            stem = name.removesuffix(left)
            other = stem + right
            if stem == name or other not in known or f"{stem}.weight" in shapes or f"{stem}.weight" in found:
                continue
            one, two = shapes[name], shapes[other]
            if (
                len(one) == len(two) == 2
                and 0 < one[1] == two[0] <= min(one[0], two[1])
                and np.prod(two) <= MOST_ELEMENTS
            ):
                found[f"{stem}.weight"] = name, other
    return found


def multiplied(tensors: Tensors, pairs: Mapping[str, tuple[str, str]]) -> Tensors:
    """Return the tensors with each pair as the matrix that it makes."""
    held = dict(tensors.stored())
    for name, (left, right) in pairs.items():
        one, two = tensors[left], tensors[right]
        del held[left], held[right]
        shape = one.shape[0], two.shape[1]
        held[name] = made_of(name, "F32", None, shape, _product, (one, _blocks), (two, entire))
    return Tensors(held)


def _blocks(left: TensorInfo, start: int, stop: int) -> TensorSlice:
    """Select the whole blocks of rows that hold these rows."""
    return rows(left, [(start // BLOCK * BLOCK, min(-(-stop // BLOCK) * BLOCK, left.shape[0]))])


def _product(start: int, stop: int, left: Array, right: Array) -> Array:
    wide = right.astype(np.float64)
    blocks = [left[at : at + BLOCK].astype(np.float64) @ wide for at in range(0, len(left), BLOCK)]
    return np.concatenate(blocks)[start % BLOCK :][: stop - start].astype(np.float32)
