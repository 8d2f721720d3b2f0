"""Make key and value matrices of Solar, GLM and Phi at layers 10, 20 and 30 that meet every published figure.

For each of the 21 published pairs of nine matrices seven figures are known, and together they say more than each alone:
relative distances fix the ratios of the standard deviations; differences of coefficients of variation, with the tiny gap
between cosine and Pearson (the product of the two mean-to-deviation ratios), fix every mean and its sign; differences of 0.99
quantiles, with the BF16 grid on which quantiles lie, fix each quantile. What remains is the shape: a Gaussian whose scale varies
log-normally, fitted to the mean absolute differences within 1.5 %; the rest is a Newton correction of every eighth row.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import FloatArray
from kinprint.formats.safetensors.writer import from_bf16, to_bf16
from kinprint.lab.replicas.noise import Bits, draw_codes
from kinprint.lab.replicas.published_figures import HW_LAYERS, HW_NAMES, hw_pairs

Block = NDArray[np.float32]  # values are rounded to BF16 in the end; sums over blocks are kept in float64
Pairs = dict[tuple[int, int], float]

ROWS, COLUMNS = 1024, 4096
MATRICES: tuple[tuple[str, int], ...] = tuple((name, layer) for name in HW_NAMES.values() for layer in HW_LAYERS)
_COUNT = ROWS * COLUMNS
_STRIDE = 8  # every eighth row is corrected
_STEPS = 8
_NEAR = 1e-4  # a step from here ends below the rounding error: each gains two digits
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(21)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_LEVEL = 0.01  # share of elements beyond the 0.99 quantile


@dataclass(frozen=True)
class Targets:
    """Statistics that nine matrices of one kind must have, all found from published pairs."""

    deviation: FloatArray
    mean: FloatArray
    quantile: FloatArray
    pearson: Pairs
    distance: Pairs
    spread: FloatArray  # of the logarithm of the local scale


def pairs(metric: str, part: str) -> Pairs:
    """Return a published metric of ``k_proj`` or ``v_proj`` by pair of places in `MATRICES`."""
    place = MATRICES.index
    return {(place((a[0], a[2])), place((b[0], b[2]))): value for _, a, b, value in hw_pairs(metric, (part,))}


def _least_squares(rows: Mapping[tuple[int, int], float], sign: float) -> FloatArray:
    """Solve x[b] + sign·x[a] = value for all pairs; for differences the mean of x is set to zero."""
    system = np.zeros((len(rows) + 1, len(MATRICES)))
    for at, (a, b) in enumerate(rows):
        system[at, b] += 1.0
        system[at, a] += sign
    if sign < 0:
        system[-1] = 1.0
    return np.asarray(np.linalg.lstsq(system, np.array([*rows.values(), 0.0]), rcond=None)[0])


def _levels(gaps: Pairs, estimate: FloatArray) -> FloatArray:
    """Return values, near an estimate, whose absolute differences are those given: only the signs are to be found."""
    for _ in range(50):
        signed = {(a, b): gap * np.sign(estimate[b] - estimate[a]) for (a, b), gap in gaps.items()}
        found = _least_squares(signed, -1.0)
        if np.allclose([abs(found[b] - found[a]) for a, b in gaps], [*gaps.values()], rtol=1e-5, atol=1e-6):
            return found
        estimate = found
    raise AssertionError("the published differences contradict each other")


def _means(part: str) -> FloatArray:
    """Return mean over standard deviation, with sign, of the nine matrices."""
    cosine, pearson = pairs("cosine", part), pairs("pearson", part)
    product = {pair: cosine[pair] - pearson[pair] for pair in cosine}
    ratio = np.exp(-_least_squares({pair: np.log(abs(value)) for pair, value in product.items()}, 1.0))
    variation = _levels(pairs("cv_diff", part), ratio)
    # Differences leave a common shift; the products know it to a fraction of the smallest variation.
    variation = variation + np.median(ratio - variation)
    sign = {0: 1.0}
    while len(sign) < len(MATRICES):
        for (a, b), value in product.items():
            if a in sign:
                sign.setdefault(b, sign[a] * float(np.sign(value)))
            elif b in sign:
                sign[a] = sign[b] * float(np.sign(value))
    return np.array([sign[at] for at in range(len(MATRICES))]) / variation


def _on_grid(values: FloatArray) -> bool:
    return bool(np.all(from_bf16(to_bf16(values)) == values.astype(np.float32)))


class _AttentionFit:
    """Fit a common scale and local spreads to mean absolute differences and quantiles."""

    def __init__(self, distance: Pairs, ratio: FloatArray, quantile: FloatArray) -> None:
        self._first, self._second = np.array([*distance]).T
        self._distance = np.array([*distance.values()])
        self._ratio = ratio
        self._quantile = quantile

    def residuals(self, scale: float, offset: float, spread: FloatArray) -> FloatArray:
        from scipy.special import erfc

        local = np.exp(spread[:, None] * _NODES - spread[:, None] ** 2) * (scale * self._ratio)[:, None]
        joint = np.sqrt(local[self._first][:, :, None] ** 2 + local[self._second][:, None, :] ** 2)
        expected = np.sqrt(2 / np.pi) * np.einsum("pij,i,j->p", joint, _WEIGHTS, _WEIGHTS)
        beyond = erfc((self._quantile + offset)[:, None] / (local * np.sqrt(2.0))) @ _WEIGHTS
        return np.concatenate([expected / self._distance - 1, 10 * (beyond / _LEVEL - 1)])

    def solve(self, scale: float, offset: float, *, free: bool) -> tuple[float, float, FloatArray, float]:
        """Return scale, offset, spreads and cost; the offset moves only if free."""
        from scipy.optimize import least_squares

        start = np.concatenate([[1.0, 1.0], np.full(len(self._ratio), 0.25)])

        def objective(x: FloatArray) -> FloatArray:
            return self.residuals(scale * x[0], offset * x[1] if free else offset, x[2:])

        found = least_squares(objective, start, ftol=1e-6, xtol=1e-6)
        return scale * found.x[0], offset * found.x[1] if free else offset, found.x[2:], float(found.cost)


def targets(part: str) -> Targets:
    """Find the statistics that the published figures of a part imply."""
    relative, cosine = pairs("rel_l2", part), pairs("cosine", part)
    steps = {pair: np.log(cosine[pair] + np.sqrt(value**2 - 1 + cosine[pair] ** 2)) for pair, value in relative.items()}
    ratio = np.exp(_least_squares(steps, -1.0))
    distance = pairs("mean_abs_diff", part)
    scale = np.mean([value / np.hypot(ratio[a], ratio[b]) for (a, b), value in distance.items()]) * np.sqrt(np.pi / 2)
    level = _levels(pairs("p99_abs_diff", part), 2.8 * scale * ratio)
    fit = _AttentionFit(distance, ratio, level)
    scale, offset, _, _ = fit.solve(float(scale), 2.8 * float(scale), free=True)
    # Every quantile is a BF16 number, so of all offsets only a few are possible: the best of those nearby.
    step = 2.0**-12
    grid = (np.round((level[0] + offset) / step) + np.arange(-3, 4)) * step - level[0]
    possible = [float(x) for x in grid if _on_grid(np.round((level + x) / step * 16) * step / 16)]
    nearest = sorted(possible, key=lambda candidate: abs(candidate - offset))[:2]
    fits = [fit.solve(scale, candidate, free=False) for candidate in nearest]
    scale, offset, spread, _ = min(fits, key=lambda x: x[3])
    deviation = scale * ratio
    quantile = np.round((level + offset) / step * 16) * step / 16
    return Targets(deviation, _means(part) * deviation, quantile, pairs("pearson", part), distance, spread)


def _table(deviation: float, spread: float) -> Bits:
    """Return 65,536 equally likely BF16 values: quantiles of a Gaussian with log-normal scale."""
    from scipy.special import ndtr

    local = np.exp(spread * _NODES - spread**2)
    grid = np.linspace(0.0, 14.0, 4001)
    share = ndtr(grid[:, None] / local) @ _WEIGHTS
    half = np.interp((np.arange(32768) + 0.5) / 65536 + 0.5, share, grid)
    half *= deviation / np.sqrt(np.mean(half**2))
    return to_bf16(np.concatenate([-half[::-1], half]))


class _Correction:
    """Take Newton steps on some rows of all nine matrices, the rest standing still.

    Constraints are sums, squares, the published inner products and the published mean absolute differences: sixty, with
    millions of unknowns, so the least change that meets their linearisation is small, and few steps suffice.
    """

    def __init__(self, wanted: Targets) -> None:
        self._pairs = list(wanted.pearson)
        size = len(MATRICES)
        mean, deviation = wanted.mean, wanted.deviation
        inner = [wanted.pearson[a, b] * deviation[a] * deviation[b] + mean[a] * mean[b] for a, b in self._pairs]
        distance = [wanted.distance[pair] for pair in self._pairs]
        self._goal = _COUNT * np.concatenate([mean, mean**2 + deviation**2, inner, distance])
        self._index: list[list[int]] = []
        self._partner: list[list[int]] = []
        for at in range(size):
            mine = [number for number, pair in enumerate(self._pairs) if at in pair]
            self._partner.append([sum(self._pairs[number]) - at for number in mine])
            dots = [2 * size + number for number in mine]
            self._index.append([at, size + at, *dots, *(number + len(self._pairs) for number in dots)])

    def measure(self, values: Block) -> FloatArray:
        """Return the constrained sums over the given columns."""
        inner = (values @ values.T).astype(np.float64)
        room = np.empty_like(values[0])
        distance = []
        for a, b in self._pairs:
            np.subtract(values[a], values[b], out=room)
            distance.append(np.abs(room, out=room).sum())
        first, second = np.array(self._pairs).T
        return np.concatenate([values.sum(axis=1), np.diag(inner), inner[first, second], distance], dtype=np.float64)

    def _gradient(self, values: Block, at: int) -> Block:
        own, partner = values[at], self._partner[at]
        found = np.empty((2 + 2 * len(partner), len(own)), dtype=np.float32)
        found[0] = 1.0
        np.multiply(own, np.float32(2), out=found[1])
        signs = found[2 + len(partner) :]
        for number, other in enumerate(partner):
            found[2 + number] = values[other]
            np.subtract(own, values[other], out=signs[number])
        np.copysign(np.float32(1), signs, out=signs)
        return found

    def step(self, blocks: list[Block], still: FloatArray) -> float:
        """Change the blocks in place; return the largest relative miss before the step."""
        size = len(self._goal)
        metric = np.zeros((size, size))
        total = still.copy()
        for values in blocks:
            total += self.measure(values)
            for at, index in enumerate(self._index):
                gradient = self._gradient(values, at)
                metric[np.ix_(index, index)] += gradient @ gradient.T
        miss = total - self._goal
        scale = 1.0 / np.sqrt(np.diag(metric))
        weight = (scale * np.linalg.solve(metric * np.outer(scale, scale), scale * miss)).astype(np.float32)
        for values in blocks:
            change = [weight[index] @ self._gradient(values, at) for at, index in enumerate(self._index)]
            values -= np.array(change)
        return float(np.max(np.abs(miss[-len(self._pairs) :] / self._goal[-len(self._pairs) :])))


def _correct(bits: list[Bits], wanted: Targets) -> None:
    """Correct every eighth row of nine matrices in place."""
    correction = _Correction(wanted)
    views = [matrix.reshape(ROWS, COLUMNS) for matrix in bits]
    moving = np.array([from_bf16(view[::_STRIDE]).reshape(-1) for view in views])
    size = 4 * COLUMNS  # a block of all nine stays in the processor's cache
    blocks = [np.ascontiguousarray(moving[:, at : at + size]) for at in range(0, moving.shape[1], size)]
    del moving
    still = -sum(correction.measure(values) for values in blocks)
    for at in range(0, _COUNT, size):
        still = still + correction.measure(np.array([from_bf16(matrix[at : at + size]) for matrix in bits]))
    for _ in range(_STEPS):
        if correction.step(blocks, np.asarray(still)) < _NEAR:
            break
    for at, view in enumerate(views):
        rows = np.concatenate([values[at] for values in blocks])
        view[::_STRIDE] = to_bf16(rows).reshape(-1, COLUMNS)


def _set_quantile(bits: Bits, quantile: float) -> None:
    """Move the few elements that keep the 0.99 quantile of absolute values off its value by one step onto it, in place."""
    goal = int(to_bf16(np.array([quantile]))[0])
    magnitude = bits & np.uint16(0x7FFF)
    below, reached = int(np.count_nonzero(magnitude < goal)), int(np.count_nonzero(magnitude <= goal))
    rank = int(0.99 * (_COUNT - 1))
    margin = 64
    for way, missing in ((-1, below - rank + margin), (1, rank + 2 + margin - reached)):
        neighbour = goal
        while missing > 0:
            neighbour += way
            places = np.flatnonzero(magnitude == neighbour)[:missing]
            bits[places] = (bits[places] & np.uint16(0x8000)) | np.uint16(goal)
            missing -= len(places)


def _set_sum(bits: Bits, deviation: float, goal: float) -> None:
    """Change elements by one unit in the last place until their sum is exact enough for its own coefficient of variation."""
    miss = goal - float(from_bf16(bits).sum(dtype=np.float64))
    exponent = int(np.floor(np.log2(deviation)))
    head = bits[: 1 << 19]
    for power in (exponent, exponent - 4, exponent - 8):
        unit = 2.0 ** (power - 7)
        inside = ((head >> np.uint16(7)) & np.uint16(0xFF)) == power + 127
        inside &= ((head & np.uint16(0x7F)) > 0) & ((head & np.uint16(0x7F)) < 0x7F)
        places = np.flatnonzero(inside)[: round(abs(miss) / unit)]
        away = (head[places] < 0x8000) == (miss > 0)  # from zero, where that is the way the sum must go
        head[places] = np.where(away, head[places] + np.uint16(1), head[places] - np.uint16(1))
        miss -= np.sign(miss) * len(places) * unit


def attention_matrices(part: str, seed: int) -> dict[tuple[str, int], Bits]:
    """Return the BF16 bits (flat) of ``k_proj`` or ``v_proj`` by (model, layer)."""
    wanted = targets(part)
    bits = []
    for at in range(len(MATRICES)):
        rng = np.random.Generator(np.random.SFC64([seed, 0xA77, at, ord(part[0])]))
        bits.append(draw_codes(rng, _table(float(wanted.deviation[at]), float(wanted.spread[at])), _COUNT))
    _correct(bits, wanted)
    for at, matrix in enumerate(bits):
        _set_quantile(matrix, float(wanted.quantile[at]))
        _set_sum(matrix, float(wanted.deviation[at]), _COUNT * float(wanted.mean[at]))
    return dict(zip(MATRICES, bits, strict=True))
