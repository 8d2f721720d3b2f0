"""Test whether raw cosine notices that both vectors were put into random order (the shuffle test)."""

import itertools
import math
from functools import partial

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.arch import Role
from kinprint.metrics import METRICS
from kinprint.metrics.explain import cosine_if_independent
from kinprint.studies.layer_pairs import LayerPair, layer_pair
from kinprint.studies.opened import StudyRun, attempt, require_vector, sides, vector_wants
from kinprint.studies.outcome import Missing, Section, columns
from kinprint.studies.published import claims, published_checks
from kinprint.studies.recipe import Part, Study
from kinprint.text import Text, Value

COLUMNS = columns(
    "layer; cosine; shuffled: cosine, both shuffled .4; null_mean: mean over all orders .4; pearson: centred (Pearson) .4; "
    "pearson_sd; log10_p; mean_a: mean A .4; sd_a: sd A .4; mean_b: mean B .4; sd_b: sd B .4"
)


ROLES = (Role.INPUT_NORM, Role.POST_ATTENTION_NORM)


def _shuffle_test(run: StudyRun) -> Section:
    section = Section()
    section.note(
        "Shuffled: one random order for each side, the same in all layers, so that neighbouring layers, which resemble "
        "each other, stray together. The mean over all orders needs no draw."
    )
    if len(run.names) < 2:
        raise Missing("two models are needed, and {n} could be opened", n=len(run.names))
    for role, (a, b) in itertools.product(run.request.roles or ROLES, itertools.combinations(run.names, 2)):
        attempt(section.missing, partial(_shuffle_pair, run, role, a, b, section), sides(a, b))
    section.checks += published_checks(run, section, claims("sanity")["shuffle"])
    return section


def _shuffle_pair(run: StudyRun, role: Role, a: str, b: str, section: Section) -> None:
    """Compare two models' vectors layer by layer: as they are, both shuffled, and centred."""
    for name in (a, b):
        for layer in run.layers(name, role):
            require_vector(run, name, role, layer)
    pair, metric = layer_pair(run, a, b, role), METRICS["shuffled_cosine"]
    shuffled = np.array([metric(x, y) for x, y in zip(pair.left, pair.right, strict=True)])
    spreads = [values for x in (pair.left, pair.right) for values in (x.mean(axis=1), x.std(axis=1))]
    sd = np.full(len(pair.layers), pair.pearson_sd)
    values = (pair.layers, pair.cosine, shuffled, pair.null_mean, pair.pearson, sd, pair.log10_p, *spreads)
    named: dict[str, Value] = {"a": a, "b": b, "role": role.value}
    name = f"shuffle_{role.value}_{a}_{b}"
    section.add_table(name, Text("{a} (A) against {b} (B), {role}", **named), COLUMNS, zip(*values, strict=True))
    _add_summary(section, f"{name}_mean", Text("{a} against {b}, {role}: over all layers", **named), pair, shuffled)
    section.add_picture(name, "sanity.shuffle_lines", pair, shuffled, **named)


def _add_summary(section: Section, name: str, title: Text, pair: LayerPair, shuffled: FloatArray) -> None:
    """Add mean and median over the layers; a few early layers make the two differ."""
    measures = {
        Text("cosine"): pair.cosine,
        Text("cosine, both shuffled"): shuffled,
        Text("mean over all orders"): pair.null_mean,
        Text("centred (Pearson)"): pair.pearson,
        Text("difference, stored minus shuffled"): pair.cosine - shuffled,
    }
    rows = [(what, x.mean(), np.median(x), x.min(), x.max()) for what, x in measures.items()]
    section.add_table(name, title, columns("measure; mean .4; median; min; max"), rows)


MEANS = ((0.1, 0.5), (0.5, 1.0), (1.0, 2.0))
SPREADS = (1.0, 0.75, 0.5, 0.25, 0.1)
WIDTHS = (64, 512, 4096)
DRAWS = 400
FULL_DRAWS = 10_000


def _synthetic(run: StudyRun) -> Section:
    """Draw pairs of independent vectors and look at their cosine."""
    draws = FULL_DRAWS if run.request.full else DRAWS
    rng = np.random.default_rng(run.request.seed)
    rows: list[tuple[float, ...]] = []
    for number, ((low, high), spread, width) in enumerate(itertools.product(MEANS, SPREADS, WIDTHS)):
        run.progress("synthetic grid", number, len(MEANS) * len(SPREADS) * len(WIDTHS))
        pairs = (rng.standard_normal((DRAWS, 2, width)) for _ in range(draws // DRAWS))
        drawn = np.concatenate([_measured(spread * each + [[low], [high]]) for each in pairs])
        predicted = cosine_if_independent(spread / low, spread / high)
        expected = tuple(0.5 * (1.0 + math.erf(mean / spread / math.sqrt(2.0))) for mean in (low, high))
        cosine, *positive = drawn.mean(axis=0)
        rows.append((low, high, spread, width, cosine, drawn[:, 0].std(), predicted, *positive, *expected))
    section = Section()
    head = columns(
        "mean_a: mean A; mean_b: mean B; sd: sd of both; width; cosine: mean cosine .4; cosine_sd: sd .4; "
        "predicted: predicted from the means and spreads .4; positive_a: positive share A .3; positive_b: positive share B .3; "
        "expected_a: expected share A .3; expected_b: expected share B .3"
    )
    title = Text("Cosine of independent normal vectors ({draws} draws each; synthetic)", draws=draws)
    section.add_table("synthetic", title, head, rows, shown=45)
    section.add_picture("synthetic", "sanity.synthetic_grid", rows)
    return section


def _measured(pairs: FloatArray) -> FloatArray:
    """Return the cosine of each pair of vectors, and the share of positive elements of either."""
    cosines = METRICS["cosine"].each(pairs[:, 0], pairs[:, 1])
    return np.column_stack([cosines, (pairs > 0).mean(axis=2)])


STUDY = Study(
    name="sanity",
    title=Text("The shuffle test"),
    summary=Text(
        "Raw cosine of norm weights beside the cosine after both vectors were put into random order, and after centring; then what "
        "cosine is for independent vectors that have only mean and spread."
    ),
    source=Text("ANLGBOY/solar-vs-glm-sanity-check, which the retraction (sionic-ai/solar-vs-glm) cites"),
    models=("Solar", "GLM"),
    wants=lambda run: vector_wants(run, run.request.roles or ROLES),
    parts=(
        Part("shuffle", Text("Norm weights as stored, shuffled and centred"), _shuffle_test),
        Part("synthetic", Text("Synthetic vectors"), _synthetic, uses_models=False),
    ),
)
