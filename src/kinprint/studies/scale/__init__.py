"""The scale of norm weights by depth, taken apart into a common scale and a pattern, and what storage keeps of the pattern."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.arch import Role
from kinprint.metrics import METRICS
from kinprint.stats import null_for
from kinprint.studies.opened import Stage, attempt
from kinprint.studies.outcome import Cell, Check, Missing, Section, column, picture, table
from kinprint.studies.published import layerwise, published
from kinprint.studies.recipe import Part, Study
from kinprint.studies.scale.storage import norm_stack, norm_wants, roles_of
from kinprint.studies.scale.storage import storage as storage_part
from kinprint.text import Text

_CATEGORY = {Role.INPUT_NORM: "norm_pre", Role.POST_ATTENTION_NORM: "norm_post"}


@dataclass(frozen=True)
class Depth:
    """One model's norm weights of one role by layer."""

    model: str
    role: Role
    width: int
    layers: tuple[int, ...]
    norm: FloatArray
    mean: FloatArray
    sd: FloatArray


def _depths(stage: Stage, missing: list[Text]) -> list[Depth]:
    found: list[Depth] = []

    def add(name: str, role: Role) -> None:
        layers, rows = norm_stack(stage, name, role)
        mean, sd = rows.mean(axis=1), rows.std(axis=1)
        found.append(Depth(name, role, rows.shape[1], layers, np.linalg.norm(rows, axis=1), mean, sd))

    for role, name in itertools.product(roles_of(stage), stage.names):
        attempt(missing, partial(add, name, role))
    return found


# -- scale by depth -----------------------------------------------------------------------------------------------------


def _by_depth(stage: Stage) -> Section:
    section = Section(
        notes=[
            Text(
                "‖γ‖² = d·mean² + d·variance: the first term is the common scale, the second the pattern, the part that differs "
                "between dimensions. √d would be the norm of a weight of ones."
            )
        ]
    )
    depths = _depths(stage, section.missing)
    columns = (
        *(column(key, key) for key in ("model", "role", "layer")),
        column("norm", "‖γ‖", 3),
        column("relative", "‖γ‖/√d", 4),
        column("mean", "mean (common scale)", 4),
        column("sd", "sd (pattern)", 4),
        column("cv", "pattern over scale", 4),
        column("share", "pattern's share of ‖γ‖²", 5),
    )
    rows = [
        (d.model, d.role.value, layer, *(float(x) for x in numbers))
        for d in depths
        for layer, *numbers in zip(
            d.layers,
            d.norm,
            d.norm / math.sqrt(d.width),
            d.mean,
            d.sd,
            d.sd / np.maximum(np.abs(d.mean), 1e-300),
            d.width * d.sd**2 / np.maximum(d.norm**2, 1e-300),
            strict=True,
        )
    ]
    if rows:
        section.tables.append(table("by_depth", Text("Scale and pattern by layer"), columns, rows, shown=24))
        norms = Text("‖γ‖ by layer, on a logarithmic scale. Dashed: √d, the norm of a weight of ones.")
        parts = Text(
            "‖γ‖/√d taken apart: mean (common scale, above) and standard deviation (pattern, below), by layer."
        )
        section.pictures.append(picture("norm_by_depth", norms, "scale.figures.norms", depths))
        section.pictures.append(picture("scale_and_pattern", parts, "scale.figures.split", depths))
    section.checks += _norm_checks(stage, depths)
    return section


RECOMPUTED = Text("recomputed from the published means and standard deviations")
PEAK = Text("the published means and standard deviations give 148.7 at the peak")
NOT_ONE = Text("the text says that GLM's weights lie about 1.0; its own plot rises from 0.01 to 0.91")


def _norm_checks(stage: Stage, depths: list[Depth]) -> list[Check]:
    checks: list[Check] = []
    for d in depths:
        category = _CATEGORY.get(d.role)
        if d.model not in ("Solar", "GLM") or category is None or not stage.original(d.model):
            continue
        known = published()["recomputed_checks"][category][f"{d.model.lower()}_norm_L0_L45_max"]
        at = {layer: float(norm) for layer, norm in zip(d.layers, d.norm, strict=True)}
        measured_layers = sorted(layerwise(category))
        greatest = max(at[layer] for layer in measured_layers) if set(measured_layers) <= set(at) else None
        named = {"model": d.model, "role": d.role.value}
        for what, value, measured in zip(
            (
                Text("‖γ‖ of layer 0, {model}, {role}", **named),
                Text("‖γ‖ of layer 45, {model}, {role}", **named),
                Text("greatest ‖γ‖ of layers 0 to 45, {model}, {role}", **named),
            ),
            known,
            (at.get(0), at.get(45), greatest),
            strict=True,
        ):
            checks.append(Check(what, value, measured, 2, "derived", RECOMPUTED))
        if d.model == "Solar":
            stated = {"norm_pre": 2.80, "norm_post": 10.17}[category]
            said = Text("‖γ‖ of layer 0, {model}, {role}, in the text", **named)
            checks.append(Check(said, stated, at.get(0), 2, trust="text"))
        checks += _mean_checks(d, category)
        if (d.model, category) == ("GLM", "norm_post"):
            checks.append(Check(Text("greatest ‖γ‖ of all, in the text"), 140, greatest, 0, trust="wrong", reason=PEAK))
        if (d.model, category) == ("GLM", "norm_pre"):
            middle = float(np.median(d.mean))
            stated_mean = Text("typical mean of GLM's input norm, in the text")
            checks.append(Check(stated_mean, 1.0, middle, 1, trust="wrong", reason=NOT_ONE))
    return checks


def _mean_checks(d: Depth, category: str) -> list[Check]:
    """Return least and greatest mean over the layers whose means are published."""
    rows = layerwise(category)
    key = {"Solar": "A_mean", "GLM": "B_mean"}[d.model]
    values = [row[key] for row in rows.values()]
    measured = [float(mean) for layer, mean in zip(d.layers, d.mean, strict=True) if layer in rows]
    if len(measured) != len(values):
        return []
    named = {"model": d.model, "role": d.role.value}
    return [
        Check(Text("least mean of a layer, {model}, {role}", **named), min(values), min(measured)),
        Check(Text("greatest mean of a layer, {model}, {role}", **named), max(values), max(measured)),
    ]


# -- growth ---------------------------------------------------------------------------------------------------------------

FEWEST = 4  # layers for a rank correlation to have a null worth the name


def _growth(stage: Stage) -> Section:
    section = Section(
        notes=[
            Text(
                "Slope: least squares of ‖γ‖ on the layer number. Spearman: rank correlation of ‖γ‖ with depth; its null takes "
                "the layers as exchangeable, but neighbouring layers are alike (see the correlation of neighbours), so that z "
                "and p describe a trend and overstate its evidence."
            )
        ]
    )
    rows: list[tuple[Cell, ...]] = []
    for depth in _depths(stage, section.missing):
        attempt(section.missing, partial(_grow, depth, stage.request.seed, rows))
    if rows:
        columns = (
            *(column(key, key) for key in ("model", "role", "layers")),
            column("first", "‖γ‖, first layer", 2),
            column("last", "‖γ‖, last layer", 2),
            column("greatest", "greatest", 2),
            column("at", "at layer"),
            column("slope", "slope per layer", 3),
            column("spearman", "Spearman with depth", 3),
            column("null_mean", "null mean", 3),
            column("null_sd", "null sd", 3),
            column("z", "z", 1),
            column("log10_p", "log10 p", 1),
            column("neighbours", "correlation of neighbours", 3),
        )
        section.tables.append(table("growth", Text("Growth of ‖γ‖ with depth"), columns, rows))
        caption = Text("Rank correlation of ‖γ‖ with depth. Grey: 95 % of orders of the layers.")
        section.pictures.append(picture("growth", caption, "scale.figures.growth", rows))
    return section


def _grow(d: Depth, seed: int, rows: list[tuple[Cell, ...]]) -> None:
    if len(d.layers) < FEWEST:
        raise Missing(
            Text(
                "growth of {role} in {model}: {count} layers are too few",
                role=d.role.value,
                model=d.model,
                count=len(d.layers),
            )
        )
    if float(np.ptp(d.norm)) == 0.0:
        raise Missing(
            Text("growth of {role} in {model}: ‖γ‖ is the same in all layers", role=d.role.value, model=d.model)
        )
    depth, spearman = np.array(d.layers, dtype=np.float64), METRICS["spearman"]
    rho = spearman(depth, d.norm)
    null = null_for(spearman.null, depth, d.norm, observed=rho, higher_is_closer=True, rng_seed=seed)
    slope = float(np.polyfit(depth, d.norm, 1)[0])
    rest = d.norm - d.norm.mean()
    neighbours = float(rest[1:] @ rest[:-1] / (rest @ rest))
    peak = int(d.norm.argmax())
    numbers = (float(d.norm[0]), float(d.norm[-1]), float(d.norm[peak]), d.layers[peak], slope, rho)
    found = (null.mean, null.sd, null.z, null.log10_p, neighbours)
    rows.append((d.model, d.role.value, len(d.layers), *numbers, *found))


STUDY = Study(
    name="scale",
    title=Text("Scale of norm weights, and what low precision keeps of their pattern"),
    summary=Text(
        "The norm of γ by depth against √d, taken apart into a common scale and a pattern; its growth with depth; and what "
        "storing γ, γ − 1, or scale and pattern apart in BF16, F16, FP8 E4M3 and FP8 E5M2 keeps of the pattern."
    ),
    source=Text(
        "the remark on scale in the README of sionic-ai/solar-vs-glm, and its open question about low precision"
    ),
    models=("Solar", "GLM", "INTELLECT", "Phi"),
    wants=norm_wants,
    parts=(
        Part("by_depth", Text("Scale by depth"), _by_depth),
        Part("growth", Text("Growth with depth"), _growth),
        Part("storage", Text("What storage keeps of the pattern"), storage_part),
    ),
)
