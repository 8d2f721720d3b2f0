"""Repositories of tiny synthetic models, by the thousand: the tensors of a small llama, a config and a card."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from support.layouts import write_checkpoint

HIDDEN, INNER, LAYERS, VOCABULARY = 64, 96, 2, 96


def tiny_tensors(seed: int) -> dict[str, NDArray[np.float32]]:
    """Return random weights."""
    rng = np.random.default_rng([77, seed])

    def matrix(rows: int, columns: int) -> NDArray[np.float32]:
        return (rng.standard_normal((rows, columns)) / 8.0).astype(np.float32)

    def norm() -> NDArray[np.float32]:
        return (1.0 + 0.1 * rng.standard_normal(HIDDEN)).astype(np.float32)

    found = {"model.embed_tokens.weight": matrix(VOCABULARY, HIDDEN), "model.norm.weight": norm()}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        for name in ("q", "k", "v", "o"):
            found[f"{at}.self_attn.{name}_proj.weight"] = matrix(HIDDEN, HIDDEN)
        for name, shape in {"gate": (INNER, HIDDEN), "up": (INNER, HIDDEN), "down": (HIDDEN, INNER)}.items():
            found[f"{at}.mlp.{name}_proj.weight"] = matrix(*shape)
        found[f"{at}.input_layernorm.weight"] = norm()
        found[f"{at}.post_attention_layernorm.weight"] = norm()
    return found


CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": VOCABULARY,
}


def write_tiny(folder: Path, seed: int, card: str | None = None) -> Path:
    """Write one model."""
    write_checkpoint(folder, tiny_tensors(seed), CONFIG)
    (folder / "README.md").write_text(card or "---\nlicense: mit\n---\nSynthetic.\n", encoding="utf-8")
    return folder
