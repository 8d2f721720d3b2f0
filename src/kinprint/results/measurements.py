"""Define metrics beside their nulls: of one pair of tensors, and of one role over all its layers."""

from kinprint._util.records import dataclass
from kinprint.results.p_values import PMethod
from kinprint.text import Text

OK = "ok"
NOT_COMPARABLE = "not_comparable"
NO_NULL = "no_null"


@dataclass(frozen=True)
class NullResult:
    """Distribution of a metric under permutation, and how far the observed value lies from it.

    Parameters
    ----------
    name : Kind of the null.
    mean, sd : Of the metric over all permutations, in the metric's own units.
    z : (observed − mean) / sd, so closer means negative for a distance. For distances that are a function of a dot product
        it is taken on the dot product, where it is exact. None where every permutation gives the same value.
    log10_p : Base-10 logarithm of the one-sided p-value towards "closer"; None where the metric cannot see order.
    p_method, p_detail : How the p-value was had, and in words where those say more than the method's label.
    tail : "greater" or "less": the side of the null, in the metric's units, on which "closer" lies.
    n : Number of exchangeable units permuted.
    n_draws : Number of Monte-Carlo permutations, if any were drawn.
    skewness, excess_kurtosis : Exact, of the permuted dot product (None where not computed).
    assumptions : What has to hold for the figures to mean what they say.
    fourth, reach : What guards the normal tail against a coincidence of outliers; see
        `kinprint.stats.tails.tail_correction`.
    """

    name: str
    mean: float
    sd: float
    z: float | None
    log10_p: float | None
    p_method: PMethod
    tail: str
    n: int
    n_draws: int | None = None
    skewness: float | None = None
    excess_kurtosis: float | None = None
    assumptions: tuple[Text, ...] = ()
    fourth: float | None = None
    reach: float | None = None
    p_detail: Text | None = None

    @property
    def p_text(self) -> Text:
        """Method of the p-value, in words."""
        return self.p_detail or self.p_method.label


@dataclass(frozen=True)
class Measurement:
    """One metric on one pair of tensors. ``null`` is None unless ``status`` is "ok"."""

    metric: str
    status: str
    value: float | None = None
    null: NullResult | None = None
    reason: Text | None = None


@dataclass(frozen=True)
class CosineExplained:
    """Why the raw cosine is what it is: cos = (1 + r·CVa·CVb) / sqrt((1+CVa²)(1+CVb²))."""

    r: float
    cv_a: float
    cv_b: float
    predicted: float
    observed: float
    if_independent: float


@dataclass(frozen=True)
class TensorSide:
    """One side of a compared pair: which stored tensor, and what was read of it."""

    tensor: str
    dtype: str
    shape: tuple[int, ...]  # logical, out × in
    nonfinite: int = 0


@dataclass(frozen=True)
class TensorComparison:
    """All metrics on one pair of tensors of the same role."""

    role: str
    layer: int | None
    expert: int | None
    a: TensorSide
    b: TensorSide
    status: str
    reason: Text | None
    rows: tuple[int, int] | None = None  # logical rows compared (half-open); None means all
    columns: tuple[int, int] | None = None  # likewise
    elements: int = 0
    permuted_axis: str | None = None
    measurements: tuple[Measurement, ...] = ()
    explained: CosineExplained | None = None


@dataclass(frozen=True)
class RoleSummary:
    """One role over all its layers, under one joint null: layers are correlated and are never counted as independent."""

    role: str
    kind: str
    compared: int
    not_compared: int
    median_cosine: float | None
    median_cosine_null: float | None
    mean_pearson: float | None
    statistic: float | None  # what the null is of: the mean correlation over the rows that entered the joint test
    null: NullResult | None
    permutation: Text | None = None  # whether one permutation served all layers, or each had its own
    reason: Text | None = None


@dataclass(frozen=True)
class Skipped:
    """Tensors that were not compared: their number and the reason."""

    what: Text
    count: int
    reason: Text
    examples: tuple[str, ...] = ()
