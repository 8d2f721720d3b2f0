"""Demo pairs compared once for all tests, and a builder of small Llama checkpoints."""

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kinprint.comparison.pipeline import compare
from kinprint.model.model import open_models
from kinprint.results.options import Options
from kinprint.results.report import Report
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from support.layouts import write_checkpoint
from support.places import DEMO_MODELS

DEMO = DEMO_MODELS
DEMO_METRICS = {
    "finetune": ("cosine", "pearson"),
    "grown": ("pearson",),
    "permuted": ("pearson", "byte_identity", "changed_ratio", "ulp_distance"),
}  # the others by all metrics


def lognormal(rng, width):
    return np.exp(0.3 * rng.standard_normal(width))


def llama_tensors(
    seed, *, hidden=256, layers=3, heads=4, kv_heads=2, neurons=320, vocab=200, norm=lognormal
) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    head_dim = hidden // heads

    def matrix(rows, columns):
        return (0.02 * rng.standard_normal((rows, columns))).astype(np.float32)

    tensors = {"model.embed_tokens.weight": matrix(vocab, hidden)}
    for layer in range(layers):
        at = f"model.layers.{layer}."
        tensors |= {
            f"{at}input_layernorm.weight": norm(rng, hidden).astype(np.float32),
            f"{at}post_attention_layernorm.weight": norm(rng, hidden).astype(np.float32),
            f"{at}self_attn.q_proj.weight": matrix(heads * head_dim, hidden),
            f"{at}self_attn.k_proj.weight": matrix(kv_heads * head_dim, hidden),
            f"{at}self_attn.v_proj.weight": matrix(kv_heads * head_dim, hidden),
            f"{at}self_attn.o_proj.weight": matrix(hidden, heads * head_dim),
            f"{at}mlp.gate_proj.weight": matrix(neurons, hidden),
            f"{at}mlp.up_proj.weight": matrix(neurons, hidden),
            f"{at}mlp.down_proj.weight": matrix(hidden, neurons),
        }
    tensors["model.norm.weight"] = norm(rng, hidden).astype(np.float32)
    tensors["lm_head.weight"] = matrix(vocab, hidden)
    return tensors


def llama_config(*, hidden=256, layers=3, heads=4, kv_heads=2, neurons=320, vocab=200, **more) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": neurons,
        "vocab_size": vocab,
        "tie_word_embeddings": False,
        **more,
    }


@pytest.fixture
def llama(tmp_path) -> Callable[..., str]:
    """Write a Llama checkpoint and return its folder; ``change`` may alter its tensors first."""

    def write(
        name: str,
        seed: int,
        *,
        change: Callable[[dict], Any] | None = None,
        dtype=None,
        norm=lognormal,
        extra=None,
        **dims,
    ) -> str:
        tensors = llama_tensors(seed, norm=norm, **dims)
        if change is not None:
            change(tensors)
        write_checkpoint(tmp_path / name, tensors, llama_config(**dims) | (extra or {}), dtype=dtype)
        return str(tmp_path / name)

    return write


@pytest.fixture
def checkpoint(tmp_path) -> Callable[..., str]:
    """Write any checkpoint and return its folder."""

    def write(name: str, tensors: Mapping[str, Any], config: Mapping[str, Any], **more) -> str:
        write_checkpoint(tmp_path / name, tensors, config, **more)
        return str(tmp_path / name)

    return write


@pytest.fixture
def run():
    """Compare two local folders, and check what holds for every report."""

    def go(a: str, b: str, *, budget_bytes=None, **options) -> Report:
        report = compare(a, b, Options(**options), budget_bytes=budget_bytes, settings=Settings())
        check_report(report, a, b)
        return report

    return go


@pytest.fixture(scope="session")
def demo() -> Callable[[str], Report]:
    """Return the report of the demo base against another demo model."""

    @cache
    def report(name: str) -> Report:
        options = Options(metrics=DEMO_METRICS.get(name, ("all",)), rows=8 if name == "base" else 32)
        return compare(str(DEMO / "base"), str(DEMO / name), options, settings=Settings())

    return report


@pytest.fixture(scope="session")
def demo_folder() -> Path:
    return DEMO


@pytest.fixture(scope="session")
def checked() -> Callable[..., None]:
    return check_report


def check_report(report: Report, a: str, b: str) -> None:
    """Hold a report against the models: no tensor silently dropped, no number that JSON cannot hold."""
    assert not list(unwritable(report)), "numbers that are not finite"
    assert Report.from_json(report.to_json()) == report
    with Session(Settings()) as session:
        models = open_models([a, b], session)
    slots = []
    for model, summary in zip(models, (report.a, report.b), strict=True):
        named = {part.name for part in model.naming.tensors}
        left_out = {item.name for item in model.naming.excluded}
        stored = set(model.checkpoint.tensors)
        assert named | left_out | set(summary.unmapped) == stored
        assert summary.tensors == len(stored)
        assert sum(item.count for item in summary.excluded) == len(left_out)
        slots.append([(part.role.value, part.layer, part.expert) for part in model.naming.tensors])
        assert len(slots[-1]) == len(set(slots[-1]))
    everything = set(slots[0]) | set(slots[1])
    by_name = [
        item for item in report.comparisons if item.role.startswith("unnamed")
    ]  # beside being listed as unmapped
    assert {item.a.tensor for item in by_name} <= set(report.a.unmapped) & set(report.b.unmapped)
    compared = {(item.role, item.layer, item.expert) for item in report.comparisons if item not in by_name}
    assert len(compared) + len(by_name) == len(report.comparisons)
    assert compared <= everything
    assert len(compared) + sum(item.count for item in report.skipped) == len(everything)
    for item in report.comparisons:
        assert (item.status == "ok") == (item.reason is None)
        assert all(found.status == "ok" or found.reason for found in item.measurements)
    assert sum(line.compared + line.not_compared for line in report.summary) == len(report.comparisons)
    assert len({line.role for line in report.summary}) == len(report.summary)
    assert all(item.reason and item.count for item in report.skipped)
    if report.settings.budget_bytes is not None:
        assert report.bytes_read <= report.settings.budget_bytes


def unwritable(value: Any, path: str = ""):
    """Yield where a dataclass holds NaN or infinity."""
    if is_dataclass(value):
        for field in fields(value):
            yield from unwritable(getattr(value, field.name), f"{path}.{field.name}")
    elif isinstance(value, tuple | list):
        for number, item in enumerate(value):
            yield from unwritable(item, f"{path}[{number}]")
    elif isinstance(value, float) and not math.isfinite(value):
        yield path, value
