"""Vocabularies cut and extended: rows of embeddings and head, and the tokenizer.json that goes with them."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinprint.lab.zoo.derive.states import EMBEDDINGS, TABLES, Config, State, TokenizerJson, generator, mapped


def prune_vocabulary(
    state: State, config: Config, tokenizer: TokenizerJson, keep: int, seed: int
) -> tuple[State, Config, TokenizerJson]:
    """Keep so many tokens and renumber them in their order; what is dropped is drawn among the merged tokens.

    A token goes only when no merge left needs it, so that the tokenizer can still spell every text. Raise ValueError if the
    tokenizer is no byte-pair encoding, or has not so many tokens that can go.
    """
    if tokenizer["model"].get("type") != "BPE":
        raise ValueError(f"cannot prune a vocabulary of type {tokenizer['model'].get('type')}, expected BPE")
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
    smaller = mapped(state, lambda _, values: values[rows], set(TABLES) & set(state))
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
    """Add so many tokens, whose rows are the mean of all rows and a little noise, as is usual before training them.

    Raise ValueError if ``extra`` is less than one.
    """
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
    grown = mapped(state, change, set(TABLES) & set(state))
    return grown, {**config, "vocab_size": count + extra}, tokenizer
