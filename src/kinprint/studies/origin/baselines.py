"""Random baselines, deviation cosines and the decay matrix of the first accusation, each with a null that fits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.arch import Role
from kinprint.metrics import METRICS
from kinprint.stats import row_grid
from kinprint.studies.opened import Stage
from kinprint.studies.origin.shared import (
    NEEDS_FULL,
    UNCONSTRAINED,
    NormPair,
    accused,
    both_norms,
    is_published,
    origin,
)
from kinprint.studies.outcome import Cell, Check, Picture, Section, column, picture, table
from kinprint.text import Text

TRIALS = 400
FULL_TRIALS = 10_000
TWO_SAMPLES = Text("published and measured are different random draws: three decimals can agree")
WRONG_BASELINE = Text(
    "the random vectors have mean 1 and sd 0.01, the norms neither: with each layer’s own mean and spread the baseline "
    "is the observed value"
)


# -- D: random baselines ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Drawn:
    """Cosines and Pearson correlations of independent normal vectors of mean 1 and standard deviation 0.01."""

    cosine: FloatArray
    pearson: FloatArray


def draw_published(width: int, trials: int, seed: int) -> Drawn:
    """Draw the published baseline."""
    rng = np.random.default_rng(seed)
    cosine, pearson = METRICS["cosine"], METRICS["pearson"]
    found = np.empty((trials, 2))
    for number in range(trials):
        a, b = 1.0 + 0.01 * rng.standard_normal((2, width))
        found[number] = cosine(a, b), pearson(a, b)
    return Drawn(found[:, 0], found[:, 1])


def random_baselines(stage: Stage) -> Section:
    """Part D: the published random vectors, and those with each layer's own mean and spread."""
    section = Section()
    a, b = accused(stage)
    norms = both_norms(stage, a, b, section.missing)
    width = next(iter(norms.values())).left.shape[1]
    trials = FULL_TRIALS if stage.request.full else TRIALS
    drawn = draw_published(width, trials, stage.request.seed)
    rows: list[list[Cell]] = []
    for role, pair in norms.items():
        inside = np.abs(pair.cosine - pair.null_mean) <= 1.96 * pair.null_sd
        rows.append(
            [
                role.value,
                len(pair.layers),
                float(pair.cosine.mean()),
                float(drawn.cosine.mean()),
                float(pair.cosine.mean() - drawn.cosine.mean()) / float(drawn.cosine.std()),
                float(pair.null_mean.mean()),
                float((pair.cosine - pair.null_mean).mean()),
                float(inside.mean()),
            ]
        )
    columns = (
        column("role", "role"),
        column("n", "layers"),
        column("cosine", "mean cosine", 4),
        column("published_baseline", "baseline of mean 1 and sd 0.01", 6),
        column("published_sigma", "“sigma” above it", 0),
        column("matched_baseline", "baseline with each layer’s own mean and spread", 4),
        column("excess", "mean excess over it", 5),
        column("inside", "share of layers within its 95 %", 2),
    )
    title = Text("{a} and {b} against two baselines ({n} draws of the first)", a=a, b=b, n=trials)
    section.tables.append(table("random_baselines", title, columns, rows))
    section.notes.append(
        Text(
            "The matched baseline needs no draws: its mean and spread over all orders are exact. For Pearson the "
            "figure to quote is the null’s standard deviation 1/√(d−1) = {sd:.4f}, not a drawn mean near 0.",
            sd=float(1 / np.sqrt(width - 1)),
        )
    )
    caption = Text(
        "Cosine by layer beside the published baseline (dashed) and the matched one (grey: 95 %), and Pearson’s "
        "correlations of all layers beside their null."
    )
    section.pictures.append(
        picture(
            "random_baselines", caption, "origin.figures.baselines", list(norms.values()), float(drawn.cosine.mean())
        )
    )
    if is_published(stage, a, b):
        section.checks += _baseline_checks(drawn, norms, full=stage.request.full)
    return section


def _baseline_checks(drawn: Drawn, norms: dict[Role, NormPair], *, full: bool) -> list[Check]:
    known = origin()["comprehensive"]["random_baseline"]
    greatest = float(drawn.cosine.max()) if full else None  # of more draws than the short settings make
    checks = [
        Check(
            Text("cosine of random vectors, mean 1 and sd 0.01"),
            known["cosine_mean"],
            float(drawn.cosine.mean()),
            6,
            within=5e-7,
        ),
        Check(Text("its standard deviation"), known["cosine_std"], float(drawn.cosine.std()), 6, within=5e-7),
        Check(
            Text("its greatest value"),
            known["cosine_max"],
            greatest,
            6,
            reason=None if full else NEEDS_FULL,
            within=3e-6,  # of other draws, whose standard deviation is 2e-6
        ),
    ]
    for what, key, value in (
        (Text("Pearson of random vectors, mean"), "pearson_mean", float(drawn.pearson.mean())),
        (Text("Pearson of random vectors, standard deviation"), "pearson_std", float(drawn.pearson.std())),
    ):
        checks.append(Check(what, known[key], value, reason=TWO_SAMPLES, within=1e-3))
    pair = norms.get(Role.INPUT_NORM)
    if pair is not None and pair.complete:
        above = float(pair.cosine.mean() - drawn.cosine.mean()) / float(drawn.cosine.std())
        checks.append(Check(Text("“sigma above random”, input_norm"), -23118.0, above, 0, "wrong", WRONG_BASELINE))
    return checks


# -- E: deviation cosine -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Deviations:
    """Cosine of a − 1 and b − 1 with its null, for the same layers, for one kind of norm."""

    role: Role
    layers: tuple[int, ...]
    value: FloatArray
    null_mean: FloatArray
    null_sd: FloatArray


def mismatched_places(items: int) -> list[tuple[int, int]]:
    """Return the “mismatched layers” of the script: places i and i+5…i+9 in a list that alternates between the two norms."""
    return [(i, j) for i in range(min(30, items)) for j in range(i + 5, min(i + 10, items))]


def deviation_cosine(stage: Stage) -> Section:
    """Part E: subtracting 1 in place of the mean, and the mismatch that compares input with post norms."""
    section = Section()
    a, b = accused(stage)
    norms = both_norms(stage, a, b, section.missing)
    left = _alternating([pair.left for pair in norms.values()])
    right = _alternating([pair.right for pair in norms.values()])
    plain, shifted = row_grid(left, right), row_grid(left - 1.0, right - 1.0)
    kinds, count = len(norms), left.shape[0]
    same = [(i, i) for i in range(count)]
    published_mismatch = mismatched_places(count)
    right_mismatch = [(i, j) for i in range(count) for j in range(count) if i != j and i % kinds == j % kinds]
    rows: list[list[Cell]] = []
    for what, places in (
        (Text("same layer, same norm"), same),
        (Text("mismatched as published: list places, so mostly an input norm against a post norm"), published_mismatch),
        (Text("mismatched rightly: other layer, same norm"), right_mismatch),
    ):
        if not places:
            section.missing.append(Text("too few layers for “{what}”", what=what))
            continue
        i, j = np.array(places).T
        rows.append(
            [
                what,
                len(places),
                float(plain.cosine[i, j].mean()),
                float(shifted.cosine[i, j].mean()),
                float(shifted.cosine[i, j].std()),
                float(shifted.cosine_null_mean[i, j].mean()),
                float(plain.pearson[i, j].mean()),
            ]
        )
    columns = (
        column("what", "pairs"),
        column("n", "number"),
        column("cosine", "mean cosine", 4),
        column("deviation", "mean deviation cosine", 4),
        column("deviation_sd", "sd", 4),
        column("deviation_independent", "mean deviation cosine if independent", 4),
        column("pearson", "mean Pearson", 4),
    )
    section.tables.append(table("deviation", Text("Cosine of a − 1 and b − 1, {a} and {b}", a=a, b=b), columns, rows))
    section.notes.append(
        Text(
            "Subtracting 1 is not centring: where both means lie on the same side of 1 the result is near +1, where "
            "they lie on different sides near −1. It follows from the means; the column “if independent” shows it."
        )
    )
    section.pictures.append(_deviation_picture(norms, shifted.cosine, published_mismatch, right_mismatch))
    if is_published(stage, a, b) and kinds == 2 and all(pair.complete for pair in norms.values()):
        section.checks += _deviation_checks(rows, plain.cosine, replicas=stage.request.replicas)
    return section


def _alternating(stacks: list[FloatArray]) -> FloatArray:
    """Return layer 0 of the first stack, of the second, layer 1 of the first, …: the script's list."""
    mixed: FloatArray = np.stack(stacks, axis=1).reshape(-1, stacks[0].shape[1])
    return mixed


def _deviation_picture(
    norms: dict[Role, NormPair],
    values: FloatArray,
    published_mismatch: list[tuple[int, int]],
    right_mismatch: list[tuple[int, int]],
) -> Picture:
    lines = []
    for role, pair in norms.items():
        shifted = row_grid(pair.left - 1.0, pair.right - 1.0)
        lines.append(
            Deviations(
                role,
                pair.layers,
                np.diagonal(shifted.cosine),
                np.diagonal(shifted.cosine_null_mean),
                np.diagonal(shifted.cosine_null_sd),
            )
        )
    histograms = [np.diagonal(values)] + [
        np.array([values[i, j] for i, j in places]) for places in (published_mismatch, right_mismatch)
    ]
    caption = Text(
        "Cosine of a − 1 and b − 1 by layer (grey: 95 % of independent pairs), and its distribution over same and "
        "mismatched pairs."
    )
    return picture("deviation", caption, "origin.figures.deviations", lines, histograms)


def _deviation_checks(rows: list[list[Cell]], cosine: FloatArray, *, replicas: bool) -> list[Check]:
    remark = UNCONSTRAINED if replicas else None  # correlations of one model's input norms with the other's post norms
    matched, mismatched = origin()["final"]["matched_layers"], origin()["final"]["control_mismatched"]
    same, other = rows[0], rows[1]
    return [
        Check(Text("mean cosine, both norms"), matched["cosine_mean"], _number(same[2])),
        Check(
            Text("standard deviation of the cosine, both norms"),
            matched["cosine_std"],
            float(np.diagonal(cosine).std()),
        ),
        Check(Text("mean deviation cosine, same layers"), matched["centered_cosine_mean"], _number(same[3])),
        Check(Text("its standard deviation over layers"), matched["centered_cosine_std"], _number(same[4])),
        Check(Text("mean Pearson, both norms"), matched["pearson_mean"], _number(same[6])),
        Check(
            Text("mean cosine, mismatched as published"),
            mismatched["cosine_mean"],
            _number(other[2]),
            reason=remark,
            comparable=not replicas,
        ),
        Check(
            Text("mean deviation cosine, mismatched as published"),
            mismatched["centered_cosine_mean"],
            _number(other[3]),
            reason=remark,
            comparable=not replicas,
        ),
    ]


def _number(cell: Cell) -> float | None:
    return float(cell) if isinstance(cell, (int, float)) else None
