"""The shuffle test: whether raw cosine notices that both vectors were put into random order.

Original, shuffled and centred cosine for each layer, and what cosine is for vectors that are only alike in mean and spread.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from functools import partial

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.arch import Role
from kinprint.metrics import METRICS
from kinprint.metrics.explain import cosine_if_independent
from kinprint.stats import RowGrid, row_grid
from kinprint.studies.opened import Stage, Want, attempt, is_vector, require_vector, sides
from kinprint.studies.outcome import Cell, Check, Missing, Section, Table, column, picture, table
from kinprint.studies.published import layerwise, published
from kinprint.studies.recipe import Part, Study
from kinprint.text import Text, Value

ROLES = (Role.INPUT_NORM, Role.POST_ATTENTION_NORM)
_CATEGORY = {Role.INPUT_NORM: "norm_pre", Role.POST_ATTENTION_NORM: "norm_post"}
_COLUMNS = (
    column("layer", "layer"),
    column("cosine", "cosine", 4),
    column("shuffled", "cosine, both shuffled", 4),
    column("null_mean", "mean over all orders", 4),
    column("pearson", "centred (Pearson)", 4),
    column("null_sd", "Pearson's null sd", 4),
    column("log10_p", "log10 p", 2),
    column("mean_a", "mean A", 4),
    column("sd_a", "sd A", 4),
    column("mean_b", "mean B", 4),
    column("sd_b", "sd B", 4),
)


def _roles(stage: Stage) -> tuple[Role, ...]:
    return stage.request.roles or ROLES


def _wants(stage: Stage) -> Iterable[Want]:
    for name, role in itertools.product(stage.names, _roles(stage)):
        yield from (
            Want(name, role, layer) for layer in stage.layers(name, role) if is_vector(stage, name, role, layer)
        )


# -- stored, shuffled, centred -------------------------------------------------------------------------------------------


def _shuffle_test(stage: Stage) -> Section:
    section = Section(
        notes=[
            Text(
                "Shuffled: one random order for each side, the same in all layers, so that neighbouring layers, which resemble "
                "each other, stray together. The mean over all orders needs no draw."
            )
        ]
    )
    if len(stage.names) < 2:
        raise Missing(Text("two models are needed, and {n} could be opened", n=len(stage.names)))
    for role, (a, b) in itertools.product(_roles(stage), itertools.combinations(stage.names, 2)):
        attempt(section.missing, partial(_shuffle_pair, stage, role, a, b, section), sides(a, b))
    return section


def _shuffle_pair(stage: Stage, role: Role, a: str, b: str, section: Section) -> None:
    """Compare two models' vectors layer by layer: as they are, both shuffled, and centred."""
    for name in (a, b):
        for layer in stage.layers(name, role):
            require_vector(stage, name, role, layer)
    layers, left, right = stage.stacks(a, b, role)
    pairs, sd = row_grid(left, right), float(1.0 / np.sqrt(left.shape[1] - 1))
    shuffled = np.array([METRICS["shuffled_cosine"](x, y) for x, y in zip(left, right, strict=True)])
    values: dict[str, Value] = {"a": a, "b": b, "role": role.value}
    name = f"shuffle_{role.value}_{a}_{b}"
    title = Text("{a} (A) against {b} (B), {role}", **values)
    section.tables.append(table(name, title, _COLUMNS, _rows(layers, pairs, shuffled, sd, left, right)))
    section.tables.append(_summary(f"{name}_mean", pairs, shuffled, values))
    caption = Text(
        "{a} and {b} ({role}): cosine as stored and with both vectors shuffled, both again as difference from the mean over all "
        "orders, and centred. Grey: 95 % of independent pairs.",
        **values,
    )
    shown = (layers, pairs, shuffled, sd, f"{a} and {b}, {role.value}")
    section.pictures.append(picture(name, caption, "sanity.figures.shuffle_lines", *shown))
    if (a, b) == ("Solar", "GLM") and stage.original(a, b) and role in _CATEGORY:
        section.checks += _checks(role, layers, pairs)


def _rows(
    layers: tuple[int, ...],
    pairs: RowGrid,
    shuffled: FloatArray,
    sd: float,
    left: FloatArray,
    right: FloatArray,
) -> list[tuple[Cell, ...]]:
    return [
        (
            layer,
            float(pairs.cosine[i, i]),
            float(shuffled[i]),
            float(pairs.cosine_null_mean[i, i]),
            float(pairs.pearson[i, i]),
            sd,
            float(pairs.log10_p[i, i]),
            float(left[i].mean()),
            float(left[i].std()),
            float(right[i].mean()),
            float(right[i].std()),
        )
        for i, layer in enumerate(layers)
    ]


def _summary(name: str, pairs: RowGrid, shuffled: FloatArray, values: dict[str, Value]) -> Table:
    """Return mean and median over the layers; a few early layers make the two differ."""
    measures: tuple[tuple[Text, FloatArray], ...] = (
        (Text("cosine"), np.diagonal(pairs.cosine)),
        (Text("cosine, both shuffled"), shuffled),
        (Text("mean over all orders"), np.diagonal(pairs.cosine_null_mean)),
        (Text("centred (Pearson)"), np.diagonal(pairs.pearson)),
        (Text("difference, stored minus shuffled"), np.diagonal(pairs.cosine) - shuffled),
    )
    columns = (
        column("measure", "measure"),
        column("mean", "mean", 4),
        column("median", "median", 4),
        column("min", "least", 4),
        column("max", "greatest", 4),
    )
    functions = (np.mean, np.median, np.min, np.max)
    rows: list[list[Cell]] = [[what, *(float(function(x)) for function in functions)] for what, x in measures]
    return table(name, Text("{a} against {b}, {role}: over all layers", **values), columns, rows)


def _checks(role: Role, layers: tuple[int, ...], pairs: RowGrid) -> list[Check]:
    known = layerwise(_CATEGORY[role])
    found: list[Check] = []
    for i, layer in enumerate(layers):
        if layer in known:
            row = known[layer]
            what: dict[str, Value] = {"layer": layer, "role": role.value}
            cosine, pearson = float(pairs.cosine[i, i]), float(pairs.pearson[i, i])
            found.append(Check(Text("cosine, {role}, layer {layer}", **what), row["cosine"], cosine))
            found.append(Check(Text("centred, {role}, layer {layer}", **what), row["cosine_centered"], pearson))
    shown = [i for i, layer in enumerate(layers) if layer in known]
    if len(shown) == len(known):
        summary = published()["origin"]["summary"][_CATEGORY[role]]
        cosine, pearson = (float(x[shown, shown].mean()) for x in (pairs.cosine, pairs.pearson))
        what_cosine = Text("mean cosine over 46 layers, {role}", role=role.value)
        what_pearson = Text("mean Pearson over 46 layers, {role}", role=role.value)
        found.append(Check(what_cosine, summary["cosine"]["mean"], cosine))
        found.append(Check(what_pearson, summary["pearson"]["mean"], pearson))
        found.append(_shuffled_check(role, float(pairs.cosine_null_mean[shown, shown].mean())))
    return found


def _shuffled_check(role: Role, expected: float) -> Check:
    """Compare the published mean, of one random order, with its expectation: no further than draws agree (sd up to 0.0007)."""
    printed = float(np.mean([row["cosine_shuffled"] for row in layerwise(_CATEGORY[role]).values()]))
    reason = Text(
        "{printed:.4f} is one random order; measured is the mean over all orders, so three decimals can agree",
        printed=printed,
    )
    what = Text("mean cosine over 46 layers, both shuffled, {role}", role=role.value)
    return Check(what, printed, expected, digits=3, reason=reason)


# -- the synthetic grid --------------------------------------------------------------------------------------------------

MEANS = ((0.1, 0.5), (0.5, 1.0), (1.0, 2.0))
SPREADS = (1.0, 0.75, 0.5, 0.25, 0.1)
WIDTHS = (64, 512, 4096)
DRAWS = 400
FULL_DRAWS = 10_000


def _synthetic(stage: Stage) -> Section:
    """Draw pairs of independent vectors and look at their cosine."""
    draws = FULL_DRAWS if stage.request.full else DRAWS
    rng = np.random.default_rng(stage.request.seed)
    rows: list[tuple[float, ...]] = []
    for number, ((low, high), spread, width) in enumerate(itertools.product(MEANS, SPREADS, WIDTHS)):
        stage.progress("synthetic grid", number, len(MEANS) * len(SPREADS) * len(WIDTHS))
        cosines, positive = _drawn(rng, low, high, spread, width, draws)
        predicted = cosine_if_independent(spread / low, spread / high)
        expected = tuple(0.5 * (1.0 + math.erf(mean / spread / math.sqrt(2.0))) for mean in (low, high))
        mean, sd = float(cosines.mean()), float(cosines.std())
        rows.append((low, high, spread, width, mean, sd, predicted, *positive, *expected))
    grid = table(
        "synthetic",
        Text("Cosine of independent normal vectors ({draws} draws each; synthetic)", draws=draws),
        (
            column("mean_a", "mean A"),
            column("mean_b", "mean B"),
            column("sd", "sd of both"),
            column("width", "width"),
            column("cosine", "mean cosine", 4),
            column("cosine_sd", "sd", 4),
            column("predicted", "predicted from the means and spreads", 4),
            column("positive_a", "positive share A", 3),
            column("positive_b", "positive share B", 3),
            column("expected_a", "expected share A", 3),
            column("expected_b", "expected share B", 3),
        ),
        rows,
        shown=45,
    )
    caption = Text(
        "Independent vectors by mean, spread and width: cosine (mean ± sd), and the share of positive elements of each. Dashed: "
        "what means and spreads alone predict."
    )
    return Section(tables=[grid], pictures=[picture("synthetic", caption, "sanity.figures.synthetic_grid", rows)])


def _drawn(
    rng: np.random.Generator, low: float, high: float, spread: float, width: int, draws: int
) -> tuple[FloatArray, tuple[float, float]]:
    cosine = METRICS["cosine"]
    found = np.empty(draws)
    positive = np.zeros(2)
    for number in range(draws):
        a, b = low + spread * rng.standard_normal(width), high + spread * rng.standard_normal(width)
        found[number] = cosine(a, b)
        positive += (a > 0).mean(), (b > 0).mean()
    return found, (float(positive[0] / draws), float(positive[1] / draws))


STUDY = Study(
    name="sanity",
    title=Text("The shuffle test"),
    summary=Text(
        "Raw cosine of norm weights beside the cosine after both vectors were put into random order, and after centring; then what "
        "cosine is for independent vectors that have only mean and spread."
    ),
    source=Text("ANLGBOY/solar-vs-glm-sanity-check, which the retraction (sionic-ai/solar-vs-glm) cites"),
    models=("Solar", "GLM"),
    wants=_wants,
    parts=(
        Part("shuffle", Text("Norm weights as stored, shuffled and centred"), _shuffle_test),
        Part("synthetic", Text("Synthetic vectors"), _synthetic, uses_models=False),
    ),
)
