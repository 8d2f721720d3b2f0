"""Rows of q and k in the order of Hugging Face, from files that keep the two rows of a rotated pair next to each other.

Rotary embedding turns pairs of a head's rows. Meta's own checkpoints, llama2.c and llama.cpp's conversions of several
architectures store the two rows of a pair as neighbours; Hugging Face stores the first halves of all pairs, then the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kinprint.formats.dtypes import Array
from kinprint.formats.plan import TensorSlice, rows
from kinprint.formats.tensors import TensorInfo

MAX_ROWS_IN_ORDER = 1 << 20  # of q, in all heads: the largest models have 2**15, and each row costs an index


def in_hugging_face_order(stored: TensorInfo, heads: int) -> TensorInfo:
    """Return q or k with its rows in the order of Hugging Face."""
    return stored._replace(start=0, end=stored.nbytes, made=ReorderedRotaryRows(stored, stored.shape[0] // heads))


@dataclass(frozen=True, slots=True)
class ReorderedRotaryRows:
    """Rows of q or k: first halves of all pairs of a head, then the second halves."""

    stored: TensorInfo  # the tensor in the file, in which the two rows of a pair are neighbours
    head_dim: int  # rows of a head

    def parts(self, start: int, stop: int) -> Sequence[TensorSlice]:
        """Return the stored rows that rows `start` to `stop` are."""
        wanted = np.sort(self._stored_rows(start, stop))
        if not wanted.size:
            return [rows(self.stored, [(0, 0)])]
        breaks = np.flatnonzero(np.diff(wanted) != 1)
        firsts = wanted[np.concatenate(([0], breaks + 1))].tolist()
        lasts = wanted[np.concatenate((breaks, [wanted.size - 1]))].tolist()
        return [rows(self.stored, [(first, last + 1) for first, last in zip(firsts, lasts, strict=True)])]

    def build(self, start: int, stop: int, parts: Sequence[Array]) -> Array:
        """Put the rows, which come as they are stored, in order."""
        (values,) = parts
        built = np.empty_like(values)
        built[np.argsort(self._stored_rows(start, stop))] = values
        return built

    def _stored_rows(self, start: int, stop: int) -> Array:
        head, within = np.divmod(np.arange(start, stop), self.head_dim)
        second, pair = np.divmod(within, self.head_dim // 2)
        stored: Array = head * self.head_dim + 2 * pair + second
        return stored
