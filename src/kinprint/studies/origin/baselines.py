"""Recompute the random baselines and deviation cosines of the audited analysis, each beside a null that fits."""

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.metrics import METRICS
from kinprint.studies.layer_pairs import LayerPair
from kinprint.studies.opened import StudyRun
from kinprint.studies.origin.shared import both_norms, is_complete
from kinprint.studies.outcome import Cell, Section, columns
from kinprint.studies.row_grid import row_grid
from kinprint.text import Text

TRIALS = 400
FULL_TRIALS = 10_000
_BASELINES = columns(
    "role; n: layers; cosine: mean cosine .4; published_baseline: baseline of mean 1 and sd 0.01 .6; "
    "published_sigma: “sigma” above it .0; matched_baseline: baseline with each layer’s own mean and spread .4; "
    "excess: mean excess over it .5; inside: share of layers within its 95 % .2"
)
_DEVIATION = columns(
    "what: pairs; n: number; cosine: mean cosine .4; deviation: mean deviation cosine .4; deviation_sd: sd .4; "
    "deviation_independent: mean deviation cosine if independent .4; pearson: mean Pearson .4"
)


def draw_published(width: int, trials: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Draw the published baseline: cosines and Pearson correlations of independent normal vectors of mean 1 and sd 0.01."""
    rng = np.random.default_rng(seed)
    found = np.empty((trials, 2))
    for number in range(trials):
        pair = 1.0 + 0.01 * rng.standard_normal((2, width))
        found[number] = METRICS["cosine"](*pair), METRICS["pearson"](*pair)
    return found[:, 0], found[:, 1]


def random_baselines(run: StudyRun, section: Section, a: str, b: str) -> None:
    """Compare with the published random vectors, and with those that have each layer's own mean and spread."""
    norms = both_norms(run, a, b, section.missing)
    width = next(iter(norms.values())).left.shape[1]
    trials = FULL_TRIALS if run.request.full else TRIALS
    cosine, pearson = draw_published(width, trials, run.request.seed)
    rows: list[tuple[Cell, ...]] = []
    for role, pair in norms.items():
        mean, excess = float(pair.cosine.mean()), pair.cosine - pair.null_mean
        above = float(pair.cosine.mean() - cosine.mean()) / float(cosine.std())
        inside = float((np.abs(excess) <= 1.96 * pair.null_sd).mean())
        matched = float(pair.null_mean.mean()), float(excess.mean()), inside
        rows.append((role.value, len(pair.layers), mean, float(cosine.mean()), above, *matched))
    title = Text("{a} and {b} against two baselines ({n} draws of the first)", a=a, b=b, n=trials)
    section.add_table("random_baselines", title, _BASELINES, rows)
    section.note(
        "The matched baseline needs no draws: its mean and spread over all orders are exact. For Pearson the "
        "figure to quote is the null’s standard deviation 1/√(d−1) = {sd:.4f}, not a drawn mean near 0.",
        sd=float(1 / np.sqrt(width - 1)),
    )
    shown = list(norms.values()), float(cosine.mean())
    section.add_picture("random_baselines", "origin.baselines", *shown)
    drawn = {"mean": cosine.mean(), "sd": cosine.std(), "max": cosine.max()}
    drawn |= {"pearson": pearson.mean(), "pearson_sd": pearson.std()}
    section.values |= {name: float(value) for name, value in drawn.items()}


def mismatched_places(items: int) -> list[tuple[int, int]]:
    """Return the “mismatched layers” of the script: places i and i+5…i+9 in a list that alternates between the two norms."""
    return [(i, j) for i in range(min(30, items)) for j in range(i + 5, min(i + 10, items))]


def deviation_cosine(run: StudyRun, section: Section, a: str, b: str) -> None:
    """Subtract 1 in place of the mean, also in the mismatch that compares input with post norms."""
    pairs = list(both_norms(run, a, b, section.missing).values())
    # layer 0 of the first norm, of the second, layer 1 of the first, …: the script's list
    left, right = (np.stack(sides, axis=1) for sides in zip(*((pair.left, pair.right) for pair in pairs), strict=True))
    left, right = (side.reshape(-1, side.shape[-1]) for side in (left, right))
    plain, shifted = row_grid(left, right), row_grid(left - 1.0, right - 1.0)
    kinds, count = len(pairs), left.shape[0]
    others = [(i, j) for i in range(count) for j in range(count) if i != j and i % kinds == j % kinds]
    groups = {
        Text("same layer, same norm"): [(i, i) for i in range(count)],
        Text("mismatched as published: list places, so mostly an input norm against a post norm"): mismatched_places(
            count
        ),
        Text("mismatched rightly: other layer, same norm"): others,
    }
    rows: list[tuple[Cell, ...]] = []
    for what, places in groups.items():
        if not places:
            section.missing.append(Text("too few layers for “{what}”", what=what))
            continue
        at = tuple(np.array(places).T)
        values, null = shifted.cosine[at], shifted.cosine_null_mean[at]
        means = plain.cosine[at].mean(), values.mean(), values.std(), null.mean(), plain.pearson[at].mean()
        rows.append((what, len(places), *map(float, means)))
    section.add_table("deviation", Text("Cosine of a − 1 and b − 1, {a} and {b}", a=a, b=b), _DEVIATION, rows)
    section.note(
        "Subtracting 1 is not centring: where both means lie on the same side of 1 the result is near +1, where "
        "they lie on different sides near −1. It follows from the means; the column “if independent” shows it."
    )
    lines = [LayerPair(a, b, pair.role, pair.layers, pair.left - 1.0, pair.right - 1.0) for pair in pairs]
    histograms = [np.array([shifted.cosine[place] for place in places]) for places in groups.values()]
    section.add_picture("deviation", "origin.deviations", lines, histograms)
    section.comparable = kinds == 2 and all(map(is_complete, pairs))
    section.values["cosine_sd"] = float(np.diagonal(plain.cosine).std())
