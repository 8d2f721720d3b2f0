"""Change the depth, width, experts or vocabulary of a model, its config and tokenizer along with it.

Every function raises ValueError if asked for layers, neurons or tokens that the model does not have.
"""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinprint.lab.zoo.derive.states import EMBEDDINGS, LAYER, Config, State, TokenizerJson, generator, mapped, tables
from kinprint.lab.zoo.derive.symmetry import choose_neurons


def stack_layers(state: State, config: Config, source_layers: Sequence[int]) -> tuple[State, Config]:
    """Return a model whose layer i is a copy of layer ``source_layers[i]``."""
    missing = sorted(set(source_layers) - set(range(config["num_hidden_layers"])))
    if missing:
        raise ValueError(f"there are {config['num_hidden_layers']} layers, numbers {missing} do not exist")
    result: State = {name: value.copy() for name, value in state.items() if not LAYER.match(name)}
    for name, value in state.items():
        found = LAYER.match(name)
        if found:
            copies = [new for new, old in enumerate(source_layers) if old == int(found[1])]
            result |= {f"model.layers.{new}.{found[2]}": value.copy() for new in copies}
    return result, {**config, "num_hidden_layers": len(source_layers)}


def drop_layers(state: State, config: Config, keep: Sequence[int]) -> tuple[State, Config]:
    """Keep the named layers, in their order."""
    if list(keep) != sorted(set(keep)):
        raise ValueError(f"layers to keep must be increasing, got {list(keep)}; stack_layers takes any order")
    return stack_layers(state, config, keep)


def frankenmerge(states: Sequence[State], config: Config, layers: Sequence[tuple[int, int]]) -> tuple[State, Config]:
    """Return a model whose layer i is layer ``layers[i][1]`` of model ``layers[i][0]``; all else is of the first model."""
    result: State = {name: value.copy() for name, value in states[0].items() if not LAYER.match(name)}
    for new, (model, old) in enumerate(layers):
        stem = f"model.layers.{old}."
        parts = {name.removeprefix(stem): value for name, value in states[model].items() if name.startswith(stem)}
        if not parts:
            raise ValueError(f"model {model} has no layer {old}")
        result |= {f"model.layers.{new}.{name}": value.copy() for name, value in parts.items()}
    shapes = {
        tuple(sorted((name.split(".", 3)[3], value.shape) for name, value in result.items() if name.startswith(stem)))
        for stem in (f"model.layers.{number}." for number in range(len(layers)))
    }
    if len(shapes) > 1:
        raise ValueError("cannot stack layers that differ in shape")
    return result, {**config, "num_hidden_layers": len(layers)}


def prune_neurons(state: State, config: Config, keep: int, seed: int) -> tuple[State, Config]:
    """Keep so many neurons of each feed-forward block, drawn at random and in random order."""
    if not 1 <= keep <= config["intermediate_size"]:
        raise ValueError(f"cannot keep {keep} of {config['intermediate_size']} neurons")
    return choose_neurons(state, config, keep, seed), {**config, "intermediate_size": keep}


def upcycle(state: State, config: Config, experts: int, noise: float, seed: int) -> tuple[State, Config]:
    """Copy each feed-forward block into Mixtral experts, each with its own noise, and draw routers.

    ``noise`` is relative to each matrix's standard deviation; with none the function is that of the dense model. Raise
    ValueError if a feed-forward block has biases, for which Mixtral has no place.
    """
    names = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}
    result: State = {}
    for name, value in state.items():
        before, found, after = name.partition(".mlp.")
        if not found:
            result[name] = value.copy()
            continue
        if value.ndim != 2:
            raise ValueError(f"{name} has no place in a Mixtral checkpoint")
        stem = f"{before}.block_sparse_moe."
        router = f"{stem}gate.weight"
        if router not in result:
            width = (experts, config["hidden_size"])
            result[router] = (0.02 * generator(seed, router).standard_normal(width)).astype(np.float32)
        for expert in range(experts):
            new = f"{stem}experts.{expert}.{names[after.split('.')[0]]}.weight"
            sigma = noise * value.std(dtype=np.float64)
            result[new] = (value + sigma * generator(seed, new).standard_normal(value.shape)).astype(np.float32)
    return result, {
        **config,
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        "num_experts_per_tok": min(2, experts),
        "num_local_experts": experts,
    }


def prune_vocabulary(
    state: State, config: Config, tokenizer: TokenizerJson | None, keep: int, seed: int
) -> tuple[State, Config, TokenizerJson]:
    """Keep so many tokens and renumber them in their order; what is dropped is drawn among the merged tokens.

    A token goes only when no merge left needs it, so that the tokenizer can still spell every text. Raise ValueError if the
    tokenizer is no byte-pair encoding, or has not so many tokens that can go.
    """
    kind = tokenizer["model"].get("type") if tokenizer else None
    if not tokenizer or kind != "BPE":
        raise ValueError(f"cannot prune a vocabulary of type {kind}, expected a tokenizer.json of type BPE")
    vocabulary: dict[str, int] = tokenizer["model"]["vocab"]
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in tokenizer["model"]["merges"]]
    count = len(state[EMBEDDINGS])
    if not 1 <= keep <= count or len(vocabulary) != count:
        raise ValueError(f"cannot keep {keep} of {count} rows for {len(vocabulary)} tokens")
    dropped = _droppable(merges, count - keep, np.random.default_rng(seed))
    rows = np.array([row for row in range(count) if row not in {vocabulary[token] for token in dropped}])
    number = {int(old): new for new, old in enumerate(rows)}
    changed = copy.deepcopy(tokenizer)
    changed["model"]["vocab"] = {t: number[i] for t, i in sorted(vocabulary.items(), key=lambda e: e[1]) if i in number}
    changed["model"]["merges"] = [list(m) for m in merges if "".join(m) not in dropped]
    changed["added_tokens"] = [{**added, "id": number[added["id"]]} for added in tokenizer["added_tokens"]]
    special = {k: number[v] for k, v in config.items() if k.endswith("_token_id") and isinstance(v, int)}
    smaller = mapped(state, lambda _, values: values[rows], tables(state))
    return smaller, {**config, **special, "vocab_size": keep}, changed


def _droppable(merges: list[tuple[str, ...]], count: int, rng: np.random.Generator) -> set[str]:
    """Draw so many tokens, each of them made by a merge and needed by no merge that is left."""
    dropped: set[str] = set()
    left = list(merges)
    while len(dropped) < count:
        needed = {part for merge in left for part in merge}
        leaves = sorted({"".join(merge) for merge in left} - needed)
        if not leaves:
            raise ValueError(f"cannot drop {count} tokens: only {len(dropped)} are made by merges")
        take = min(count - len(dropped), max(1, len(leaves) // 2))
        dropped.update(leaves[i] for i in rng.choice(len(leaves), take, replace=False))
        left = [merge for merge in left if "".join(merge) not in dropped]
    return dropped


def extend_vocabulary(
    state: State, config: Config, tokenizer: TokenizerJson | None, extra: int, seed: int
) -> tuple[State, Config, TokenizerJson | None]:
    """Add so many tokens, whose rows are the mean of all rows and a little noise, as is usual before training them."""
    if extra < 1:
        raise ValueError(f"cannot extend a vocabulary by {extra} tokens")
    count = len(state[EMBEDDINGS])

    def change(name: str, values: NDArray[np.float32]) -> NDArray[Any]:
        drawn = generator(seed, name).standard_normal((extra, values.shape[1]))
        new = values.mean(axis=0, dtype=np.float64) + 0.1 * values.std(dtype=np.float64) * drawn
        return np.concatenate([values, new.astype(values.dtype)])

    if tokenizer is not None:
        tokenizer = copy.deepcopy(tokenizer)
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        tokenizer["added_tokens"] += [
            {"id": count + i, "content": f"<|extra_{i}|>", **flags, "special": True} for i in range(extra)
        ]
    grown = mapped(state, change, tables(state))
    return grown, {**config, "vocab_size": count + extra}, tokenizer
