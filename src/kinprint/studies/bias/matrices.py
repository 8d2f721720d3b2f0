"""All layers against all layers in the bias study: one pair (figure 2) and all pairs of models (figure 5)."""

from __future__ import annotations

from functools import partial

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.arch import Role
from kinprint.stats import AllPairs, all_pairs
from kinprint.studies.bias.checks import diagonal_checks
from kinprint.studies.bias.facts import (
    INPUT,
    RELATED,
    effective_layers,
    finite_mean,
    finite_median,
    finite_sd,
    layer_stack,
    model_pairs,
    pair_facts,
    published_case,
    vector_roles,
)
from kinprint.studies.bias.pairs import BY_LAYER
from kinprint.studies.opened import Stage, attempt, require_same_shape, sides
from kinprint.studies.outcome import Cell, Section, column, picture, table
from kinprint.text import Text, Value

# -- figure 2 ----------------------------------------------------------------------------------------------------------


def all_layers(stage: Stage) -> Section:
    """Compare every layer of the first model with every layer of the second."""
    section = Section()
    a, b = model_pairs(stage)[0]
    for role in vector_roles(stage, (INPUT,), section.missing):
        attempt(section.missing, partial(_one_matrix, stage, section, a, b, role), sides(a, b))
    return section


def _one_matrix(stage: Stage, section: Section, a: str, b: str, role: Role) -> None:
    rows, left = layer_stack(stage, a, role)
    columns, right = layer_stack(stage, b, role)
    require_same_shape(a, left, b, right)
    found = all_pairs(left, right)
    null_sd = float(1.0 / np.sqrt(left.shape[1] - 1))
    named: dict[str, Value] = {"a": a, "b": b, "role": role.value}
    name = f"layers_{role.value}_{a}_{b}"
    section.tables.append(
        table(
            f"{name}_summary",
            Text("Same layer and different layers of {a} and {b}, {role}", **named),
            SUMMARY_COLUMNS,
            summary_rows(rows, columns, found),
        )
    )
    section.tables.append(
        table(
            name,
            Text("Every layer of {a} against every layer of {b}, {role}", **named),
            (column("layer_a", "layer of A"), column("layer_b", "layer of B"), *BY_LAYER[1:5], *BY_LAYER[6:]),
            [
                (p, q, *(float(m[i, k]) for m in _shown(found)))
                for i, p in enumerate(rows)
                for k, q in enumerate(columns)
            ],
            shown=5,
        )
    )
    caption = Text(
        "Every layer of {a} against every layer of {b}, {role}: raw cosine, the cosine that means and spreads alone "
        "predict, and Pearson (null sd {sd}; the marks on its bar enclose 95 % of independent pairs). Dots: the same "
        "layer.",
        sd=f"{null_sd:.4f}",
        **named,
    )
    title = f"{a} and {b}, {role.value}"
    section.pictures.append(
        picture(name, caption, "bias.figures.layer_matrices", rows, columns, found, null_sd, (a, b), title)
    )
    section.notes.append(
        Text(
            "{a} has {p} layers and {b} has {q}; a layer that only predicts further tokens is not one of them. Means, "
            "medians and spreads of the same and of different layers are over the {count} layers that both have.",
            a=a,
            b=b,
            p=stage.depth(a),
            q=stage.depth(b),
            count=len(set(rows) & set(columns)),
        )
    )


def _shown(found: AllPairs) -> tuple[FloatArray, ...]:
    return (found.cosine, found.cosine_null_mean, found.cosine_null_sd, found.pearson, found.z, found.log10_p)


SUMMARY_COLUMNS = (
    column("which", "which pairs of layers"),
    column("count", "count"),
    column("cosine_mean", "mean cosine", 4),
    column("cosine_median", "median cosine", 4),
    column("cosine_sd", "sd of cosine", 4),
    column("null_mean", "mean cosine if independent", 4),
    column("pearson_mean", "mean Pearson", 4),
    column("pearson_median", "median Pearson", 4),
    column("pearson_sd", "sd of Pearson", 4),
)


def split_matrix(rows: tuple[int, ...], columns: tuple[int, ...], matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the values of the same layer and those of different layers, both over the layers that both models have."""
    shared = sorted(set(rows) & set(columns))
    square = matrix[np.ix_([rows.index(x) for x in shared], [columns.index(x) for x in shared])]
    same = np.eye(len(shared), dtype=bool)
    return square[same], square[~same]


def summary_rows(rows: tuple[int, ...], columns: tuple[int, ...], found: AllPairs) -> list[tuple[Cell, ...]]:
    """Return mean, median and spread of the same layer, and of different layers."""
    cosine, null, pearson = (
        split_matrix(rows, columns, m) for m in (found.cosine, found.cosine_null_mean, found.pearson)
    )
    return [
        (
            label,
            int(cosine[k].size),
            finite_mean(cosine[k]),
            finite_median(cosine[k]),
            finite_sd(cosine[k]),
            finite_mean(null[k]),
            finite_mean(pearson[k]),
            finite_median(pearson[k]),
            finite_sd(pearson[k]),
        )
        for k, label in enumerate((Text("same layer"), Text("different layers")))
    ]


# -- figure 5 ----------------------------------------------------------------------------------------------------------


ONE_PERMUTATION = Text(
    "The mean over layers is tested under one permutation of the residual stream that serves all layers: layers of one "
    "model resemble each other, and as independent trials they would be counted several times over. The column of "
    "independent layers says how many such trials have the spread that was found."
)
ASSUMED = Text(
    "How layers of one model correlate is published for three layers of three models and assumed for the others in "
    "replicas; the null sd of the mean, and so its z, rest on it."
)


def joint_notes(stage: Stage) -> list[Text]:
    """Return what a reader has to know about the test of a mean over layers."""
    return [ONE_PERMUTATION, ASSUMED] if stage.request.replicas else [ONE_PERMUTATION]


def all_pairs_of_models(stage: Stage) -> Section:
    """Show the Pearson matrices of all pairs of models, and test each pair's diagonal as a whole."""
    section = Section(notes=joint_notes(stage))
    for role in vector_roles(stage, (INPUT,), section.missing):
        _one_gallery(stage, section, role)
    return section


def _one_gallery(stage: Stage, section: Section, role: Role) -> None:
    panels: list[tuple[tuple[str, str], tuple[int, ...], tuple[int, ...], FloatArray, float, float]] = []
    rows: list[tuple[Cell, ...]] = []

    def add(a: str, b: str) -> None:
        facts = pair_facts(stage, a, b, role)
        (own, left), (other, right) = layer_stack(stage, a, role), layer_stack(stage, b, role)
        null = facts.joint(stage.request.seed)
        panels.append(((a, b), own, other, all_pairs(left, right).pearson, facts.mean_pearson, facts.null_sd))
        rows.append(
            (
                a,
                b,
                len(facts.layers),
                facts.mean_pearson,
                finite_median(facts.pearson),
                facts.null_sd,
                null.sd,
                effective_layers(null),
                null.z,
                null.log10_p,
            )
        )
        if published_case(stage, role, a, b):
            section.checks.extend(diagonal_checks(facts))

    for a, b in model_pairs(stage):
        attempt(section.missing, partial(add, a, b), sides(a, b))
    if not panels:
        return
    section.tables.append(
        table(
            f"diagonals_{role.value}",
            Text("Pearson of the same layer, all pairs of models, {role}: one test for all layers", role=role.value),
            (
                column("a", "A"),
                column("b", "B"),
                column("layers", "layers"),
                column("mean", "mean Pearson", 4),
                column("median", "median Pearson", 4),
                column("null_sd", "null sd of one layer", 4),
                column("joint_sd", "null sd of the mean", 4),
                column("effective", "independent layers it is worth", 1),
                column("z", "z of the mean", 2),
                column("log10_p", "log10 p", 2),
            ),
            rows,
        )
    )
    caption = Text(
        "Pearson of every layer (rows) of one model with every layer (columns) of another, {role}. The pairs share one "
        "scale around zero, with marks that enclose 95 % of independent pairs (null sd {sd}); a pair with a mean above "
        "{limit} has the scale written at its own bar.",
        role=role.value,
        sd=", ".join(dict.fromkeys(f"{panel[5]:.4f}" for panel in panels)),
        limit=RELATED,
    )
    section.pictures.append(picture(f"gallery_{role.value}", caption, "bias.figures.pearson_gallery", panels))
