"""Compute the forward pass of a Llama or Mixtral in numpy and float64, to prove that edits keep a function."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import FloatArray
from kinprint.lab.zoo.derive.states import EMBEDDINGS, HEAD, Config, State, head_counts

Ids = NDArray[np.integer[Any]]


def logits(state: State, config: Config, ids: Ids) -> FloatArray:
    """Return the logits at every position of one sequence of token ids: positions × vocabulary."""
    *_, last = hidden_states(state, config, ids)
    head = state.get(HEAD, state[EMBEDDINGS]).astype(np.float64)
    scores: FloatArray = _norm(last, state["model.norm.weight"], config) @ head.T
    return scores


def hidden_states(state: State, config: Config, ids: Ids) -> Iterator[FloatArray]:
    """Yield the residual stream, positions × width: the embeddings, then what each layer leaves."""
    weights = {name: value.astype(np.float64) for name, value in state.items()}
    stream: FloatArray = weights[EMBEDDINGS][ids]
    yield stream
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        normed = _norm(stream, weights[f"{prefix}input_layernorm.weight"], config)
        stream = stream + _attention(normed, weights, f"{prefix}self_attn.", config)
        normed = _norm(stream, weights[f"{prefix}post_attention_layernorm.weight"], config)
        stream = stream + _feed_forward(normed, weights, prefix, config)
        yield stream


def _norm(x: FloatArray, gain: NDArray[Any], config: Config) -> FloatArray:
    normed: FloatArray = gain * x / np.sqrt((x**2).mean(-1, keepdims=True) + config["rms_norm_eps"])
    return normed


def _softmax(x: FloatArray) -> FloatArray:
    e = np.exp(x - x.max(-1, keepdims=True))
    shares: FloatArray = e / e.sum(-1, keepdims=True)
    return shares


def _linear(x: FloatArray, weights: dict[str, FloatArray], stem: str) -> FloatArray:
    return x @ weights[f"{stem}.weight"].T + weights.get(f"{stem}.bias", 0.0)


def _attention(x: FloatArray, weights: dict[str, FloatArray], prefix: str, config: Config) -> FloatArray:
    heads, kv_heads, width = head_counts(config)
    length = len(x)
    angles = np.arange(length)[:, None] * float(config["rope_theta"]) ** (-np.arange(0, width, 2) / width)
    angles = np.concatenate([angles, angles], axis=1)

    def project(part: str, count: int) -> FloatArray:
        return _linear(x, weights, f"{prefix}{part}_proj").reshape(length, count, width).transpose(1, 0, 2)

    def rotate(y: FloatArray) -> FloatArray:
        first, second = np.split(y, 2, axis=-1)
        turned: FloatArray = y * np.cos(angles) + np.concatenate([-second, first], axis=-1) * np.sin(angles)
        return turned

    q = rotate(project("q", heads))
    k = np.repeat(rotate(project("k", kv_heads)), heads // kv_heads, axis=0)
    v = np.repeat(project("v", kv_heads), heads // kv_heads, axis=0)
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(width)
    scores[:, np.triu(np.ones((length, length), dtype=bool), 1)] = -np.inf
    mixed = (_softmax(scores) @ v).transpose(1, 0, 2).reshape(length, -1)
    return _linear(mixed, weights, f"{prefix}o_proj")


def _feed_forward(x: FloatArray, weights: dict[str, FloatArray], prefix: str, config: Config) -> FloatArray:
    def block(stem: str, gate: str, up: str, down: str) -> FloatArray:
        opened = _linear(x, weights, stem + gate)
        return _linear(opened / (1 + np.exp(-opened)) * _linear(x, weights, stem + up), weights, stem + down)

    if "num_local_experts" not in config:
        return block(f"{prefix}mlp.", "gate_proj", "up_proj", "down_proj")
    moe = f"{prefix}block_sparse_moe."
    routing = _softmax(_linear(x, weights, f"{moe}gate"))
    least = np.sort(routing, axis=1)[:, -config["num_experts_per_tok"], None]
    routing = np.where(routing >= least, routing, 0)
    routing /= routing.sum(axis=1, keepdims=True)
    outputs = [block(f"{moe}experts.{e}.", "w1", "w3", "w2") for e in range(config["num_local_experts"])]
    total: FloatArray = np.sum([routing[:, e, None] * output for e, output in enumerate(outputs)], axis=0)
    return total
