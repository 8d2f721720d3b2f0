"""Recall vectors in memory, and which of them are nearest to a query: exactly, every one read."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kinprint._util.cores import one_thread_for_products

Ids = NDArray[np.int64]
Matrix = NDArray[np.float32]

_SQUARE_WITHIN = 2e-3  # of the square of a vector's length from 1: `check_item` lets lengths differ by half of that


@dataclass(frozen=True)
class Part:
    """Vectors of one family: row i belongs to the entry ids[i]; ids ascend."""

    ids: Ids
    rows: Matrix


def nearest_rows(part: Part, query: Matrix, k: int, skipped: Ids) -> list[tuple[float, int]]:
    """Return cosine and id of the k rows nearest to a query of unit length, best first, without those skipped; exact."""
    with one_thread_for_products():
        scores = part.rows @ query
    scores[positions(part.ids, skipped)] = -np.inf
    at = np.flatnonzero(scores > -np.inf)
    if at.size > k:
        at = at[np.argpartition(-scores[at], k - 1)[:k]]
    # summed row by row: the same in whatever company a row stands
    exact = (part.rows[at].astype(np.float64) * query.astype(np.float64)).sum(axis=1)
    return sorted(zip(exact.tolist(), part.ids[at].tolist(), strict=True), key=lambda pair: (-pair[0], pair[1]))


def positions(ids: Ids, wanted: Ids) -> Ids:
    """Return where the wanted ids stand among ascending ones, ascending; those that are not there are left out."""
    at = np.searchsorted(ids, np.sort(wanted))
    near = at < ids.size
    at, sought = at[near], np.sort(wanted)[near]
    found: Ids = at[ids[at] == sought].astype(np.int64)
    return found


def joined_part(parts: Iterable[Part], width: int) -> Part:
    """Return several parts as one in memory; ids of later ones are larger."""
    given = list(parts)
    ids = [part.ids for part in given] or [np.empty(0, np.int64)]
    rows = [part.rows for part in given] or [np.empty((0, width), np.float32)]
    return Part(np.concatenate(ids), np.concatenate(rows))


def part_of(records: Iterable[tuple[int, bytes]], width: int) -> Part:
    """Make a part of ids and stored vectors; one of another width or length is left out, and `check` names it."""
    fitting = [(number, raw) for number, raw in records if len(raw) == 4 * width]
    ids = np.array([number for number, _ in fitting], np.int64)
    rows = np.frombuffer(b"".join(raw for _, raw in fitting), "<f4").reshape(-1, width)
    with np.errstate(over="ignore", invalid="ignore"):
        sound = np.abs(np.einsum("ij,ij->i", rows, rows) - 1.0) <= _SQUARE_WITHIN  # false for NaN as well
    return Part(ids, rows) if sound.all() else Part(ids[sound], rows[sound])
