"""Solve for a BF16 vector near a drawn one that has given statistics.

One vector at a time: its partners are already final, so each condition is linear, quadratic or piecewise linear in the
4,096 unknowns, and there are at most some twenty. A Newton step of smallest (weighted) length,
``x -= W J' (J W J')^-1 c(x)``, then needs a handful of rounds. Rounding alone would cost ten times the tolerance (a
BF16 step is up to 0.8 % of a value whose spread may be 5 %), so values are rounded in shrinking shares, the
rest making good what the share lost, and single steps of one unit in the last place remove what is left.
"""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import FloatArray

Overlap = tuple[FloatArray, float, float, float]  # partner, side on which x lies, wanted overlap, unit of its residual

MANTISSA_BITS = 7
QUANTILE = 0.99
# Residuals in units of what is wanted at the end: relative for moments and gaps, absolute for correlations.
UNIT = 1e-5
MEAN_WEIGHT = 4.0  # distances between means, much smaller than the means, were published as closely
FEW = 60
HEAVY = 0.4  # coefficient of variation from which a vector counts as heavy-tailed
PLANTINGS = 3
GOOD = 1.0
RESTARTS = 2


@dataclass(frozen=True)
class Conditions:
    """Conditions on one vector; partners are final vectors of the same width."""

    # mean, std: population moments.
    mean: float
    std: float
    correlations: list[tuple[FloatArray, float]] = field(default_factory=list)  # partner, Pearson correlation with it
    gaps: list[tuple[FloatArray, float]] = field(default_factory=list)  # partner and mean absolute difference to it
    # The two neighbouring order statistics between which the 0.99 quantile lies, both on the BF16 grid.
    quantile: tuple[float, float] | None = None
    # Like `gaps`, to partners that are only drafts yet: far-out elements are set with an eye on them.
    hints: list[tuple[FloatArray, float]] = field(default_factory=list)
    # Like `correlations`, but given up where they stand in the way of the rest.
    wishes: list[tuple[FloatArray, float]] = field(default_factory=list)


def ulp(x: FloatArray) -> FloatArray:
    """Return the BF16 spacing above the magnitude of each value (that of 2**-40 for anything smaller)."""
    _, exponent = np.frexp(np.maximum(np.abs(x), 2.0**-40))
    return np.asarray(np.ldexp(1.0, exponent - 1 - MANTISSA_BITS))


def to_grid(x: FloatArray) -> FloatArray:
    """Return `x` rounded to the nearest BF16 value."""
    step = ulp(x)
    return np.asarray(np.rint(x / step) * step)


def quantile_ranks(width: int) -> tuple[int, float]:
    """Return the lower rank beside the 0.99 quantile and the share of the way to the next one."""
    position = QUANTILE * (width - 1)
    rank = int(position)
    return rank, position - rank


class ConstrainedVector:
    """One vector under its conditions: residuals, derivatives and bounds."""

    def __init__(self, start: FloatArray, conditions: Conditions) -> None:
        self.c = conditions
        self.n = start.size
        partners = [(p - p.mean()) / p.std() for p, _ in conditions.correlations]
        self.unit_partners = np.array(partners).reshape(len(partners), self.n)
        self.correlation_targets = np.array([r for _, r in conditions.correlations])
        self.lower = np.full(self.n, -np.inf)
        self.upper = np.full(self.n, np.inf)
        self._gaps: list[Overlap] = []
        for partner, gap in conditions.gaps:
            self._add_gap(partner, gap)
        self._hints = [self._overlap(partner, gap) for partner, gap in conditions.hints]
        # A vector with a heavy tail keeps its sign and its many small values if each moves in proportion to itself.
        heavy = conditions.std > HEAVY * abs(conditions.mean)
        self.weights = np.clip(np.abs(start) / conditions.std, 0.002, 2.0) ** 2 if heavy else np.ones(self.n)
        if heavy and start.min() > 0:
            self.lower = np.maximum(self.lower, float(to_grid(start.min(keepdims=True))[0]))
        self._draft = start
        self._bounds = self.lower, self.upper

    def _overlap(self, partner: FloatArray, gap: float) -> Overlap:
        # mean|x - p| = |difference of the means| + 2 mean(overlap), where overlap is by how much an element lies on
        # the wrong side. Far-apart vectors overlap in a few elements only: the overlap has a gradient there, while
        # that of mean|x - p| itself could not be told from the mean's.
        offset = self.c.mean - float(partner.mean())
        return partner, 1.0 if offset > 0 else -1.0, max(0.0, (gap - abs(offset)) / 2), gap / 2

    def _add_gap(self, partner: FloatArray, gap: float) -> None:
        _, side, overlap, unit = self._overlap(partner, gap)
        if overlap < 2e-6 * gap:  # equal as far as the means are known: no element lies on the wrong side
            bound = self.lower if side > 0 else self.upper
            (np.maximum if side > 0 else np.minimum)(bound, partner, out=bound)
        else:
            self._gaps.append((partner, side, overlap, unit))

    def prepared(self, rng: np.random.Generator) -> FloatArray:
        """Return a start with about the wanted overlaps, and fix on which side of the quantile each element stays."""
        self.lower, self.upper = self._bounds[0].copy(), self._bounds[1].copy()
        if self.c.quantile is None:
            return self.planted(np.clip(self._draft, self.lower, self.upper), rng)
        below, above = self.c.quantile
        rank, _ = quantile_ranks(self.n)
        # Far-out elements come before the ranks: one of the bulk could not be lifted over the quantile afterwards.
        x = stretched(self._draft, self.c.mean, self.c.std, rank, below)
        x = self.planted(np.clip(x, self.lower, self.upper), rng)
        # What a bound keeps from a side of the quantile is ranked on the other.
        sorted_by = np.where(self.upper < above, np.minimum(x, below - self.c.std), x)
        sorted_by = np.where(self.lower > below, np.maximum(x, above + self.c.std), sorted_by)
        order = np.argsort(sorted_by, kind="stable")
        self.upper[order[:rank]] = np.minimum(self.upper[order[:rank]], below)
        self.lower[order[rank + 2 :]] = np.maximum(self.lower[order[rank + 2 :]], above)
        self.lower[order[rank]] = self.upper[order[rank]] = below
        self.lower[order[rank + 1]] = self.upper[order[rank + 1]] = above
        return np.clip(x, self.lower, self.upper)

    def planted(self, x: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return `x` with single elements set apart so that overlaps are about as large as wanted.

        Vectors several standard deviations apart overlap through a few far-out elements, and no small move of the bulk
        makes those. Greedy, one element at a time, with an eye on the correlations and on the variance spent.
        """
        gaps = [*self._gaps, *self._hints]
        if not gaps:
            return x
        r = self.unit_partners @ (x - self.c.mean) / (self.n * self.c.std)
        overlap = np.array([np.maximum(side * (p - x), 0).sum() for p, side, _, _ in gaps])
        wanted = np.array([o * self.n for _, _, o, _ in gaps])
        gap_scale, r_scale, spent_scale = np.maximum(wanted, 0.02), 0.15, 1.0
        miss = np.concatenate([(wanted - overlap) / gap_scale, (self.correlation_targets - r) / r_scale, [0.0]])
        dims = self._candidates(x, gaps, rng)
        levels = self.c.mean * (np.linspace(0.02, 1.9, 48) + rng.uniform(-0.02, 0.02))
        values = np.clip(levels[:, None], self.lower[dims], self.upper[dims])
        old = x[dims]
        effects = [
            (np.maximum(side * (p[dims] - values), 0) - np.maximum(side * (p[dims] - old), 0)) / scale
            for (p, side, _, _), scale in zip(gaps, gap_scale, strict=True)
        ]
        effects += [(values - old) * z[dims] / (self.n * self.c.std * r_scale) for z in self.unit_partners]
        spent = (values - self.c.mean) ** 2 - (old - self.c.mean) ** 2
        effects.append(spent / (self.n * self.c.std**2 * spent_scale))
        table = np.array(effects).reshape(len(effects), -1)
        squares = np.einsum("ij,ij->j", table, table)
        x = x.copy()
        for _ in range(150):
            change = squares - 2 * (miss @ table)
            pick = int(np.argmin(change))
            if change[pick] > -1e-6:
                break
            level, at = divmod(pick, dims.size)
            x[dims[at]] = values[level, at]
            miss = miss - table[:, pick]
            squares[at :: dims.size] = np.inf  # each element once
        return x

    def _candidates(self, x: FloatArray, gaps: list[Overlap], rng: np.random.Generator) -> NDArray[np.int64]:
        """Return dimensions worth setting apart: extreme in a partner, in this vector, or overlapping already."""
        chosen = [np.argsort(v)[[*range(12), *range(-12, 0)]] for v in [x, *(p for p, _, _, _ in gaps)]]
        for p, side, _, _ in gaps:
            inside = np.flatnonzero(side * (p - x) > 0)
            chosen.append(inside[:FEW])
        chosen.append(rng.choice(self.n, size=100, replace=False))
        unique = np.unique(np.concatenate(chosen))
        return unique[self.lower[unique] < self.upper[unique]]

    def residuals(self, x: FloatArray) -> FloatArray:
        """Return how far each condition is missed, in units of `UNIT`."""
        c = self.c
        centred = x - c.mean
        moments = [MEAN_WEIGHT * centred.mean() / abs(c.mean), ((centred @ centred) / self.n / c.std**2 - 1) / 2]
        r = self.unit_partners @ centred / (self.n * c.std) - self.correlation_targets
        overlaps = [(np.maximum(side * (p - x), 0).mean() - o) / u for p, side, o, u in self._gaps]
        return np.concatenate([moments, r, overlaps]) / UNIT

    def jacobian(self, x: FloatArray) -> FloatArray:
        """Return the derivative of `residuals`, one row per condition."""
        c = self.c
        rows = np.empty((2 + len(self.correlation_targets) + len(self._gaps), self.n))
        rows[0] = MEAN_WEIGHT / abs(c.mean)
        rows[1] = (x - c.mean) / c.std**2
        rows[2 : 2 + len(self.correlation_targets)] = self.unit_partners / c.std
        for row, (p, side, _, u) in zip(rows[2 + len(self.correlation_targets) :], self._gaps, strict=True):
            inside = side * (p - x)
            # Where (almost) nothing overlaps, the nearest elements are asked to: their derivative is zero only so far.
            edge = min(0.0, float(np.partition(inside, -2)[-2]))
            row[:] = np.where(inside >= edge, -side / u, 0.0)
        return rows / (self.n * UNIT)

    def newton(self, x: FloatArray, free: NDArray[np.bool_], rounds: int, good: float = 0.2) -> FloatArray:
        """Return `x` with the `free` elements moved so that the residuals vanish, as far as `rounds` steps go."""
        best, least, idle = x, np.inf, 0
        c = self.residuals(x)
        for _ in range(rounds + 1):
            worst = float(np.abs(c).max())
            idle = 0 if worst < 0.9 * least else idle + 1
            if worst < least:
                best, least = x, worst
            if worst < good or idle > 3:
                break
            move = self._step(x, c, free)
            # A few elements may carry an overlap: let none jump farther than four spreads at once.
            move /= max(1.0, float(np.abs(move).max()) / (4 * self.c.std))
            x, c = self._advanced(x, c, move)
        return best

    def _advanced(self, x: FloatArray, c: FloatArray, move: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return `x` and its residuals after the move, or after a part of it where that is better.

        An element that enters or leaves an overlap bends the residuals, and the whole move then goes too far.
        """
        there = np.clip(x + move, self.lower, self.upper)
        found = [(there, self.residuals(there))]
        if np.linalg.norm(found[0][1]) > 0.8 * np.linalg.norm(c):
            for share in (0.5, 0.2):
                there = np.clip(x + share * move, self.lower, self.upper)
                found.append((there, self.residuals(there)))
        return min(found, key=lambda pair: float(np.linalg.norm(pair[1])))

    def _step(self, x: FloatArray, c: FloatArray, free: NDArray[np.bool_]) -> FloatArray:
        """Return the shortest move that removes the linearised residuals and stays within the bounds."""
        J = self.jacobian(x)
        W = np.where(free, self.weights, 0.0)
        move = stopped = np.zeros(self.n)
        for _ in range(6):
            gram = (J * W) @ J.T
            diagonal = np.diag(gram)
            scale = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))  # zero: no free element of an overlap is left
            wanted = (c + J @ stopped) / scale
            solved = np.linalg.lstsq(gram / np.outer(scale, scale), wanted, rcond=1e-9)[0]
            move = stopped - W * ((solved / scale) @ J)
            inside = np.clip(x + move, self.lower, self.upper)
            over = (inside != x + move) & (W > 0)
            if not over.any():
                break
            # Those that would cross a bound stop there, and the others make up for it.
            stopped = np.where(over, inside - x, stopped)
            W = np.where(over, 0.0, W)
        return move

    def searched(self, rng: np.random.Generator) -> tuple[FloatArray, float]:
        """Return the best unrounded solution found and its largest residual; the bounds are left as it needs them."""
        free = np.ones(self.n, dtype=bool)
        x = best = self._draft
        bounds, least = self._bounds, np.inf
        for attempt in range(PLANTINGS * RESTARTS if self._gaps else 1):
            x = self.planted(x, rng) if attempt % PLANTINGS else self.prepared(rng)
            x = self.newton(x, free, rounds=15)
            worst = float(np.abs(self.residuals(x)).max())
            if worst < least:
                best, bounds, least = x, (self.lower, self.upper), worst
            if worst < GOOD:
                break
        self.lower, self.upper = bounds
        return best, least

    def rounded(self, x: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return `x` on the BF16 grid, share by share."""
        free = np.ones(self.n, dtype=bool)
        order = self._rounding_order(x, rng)
        keep = 16 * (2 + len(self.correlation_targets) + len(self._gaps))
        begin = 0
        while self.n - begin > keep:
            end = begin + (self.n - begin + 1) // 2
            share = order[begin:end]
            x = x.copy()
            x[share] = self._snap(x[share], share)
            free[share] = False
            x = self.newton(x, free, rounds=2)
            begin = end
        x = x.copy()
        x[order[begin:]] = self._snap(x[order[begin:]], order[begin:])
        return x

    def _rounding_order(self, x: FloatArray, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return a random order that leaves the few elements which carry a small overlap to the end."""
        late = np.zeros(self.n, dtype=bool)
        for p, side, _, _ in self._gaps:
            inside = side * (p - x) > 0
            if inside.sum() < FEW:
                late |= inside
        order = rng.permutation(self.n)
        return np.concatenate([order[~late[order]], order[late[order]]])

    def _snap(self, values: FloatArray, at: NDArray[np.int64]) -> FloatArray:
        # Bounds are on the grid themselves, so rounding never crosses them.
        return np.clip(to_grid(values), self.lower[at], self.upper[at])

    def polished(self, x: FloatArray, steps: int) -> FloatArray:
        """Return `x` after single steps on the grid, each the one that lessens the residuals most."""
        rho = self.residuals(x)
        up, down = self._effects(x, 1.0), self._effects(x, -1.0)
        effects = np.concatenate([up, down], axis=1)
        squares = np.einsum("ij,ij->j", effects, effects)
        x = x.copy()
        for _ in range(steps):
            gain = squares + 2 * (rho @ effects)
            best = int(np.argmin(gain))
            if gain[best] >= 0 or np.abs(rho).max() < 0.3:
                break
            at, sign = best % self.n, 1.0 if best < self.n else -1.0
            x[at] += sign * float(ulp(x[at : at + 1])[0])
            rho = self.residuals(x)
            # The element just moved is not tried again: its effects are stale, and there are thousands of others.
            squares[[at, at + self.n]] = np.inf
        return x

    def _effects(self, x: FloatArray, sign: float) -> FloatArray:
        """Return what one step of each element, up or down, does to each residual; forbidden steps cost infinity."""
        step = sign * ulp(x)
        to = x + step
        J = self.jacobian(x)
        effects = J * step
        effects[1] += step**2 / (2 * self.c.std**2 * self.n * UNIT)
        for row, (p, side, _, u) in zip(effects[2 + len(self.correlation_targets) :], self._gaps, strict=True):
            row[:] = (np.maximum(side * (p - to), 0) - np.maximum(side * (p - x), 0)) / (u * self.n * UNIT)
        effects[:, (to < self.lower) | (to > self.upper)] = 1e9
        return effects


def stretched(x: FloatArray, mean: float, std: float, rank: int, value: float) -> FloatArray:
    """Return `x` with its upper tail scaled so that the order statistic `rank` is `value`."""
    pivot = mean + 0.5 * std
    at = float(np.partition(x, rank)[rank])
    return np.where(x > pivot, pivot + (x - pivot) * (value - pivot) / (at - pivot), x)


def fit_vector(start: FloatArray, conditions: Conditions, rng: np.random.Generator, *, steps: int = 80) -> FloatArray:
    """Return a BF16-exact vector near `start` that satisfies the conditions as well as the grid allows.

    Wishes are kept if that can be done together with the rest, and else dropped.
    """
    vector = ConstrainedVector(start, replace(conditions, correlations=[*conditions.correlations, *conditions.wishes]))
    best, least = vector.searched(rng)
    if least > GOOD and conditions.wishes:
        vector = ConstrainedVector(start, conditions)
        best, _ = vector.searched(rng)
    return vector.polished(vector.rounded(best, rng), steps)


def worst_miss(x: FloatArray, conditions: Conditions) -> float:
    """Return the largest residual of a vector under its conditions, wishes apart, in units of `UNIT`."""
    return float(np.abs(ConstrainedVector(x, conditions).residuals(x)).max())
