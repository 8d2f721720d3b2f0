"""All layers against all layers in the bias study: one pair (figure 2) and all pairs of models (figure 5)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.arch import Role
from kinprint.stats import RowGrid, row_grid
from kinprint.studies.bias.facts import (
    INPUT,
    RELATED,
    add_checks,
    compared_pairs,
    effective_layers,
    layer_stack,
    model_pairs,
    vector_roles,
)
from kinprint.studies.bias.pairs import BY_LAYER
from kinprint.studies.layer_pairs import LayerPair, finite_mean, finite_median
from kinprint.studies.opened import StudyRun, attempt, require_same_shape, sides
from kinprint.studies.outcome import Cell, Section, columns
from kinprint.text import Text


@dataclass(frozen=True)
class LayerGrid:
    """Every layer of one model (rows) against every layer of another (columns)."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    found: RowGrid
    null_sd: float

    def place(self, p: int, q: int) -> tuple[int, int]:
        """Return where a layer of the one and a layer of the other stand."""
        return self.rows.index(p), self.columns.index(q)

    def split(self, name: str) -> tuple[FloatArray, FloatArray]:
        """Return the values of the same layer and those of different layers, both over the layers that both models have."""
        shared = sorted(set(self.rows) & set(self.columns))
        at = np.ix_([self.rows.index(x) for x in shared], [self.columns.index(x) for x in shared])
        square, same = getattr(self.found, name)[at], np.eye(len(shared), dtype=bool)
        return square[same], square[~same]

    def summary(self) -> list[tuple[Cell, ...]]:
        """Return mean, median and spread of the same layer, and of different layers; see `SUMMARY`."""
        cosine, null, pearson = (self.split(name) for name in ("cosine", "cosine_null_mean", "pearson"))
        return [
            (label, int(cosine[k].size), *_spread(cosine[k]), finite_mean(null[k]), *_spread(pearson[k]))
            for k, label in enumerate((Text("same layer"), Text("different layers")))
        ]


SUMMARY = columns(
    "which: which pairs of layers; count; cosine_mean: mean cosine .4; cosine_median: median cosine .4; "
    "cosine_sd: sd of cosine .4; null_mean: mean cosine if independent .4; pearson_mean: mean Pearson .4; "
    "pearson_median: median Pearson .4; pearson_sd: sd of Pearson .4"
)


def _spread(values: FloatArray) -> tuple[float, float, float]:
    kept = values[np.isfinite(values)]
    return finite_mean(kept), finite_median(kept), float(kept.std()) if kept.size else math.nan


def layer_grid(run: StudyRun, a: str, b: str, role: Role) -> LayerGrid:
    """Compare all layers of two models; `Missing` if their widths differ."""
    (rows, left), (others, right) = layer_stack(run, a, role), layer_stack(run, b, role)
    require_same_shape(a, left, b, right)
    return LayerGrid(rows, others, row_grid(left, right), 1.0 / math.sqrt(left.shape[1] - 1))


def all_layers(run: StudyRun) -> Section:
    """Compare every layer of the first model with every layer of the second (figure 2)."""
    section = Section()
    a, b = model_pairs(run)[0]
    for role in vector_roles(run, (INPUT,), section.missing):
        attempt(section.missing, partial(_one_matrix, run, section, a, b, role), sides(a, b))
    return section


def _one_matrix(run: StudyRun, section: Section, a: str, b: str, role: Role) -> None:
    grid = layer_grid(run, a, b, role)
    named = {"a": a, "b": b, "role": role.value}
    name = f"layers_{role.value}_{a}_{b}"
    title = Text("Same layer and different layers of {a} and {b}, {role}", **named)
    section.add_table(f"{name}_summary", title, SUMMARY, grid.summary())
    shown = ("cosine", "cosine_null_mean", "cosine_null_sd", "pearson", "z", "log10_p")
    section.add_table(
        name,
        Text("Every layer of {a} against every layer of {b}, {role}", **named),
        (*columns("layer_a: layer of A; layer_b: layer of B"), *BY_LAYER[1:5], *BY_LAYER[6:]),
        [
            (p, q, *(float(getattr(grid.found, key)[i, k]) for key in shown))
            for i, p in enumerate(grid.rows)
            for k, q in enumerate(grid.columns)
        ],
        shown=5,
    )
    caption = Text(
        "Every layer of {a} against every layer of {b}, {role}: raw cosine, the cosine that means and spreads alone "
        "predict, and Pearson (null sd {sd:.4f}; the marks on its bar enclose 95 % of independent pairs). Dots: the same "
        "layer.",
        sd=grid.null_sd,
        **named,
    )
    section.add_picture(name, caption, "bias.figures.layer_matrices", grid, (a, b), f"{a} and {b}, {role.value}")
    section.notes.append(
        Text(
            "{a} has {p} layers and {b} has {q}; a layer that only predicts further tokens is not one of them. Means, "
            "medians and spreads of the same and of different layers are over the {count} layers that both have.",
            a=a,
            b=b,
            p=run.depth(a),
            q=run.depth(b),
            count=len(set(grid.rows) & set(grid.columns)),
        )
    )


ONE_PERMUTATION = Text(
    "The mean over layers is tested under one permutation of the residual stream that serves all layers: layers of one "
    "model resemble each other, and as independent trials they would be counted several times over. The column of "
    "independent layers says how many such trials have the spread that was found."
)
ASSUMED = Text(
    "How layers of one model correlate is published for three layers of three models and assumed for the others in "
    "replicas; the null sd of the mean, and so its z, rest on it."
)
JOINT = columns(
    "joint_sd: null sd of the mean .4; effective: independent layers it is worth .1; z: z of the mean .2; "
    "log10_p: log10 p .2"
)


def joint_cells(run: StudyRun, pair: LayerPair) -> tuple[Cell, ...]:
    """Return the test of a pair's mean over layers, as the columns `JOINT` say."""
    null = pair.joint(run.request.seed)
    return null.sd, effective_layers(null), null.z, null.log10_p


def joint_notes(run: StudyRun) -> list[Text]:
    """Return what a reader has to know about the test of a mean over layers."""
    return [ONE_PERMUTATION, ASSUMED] if run.request.replicas else [ONE_PERMUTATION]


def all_pairs_of_models(run: StudyRun) -> Section:
    """Show the Pearson matrices of all pairs of models, and test each pair's diagonal as a whole (figure 5)."""
    section = Section(notes=joint_notes(run))
    for role in vector_roles(run, (INPUT,), section.missing):
        _one_gallery(run, section, role)
    add_checks(run, section, "fig5")
    return section


def _one_gallery(run: StudyRun, section: Section, role: Role) -> None:
    panels: list[tuple[tuple[str, str], LayerGrid, float]] = []
    rows: list[tuple[Cell, ...]] = []

    def add(pair: LayerPair) -> None:
        row = (pair.a, pair.b, len(pair.layers), pair.mean_pearson, finite_median(pair.pearson), pair.pearson_sd)
        rows.append((*row, *joint_cells(run, pair)))
        panels.append(((pair.a, pair.b), layer_grid(run, pair.a, pair.b, role), pair.mean_pearson))

    for pair in compared_pairs(run, role, section.missing):
        attempt(section.missing, partial(add, pair), sides(pair.a, pair.b))
    if not panels:
        return
    section.add_table(
        f"diagonals_{role.value}",
        Text("Pearson of the same layer, all pairs of models, {role}: one test for all layers", role=role.value),
        (
            *columns("a: A; b: B; layers; mean: mean Pearson .4; median: median Pearson .4"),
            *columns("null_sd: null sd of one layer .4"),
            *JOINT,
        ),
        rows,
    )
    caption = Text(
        "Pearson of every layer (rows) of one model with every layer (columns) of another, {role}. The pairs share one "
        "scale around zero, with marks that enclose 95 % of independent pairs (null sd {sd}); a pair with a mean above "
        "{limit} has the scale written at its own bar.",
        role=role.value,
        sd=", ".join(dict.fromkeys(f"{grid.null_sd:.4f}" for _, grid, _ in panels)),
        limit=RELATED,
    )
    section.add_picture(f"gallery_{role.value}", caption, "bias.figures.pearson_gallery", panels)
