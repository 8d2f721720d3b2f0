"""Describe what was done to norms, and undo it where their scales were folded into the matrices that read after them.

A norm's scale γ and a matrix W behind it act as W·diag(γ): with other scales γ', the matrix W·diag(γ/γ') computes the same. Such
a child is the parent in other numbers, and its matrices are compared after the parent's were folded alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint._util.records import dataclass
from kinprint.arch import Role
from kinprint.edits.rounding import is_float, steps
from kinprint.edits.sameness import identity_of
from kinprint.evidence.probe import LayerMap, Probe, SamplePair, is_residual_norm, sample_pairs
from kinprint.model.reader import Sample

READERS = {
    Role.INPUT_NORM: (Role.ATTN_Q, Role.ATTN_K, Role.ATTN_V, Role.ATTN_Q_A, Role.ATTN_KV_A),
    Role.POST_ATTENTION_NORM: (
        Role.MLP_GATE, Role.MLP_UP, Role.SHARED_GATE, Role.SHARED_UP, Role.EXPERT_GATE, Role.EXPERT_UP,
    ),
}  # fmt: skip
"""Matrices that read the residual stream right after a norm."""

VARIED = 0.02  # spread of the logarithms of γ/γ' below which a matrix says nothing about folding
FOLDED_GAIN = 0.5
"""What folding explains of the difference, ‖B − A‖² − ‖B − A·s‖² with a factor fitted to each, over the distance of the two fits:
1 if B was folded, whatever was done to it besides, and −1 if not. Training moves scales and matrices, and not against each other.
"""

FOLDED_SHARE = 0.8  # of the matrices behind scales that changed
WITHIN = 0.99  # share of elements that rounding explains, from which a folded matrix has no other change


@dataclass(frozen=True)
class NormEdit:
    """What norms show. Fields are None where no varying norm was compared."""

    # ``agree`` says that all are equal, casts aside. ``slope`` and ``error`` are those of B's centred scales on A's, least
    # squares with a jackknife over norms; ``correlation`` goes with them. ``identical`` counts slices of any role that vary
    # and are the same byte for byte; ``folded`` matrices that the folding explains, of ``readers`` behind scales that
    # changed.
    agree: bool | None = None
    slope: float | None = None
    error: float | None = None
    correlation: float | None = None
    identical: int = 0
    folded: int = 0
    readers: int = 0

    @property
    def is_folded(self) -> bool:
        """Whether norm scales were multiplied into the matrices behind them, or taken out of them."""
        return self.folded >= 2 and self.folded >= FOLDED_SHARE * self.readers


def norm_edit(probes: tuple[Probe, Probe], layer_map: LayerMap) -> NormEdit:
    """Compare the norms of layers that match."""
    pairs = [pair for pair in sample_pairs(*probes, layer_map) if pair.a.stored.shape == pair.b.stored.shape]
    pairs = [pair for pair in pairs if pair.finite]
    stored = [pair for pair in pairs if pair.a.dtype == pair.b.dtype and np.ptp(pair.a.values) > 0]
    identical = sum(pair.a.stored.tobytes() == pair.b.stored.tobytes() for pair in stored)
    norms = [pair for pair in pairs if is_residual_norm(pair.role)]
    agree = all(map(_agrees, norms)) if norms else None
    varied = [pair for pair in norms if np.ptp(pair.a.values) > 0 and np.ptp(pair.b.values) > 0]
    if not varied:
        return NormEdit(agree, identical=identical)
    centred = [(pair.a.values - pair.a.values.mean(), pair.b.values - pair.b.values.mean()) for pair in varied]
    sums = np.array([(x @ x, x @ y, y @ y) for x, y in centred])
    own, cross, other = sums.sum(axis=0)
    error = None
    if len(sums) > 1:
        left_out = (cross - sums[:, 1]) / (own - sums[:, 0])
        error = float(np.sqrt((len(sums) - 1) * np.mean(np.square(left_out - left_out.mean()))))
    return NormEdit(agree, float(cross / own), error, float(cross / np.sqrt(own * other)), identical)


def _agrees(pair: SamplePair) -> bool:
    """Whether two norms are the same, or the same before one of them was cast (or had its offset taken off, and was)."""
    a, b = pair.a, pair.b
    same = identity_of(a.stored, b.stored, a.dtype, b.dtype)
    if a.offset == b.offset and (same.same_values or same.cast is not None):
        return True
    if a.dtype == b.dtype or not (is_float(a.dtype) and is_float(b.dtype)):
        return not (is_float(a.dtype) and is_float(b.dtype))  # norms that are stored as codes say nothing
    one, two = a.values, b.values
    size = np.maximum(np.abs(one), 1.0)
    return bool(np.all(np.abs(one - two) <= np.maximum(steps(size, a.dtype), steps(size, b.dtype))))


@dataclass(frozen=True)
class FoldedPair:
    """Two slices, and the factors of A's columns that fold it as B is folded; None where there are none."""

    pair: SamplePair
    factors: FloatArray | None = None

    @property
    def forward(self) -> SamplePair:
        """Both slices, A folded as B is."""
        return self.pair if self.factors is None else replace(self.pair, a=_scaled(self.pair.a, self.factors))

    @property
    def back(self) -> SamplePair:
        """Both slices, B folded as A is."""
        return self.pair if self.factors is None else replace(self.pair, b=_scaled(self.pair.b, 1.0 / self.factors))

    @property
    def column_slopes(self) -> FloatArray:
        """Slope of each of B's columns on A's: the factors, as the matrices have them."""
        A, B = self.pair.a.values, self.pair.b.values
        slopes: FloatArray = np.sum(A * B, axis=0) / np.maximum(np.sum(A * A, axis=0), 1e-300)
        return slopes

    @property
    def is_rounding(self) -> bool:
        """Whether folding explains all of the difference, up to rounding of both slices."""
        a, b = self.pair.a, self.pair.b
        if self.factors is None or not (is_float(a.dtype) and is_float(b.dtype)):
            return False
        A, B = a.values * self.factors, b.values
        rounding = steps(B, b.dtype) + np.abs(self.factors) * steps(a.values, a.dtype)
        return bool(np.mean(np.abs(A - B) <= rounding) >= WITHIN)


def _scaled(sample: Sample, factors: FloatArray) -> Sample:
    return replace(sample, stored=sample.values * factors, dtype="F32", offset=0.0)


def unfold(
    matrices: Mapping[Role, Sequence[SamplePair]], probes: tuple[Probe, Probe], layer_map: LayerMap, norms: NormEdit
) -> tuple[dict[Role, list[FoldedPair]], NormEdit]:
    """Return the pairs with the factors that fold them alike, and how many are explained by those; without, if few are."""
    scales = _scales(probes, layer_map)
    plain = {role: [FoldedPair(pair) for pair in pairs] for role, pairs in matrices.items()}
    folded = {r: [FoldedPair(pair, scales.get((r, pair.layer))) for pair in pairs] for r, pairs in matrices.items()}
    readers = [item for pairs in folded.values() for item in pairs if item.factors is not None]
    found = replace(norms, folded=sum(map(_explains, readers)), readers=len(readers))
    return (folded if found.is_folded else plain), found


def _explains(item: FoldedPair) -> bool:
    """Whether folding explains the difference; a common factor, which an average has too, is neither here nor there."""
    A, B, A_folded = (x.ravel() for x in (item.pair.a.values, item.pair.b.values, item.forward.a.values))
    own = float(A @ A)
    fitted = A_folded * (float(A_folded @ B) / float(A_folded @ A_folded))
    gain = np.sum(np.square(B - A * (float(A @ B) / own))) - np.sum(np.square(B - fitted))
    apart = np.sum(np.square(fitted - A * (float(A @ fitted) / own)))
    return bool(gain >= FOLDED_GAIN * apart)


def _scales(probes: tuple[Probe, Probe], layer_map: LayerMap) -> dict[tuple[Role, int | None], FloatArray]:
    """Return γ_A/γ_B for each reader and layer of B whose norm changed by more than a common factor."""
    found: dict[tuple[Role, int | None], FloatArray] = {}
    for pair in sample_pairs(*probes, layer_map):
        if pair.role not in READERS or pair.a.stored.shape != pair.b.stored.shape or not pair.finite:
            continue
        a, b = pair.a.values, pair.b.values
        if np.all(a * b > 0.0) and float(np.std(np.log(a / b))) > VARIED:
            found |= {(role, pair.layer): a / b for role in READERS[pair.role]}
    return found
