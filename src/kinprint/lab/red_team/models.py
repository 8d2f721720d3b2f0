"""Give models of any depth to the red team: bundled ones made deeper, ones drawn by a generator, and ones trained here."""

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from kinprint.lab.zoo import derive
from kinprint.lab.zoo.derive.states import generator
from kinprint.lab.zoo.members import Loaded, Training

Source = Callable[[int], Loaded]  # a model by its number of layers
ROOT = Path(__file__).resolve().parents[4]
_KIN = ("base", "finetune", "continued", "lora", "norms_reset", "norms_copied", "child_of_child", "sibling", "revocab")


def deepened(folder: Path, layers: int, seed: int = 1, noise: int = 0) -> Loaded:
    """Stack a trained model's layers, each further copy reordered and with half its spread of noise: related to none in place.

    A child deepened with the seed of its parent is a child: copies are reordered alike, and with one ``noise`` get the same noise.
    """
    state, config, tokenizer = derive.load_state(folder)
    depth = config["num_hidden_layers"]
    result = {name: value for name, value in state.items() if ".layers." not in name}
    for layer in range(layers):
        copy, source = divmod(layer, depth)
        changed = state
        if copy:
            drawn = seed * 100 + copy
            changed = derive.permute_neurons(derive.permute_residual(state, config, drawn), config, drawn)
            changed = derive.noise(changed, 0.5, drawn + noise)
        at, to = f".layers.{source}.", f".layers.{layer}."
        result |= {name.replace(at, to): value for name, value in changed.items() if at in name}
    return Loaded(result, {**config, "num_hidden_layers": layers}, tokenizer)


@cache
def bundled(name: str) -> Source:
    """Return a model of the demo or of the tests' family, deepened."""
    folder = next(path for place in ("demo/models", "tests/family") if (path := ROOT / place / name).is_dir())
    seed = 1 if name in _KIN else 2 + sum(map(ord, name))
    noise = 5000 * (name == "norms_copied")  # shares norms, no noise
    return cache(lambda layers: deepened(folder, layers, seed, noise))


@cache
def drawn(seed: int, *, start: int | None = None, learned: float = 2.0, embeddings: int | None = None) -> Source:
    """Return a model of a generator: a Gaussian start, and learned directions whose strength falls off beyond its noise.

    Models of one ``start`` share the Gaussian, those of one ``embeddings`` the Gaussian of the embeddings alone. Gains of
    norms follow a vector of the model and one of the layer.
    """

    def make(layers: int) -> Loaded:
        model = bundled("base")(layers)
        state: derive.State = {}
        for name, value in model.state.items():
            own, begin = generator(seed, name), seed if start is None else start
            if value.ndim == 1:
                common = generator(seed, "gains").standard_normal(value.shape)
                state[name] = np.exp(0.2 * common + 0.1 * own.standard_normal(value.shape)).astype(np.float32)
                continue
            begin = embeddings if embeddings is not None and "embed" in name else begin
            rows, columns = value.shape
            rank = min(rows, columns) // 6
            strengths = learned * (rows**0.5 + columns**0.5) * np.arange(1, rank + 1) ** -0.5
            u, v = (own.standard_normal((size, rank)) / size**0.5 for size in (rows, columns))
            noise = generator(90_000 + begin, name).standard_normal(value.shape)
            state[name] = (0.02 * (noise + (u * strengths) @ v.T)).astype(np.float32)
        return Loaded(state, model.config, model.tokenizer)

    return cache(make)


def trained(how: Training, parent: Source | None = None, *, hidden: bool = False) -> Source:
    """Return a model trained here and kept in the cache folder; needs torch. ``hidden``: to match the hidden states of base."""

    def make(layers: int) -> Loaded:
        shaped = replace(how, shape={"layers": layers})
        before = parent(layers) if parent else None
        key = hashlib.sha256(f"1 {shaped} {hidden}".encode())
        if before:
            key.update(b"".join(before.state[name].tobytes() for name in sorted(before.state)))
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kinprint" / "red-team"
        folder = root / key.hexdigest()[:16]
        if not (folder / "config.json").is_file():
            from kinprint.lab.zoo.training import train_member

            teacher = bundled("base")(4) if hidden else None
            made, _ = train_member(shaped, [before] if before else [], teacher, hidden=hidden)
            derive.save_state(folder, *made)
        return Loaded(*derive.load_state(folder))

    return cache(make)
