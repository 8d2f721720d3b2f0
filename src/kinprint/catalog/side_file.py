"""The side file of a catalog: recall vectors rounded twice, memory-mapped, that find all entries which may be the nearest.

The database is the truth; the side file is made from it and may be deleted at any time. Layout: a magic, the length of a JSON head,
the head, and for each family, from a page on, blocks of BLOCK entries: their ids (int64, ascending), their pairs, and their vectors
in steps of 1/FINE (int16). The database remembers the head's token, so that a file of another catalog, or of another state of
this one, is not used.

Reading is what recall costs, so the first look is at two bytes a number: vectors 2i and 2i + 1, in steps of 1/COARSE, share one
float32 as BASE · first + second. Their product with a query in the same steps is a whole number below 2²⁴, exact in any order of
summation, and its two digits are the two scores. The second look is at the finer steps of those that the first leaves open. What
rounding changes at most is known (`_margin`), so that the nearest are certainly among those left, and the database has
their exact vectors.
"""

import hashlib
import mmap
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from kinprint._util.cores import cores, on_all_cores, one_thread_for_products
from kinprint._util.files import replacing
from kinprint.catalog.arrays import Ids, Matrix, Part, positions
from kinprint.fingerprints.recall import FAMILIES

BLOCK = 1 << 15  # an even number; scores of a block stay in the cache while its best are looked for
COARSE, BASE, FINE = 40, 4096, 32_000
_TO_BASE = np.float32(1.5 * 2**23 * BASE)  # added and taken off again, it rounds to the next multiple of BASE
_LONGEST = 1.2  # a vector in coarse steps: 1, and what rounding up to 64 numbers adds
_SLACK = 1e-5  # of single precision
_MAGIC = b"kinrcl02"
_HEAD_CAP = 1 << 16


class Block(NamedTuple):
    """Entries of one family: row i of `fine`, and half of row i // 2 of `pairs`, belong to ids[i]."""

    ids: Ids
    pairs: Matrix
    fine: NDArray[np.int16]

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Return what is stored, in its order."""
        return self.ids, self.pairs, self.fine

    @staticmethod
    def of(part: Part) -> "Block":
        """Round the vectors of a part."""
        count, width = part.rows.shape
        steps = np.zeros((count + count % 2, width), np.float32)
        np.rint(COARSE * part.rows, out=steps[:count])
        fine = np.rint(FINE * part.rows).astype("<i2")
        return Block(part.ids.astype("<i8"), (BASE * steps[0::2] + steps[1::2]).astype("<f4"), fine)


def ids_near(blocks: Sequence[Block], query: Matrix, k: int, skipped: Ids) -> Ids:
    """Return the ids of the k vectors nearest to a query, and of those that may be as near, without those skipped."""
    query = query / np.linalg.norm(query)
    share = max(1, -(-len(blocks) // cores()))
    spans = [blocks[first : first + share] for first in range(0, len(blocks), share)]
    with one_thread_for_products():
        found = on_all_cores(lambda span: _Looking(query, k).through(span, skipped), spans)
    ids = np.concatenate([np.empty(0, np.int64), *(one.ids for one in found)])
    scores = np.concatenate([np.empty(0, np.float32), *(one.scores for one in found)])
    return ids[scores >= _last(scores, k) - 2 * _margin(query, FINE)]


class _Looking:
    """Those of the blocks seen so far that may be among the nearest k, with their scores in fine steps."""

    def __init__(self, query: Matrix, k: int) -> None:
        self.query, self.k = query, k
        self.asked = np.rint(COARSE * query)
        self.fine = _margin(query, FINE)
        # |x·q − x̃·q̃| ≤ |x − x̃||q| + |x̃||q − q̃|
        self.coarse = _margin(query, COARSE) + _LONGEST * float(np.linalg.norm(self.asked / COARSE - query)) + self.fine
        self.ids: Ids = np.empty(0, np.int64)
        self.scores: Matrix = np.empty(0, np.float32)
        self.least = -np.inf  # a score that k vectors are known to have

    def through(self, blocks: Sequence[Block], skipped: Ids) -> "_Looking":
        for block in blocks:
            hidden = positions(block.ids, skipped)
            at = self._first_look(block, hidden)
            if at.size == 0:
                continue
            scores = block.fine[at].astype(np.float32) @ self.query / np.float32(FINE)
            self.ids = np.concatenate([self.ids, block.ids[at]])
            self.scores = np.concatenate([self.scores, scores])
            self.least = max(self.least, _last(self.scores, self.k))
            open_ = self.scores >= self.least - 2 * self.fine
            self.ids, self.scores = self.ids[open_], self.scores[open_]
        return self

    def _first_look(self, block: Block, hidden: Ids) -> Ids:
        """Return which of a block may have a fine score that keeps them; fine scores lie within `coarse` of those of pairs."""
        count = block.ids.size
        second = block.pairs @ self.asked
        first = second + _TO_BASE
        first -= _TO_BASE
        second -= first
        if self.least == -np.inf and count > self.k + hidden.size:
            every = np.concatenate([first / BASE, second])[:count]
            self.least = _last(every, self.k + hidden.size) / COARSE**2 - self.coarse
        bound = (self.least - 2 * self.fine - self.coarse) * COARSE**2
        at = np.concatenate([2 * np.flatnonzero(first >= bound * BASE), 2 * np.flatnonzero(second >= bound) + 1])
        at = at[at < count]  # the last row may have no neighbour
        return np.sort(at[~np.isin(at, hidden)] if hidden.size else at)


def _last(scores: Matrix, k: int) -> float:
    """Return the k-th best score; −∞ of fewer."""
    return float(np.partition(scores, -k)[-k]) if scores.size >= k else -np.inf


def _margin(query: Matrix, steps: int) -> float:
    """Return how much rounding a vector to 1/steps can change its product with a query."""
    return float(np.sqrt(query.size) / 2 / steps * np.linalg.norm(query)) + _SLACK


@dataclass(frozen=True)
class SideFile:
    """A side file that is open: the blocks of all families, entries up to `last_id`, and what the database must know of it."""

    token: str
    last_id: int
    families: Mapping[str, Sequence[Block]]

    def count(self, family: str, gone: Ids) -> int:
        """Return how many entries of a family are not gone."""
        return sum(block.ids.size - positions(block.ids, gone).size for block in self.families.get(family, ()))

    def sound(self) -> bool:
        """Read the whole file and hold it against the digest in its token."""
        digest = hashlib.sha256()
        for blocks in self.families.values():
            for block in blocks:
                for array in block.arrays():
                    digest.update(array.data)
        return digest.hexdigest() == self.token.partition(":")[2]


def write_side_file(target: Path, last_id: int, families: Mapping[str, Iterator[Part]]) -> str:
    """Write parts of BLOCK entries, the last of fewer, whole or not at all; return the token, with the digest of all blocks."""
    digest, table, at = hashlib.sha256(), [], _HEAD_CAP
    with replacing(target) as temporary, temporary.open("wb") as file:
        for family, parts in families.items():
            width, count = FAMILIES[family], 0
            start = at = _page(at)
            for part in parts:
                for array, place in zip(Block.of(part).arrays(), _places(at, width), strict=True):
                    file.seek(place)
                    file.write(array.data)
                    digest.update(array.data)
                count += part.ids.size
                at += _stride(width)
            table.append([family, width, count, start])
        file.truncate(at)
        token = f"{secrets.token_hex(8)}:{digest.hexdigest()}"
        head = orjson.dumps({"token": token, "last_id": last_id, "bytes": at, "families": table})
        file.seek(0)
        file.write(_MAGIC + len(head).to_bytes(8, "little") + head)
        file.flush()
        os.fsync(file.fileno())
    return token


def _stride(width: int) -> int:
    return BLOCK * (8 + 4 * width)


def _places(start: int, width: int) -> tuple[int, int, int]:
    """Return where ids, pairs and fine vectors of a block begin."""
    return start, start + 8 * BLOCK, start + 8 * BLOCK + 2 * BLOCK * width


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
    return SideFile(
        token,
        head.last_id,
        {
            family: [
                _block(mapped, start + number * _stride(width), width, min(BLOCK, count - number * BLOCK))
                for number in range(_blocks(count))
            ]
            for family, width, count, start in head.families
        },
    )


def _blocks(count: int) -> int:
    return -(-count // BLOCK)


def _block(mapped: mmap.mmap, start: int, width: int, count: int) -> Block:
    ids_at, pairs_at, fine_at = _places(start, width)
    half = -(-count // 2)
    return Block(
        np.frombuffer(mapped, "<i8", count, ids_at),
        np.frombuffer(mapped, "<f4", half * width, pairs_at).reshape(half, width),
        np.frombuffer(mapped, "<i2", count * width, fine_at).reshape(count, width),
    )


class _Head(NamedTuple):
    token: str
    last_id: int
    size: int
    families: list[tuple[str, int, int, int]]  # name, width, number of vectors, place of the first block


def _head(raw: bytes) -> _Head | None:
    """Return the head if it is one, with blocks of this program's families inside the file."""
    if raw[: len(_MAGIC)] != _MAGIC:
        return None
    length = int.from_bytes(raw[8:16], "little")
    try:
        head = orjson.loads(raw[16 : 16 + length])
        table = [(str(f), int(w), int(n), int(a)) for f, w, n, a in head["families"]]
        made = _Head(str(head["token"]), int(head["last_id"]), int(head["bytes"]), table)
    except (KeyError, TypeError, ValueError):
        return None
    for family, width, count, start in table:
        fits = count >= 0 and start >= _HEAD_CAP and start + _blocks(count) * _stride(width) <= made.size
        if FAMILIES.get(family) != width or not fits:
            return None
    return made
