"""Train one member of the zoo. Needs torch and tokenizers."""

# mypy: disallow-untyped-decorators=False, warn-return-any=False

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from kinprint.lab.zoo import tinylm
from kinprint.lab.zoo.corpus import read_corpora
from kinprint.lab.zoo.derive import Config, State, TokenizerJson, stored
from kinprint.lab.zoo.members import Loaded, Training
from kinprint.lab.zoo.tinylm import Recipe, TinyLlama, TinyShape, Tokens
from kinprint.lab.zoo.tinymore import add_lora, distillation_loss, hidden_loss, merge_lora

LORA_TARGETS = ("q_proj", "v_proj", "up_proj", "down_proj")
LORA_SCALE = 2.0
Report = Callable[[int, float], None]


def model_of(state: State, config: Config) -> TinyLlama:
    """Return the torch model of a state; missing or surplus tensors are an error."""
    model = TinyLlama(TinyShape.of(config))
    model.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in state.items()}, strict=True)
    return model


def state_of(model: TinyLlama) -> State:
    """Return a torch model's tensors, in float32."""
    return {name: np.array(value.detach().float().numpy()) for name, value in model.state_dict().items()}


@functools.cache
def _own_tokenizer(corpora: tuple[str, ...], vocabulary: int) -> str:
    text: str = tinylm.train_tokenizer(read_corpora(corpora), vocabulary).to_str()
    return text


@functools.lru_cache(maxsize=8)
def _tokens(corpora: tuple[str, ...], tokenizer: str, sequence: int) -> Tokens:
    return tinylm.tokenise(read_corpora(corpora), Tokenizer.from_str(tokenizer), sequence)


def train_member(
    how: Training,
    parents: Sequence[Loaded],
    teacher: Loaded | None,
    *,
    hidden: bool = False,
    report: Report | None = None,
) -> tuple[Loaded, dict[str, Any]]:
    """Train, and return the model rounded to BF16 and its record: losses in nats on held-out text, sizes, hash of the text.

    The result depends on the entry, the parents and the versions of torch, tokenizers and Python's own text alone: one
    thread is used whatever the caller has set. A teacher's outputs are learnt, or with ``hidden`` text and hidden states.
    """
    threads = torch.get_num_threads()
    deterministic = torch.get_deterministic_debug_mode()
    torch.set_num_threads(1)
    torch.set_deterministic_debug_mode("error")  # use_deterministic_algorithms loads a compiler first (2 s)
    try:
        return _train(how, parents, teacher, hidden, report)
    finally:
        torch.set_num_threads(threads)
        torch.set_deterministic_debug_mode(deterministic)


def _start(how: Training, parents: Sequence[Loaded]) -> tuple[TinyLlama, str]:
    if parents:
        model = model_of(parents[0].state, parents[0].config)
        if how.tokenizer is None:
            return model, json.dumps(parents[0].tokenizer)
    else:
        model = TinyLlama(TinyShape(**how.shape))
        model.initialise(how.init_seed or 0)
    return model, _own_tokenizer(how.tokenizer or how.corpora, model.shape.vocab)


def _train(
    how: Training, parents: Sequence[Loaded], teacher: Loaded | None, hidden: bool, report: Report | None
) -> tuple[Loaded, dict[str, Any]]:
    model, tokenizer = _start(how, parents)
    tokens = _tokens(how.corpora, tokenizer, how.sequence)
    before = tinylm.evaluate(model, tokens)
    distil = hidden_loss if hidden else distillation_loss
    loss_of = distil(model_of(teacher.state, teacher.config)) if teacher else tinylm.token_loss
    if how.lora_rank:
        add_lora(model, LORA_TARGETS, rank=how.lora_rank, scale=LORA_SCALE, seed=how.init_seed or 0)
    recipe = Recipe(how.steps, how.learning_rate, how.data_seed, batch=how.batch, sequence=how.sequence)
    tinylm.train(model, tokens, recipe, loss_of=loss_of, report=report)
    merge_lora(model)
    state = stored(state_of(model), "BF16")
    record = {
        "unigram_entropy_nats": round(tokens.unigram_entropy(model.shape.vocab), 4),
        "loss_before_nats": round(before, 4),
        "final_loss_nats": round(tinylm.evaluate(model_of(state, model.shape.config()), tokens), 4),
        "least_norm_std": round(min(float(v.std()) for v in state.values() if v.ndim == 1), 4),
        "training_tokens": len(tokens.train),
        "corpus_sha256": hashlib.sha256("\0".join(read_corpora(how.corpora)).encode()).hexdigest(),
    }
    content: TokenizerJson = json.loads(tokenizer)
    return Loaded(state, model.shape.config(), content), record
