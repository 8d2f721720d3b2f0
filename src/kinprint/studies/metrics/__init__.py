"""Seven metrics on norms and attention matrices: model against model, mixed layers, and layers within a model."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from functools import partial

import numpy as np

from kinprint.arch import Role
from kinprint.metrics.distance import MAX_CV
from kinprint.studies.metrics.checks import denominator_checks, measure_checks, size_checks
from kinprint.studies.metrics.pairs import BLIND, DRAWN_ROWS, SMALL, TRUSTED_Z, Measured
from kinprint.studies.metrics.plan import Measurements, Spot, measured, wants
from kinprint.studies.metrics.zero import layer_zero, zero_wants
from kinprint.studies.opened import Stage, Want
from kinprint.studies.outcome import Cell, Column, Picture, Section, Table, column, picture, table
from kinprint.studies.recipe import Part, Study
from kinprint.text import Text

_WHERE = (
    column("role", "role"),
    column("model_a", "model A"),
    column("layer_a", "layer A"),
    column("model_b", "model B"),
    column("layer_b", "layer B"),
)
_NULL = (
    column("null_mean", "null mean"),
    column("null_sd", "null sd", 2, scientific=True),
    column("z", "z", 1),
    column("log10_p", "log10 p", 2),
)
_COLUMNS: dict[str, tuple[Column, ...]] = {
    "cosine": (column("cosine", "cosine", 5), *_NULL),
    "centred": (
        column("centred", "cosine of the centred values", 5),
        column("pearson", "Pearson", 5),
        column("difference", "their difference", 1, scientific=True),
        *_NULL,
    ),
    "mean_abs_diff": (
        column("mean_abs_diff", "mean absolute difference"),
        column("drawn", "on the rows drawn"),
        *_NULL,
    ),
    "p99_abs_diff": (
        column("q99_a", "99th percentile A"),
        column("q99_b", "99th percentile B"),
        column("p99_abs_diff", "their difference"),
        column("step", "step of the stored format there", 2, scientific=True),
    ),
    "rel_l2": (
        column("rel_l2_a", "divided by ‖A‖ (as published)", 4),
        column("rel_l2_b", "divided by ‖B‖", 4),
        column("rel_l2", "divided by the common norm", 4),
        *_NULL,
    ),
    "cv_diff": (
        column("cv_a", "CV of A"),
        column("cv_b", "CV of B"),
        column("cv_diff", "their difference"),
        column("relative", "difference over their mean", 3),
        column("meaningful", "mean far from zero"),
    ),
}
_NAMES = {
    "cosine": Text("Cosine"),
    "centred": Text("Centred cosine, which is Pearson's correlation"),
    "mean_abs_diff": Text("Mean absolute difference"),
    "p99_abs_diff": Text("Difference of the 99th percentiles"),
    "rel_l2": Text("Relative L2 distance"),
    "cv_diff": Text("Difference of the coefficients of variation"),
}
_ARRANGED = {
    "same_layer": Text("same layer of different models"),
    "mixed": Text("different layers of different models"),
    "within": Text("layers within a model"),
}
_DEFINITIONS = {
    "cosine": Text(
        "a·b/(‖a‖‖b‖) of all elements. Two vectors of positive numbers are near 1 whatever their origin: read it beside its null."
    ),
    "centred": Text(
        "The cosine of a − ā and b − b̄, and Pearson's correlation as the mean product of standard scores. They are one and the "
        "same number; what differs is rounding."
    ),
    "mean_abs_diff": Text(
        "Mean of |a − b|. It rises with the difference of the two scales, so it says little about origin. For large matrices its "
        "null is drawn on {rows} evenly spaced rows.",
        rows=DRAWN_ROWS,
    ),
    "p99_abs_diff": Text(
        "|Q99(|a|) − Q99(|b|)|, linear interpolation. It cannot see the order of the elements, so no permutation null exists; "
        "stored formats are coarse there, which makes exact zeros cheap."
    ),
    "rel_l2": Text(
        "‖a − b‖ over a norm. The original divides by the norm of the first model and mirrors the result, which is another "
        "number: here both denominators are shown, and the common one, √((‖a‖² + ‖b‖²)/2), which gives √2 for orthogonal and 0 "
        "for equal sides. Null, z and p are those of the common one."
    ),
    "cv_diff": Text(
        "|σ/|mean| of A − σ/|mean| of B|. It cannot see order. Where a mean is near zero (CV above {most}), as in attention "
        "matrices, it shows an accident of the mean and has no meaning.",
        most=f"{MAX_CV:g}",
    ),
}
_MATRIX_NULL = Text(
    "Nulls permute one side along an axis that has no order of its own, in these roles mostly the residual dimensions (of "
    "matrices: all rows alike). z is positive towards similar for similarities, negative for distances; p is one-sided towards "
    "similar. For matrices of more than {small} elements the normal tail is used up to z = {z}; beyond, p is an upper bound.",
    small=f"{SMALL:,}",
    z=f"{TRUSTED_Z:g}",
)


_REPLICA_GAPS = Text(
    "In replicas the mean absolute difference is made to be the published one, whatever the shapes of the two distributions; its "
    "null, and with it z and p, is that of the replicas and is not constrained."
)


def _tensors(stage: Stage) -> Section:
    """List what is compared, and what could not be."""
    found = measured(stage)
    columns = (
        *(column(key, key) for key in ("role", "model", "layer", "shape", "format")),
        column("mean", "mean"),
        column("sd", "standard deviation"),
        column("cv", "coefficient of variation"),
        column("norm", "norm"),
        column("q99", "99th percentile of |values|"),
    )
    rows = [
        (
            role.value,
            name,
            layer,
            "×".join(str(n) for n in facts.shape),
            facts.dtype,
            facts.mean,
            facts.sd,
            facts.cv,
            facts.norm,
            facts.q99,
        )
        for (role, (name, layer)), facts in found.facts.items()
    ]
    listed = [table("tensors", Text("Tensors and their statistics (population)"), columns, rows)] if rows else []
    return Section(
        tables=listed, checks=size_checks(stage), notes=[*found.notes, _MATRIX_NULL], missing=list(found.missing)
    )


def _measure_part(stage: Stage, measure: str) -> Section:
    """Tables and matrices of one measure in the three arrangements."""
    found, section = measured(stage), Section(notes=[_DEFINITIONS[measure]])
    for arrangement, groups in found.arrangements.items():
        pairs = list(dict.fromkeys(pair for group in groups for pair in group.pairs))
        rows = [row for role in found.roles for a, b in pairs if (row := _row(found, measure, role, a, b)) is not None]
        if rows:
            section.tables.append(_table(measure, arrangement, rows))
            shown = ("rel_l2_a", "rel_l2") if measure == "rel_l2" else (measure,)
            section.pictures += [_picture(found, name, arrangement) for name in shown]
    for name in {"centred": ("centred", "pearson"), "rel_l2": ("rel_l2_a",)}.get(measure, (measure,)):
        section.checks += measure_checks(stage, found, name)
    if measure == "rel_l2":
        section.checks += denominator_checks(stage, found)
    if measure == "mean_abs_diff":
        section.notes += _closer_notes(stage, found)
        if stage.request.replicas:
            section.notes.append(_REPLICA_GAPS)
    return section


def _table(measure: str, arrangement: str, rows: list[tuple[Cell, ...]]) -> Table:
    title = Text("{measure}: {arrangement}", measure=_NAMES[measure], arrangement=_ARRANGED[arrangement])
    return table(f"{measure}_{arrangement}", title, (*_WHERE, *_COLUMNS[measure]), rows)


def _row(found: Measurements, measure: str, role: Role, a: Spot, b: Spot) -> tuple[Cell, ...] | None:
    value = found.get(role, a, b, measure)
    if value is None:
        return None
    return (role.value, *a, *b, *_cells(found, measure, role, a, b, value))


def _cells(found: Measurements, measure: str, role: Role, a: Spot, b: Spot, value: Measured) -> tuple[Cell, ...]:
    null = (value.null_mean, value.null_sd, value.z, value.log10_p)
    left, right = found.facts[role, a], found.facts[role, b]
    if measure == "centred":
        pearson = found.pairs[role, a, b]["pearson"].value
        return (value.value, pearson, abs(value.value - pearson), *null)
    if measure == "mean_abs_diff":
        return (value.value, value.value if value.drawn is None else value.drawn, *null)
    if measure == "p99_abs_diff":
        steps = [side.q99_step for side in (left, right) if side.q99_step is not None]
        return (left.q99, right.q99, value.value, max(steps, default=None))
    if measure == "rel_l2":
        of_a, of_b = (found.get(role, x, y, "rel_l2_a") for x, y in ((a, b), (b, a)))
        return (of_a.value if of_a else None, of_b.value if of_b else None, value.value, *null)
    if measure == "cv_diff":
        meaningful = left.meaningful_cv and right.meaningful_cv
        relative = value.value / (0.5 * (left.cv + right.cv)) if left.cv + right.cv else None
        return (left.cv, right.cv, value.value, relative, Text("yes") if meaningful else Text("no: no meaning"))
    return (value.value, *null)


def _picture(found: Measurements, measure: str, arrangement: str) -> Picture:
    groups = found.arrangements[arrangement]
    roles = [role for role in found.roles if any(key[0] is role for key in found.pairs)]
    rows = [[found.grid(role, group, measure) for role in roles] for group in groups]
    rows = [row for row in rows if any(np.isfinite(grid.values).any() for grid in row)]
    of = {"same_layer": Text("layer"), "mixed": Text("choice of layers"), "within": Text("model")}[arrangement]
    caption = Text(
        "{measure}, {arrangement}: one row for each {of}, one column for each role. {cells} "
        "Every panel has a colour scale of its own.",
        measure=_FIGURES[measure],
        arrangement=_ARRANGED[arrangement],
        of=of,
        cells=_CELLS[measure in BLIND],
    )
    title = f"{_FIGURES[measure].render()}: {_ARRANGED[arrangement].render()}"
    return picture(f"{measure}_{arrangement}", caption, "metrics.figures.matrices", rows, measure, title)


_FIGURES = {
    **{name: text for name, text in _NAMES.items() if name != "rel_l2"},
    "rel_l2_a": Text("L2 distance divided by the norm of the row's tensor"),
    "rel_l2": Text("L2 distance divided by the common norm"),
}
_CELLS = {
    False: Text("Small print: mean ± sd of the permutation null."),
    True: Text("The measure cannot see order, so it has no permutation null."),
}


def _closer_notes(stage: Stage, found: Measurements) -> list[Text]:
    """Count how often GLM is nearer to Phi than to Solar, which the original says without exception."""
    if not stage.original("Solar", "GLM", "Phi"):
        return []
    layers = sorted({layer for _, (_, layer) in found.facts})
    norms = [role for role in found.roles if role.info.kind == "norm"]
    seen = []
    for role, layer in itertools.product(norms, layers):
        phi, solar = (found.get(role, ("GLM", layer), (name, layer), "mean_abs_diff") for name in ("Phi", "Solar"))
        if phi is not None and solar is not None:
            seen.append((phi.value < solar.value, f"{role.value} {layer}"))
    if not seen:
        return []
    against = ", ".join(where for nearer, where in seen if not nearer)
    return [
        Text(
            "The original says that GLM differs less from Phi than from Solar. In norms that holds in {yes} of {all} cases{but}.",
            yes=sum(nearer for nearer, _ in seen),
            all=len(seen),
            but=Text(" (not in: {where})", where=against) if against else "",
        )
    ]


def _wants(stage: Stage) -> Iterable[Want]:
    return itertools.chain(wants(stage), zero_wants(stage))


STUDY = Study(
    name="metrics",
    title=Text("Seven metrics"),
    summary=Text(
        "Cosine, centred cosine, Pearson, mean absolute difference, difference of 99th percentiles, relative L2 and difference "
        "of the coefficients of variation, on norms and on key and value projections: model against model, mixed layers, and "
        "layers within a model, each beside its permutation null."
    ),
    source=Text("hyunwoongko/solar-vs-glm-vs-phi"),
    models=("Solar", "GLM", "Phi", "Qwen3-4B", "Qwen3-14B"),
    wants=_wants,
    parts=(
        Part("tensors", Text("What is compared"), _tensors),
        *(Part(name, title, partial(_measure_part, measure=name)) for name, title in _NAMES.items()),
        Part("layer_zero", Text("Layer 0 against later layers of the same model"), layer_zero),
    ),
    replica_parts=("norms", "attention"),
)
