"""Every weights-only method on a pair of local models of a billion parameters: time, bytes, memory.

Two models of the shape of Llama 3.2 1B are written with synthetic values (2.5 GB each): speed does not depend on what the
numbers are. Each method runs in a process of its own, as `kinprint compare --method` runs it, with one thread for each matrix
product; models are in the page cache.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from bench.common import Cell, Goal, Report, finish, parser
from kinprint.fingerprints.base import Need
from kinprint.fingerprints.methods import METHODS
from kinprint.formats.safetensors.writer import TensorSpec, layout, to_bf16

SECONDS, BYTES = 60.0, 2e9
FULL: dict[str, int] = {"hidden": 2048, "layers": 16, "ffn": 8192, "heads": 32, "kv": 8, "vocab": 128256}
QUICK: dict[str, int] = {"hidden": 128, "layers": 4, "ffn": 384, "heads": 4, "kv": 2, "vocab": 2048}
_CHUNK = 1 << 24

# What a child process runs: one method, and what it took.
_CHILD = """
import json, resource, sys, time
from kinprint.fingerprints.methods import METHODS
from kinprint.fingerprints.run import share_tokens
from kinprint.model.model import open_model
from kinprint.model.weights import StoredWeights
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
name, a, b = sys.argv[1:]
with Session(Settings(offline=True)) as session:
    began, cpu = time.perf_counter(), time.process_time()
    one, two = (StoredWeights(open_model(path, session)) for path in (a, b))
    share_tokens(one, two)
    value = METHODS[name].score_models(one, two).value
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"value": value, "wall": wall, "cpu": cpu, "peak": peak, "read": one.bytes_read + two.bytes_read}))
"""


def _shapes(size: dict[str, int]) -> dict[str, tuple[int, ...]]:
    width, head = size["hidden"], size["hidden"] // size["heads"]
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (size["vocab"], width)}
    for layer in range(size["layers"]):
        at = f"model.layers.{layer}."
        shapes |= {
            f"{at}input_layernorm.weight": (width,),
            f"{at}post_attention_layernorm.weight": (width,),
            f"{at}self_attn.q_proj.weight": (width, width),
            f"{at}self_attn.k_proj.weight": (size["kv"] * head, width),
            f"{at}self_attn.v_proj.weight": (size["kv"] * head, width),
            f"{at}self_attn.o_proj.weight": (width, width),
            f"{at}mlp.gate_proj.weight": (size["ffn"], width),
            f"{at}mlp.up_proj.weight": (size["ffn"], width),
            f"{at}mlp.down_proj.weight": (width, size["ffn"]),
        }
    return shapes | {"model.norm.weight": (width,)}


def write_model(folder: Path, size: dict[str, int], seed: int) -> None:
    """Write a model in BF16, in pieces: norms near one, matrices Gaussian, their rows of different lengths."""
    folder.mkdir(parents=True)
    specs = {name: TensorSpec("BF16", shape) for name, shape in _shapes(size).items()}
    head, offsets = layout(specs, None)
    rng = np.random.default_rng(seed)
    with (folder / "model.safetensors").open("wb") as stream:
        stream.write(head)
        for name in offsets:
            left = specs[name].count
            while left:
                values = rng.standard_normal(min(left, _CHUNK), dtype=np.float32)
                stream.write(to_bf16(1.0 + 0.2 * values if len(specs[name].shape) == 1 else 0.02 * values).tobytes())
                left -= values.size
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": size["hidden"],
        "intermediate_size": size["ffn"],
        "num_hidden_layers": size["layers"],
        "num_attention_heads": size["heads"],
        "num_key_value_heads": size["kv"],
        "vocab_size": size["vocab"],
        "tie_word_embeddings": True,
    }
    (folder / "config.json").write_text(json.dumps(config))
    vocabulary = {f"token {number}": number for number in range(size["vocab"])}
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"type": "BPE", "vocab": vocabulary, "merges": []}}))


def run_method(name: str, a: Path, b: Path) -> dict[str, Any]:
    """Run one method in a process of its own; what it says on failure is not swallowed."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, name, str(a), str(b)], check=True, capture_output=True, text=True, timeout=900
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(folder: Path, *, quick: bool) -> Report:
    """Write the pair and run every method that needs no forward pass."""
    size = QUICK if quick else FULL
    a, b = folder / "a", folder / "b"
    write_model(a, size, 1)
    write_model(b, size, 2)
    rows: list[dict[str, Cell]] = []
    goals = []
    for method in METHODS.values():
        if Need.FORWARD in method.needs:
            continue
        found = run_method(method.name, a, b)
        rows.append(
            {
                "method": method.name,
                "seconds": round(found["wall"], 2),
                "CPU seconds": round(found["cpu"], 2),
                "MB read": round(found["read"] / 1e6, 1),
                "peak MB": round(found["peak"] / 1e6, 1),
                "value": round(found["value"], 5),
            }
        )
        goals += [
            Goal(f"{method.name}: time", found["wall"], "<=", SECONDS, "s"),
            Goal(f"{method.name}: peak memory", found["peak"] / 1e9, "<=", BYTES / 1e9, "GB"),
        ]
    stored = (a / "model.safetensors").stat().st_size
    facts: dict[str, Cell] = {"bytes of a model": stored, "parameters": stored // 2}
    title = f"Fingerprint methods on a pair of local models of {stored / 2e9:.2g} billion parameters (synthetic values)"
    return Report("fingerprints", title, tuple(rows), tuple(goals), (), facts)


def main(argv: list[str] | None = None) -> int:
    """Run it in a temporary folder: 5 GB on disk."""
    asked = parser("bench.fingerprints", __doc__).parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="bench-fingerprints-") as made:
        return finish([measure(Path(made), quick=asked.quick)], asked.json)


if __name__ == "__main__":
    raise SystemExit(main())
