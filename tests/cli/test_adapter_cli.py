"""Adapters on the command line: --base, and what is said without one."""

import json

import numpy as np
import pytest

from support.adapter_files import lora_names, write_adapter

QUICK = ("--metrics", "byte_identity", "--quiet")


@pytest.fixture
def adapter(tmp_path):
    rng = np.random.default_rng(3)
    tensors = {}
    for layer in range(4):
        factors = (0.1 * rng.standard_normal(shape).astype(np.float32) for shape in ((4, 96), (96, 4)))
        tensors |= lora_names(f"model.layers.{layer}.self_attn.q_proj", *factors)
    return write_adapter(tmp_path / "adapter", tensors, base=tmp_path / "gone" / "away", r=4)


def test_compare_without_its_base(kinprint, demo, adapter):
    lost = kinprint("compare", demo / "base", adapter, *QUICK)
    assert lost.code == 3
    assert "a path that is not here" in lost.err
    assert "--base MODEL" in lost.err


def test_compare_with_a_base(kinprint, demo, adapter, tmp_path):
    options = ("--base", demo / "base", "--format", "table", "--out", tmp_path)
    found = kinprint("compare", demo / "base", adapter, *options, *QUICK)
    assert found.code == 0, found.err
    assert "LoRA adapter: rank 4" in found.out
    assert "B is an adapter merged into A itself" in found.out
    data = json.loads((tmp_path / "report.json").read_text())
    assert data["verdict"]["kind"] == "lora_merged"
    assert "rank 4, alpha 16, targets q_proj in 4 layers" in data["b"]["notes"][0]
    assert data["notes"][0].startswith("B is an adapter merged into A itself")


def test_inspect_without_and_with_a_base(kinprint, demo, adapter):
    alone = kinprint("inspect", adapter, "--quiet", "--format", "table")
    assert alone.code == 0, alone.err
    assert "LoRA adapter: rank 4, alpha 16, targets q_proj in 4 layers" in alone.out
    merged = json.loads(kinprint("inspect", adapter, "--base", demo / "base", "--quiet", "--format", "json").out)
    assert merged["model"]["layers"] == 4
    assert merged["model"]["unmapped"] == []
