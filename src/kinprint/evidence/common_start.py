"""Tell whether two related models share their training, or only the random numbers they started from.

Same seed and other data leave W_A = W₀ + D_A and W_B = W₀ + D_B: fixed points and correlations reject independence although
neither model derives from the other. Three things tell the cases apart.

* **Learned directions.** A random matrix has no singular value beyond the edge σ(√n + √m) (Marchenko and Pastur 1967), with σ
  from the median singular value; those beyond it were learned. Each is part D and part W₀, in a share that follows from its
  length alone (Gavish and Donoho 2017, arXiv:1405.7511), so that what B keeps of D can be told from what B keeps of W₀. Both
  sides are asked: a descendant keeps all that its ancestor learned, of siblings neither does.
* **Scales of norms** start as constants, so whatever varies in them was learned, once they moved far enough.
* **One slope for all.** A weighted average of A with something unrelated shrinks every tensor of A, norms included, by the same
  factor; what a sibling keeps of W₀ differs from role to role. Without norms this says nothing: a fitted rotation shrinks all
  roles alike.

A short training moves siblings along the gradient of one start, so they have the first learned directions and the first changes
of norms in common: with little training the answer is "unclear". Thresholds come from tiny models trained for that (width 96, 10
to 1200 steps, learning rates 1e-3 and 4e-3, batches of 8 and 64; docs/verdicts.md has the figures); they are no p-values.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np

from kinprint._util.numeric import FloatArray, median
from kinprint._util.records import dataclass
from kinprint.edits.regression import correlation
from kinprint.evidence.words import word
from kinprint.text import Text, Value

Pairs = Sequence[tuple[FloatArray, FloatArray]]

TRAINING, INITIALISATION, UNCLEAR = "training", "initialisation", "unclear"

EDGE_MARGIN = 1.05  # factor on the edge: finite random matrices go beyond it by a few percent
LEAST_SIZE = 8  # of the shorter side of a slice
LEAST_SHARE = 5.0 / 96.0
"""Learned directions, as a share of the shorter sides of slices, below which training was too short. Of 96, siblings of 120 steps
with large batches have 3.0 and keep 0.94 of them by the common gradient alone; trained models have 7.7 to 19."""
KEPT, LOST = 0.9, 0.75
"""Share of the learned part that is kept, against that of the rest: descendants 0.98 to 1.1; siblings 0.3 to 0.75, and 0.81 with
large batches after 40 steps."""
CLOSE = 0.5
"""Slope below which learned parts cannot be told from what remains of a start: long-trained siblings have 0.1."""
CLOSE_ALONE = 0.75
"""The same where no norms can object: a rotation that is fitted to siblings favours what they have in common, and leaves slopes of
up to 0.55, with the learned part kept nearly as well as the rest; descendants keep 0.85 to 1 in any basis."""
SAME = 0.9
IN_PLACE = 0.03  # slope below which the rows of slices do not correspond, and say nothing
NORM_KEPT, NORM_LOST = 0.6, 0.2
NORM_MOVED = 0.03
"""Relative spread from which norms count as learned: siblings have a correlation up to 0.73 at 0.006 to 0.02, and at most 0.30 from
0.034 on; models of 1000 steps have a spread of 0.06 to 0.12."""
NORM_SAME = 0.9  # correlation from which norms that hardly moved are no objection
UNIFORM_CV, FAINT, FAINT_CV = 0.2, 0.3, 0.15
"""Variation up to which slopes count as one, and less of it below a slope that norms of siblings reach by themselves: a tenth of a
model mixed in gives 0.05 to 0.12, siblings whose neurons were aligned 0.19 and more."""


@dataclass(frozen=True)
class Origin:
    """What the shared part looks like. Figures are None where there was nothing to take them from."""

    reading: str
    reasons: tuple[Text, ...]
    norm_correlation: float | None = None
    learned_slope: float | None = None
    level: float | None = None  # the larger of what is kept of the learned part and of the rest
    exact: bool = False  # whether the parts compared are the same number by number


@dataclass(frozen=True)
class _Kept:
    """What one model keeps of the other's learned part and of the rest."""

    directions: int
    learned: float
    rest: float

    @property
    def relative(self) -> float:
        """Share of the learned part against that of the rest; the whole of it where nothing of the rest is kept."""
        return self.learned / self.rest if self.rest > IN_PLACE else (1.0 if self.learned >= CLOSE else 0.0)


def origin_of(matrices: Mapping[str, Iterable[tuple[FloatArray, FloatArray]]], norms: Pairs) -> Origin:
    """Read slices (rows × columns, both sides, by role) and norm scales of layers that match. Symmetric in the two sides."""
    norms = [(a, b) for a, b in norms if np.ptp(a) > 0.0 and np.ptp(b) > 0.0]
    gathered, slopes, count, size = (_Gathered(), _Gathered()), (list[float](), list[float]()), 0, 0
    for pairs in matrices.values():
        sums = _Slopes()
        for a, b in pairs:  # once: they may be made as they are asked for
            sums.add(a, b)
            if min(a.shape) >= LEAST_SIZE:
                gathered[0].add(a, b)
                gathered[1].add(b, a)
                count, size = count + 1, size + min(a.shape)
        if sums.any:
            for found, one in zip(slopes, sums.slopes, strict=True):
                found.append(one)
    sides = gathered[0].kept, gathered[1].kept
    learned = _mean_slope(*(side.learned for side in sides))
    level = max(learned, _mean_slope(*(side.rest for side in sides)))
    enough = count > 0 and min(side.directions for side in sides) >= LEAST_SHARE * size
    relative = max(side.relative for side in sides)
    slope, cv = _evenness(slopes[0], norms, sides[0].learned if enough else None)
    back = _evenness(slopes[1], _swapped(norms), sides[1].learned)
    even = any(
        s is not None and s > 0.05 and found is not None and found <= (UNIFORM_CV if s >= FAINT else FAINT_CV)
        for s, found in ((slope, cv), back)
    )
    uniform = bool(norms) and enough and relative >= KEPT and even
    norm_r, moved = _norm_figures(norms) if norms else (None, [])
    reading = _reading(enough and level >= IN_PLACE, relative, level, uniform, norm_r, moved)
    reasons = []
    if norm_r is not None:
        x, y = moved
        reasons.append(Text("norms vary by {x:.1%} and {y:.1%}, and correlate at {r:.2f}", x=x, y=y, r=norm_r))
    if count:
        n, m = min(side.directions for side in sides), count
        reasons.append(
            Text("{n} learned directions in {m} slices: what stands above the noise of a random matrix", n=n, m=m)
        )
    if enough:
        y = _mean_slope(*(side.rest for side in sides))
        reasons.append(
            Text("of these learned directions {x:.0%} is in both models, of all other weights {y:.0%}", x=learned, y=y)
        )
    if cv is not None and slope is not None:
        reasons.append(Text("B keeps {x:.2f} of A's weights, varying by {y:.0%} between roles", x=slope, y=cv))
    return Origin(reading, tuple(reasons), norm_r, learned if enough else None, level)


def origin_of_parts(
    tables: Mapping[str, tuple[FloatArray, FloatArray] | None], norms: Pairs, others: int = 0
) -> Origin:
    """Read token rows (embedding, head) and norms of models whose layers share nothing; parts that disagree leave it unclear."""
    # Tables that were trained alike without being shared (siblings in every part) keep up to 0.86 of both: training takes `SAME` of
    # both. `others` counts parts that share and are not read here; norms are no start, since they start as constants.
    readings, reasons, exact = [UNCLEAR] * others, [], not others
    for name, table in sorted(tables.items()):
        if table is None or min(table[0].shape) < LEAST_SIZE:
            readings.append(UNCLEAR)
            continue
        sides = _kept(*table), _kept(*table[::-1])
        n, m = min(side.directions for side in sides), min(table[0].shape)
        x, y = (_mean_slope(*(getattr(side, what) for side in sides)) for what in ("learned", "rest"))
        own: dict[str, Value] = {"part": word(name), "x": x, "y": y, "n": n, "m": m}
        said = Text("{part}: of {n} learned directions (of {m}) {x:.0%} is in both models, of the rest {y:.0%}", **own)
        reasons.append(said)
        enough = n >= LEAST_SHARE * m
        kept, lost = enough and min(x, y) >= SAME, enough and y > IN_PLACE and x <= LOST * y
        readings.append(TRAINING if kept else INITIALISATION if lost else UNCLEAR)
        exact &= np.array_equal(*table)
    norm_r = None
    if norms := [(a, b) for a, b in norms if np.ptp(a) > 0.0 and np.ptp(b) > 0.0]:
        norm_r, (x, y) = _norm_figures(norms)
        reasons.append(Text("norms vary by {x:.1%} and {y:.1%}, and correlate at {r:.2f}", x=x, y=y, r=norm_r))
        readings.append(TRAINING if norm_r >= NORM_KEPT and x >= NORM_MOVED else UNCLEAR)
        exact &= all(np.array_equal(a, b) for a, b in norms)
    reading = readings[0] if len(set(readings)) == 1 else UNCLEAR
    return Origin(reading, tuple(reasons), norm_r, exact=exact)


def _norm_figures(norms: Pairs) -> tuple[float, list[float]]:
    """Return the mean correlation of norms, and how far they vary, the side that varies less first."""
    moved = [float(np.mean([np.std(pair[i]) / np.mean(np.abs(pair[i])) for pair in norms])) for i in (0, 1)]
    return float(np.mean([correlation(a, b) for a, b in norms])), sorted(moved)


def _reading(
    enough: bool, relative: float, level: float, uniform: bool, norm_r: float | None, moved: Sequence[float]
) -> str:
    """Weigh directions and norms; where neither is clear, or one speaks against the other, the answer is "unclear"."""
    close = CLOSE if norm_r is not None else CLOSE_ALONE
    kept = enough and (uniform or (relative >= KEPT and level >= close))
    lost = enough and not kept and (relative <= LOST or (level < CLOSE and relative < KEPT))
    if norm_r is not None:
        learned = min(moved) >= NORM_MOVED
        if learned and norm_r >= NORM_KEPT:
            return UNCLEAR if lost and level >= CLOSE else TRAINING
        # norms so far apart take so much training that siblings would be apart in all else too: those here were replaced
        replaced = level >= SAME
        if kept and learned and norm_r < NORM_LOST and not replaced and not uniform:
            return UNCLEAR
        if kept and max(moved) < NORM_MOVED and norm_r < NORM_SAME:
            return UNCLEAR
    return TRAINING if kept else INITIALISATION if lost else UNCLEAR


def _swapped(pairs: Pairs) -> Pairs:
    return [(b, a) for a, b in pairs]


def _mean_slope(one: float, two: float) -> float:
    """Return the geometric mean of the slopes of B on A and of A on B, which no common factor changes; 0 if either is negative."""
    return float(np.sqrt(max(one, 0.0) * max(two, 0.0)))


def _evenness(slopes: Sequence[float], norms: Pairs, learned: float | None) -> tuple[float | None, float | None]:
    """Return the mean slope of B on A over roles, norms and learned directions, and its variation; None if they are few."""
    every = list(slopes)
    if norms:
        sums = _Slopes()
        for a, b in norms:
            sums.add(a - a.mean(), b - b.mean())
        every.append(sums.slopes[0])
    if learned is not None:
        every.append(learned)
    slope = float(np.mean(every)) if every else None
    return slope, float(np.std(every) / abs(slope)) if slope and len(every) >= 4 else None


class _Slopes:
    """Sums of squares and products of pairs, and the slope of B on A and of A on B."""

    def __init__(self) -> None:
        self._squares, self._products, self.any = [0.0, 0.0], 0.0, False

    def add(self, a: FloatArray, b: FloatArray) -> None:
        self.any = True
        for side, values in enumerate((a, b)):
            self._squares[side] += float(np.vdot(values, values))
        self._products += float(np.vdot(a, b))

    @property
    def slopes(self) -> tuple[float, float]:
        of_a, of_b = self._squares
        return self._products / of_a if of_a > 0.0 else 0.0, self._products / of_b if of_b > 0.0 else 0.0


@lru_cache(maxsize=256)
def _median_singular(aspect: float) -> float:
    """Return the median singular value of a random n × m matrix over √m, for n/m = aspect ≤ 1 (Marchenko–Pastur)."""
    t = (np.arange(4096) + 0.5) * np.pi / 4096
    values = 1.0 + aspect - 2.0 * np.sqrt(aspect) * np.cos(t)
    mass = np.cumsum(np.sin(t) ** 2 / values)
    return float(np.sqrt(values[np.searchsorted(mass, mass[-1] / 2.0)]))


def learned_part(values: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return the singular directions beyond the edge: U, s, Vᵀ, and the length of what was learned along each."""
    short, long = sorted(values.shape)
    tall = values if len(values) == long else values.T
    # by the Gram matrix, a third of the work: it blurs what is below 1e-8 of the largest, and that is no direction here
    squares, V = np.linalg.eigh(tall.T @ tall)
    s = np.sqrt(np.maximum(squares[::-1], 0.0))
    aspect = short / long
    sigma = median(s) / _median_singular(aspect)  # times √long
    count = int(np.count_nonzero(s > max(sigma * (1.0 + np.sqrt(aspect)) * EDGE_MARGIN, 1e-6 * s[0])))
    s, V = s[:count], V[:, ::-1][:, :count]
    square = (s**2 - (1.0 + aspect) * sigma**2) ** 2 - 4.0 * aspect * sigma**4
    U = (tall @ V) / s
    found = (U, s, V.T) if tall is values else (V, s, U.T)
    return *found, np.sqrt(np.maximum(square, 0.0)) / s


class _Gathered:
    """What B keeps of A's learned directions, once what B keeps of the rest is taken off, and of the rest, slice by slice."""

    def __init__(self) -> None:
        self._count, self._kept, self._length, self._rests = 0, 0.0, 0.0, list[float]()

    def add(self, a: FloatArray, b: FloatArray) -> None:
        U, s, Vt, learned = learned_part(a)
        rest = a - (U * s) @ Vt
        sums = _Slopes()
        if np.linalg.norm(rest) > 1e-6 * np.linalg.norm(a):  # else it is rounding
            sums.add(rest, b)
        slope = sums.slopes[0]
        along = np.einsum("kj,kj->k", U.T @ b, Vt)
        self._count += len(s)
        self._kept += float(np.sum(along - slope * (s - learned)))
        self._length += float(learned.sum())
        self._rests.append(slope)

    @property
    def kept(self) -> _Kept:
        share = self._kept / self._length if self._length > 0.0 else 0.0
        return _Kept(self._count, share, float(np.mean(self._rests)) if self._rests else 0.0)


def _kept(a: FloatArray, b: FloatArray) -> _Kept:
    gathered = _Gathered()
    gathered.add(a, b)
    return gathered.kept
