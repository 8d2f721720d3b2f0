"""Measure norms and attention matrices by seven metrics: model against model, mixed layers, and layers within a model."""

import itertools
import math
from functools import partial

import numpy as np

from kinprint.arch import Role
from kinprint.metrics.distance import MAX_CV
from kinprint.studies.metrics.layer_zero import layer_zero, zero_wants
from kinprint.studies.metrics.plan import MeasuredPairs, ModelLayer, measured, wants
from kinprint.studies.metrics.tensor_pairs import BLIND, DRAWN_ROWS, SMALL, TRUSTED_Z
from kinprint.studies.opened import StudyRun
from kinprint.studies.outcome import Cell, Section, columns
from kinprint.studies.published import claims, published_checks
from kinprint.studies.recipe import Part, Study
from kinprint.text import Text

_WHERE = columns("role; model_a: model A; layer_a; model_b: model B; layer_b")
_NULL = columns("null_mean: null mean; null_sd: null sd .2e; z .1; log10_p")
_COLUMNS = {
    "cosine": columns("cosine .5") + _NULL,
    "centred": columns("centred: cosine of the centred values .5; pearson .5; difference: their difference .1e")
    + _NULL,
    "mean_abs_diff": columns("mean_abs_diff: mean absolute difference; drawn: on the rows drawn") + _NULL,
    "p99_abs_diff": columns(
        "q99_a: 99th percentile A; q99_b: 99th percentile B; p99_abs_diff: their difference; "
        "step: step of the stored format there .2e"
    ),
    "rel_l2": columns(
        "rel_l2_a: divided by ‖A‖ (as published) .4; rel_l2_b: divided by ‖B‖ .4; rel_l2: divided by the common norm .4"
    )
    + _NULL,
    "cv_diff": columns(
        "cv_a: CV of A; cv_b: CV of B; cv_diff: their difference; relative: difference over their mean .3; "
        "meaningful: mean far from zero"
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
_FIGURES = _NAMES | {
    "rel_l2_a": Text("L2 distance divided by the norm of the row's tensor"),
    "rel_l2": Text("L2 distance divided by the common norm"),
}
_ARRANGED = {
    "same_layer": Text("same layer of different models"),
    "mixed": Text("different layers of different models"),
    "within": Text("layers within a model"),
}
_ROWS = {"same_layer": Text("layer"), "mixed": Text("choice of layers"), "within": Text("model")}
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


def _tensors(run: StudyRun) -> Section:
    """List the compared tensors, and those that could not be compared."""
    found = measured(run)
    section = Section(notes=[*found.notes, _MATRIX_NULL], missing=list(found.missing))
    rows = [
        (role.value, *at, "×".join(map(str, one.shape)), one.dtype, one.mean, one.sd, one.cv, one.norm, one.q99)
        for (role, at), one in found.statistics.items()
    ]
    if rows:
        head = columns(
            "role; model; layer; shape; format; mean; sd: standard deviation; cv: coefficient of variation; norm; "
            "q99: 99th percentile of |values|"
        )
        section.add_table("tensors", Text("Tensors and their statistics (population)"), head, rows)
    # the original loads models without their output head; Phi's count has it all the same
    counts = {f"parameters {name}": _parameters(run, name, head=name == "Phi") / 1e9 for name in run.names}
    section.checks += published_checks(run, section, claims("metrics")["tensors"], counts)
    return section


def _parameters(run: StudyRun, name: str, *, head: bool) -> int:
    model = run.model(name)
    left_out = {item.name for item in model.naming.excluded}
    if not head:
        left_out |= {part.name for part in model.naming.tensors if part.role is Role.HEAD}
    shapes = model.checkpoint.tensors.shapes()
    return sum(math.prod(shape) for stored, shape in shapes.items() if stored not in left_out)


def _measure_part(run: StudyRun, measure: str) -> Section:
    """Return tables and matrices of one measure in the three arrangements."""
    found, section = measured(run), Section(notes=[_DEFINITIONS[measure]])
    for arrangement, groups in found.arrangements.items():
        pairs = dict.fromkeys(pair for group in groups for pair in group.pairs)
        rows = [
            (role.value, *a, *b, *_cells(found, measure, role, a, b))
            for role, (a, b) in itertools.product(found.roles, pairs)
            if (role, a, b) in found.pairs
        ]
        if rows:
            title = Text("{measure}: {arrangement}", measure=_NAMES[measure], arrangement=_ARRANGED[arrangement])
            section.add_table(f"{measure}_{arrangement}", title, (*_WHERE, *_COLUMNS[measure]), rows)
            for name in ("rel_l2_a", "rel_l2") if measure == "rel_l2" else (measure,):
                _add_picture(section, found, name, arrangement)
    section.checks += published_checks(run, section, claims("metrics")["pairs"])
    if measure == "rel_l2":
        section.checks += published_checks(run, section, claims("metrics")["rel_l2"], _lengths(found))
    if measure == "mean_abs_diff":
        section.notes += _closer_notes(run, found) + [_REPLICA_GAPS] * run.request.replicas
    return section


def _cells(found: MeasuredPairs, measure: str, role: Role, a: ModelLayer, b: ModelLayer) -> tuple[Cell, ...]:
    pair = found.pairs[role, a, b]
    value, left, right = pair[measure], found.statistics[role, a], found.statistics[role, b]
    null = (value.null_mean, value.null_sd, value.z, value.log10_p)
    if measure == "centred":
        pearson = pair["pearson"].value
        return (value.value, pearson, abs(value.value - pearson), *null)
    if measure == "mean_abs_diff":
        return (value.value, value.value if value.drawn is None else value.drawn, *null)
    if measure == "p99_abs_diff":
        steps = [side.q99_step for side in (left, right) if side.q99_step is not None]
        return (left.q99, right.q99, value.value, max(steps, default=None))
    if measure == "rel_l2":
        of_a = pair["rel_l2_a"].value
        return (of_a, of_a * (left.norm / right.norm), value.value, *null)
    if measure == "cv_diff":
        meaningful = Text("yes") if left.meaningful_cv and right.meaningful_cv else Text("no: no meaning")
        relative = value.value / (0.5 * (left.cv + right.cv)) if left.cv + right.cv else None
        return (left.cv, right.cv, value.value, relative, meaningful)
    return (value.value, *null)


def _add_picture(section: Section, found: MeasuredPairs, measure: str, arrangement: str) -> None:
    roles = [role for role in found.roles if any(key[0] is role for key in found.pairs)]
    rows = [[found.grid(role, group, measure) for role in roles] for group in found.arrangements[arrangement]]
    rows = [row for row in rows if any(np.isfinite(grid.values).any() for grid in row)]
    cells = Text("Small print: mean ± sd of the permutation null.")
    if measure in BLIND:
        cells = Text("The measure cannot see order, so it has no permutation null.")
    shown, arranged, of = _FIGURES[measure], _ARRANGED[arrangement], _ROWS[arrangement]
    arguments = (rows, measure, f"{shown}: {arranged}")
    section.add_picture(
        f"{measure}_{arrangement}",
        "metrics.matrices",
        *arguments,
        measure=shown,
        arrangement=arranged,
        of=of,
        cells=cells,
    )


def _lengths(found: MeasuredPairs) -> dict[str, float | None]:
    """Return norms of tensors, and distances of pairs at the same layer, by name."""
    values: dict[str, float | None] = {
        f"norm {name} {role.value} {layer}": one.norm for (role, (name, layer)), one in found.statistics.items()
    }
    for (role, a, b), pair in found.pairs.items():
        if a[1] == b[1]:
            length = pair["rel_l2_a"].value * found.statistics[role, a].norm
            values |= {f"l2 {x} {y} {role.value} {a[1]}": length for x, y in ((a[0], b[0]), (b[0], a[0]))}
    return values


def _closer_notes(run: StudyRun, found: MeasuredPairs) -> list[Text]:
    """Count how often GLM is nearer to Phi than to Solar, which the original says without exception."""
    layers = sorted({layer for _, (_, layer) in found.statistics})
    norms = [role for role in found.roles if role.info.kind == "norm"]
    seen = []
    for role, layer in itertools.product(norms, layers):
        phi, solar = (found.get(role, ("GLM", layer), (name, layer), "mean_abs_diff") for name in ("Phi", "Solar"))
        if phi is not None and solar is not None:
            seen.append((phi.value < solar.value, f"{role.value} {layer}"))
    if not seen or not run.original("Solar", "GLM", "Phi"):
        return []
    against = ", ".join(where for nearer, where in seen if not nearer)
    but = Text(" (not in: {where})", where=against) if against else ""
    said = "The original says that GLM differs less from Phi than from Solar. In norms that holds in {yes} of {all} cases{but}."
    return [Text(said, yes=sum(nearer for nearer, _ in seen), all=len(seen), but=but)]


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
    wants=lambda run: itertools.chain(wants(run), zero_wants(run)),
    parts=(
        Part("tensors", Text("What is compared"), _tensors),
        *(Part(name, title, partial(_measure_part, measure=name)) for name, title in _NAMES.items()),
        Part("layer_zero", Text("Layer 0 against later layers of the same model"), layer_zero),
    ),
    replica_parts=("norms", "attention"),
)
