"""Take norm weights apart into a common scale and a pattern, by depth, and measure what storage keeps of the pattern."""

import itertools
import math
from dataclasses import dataclass

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.arch import Role
from kinprint.metrics import METRICS
from kinprint.stats.nulls import null_for
from kinprint.studies.opened import StudyRun, each, vector_wants
from kinprint.studies.outcome import Cell, Missing, Section, columns
from kinprint.studies.published import claims, published_checks
from kinprint.studies.recipe import Part, Study
from kinprint.studies.scale.storage import ROLES, norm_stack, storage
from kinprint.text import Text


@dataclass(frozen=True)
class NormsByDepth:
    """One model's norm weights of one role by layer."""

    model: str
    role: Role
    width: int
    layers: tuple[int, ...]
    norm: FloatArray
    mean: FloatArray
    sd: FloatArray


def _depths(run: StudyRun, missing: list[Text]) -> list[NormsByDepth]:
    def one(asked: tuple[Role, str]) -> NormsByDepth:
        role, name = asked
        layers, rows = norm_stack(run, name, role)
        norm, mean, sd = np.linalg.norm(rows, axis=1), rows.mean(axis=1), rows.std(axis=1)
        return NormsByDepth(name, role, rows.shape[1], layers, norm, mean, sd)

    return each(missing, itertools.product(run.request.roles or ROLES, run.names), one)


def _by_depth(run: StudyRun) -> Section:
    section = Section()
    section.note(
        "‖γ‖² = d·mean² + d·variance: the first term is the common scale, the second the pattern, the part that differs "
        "between dimensions. √d would be the norm of a weight of ones."
    )
    depths = _depths(run, section.missing)
    rows: list[tuple[Cell, ...]] = []
    for d in depths:
        cv, share = d.sd / np.maximum(np.abs(d.mean), 1e-300), d.width * d.sd**2 / np.maximum(d.norm**2, 1e-300)
        numbers = zip(d.layers, d.norm, d.norm / math.sqrt(d.width), d.mean, d.sd, cv, share, strict=True)
        rows += [(d.model, d.role.value, *cells) for cells in numbers]
    if rows:
        head = columns(
            "model; role; layer; norm: ‖γ‖ .3; relative: ‖γ‖/√d .4; mean: mean (common scale) .4; sd: sd (pattern) .4; "
            "cv: pattern over scale .4; share: pattern's share of ‖γ‖² .5"
        )
        section.add_table("by_depth", Text("Scale and pattern by layer"), head, rows, shown=24)
        section.add_picture("norm_by_depth", "scale.norms", depths)
        section.add_picture("scale_and_pattern", "scale.split", depths)
    section.checks += published_checks(run, section, claims("scale")["by_depth"])
    return section


FEWEST = 4  # layers for a rank correlation to have a null worth the name


def _growth(run: StudyRun) -> Section:
    section = Section()
    section.note(
        "Slope: least squares of ‖γ‖ on the layer number. Spearman: rank correlation of ‖γ‖ with depth; its null takes "
        "the layers as exchangeable, but neighbouring layers are alike (see the correlation of neighbours), so that z "
        "and p describe a trend and overstate its evidence."
    )
    rows = each(section.missing, _depths(run, section.missing), lambda d: _grow(d, run.request.seed))
    if rows:
        head = columns(
            "model; role; layers; first: ‖γ‖, first layer .2; last: ‖γ‖, last layer .2; greatest .2; at: at layer; "
            "slope: slope per layer .3; spearman: Spearman with depth .3; null_mean: null mean .3; null_sd: null sd .3; z .1; "
            "log10_p .1; neighbours: correlation of neighbours .3"
        )
        section.add_table("growth", Text("Growth of ‖γ‖ with depth"), head, rows)
        section.add_picture("growth", "scale.growth", rows)
    return section


def _grow(d: NormsByDepth, seed: int) -> tuple[Cell, ...]:
    named = {"role": d.role.value, "model": d.model}
    if len(d.layers) < FEWEST:
        raise Missing("growth of {role} in {model}: {count} layers are too few", count=len(d.layers), **named)
    if float(np.ptp(d.norm)) == 0.0:
        raise Missing("growth of {role} in {model}: ‖γ‖ is the same in all layers", **named)
    depth, spearman = np.array(d.layers, dtype=np.float64), METRICS["spearman"]
    rho = spearman(depth, d.norm)
    null = null_for(spearman.null, depth, d.norm, observed=rho, higher_is_closer=True, rng_seed=seed)
    slope, rest, peak = float(np.polyfit(depth, d.norm, 1)[0]), d.norm - d.norm.mean(), int(d.norm.argmax())
    neighbours = float(rest[1:] @ rest[:-1] / (rest @ rest))
    numbers = (float(d.norm[0]), float(d.norm[-1]), float(d.norm[peak]), d.layers[peak], slope, rho)
    return (d.model, d.role.value, len(d.layers), *numbers, null.mean, null.sd, null.z, null.log10_p, neighbours)


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
    wants=lambda run: vector_wants(
        run, (role for role in run.request.roles or ROLES if role.info.kind == "norm"), run.request.layers
    ),
    parts=(
        Part("by_depth", Text("Scale by depth"), _by_depth),
        Part("growth", Text("Growth with depth"), _growth),
        Part("storage", Text("What storage keeps of the pattern"), storage),
    ),
)
