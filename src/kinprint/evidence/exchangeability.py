"""Check that units (residual dimensions, neurons, layers) have no order or copies that two unrelated models could share."""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import FloatArray, distinct, evenly_spaced, median
from kinprint._util.records import dataclass
from kinprint.arch import Axis, Role
from kinprint.edits.regression import correlation
from kinprint.evidence.probe import LayerMap, Probe, SamplePair, pairs_by_role
from kinprint.formats.dtypes import Array
from kinprint.model.reader import Sample
from kinprint.text import Text

Real = TypeVar("Real", bound=np.floating[Any])
Block = tuple[FloatArray, FloatArray]
OrderedAxes = Mapping[Axis, Text]  # axes that have an order in these models, with the reason

ORDER_Z = 2.0  # how many standard deviations a common trend over the index may be worth
REPEATS_Z = 5.5
"""Standard deviations at which both models repeat at one lag; of copies, which repeat alike, one in 10⁴ does by chance."""

WAVES = 4

COPY_R = 0.1  # correlation of two layers' slices in either model beyond which they are taken for copies of one layer
_CORNER = (16, 512)
_BLOCK = 256  # corners that are held against all before them at a time

ONE_SIDED = 0.4
"""Median, over rows or columns, of |mean| over root mean square of entries that are not zero, from which their signs are not fair:
0.80 for entries of one sign; up to 0.34 for four fair ones, and to 0.25 in layers of trained models. Heads have more."""

FOLLOWS_TOKENS, SAME_TABLE = 0.12, 0.9
"""Mean correlation of the embeddings of neighbouring tokens from which tables follow the token's number (0.00 to 0.07 in trained
tables, 0.16 to 0.27 where sinusoids of 0.7 of the spread were added, 0.7 among unused tokens, which are all alike), and of the
differences of neighbours in two tables from which it matters not: fine-tuning leaves more."""

TIED_ELEMENTS = 1 << 14
TIED_SHARE = 0.8
"""Distinct pairs of magnitudes, over those that a shuffle of one side leaves, below which weights are tied alike: 1.00 ± 0.01 where
they are not, whatever their number format; ties of less than a quarter of the weights hardly widen a null."""

TIED_R = 0.5
"""Correlation from which ties do not matter: five standard deviations of what a hundred free weights give by chance."""

FEW_PAIRS = 16  # slices that are looked at: a recipe does the same in all layers
OUTSTANDING, FEW_LEAVE = 5.0, 0.33
"""Times the median size (3.4 standard deviations of normal weights) at which an entry stands out, and the share of the correlation
that must be left without such entries: 0.9 and more where weights are shared, none where both began as the identity."""
DIRECTIONS, BEYOND = 4, 0.01
"""Directions along which all rows of a model may lie, and the share of a matrix's energy beyond these that is rounding. Of 710
trained matrices the first 16 rows have 0.17 of it there at the least; strangers projected on one public direction agree at 10⁻⁹."""


@dataclass(frozen=True)
class ProbePair:
    """Two probes under a layer map: what every family of tests in `kinprint.evidence.battery` is given."""

    a: Probe
    b: Probe
    layer_map: LayerMap
    seed: int = 0

    @cached_property
    def ordered(self) -> OrderedAxes:
        """Axes that have an order in these models, so that no test may permute them."""
        return ordered_axes_of(self.a, self.b)

    @cached_property
    def numbered_tokens(self) -> Text | None:
        """Why no test of embeddings is valid: in both models they follow the number of their token."""
        one, two = (probe.samples.get((Role.EMBEDDING, None, None)) for probe in (self.a, self.b))
        if one is None or two is None or not (one.finite and two.finite) or one.stored.shape != two.stored.shape:
            return None
        centred = [x.values - x.values.mean(axis=0) for x in (one, two)]
        follows = min(correlation(x[1:], x[:-1]) for x in centred)
        same = correlation(*(np.diff(x.values, axis=0) for x in (one, two)))  # what is smooth in the number is left out
        if len(one.stored) < 2 or follows <= FOLLOWS_TOKENS or same >= SAME_TABLE:
            return None
        return Text(
            "in both models embeddings follow the number of their token (neighbours correlate at {x:.2f})", x=follows
        )

    @cached_property
    def slices(self) -> Mapping[Role, list[SamplePair]]:
        """Pairs of slices, by role."""
        return pairs_by_role(self.a, self.b, self.layer_map)


def _waves(ranks: FloatArray) -> FloatArray:
    """Return how far unit ranks (vectors, units) follow the slowest waves over their index: cosines of 1 to `WAVES` half turns."""
    d = ranks.shape[1]
    waves = np.cos(np.pi * np.arange(1, WAVES + 1)[:, None] * (np.arange(d) + 0.5) / d)
    following: FloatArray = ranks @ (waves / np.linalg.norm(waves, axis=1, keepdims=True)).T
    return following


def unit_ranks(vectors: FloatArray) -> FloatArray:
    """Return the ranks of the entries of each vector (vectors, units), centred and at unit length."""
    order = np.argsort(vectors, axis=1, kind="stable")
    ranks = np.empty(vectors.shape)
    d = vectors.shape[1]
    np.put_along_axis(ranks, order, np.arange(d) - (d - 1) / 2.0, axis=1)
    ranks /= np.linalg.norm(ranks[:1])
    return ranks


def _repeats(ranks: FloatArray) -> FloatArray:
    """Return, for lags 1 to d/2, how far vectors resemble themselves a lag further on, in standard deviations of a random order."""
    # Unit ranks, so that a few large entries do not decide; all lags at once, by a Fourier transform. Norms of a model resemble
    # each other, so their mean scatters like a single one at most.
    d = ranks.shape[1]
    spectrum = np.abs(np.fft.rfft(ranks, axis=1)) ** 2
    found: FloatArray = np.fft.irfft(spectrum.mean(axis=0), n=d)[1 : d // 2 + 1] * math.sqrt(d)
    return found


def both_repeat(one: FloatArray, two: FloatArray) -> Text | None:
    """Say if the units of both models resemble those at one distance from them: neighbours, or periods of any length."""
    # Given are the unit ranks of either side, (vectors, units).
    both = np.minimum(np.abs(_repeats(one)), np.abs(_repeats(two)))
    if both.max(initial=0.0) <= REPEATS_Z:
        return None
    if (lag := int(both.argmax()) + 1) == 1:
        return Text("in both models entries follow their neighbours: the order has a meaning")
    return Text("in both models entries repeat at every {n} places: the order has a meaning", n=lag)


def both_follow_index(one: FloatArray, two: FloatArray) -> bool:
    """Whether two vectors rise and fall over their index alike, more than a random order of either would."""
    following = [_waves(unit_ranks(x[None])) for x in (one, two)]
    return float(np.abs(following[0] * following[1]).sum()) * math.sqrt(min(one.size, two.size)) > ORDER_Z


def common_order(one: FloatArray, two: FloatArray, sd: float) -> Text | None:
    """Say if the entries of both sides follow their index, or their neighbours: then their order is not arbitrary."""
    # A trend that both sides have adds to the correlation as much as the product of the two; it may not be worth more than
    # `ORDER_Z` standard deviations of the statistic. Given are the unit ranks of either side, (vectors, units).
    products = np.mean(_waves(one) * _waves(two), axis=0)
    excess = float(np.abs(products).sum()) / sd
    if excess > ORDER_Z:
        return Text(
            "in both models entries follow their index, worth {x:.1f} standard deviations: the order has a meaning",
            x=excess,
        )
    return both_repeat(one, two)


def ordered_axes_of(a: Probe, b: Probe) -> OrderedAxes:
    """Return the axes that have an order in this pair: as the configs tell, or as the columns of matrices show."""
    # Recipes that sort or slice residual dimensions by importance leave columns whose lengths follow their index.
    ordered = {**a.ordered, **b.ordered}
    if (few := along_few_directions(a, b)) is not None:
        return {**ordered, Axis.RESIDUAL: few}
    one, two = _column_lengths(a), _column_lengths(b)
    if Axis.RESIDUAL in ordered or one is None or two is None or not one.size == two.size > WAVES:
        return ordered
    why = both_repeat(unit_ranks(one[None]), unit_ranks(two[None]))
    if both_follow_index(one, two):
        why = Text("in both models the lengths of columns follow their index: their order has a meaning")
    return ordered if why is None else {**ordered, Axis.RESIDUAL: why}


def _residual_rows(probe: Probe) -> Iterator[Sample]:
    """Yield what was read of matrices that read the residual stream, whole rows."""
    for (role, layer, _), sample in probe.samples.items():
        if layer is None or role.info.kind != "matrix" or role.info.axes[1] is not Axis.RESIDUAL or not sample.finite:
            continue
        if sample.columns is None and sample.stored.ndim == 2 and sample.stored.size:
            yield sample


def along_few_directions(a: Probe, b: Probe) -> Text | None:
    """Say if all rows of both models lie along a few directions: nothing tells one neuron or dimension from another."""
    if not (_along_few_directions(a) and _along_few_directions(b)):
        return None
    return Text("all rows lie along {n} directions at most: their entries were not drawn one by one", n=DIRECTIONS)


def _along_few_directions(probe: Probe) -> bool:
    """Whether all rows lie along a few directions, as a projection of the whole model leaves them."""

    def few(sample: Sample) -> bool:
        rows = sample.part(slice(_CORNER[0]), slice(None))
        energy = np.linalg.eigvalsh(rows @ rows.T)
        return energy.size > 2 * DIRECTIONS and bool(energy[:-DIRECTIONS].sum() <= BEYOND * energy.sum())

    samples = list(_residual_rows(probe))
    return bool(samples) and all(map(few, samples))


def _column_lengths(probe: Probe) -> FloatArray | None:
    """Return the mean length of each residual column over the matrices that read the residual stream."""
    found: list[FloatArray] = []
    for sample in _residual_rows(probe):
        if len(found) < 64:
            lengths = np.linalg.norm(sample.values, axis=0)
            total = float(lengths.sum())
            if total > 0.0 and (not found or found[0].size == lengths.size):
                found.append(lengths / total)
    return np.mean(found, axis=0) if found else None


def fair_signs(*matrices: NDArray[Real]) -> tuple[NDArray[Real], ...]:
    """Take the means of rows and columns off, if a recipe gave those of any of the matrices a sign."""
    # Weights may be all positive, or units excite or inhibit by number. Zeros stay zero. What is left of a unit changes its sign
    # with the unit and its place with the place, so that every test stays valid.
    return _evened(matrices, [one_sided(matrix) for matrix in matrices])


def fair_pair(pair: SamplePair, rows: int, columns: int | None = None) -> Block:
    """Return the first rows and columns of both slices with `fair_signs`."""
    matrices = tuple(sample.part(slice(rows), slice(columns)) for sample in (pair.a, pair.b))
    whole = all(x.shape == sample.stored.shape for x, sample in zip(matrices, (pair.a, pair.b), strict=True))
    if whole:
        sides = [sample.once(one_sided, x) for x, sample in zip(matrices, (pair.a, pair.b), strict=True)]
    else:
        sides = list(map(one_sided, matrices))
    one, two = _evened(matrices, sides)
    return one, two


def _evened(matrices: Sequence[NDArray[Real]], sides: Sequence[tuple[bool, bool]]) -> tuple[NDArray[Real], ...]:
    found = list(matrices)
    for axis in [axis for axis in (0, 1) if any(sided[axis] for sided in sides)]:
        found = [np.where(x != 0.0, x - x.sum(axis=axis, keepdims=True) / _counts(x, axis), 0.0) for x in found]
    return tuple(found)


def _counts(values: NDArray[Real], axis: int) -> NDArray[Real]:
    """Return how many entries of each column (axis 0) or row are not zero, one at the least."""
    if (values != 0.0).all():  # so in most matrices, and ten times as fast to find out
        counts = np.full([1 if at == axis else n for at, n in enumerate(values.shape)], values.shape[axis])
    else:
        counts = np.count_nonzero(values, axis=axis, keepdims=True)
    found: NDArray[Real] = np.maximum(counts, 1).astype(values.dtype)
    return found


def one_sided(values: NDArray[Real]) -> tuple[bool, bool]:
    """Whether the columns, and the rows, of a matrix have signs of their own."""
    sided = []
    for axis in (0, 1):
        counts = _counts(values, axis).ravel()
        known = counts >= 4
        squares = np.vecdot(values, values) if axis else np.einsum("ij,ij->j", values, values)
        sums, squares = values.sum(axis=axis)[known], squares[known]
        # |mean| over the root mean square
        sided.append(bool(known.any()) and _median_beyond(np.abs(sums) / np.sqrt(squares * counts[known]), ONE_SIDED))
    return sided[0], sided[1]


def _median_beyond(values: NDArray[Real], limit: float) -> bool:
    """Whether the median is beyond a limit, which counting tells unless just half of the values are."""
    twice = 2 * int(np.count_nonzero(values > limit))
    return median(values) > limit if twice == values.size else twice > values.size


def tied_alike(group: Sequence[SamplePair], seed: int = 0) -> Text | None:
    """Say if the same weights are equal to each other in both models: shifted rows, weights that a public hash shares out."""
    # Such a matrix has fewer free numbers than elements, so that neither places nor signs of its units are drawn one by one. Asked
    # only where a test stands out although the models are not alike (`TIED_R`); weights that are equal in both models are no ties.
    found, expected = 0, 0
    rng = np.random.default_rng(seed)
    for pair in group:
        if abs(pair.a.beside(pair.b, _correlated)) >= TIED_R:
            continue
        one, two = _common(pair.a, pair.b)
        free = (one != 0.0) & (two != 0.0) & (np.abs(one - two) > np.abs(one) / 128)  # bfloat16 rounds by 1/256
        left, right = np.abs(one[free][:TIED_ELEMENTS]), np.abs(two[free][:TIED_ELEMENTS])
        found += distinct(left + 1j * right).size
        expected += distinct(left + 1j * rng.permutation(right)).size
    if found >= TIED_SHARE * expected:
        return None
    return Text(
        "weights are tied alike in both models, as one recipe makes them: {n} of {m} pairs differ", n=found, m=expected
    )


def _correlated(a: Sample, b: Sample) -> float:
    return correlation(*_common(a, b))


def _common(a: Sample, b: Sample, most: int | None = None) -> Block:
    """Return the elements that both slices have; of many, the first."""
    rows, *others = (min(sizes) for sizes in zip(a.stored.shape, b.stored.shape, strict=True))
    needed = rows if most is None else min(rows, -(-most // max(1, math.prod(others))))
    shape = slice(needed), *map(slice, others)
    return a.part(*shape).ravel()[:most], b.part(*shape).ravel()[:most]


def few_entries(group: Sequence[SamplePair]) -> Text | None:
    """Say if all that agrees is a few entries that stand out at the same places, as what a start by recipe leaves (an identity)."""
    looked_at = [pair.a.beside(pair.b, _without_outstanding) for pair in evenly_spaced(group, FEW_PAIRS)]
    found = [figures for figures in looked_at if figures is not None]
    total, rest = np.mean(found, axis=0) if found else (0.0, 0.0)
    if rest >= FEW_LEAVE * total:
        return None
    return Text("only a few entries that stand out at the same places agree, as one recipe leaves them")


def _without_outstanding(a: Sample, b: Sample) -> tuple[float, float] | None:
    """Return the correlation of two slices, and that without entries that stand out in both; None if one of them is zero."""
    one, two = _common(a, b, TIED_ELEMENTS)
    if not (one.any() and two.any()):
        return None
    alike = a.stored.shape == b.stored.shape  # else what both have is not what a figure of one slice is of
    sizes = [x.once(_usual_size, part) if alike else _usual_size(part) for x, part in ((a, one), (b, two))]
    out = np.minimum(*(np.abs(part) / size for part, size in zip((one, two), sizes, strict=True))) > OUTSTANDING
    return correlation(one, two), correlation(one[~out], two[~out]) if not out.all() else 0.0


def _usual_size(values: FloatArray) -> float:
    """Return the median magnitude of what is not zero."""
    return median(np.abs(values[values != 0.0]))


def without_copies(group: Sequence[SamplePair]) -> list[SamplePair]:
    """Leave out pairs that repeat another one in both models: copied layers or experts have one order between them."""
    # Two models deepened alike, or upcycled alike, would else be counted as if each copy had been ordered by a draw of its own.
    shapes: dict[tuple[tuple[int, ...], ...], list[int]] = {}
    for number, pair in enumerate(group):
        shapes.setdefault(tuple(_corner_of(sample).shape for sample in (pair.a, pair.b)), []).append(number)
    kept = np.zeros(len(group), dtype=bool)
    for numbers in shapes.values():
        kept[numbers] = _first_of_copies([group[k] for k in numbers])
    return [pair for pair, stays in zip(group, kept, strict=True) if stays]


def _first_of_copies(group: Sequence[SamplePair]) -> NDArray[np.bool_]:
    """Tell of which pairs no earlier one that stays is a copy on both sides; all corners of a side have one shape."""
    # Products of blocks: of a thousand experts each is held against all others, and one by one that took a second. B's are
    # looked at where something in A repeats.
    one, two = _corners([pair.a for pair in group]), None
    places, kept = np.arange(len(group)), np.ones(len(group), dtype=bool)
    for start in range(0, len(group), _BLOCK):
        here = places[start : start + _BLOCK]
        before = places[: here[-1] + 1]
        copies = (one[here] @ one[before].T > COPY_R) & (before < here[:, None])
        if copies.any():
            two = _corners([pair.b for pair in group]) if two is None else two
            copies &= two[here] @ two[before].T > COPY_R
            for k, row in zip(here, copies, strict=True):
                kept[k] = not (row & kept[before]).any()
    return kept


def _corners(samples: Sequence[Sample]) -> NDArray[np.float32]:
    """Return the corners of slices of one shape, one in each row."""
    found = np.empty((len(samples), _corner_of(samples[0]).size), dtype=np.float32)
    for row, sample in zip(found, samples, strict=True):
        row[:] = corner(sample).ravel()
    return found


def _corner_of(sample: Sample) -> Array:
    return sample.stored[: _CORNER[0], : _CORNER[1]]


def corner(sample: Sample) -> FloatArray:
    """Return a corner of a slice without what all its rows have in common, at unit length."""
    part = _corner_of(sample).astype(np.float64)
    if not sample.finite:
        part = np.nan_to_num(part, posinf=0.0, neginf=0.0)
    if not part.size:
        return part
    part -= part.mean(axis=0)
    length = float(np.linalg.norm(part))
    return part / length if length > 0.0 else part
