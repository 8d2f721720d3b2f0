"""Compute the logits of a decoder in numpy and float64, where its config says all that this takes; refuse it otherwise.

Llama and what is computed like it: RMSNorm before each block, rotary positions over whole heads, grouped keys, gated MLPs or
Mixtral's experts, biases and norms of q and k where they are stored. An entry of the config that is not known here may
change the function, so that a model with one is not run.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import FloatArray
from kinprint.arch import Naming, Role, TensorKey
from kinprint.arch.configs import first_count, flattened, kv_heads_of
from kinprint.arch.roles import BIASES
from kinprint.errors import DegenerateInput

Ids = NDArray[np.integer[Any]]
Tensors = Callable[[TensorKey], FloatArray | None]
"""Return a tensor as the model uses it, out × in; None where it has none."""

_FAMILIES = ("llama", "mistral", "mixtral", "qwen2", "qwen3", "gemma")
_DENSE, _EXPERT = (Role.MLP_GATE, Role.MLP_UP, Role.MLP_DOWN), (Role.EXPERT_GATE, Role.EXPERT_UP, Role.EXPERT_DOWN)
_LINEAR = (Role.ATTN_Q, Role.ATTN_K, Role.ATTN_V, Role.ATTN_O, *_DENSE)
_ROLES = {
    Role.EMBEDDING, Role.FINAL_NORM, Role.HEAD, Role.INPUT_NORM, Role.POST_ATTENTION_NORM, Role.Q_NORM, Role.K_NORM,
    Role.ROUTER, *_EXPERT, *_LINEAR, *(BIASES[role] for role in _LINEAR),
}  # fmt: skip
_READ = (
    "model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
    "head_dim", "vocab_size", "rms_norm_eps", "rope_theta", "rope_parameters", "hidden_act", "hidden_activation",
    "tie_word_embeddings", "sliding_window", "use_sliding_window", "num_local_experts", "num_experts_per_tok", "layer_types",
)  # fmt: skip
_IDLE = (  # nothing depends on these, or the tensors show it
    "architectures", "torch_dtype", "dtype", "transformers_version", "use_cache", "initializer_range", "attention_dropout",
    "attention_bias", "mlp_bias", "max_position_embeddings", "bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id",
    "pretraining_tp", "_name_or_path", "max_window_layers", "router_aux_loss_coef", "output_router_logits",
    "router_jitter_noise", "cache_implementation", "_attn_implementation", "_attn_implementation_autoset",
)  # fmt: skip


class Decoder:
    """How a model computes: sizes and constants from its config."""

    # Raise DegenerateInput, with the reason, for a model that may compute something else than is computed here.

    def __init__(self, naming: Naming, config: Mapping[str, object]) -> None:
        flat = flattened(config)
        self.family, self.layers = str(flat.get("model_type", "?")), naming.layers
        if self.family not in _FAMILIES or flat.get("gguf") or naming.guessed:
            raise DegenerateInput("how models of this kind compute is not known here: {kind}", kind=self.family)
        given = flat.get("rope_parameters") or {}
        rope = dict(given) if isinstance(given, Mapping) else {"": given}
        self.theta = _positive(rope.pop("rope_theta", flat.get("rope_theta", 10_000.0)))
        self.eps = _positive(flat.get("rms_norm_eps"))
        self.heads, self.kv_heads = first_count(flat, ("num_attention_heads",), 4096) or 0, kv_heads_of(flat) or 1
        self.used_experts = first_count(flat, ("num_experts_per_tok",), 4096) or 1
        self.tied = flat.get("tie_word_embeddings", self.family == "gemma") is True
        act = flat.get("hidden_activation") or flat.get("hidden_act") or ("?" if self.family == "gemma" else "silu")
        self.silu = act == "silu"
        wrong = {key: key not in _READ + _IDLE and value not in (None, False) for key, value in flat.items()} | {
            "rope_parameters": not self.theta or rope not in ({}, {"rope_type": "default"}),
            "rms_norm_eps": not self.eps,
            "num_attention_heads": not self.heads or self.heads % self.kv_heads != 0,
            "hidden_act": act not in ("silu", "gelu_pytorch_tanh"),
            "layer_types": flat.get("layer_types") not in (None, ["full_attention"] * naming.layers),
            "sliding_window": flat.get("sliding_window") is not None and flat.get("use_sliding_window") is not False,
        }
        for key in (key for key, is_wrong in wrong.items() if is_wrong):
            raise DegenerateInput("its config leaves open how it computes: {key}", key=key)
        unknown = [part.name for part in naming.tensors if part.role not in _ROLES]
        for name in (*unknown, *naming.unmapped, *(item.name for item in naming.excluded if not item.optional)):
            raise DegenerateInput("it has tensors that are not known here: {name}", name=name)

    def logits(self, tensors: Tensors, ids: Ids) -> FloatArray:
        """Return the logits at every position of sequences of token ids: sequences × positions × vocabulary."""
        model = _Pass(self, tensors)
        stream = model.value(Role.EMBEDDING)[ids]
        if self.family == "gemma":
            stream = stream * np.sqrt(stream.shape[-1])
        for layer in range(self.layers):
            stream = stream + model.attention(model.norm(stream, Role.INPUT_NORM, layer), layer)
            stream = stream + model.feed_forward(model.norm(stream, Role.POST_ATTENTION_NORM, layer), layer)
        head = None if self.tied else tensors((Role.HEAD, None, None))
        last = model.value(Role.EMBEDDING) if head is None else head
        scores: FloatArray = model.norm(stream, Role.FINAL_NORM) @ last.T
        return scores


def _positive(value: object) -> float:
    return float(value) if isinstance(value, int | float) and value > 0 else 0.0


class _Pass:
    """One computation: tensors, and how they are used."""

    def __init__(self, how: Decoder, tensors: Tensors) -> None:
        self.how, self.tensors = how, tensors

    def value(self, role: Role, layer: int | None = None, expert: int | None = None) -> FloatArray:
        found = self.tensors((role, layer, expert))
        if found is None:
            raise DegenerateInput("it has no {role}", role=role.value)
        return found

    def linear(self, x: FloatArray, role: Role, layer: int, expert: int | None = None) -> FloatArray:
        bias = self.tensors((BIASES[role], layer, expert)) if role in BIASES else None
        out: FloatArray = x @ self.value(role, layer, expert).T
        return out if bias is None else out + bias

    def norm(self, x: FloatArray, role: Role, layer: int | None = None) -> FloatArray:
        out: FloatArray = self.value(role, layer) * x / np.sqrt((x * x).mean(-1, keepdims=True) + self.how.eps)
        return out

    def attention(self, x: FloatArray, layer: int) -> FloatArray:
        how, (sequences, length, _) = self.how, x.shape
        q, k, v = (self.linear(x, role, layer) for role in (Role.ATTN_Q, Role.ATTN_K, Role.ATTN_V))
        width = q.shape[-1] // how.heads
        angles = np.arange(length)[:, None] * how.theta ** (-np.arange(0, width, 2) / width)
        cos, sin = (np.concatenate([f(angles)] * 2, axis=1) for f in (np.cos, np.sin))

        def heads(y: FloatArray, norm: Role | None = None) -> FloatArray:
            y = y.reshape(sequences, length, -1, width).transpose(0, 2, 1, 3)
            if norm is not None:
                y = y if self.tensors((norm, layer, None)) is None else self.norm(y, norm, layer)
                first, second = np.split(y, 2, axis=-1)
                y = y * cos + np.concatenate([-second, first], axis=-1) * sin
            return np.repeat(y, how.heads // y.shape[1], axis=1)  # keys and values serve groups of queries

        scores = heads(q, Role.Q_NORM) @ heads(k, Role.K_NORM).transpose(0, 1, 3, 2) / np.sqrt(width)
        scores[..., np.triu(np.ones((length, length), dtype=bool), 1)] = -np.inf
        mixed = (_softmax(scores) @ heads(v)).transpose(0, 2, 1, 3).reshape(sequences, length, -1)
        return self.linear(mixed, Role.ATTN_O, layer)

    def feed_forward(self, x: FloatArray, layer: int) -> FloatArray:
        if self.tensors((Role.ROUTER, layer, None)) is None:
            return self.block(x, layer, _DENSE)
        routing = _softmax(self.linear(x, Role.ROUTER, layer))
        least = np.sort(routing, axis=-1)[..., -self.how.used_experts, None]
        routing = np.where(routing >= least, routing, 0.0)
        routing /= routing.sum(axis=-1, keepdims=True)
        outputs = (self.block(x, layer, _EXPERT, expert) for expert in range(routing.shape[-1]))
        return sum((routing[..., e, None] * out for e, out in enumerate(outputs)), np.zeros_like(x))

    def block(self, x: FloatArray, layer: int, roles: tuple[Role, Role, Role], expert: int | None = None) -> FloatArray:
        opened, rest = (self.linear(x, role, layer, expert) for role in roles[:2])
        # GELU by tanh is x times the sigmoid of this
        turned = opened if self.how.silu else np.sqrt(8.0 / np.pi) * (opened + 0.044715 * opened**3)
        return self.linear(opened / (1.0 + np.exp(-turned)) * rest, roles[2], layer, expert)


def _softmax(x: FloatArray) -> FloatArray:
    e = np.exp(x - x.max(-1, keepdims=True))
    shares: FloatArray = e / e.sum(-1, keepdims=True)
    return shares
