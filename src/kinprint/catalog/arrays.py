"""Recall vectors as contiguous arrays, searched exactly, and the side file that holds them memory-mapped.

The database is the truth; the side file is made from it and may be deleted at any time. Layout: a magic, the length of a JSON head,
the head, and for each family its ids (int64, ascending) and its vectors (float32), each beginning on a page. The database
remembers the head's token, so that a file of another catalog, or of another state of this one, is not used.
"""

import hashlib
import mmap
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from kinprint._util.cores import cores, on_all_cores, one_thread_for_products
from kinprint._util.files import replacing
from kinprint.fingerprints.recall import FAMILIES

Ids = NDArray[np.int64]
Matrix = NDArray[np.float32]

_MAGIC = b"kinrcl01"
_HEAD_CAP = 1 << 16
_BLOCK_ROWS = 1 << 14  # scores of a block stay in the cache while its best are looked for


@dataclass(frozen=True)
class Part:
    """Vectors of one family: row i belongs to the entry ids[i]; ids ascend."""

    ids: Ids
    rows: Matrix


def nearest_rows(part: Part, query: Matrix, k: int, skipped: Ids) -> list[tuple[float, int]]:
    """Return cosine and id of the k rows nearest to a query of unit length, best first, without those skipped; exact."""
    hidden = _positions(part.ids, skipped)
    count = part.rows.shape[0]
    bounds = np.linspace(0, count, cores() + 1).astype(int) if count > _BLOCK_ROWS else np.array([0, count])
    spans = list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))
    with one_thread_for_products():
        found = on_all_cores(lambda span: _best_in(part.rows, query, k, hidden, *span), spans)
    at = np.concatenate([rows for rows, _ in found])
    scores = np.concatenate([values for _, values in found])
    order = np.lexsort((at, -scores))[:k]
    exact = part.rows[at[order]].astype(np.float64) @ query.astype(np.float64)
    best = zip(exact.tolist(), part.ids[at[order]].tolist(), strict=True)
    return sorted(best, key=lambda pair: (-pair[0], pair[1]))


def _best_in(rows: Matrix, query: Matrix, k: int, hidden: Ids, start: int, stop: int) -> tuple[Ids, Matrix]:
    """Return row numbers and scores of the best k between two rows."""
    best_at: Ids = np.empty(0, np.int64)
    best: Matrix = np.empty(0, np.float32)
    least = -np.inf
    scores: Matrix = np.empty(_BLOCK_ROWS, np.float32)
    for first in range(start, stop, _BLOCK_ROWS):
        last = min(first + _BLOCK_ROWS, stop)
        block = scores[: last - first]
        np.dot(rows[first:last], query, out=block)
        lo, hi = np.searchsorted(hidden, (first, last))
        block[hidden[lo:hi] - first] = -np.inf
        better = np.flatnonzero(block > least)  # a row that holds NaN, in a damaged file, is never better
        if better.size == 0:
            continue
        best_at, best = np.concatenate([best_at, better + first]), np.concatenate([best, block[better]])
        if best.size > k:
            kept = np.argpartition(-best, k - 1)[:k]
            best_at, best = best_at[kept], best[kept]
            least = float(best.min())
    return best_at, best


def _positions(ids: Ids, wanted: Ids) -> Ids:
    """Return where the wanted ids stand among ascending ones, ascending; those that are not there are left out."""
    at = np.searchsorted(ids, np.sort(wanted))
    near = at < ids.size
    at, sought = at[near], np.sort(wanted)[near]
    found: Ids = at[ids[at] == sought].astype(np.int64)
    return found


def remaining(part: Part, gone: Ids) -> int:
    """Return how many of a part's entries are not gone."""
    return int(part.ids.size - _positions(part.ids, gone).size)


def joined_part(parts: Iterable[Part], width: int) -> Part:
    """Return several parts as one in memory; ids of later ones are larger."""
    given = list(parts)
    ids = [part.ids for part in given] or [np.empty(0, np.int64)]
    rows = [part.rows for part in given] or [np.empty((0, width), np.float32)]
    return Part(np.concatenate(ids), np.concatenate(rows))


def part_of(records: Iterable[tuple[int, bytes]], width: int) -> Part:
    """Make a part of ids and stored vectors; one of another width is left out, and `check` names it."""
    sound = [(number, raw) for number, raw in records if len(raw) == 4 * width]
    ids = np.array([number for number, _ in sound], np.int64)
    rows = np.frombuffer(b"".join(raw for _, raw in sound), "<f4").reshape(-1, width)
    return Part(ids, rows)


@dataclass(frozen=True)
class SideFile:
    """A side file that is open: the parts of all families, entries up to `last_id`, and what the database must know of it."""

    token: str
    last_id: int
    parts: Mapping[str, Part]


def write_side_file(target: Path, last_id: int, families: Mapping[str, Iterator[Part]]) -> str:
    """Write a side file whole, or not at all; return its token, with the digest of all that follows the head."""
    digest, table = hashlib.sha256(), []
    with replacing(target) as temporary, temporary.open("wb") as file:
        at = _HEAD_CAP
        for family, parts in families.items():
            start, ids = at, []
            file.seek(start)
            for part in parts:
                digest.update(part.rows.data)
                file.write(part.rows.data)
                ids.append(part.ids)
                at += part.rows.nbytes
            numbers = np.concatenate([*ids, np.empty(0, np.int64)]).astype("<i8")
            digest.update(numbers.data)
            at = _page(at)
            file.seek(at)
            file.write(numbers.data)
            table.append([family, FAMILIES[family], int(numbers.size), start, at])
            at = _page(at + numbers.nbytes)
        file.truncate(at)
        token = f"{secrets.token_hex(8)}:{digest.hexdigest()}"
        head = orjson.dumps({"token": token, "last_id": last_id, "bytes": at, "families": table})
        file.seek(0)
        file.write(_MAGIC + len(head).to_bytes(8, "little") + head)
        file.flush()
        os.fsync(file.fileno())
    return token


def _page(at: int) -> int:
    return -(-at // mmap.PAGESIZE) * mmap.PAGESIZE


def read_side_file(path: Path, token: str) -> SideFile | None:
    """Open a side file without reading its arrays; None if it is not there, or not the one that the database knows."""
    try:
        with path.open("rb") as file:
            head = _head(file.read(_HEAD_CAP))
            if head is None or head.token != token or os.fstat(file.fileno()).st_size != head.size:
                return None
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):  # gone, empty, or not to be read: the vectors are in the database
        return None
    parts = {}
    for family, width, count, start, ids_at in head.families:
        ids = np.frombuffer(mapped, "<i8", count, ids_at)
        parts[family] = Part(ids, np.frombuffer(mapped, "<f4", count * width, start).reshape(count, width))
    return SideFile(token, head.last_id, parts)


def side_file_sound(side: SideFile) -> bool:
    """Read a whole side file and hold it against the digest in its token."""
    digest = hashlib.sha256()
    for part in side.parts.values():
        digest.update(part.rows.data)
        digest.update(part.ids.data)
    return digest.hexdigest() == side.token.partition(":")[2]


class _Head(NamedTuple):
    token: str
    last_id: int
    size: int
    families: list[tuple[str, int, int, int, int]]  # name, width, number of vectors, place of the vectors, of the ids


def _head(raw: bytes) -> _Head | None:
    """Return the head if it is one, with arrays of this program's families inside the file."""
    if raw[: len(_MAGIC)] != _MAGIC:
        return None
    length = int.from_bytes(raw[8:16], "little")
    try:
        head = orjson.loads(raw[16 : 16 + length])
        table = [(str(f), int(w), int(n), int(a), int(b)) for f, w, n, a, b in head["families"]]
        made = _Head(str(head["token"]), int(head["last_id"]), int(head["bytes"]), table)
    except (KeyError, TypeError, ValueError):
        return None
    for family, width, count, start, ids_at in table:
        fits = count >= 0 and start >= _HEAD_CAP and start + 4 * count * width <= ids_at
        if FAMILIES.get(family) != width or not fits or ids_at + 8 * count > made.size:
            return None
    return made
