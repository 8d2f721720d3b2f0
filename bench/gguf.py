"""GGUF: decoding against the `gguf` package, opening a large vocabulary, and the norms of a remote file of 100 GB.

The package is both the measure of speed and the judge of values: what differs from it in one bit ends the bench.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf.quants import dequantize
from numpy.typing import NDArray

from bench.common import Cell, Goal, Report, finish, median, parser, timed
from bench.hubside import Hub, serving
from gguf import GGMLQuantizationType, GGUFReader
from kinprint.formats.checkpoint import execute_together, open_checkpoint
from kinprint.formats.dtypes import decode
from kinprint.formats.gguf.blocks import TYPES, GgmlType
from kinprint.formats.plan import plan_reads, whole
from kinprint.model.model import open_model
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from support.gguf_files import Value, write_sparse

REPO = "bench/Large-GGUF"
LATENCY_MS = 200.0  # long against what a request costs this machine, so that waits can be counted
BY_PACKAGE = ("IQ1", "IQ2", "IQ3")
Shapes = dict[str, tuple[str, tuple[int, ...]]]
Norms = dict[str, NDArray[np.float32]]


# -- decoding ----------------------------------------------------------------------------------------------------------


def _sample(kind: GgmlType, rows: int, columns: int) -> NDArray[np.uint8]:
    """Return bytes that decode to sound numbers: no scale is infinite, as none is in a real file."""
    rng = np.random.default_rng(9)
    raw = rng.integers(0, 256, (rows * columns // kind.elements, kind.size), dtype=np.uint8)
    raw[:, 1::2] &= 0xBB  # the upper byte of a float16, wherever it is, then has an exponent that is not all ones
    raw[:, ::2] &= 0xBB
    return raw.reshape(rows, -1)


def _both(kind: GgmlType, raw: NDArray[np.uint8], times: int) -> tuple[float, float]:
    """Time the package and kinprint in turns; return the best of each."""
    number = GGMLQuantizationType[kind.name]
    view = raw.reshape(-1).data
    theirs: list[float] = []
    ours: list[float] = []
    with np.errstate(all="ignore"):
        for _ in range(times):
            wall, expected = timed(lambda: dequantize(raw, number))
            theirs.append(wall)
            wall, got = timed(lambda: decode(view, kind.name))
            ours.append(wall)
            if not np.array_equal(expected.reshape(-1), got, equal_nan=True):
                raise SystemExit(f"{kind.name}: decoded otherwise than by the package")
    return min(theirs), min(ours)


def decoding(*, quick: bool) -> Report:
    """Race the decoders on a matrix as large models have them."""
    rows, columns, times = (128, 4096, 9) if quick else (4096, 4096, 7)
    table: list[dict[str, Cell]] = []
    goals: list[Goal] = []
    for kind in TYPES.values():
        if kind.elements == 1 or kind.name.startswith(BY_PACKAGE):
            continue
        theirs, ours = _both(kind, _sample(kind, rows, columns), times)
        speeds = [round(rows * columns / wall / 1e6) for wall in (theirs, ours)]
        table.append(
            {"type": kind.name, "package M/s": speeds[0], "kinprint M/s": speeds[1], "×": round(theirs / ours, 2)}
        )
        goals.append(Goal(f"{kind.name}: times as fast as the package", theirs / ours, ">=", 0.5 if quick else 1.0))
    note = "Million weights per second, one thread, best of runs in turns. IQ1, IQ2 and IQ3 types are decoded by the package."
    title = f"Decoding GGUF: {rows} × {columns} weights"
    return Report("gguf_decoding", title, tuple(table), tuple(goals), (note,))


# -- a large file ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Large:
    """A sparse file, its size, and the norms in it."""

    path: Path
    size: int
    tokens: int
    norms: Norms


def _words(count: int) -> tuple[list[str], list[str]]:
    """Return tokens and merges as long as those of a byte-pair vocabulary, the early ones shorter than the late."""
    rng = np.random.default_rng(4)
    letters = rng.integers(97, 123, count * 24, dtype=np.uint8).tobytes().decode()
    lengths = np.clip(rng.gamma(4.0, 1.2 + 0.6 * np.arange(count) / count), 1, 20).astype(int)
    words = [f"{letters[24 * at : 24 * at + n]}{at:x}"[-max(n, 2) :] for at, n in enumerate(lengths.tolist())]
    return words, [f"{word[:1]} {word[1:]}" for word in words]


def make_large(folder: Path, *, quick: bool) -> Large:
    """Write a Llama of 100 GB in Q8_0, in llama.cpp's order of tensors, of which only header and norms are on disk."""
    layers, width, neurons, kv, tokens = (4, 256, 512, 128, 5_000) if quick else (80, 10_240, 29_568, 1_024, 151_936)
    words, merges = _words(tokens)
    metadata: dict[str, Value] = {
        "general.architecture": "llama",
        "general.name": "Large",
        "llama.block_count": layers,
        "llama.embedding_length": width,
        "llama.feed_forward_length": neurons,
        "llama.attention.head_count": width // 128,
        "llama.attention.head_count_kv": kv // 128,
        "llama.vocab_size": tokens,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": words,
        "tokenizer.ggml.token_type": [1] * tokens,
        "tokenizer.ggml.merges": merges,
        "tokenizer.chat_template": "{{ messages }}" * 300,
    }
    shapes: Shapes = {"token_embd.weight": ("Q8_0", (tokens, width))}
    for layer in range(layers):
        shapes |= {
            f"blk.{layer}.attn_norm.weight": ("F32", (width,)),
            f"blk.{layer}.ffn_down.weight": ("Q8_0", (width, neurons)),
            f"blk.{layer}.ffn_gate.weight": ("Q8_0", (neurons, width)),
            f"blk.{layer}.ffn_up.weight": ("Q8_0", (neurons, width)),
            f"blk.{layer}.ffn_norm.weight": ("F32", (width,)),
            f"blk.{layer}.attn_k.weight": ("Q8_0", (kv, width)),
            f"blk.{layer}.attn_output.weight": ("Q8_0", (width, width)),
            f"blk.{layer}.attn_q.weight": ("Q8_0", (width, width)),
            f"blk.{layer}.attn_v.weight": ("Q8_0", (kv, width)),
        }
    shapes |= {"output.weight": ("Q8_0", (tokens, width)), "output_norm.weight": ("F32", (width,))}
    rng = np.random.default_rng(2)
    norms = {
        n: rng.standard_normal(shape).astype(np.float32)
        for n, (_, shape) in shapes.items()
        if n.endswith("norm.weight")
    }
    folder.mkdir(parents=True)
    path = folder / "large-Q8_0.gguf"
    return Large(path, write_sparse(path, metadata, shapes, norms), tokens, norms)


def opening(large: Large, *, quick: bool) -> Report:
    """Open the file with either reader."""

    def ours() -> int:
        with Session(Settings(range_cache=None, hub_cache=None)) as session:
            return len(open_checkpoint(str(large.path), session).tensors)

    expected = ours()
    walls, busy = [], []
    for _ in range(3 if quick else 9):
        began = time.process_time()
        walls.append(timed(ours)[0])
        busy.append(time.process_time() - began)
    began = time.process_time()
    wall, reader = timed(lambda: GGUFReader(large.path))
    theirs = time.process_time() - began
    if len(reader.tensors) != expected:
        raise SystemExit("opening: the package finds other tensors")
    rows: tuple[dict[str, Cell], ...] = (
        {"reader": "package", "wall s": round(wall, 3), "processor s": round(theirs, 3), "runs": 1},
        {
            "reader": "kinprint",
            "wall s": round(median(walls), 3),
            "processor s": round(median(busy), 3),
            "runs": len(walls),
        },
    )
    goals = (
        Goal("times as fast as the package", wall / median(walls), ">=", 3 if quick else 20),
        Goal("processor time to open, wished for", median(busy), "<=", 0.1, "s", required=False),
    )
    return Report("gguf_opening", f"Opening a GGUF file of {large.tokens:,} tokens", rows, goals)


# -- from afar -----------------------------------------------------------------------------------------------------------


def _peak_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak / 1e3


def _counted(hub: Hub, step: Callable[[], Norms | None]) -> tuple[float, int, int, Norms | None]:
    hub.reset()
    wall, found = timed(step)
    counted = hub.stats()
    return wall, counted["requests"], counted["bytes"], found


def remote(large: Large, scratch: Path, *, quick: bool) -> Report:
    """Open the file through the hub, then read all norms, and count waits and bytes of either."""
    rows: list[dict[str, Cell]] = []
    with serving({REPO: large.path.parent}, latency_ms=LATENCY_MS, tls=False, scratch=scratch) as hub:
        at = hub.endpoint
        with Session(Settings(endpoint=at.url, range_cache=None, hub_cache=None)) as session:
            opened = []
            opening_s, requests, header, _ = _counted(hub, lambda: opened.append(open_model(at.repo, session)))
            rows.append({"step": "open", "wall s": round(opening_s, 3), "requests": requests, "bytes": header})
            model = opened[0]
            parts = [part for part in model.naming.tensors if part.role.info.kind == "norm"]
            plan = plan_reads([whole(model.checkpoint.tensors[part.name]) for part in parts])

            def read() -> Norms:
                arrays = execute_together([(model.checkpoint, plan)])[0]
                return {part.name: array for part, array in zip(parts, arrays, strict=True)}

            reading_s, requests, norms, found = _counted(hub, read)
            rows.append({"step": "norms", "wall s": round(reading_s, 3), "requests": requests, "bytes": norms})
    assert found is not None
    if found.keys() != large.norms.keys() or any(not np.array_equal(found[n], large.norms[n]) for n in found):
        raise SystemExit("remote: the norms are not those on disk")
    for row, wall in zip(rows, (opening_s, reading_s), strict=True):
        row["waits"] = round(wall / (LATENCY_MS / 1e3), 1)
    header_bytes = model.checkpoint.files[0].header_bytes
    goals = (
        Goal("waits for the norms, after the header", reading_s / (LATENCY_MS / 1e3), "<=", 3.0, "round trips"),
        Goal("all bytes", (header + norms) / 1e6, "<=", 20.0, "MB"),
        Goal("bytes to open over those of the header", header / header_bytes, "<=", 3.0 if quick else 1.3),
        Goal("peak memory, with what wrote the file", _peak_mb(), "<=", 1000.0, "MB"),
    )
    note = (
        f"A header of {header_bytes:,} bytes, found in growing pieces; opening includes the description of the repository and "
        f"the look-up of the file. Each response is delayed by {LATENCY_MS:.0f} ms; waits are walls over that."
    )
    title = f"{len(found)} norms of a remote GGUF file of {large.size / 1e9:.1f} GB"
    return Report("gguf_remote", title, tuple(rows), goals, (note,))


def main(argv: list[str] | None = None) -> int:
    """Measure and judge."""
    asked = parser("bench.gguf", __doc__).parse_args(argv)
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"
    reports = [decoding(quick=asked.quick)]
    with tempfile.TemporaryDirectory(prefix="bench-gguf-") as made:
        large = make_large(Path(made) / "repository", quick=asked.quick)
        reports += [remote(large, Path(made), quick=asked.quick), opening(large, quick=asked.quick)]
    return finish(reports, asked.json)


if __name__ == "__main__":
    raise SystemExit(main())
