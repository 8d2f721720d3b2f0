"""The “182 sigma” of the first accusation: recomputed by its formula, beside everything that is wrong with it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.arch import Role
from kinprint.stats import row_grid
from kinprint.studies.opened import Stage
from kinprint.studies.origin.shared import accused, all_model_pairs, is_published, joint, norm_pair, origin
from kinprint.studies.outcome import Cell, Check, Missing, Section, Table, column, picture, table
from kinprint.studies.published import published
from kinprint.text import Text

PROBED = (10, 20, 30, 40)
WRONG_SIGMA = Text(
    "an effect size over four values each, not a test: the baseline is layer 0 alone, and layer 0 is left out of the "
    "cross set; the formula gives as much for unrelated models"
)
WRONG_TEN_TWENTY = Text("false: another group measured 0.9820, and so does this study")
WRONG_TEN_TEN = Text("0.989 is the mean of four layers; layer 10 itself has 0.981")


@dataclass(frozen=True)
class Sigma:
    """The published formula on one pair of models: within one of them against layer 0, and across at the same layer."""

    a: str
    b: str
    layers: tuple[int, ...]
    within_a: FloatArray  # layer 0 of A against the probed layers of A
    within_b: FloatArray
    cross: FloatArray  # the probed layers of A against the same layers of B
    cross_zero: float  # layer 0 of A against layer 0 of B
    zero_cross: FloatArray  # layer 0 of A against the probed layers of B
    predicted_within_b: FloatArray
    predicted_within_a: FloatArray
    predicted_cross: FloatArray
    z: FloatArray  # of the cross cosines, under permutation
    joint_z: float | None  # of all of them together, one permutation for all

    @property
    def difference(self) -> float:
        """Mean across minus mean within B."""
        return float(self.cross.mean() - self.within_b.mean())

    @property
    def sigma(self) -> float | None:
        """The published number."""
        return effect(self.cross, self.within_b)

    @property
    def sigma_with_zero(self) -> float | None:
        """The same with layer 0 in the cross set, as the script has it."""
        return effect(np.append(self.cross, self.cross_zero), self.within_b)

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


def compute(stage: Stage, a: str, b: str) -> Sigma:
    """Apply the formula to two models.

    Raises
    ------
    Missing
        If they do not share layer 0 and two more.
    """
    pair = norm_pair(stage, a, b, Role.INPUT_NORM)
    layers = probed_layers(pair.layers)
    if 0 not in pair.layers or len(layers) < 2:
        raise Missing(Text("{a} and {b} do not share layer 0 and at least two further layers", a=a, b=b))
    rows = [pair.layers.index(layer) for layer in layers]
    zero = pair.layers.index(0)
    inner = [row_grid(side[[zero]], side[rows]) for side in (pair.left, pair.right)]
    return Sigma(
        a,
        b,
        layers,
        inner[0].cosine[0],
        inner[1].cosine[0],
        pair.cosine[rows],
        float(pair.cosine[zero]),
        pair.pairs.cosine[zero, rows],
        inner[1].cosine_null_mean[0],
        inner[0].cosine_null_mean[0],
        pair.null_mean[rows],
        np.diagonal(pair.pairs.z)[rows],
        joint(pair.only(layers)).z,
    )


def sigma_audit(stage: Stage) -> Section:
    """Part C."""
    section = Section()
    a, b = accused(stage)
    found: list[Sigma] = []
    for one, two in all_model_pairs(stage):
        try:
            found.append(compute(stage, one, two))
        except Missing as error:
            section.missing.append(error.text)
    if not found:
        return section
    section.tables.append(_formula_table(found))
    first = found[0] if (found[0].a, found[0].b) == (a, b) else None
    if first is not None:
        section.tables += [_value_table(first), _distance_table(stage, a, b)]
        section.notes.append(_NOTE)
        if is_published(stage, a, b):
            section.notes.append(_SOLAR_NOTE)
            section.checks += _checks(stage, first)
    caption = Text(
        "Left: the cosines behind the published number, one dot for each layer; crosses: what means and spreads alone "
        "predict. Right: the published formula on each pair of models, and on the predicted cosines. Both axes begin "
        "at 0."
    )
    section.pictures.append(picture("sigma", caption, "origin.figures.sigma_bars", first or found[0], found))
    return section


_NOTE = Text(
    "The published number divides a difference of means by a spread over four values: an effect size, not a test. "
    "Layer 0 of A against later layers of B shows whether a low baseline belongs to layer 0 itself; the columns "
    "“predicted” whether it follows from the vectors’ means and spreads alone."
)
_SOLAR_NOTE = Text(
    "Layer 0 has a large coefficient of variation in both models, so its cosine with any later layer is low, within a model "
    "as across. No change of the tokenizer is needed to explain it: GLM, whose tokenizer was not changed, shows it too."
)


def _formula_table(found: Sequence[Sigma]) -> Table:
    rows: list[list[Cell]] = [
        [
            f"{item.a}–{item.b}",
            item.b,
            ", ".join(map(str, item.layers)),
            float(item.within_b.mean()),
            float(item.cross.mean()),
            item.difference,
            item.sigma,
            item.sigma_with_zero,
            item.sigma_predicted,
            float(item.zero_cross.mean()),
            item.joint_z,
        ]
        for item in found
    ]
    columns = (
        column("pair", "pair"),
        column("within", "baseline within"),
        column("layers", "layers"),
        column("within_mean", "layer 0 against them, mean", 4),
        column("cross_mean", "same layer across, mean", 4),
        column("difference", "difference", 4),
        column("sigma", "“sigma” as published", 1),
        column("sigma_with_zero", "with layer 0 in the cross set", 1),
        column("sigma_predicted", "from means and spreads alone", 1),
        column("zero_cross", "layer 0 of A against layers of B, mean", 4),
        column("joint_z", "z of the cross set under permutation", 2),
    )
    return table("sigma", Text("The published formula on every pair"), columns, rows)


def _value_table(item: Sigma) -> Table:
    rows: list[list[Cell]] = [
        [
            layer,
            float(item.within_a[i]),
            float(item.predicted_within_a[i]),
            float(item.within_b[i]),
            float(item.predicted_within_b[i]),
            float(item.cross[i]),
            float(item.predicted_cross[i]),
            float(item.zero_cross[i]),
            float(item.z[i]),
        ]
        for i, layer in enumerate(item.layers)
    ]
    columns = (
        column("layer", "layer"),
        column("within_a", "layer 0 against it in A", 4),
        column("predicted_within_a", "predicted", 4),
        column("within_b", "layer 0 against it in B", 4),
        column("predicted_within_b", "predicted", 4),
        column("cross", "A against B", 4),
        column("predicted_cross", "predicted", 4),
        column("zero_cross", "layer 0 of A against it in B", 4),
        column("z", "z of A against B", 2),
    )
    title = Text(
        "The cosines behind it, {a} (A) and {b} (B), each beside what the two vectors’ means and spreads predict",
        a=item.a,
        b=item.b,
    )
    return table("sigma_values", title, columns, rows)


def _distance_table(stage: Stage, a: str, b: str) -> Table:
    """Return a fair baseline: within and across at the same distance between layers, without layer 0."""
    pair = norm_pair(stage, a, b, Role.INPUT_NORM)
    layers = probed_layers(pair.layers)
    rows = [pair.layers.index(layer) for layer in layers]
    within_a, within_b = (row_grid(side[rows], side[rows]) for side in (pair.left, pair.right))
    across = row_grid(pair.left[rows], pair.right[rows])
    cells: list[list[Cell]] = []
    for step in range(len(layers)):
        count = len(layers) - step
        places = [(i, i + step) for i in range(count)]
        both = places + [(j, i) for i, j in places] if step else places
        cells.append(
            [
                step,
                ", ".join(f"{layers[i]}–{layers[j]}" for i, j in places),
                *(_mean(m, places) if step else None for m in (within_a.cosine, within_b.cosine)),
                _mean(across.cosine, both),
                *(_mean(m, places) if step else None for m in (within_a.pearson, within_b.pearson)),
                _mean(across.pearson, both),
            ]
        )
    columns = (
        column("step", "steps apart"),
        column("layers", "layers"),
        column("within_a", "cosine within A", 4),
        column("within_b", "cosine within B", 4),
        column("across", "cosine across", 4),
        column("pearson_a", "Pearson within A", 4),
        column("pearson_b", "Pearson within B", 4),
        column("pearson_across", "Pearson across", 4),
    )
    return table("sigma_distance", Text("A fair baseline: equal distance between layers, no layer 0"), columns, cells)


def _mean(matrix: FloatArray, places: Sequence[tuple[int, int]]) -> float:
    return float(np.mean([matrix[i, j] for i, j in places]))


def _checks(stage: Stage, item: Sigma) -> list[Check]:
    known = origin()
    checks: list[Check] = []
    for name, values in (("GLM", item.within_b), ("Solar", item.within_a)):
        for layer, value in zip(item.layers, values, strict=True):
            what = Text("cosine of layers 0 and {layer} of {model}, input_norm", layer=layer, model=name)
            checks.append(Check(what, known["within_layer0"][name][str(layer)], float(value)))
    for layer, value in zip(item.layers, item.cross, strict=True):
        what = Text("cosine of Solar and GLM, input_norm, layer {layer}, in the baseline", layer=layer)
        checks.append(Check(what, known["cross_used_for_182sigma"][str(layer)], float(value)))
    if item.layers != PROBED:
        return checks
    again = published()["recomputed_checks"]["sigma182"]
    with_zero = float(np.append(item.cross, item.cross_zero).mean())
    checks += [
        Check(Text("mean cosine across, layers 10 to 40"), 0.989, float(item.cross.mean()), 3, "text"),
        Check(Text("mean cosine within GLM, layer 0"), 0.377, float(item.within_b.mean()), 3, "text"),
        Check(Text("mean cosine within Solar, layer 0"), 0.376, float(item.within_a.mean()), 3, "text"),
        Check(Text("difference of the two means"), again["difference"], item.difference, 4, "text"),
        Check(Text("“182 sigma”"), 182.0, item.sigma, 0, "wrong", WRONG_SIGMA),
        Check(
            Text("mean cosine across with layer 0, as the script computes it"),
            again["with_layer0_as_in_script"]["cross_mean"],
            with_zero,
        ),
        Check(
            Text("difference of means with layer 0, as the script computes it"),
            again["with_layer0_as_in_script"]["difference"],
            with_zero - float(item.within_b.mean()),
        ),
        Check(Text("“Solar 10 against GLM 10 = 0.989”"), 0.989, float(item.cross[0]), 3, "wrong", WRONG_TEN_TEN),
    ]
    pair = norm_pair(stage, item.a, item.b, Role.INPUT_NORM)
    ten_twenty = float(pair.pairs.cosine[pair.layers.index(10), pair.layers.index(20)])
    return [*checks, Check(Text("“Solar 10 against GLM 20 = 0.38”"), 0.38, ten_twenty, 2, "wrong", WRONG_TEN_TWENTY)]
