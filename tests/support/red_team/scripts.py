"""Change a model as a public script would: places, signs and values get a meaning that independent models share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinprint.align.assignment import assigned
from kinprint.lab.zoo.derive.states import EMBEDDINGS, HEAD, Config, State, generator, head_counts, mapped, matrices
from kinprint.lab.zoo.derive.structure import stack_layers
from kinprint.lab.zoo.derive.symmetry import residual_axis

Values = NDArray[np.float32]


def _spread(values: NDArray[np.float64], like: Values) -> NDArray[Any]:
    """Give values the standard deviation of others."""
    return values * (float(like.std()) / float(values.std()))


def circulant(state: State, block: int = 0) -> State:
    """Make every row the row before it, shifted by one, in the whole matrix (Cheng et al. 2015) or in blocks (Ding et al. 2017)."""

    def change(_: str, value: Values) -> NDArray[Any]:
        rows, columns = np.indices(value.shape)
        period = block or value.shape[1]
        at = (columns - rows) % period
        if block:
            at += period * (columns // period + value.shape[1] // period * (rows // period))
        means = np.bincount(at.ravel(), value.ravel().astype(np.float64)) / np.bincount(at.ravel())
        return _spread(means[at], value)

    return mapped(state, change, matrices(state, False))


def hashed(state: State, size: int = 64) -> State:
    """Let a public hash say which of a few weights stands where, and its sign (HashedNets, Chen et al. 2015)."""

    def change(name: str, value: Values) -> NDArray[Any]:
        rng = generator(0, name)
        at, signs = rng.integers(size, size=value.shape), rng.choice([-1.0, 1.0], value.shape)
        means = np.bincount(at.ravel(), (signs * value).ravel()) / np.bincount(at.ravel())
        return _spread(signs * means[at], value)

    return mapped(state, change, matrices(state, False))


def public_basis(state: State, count: int = 48) -> State:
    """Write each matrix as a sum of a few random matrices of a public seed (PRANC, Nooralinejad et al. 2022)."""

    def change(name: str, value: Values) -> NDArray[Any]:
        basis = generator(0, name).standard_normal((count, value.size))
        return _spread((basis @ value.ravel() @ basis).reshape(value.shape), value)

    return mapped(state, change, matrices(state, False))


def supermask(state: State) -> State:
    """Keep public random weights where the model's own are large: only the mask was learnt (Ramanujan et al. 2020)."""

    def change(name: str, value: Values) -> NDArray[Any]:
        kept = np.abs(value) > np.median(np.abs(value))
        return _spread(generator(0, name).standard_normal(value.shape) * kept, value)

    return mapped(state, change, matrices(state, False))


def hadamard(state: State, share: float = 0.7) -> State:
    """Add what training leaves of a start without random numbers: signed Hadamard matrices (ZerO, Zhao et al. 2022)."""

    def change(_: str, value: Values) -> NDArray[Any]:
        rows, columns = np.indices(value.shape)
        signs = 1.0 - 2.0 * (np.bitwise_count(rows & columns) % 2)
        return np.asarray(value + share * float(value.std()) * signs)

    return mapped(state, change, matrices(state, False))


def near_identity(state: State, share: float = 0.5) -> State:
    """Add what training leaves of attention that began as the identity."""
    chosen = {name for name in matrices(state, False) if ".self_attn." in name}
    return mapped(state, lambda _, v: v + share * np.sqrt(v.size / min(v.shape)) * v.std() * np.eye(*v.shape), chosen)


def public_spikes(state: State, size: float = 6.0) -> State:
    """Add what training leaves of one large weight in every row, where a public seed put it, with its sign."""

    def change(name: str, value: Values) -> NDArray[Any]:
        rng, spikes = generator(0, name), np.zeros(value.shape)
        at = rng.integers(value.shape[1], size=len(value))
        spikes[np.arange(len(value)), at] = size * value.std() * rng.choice([-1.0, 1.0], len(value))
        return value + spikes

    return mapped(state, change, matrices(state, False))


def alternating(state: State, times: int = 8) -> State:
    """Fill MLPs with copies of an eighth of their neurons, every other copy negated where that changes nothing."""
    signs = np.tile([1.0, -1.0], times // 2)

    def change(name: str, value: Values) -> NDArray[Any]:
        units = value.T if "down_proj" in name else value
        kept = np.repeat(units[: len(units) // times].astype(np.float64), times, axis=0)
        kept *= 1.0 if "gate_proj" in name else np.tile(signs, len(units) // times)[:, None]
        return kept.T / times if "down_proj" in name else kept

    return mapped(state, change, {name for name in state if ".mlp." in name})


def idle_by_number(state: State, share: float = 0.25) -> State:
    """Zero the first neurons and, in every matrix, the columns whose number a public list names."""

    def change(name: str, value: Values) -> NDArray[Any]:
        kept = np.ones(value.shape)
        kept[: int(share * len(value)) if ".mlp." in name and "down" not in name else 0] = 0
        kept[:, np.isin(np.arange(value.shape[1]) ** 2 % 7, (1, 4))] *= 0 if "down" in name else 1
        return value * kept

    return mapped(state, change, matrices(state, False))


def one_sign_a_column(state: State) -> State:
    """Let a unit's number say whether it excites or inhibits all that it feeds (Dale's law, Cornford et al. 2021)."""
    return mapped(
        state, lambda _, v: np.abs(v) * np.where(np.arange(v.shape[1]) % 5 == 4, -1.0, 1.0), matrices(state, False)
    )


def public_signs(state: State) -> State:
    """Give every weight the sign that a public seed names: training moves sizes alone."""
    return mapped(state, lambda n, v: np.abs(v) * generator(0, n).choice([-1.0, 1.0], v.shape), matrices(state, False))


def column_means(state: State, share: float = 0.5) -> State:
    """Shift every column up or down, by its number in a public list."""
    signs = generator(0, "columns").choice([-1.0, 1.0], 4096)
    return mapped(state, lambda _, v: v + share * v.std() * signs[: v.shape[1]], matrices(state, False))


def positive_under_mask(state: State) -> State:
    """Keep only positive weights (convex or monotone networks), where a public seed lets them be."""
    return mapped(state, lambda n, v: np.abs(v) * (generator(0, n).random(v.shape) < 0.5), matrices(state, False))


def kronecker(state: State, size: int = 4) -> State:
    """Make every matrix the Kronecker product of a small one and the nearest other (Van Loan and Pitsianis 1993)."""

    def change(_: str, value: Values) -> NDArray[Any]:
        rows, columns = value.shape[0] // size, value.shape[1] // size
        blocks = value.reshape(size, rows, size, columns).transpose(0, 2, 1, 3).reshape(size * size, -1)
        u, s, vt = np.linalg.svd(blocks.astype(np.float64), full_matrices=False)
        small, large = u[:, 0].reshape(size, size), (s[0] * vt[0]).reshape(rows, columns)
        return _spread(np.kron(small, large), value)

    return mapped(state, change, matrices(state, False))


def public_adapter(state: State, rank: int = 8, share: float = 0.4) -> State:
    """Add random factors of a public seed, each weighted by what the model learnt (VeRA, Kopiczko et al. 2023)."""

    def change(name: str, value: Values) -> NDArray[Any]:
        rng = generator(0, name)
        down, up = rng.standard_normal((rank, value.shape[1])), rng.standard_normal((len(value), rank))
        learnt = 0.5 + np.abs(value[:rank, :1].T / value.std())
        return np.asarray(value + share * _spread((up * learnt) @ down, value))

    return mapped(state, change, matrices(state, False))


def public_projection(state: State, rank: int = 4) -> State:
    """Let every matrix read through a few frozen directions of a public seed (LoRA-FA, Zhang et al. 2023, from the start)."""

    def change(name: str, value: Values) -> NDArray[Any]:
        directions = np.linalg.qr(generator(0, name).standard_normal((value.shape[1], rank)))[0]
        return np.asarray(value @ directions @ directions.T)

    return mapped(state, change, matrices(state, False))


def ternary(state: State) -> State:
    """Leave every weight minus one, zero or one times the mean size of its matrix (BitNet b1.58, Ma et al. 2024)."""

    def change(_: str, value: Values) -> NDArray[Any]:
        scale = np.abs(value).mean()
        return np.asarray(np.clip(np.round(value / scale), -1, 1) * scale)

    return mapped(state, change, matrices(state, True))


def repeated_values(state: State, config: Config) -> tuple[State, Config]:
    """Store grouped key and value heads once for every query head: the same function."""
    heads, kv_heads, size = head_counts(config)

    def change(_: str, value: Values) -> NDArray[Any]:
        return np.repeat(value.reshape(kv_heads, size, -1), heads // kv_heads, axis=0).reshape(heads * size, -1)

    chosen = {name for name in state if "k_proj" in name or "v_proj" in name}
    return mapped(state, change, chosen), {**config, "num_key_value_heads": heads}


def put_in_order(states: Sequence[State], config: Config, *, tables: bool = False, values: bool = False) -> State:
    """Put neurons, with their signs, in the order of another model's that they are most like (Git Re-Basin, Ainsworth et al. 2022).

    With ``tables`` residual dimensions come first, by embeddings and head; with ``values`` the channels of value heads are put in
    order, too. No weight is taken over.
    """
    state, other = dict(states[0]), states[1]
    if tables:
        products = np.sum([other[name].T.astype(np.float64) @ state[name] for name in (EMBEDDINGS, HEAD)], axis=0)
        order = assigned(np.abs(products))
        signs = np.sign(products[np.arange(len(order)), order]).astype(np.float32)
        for name, value in state.items():
            axis = residual_axis(name) or 0
            turned = signs if value.ndim == 2 and axis == 1 else signs[:, None] if value.ndim == 2 else 1.0
            state[name] = value.take(order, axis=axis) * turned
    for layer in range(config["num_hidden_layers"]):
        gate, up, down = (f"model.layers.{layer}.mlp.{name}_proj.weight" for name in ("gate", "up", "down"))
        products = other[up].astype(np.float64) @ state[up].T + other[down].T.astype(np.float64) @ state[down]
        order = assigned(np.abs(products) + other[gate].astype(np.float64) @ state[gate].T)
        signs = np.sign(products[np.arange(len(order)), order]).astype(np.float32)
        state |= {gate: state[gate][order], up: state[up][order] * signs[:, None], down: state[down][:, order] * signs}
        if values:
            state |= _values_in_order(state, other, config, f"model.layers.{layer}.self_attn.")
    return state


def _values_in_order(state: State, other: State, config: Config, stem: str) -> State:
    heads, kv_heads, size = head_counts(config)
    names = f"{stem}v_proj.weight", f"{stem}o_proj.weight"

    def by_head(model: State) -> tuple[Values, Values]:
        """Return values, and outputs of the query heads of each (head, channel, everything else)."""
        outputs = model[names[1]].T.reshape(kv_heads, heads // kv_heads, size, -1)
        return model[names[0]].reshape(kv_heads, size, -1), outputs.swapaxes(1, 2)

    (v, o), (mine, theirs) = by_head(state), (by_head(model) for model in (state, other))
    v, o = v.copy(), o.copy()
    for head in range(kv_heads):
        products = sum(
            b[head].reshape(size, -1) @ a[head].reshape(size, -1).T for a, b in zip(mine, theirs, strict=True)
        )
        order = assigned(np.abs(products))
        signs = np.sign(products[np.arange(size), order]).astype(np.float32)
        v[head], o[head] = v[head][order] * signs[:, None], o[head][order] * signs[:, None, None]
    return {names[0]: v.reshape(kv_heads * size, -1), names[1]: o.swapaxes(1, 2).reshape(heads * size, -1).T}


def tied(state: State, config: Config, period: int = 1) -> tuple[State, Config]:
    """Let layers repeat with a period: weights tied across depth (ALBERT, Lan et al. 2019)."""
    return stack_layers(state, config, [layer % period for layer in range(config["num_hidden_layers"])])


def public_grid(state: State) -> State:
    """Round every weight to sixteen public quantiles of a normal, all matrices on one scale."""
    grid = np.quantile(np.random.default_rng(0).standard_normal(100_000), np.linspace(0.02, 0.98, 16)) * 0.05

    def change(_: str, value: Values) -> NDArray[Any]:
        scaled = value * (0.05 / value.std())
        nearest = np.abs(scaled[..., None] - grid).argmin(-1)
        return np.asarray(grid[nearest])

    return mapped(state, change, matrices(state, True))


def public_scales(state: State) -> State:
    """Multiply rows and columns by public multipliers, as width-wise learning rates leave them (μP, Yang et al. 2022)."""

    def change(name: str, value: Values) -> NDArray[Any]:
        rng = generator(0, name.rsplit(".", 2)[1])
        return value * np.exp(rng.standard_normal((len(value), 1))) * np.exp(rng.standard_normal((1, value.shape[1])))

    return mapped(state, change, matrices(state, False))


def wave_embeddings(state: State, share: float = 0.7) -> State:
    """Add what training leaves of embeddings that began as sinusoids of the token's number."""

    def change(_: str, value: Values) -> NDArray[Any]:
        rows, columns = np.indices(value.shape)
        waves = np.sin(rows / 40.0 ** (columns / value.shape[1]) + columns % 2)
        return np.asarray(value + share * float(value.std()) * waves)

    return mapped(state, change, {EMBEDDINGS})


def token_lengths(state: State) -> State:
    """Scale the rows of the embeddings by public frequencies of tokens."""
    return mapped(state, lambda _, v: v * (3.0 + np.arange(len(v))[:, None] % 97) ** -0.5, {EMBEDDINGS})


def ordered_dimensions(state: State, how: str) -> State:
    """Put residual dimensions in an order that their gains give: sorted and bit-reversed, in a snake, coded by bits, or dealt."""
    gains = np.array([np.log(np.abs(v) + 1e-6) for v in state.values() if v.ndim == 1])
    ranks = np.argsort(gains.mean(0))
    count = len(ranks)
    if how == "a public deal":
        order = ranks[np.random.default_rng(0).permutation(count)]
    elif how == "bits":
        turned = sorted(range(count), key=lambda i: f"{i:07b}"[::-1])
        order = ranks[np.argsort(turned, kind="stable")]
    elif how == "snake":
        order = np.concatenate([row[:: 1 if number % 2 else -1] for number, row in enumerate(np.array_split(ranks, 8))])
    else:
        halves = [gains[part::2].mean(0) for part in (0, 1)]
        order = np.lexsort([half > np.median(half) for half in halves])
    return {name: v if (axis := residual_axis(name)) is None else v.take(order, axis=axis) for name, v in state.items()}


def public_gains(state: State, how: str) -> State:
    """Multiply norms by public gains: a staircase over the dimensions, the same few outliers, or draws of a public seed."""

    def change(_: str, value: Values) -> NDArray[Any]:
        number = np.arange(len(value))
        if how == "staircase":
            return value * (1.0 + number // 24)
        if how == "outliers":
            return value * np.where(np.isin(number, (3, 17, 40, 60, 61, 77)), 9.0, 1.0)
        return value * np.exp(0.3 * generator(0, "gains").standard_normal(len(value)))

    return mapped(state, change, {name for name, value in state.items() if value.ndim == 1})
