"""Fused tensors, composed as the models compose them, are taken apart again by the intervals found."""

from __future__ import annotations

import numpy as np
import pytest

from kinprint.arch import Naming, Role, name_tensors
from kinprint.arch.splits import plan_split
from kinprint.arch.templates import Split

HEADS, KV_HEADS, HEAD_DIM, WIDTH, NEURONS = 6, 2, 4, 24, 10
SIZES = {"hidden_size": WIDTH, "num_attention_heads": HEADS, "intermediate_size": NEURONS, "num_hidden_layers": 1}
QKV = (Role.ATTN_Q, Role.ATTN_K, Role.ATTN_V)


def matrices(*rows: int) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    return [rng.standard_normal((count, WIDTH)) for count in rows]


def taken_apart(naming: Naming, name: str, stored: np.ndarray) -> dict[Role, np.ndarray]:
    parts = {}
    for tensor in naming.tensors:
        if tensor.name == name:
            assert tensor.rows is not None
            index = np.concatenate([np.arange(start, stop) for start, stop in tensor.rows])
            part = np.take(stored, index, axis=tensor.axis)
            parts[tensor.role] = part.T if tensor.transposed else part
            assert parts[tensor.role].shape == tensor.shape
    return parts


def check(config: dict[str, object], name: str, stored: np.ndarray, expected: dict[Role, np.ndarray]) -> None:
    naming = name_tensors(config, {name: stored.shape})
    assert naming.unmapped == ()
    found = taken_apart(naming, name, stored)
    assert found.keys() == expected.keys()
    for role, part in expected.items():
        np.testing.assert_array_equal(found[role], part)


def grouped(q: np.ndarray, k: np.ndarray, v: np.ndarray, groups: int) -> np.ndarray:
    """For every key-value head its queries, its key, its value."""

    def heads(x: np.ndarray) -> np.ndarray:
        return x.reshape(groups, -1, HEAD_DIM, WIDTH)

    return np.concatenate([heads(q), heads(k), heads(v)], axis=1).reshape(-1, WIDTH)


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"model_type": "internlm2", "num_key_value_heads": KV_HEADS}, "model.layers.0.attention.wqkv.weight"),
        (
            {"model_type": "falcon", "new_decoder_architecture": True, "num_kv_heads": KV_HEADS},
            "transformer.h.0.self_attention.query_key_value.weight",
        ),
    ],
)
def test_interleaved_by_group(config: dict[str, object], name: str) -> None:
    q, k, v = matrices(HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM)
    check(SIZES | config, name, grouped(q, k, v, KV_HEADS), dict(zip(QKV, (q, k, v), strict=True)))


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"model_type": "gpt_neox"}, "gpt_neox.layers.0.attention.query_key_value.weight"),
        ({"model_type": "falcon", "multi_query": False}, "transformer.h.0.self_attention.query_key_value.weight"),
    ],
)
def test_interleaved_by_head(config: dict[str, object], name: str) -> None:
    q, k, v = matrices(WIDTH, WIDTH, WIDTH)
    fused = np.stack([x.reshape(HEADS, HEAD_DIM, WIDTH) for x in (q, k, v)], axis=1).reshape(-1, WIDTH)
    check(SIZES | config, name, fused, dict(zip(QKV, (q, k, v), strict=True)))


def test_neox_bias() -> None:
    q, k, v = (part[:, 0] for part in matrices(WIDTH, WIDTH, WIDTH))
    fused = np.stack([x.reshape(HEADS, HEAD_DIM) for x in (q, k, v)], axis=1).reshape(-1)
    roles = (Role.ATTN_Q_BIAS, Role.ATTN_K_BIAS, Role.ATTN_V_BIAS)
    name = "gpt_neox.layers.0.attention.query_key_value.bias"
    check(SIZES | {"model_type": "gpt_neox"}, name, fused, dict(zip(roles, (q, k, v), strict=True)))


def test_falcon_multi_query() -> None:
    q, k, v = matrices(HEADS * HEAD_DIM, HEAD_DIM, HEAD_DIM)
    config = SIZES | {"model_type": "falcon", "multi_query": True, "num_kv_heads": HEADS}
    name = "transformer.h.0.self_attention.query_key_value.weight"
    check(config, name, np.concatenate([q, k, v]), dict(zip(QKV, (q, k, v), strict=True)))


def test_phi3_concatenates() -> None:
    q, k, v, gate, up = matrices(HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM, NEURONS, NEURONS)
    config = SIZES | {"model_type": "phi3", "num_key_value_heads": KV_HEADS}
    name = "model.layers.0.self_attn.qkv_proj.weight"
    check(config, name, np.concatenate([q, k, v]), dict(zip(QKV, (q, k, v), strict=True)))
    pair = {Role.MLP_GATE: gate, Role.MLP_UP: up}
    check(config, "model.layers.0.mlp.gate_up_proj.weight", np.concatenate([gate, up]), pair)


def test_gpt2_concatenates_along_the_second_stored_axis() -> None:
    q, k, v = matrices(WIDTH, WIDTH, WIDTH)
    config = {"model_type": "gpt2", "n_embd": WIDTH, "n_head": HEADS, "n_layer": 1}
    check(
        config,
        "h.0.attn.c_attn.weight",
        np.concatenate([q.T, k.T, v.T], axis=1),
        dict(zip(QKV, (q, k, v), strict=True)),
    )


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({}, "config gives no heads"),
        ({"num_attention_heads": 5}, "config gives no head_dim"),
        ({"num_attention_heads": 4}, "do not add up to 71"),
    ],
)
def test_what_does_not_add_up_is_left_whole_with_a_note(config: dict[str, object], complaint: str) -> None:
    name = "gpt_neox.layers.0.attention.query_key_value.weight"
    known = {"model_type": "gpt_neox", "hidden_size": WIDTH, "num_hidden_layers": 1}
    length = 3 * 4 * 6 - 1 if complaint.endswith("71") else 75
    naming = name_tensors(known | config, {name: (length, WIDTH)})
    assert naming.unmapped == (name,)
    assert any("fused tensor left whole" in note and complaint in note for note in naming.notes), naming.notes


def test_one_unknown_size_follows_from_the_length() -> None:
    split = Split(None, ((Role.ATTN_Q, "q_size"), (Role.ATTN_K, "kv_size"), (Role.ATTN_V, "kv_size")))
    assert plan_split(split, 32, {"q_size": 16}) == (((0, 16),), ((16, 24),), ((24, 32),))
    assert plan_split(split, 33, {"q_size": 16}) == "sizes q_size + kv_size + kv_size, 1 times, do not add up to 33"
    assert plan_split(split, 16, {"q_size": 16}) == "sizes q_size + kv_size + kv_size, 1 times, do not add up to 16"
    assert plan_split(split, 32, {}) == "config gives no kv_size and no q_size"


def test_absurd_number_of_groups_is_refused() -> None:
    split = Split("heads", ((Role.ATTN_Q, "head_dim"),))
    assert isinstance(plan_split(split, 10**9, {"heads": 10**9, "head_dim": 1}), str)
