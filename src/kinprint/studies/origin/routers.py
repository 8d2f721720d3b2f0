"""Compare the routers of two mixtures of experts, as stored and after the best assignment of experts, with its null."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.arch import Role
from kinprint.errors import DegenerateInput
from kinprint.metrics import METRICS
from kinprint.model.reader import Want
from kinprint.stats.moments import dot_moments
from kinprint.stats.montecarlo import draw_columns
from kinprint.studies.opened import StudyRun
from kinprint.studies.origin.shared import EVERY, control_pairs
from kinprint.studies.outcome import Cell, Missing, Section, columns
from kinprint.text import Text

DRAWS = 3
FULL_DRAWS = 20
GAUSSIAN_DRAWS = 8
_COLUMNS = columns(
    "layer; cosine; null_mean; null_sd .4; pearson; aligned: aligned cosine .4; "
    "aligned_null: aligned, columns permuted: mean .4; aligned_null_sd: sd of a draw, all layers pooled .4"
)
_CONTROLS = columns(
    "pair; n: layers; cosine: mean cosine .4; aligned: mean aligned cosine .4; aligned_null: its mean if independent .4; "
    "null_sd: sd of one layer if independent .4"
)


@dataclass(frozen=True)
class RouterRow:
    """One layer: raw cosine and Pearson (None if the numbers of experts differ), aligned cosine, and the nulls of both."""

    layer: int
    aligned: float
    aligned_null: FloatArray  # drawn: columns (residual dimensions) of B permuted
    cosine: float | None = None
    null_mean: float | None = None
    null_sd: float | None = None
    pearson: float | None = None
    pearson_sd: float | None = None


def aligned_cosine(A: FloatArray, B: FloatArray) -> float:
    """Return the mean cosine of expert rows, given at unit length, under the best one-to-one assignment."""
    from scipy.optimize import linear_sum_assignment  # here, because it is slow to load

    cosines = A @ B.T
    return float(cosines[linear_sum_assignment(cosines, maximize=True)].mean())


def unit_rows(A: FloatArray) -> FloatArray:
    """Return the rows at unit length."""
    lengths = np.linalg.norm(A, axis=1, keepdims=True)
    if float(lengths.min()) == 0.0:
        raise DegenerateInput("aligned cosine: an expert's row has zero length: expected a direction")
    unit: FloatArray = A / lengths
    return unit


def compare(layer: int, A: FloatArray, B: FloatArray, *, draws: int, seed: int) -> RouterRow:
    """Compare two routers (experts × width) of equal width."""
    units = unit_rows(A), unit_rows(B)
    drawn = draw_columns(*units, {"aligned": aligned_cosine}, draws=draws, seed=seed)["aligned"]
    row = RouterRow(layer, aligned_cosine(*units), drawn)
    if A.shape != B.shape:
        return row
    null = dot_moments(A, B, shape=False)
    lengths = float(np.linalg.norm(A)) * float(np.linalg.norm(B))
    # a shift of all elements changes no row-centred product: Pearson's null has the product's spread, in other units
    spreads = float(A.std()) * float(B.std()) * A.size
    row = replace(row, cosine=METRICS["cosine"](A, B), null_mean=null.mean / lengths, null_sd=null.sd / lengths)
    return replace(row, pearson=METRICS["pearson"](A, B), pearson_sd=null.sd / spreads)


def pooled_sd(rows: Sequence[RouterRow]) -> float:
    """Return the standard deviation of a drawn aligned cosine: few draws a layer, so all layers together."""
    return math.sqrt(float(np.mean([row.aligned_null.var(ddof=1) for row in rows])))


def gaussian_alignment(experts: int, width: int, *, seed: int) -> FloatArray:
    """Return aligned cosines of independent Gaussian matrices: what alignment finds in noise alone."""
    rng = np.random.default_rng(seed)
    drawn = (rng.standard_normal((2, experts, width)) for _ in range(GAUSSIAN_DRAWS))
    return np.array([aligned_cosine(unit_rows(one), unit_rows(two)) for one, two in drawn])


def measure(run: StudyRun, a: str, b: str, *, every: int = 1) -> list[RouterRow]:
    """Compare the routers of two models in every `every`-th shared layer, reading one layer after the other."""
    both = set(run.layers(a, Role.ROUTER)) & set(run.layers(b, Role.ROUTER))
    asked = run.request.layers
    chosen = [layer for layer in sorted(both) if asked is None or layer in asked][::every]
    if not chosen:
        raise Missing("{a} and {b} share no layer with a router", a=a, b=b)
    n, m = (run.part(name, Role.ROUTER, chosen[0]).shape[-1] for name in (a, b))
    if n != m:
        raise Missing("the routers of {a} and {b} are not comparable: width {n} and {m}", a=a, b=b, n=n, m=m)
    draws = FULL_DRAWS if run.request.full else DRAWS
    groups = [[(name, Want(Role.ROUTER, layer)) for name in (a, b)] for layer in chosen]
    return [
        compare(layer, left.astype(np.float64), right.astype(np.float64), draws=draws, seed=run.request.seed)
        for layer, (left, right) in zip(chosen, run.stream(groups), strict=True)
    ]


def routers(run: StudyRun, section: Section, a: str, b: str) -> None:
    """Compare routers and align experts."""
    rows = measure(run, a, b)
    experts, width = run.part(a, Role.ROUTER, rows[0].layer).shape
    noise, pooled = gaussian_alignment(experts, width, seed=run.request.seed), pooled_sd(rows)
    cells = [
        (r.layer, r.cosine, r.null_mean, r.null_sd, r.pearson, r.aligned, r.aligned_null.mean(), pooled) for r in rows
    ]
    section.add_table("routers", Text("Routers of {a} and {b}", a=a, b=b), _COLUMNS, cells)
    summaries = [_summary(a, b, rows)]
    for one, control in control_pairs(run):  # on every fifth layer
        try:
            summaries.append(_summary(one, control, measure(run, one, control, every=EVERY)))
        except Missing as error:
            section.missing.append(error.text)
        except DegenerateInput as error:
            why = Text("one of the two is not filled in the replicas") if run.request.replicas else error.message
            section.missing.append(Text("routers of {a} and {b}: {why}", a=one, b=control, why=why))
    section.add_table("router_controls", Text("Aligned routers, all pairs of equal width"), _CONTROLS, summaries)
    drawn = {"mean": float(noise.mean()), "sd": float(noise.std(ddof=1)), "n": noise.size}
    section.note(
        "The best assignment of experts finds a positive mean even in noise: {mean:.4f} for independent Gaussian "
        "{experts}×{width} matrices ({n} draws, sd {sd:.4f}). The null beside each layer permutes the residual "
        "dimensions of one router, which keeps its rows’ lengths and what they have in common.",
        **drawn | {"experts": experts, "width": width},
    )
    section.add_picture("routers", "origin.routers", rows, float(noise.mean()), a=a, b=b)
    section.values["noise"] = float(noise.mean())


def _summary(a: str, b: str, rows: list[RouterRow]) -> tuple[Cell, ...]:
    cosines = [row.cosine for row in rows if row.cosine is not None]
    aligned, null = (float(np.mean([getattr(row, name) for row in rows])) for name in ("aligned", "aligned_null"))
    return f"{a}–{b}", len(rows), float(np.mean(cosines)) if cosines else None, aligned, null, pooled_sd(rows)
