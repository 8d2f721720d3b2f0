"""Alignment on the trained demo family, whose relations are known."""

from __future__ import annotations

import json
import struct
from functools import cache

import numpy as np
import pytest

from kinprint.align.layer_alignment import choose_map, kind_of_map, pair_scores
from kinprint.align.neuron_assignment import gate_up_agreement, recovered_map
from kinprint.align.residual_basis import embedding_rotation, match_columns
from support.places import DEMO_MODELS

DEMO = DEMO_MODELS
SLICED = ("self_attn.q_proj", "self_attn.k_proj", "mlp.gate_proj", "mlp.up_proj")


@cache
def weights(name):
    raw = (DEMO / name / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for tensor, entry in header.items():
        start, stop = (8 + length + offset for offset in entry["data_offsets"])
        bits = np.frombuffer(raw[start:stop], "<u2").astype(np.uint32) << 16  # BF16
        tensors[tensor] = bits.view(np.float32).reshape(entry["shape"]).astype(np.float64)
    return tensors


def stacks(name):
    tensors = weights(name)
    count = sum(tensor.endswith("q_proj.weight") for tensor in tensors)
    return [
        np.concatenate([tensors[f"model.layers.{layer}.{role}.weight"][:40] for role in SLICED])
        for layer in range(count)
    ]


def neurons(name, layer):
    return (weights(name)[f"model.layers.{layer}.mlp.{role}_proj.weight"] for role in ("gate", "up"))


@pytest.mark.parametrize(
    ("a", "b", "kind", "pairs"),
    [
        ("base", "finetune", "identity", (0, 1, 2, 3)),
        ("base", "grown", "blocks", (0, 1, 2, 1, 2, 3)),
        ("finetune", "grown", "blocks", (0, 1, 2, 1, 2, 3)),
        ("grown", "finetune", "subsequence", (0, 1, 2, 5)),
        ("grown", "grown", "identity", (0, 1, 2, 3, 4, 5)),
        ("base", "unrelated", "none", (None,) * 4),
        ("unrelated", "grown", "none", (None,) * 6),
    ],
)
def test_layers(a, b, kind, pairs):
    found = choose_map(pair_scores(stacks(a), stacks(b)))
    assert (kind_of_map(found, len(stacks(a))), found) == (kind, pairs)


def test_correlation_and_not_z_names_the_nearer_of_two_copies():
    scores = pair_scores(stacks("grown"), stacks("grown"))
    assert scores.z[:, 1].argmax() == 3
    assert scores.correlation[:, 1].argmax() == 1


def test_reordered_neurons_are_all_found():
    found = gate_up_agreement(*neurons("base", 1), *neurons("permuted", 1), draws=39)
    assert found.agreement == found.n == 256
    assert found.log10_p < -100
    assert recovered_map(found)[0] == "permuted"


def test_reordered_and_tuned_and_pruned_neurons_are_all_found():
    kept = np.random.default_rng(0).permutation(256)[:150]
    pruned = [rows[kept] for rows in neurons("finetune", 2)]
    found = gate_up_agreement(*neurons("base", 2), *pruned, draws=39)
    kind, index = recovered_map(found)
    assert (found.agreement, kind) == (150, "subset (width-pruned)")
    np.testing.assert_array_equal(kept[index[kept]], kept)


@pytest.mark.parametrize("layer", range(4))
def test_independently_trained_neurons_are_silent(layer):
    found = gate_up_agreement(*neurons("base", layer), *neurons("unrelated", layer), draws=39)
    assert found.agreement <= 5
    assert found.log10_p > -2.0
    assert recovered_map(found)[0] == "none"
    assert found.null_mean < 4.0


def embeddings(a, b):
    """Return the embeddings of the tokens that both models have, matched by their text."""
    vocabularies = [
        json.loads((DEMO / name / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"] for name in (a, b)
    ]
    shared = sorted(vocabularies[0].keys() & vocabularies[1].keys())
    return tuple(
        weights(name)["model.embed_tokens.weight"][[vocabulary[token] for token in shared]]
        for name, vocabulary in zip((a, b), vocabularies, strict=True)
    )


def residual(A, R, B):
    """Return what the best common factor leaves of A·R beside B, as a share."""
    one, two = A @ R / np.linalg.norm(A), B / np.linalg.norm(B)
    return np.linalg.norm(one - np.vdot(one, two) * two)


def test_a_new_basis_after_fine_tuning_is_recovered():
    rng = np.random.default_rng(1)
    A, B = embeddings("base", "finetune")
    place, sign = rng.permutation(96), rng.choice([-1, 1], 96)
    moved = np.empty_like(B)
    moved[:, place] = B * sign
    found = match_columns(A, moved)
    np.testing.assert_array_equal(found.index, place)
    np.testing.assert_array_equal(found.sign, sign)
    assert found.share == 1.0
    Q = np.linalg.qr(rng.standard_normal((96, 96)))[0]
    assert residual(A, embedding_rotation(A, B @ Q), B @ Q) < 0.2


def test_independently_trained_embeddings_agree_a_little_and_no_more():
    A, B = embeddings("base", "unrelated")
    assert A.shape == (438, 96)
    found = match_columns(A, B)
    assert found.share < 0.15
    # what both corpora have in common shows: less than the null, and nothing like a relation
    shuffled = B[np.random.default_rng(0).permutation(len(B))]
    found, chance = (residual(A, embedding_rotation(A, other), other) for other in (B, shuffled))
    assert 0.7 < found < chance
    assert chance > 0.9
