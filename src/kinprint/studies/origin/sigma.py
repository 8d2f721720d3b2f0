"""Recompute the published “182 sigma” by its formula, on all pairs, beside what means and spreads alone predict."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.arch import Role
from kinprint.studies.layer_pairs import LayerPair
from kinprint.studies.opened import StudyRun, each
from kinprint.studies.origin.shared import control_pairs, is_published, norm_pair
from kinprint.studies.outcome import Missing, Section, columns
from kinprint.studies.row_grid import row_grid
from kinprint.text import Text

PROBED = (10, 20, 30, 40)
_FORMULA = columns(
    "pair; within: baseline within; layers; within_mean: layer 0 against them, mean .4; "
    "cross_mean: same layer across, mean .4; difference .4; sigma: “sigma” as published .1; "
    "sigma_with_zero: with layer 0 in the cross set .1; sigma_predicted: from means and spreads alone .1; "
    "zero_cross: layer 0 of A against layers of B, mean .4; joint_z: z of the cross set under permutation .2"
)
_VALUES = columns(
    "layer; within_a: layer 0 against it in A .4; predicted_within_a: predicted .4; within_b: layer 0 against it in B .4; "
    "predicted_within_b: predicted .4; cross: A against B .4; predicted_cross: predicted .4; "
    "zero_cross: layer 0 of A against it in B .4; z: z of A against B .2"
)
_DISTANCE = columns(
    "step: steps apart; layers; within_a: cosine within A .4; within_b: cosine within B .4; across: cosine across .4; "
    "pearson_a: Pearson within A .4; pearson_b: Pearson within B .4; pearson_across: Pearson across .4"
)


@dataclass(frozen=True, eq=False)
class Sigma:
    """The published formula on one pair of models; ``predicted_…`` are cosines that means and spreads alone predict."""

    pair: LayerPair
    layers: tuple[int, ...]
    within_a: FloatArray  # layer 0 of A against the probed layers of A
    predicted_within_a: FloatArray
    within_b: FloatArray
    predicted_within_b: FloatArray
    cross: FloatArray  # the probed layers of A against the same layers of B
    predicted_cross: FloatArray
    z: FloatArray  # of the cross cosines, under permutation
    cross_zero: float  # layer 0 of A against layer 0 of B
    zero_cross: FloatArray  # layer 0 of A against the probed layers of B
    joint_z: float | None  # of all cross cosines together, one permutation for all

    @property
    def with_zero(self) -> FloatArray:
        """The cross cosines and that of layer 0, as the script has them."""
        return np.append(self.cross, self.cross_zero)

    @property
    def sigma(self) -> float | None:
        """The published number."""
        return effect(self.cross, self.within_b)

    @property
    def sigma_predicted(self) -> float | None:
        """The same formula on the cosines that means and spreads alone predict."""
        return effect(self.predicted_cross, self.predicted_within_b)


def effect(cross: FloatArray, within: FloatArray) -> float | None:
    """Return the difference of means over the root of the mean variance: what was published as a number of sigmas."""
    spread = math.sqrt((float(cross.var()) + float(within.var())) / 2)
    return float(cross.mean() - within.mean()) / spread if spread > 0.0 else None


def probed_layers(shared: Sequence[int]) -> tuple[int, ...]:
    """Return the published layers if at least two exist, else up to four that are evenly spread; never layer 0."""
    chosen = tuple(layer for layer in PROBED if layer in shared)
    if len(chosen) >= 2:
        return chosen
    others = [layer for layer in shared if layer > 0]
    places = sorted({round(k * (len(others) - 1) / 3) for k in range(4)}) if others else []
    return tuple(others[place] for place in places)


def compute(run: StudyRun, a: str, b: str) -> Sigma:
    """Apply the formula to two models; `Missing` if they do not share layer 0 and two more."""
    pair = norm_pair(run, a, b, Role.INPUT_NORM)
    layers = probed_layers(pair.layers)
    if 0 not in pair.layers or len(layers) < 2:
        raise Missing("{a} and {b} do not share layer 0 and at least two further layers", a=a, b=b)
    rows = [pair.layers.index(layer) for layer in layers]
    zero = pair.layers.index(0)
    inner = [row_grid(side[[zero]], side[rows]) for side in (pair.left, pair.right)]
    within_a, within_b = ((found.cosine[0], found.cosine_null_mean[0]) for found in inner)
    across = pair.cosine[rows], pair.null_mean[rows], pair.z[rows]
    of_zero = float(pair.cosine[zero]), pair.grid.cosine[zero, rows]
    return Sigma(pair, layers, *within_a, *within_b, *across, *of_zero, pair.only(layers).joint().z)


def sigma_audit(run: StudyRun, section: Section, a: str, b: str) -> None:
    """Apply the published formula to every pair, and compare at equal distance between layers."""
    found = each(section.missing, ((a, b), *control_pairs(run)), lambda pair: compute(run, *pair))
    if not found:
        return
    rows = []
    for item in found:
        within, cross = item.within_b.mean(), item.cross.mean()
        sigmas = item.sigma, effect(item.with_zero, item.within_b), item.sigma_predicted
        named = item.pair.name, item.pair.b, ", ".join(map(str, item.layers))
        rows.append((*named, within, cross, cross - within, *sigmas, item.zero_cross.mean(), item.joint_z))
    section.add_table("sigma", Text("The published formula on every pair"), _FORMULA, rows)
    first = found[0]
    if (first.pair.a, first.pair.b) == (a, b):
        title = Text(
            "The cosines behind it, {a} (A) and {b} (B), each beside what the two vectors’ means and spreads predict",
            a=a,
            b=b,
        )
        behind = [(layer, *(getattr(first, c.key)[i] for c in _VALUES[1:])) for i, layer in enumerate(first.layers)]
        section.add_table("sigma_values", title, _VALUES, behind)
        _add_distances(section, first)
        section.note(
            "The published number divides a difference of means by a spread over four values: an effect size, not a test. "
            "Layer 0 of A against later layers of B shows whether a low baseline belongs to layer 0 itself; the columns "
            "“predicted” whether it follows from the vectors’ means and spreads alone."
        )
        if is_published(run, a, b):
            _add_published(section, first)
    section.add_picture("sigma", "origin.sigma_bars", first, found)


def _add_published(section: Section, item: Sigma) -> None:
    """Add what the publication says of Solar and GLM and no table holds, for the published layers."""
    section.note(
        "Layer 0 has a large coefficient of variation in both models, so its cosine with any later layer is low, within a model "
        "as across. No change of the tokenizer is needed to explain it: GLM, whose tokenizer was not changed, shows it too."
    )
    if item.layers == PROBED:
        with_zero, place = float(item.with_zero.mean()), item.pair.layers.index
        section.values |= {"with_zero": with_zero, "difference_with_zero": with_zero - float(item.within_b.mean())}
        section.values["ten_twenty"] = float(item.pair.grid.cosine[place(10), place(20)])


def _add_distances(section: Section, item: Sigma) -> None:
    """Add a fair baseline: within and across at the same distance between layers, without layer 0."""
    probed, layers = item.pair.only(item.layers), item.layers
    within = [row_grid(side, side) for side in (probed.left, probed.right)]
    rows = []
    for step in range(len(layers)):
        places = [(i, i + step) for i in range(len(layers) - step)]
        both = places + [(j, i) for i, j in places] if step else places
        means: list[float | None] = []
        for name in ("cosine", "pearson"):
            means += [_mean(getattr(found, name), places) if step else None for found in within]
            means.append(_mean(getattr(probed.grid, name), both))
        rows.append((step, ", ".join(f"{layers[i]}–{layers[j]}" for i, j in places), *means))
    title = Text("A fair baseline: equal distance between layers, no layer 0")
    section.add_table("sigma_distance", title, _DISTANCE, rows)


def _mean(matrix: FloatArray, places: Sequence[tuple[int, int]]) -> float:
    return float(np.mean([matrix[place] for place in places]))
