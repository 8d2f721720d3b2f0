"""Reading a local model whole, decoded to float32, against plain reading of the same file from the page cache.

"Plain file reading" is one thread that takes the file batch by batch, as any program that wants all of it does, either with
`read()` into memory of the interpreter's choosing or with `readinto()` into one buffer that is used again. Both are shown, and
the goal is held against the faster of them. kinprint uses all cores, so plain reading by as many threads is shown too.

The goal is of reading: the stored bytes of every tensor, planned and delivered by the product. Decoding comes on top. F32 needs
none, so the same goal holds for it decoded. A BF16 number is stored in two bytes and decoded to four, so that twice as many
bytes are written as are read, and no way of reading it decoded comes near plain reading: the floor is the barest loop that
reads pieces into a buffer and widens them into another, and decoding is held against that.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.common import Cell, Goal, Report, finish, median, parser, timed
from kinprint.evidence.identity import BATCH_BYTES
from kinprint.formats.checkpoint import open_checkpoint
from kinprint.formats.plan import plan_reads, rows
from kinprint.formats.safetensors.writer import TensorSpec
from kinprint.lab.safetensors_files import write_dense
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings

GOAL = 0.8
QUICK_GOAL = 0.1  # a smoke test has no time to fill caches
BATCHES = (4_000_000, BATCH_BYTES)  # stored bytes held at a time
WIDTH, TENSORS = 4096, 16
_PIECE = 1 << 19
STORED, DECODED = "kinprint, stored bytes", "kinprint, decoded"
Way = Callable[[Path, int], object]


def _bits(height: int) -> npt.NDArray[np.uint16]:
    """Return BF16 bits of plain numbers."""
    return np.random.default_rng(0).integers(0x3C00, 0x3F80, (height, WIDTH), dtype=np.uint16)


def make(folder: Path, dtype: str, megabytes: int) -> Path:
    """Write a checkpoint of 16 matrices."""
    size = {"F32": 4, "BF16": 2}[dtype]
    bits = _bits(megabytes * 1_000_000 // (TENSORS * WIDTH * size))
    data = bits if dtype == "BF16" else (bits.astype(np.uint32) << 16).view(np.float32)
    specs = {
        f"model.layers.{number}.mlp.up_proj.weight": TensorSpec(dtype, bits.shape, data) for number in range(TENSORS)
    }
    folder.mkdir(parents=True)
    write_dense(folder / "model.safetensors", specs)
    return folder / "model.safetensors"


# -- plain -------------------------------------------------------------------------------------------------------------


def plain_read(path: Path, batch: int) -> None:
    """Read the file into new objects."""
    with path.open("rb", buffering=0) as stream:
        while stream.read(batch):
            pass


def plain_readinto(path: Path, batch: int) -> None:
    """Read the file into one buffer."""
    _read_span(path, batch, 0, path.stat().st_size)


def _read_span(path: Path, batch: int, start: int, stop: int) -> None:
    buffer = np.empty(batch, dtype=np.uint8).data
    with path.open("rb", buffering=0) as stream:
        stream.seek(start)
        while start < stop:
            start += stream.readinto(buffer[: min(batch, stop - start)]) or 0


def _widen_span(path: Path, batch: int, start: int, stop: int) -> None:
    """Read pieces, and make the upper halves of four-byte numbers of them, into one place."""
    raw = np.empty(_PIECE, dtype=np.uint8)
    out = np.zeros(2 * batch + 2, dtype=np.uint8)[2:].view("<u4")
    with path.open("rb", buffering=0) as stream:
        stream.seek(start)
        at = 0
        while start < stop:
            got = stream.readinto(raw[: min(_PIECE, stop - start, 2 * len(out) - at)].data) or 0
            out[at // 2 : (at + got) // 2] = raw[: got // 2 * 2].view("<u2")
            start, at = start + got, (at + got) % (2 * len(out))


def by_all_cores(span: Callable[[Path, int, int, int], None]) -> Way:
    """Return a way that lets each core do its share of the file."""

    def way(path: Path, batch: int) -> None:
        size, cores = path.stat().st_size, len(os.sched_getaffinity(0))
        edges = [size * number // cores // 2 * 2 for number in range(cores)] + [size]
        threads = [
            threading.Thread(target=span, args=(path, batch, edges[number], edges[number + 1]))
            for number in range(cores)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return way


def widen_alone(path: Path, batch: int) -> None:
    """Read and widen in one thread."""
    _widen_span(path, batch, 0, path.stat().st_size)


# -- kinprint ----------------------------------------------------------------------------------------------------------


def check(path: Path) -> None:
    """Stop the bench if a number comes out otherwise than it was made."""
    with Session(Settings(range_cache=None)) as session:
        checkpoint = open_checkpoint(str(path.parent), session)
        for tensor in checkpoint.tensors.values():
            (values,) = checkpoint.read([rows(tensor, [(0, tensor.shape[0])])])
            if not np.array_equal(values.view(np.uint32) >> 16, _bits(tensor.shape[0])):
                raise SystemExit(f"{tensor.name} of {path} was read otherwise than it was written")


def ours(path: Path, batch: int, *, decoded: bool = True) -> float:
    """Read every tensor through the product, as float32 or as it is stored; return the seconds without opening the model."""
    with Session(Settings(range_cache=None)) as session:
        checkpoint = open_checkpoint(str(path.parent), session)

        def read_all() -> None:
            for tensor in checkpoint.tensors.values():
                step = max(1, batch * tensor.shape[0] // tensor.nbytes)
                for first in range(0, tensor.shape[0], step):
                    wanted = [rows(tensor, [(first, min(tensor.shape[0], first + step))])]
                    if decoded:
                        checkpoint.read(wanted)
                    else:
                        session.read([(checkpoint.sources[0], span) for span in plan_reads(wanted).ranges])

        return timed(read_all)[0]


def race(path: Path, dtype: str, batch: int, times: int) -> dict[str, float]:
    """Let all ways run in turns; return the median seconds of each."""
    ways: dict[str, Way] = {
        "plain, read()": plain_read,
        "plain, readinto()": plain_readinto,
        "plain, readinto(), all cores": by_all_cores(_read_span),
    }
    if dtype == "BF16":
        ways |= {"floor: read and widen": widen_alone, "floor: the same, all cores": by_all_cores(_widen_span)}
    walls: dict[str, list[float]] = {name: [] for name in [*ways, STORED, DECODED]}
    for turn in range(times + 1):  # the first fills the page cache
        found = {name: timed(lambda way=way: way(path, batch))[0] for name, way in ways.items()}  # type: ignore[misc]
        found[STORED] = ours(path, batch, decoded=False)
        found[DECODED] = ours(path, batch)
        for name, wall in found.items() if turn else ():
            walls[name].append(wall)
    return {name: median(found) for name, found in walls.items()}


def _goals(dtype: str, batch: int, walls: dict[str, float], base: float, *, quick: bool) -> list[Goal]:
    """Judge the batches that the product reads whole models in; smaller ones are shown."""
    of, required = f"{dtype}, batches of {batch // 1_000_000} MB", quick or batch == BATCH_BYTES
    limit = QUICK_GOAL if quick else GOAL
    found = [Goal(f"{of}: reading, share of plain reading", base / walls[STORED], ">=", limit, required=required)]
    if dtype == "F32":
        share = base / walls[DECODED]
        return [*found, Goal(f"{of}: decoded, share of plain reading", share, ">=", limit, required=required)]
    floor = min(walls["floor: read and widen"], walls["floor: the same, all cores"])
    name = f"{of}: decoded, share of the widening floor"
    return [*found, Goal(name, floor / walls[DECODED], ">=", limit, required=required)]


def measure(*, quick: bool) -> Report:
    """Race on both types and both batch sizes."""
    table: list[dict[str, Cell]] = []
    goals: list[Goal] = []
    with tempfile.TemporaryDirectory(prefix="bench-local-") as folder:
        for dtype in ("F32", "BF16"):
            path = make(Path(folder) / dtype, dtype, 64 if quick else 800)
            check(path)
            size = path.stat().st_size / 1e9
            for batch in BATCHES[: 1 if quick else None]:
                walls = race(path, dtype, batch, 2 if quick else 7)
                base = min(walls["plain, read()"], walls["plain, readinto()"])
                for name, wall in walls.items():
                    row: dict[str, Cell] = {"stored as": dtype, "batch MB": batch // 1_000_000, "way": name}
                    table.append(row | {"GB/s": round(size / wall, 2), "share of plain": round(base / wall, 2)})
                goals += _goals(dtype, batch, walls, base, quick=quick)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)
    goals.append(Goal("peak memory, with what wrote the files", peak, "<=", 1000.0, "MB"))
    note = (
        "GB/s of stored bytes, medians of runs in turns. Shares are of the faster single-threaded plain way. BF16 doubles in "
        "size when it is decoded: the floor is the barest loop that reads and widens, into memory that is used again."
    )
    return Report("local_read", "Reading a local model", tuple(table), tuple(goals), (note,))


def main(argv: list[str] | None = None) -> int:
    """Measure and judge."""
    asked = parser("bench.local_read", __doc__).parse_args(argv)
    return finish([measure(quick=asked.quick)], asked.json)


if __name__ == "__main__":
    raise SystemExit(main())
