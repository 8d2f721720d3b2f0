"""Change a model as whoever hides, or honestly reshapes, a copy would; what `kinprint.lab.zoo.derive` has not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kinprint.lab.zoo.derive import drop_layers, fold_norms, frankenmerge, random_rotation, stack_layers
from kinprint.lab.zoo.derive.states import EMBEDDINGS, WRITERS, Config, State, ends_in, generator, mapped, matrices
from kinprint.lab.zoo.derive.symmetry import _AFTER, residual_axis

_EXPERT = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}


def more_neurons(state: State, config: Config, count: int, *, idle: bool) -> tuple[State, Config]:
    """Add neurons that do nothing, or split some in two: the same function."""
    state = dict(state)
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}.mlp."
        gate, up, down = (state[f"{at}{name}_proj.weight"] for name in ("gate", "up", "down"))
        down = down.copy()
        if not idle:
            down[:, :count] *= 0.5
        added = (matrix[:count] * (0.0 if idle else 1.0) for matrix in (gate, up, down.T))
        wider = [np.concatenate(both) for both in zip((gate, up, down.T), added, strict=True)]
        names = (f"{at}{name}_proj.weight" for name in ("gate", "up", "down"))
        state |= dict(zip(names, (wider[0], wider[1], wider[2].T), strict=True))
    return state, {**config, "intermediate_size": config["intermediate_size"] + count}


def widened(state: State, config: Config, extra: int = 32) -> tuple[State, Config]:
    """Add residual dimensions that hold nothing; norms and their epsilon make up for the longer mean: the same function."""
    state, config = fold_norms(state, config)
    width = config["hidden_size"]
    result = {}
    for name, value in state.items():
        if value.ndim == 1:
            result[name] = np.full(width + extra, np.sqrt(width / (width + extra)), np.float32)
        else:
            axis = residual_axis(name)
            result[name] = np.pad(value, [(0, extra * (axis == place)) for place in (0, 1)])
    epsilon = config["rms_norm_eps"] * width / (width + extra)
    return result, {**config, "hidden_size": width + extra, "rms_norm_eps": epsilon}


def sliced(state: State, config: Config, keep: int = 72) -> tuple[State, Config]:
    """Keep the leading principal directions of the embeddings as the residual stream (SliceGPT, Ashkboos et al. 2024)."""
    state, config = fold_norms(state, config)
    basis = np.linalg.svd(state[EMBEDDINGS].astype(np.float64), full_matrices=False)[2][:keep].T
    result = {}
    for name, value in state.items():
        wide = basis.T @ value if ends_in(name, WRITERS) else value @ basis
        result[name] = (np.ones(keep) if value.ndim == 1 else wide).astype(np.float32)
    return result, {**config, "hidden_size": keep}


def rotate_each_layer(state: State, config: Config, seed: int) -> tuple[State, Config]:
    """Give each layer a basis of its own, and store the turns between them as tensors that no Llama has: the same function."""
    folded, config = fold_norms(state, config)
    width, rng = config["hidden_size"], np.random.default_rng(seed)
    turns = [random_rotation(width, rng) for _ in range(config["num_hidden_layers"])]

    def change(name: str, value: NDArray[np.float32]) -> NDArray[np.float64]:
        turn = turns[int(name.split(".")[2])]
        return turn.T @ value if ends_in(name, WRITERS) else value @ turn

    result = mapped(folded, change, {n for n, v in folded.items() if ".layers." in n and v.ndim == 2})
    before = [np.eye(width), *turns]
    shortcuts = {
        f"model.layers.{i}.shortcut_Q": (before[i].T @ turn).astype(np.float32) for i, turn in enumerate(turns)
    }
    return {**result, **shortcuts}, config


def partly_reordered(state: State, config: Config, seed: int, share: float = 0.5) -> State:
    """Reorder some of the residual dimensions and some of the neurons, the others stay in place: the same function."""
    rng = np.random.default_rng(seed)

    def some(count: int) -> NDArray[np.intp]:
        order, chosen = np.arange(count), np.sort(rng.choice(count, int(share * count), replace=False))
        order[chosen] = rng.permutation(chosen)
        return order

    dimensions = some(config["hidden_size"])
    state = {name: value.take(dimensions, axis=residual_axis(name)) for name, value in state.items()}
    for layer in range(config["num_hidden_layers"]):
        neurons = some(config["intermediate_size"])
        for name in ("gate", "up", "down"):
            at = f"model.layers.{layer}.mlp.{name}_proj.weight"
            state[at] = state[at].take(neurons, axis=1 if name == "down" else 0)
    return state


def cut_in_two(state: State, config: Config, seed: int) -> tuple[State, Config]:
    """Make of each layer one that attends and one that has its MLP; what the other half would write is zero: the same function."""
    count = config["num_hidden_layers"]
    state, config = stack_layers(state, config, [layer for layer in range(count) for _ in (0, 1)])
    halves = {".mlp.": "down_proj", ".self_attn.": "o_proj"}
    idle = {
        name: name.endswith(f"{halves[part]}.weight")
        for name in state
        for number, part in enumerate(halves)
        if part in name and int(name.split(".")[2]) % 2 == number
    }
    return mapped(
        state, lambda n, v: generator(seed, n).standard_normal(v.shape) * v.std() * (not idle[n]), set(idle)
    ), config


def averaged_layers(state: State, config: Config) -> tuple[State, Config]:
    """Average every two neighbouring layers: half as many."""
    count = config["num_hidden_layers"]
    (one, config), (two, _) = (stack_layers(state, config, list(range(first, count, 2))) for first in (0, 1))
    return {name: 0.5 * (value + two[name]) for name, value in one.items()}, config


def thinned(state: State, config: Config, every: int = 4) -> tuple[State, Config]:
    """Drop every n-th layer."""
    return drop_layers(state, config, [i for i in range(config["num_hidden_layers"]) if i % every != every - 1])


def doubled(state: State, config: Config) -> tuple[State, Config]:
    """Repeat the middle third of the layers, as depth up-scaling does."""
    third = config["num_hidden_layers"] // 3
    return stack_layers(state, config, [*range(2 * third), *range(third, config["num_hidden_layers"])])


def mixed_layers(state: State, config: Config, seed: int) -> tuple[State, Config]:
    """Put the layers in a random order."""
    return stack_layers(
        state, config, [int(i) for i in np.random.default_rng(seed).permutation(config["num_hidden_layers"])]
    )


def inserted(state: State, config: Config, every: int = 3) -> tuple[State, Config]:
    """Insert a layer drawn anew after every n-th."""
    order = sorted([*range(config["num_hidden_layers"]), *range(every - 1, config["num_hidden_layers"], every)])
    state, config = stack_layers(state, config, order)
    fresh = [f".layers.{place}." for place in range(1, len(order)) if order[place] == order[place - 1]]
    chosen = {name for name, value in state.items() if value.ndim == 2 and any(at in name for at in fresh)}
    return mapped(state, lambda n, v: generator(9, n).standard_normal(v.shape) * v.std(), chosen), config


def foreign_layers(states: Sequence[State], config: Config, share: float) -> tuple[State, Config]:
    """Take the upper layers, so large a share of all, of another model."""
    count = config["num_hidden_layers"]
    return frankenmerge(states, config, [(int(layer >= round((1 - share) * count)), layer) for layer in range(count)])


def every_other(states: Sequence[State]) -> State:
    """Take every second layer from the second state: one change in some layers only."""
    return {
        name: states[1][name] if ".layers." in name and int(name.split(".")[2]) % 2 else value
        for name, value in states[0].items()
    }


def split_into_experts(state: State, config: Config, experts: int = 4, seed: int | None = None) -> tuple[State, Config]:
    """Cut each MLP into experts of neighbouring neurons, or with a seed of neurons in a random order."""
    found: State = {}
    for name, value in state.items():
        stem, _, rest = name.partition(".mlp.")
        if not rest:
            found[name] = value
            continue
        axis, neurons = (1, value.shape[1]) if rest.startswith("down") else (0, len(value))
        order = np.arange(neurons) if seed is None else generator(seed, stem).permutation(neurons)
        for expert, part in enumerate(np.split(np.take(value, order, axis=axis), experts, axis=axis)):
            found[f"{stem}.block_sparse_moe.experts.{expert}.{_EXPERT[rest.split('.')[0]]}.weight"] = part.copy()
        router = generator(1, stem).standard_normal((experts, config["hidden_size"]))
        found[f"{stem}.block_sparse_moe.gate.weight"] = 0.02 * router.astype(np.float32)
    sizes = {"num_local_experts": experts, "num_experts_per_tok": experts}
    sizes["intermediate_size"] = config["intermediate_size"] // experts
    return found, {**config, "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", **sizes}


def reorder_experts(state: State, config: Config, seed: int) -> State:
    """Put the experts of each layer in another order, the router along with them: the same function."""
    result, rng = dict(state), np.random.default_rng(seed)
    for layer in range(config["num_hidden_layers"]):
        stem = f"model.layers.{layer}.block_sparse_moe."
        order = rng.permutation(config["num_local_experts"])
        result[f"{stem}gate.weight"] = state[f"{stem}gate.weight"][order]
        for new, old in enumerate(order):
            for part in ("w1", "w2", "w3"):
                result[f"{stem}experts.{new}.{part}.weight"] = state[f"{stem}experts.{old}.{part}.weight"]
    return result


def truncated(state: State, rank: int) -> State:
    """Cut the rank of every matrix but the tables."""

    def cut(_: str, values: NDArray[np.float32]) -> NDArray[np.float64]:
        u, s, vt = np.linalg.svd(values.astype(np.float64), full_matrices=False)
        found: NDArray[np.float64] = (u[:, :rank] * s[:rank]) @ vt[:rank]
        return found

    return mapped(state, cut, matrices(state, False))


def factored(state: State, names: tuple[str, str] = ("0", "1"), seed: int = 5) -> State:
    """Store each matrix of the MLPs as two that multiply to it, in a random basis between: the same function."""
    result = {}
    for name, value in state.items():
        if ".mlp." not in name:
            result[name] = value
            continue
        stem = name.removesuffix(".weight")
        inner = random_rotation(min(value.shape), generator(seed, name))
        u, s, vt = np.linalg.svd(value.astype(np.float64), full_matrices=False)
        halves = (inner.T * np.sqrt(s)) @ vt, (u * np.sqrt(s)) @ inner  # the first is applied first
        result |= {f"{stem}.{part}.weight": half.astype(np.float32) for part, half in zip(names, halves, strict=True)}
    return result


def renamed(state: State, parts: Sequence[str]) -> State:
    """Give the tensors of some parts names that no architecture has."""
    return {(f"mystery.{number}" if any(part in name for part in parts) else name): value
            for number, (name, value) in enumerate(state.items())}  # fmt: skip


def partly_folded(state: State, power: float = 0.5, seed: int | None = None) -> State:
    """Fold a power of each gain (or random factors) into what reads after it: the same function."""
    result = dict(state)
    for name, gain in state.items():
        stem, module = name.rsplit(".", 2)[:2]
        if module in _AFTER:
            drawn = 1.0 if seed is None else np.exp(0.4 * generator(seed, name).standard_normal(gain.shape))
            factors = (np.abs(gain) ** power * drawn).astype(np.float32)
            result[name] = gain / factors
            readers = [r for r in state if r.startswith(f"{stem}.") and ends_in(r, _AFTER[module])]
            result |= {reader: state[reader] * factors for reader in readers}
    return result


def shuffled_norms(state: State, seed: int, *, apart: bool) -> State:
    """Shuffle the gains of all norms in one order, or each norm in its own."""
    chosen = {name for name, value in state.items() if value.ndim == 1}
    return mapped(state, lambda name, v: generator(seed, name if apart else "").permutation(v), chosen)


def redrawn(state: State, part: str = ".mlp.") -> State:
    """Draw the matrices of a part anew, at their spread."""
    chosen = {name for name, value in state.items() if part in name and value.ndim == 2}
    return mapped(state, lambda n, v: generator(5, n).standard_normal(v.shape) * v.std(), chosen)


def constant_norms(state: State) -> State:
    """Set every gain to one."""
    return mapped(state, lambda _, v: np.ones_like(v), {name for name, value in state.items() if value.ndim == 1})


def norms_of(state: State, other: State, parts: str = "norm", noise: float = 0.0) -> State:
    """Take another model's gains, in norms whose name has ``parts``, with noise relative to their spread."""
    chosen = {name for name, value in state.items() if value.ndim == 1 and parts in name}
    return mapped(
        state, lambda n, _: other[n] + noise * other[n].std() * generator(3, n).standard_normal(other[n].shape), chosen
    )
