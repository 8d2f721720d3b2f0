"""The trained family is what its manifest says, as far as the weights themselves can tell."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from kinprint.lab.zoo.derive import load_state
from support.places import DEMO_MODELS

HERE = Path(__file__).parent
BASE = DEMO_MODELS / "base"
MANIFEST = json.loads((HERE / "MANIFEST.json").read_text(encoding="utf-8"))
DENSE = [name for name in MANIFEST["models"] if name != "upcycled"]
MATRICES = ("self_attn.q_proj", "self_attn.v_proj", "mlp.up_proj", "mlp.down_proj")


@pytest.fixture(scope="module")
def base():
    return load_state(BASE)[0]


def correlation(a, b):
    return float(np.corrcoef(a.ravel(), b.ravel())[0, 1])


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_every_folder_is_in_the_manifest_with_its_hashes():
    folders = {path.parent.name for path in HERE.glob("*/config.json")}
    assert folders == set(MANIFEST["models"])
    for name, entry in MANIFEST["models"].items():
        assert {file: digest(HERE / name / file) for file in entry["sha256"]} == entry["sha256"], name


def test_they_were_made_from_the_base_that_is_here():
    assert MANIFEST["base_sha256"] == digest(BASE / "model.safetensors")


@pytest.mark.parametrize("name", DENSE)
def test_dense_members_have_the_tensors_of_base_and_have_trained(name, base):
    state, _, _ = load_state(HERE / name)
    assert {k: v.shape for k, v in state.items()} == {k: v.shape for k, v in base.items()}
    entry = MANIFEST["models"][name]
    assert entry["final_loss_nats"] < min(entry["loss_before_nats"], 0.75 * entry["unigram_entropy_nats"])


@pytest.mark.parametrize("name", [n for n, e in MANIFEST["models"].items() if e["shares"] == "none"])
def test_members_that_share_nothing_do_not_correlate(name, base):
    state, _, _ = load_state(HERE / name)
    for layer in range(4):
        key = f"model.layers.{layer}.mlp.up_proj.weight"
        # 24,576 entries, standard error 0.006; training alone gives rows common directions, hence the room.
        assert abs(correlation(base[key], state[key])) < 0.05


def test_lora_differs_by_its_rank_alone(base):
    state, _, _ = load_state(HERE / "lora")
    touched = {f"model.layers.{i}.{m}.weight" for i in range(4) for m in MATRICES}
    assert {k for k in base if not np.array_equal(base[k], state[k])} == touched
    rank = MANIFEST["models"]["lora"]["rank"]
    for key in touched:
        energy = np.linalg.svd(state[key].astype(np.float64) - base[key], compute_uv=False) ** 2
        # What is left over is rounding to BF16: its step is 2^-7 of the power of two below each value, and an error
        # uniform within a step has a twelfth of its square as variance. The leading directions take some of it too.
        step = 2.0 ** (np.floor(np.log2(np.abs(state[key].astype(np.float64)))) - 7)
        assert 0.5 < energy[rank:].sum() / (np.sum(step**2) / 12) < 1
        assert energy[rank - 1] > 50 * energy[rank]


def test_upcycled_experts_are_near_their_parent_and_no_longer_equal(base):
    state, config, _ = load_state(HERE / "upcycled")
    assert (config["architectures"], config["num_local_experts"]) == (["MixtralForCausalLM"], 4)
    for layer in range(4):
        prefix = f"model.layers.{layer}."
        ups = [state[f"{prefix}block_sparse_moe.experts.{e}.w3.weight"] for e in range(4)]
        parent = base[f"{prefix}mlp.up_proj.weight"]
        together = np.corrcoef([parent.ravel(), *(up.ravel() for up in ups)])[np.triu_indices(5, 1)]
        assert together.min() > 0.9
        assert together.max() < 0.9999


def test_resetting_norms_and_vocabulary_did_so(base):
    reset, _, _ = load_state(HERE / "norms_reset")
    revocab, _, tokenizer = load_state(HERE / "revocab")
    up, table, gain = "model.layers.1.mlp.up_proj.weight", "model.embed_tokens.weight", "model.norm.weight"
    assert correlation(base[up], reset[up]) > 0.9
    assert abs(correlation(base[gain], reset[gain])) < 0.9 < correlation(base[gain], revocab[gain])
    assert correlation(base[up], revocab[up]) > 0.8
    assert abs(correlation(base[table], revocab[table])) < 0.05
    assert tokenizer != load_state(BASE)[2]
