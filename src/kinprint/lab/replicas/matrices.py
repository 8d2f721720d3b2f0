"""Make the matrix values that the studies read: windows of projections, routers, their biases, embedding rows.

All are independent noise; what two models share is a cosine of the published size, brought about by changing signs of a
few elements, which leaves both distributions as they are. Where only mean, deviation and range over layers were published,
values by layer are drawn so that these hold exactly.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import FloatArray
from kinprint.formats.plan import Run
from kinprint.formats.safetensors.writer import from_bf16, to_bf16
from kinprint.formats.tensors import TensorInfo
from kinprint.lab.replicas.attention import attention_matrices
from kinprint.lab.replicas.noise import Bits, draw_codes, gaussian_table
from kinprint.lab.replicas.published_figures import published
from kinprint.lab.replicas.shapes import SHAPES, tensors_of
from kinprint.lab.replicas.tokenizers import first_tokens
from kinprint.studies.origin.windows import windows

Block = NDArray[np.float32]
Known = Mapping[int, float]  # by layer

WINDOWS, WINDOW_LENGTH = 3, 262_144
EARLY = 32_768  # elements of each window that a quick study reads
SHARED_LAYERS = 46
EMBEDDING_ROWS = 10_000
"""Rows of ids below this are filled; every token that the studies choose is among them in both models."""

# Solar's standard deviations, near those which the published mean differences of layers 10 to 30 imply.
_DEVIATION = {"q_proj": 0.02, "k_proj": 0.033, "v_proj": 0.014}
_ROUTER_DEVIATION = 0.02
_BIAS_LEVEL = 8.0
_EMBEDDING_DEVIATION = 0.02
_ALIGNED_NULL = 0.0379  # Hungarian mean cosine of two independent 128 × 4096 matrices


class Piece(NamedTuple):
    """Values to be stored from an element of a tensor onwards: BF16 bits, or float32 for F32 tensors."""

    model: str
    tensor: str
    start: int
    values: NDArray[Any]


def _generator(seed: int, *key: int) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64([seed, *key]))


def profile(
    rng: np.random.Generator, stats: Mapping[str, float], count: int, fixed: Known, size: float | None = None
) -> FloatArray:
    """Return values by layer with the published mean, deviation, least and largest value, and mean size if given.

    ``fixed`` values stay as they are. The others are moved, no further than needed, until the sums are right.
    """
    low, high, mean, deviation = stats["min"], stats["max"], stats["mean"], stats["std"]
    if low > 0:
        width = np.sqrt(np.log1p((deviation / mean) ** 2))
        values = mean * np.exp(width * rng.standard_normal(count) - width**2 / 2)
    else:
        values = mean + deviation * rng.standard_normal(count)
    for place, value in fixed.items():
        values[place] = value
    free = rng.permutation([place for place in range(count) if place not in fixed])
    values[free[:2]] = low, high
    free = free[2:]
    inner = low + 1e-3 * (high - low), high - 1e-3 * (high - low)
    for _ in range(2_000):
        values[free] = np.clip(values[free], *inner)
        part = values[free]
        miss = [values.sum() - count * mean, (values**2).sum() - count * (mean**2 + deviation**2)]
        gradient = [np.ones_like(part), 2 * part]
        if size is not None:
            miss.append(np.abs(values).sum() - count * size)
            gradient.append(np.sign(part))
        jacobian = np.array(gradient)
        scale = np.linalg.norm(jacobian, axis=1)
        if np.all(np.abs(miss) <= 1e-9 * scale * deviation):
            break
        values[free] = part - np.linalg.lstsq(jacobian / scale[:, None], np.array(miss) / scale, rcond=None)[0]
    return np.asarray(values)


def _ratio(relative: float, cosine: float) -> float:
    """Return ‖b‖/‖a‖ from rms(a − b)/rms(a) and the cosine."""
    return float(cosine + np.sqrt(relative**2 - 1 + cosine**2))


def set_cosine(a: Bits, b: Bits, cosine: float) -> None:
    """Change signs of b, in place, until its cosine with a is right."""
    left, right = from_bf16(a), from_bf16(b)
    _set_dot(left, right, b, cosine * float(np.linalg.norm(left)) * float(np.linalg.norm(right)))


def _set_dot(left: Block, right: Block, b: Bits, wanted: float) -> None:
    """Change signs of b, whose values are `right`, until its product with `left` is as wanted."""
    miss = wanted - float(left @ right)
    # A stride without common factor visits places all over the array, so no part of it stands out.
    places = np.arange(min(len(b), 1 << 15)) * 40_503 % len(b)
    product = 2.0 * left[places].astype(np.float64) * right[places]
    gain = np.where(np.sign(product) == -np.sign(miss), np.abs(product), 0.0)
    total = np.cumsum(gain)
    count = int(np.searchsorted(total, abs(miss)))
    left_over = abs(miss) - (total[count - 1] if count else 0.0)
    last = count + int(np.argmin(np.abs(gain[count:] - left_over))) if count < len(gain) else count
    chosen = np.append(np.flatnonzero(gain[:count]), last)
    b[places[chosen[gain[chosen] > 0]]] ^= np.uint16(0x8000)


def _set_window_cosines(a: Bits, b: Bits, early: NDArray[np.bool_], cosine: float, early_cosine: float) -> None:
    """Change signs of b until the windows, and their beginnings alone, have the wanted cosines with a."""
    whole = cosine * float(np.linalg.norm(from_bf16(a))) * float(np.linalg.norm(from_bf16(b)))
    done = 0.0
    for part in (early, ~early):
        left, bits = from_bf16(a[part]), b[part]
        right = from_bf16(bits)
        sizes = float(np.linalg.norm(left)), float(np.linalg.norm(right))
        _set_dot(left, right, bits, early_cosine * sizes[0] * sizes[1] if part is early else whole - done)
        b[part] = bits
        done += float(left @ from_bf16(bits))


def window_runs(name: str) -> tuple[Run, ...]:
    """Return the element runs that the window probe reads of a tensor that Solar and GLM have: the smaller one's."""
    small = min((tensors_of(model)[name] for model in ("Solar", "GLM")), key=lambda spec: spec.count)
    info = TensorInfo(name, small.dtype, small.shape, 0, 0, small.nbytes)
    return windows(info, key=name, count=WINDOWS, length=WINDOW_LENGTH, seed=0).runs


def _published_windows(kind: str) -> Any:
    return next(row for row in published()["origin"]["sampled_windows"][kind] if "cosine" in row)


def attention_pieces(seed: int) -> Iterator[Piece]:
    """Give k_proj and v_proj of Solar, GLM and Phi at layers 10, 20 and 30, whole."""
    for part in ("k_proj", "v_proj"):
        for (model, layer), bits in attention_matrices(part, seed).items():
            yield Piece(model, f"model.layers.{layer}.self_attn.{part}.weight", 0, bits)


def window_pieces(seed: int, whole: Mapping[tuple[str, str], Bits]) -> Iterator[Piece]:
    """Give the windows of q, k and v at the 46 shared layers.

    ``whole`` holds, by (model, tensor), matrices that are stored already: their windows are not drawn again, and the other
    layers make up for what they measure. A quick study reads only the beginnings of the windows; there the published
    mean holds too, with the spread that independence gives to so few elements.
    """
    for number, part in enumerate(("q_proj", "k_proj", "v_proj")):
        stats = _published_windows(f"self_attn.{part}.weight")
        names = [f"model.layers.{layer}.self_attn.{part}.weight" for layer in range(SHARED_LAYERS)]
        known, known_early = _known(names, whole, early=False), _known(names, whole, early=True)
        rng = _generator(seed, 0x317, number)
        cosines = profile(rng, stats["cosine"], SHARED_LAYERS, known[0], stats["mean_abs_cosine"])
        distances = profile(rng, stats["rel_rmse"], SHARED_LAYERS, known[1])
        spread = (WINDOWS * EARLY) ** -0.5
        natural = {"mean": stats["cosine"]["mean"], "std": spread, "min": -2.3 * spread, "max": 2.3 * spread}
        beginnings = profile(rng, natural, SHARED_LAYERS, known_early[0])
        own = gaussian_table(_DEVIATION[part])
        for layer, name in enumerate(names):
            if layer in known[0]:
                continue
            other = gaussian_table(_DEVIATION[part] * _ratio(distances[layer], cosines[layer]))
            runs = window_runs(name)
            count = sum(stop - start for start, stop in runs)
            a = draw_codes(_generator(seed, 0x318, number, layer), own, count)
            b = draw_codes(_generator(seed, 0x319, number, layer), other, count)
            early = np.concatenate([np.arange(stop - start) < EARLY for start, stop in runs])
            _set_window_cosines(a, b, early, float(cosines[layer]), float(beginnings[layer]))
            yield from _cut("Solar", name, runs, a)
            yield from _cut("GLM", name, runs, b)


def _cut(model: str, name: str, runs: tuple[Run, ...], values: Bits) -> Iterator[Piece]:
    at = 0
    for start, stop in runs:
        yield Piece(model, name, start, values[at : at + stop - start])
        at += stop - start


def _known(names: list[str], whole: Mapping[tuple[str, str], Bits], *, early: bool) -> tuple[Known, Known]:
    """Measure the windows, or their beginnings, of matrices that exist: cosine and relative distance by layer."""
    cosine, relative = {}, {}
    for layer, name in enumerate(names):
        if ("Solar", name) not in whole:
            continue
        runs = [(start, min(stop, start + EARLY) if early else stop) for start, stop in window_runs(name)]
        a, b = (
            np.concatenate([from_bf16(whole[model, name][start:stop]) for start, stop in runs]).astype(np.float64)
            for model in ("Solar", "GLM")
        )
        cosine[layer] = float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))
        relative[layer] = float(np.linalg.norm(a - b) / np.linalg.norm(a))
    return cosine, relative


def _align(ours: Block, theirs: Block, direction: Block, wanted: tuple[float, float]) -> tuple[Block, Block]:
    """Give the rows of both matrices a common direction each, so strong that the aligned cosine comes out.

    Rows that share a direction differ in fewer others, which lowers the best matching below that of independent ones: with
    a share ρ of the variance in the direction it is cosine + 0.0379·(1 − ρ).
    """
    from scipy.optimize import linear_sum_assignment

    cosine, aligned = wanted
    first, second = direction
    share = 1 - (aligned - cosine) / _ALIGNED_NULL
    second = second - (second @ first) / (first @ first) * first
    width = len(first)
    first, second = (math.sqrt(width) * vector / np.linalg.norm(vector) for vector in (first, second))
    inner = ours @ theirs.T
    onto = ours @ first, ours @ second, theirs @ first, theirs @ second
    squares = [np.einsum("ij,ij->i", rows, rows) for rows in (ours, theirs)]
    tilt, lean = 0.0, 1.0
    for _ in range(6):
        cross = math.sqrt(share * (1 - share))
        rows_a = np.sqrt(share * width + 2 * cross * onto[0] + (1 - share) * squares[0])
        rows_b = np.sqrt(share * width + 2 * cross * (tilt * onto[2] + lean * onto[3]) + (1 - share) * squares[1])
        # The tilt of one direction to the other makes the cosine of the whole matrices right.
        fixed = cross * lean * onto[1].sum() + cross * onto[2].sum() + (1 - share) * np.trace(inner)
        slope = share * width * len(ours) + cross * onto[0].sum()
        tilt = float((cosine * np.linalg.norm(rows_a) * np.linalg.norm(rows_b) - fixed) / slope)
        lean = math.sqrt(1 - tilt**2)
        table = share * width * tilt + cross * (onto[2][None, :] + (tilt * onto[0] + lean * onto[1])[:, None])
        table = (table + (1 - share) * inner) / (rows_a[:, None] * rows_b[None, :])
        found = float(table[linear_sum_assignment(table, maximize=True)].mean())
        last, share = share, share + (found - aligned) / _ALIGNED_NULL
    target = tilt * first + lean * second
    own, common = math.sqrt(1 - last), math.sqrt(last)
    return common * first + own * ours, common * target + own * theirs


def _router_pair(seed: int, layer: int, wanted: tuple[float, float, float], ratio: float) -> tuple[Bits, Bits]:
    """Return both routers of a layer with the published cosine, Pearson and aligned cosine."""
    cosine, pearson, aligned = wanted
    rng = _generator(seed, 0x60, layer)
    shape = SHAPES["GLM"].experts, SHAPES["GLM"].hidden
    table = gaussian_table(1.0)
    ours, theirs = (from_bf16(draw_codes(rng, table, shape[0] * shape[1])).reshape(shape) for _ in range(2))
    a, b = _align(ours, theirs, rng.standard_normal((2, shape[1]), dtype=np.float32), (cosine, aligned))
    a, b = (x / x.std() - x.mean() / x.std() for x in (a, b))
    b = b - float(np.mean(a * b)) * a
    b = pearson * a + math.sqrt(1 - pearson**2) * b / b.std()
    # The gap between cosine and Pearson is the product of the means, in units of the deviations.
    shift = math.sqrt(abs(cosine - pearson))
    a, b = a + shift, b + math.copysign(shift, cosine - pearson)
    return to_bf16(_ROUTER_DEVIATION * a).reshape(-1), to_bf16(_ROUTER_DEVIATION * ratio * b).reshape(-1)


def router_pieces(seed: int) -> Iterator[Piece]:
    """Give mlp.gate.weight of all MoE layers of Solar and GLM, whole, and of INTELLECT: GLM's with small changes."""
    rows = {row[0]: row[5:8] for row in published()["origin"]["layerwise"] if row[5] is not None}
    stats = _published_windows("mlp.gate.weight")
    distances = profile(_generator(seed, 0x61), stats["rel_rmse"], len(rows), {})
    alone = gaussian_table(_ROUTER_DEVIATION)
    spread = 2 * (WINDOWS * EARLY) ** -0.5  # rows share a direction, so few of them vary more than independent elements
    natural = {"mean": stats["cosine"]["mean"], "std": spread, "min": -2 * spread, "max": 2.2 * spread}
    beginnings = profile(_generator(seed, 0x65), natural, len(rows), {})
    for layer in range(SHAPES["Solar"].layers):
        name = f"model.layers.{layer}.mlp.gate.weight"
        if layer not in rows:  # GLM has no router there
            yield Piece("Solar", name, 0, draw_codes(_generator(seed, 0x62, layer), alone, 128 * 4096))
            continue
        cosine, pearson, aligned = rows[layer]
        a, b = _router_pair(seed, layer, (cosine, pearson, aligned), _ratio(distances[layer - 1], cosine))
        early = np.zeros(len(a), dtype=bool)
        for start, stop in window_runs(name):
            early[start : min(stop, start + EARLY)] = True
        _set_window_cosines(a, b, early, cosine, float(beginnings[layer - 1]))
        yield Piece("Solar", name, 0, a)
        yield Piece("GLM", name, 0, b)
        noise = from_bf16(draw_codes(_generator(seed, 0x63, layer), gaussian_table(0.01), len(b)))
        yield Piece("INTELLECT", name, 0, to_bf16(from_bf16(b) * (1 + noise)))


def bias_pieces(seed: int) -> Iterator[Piece]:
    """Give the routers' correction biases: GLM's lie close to one level, Solar's are small and balanced."""
    stats = _published_windows("mlp.gate.e_score_correction_bias")
    count, experts = stats["cosine"]["n"], SHAPES["GLM"].experts
    rng = _generator(seed, 0x64)
    cosines = profile(rng, stats["cosine"], count, {}, stats["mean_abs_cosine"])
    distances = profile(rng, stats["rel_rmse"], count, {})
    for layer in range(SHAPES["Solar"].layers):
        name = f"model.layers.{layer}.mlp.gate.e_score_correction_bias"
        theirs = (_BIAS_LEVEL * (1 + 0.01 * rng.standard_normal(experts))).astype(np.float32)
        at = min(max(layer - 1, 0), count - 1)
        unit = theirs.astype(float) / np.linalg.norm(theirs)
        ours = rng.standard_normal(experts)
        ours -= (ours @ unit) * unit
        ours = cosines[at] * unit + np.sqrt(1 - cosines[at] ** 2) * ours / np.linalg.norm(ours)
        ours *= np.linalg.norm(theirs) / _ratio(distances[at], cosines[at])
        yield Piece("Solar", name, 0, ours.astype(np.float32))
        if 1 <= layer < SHARED_LAYERS:
            yield Piece("GLM", name, 0, theirs)
            noise = np.float32(1e-4) * rng.standard_normal(experts, dtype=np.float32)
            yield Piece("INTELLECT", name, 0, theirs + noise)


def embedding_pieces(seed: int) -> Iterator[Piece]:
    """Give the embedding rows of ids below 10,000 of Solar and GLM; chosen tokens have the published cosines."""
    origin = published()["origin"]
    width = SHAPES["GLM"].hidden
    # Pairs of different GLM tokens had a mean cosine of 0.009: rows share a direction, here one of random signs.
    common = origin["embedding_200"]["baseline_mean"]
    rng = _generator(seed, 0xE3B)
    signs = np.where(rng.random(width) < 0.5, np.uint16(0), np.uint16(0x8000))
    table = gaussian_table(_EMBEDDING_DEVIATION, _EMBEDDING_DEVIATION * np.sqrt(common / (1 - common)))
    ours = draw_codes(rng, gaussian_table(_EMBEDDING_DEVIATION), EMBEDDING_ROWS * width).reshape(-1, width)
    theirs = draw_codes(rng, table, EMBEDDING_ROWS * width).reshape(-1, width)
    theirs ^= signs
    few = {key.removesuffix("_cosine"): value for key, value in origin["embedding_200"].items()}
    for ids, stats in zip(first_tokens(seed), (few, origin["embedding_300"]), strict=True):
        for (a, b), cosine in zip(ids.tolist(), profile(rng, stats, len(ids), {}), strict=True):
            set_cosine(ours[a], theirs[b], float(cosine))
    yield Piece("Solar", "model.embed_tokens.weight", 0, ours.reshape(-1))
    yield Piece("GLM", "model.embed_tokens.weight", 0, theirs.reshape(-1))
