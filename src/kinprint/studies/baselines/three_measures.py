"""Measure pairs by cosine, Pearson and L2, beside random vectors, fixed ones and ones that match the pair (experiment 6)."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.arch import Role
from kinprint.metrics import METRICS
from kinprint.stats.nulls import null_for
from kinprint.studies.baselines.common import add_checks, layers_of, measured, moe_models, tag
from kinprint.studies.opened import StudyRun, attempt, sides
from kinprint.studies.outcome import Cell, Missing, Section, columns
from kinprint.studies.published import published
from kinprint.studies.vector_pairs import Vector, VectorPair, across
from kinprint.text import Text

FIXED_MEAN, FIXED_SD, FIXED_WIDTH = 1.0, 0.1, 4096
FIXED_DRAWS, DRAWS, FULL_DRAWS = 1_000, 200, 1_000
SHOWN_MODELS = 4  # models whose pairs are measured: six pairs, as many as a figure shows legibly
MEASURES = ("cosine", "pearson", "l2")
KINDS = {
    "across": Text("two models, same layer"),
    "within": Text("one model, two layers"),
    "zero": Text("one model, layer 0 and a later one"),
}


Moments: TypeAlias = Mapping[str, tuple[float, float]]
"""Mean and standard deviation of each measure over permutations, or over pairs of random vectors."""


@dataclass(frozen=True)
class MeasuredPair:
    """One pair under three measures, with permutation nulls and with random vectors of the same means and spreads."""

    kind: str
    pair: VectorPair
    value: Mapping[str, float]
    null: Moments
    matched: Moments


def metric_comparison(run: StudyRun, role: Role, section: Section) -> None:
    """Measure the same pairs three ways, each beside its null."""
    rng = np.random.default_rng(run.request.seed)
    fixed = random_pairs(rng, (FIXED_MEAN, FIXED_SD), (FIXED_MEAN, FIXED_SD), FIXED_WIDTH, FIXED_DRAWS)
    draws = FULL_DRAWS if run.request.full else DRAWS
    found = _measured(run, role, section, rng, draws)
    if not found:
        raise Missing("no two vectors of these models can be compared")
    _add_tables(section, role, found, fixed, draws)
    section.note(
        "A random baseline has to have the means and spreads of the two vectors it stands beside. Vectors around one with a "
        "spread of a tenth have a cosine of {cosine:.4f} whatever the models; a pair with other spreads has another one, and "
        "so has its L2. For Pearson the null's standard deviation counts, {sd:.4f} at width {width}; its mean is zero.",
        cosine=fixed["cosine"][0],
        sd=1 / np.sqrt(FIXED_WIDTH - 1),
        width=FIXED_WIDTH,
    )
    if run.request.replicas:
        section.note(
            "L2 was printed to four decimals, up to a millionth of its value; the replicas are made to meet it within a "
            "ten-thousandth, so single values may differ in the last digits."
        )
    arguments = (found, fixed, run.names, role.value)
    section.add_picture(f"exp6_metrics{tag(role)}", "baselines.metric_panels", *arguments, role=role.value)
    add_checks(run, role, section, "exp6", _published_values(found, fixed))


def _measured(run: StudyRun, role: Role, section: Section, rng: np.random.Generator, draws: int) -> list[MeasuredPair]:
    layers = layers_of(run)
    meeting = moe_models(run, section)[:SHOWN_MODELS]
    groups = [("across", across(meeting, layers.at))]
    for kind, (low, high) in (("within", layers.steps[0] if layers.steps else (0, 0)), ("zero", (0, layers.at))):
        groups += [(kind, [((name, low), (name, high))]) for name in run.names[:2] if low < high]
    found = []
    for kind, wanted in groups:
        pairs, held = measured(run, role, wanted, section.missing)
        for pair in pairs:
            where = sides(f"{pair.a}[{pair.layer_a}]", f"{pair.b}[{pair.layer_b}]")
            found.append(attempt(section.missing, partial(_measure, kind, pair, held, rng, draws), where))
    return sorted((one for one in found if one is not None), key=lambda one: list(KINDS).index(one.kind))


def _measure(
    kind: str, pair: VectorPair, held: Mapping[Vector, FloatArray], rng: np.random.Generator, draws: int
) -> MeasuredPair:
    a, b = (held[key] for key in pair.key)
    distance = METRICS["l2"](a, b)
    null = null_for(METRICS["l2"].null, a, b, observed=distance, higher_is_closer=False)
    matched = random_pairs(rng, (float(a.mean()), float(a.std())), (float(b.mean()), float(b.std())), a.size, draws)
    value = {"cosine": pair.cosine, "pearson": pair.pearson, "l2": distance}
    nulls = {"cosine": (pair.null_mean, pair.null_sd), "pearson": (0.0, pair.pearson_sd), "l2": (null.mean, null.sd)}
    return MeasuredPair(kind, pair, value, nulls, matched)


def random_pairs(
    rng: np.random.Generator, a: tuple[float, float], b: tuple[float, float], width: int, draws: int
) -> Moments:
    """Draw pairs of normal vectors with the given means and standard deviations and measure each."""
    drawn = np.empty((draws, len(MEASURES)))
    for number in range(draws):
        left, right = (mean + sd * rng.standard_normal(width) for mean, sd in (a, b))
        drawn[number] = [METRICS[measure](left, right) for measure in MEASURES]
    moments = zip(drawn.mean(axis=0).tolist(), drawn.std(axis=0).tolist(), strict=True)
    return dict(zip(MEASURES, moments, strict=True))


def _add_tables(section: Section, role: Role, found: Sequence[MeasuredPair], fixed: Moments, draws: int) -> None:
    head = columns(
        "kind: what is compared; pair: pair and layers; cosine; cosine_null: cosine if independent .4; pearson; pearson_sd; z; "
        "l2: L2 .4; l2_null: L2 if independent .4; l2_sd: its sd .4"
    )
    rows: list[Sequence[Cell]] = []
    for one, pair in ((one, one.pair) for one in found):
        numbers = (pair.cosine, pair.null_mean, pair.pearson, pair.pearson_sd, pair.z, one.value["l2"], *one.null["l2"])
        rows.append((KINDS[one.kind], pair.label, *numbers))
    title = Text("Three measures of the same pairs, {role}", role=role.value)
    section.add_table(f"exp6_metrics{tag(role)}", title, head, rows)
    head = columns(
        "pair: random vectors; draws; cosine_mean: cosine .4; cosine_sd: sd .4; pearson_mean: Pearson .4; pearson_sd: sd .4; "
        "l2_mean: L2 .4; l2_sd: sd .4"
    )
    as_published = Text("mean 1, sd 0.1, width {width}, as published", width=FIXED_WIDTH)
    drawn = [(as_published, FIXED_DRAWS, fixed)]
    drawn += [(Text("matched to {pair}", pair=one.pair.label), draws, one.matched) for one in found]
    randoms = [(said, count, *itertools.chain(*moments.values())) for said, count, moments in drawn]
    section.add_table(f"exp6_random{tag(role)}", Text("Random vectors: synthetic, normal, seeded"), head, randoms)


def _published_values(found: Sequence[MeasuredPair], fixed: Moments) -> dict[str, float | None]:
    """Return the random baselines, and how far another run's lie: the published ones were drawn without a seed."""
    draws = published()["chahero_RESULTS"]["exp6_random"]["trials_in_code"], FIXED_DRAWS
    values: dict[str, float | None] = {}
    for measure, (mean, sd) in fixed.items():
        for what, value, share in (("mean", mean, 1.0), ("sd", sd, 0.5)):  # a spread is known better than a mean by √2
            error = 1.96 * sd * math.sqrt(share * sum(1 / n for n in draws))
            values |= {f"{measure} {what}": value, f"{measure} {what} error": error + 0.5e-4}
    return values | {f"matched {one.pair.label}": one.matched["cosine"][0] for one in found if one.kind == "across"}
