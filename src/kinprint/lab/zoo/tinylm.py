"""Define and train a very small Llama, for the bundled models and the zoo. Needs torch.

Tensor names, RoPE convention and shapes are those of ``LlamaForCausalLM``, so that any reader takes the folders for ordinary
(if tiny) checkpoints. Architecture: Touvron et al. 2023 (arXiv:2302.13971) with grouped-query attention (Ainslie et al. 2023,
arXiv:2305.13245).
"""

# torch is no part of the environment that types are checked in: its classes and decorators are unknown there.
# mypy: disallow-subclassing-any=False, disallow-untyped-decorators=False, warn-return-any=False

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor, nn
from torch.nn import functional

BOS, EOS = "<s>", "</s>"
SEQUENCE = 128
BATCH = 16
HELD_OUT_EVERY = 20
BLOCK = 1024
# Field of a shape: key of config.json.
CONFIG_KEYS = {
    "hidden": "hidden_size", "layers": "num_hidden_layers", "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads", "head_dim": "head_dim", "ffn": "intermediate_size", "vocab": "vocab_size",
    "rms_eps": "rms_norm_eps", "rope_theta": "rope_theta", "positions": "max_position_embeddings",
}  # fmt: skip
_FIXED: dict[str, object] = {
    "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 0,
    "eos_token_id": 1, "hidden_act": "silu", "initializer_range": 0.02, "mlp_bias": False, "model_type": "llama",
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "use_cache": True,
}  # fmt: skip


@dataclass(frozen=True)
class TinyShape:
    """The sizes of one model."""

    hidden: int = 96
    layers: int = 4
    heads: int = 6
    kv_heads: int = 2
    head_dim: int = 16
    ffn: int = 256
    vocab: int = 512
    rms_eps: float = 1e-5
    rope_theta: float = 10000.0
    positions: int = 256

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> TinyShape:
        """Return the sizes that a config names."""
        return cls(**{field: config[key] for field, key in CONFIG_KEYS.items()})

    def config(self) -> dict[str, object]:
        """Return the config.json of this shape, keys in order."""
        return dict(sorted((_FIXED | {key: getattr(self, field) for field, key in CONFIG_KEYS.items()}).items()))


class RMSNorm(nn.Module):
    """Root-mean-square normalisation with a learned gain."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Compute the output of this module."""
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply rotary position embedding, pairing dimension i with i + head_dim / 2 as Llama checkpoints do."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Attention(nn.Module):
    """Causal grouped-query attention."""

    def __init__(self, shape: TinyShape) -> None:
        super().__init__()
        self.shape = shape
        inner, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.hidden, inner, bias=False)
        self.k_proj = nn.Linear(shape.hidden, kv, bias=False)
        self.v_proj = nn.Linear(shape.hidden, kv, bias=False)
        self.o_proj = nn.Linear(inner, shape.hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Compute the output of this module."""
        s, (batch, length, _) = self.shape, x.shape
        group = s.heads // s.kv_heads
        parts = (self.q_proj(x), self.k_proj(x), self.v_proj(x))
        q, k, v = (part.view(batch, length, -1, s.head_dim).transpose(1, 2) for part in parts)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        scores = q @ k.transpose(-1, -2) / math.sqrt(s.head_dim)
        hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))


class MLP(nn.Module):
    """SwiGLU feed-forward block."""

    def __init__(self, shape: TinyShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.ffn, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.ffn, bias=False)
        self.down_proj = nn.Linear(shape.ffn, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the output of this module."""
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """One pre-norm transformer block."""

    def __init__(self, shape: TinyShape) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(shape.hidden, shape.rms_eps)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = RMSNorm(shape.hidden, shape.rms_eps)
        self.mlp = MLP(shape)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Compute the output of this module."""
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.feed_forward(self.post_attention_layernorm(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        """Apply the feed-forward block."""
        return self.mlp(x)


class Trunk(nn.Module):
    """Everything under the ``model.`` prefix."""

    def __init__(self, shape: TinyShape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = RMSNorm(shape.hidden, shape.rms_eps)


class TinyLlama(nn.Module):
    """A Llama whose ``state_dict`` has exactly the names of a published Llama checkpoint."""

    def __init__(self, shape: TinyShape) -> None:
        super().__init__()
        self.shape = shape
        self.model = Trunk(shape)
        self.lm_head = nn.Linear(shape.hidden, shape.vocab, bias=False)

    def initialise(self, seed: int) -> None:
        """Draw every matrix from N(0, 0.02²), with residual-writing ones scaled down by depth; norms start at 1."""
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if parameter.ndim == 1:
                    parameter.fill_(1.0)
                    continue
                writes_residual = name.endswith(("o_proj.weight", "down_proj.weight"))
                std = 0.02 / math.sqrt(2 * self.shape.layers) if writes_residual else 0.02
                parameter.normal_(0.0, std, generator=generator)

    def forward(self, ids: Tensor) -> Tensor:
        """Compute the output of this module."""
        s, dtype = self.shape, self.lm_head.weight.dtype
        frequencies = s.rope_theta ** (-torch.arange(0, s.head_dim, 2, dtype=torch.float64) / s.head_dim)
        angles = torch.arange(ids.shape[1], dtype=torch.float64)[:, None] * frequencies
        angles = torch.cat((angles, angles), dim=-1)
        cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x, cos, sin)
        return self.lm_head(self.model.norm(x))


@dataclass(frozen=True)
class Tokens:
    """A tokenised corpus: a training stream and held-out rows of one token more than a sequence."""

    train: Tensor
    held_out: Tensor

    def unigram_entropy(self, vocab: int) -> float:
        """Return the entropy in nats per token of the training stream's token frequencies."""
        counts = torch.bincount(self.train, minlength=vocab).double()
        p = counts[counts > 0] / counts.sum()
        return float(-(p * p.log()).sum())


def train_tokenizer(documents: list[str], vocab: int) -> Tokenizer:
    """Train a byte-level BPE tokenizer of exactly ``vocab`` entries."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=[BOS, EOS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    if tokenizer.get_vocab_size() != vocab:
        raise RuntimeError(f"tokenizer has {tokenizer.get_vocab_size()} entries, expected {vocab}: corpus too small")
    return tokenizer


def tokenise(documents: list[str], tokenizer: Tokenizer, sequence: int = SEQUENCE) -> Tokens:
    """Tokenise, delimit documents, and hold out every twentieth block."""
    bos, eos = tokenizer.token_to_id(BOS), tokenizer.token_to_id(EOS)
    ids = [i for e in tokenizer.encode_batch(documents) for i in (bos, *e.ids, eos)]
    blocks = torch.tensor(ids, dtype=torch.long).split(BLOCK)
    train = torch.cat([b for i, b in enumerate(blocks) if i % HELD_OUT_EVERY != HELD_OUT_EVERY - 1])
    kept = [b for i, b in enumerate(blocks) if i % HELD_OUT_EVERY == HELD_OUT_EVERY - 1]
    rows = [row for block in kept for row in block.split(sequence + 1) if len(row) == sequence + 1]
    return Tokens(train, torch.stack(rows[:256]))


def token_loss(model: TinyLlama, rows: Tensor) -> Tensor:
    """Return the mean loss in nats of predicting each token of the rows from those before it."""
    logits = model(rows[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


@torch.no_grad()
def evaluate(model: TinyLlama, tokens: Tokens) -> float:
    """Return the mean held-out loss in nats per token."""
    total = 0.0
    for rows in tokens.held_out.split(32):
        total += float(token_loss(model, rows)) * len(rows)
    return total / len(tokens.held_out)


Loss = Callable[[TinyLlama, Tensor], Tensor]


@dataclass(frozen=True)
class Recipe:
    """Length, learning rate, data seed and batches of a training run."""

    steps: int
    learning_rate: float
    data_seed: int
    weight_decay: float = 0.1
    batch: int = BATCH
    sequence: int = SEQUENCE


def train(
    model: TinyLlama,
    tokens: Tokens,
    recipe: Recipe,
    *,
    loss_of: Loss = token_loss,
    report: Callable[[int, float], None] | None = None,
) -> None:
    """Train in place with AdamW, linear warm-up and cosine decay; batches depend on ``recipe.data_seed`` alone.

    ``report`` is called now and then with the steps done and the loss of the last one.
    """
    # Weight decay on the gains would pull all of them together and hide what training did to each.
    matrices = [p for p in model.parameters() if p.ndim > 1 and p.requires_grad]
    gains = [p for p in model.parameters() if p.ndim == 1 and p.requires_grad]
    optimiser = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": recipe.weight_decay}, {"params": gains, "weight_decay": 0.0}],
        lr=recipe.learning_rate,
        betas=(0.9, 0.95),
    )
    warm_up = max(1, min(50, recipe.steps // 5))

    def factor(step: int) -> float:
        if step < warm_up:
            return (step + 1) / warm_up
        return 0.1 + 0.45 * (1 + math.cos(math.pi * (step - warm_up) / max(1, recipe.steps - warm_up)))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, factor)
    generator = torch.Generator().manual_seed(recipe.data_seed)
    window = torch.arange(recipe.sequence + 1)
    for step in range(1, recipe.steps + 1):
        starts = torch.randint(len(tokens.train) - recipe.sequence - 1, (recipe.batch, 1), generator=generator)
        loss = loss_of(model, tokens.train[starts + window])
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if report is not None and step % max(1, min(100, recipe.steps // 4)) == 0:
            report(step, loss.item())
