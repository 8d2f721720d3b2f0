"""Reorder, negate, rescale and rotate what a Llama or Mixtral computes with, its function unchanged.

The residual stream may be rotated once every norm's gain is folded into the matrices that read after it, since
root-mean-square normalisation without gains commutes with rotations. Within a key-value head, values may go to any basis
that the output matrix leaves again; queries and keys only to one that commutes with rotary position embedding, that is by
a turn and a scale for each pair of dimensions that it turns (Su et al. 2021, arXiv:2104.09864).
"""

from collections.abc import Callable, Iterator
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import FloatArray
from kinprint.lab.zoo.derive import states
from kinprint.lab.zoo.derive.states import HEAD, NORMS, Config, State, blocks, ends_in, head_counts, mapped

Order = NDArray[np.intp]
LARGEST_FACTOR = 2.0
_AFTER: dict[str, tuple[str, ...]] = {
    "input_layernorm": ("q_proj", "k_proj", "v_proj"),
    "post_attention_layernorm": ("gate_proj", "up_proj", "w1", "w3", "gate"),
}


def residual_axis(name: str) -> int | None:
    """Return the axis of a tensor along which the residual stream runs, None for biases that never meet it.

    Raise ValueError if the tensor's part in the model is not known: leaving it alone would change the function.
    """
    module, kind = name.split(".")[-2:]
    if module in NORMS or module in states.WRITERS:
        return 0
    if module in states.READERS:
        return 1 if kind == "weight" else None
    raise ValueError(f"cannot tell how {name} meets the residual stream")


def _on_rows(state: State, stem: str, change: Callable[[FloatArray], FloatArray]) -> None:
    """Apply a change of the output's basis or order to a matrix and to its bias."""
    for name in (f"{stem}.weight", f"{stem}.bias"):
        if name in state:
            value = state[name]
            rows = value.astype(np.float64).reshape(len(value), -1)
            state[name] = change(rows).reshape(-1, *value.shape[1:]).astype(value.dtype)


def _attentions(state: State, config: Config) -> Iterator[str]:
    for layer in range(config["num_hidden_layers"]):
        if f"model.layers.{layer}.self_attn.v_proj.weight" in state:
            yield f"model.layers.{layer}.self_attn."


# -- orders and signs ----------------------------------------------------------------------------------------------------


def _shuffle(count: int, rng: np.random.Generator) -> Order:
    """Draw an order that is not the one there was, where there is another."""
    identity = np.arange(count)
    while True:
        order: Order = rng.permutation(count)
        if count < 2 or not np.array_equal(order, identity):
            return order


def _take_columns(state: State, stem: str, order: Order) -> None:
    state[f"{stem}.weight"] = np.ascontiguousarray(state[f"{stem}.weight"][:, order])


def permute_neurons(state: State, config: Config, seed: int) -> State:
    """Reorder the neurons of each feed-forward block; the same function."""
    return choose_neurons(state, config, config["intermediate_size"], seed)


def choose_neurons(state: State, config: Config, keep: int, seed: int) -> State:
    """Keep the first ``keep`` neurons of each feed-forward block in an order drawn at random."""
    rng = np.random.default_rng(seed)
    result = {name: value.copy() for name, value in state.items()}
    for gate, up, down in blocks(state, config):
        order = _shuffle(config["intermediate_size"], rng)[:keep]
        _on_rows(result, gate, itemgetter(order))
        _on_rows(result, up, itemgetter(order))
        _take_columns(result, down, order)
    return result


def permute_heads(state: State, config: Config, seed: int) -> State:
    """Reorder key-value groups, and query heads within their groups, in each layer; the same function."""
    rng = np.random.default_rng(seed)
    heads, kv_heads, width = head_counts(config)
    group = heads // kv_heads
    result = {name: value.copy() for name, value in state.items()}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}.self_attn."
        groups = _shuffle(kv_heads, rng)
        chosen = np.concatenate([g * group + _shuffle(group, rng) for g in groups])
        queries, keys = ((order[:, None] * width + np.arange(width)).ravel() for order in (chosen, groups))
        for part, order in (("q_proj", queries), ("k_proj", keys), ("v_proj", keys)):
            _on_rows(result, prefix + part, itemgetter(order))
        _take_columns(result, prefix + "o_proj", queries)
    return result


def permute_residual(state: State, config: Config, seed: int) -> State:
    """Reorder the dimensions of the residual stream wherever they are read, written or scaled; the same function."""
    order = _shuffle(config["hidden_size"], np.random.default_rng(seed))

    def change(name: str, value: NDArray[np.float32]) -> NDArray[Any]:
        axis = residual_axis(name)
        return value if axis is None else np.ascontiguousarray(value.take(order, axis=axis))

    return mapped(state, change, set(state))


def flip_signs(state: State, config: Config, seed: int) -> State:
    """Negate about half of the residual dimensions wherever they are read or written; the same function.

    Norms divide by a mean of squares and multiply by their gains: a sign goes through them unchanged.
    """
    signs = np.random.default_rng(seed).choice(np.array([-1.0, 1.0]), config["hidden_size"])

    def change(name: str, value: NDArray[np.float32]) -> NDArray[Any]:
        axis = residual_axis(name)
        if axis is None or ends_in(name, NORMS):
            return value
        flipped: FloatArray = value * (signs if axis == value.ndim - 1 else signs[:, None])
        return flipped

    return mapped(state, change, set(state))


def random_symmetry(state: State, config: Config, seed: int) -> State:
    """Reorder neurons, heads and residual dimensions, each at random and independently: the same function.

    Applied to one of two related models it changes neither function and breaks every tie of position between them.
    """
    neurons, heads, residual = _seeds(seed, 3)
    result = permute_heads(permute_neurons(state, config, neurons), config, heads)
    return permute_residual(result, config, residual)


def permute_and_flip(state: State, config: Config, seed: int) -> State:
    """Reorder neurons, heads and residual dimensions, and negate some of these; the same function."""
    orders, signs = _seeds(seed, 2)
    return flip_signs(random_symmetry(state, config, orders), config, signs)


def _seeds(seed: int, count: int) -> list[int]:
    return [int(part) for part in np.random.SeedSequence(seed).generate_state(count)]


# -- scales and bases ----------------------------------------------------------------------------------------------------


def rescale_pairs(state: State, factor: float) -> State:
    """Multiply query, value and up matrices by ``factor`` and divide their partners by it: the same function."""
    up, down = ("q_proj", "v_proj", "up_proj", "w3"), ("k_proj", "o_proj", "down_proj", "w2")
    # A bias before the partner scales with its own matrix; one after it (o_proj, down_proj) stays as it is.
    still = {name for name in state if name.endswith(("o_proj.bias", "down_proj.bias"))}
    factors = {name: factor if name.split(".")[-2] in up else 1 / factor for name in state if ends_in(name, up + down)}
    return mapped(state, lambda name, values: values * factors[name], set(factors) - still)


def fold_norms(state: State, config: Config) -> tuple[State, Config]:
    """Multiply every norm's gain into the matrices that read after it and set it to one; the same function.

    Tied embeddings become two tables, since the head takes the last norm's gain and the embeddings do not.
    """
    result = {name: value.copy() for name, value in state.items()}
    if HEAD not in result:
        result[HEAD] = state[states.EMBEDDINGS].copy()
        config = {**config, "tie_word_embeddings": False}
    for name, gain in state.items():
        stem, module = name.rsplit(".", 2)[:2]
        if module not in NORMS:
            continue
        readers = (
            [HEAD] if module == "norm" else [r for r in state if r.startswith(f"{stem}.") and r.endswith(".weight")]
        )
        for reader in readers:
            if reader == HEAD or ends_in(reader, _AFTER[module]):
                result[reader] = (result[reader].astype(np.float64) * gain).astype(result[reader].dtype)
        result[name] = np.ones_like(gain)
    return result, config


def random_rotation(size: int, rng: np.random.Generator) -> FloatArray:
    """Draw an orthogonal matrix uniformly (Mezzadri 2006, arXiv:math-ph/0609050)."""
    q, r = np.linalg.qr(rng.standard_normal((size, size)))
    rotation: FloatArray = q * np.sign(np.diag(r))
    return rotation


def rotate_residual(state: State, config: Config, seed: int) -> tuple[State, Config]:
    """Fold the norms and put the residual stream into a basis drawn at random; the same function."""
    folded, config = fold_norms(state, config)
    rotation = random_rotation(config["hidden_size"], np.random.default_rng(seed))

    def change(name: str, value: NDArray[np.float32]) -> NDArray[Any]:
        axis = residual_axis(name)
        if axis is None or ends_in(name, NORMS):
            return value
        # x becomes xR: what writes x is turned along, what reads it turns back.
        wide = value.astype(np.float64)
        return rotation.T @ wide if ends_in(name, states.WRITERS) and value.ndim == 2 else wide @ rotation

    return mapped(folded, change, set(folded)), config


def _factors(count: int, largest: float, rng: np.random.Generator) -> FloatArray:
    """Draw factors between 1 / largest and largest, evenly on a logarithmic scale."""
    return np.exp(rng.uniform(-np.log(largest), np.log(largest), count))


def rescale_neurons(state: State, config: Config, seed: int, largest: float = LARGEST_FACTOR) -> State:
    """Multiply each row of the up matrices by a factor and divide the down column by it; the same function.

    Gate rows stay: SiLU of a multiple is no multiple of SiLU.
    """
    rng = np.random.default_rng(seed)
    result = {name: value.copy() for name, value in state.items()}
    for _, up, down in blocks(state, config):
        factors = _factors(config["intermediate_size"], largest, rng)
        _on_rows(result, up, partial(np.multiply, factors[:, None]))
        weight = f"{down}.weight"
        result[weight] = (result[weight] / factors).astype(result[weight].dtype)
    return result


def _change_values(
    state: State, config: Config, draw: Callable[[int, int], FloatArray], back: Callable[[FloatArray], FloatArray]
) -> State:
    """Put the values of each key-value head into the basis drawn, and the output matrix's columns back out of it."""
    heads, kv_heads, width = head_counts(config)
    result = {name: value.copy() for name, value in state.items()}
    for prefix in _attentions(state, config):
        bases = draw(kv_heads, width)

        def forth(rows: FloatArray, bases: FloatArray = bases) -> FloatArray:
            turned: FloatArray = bases @ rows.reshape(kv_heads, width, -1)
            return turned

        _on_rows(result, f"{prefix}v_proj", forth)
        name = f"{prefix}o_proj.weight"
        columns = result[name].astype(np.float64).reshape(len(result[name]), heads, width)
        inverse = np.repeat(back(bases), heads // kv_heads, axis=0)
        result[name] = (
            np.einsum("ohw,hwv->ohv", columns, inverse).reshape(result[name].shape).astype(result[name].dtype)
        )
    return result


def rescale_values(state: State, config: Config, seed: int, largest: float = LARGEST_FACTOR) -> State:
    """Multiply each value head by a factor and divide what the output matrix reads of it; the same function."""
    rng = np.random.default_rng(seed)

    def draw(count: int, width: int) -> FloatArray:
        return _factors(count, largest, rng)[:, None, None] * np.eye(width)

    return _change_values(state, config, draw, lambda bases: np.linalg.inv(bases).astype(np.float64))


def mix_values(state: State, config: Config, seed: int) -> State:
    """Rotate the values of each key-value head by an orthogonal matrix of its own; the same function."""
    rng = np.random.default_rng(seed)

    def draw(count: int, width: int) -> FloatArray:
        return np.stack([random_rotation(width, rng) for _ in range(count)])

    return _change_values(state, config, draw, lambda bases: bases.transpose(0, 2, 1))


def turn_rotary(state: State, config: Config, seed: int, largest: float = LARGEST_FACTOR) -> State:
    """Turn and scale each rotary pair of each key head, and its query heads against it; the same function.

    With the pair as one complex number, a score is the real part of q times the conjugate of k, and rotary embedding
    multiplies both by numbers of length one: q may be multiplied by any z, and k by 1 over the conjugate of z.
    """
    rng = np.random.default_rng(seed)
    heads, kv_heads, width = head_counts(config)
    result = {name: value.copy() for name, value in state.items()}
    for prefix in _attentions(state, config):
        count = kv_heads * (width // 2)
        z = (_factors(count, largest, rng) * np.exp(2j * np.pi * rng.random(count))).reshape(kv_heads, -1)
        for part, numbers in (("q_proj", np.repeat(z, heads // kv_heads, axis=0)), ("k_proj", 1 / z.conj())):

            def change(rows: FloatArray, numbers: NDArray[np.complex128] = numbers) -> FloatArray:
                halves = rows.reshape(len(numbers), 2, width // 2, -1)
                turned = (halves[:, 0] + 1j * halves[:, 1]) * numbers[:, :, None]
                return np.stack([turned.real, turned.imag], axis=1)

            _on_rows(result, prefix + part, change)
    return result


def all_symmetries(state: State, config: Config, seed: int, largest: float = LARGEST_FACTOR) -> tuple[State, Config]:
    """Reorder, rescale, turn and rotate all that can be without changing the function."""
    seeds = _seeds(seed, 6)
    state = permute_and_flip(state, config, seeds[0])
    state = rescale_neurons(state, config, seeds[1], largest)
    state = rescale_values(state, config, seeds[2], largest)
    state = mix_values(state, config, seeds[3])
    state = turn_rotary(state, config, seeds[4], largest)
    return rotate_residual(state, config, seeds[5])
