"""Reading a local model whole, decoded, against plain reading of the same file from the page cache.

python -m bench.local_read [--quick]
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from kinprint.formats.checkpoint import open_checkpoint
from kinprint.formats.plan import rows
from kinprint.formats.writing import TensorSpec, write_dense
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings

GOAL = 0.8
BATCH_BYTES = 4_000_000  # of stored bytes held at a time, as the product does when it compares whole models


def make(folder: Path, dtype: str, megabytes: int) -> Path:
    """Write a checkpoint of 16 matrices."""
    width = 4096
    size = {"F32": 4, "BF16": 2}[dtype]
    count = 16
    height = megabytes * 1_000_000 // (count * width * size)
    bits = np.random.default_rng(0).integers(
        0x3C00, 0x3F80, (height, width), dtype=np.uint16
    )  # BF16 bits of plain numbers
    data = bits if dtype == "BF16" else (bits.astype(np.uint32) << 16).view(np.float32)
    specs = {f"model.layers.{i}.mlp.up_proj.weight": TensorSpec(dtype, (height, width), data) for i in range(count)}
    folder.mkdir(parents=True)
    write_dense(folder / "model.safetensors", specs)
    return folder / "model.safetensors"


def plain(path: Path) -> float:
    """Read the file as a program that wants all of it does, batch by batch."""
    started = time.perf_counter()
    with path.open("rb", buffering=0) as stream:
        while stream.read(BATCH_BYTES):
            pass
    return time.perf_counter() - started


def ours(path: Path) -> float:
    """Read every tensor through the product, decoded to float32."""
    with Session(Settings(range_cache=None)) as session:
        checkpoint = open_checkpoint(str(path.parent), session)
        started = time.perf_counter()
        for tensor in checkpoint.tensors.values():
            step = max(1, BATCH_BYTES * tensor.shape[0] // tensor.nbytes)
            for first in range(0, tensor.shape[0], step):
                checkpoint.read([rows(tensor, [(first, min(tensor.shape[0], first + step))])])
        return time.perf_counter() - started


def best(measure: Callable[[Path], float], path: Path, repeats: int) -> float:
    """Return the median of some runs after one that fills the page cache."""
    measure(path)
    return statistics.median(measure(path) for _ in range(repeats))


def main() -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    print("\n### Reading a local model\n")
    print("| stored as | plain, GB/s | kinprint, decoded, GB/s | share | goal | met |\n|---|---|---|---|---|---|")
    missed = False
    with tempfile.TemporaryDirectory() as folder:
        for dtype in ("F32", "BF16"):
            path = make(Path(folder) / dtype, dtype, 128 if quick else 800)
            size = path.stat().st_size / 1e9
            floor, taken = best(plain, path, 5), best(ours, path, 5)
            share = floor / taken
            missed |= share < GOAL
            met = "yes" if share >= GOAL else "NO"
            print(f"| {dtype} | {size / floor:.2f} | {size / taken:.2f} | {share:.2f} | {GOAL} | {met} |")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"\nPeak memory: {peak:.0f} MB.")
    return int(missed and not quick)


if __name__ == "__main__":
    sys.exit(main())
