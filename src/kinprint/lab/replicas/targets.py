"""List every published number that the replicas' norm vectors are made to have, and measure it on them.

Everything else is assumed (`ASSUMED` says what). The product's own metrics measure, not the solver's sums.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.lab.replicas import published_figures as figures
from kinprint.lab.replicas.design import SHARED, Norms
from kinprint.lab.replicas.fits import DENSE, MOE, MOE_LAYERS
from kinprint.lab.replicas.published_figures import INPUT, KINDS, POST, Vector, console_pairs, hw_pairs, published
from kinprint.metrics import METRICS

Measure = Callable[[Norms], float]

RELATIVE = 1e-4
ANGLE = 5e-5
PRINTED = 6e-5  # four printed decimals: half of the last one, and a little for our own rounding
READ_OFF = 3e-3  # a cosine read off a plot

ASSUMED = (
    "Solar, layers 46 and 47: moments continue the trend",
    "Phi: means of the input norms between the known layers; moments of the other norm at layers other than 10, 20, 30",
    "Mixtral, Mistral, Yi, Qwen1.5: all moments beyond Mixtral's six layers and the dense models' layer 10",
    "InternLM2: everything, as its figures were never published; its spread is the median of the other dense models",
    "Mixtral-Mistral (Pearson 0.96) and Yi-6B-Yi-9B (0.9, layers 12 to 27 repeated) as relatives",
    "correlation of a model's layers where none was published: exp(-distance / 25); of its two norms: 0.4",
    "correlations between models at unequal layers: chance, though not an untouched sample of it: see the next two",
    "correlations among the vectors measured at 10, 20, 30 that were not published: held as drawn, cut at 0.03",
    "correlation of (input - post) of Solar and GLM: cut at 0.018, as figure 10 stays within 0.025",
    "Solar 46 with GLM's extra block: 0.02, so that figure 5's mean over 47 rows reads as printed",
    "Phi off layers 10, 20, 30, Mixtral, dense models: spreads and correlations fitted to cosines; many others would fit too",
    "INTELLECT: shares of changed elements between those read off, single BF16 steps, the same shares for the other norm",
    "shapes: shifted lognormal bulk, a few very low dimensions, far-out elements wherever a published gap needs them",
    "the common offset of the 0.99 quantiles, of which only differences were published",
    "Qwen3: spreads and correlations that give the published cosines; Mixtral-8x22B: everything",
)


@dataclass(frozen=True)
class Target:
    """One published number: where it comes from, what it is, and how far the replica may miss it."""

    source: str
    what: str
    kind: str
    published: float
    tolerance: float
    measure: Measure

    def miss(self, norms: Norms) -> float:
        """Return how far the norms miss the published number."""
        return abs(self.measure(norms) - self.published)


def targets() -> tuple[Target, ...]:
    """Return every constraint on the replicas' norms."""
    parts = (_sanity, _origin, _metrics, _console, _experiments, _groups, _distances, _figures, _curves, _descendant)
    return tuple(target for part in parts for target in part())


def _row(norms: Norms, vector: Vector) -> FloatArray:
    return np.asarray(norms[vector[0], vector[1]][vector[2]], dtype=np.float64)


def _metric(name: str, a: Vector, b: Vector) -> Measure:
    return lambda norms: METRICS[name](_row(norms, a), _row(norms, b))


def _moment(vector: Vector, name: str) -> Measure:
    return lambda norms: float(getattr(_row(norms, vector), name)())


def _over(measures: list[Measure], summary: Callable[[FloatArray], float]) -> Measure:
    return lambda norms: float(summary(np.array([m(norms) for m in measures])))


def _same_layer(metric: str, a: str, b: str, kind: str, layers: int) -> list[Measure]:
    return [_metric(metric, (a, kind, i), (b, kind, i)) for i in range(layers)]


def _cell(source: str, a: Vector, b: Vector, metric: str, value: float, tolerance: float = ANGLE) -> Target:
    """Return a metric of two vectors as a target."""
    what = f"{a[0]} {a[2]} - {b[0]} {b[2]}, {a[1]}"
    return Target(source, what, metric, value, tolerance, _metric(metric, a, b))


def _spread(source: str, of: str, cells: list[Measure], mean: float, std: float) -> Iterator[Target]:
    """Yield mean and standard deviation of some cosines."""
    yield Target(source, f"{of}mean", "mean cosine", mean, PRINTED, _over(cells, np.mean))
    yield Target(source, f"{of}std", "std of cosines", std, PRINTED, _over(cells, np.std))


def _sanity() -> Iterator[Target]:
    """Yield ANLGBOY's rows: moments, cosine and correlation of Solar and GLM at 46 layers."""
    kinds = {category: kind for kind, category in figures.CATEGORY.items()}
    for layer, category, cosine, _, centred, *moments in published()["anlgboy_sanity"]["rows"]:
        a, b = ((model, kinds[category], layer) for model in ("Solar", "GLM"))
        yield _cell("anlgboy", a, b, "cosine", cosine)
        yield _cell("anlgboy", a, b, "pearson", centred)
        for vector, mean, std in ((a, *moments[:2]), (b, *moments[2:])):
            what = f"{vector[0]} {layer}, {vector[1]}"
            yield Target("anlgboy", what, "mean", mean, RELATIVE * mean, _moment(vector, "mean"))
            yield Target("anlgboy", what, "std", std, RELATIVE * std, _moment(vector, "std"))


def _origin() -> Iterator[Target]:
    """Yield the first analysis: layer rows, layer 0 against later layers, and its averages."""
    origin = published()["origin"]
    for layer, pre_cos, pre_r, post_cos, post_r, *_ in origin["layerwise"]:
        for kind, cosine, r in ((INPUT, pre_cos, pre_r), (POST, post_cos, post_r)):
            a, b = ((model, kind, layer) for model in ("Solar", "GLM"))
            yield _cell("origin", a, b, "cosine", cosine)
            yield _cell("origin", a, b, "pearson", r)
    for model, cells in origin["within_layer0"].items():
        for layer, cosine in cells.items():
            yield _cell("origin", (model, INPUT, 0), (model, INPUT, int(layer)), "cosine", cosine)
    both = _over([m for kind in KINDS for m in _same_layer("deviation_cosine", "Solar", "GLM", kind, SHARED)], np.mean)
    value = origin["final"]["matched_layers"]["centered_cosine_mean"]
    yield Target("origin", "mean deviation cosine, both norms", "deviation cosine", value, 2 * ANGLE, both)
    for kind in KINDS:
        rows = _same_layer("rel_l2_a", "Solar", "GLM", kind, SHARED)
        value = origin["sampled_windows"][f"{figures.STORED[kind]}.weight"][0]["rel_rmse"]["mean"]
        yield Target("origin", f"mean relative RMSE, {kind}", "rel_l2", value, RELATIVE * value, _over(rows, np.mean))


def _metrics() -> Iterator[Target]:
    """Yield hyunwoongko's matrices: same layer, mixed layers, within a model."""
    ours = {"centered_cosine": "pearson", "rel_l2": "rel_l2_a"}
    for metric in ("cosine", "centered_cosine", "pearson", "mean_abs_diff", "p99_abs_diff", "rel_l2", "cv_diff"):
        for matrix, a, b, value in hw_pairs(metric):
            relative = metric in ("mean_abs_diff", "rel_l2")
            tolerance = RELATIVE * value if relative else 1e-6 if metric == "p99_abs_diff" else ANGLE
            found = _cell("hyunwoongko", a, b, ours.get(metric, metric), value, tolerance)
            yield replace(found, what=f"{matrix}: {found.what}", kind=metric)


def _console() -> Iterator[Target]:
    names = figures.HW_NAMES | {"qwen3_4b": "Qwen3-4B", "qwen3_14b": "Qwen3-14B"}
    for stored, name in names.items():
        for kind, first, second, value in console_pairs(stored):
            yield _cell("hyunwoongko console", (name, kind, first), (name, kind, second), "cosine", value)


def _pairs(models: tuple[str, ...], layer: int) -> list[Measure]:
    return [_metric("cosine", (a, INPUT, layer), (b, INPUT, layer)) for a, b in combinations(models, 2)]


def _experiments() -> Iterator[Target]:
    """Yield chahero's experiments 1 to 4: layer 0, neighbouring layers, four mixture models at one layer and at six."""
    ch = published()["chahero_RESULTS"]
    within = (
        ("exp1", "exp1_layer0", [(0, i) for i in ch["exp1_layer0"]["layers"]]),
        ("exp2", "exp2_adjacent", [tuple(map(int, p.split("-"))) for p in ch["exp2_adjacent"]["pairs"]]),
    )
    for name, key, pairs in within:
        for model in ("Solar", "GLM"):
            cells = [_metric("cosine", (model, INPUT, a), (model, INPUT, b)) for a, b in pairs]
            for (a, b), cell, value in zip(pairs, cells, ch[key][model], strict=True):
                yield Target(f"chahero {name}", f"{model} {a} - {b}", "cosine", value, PRINTED, cell)
            value = ch[key][f"{model}_mean"]
            yield Target(f"chahero {name}", f"{model}, mean", "mean cosine", value, PRINTED, _over(cells, np.mean))
    three = ch["exp3_moe_layer10"]
    for (a, b), cell in zip(combinations(MOE, 2), _pairs(MOE, 10), strict=True):
        yield Target("chahero exp3", f"{a} - {b}", "cosine", three[f"{a}-{b}"], PRINTED, cell)
    yield from _spread("chahero exp3", "", _pairs(MOE, 10), three["mean"], three["std_pop"])
    four = ch["exp4_layers"]
    for layer, mean, std in zip(MOE_LAYERS, four["mean"], four["std"], strict=True):
        yield from _spread("chahero exp4", f"layer {layer}, ", _pairs(MOE, layer), mean, std)
    every = [cell for layer in MOE_LAYERS for cell in _pairs(MOE, layer)]
    yield from _spread("chahero exp4", "all 36, ", every, four["mean_all"], four["std_all"])


def _groups() -> Iterator[Target]:
    """Yield chahero's experiment 5: groups of mixture and dense models at layer 10, and the printed heatmap."""
    ch = published()["chahero_RESULTS"]
    models = (*MOE, *DENSE)
    cells = dict(zip(combinations(models, 2), _pairs(models, 10), strict=True))
    names = {2: "MoE-MoE", 1: "MoE-nonMoE", 0: "nonMoE-nonMoE"}
    for mixtures, name in names.items():
        group = [cell for pair, cell in cells.items() if sum(model in MOE for model in pair) == mixtures]
        told = ch["exp5_arch_layer10"][name]
        yield from _spread("chahero exp5", f"{name}, ", group, told["mean"], told["std"])
    matrix = ch["exp5_heatmap_2dec_read_from_png"]["matrix"]
    for (a, b), cell in cells.items():
        value = matrix[models.index(a)][models.index(b)]
        yield Target("chahero exp5 heatmap", f"{a} - {b}", "cosine, two decimals", value, 0.005, cell)


def _distances() -> Iterator[Target]:
    """Yield chahero's experiment 6: cosine, correlation and distance side by side."""
    ch = published()["chahero_RESULTS"]
    for table, first, second in (
        ("exp6_pairs_layer10", 10, 10),
        ("exp6_within_10_20", 10, 20),
        ("exp6_layer0_10", 0, 10),
    ):
        for models, values in ch[table].items():
            names = models.split("-")
            for metric, value in values.items():
                tolerance = RELATIVE * value if metric == "l2" else PRINTED
                a, b = (names[0], INPUT, first), (names[-1], INPUT, second)
                yield _cell("chahero exp6", a, b, metric, value, tolerance)


def _figures() -> Iterator[Target]:
    """Yield sionic's annotations: the layer of the largest raw cosine with its values, and mean correlations."""
    notes = published()["sionic_tables"]["figure_annotations"]
    annotated = (
        ("fig1_solar_glm", "Solar", "GLM", 46),
        ("fig3_glm_intellect", "GLM", "INTELLECT", 46),
        ("fig4a_phi_solar", "Phi", "Solar", 32),
        ("fig4b_glm_phi", "GLM", "Phi", 32),
    )
    for name, a, b, layers in annotated:
        note, source, pair = notes[name], f"sionic {name}", f"{a} - {b}"
        best = note["best_layer"]
        cosines = _same_layer("cosine", a, b, INPUT, layers)
        where = _over(cosines, lambda c: float(np.argmax(c)))
        yield Target(source, f"{pair}, best layer", "best layer", best, 0, where)
        yield Target(source, f"{pair} {best}", "cosine, two decimals", note["cos"], 0.005, cosines[best])
        r = _metric("pearson", (a, INPUT, best), (b, INPUT, best))
        yield Target(source, f"{pair} {best}", "pearson, two decimals", note["r"], 0.005, r)
    for pair, value in notes["fig5_diag_mean_r"].items():
        a, b = pair.split("-")
        cells = _same_layer("pearson", a, b, INPUT, 32 if "Phi" in (a, b) else SHARED)
        yield Target("sionic fig5", pair, "mean pearson", value, 5e-4, _over(cells, np.mean))


def _curves() -> Iterator[Target]:
    """Yield values read off sionic's plots: Phi's raw cosines by layer, and the extremes of its mean."""
    curves = published()["sionic_tables"]["fig4_panel_c_cosine_read_from_png"]
    for key, model in (("phi_solar_L0_31", "Solar"), ("glm_phi_L0_31", "GLM")):
        for layer, value in enumerate(curves[key]):
            found = _cell("sionic fig4c", (model, INPUT, layer), ("Phi", INPUT, layer), "cosine", value, READ_OFF)
            yield replace(found, kind="cosine read off")
    means: list[Measure] = [_moment(("Phi", INPUT, layer), "mean") for layer in range(32)]
    for what, value, measure in (
        ("first", 0.01, means[0]),
        ("largest", 0.54, _over(means, np.max)),
        ("last", 0.17, means[-1]),
    ):
        yield Target("sionic fig8", f"Phi, {what} mean", "mean read off", value, 0.005, measure)


def _descendant() -> Iterator[Target]:
    """Yield sionic's figure 3-1: how INTELLECT's input norms differ from GLM's."""
    plot = published()["sionic_tables"]["fig3_1_read_from_png"]
    shares = {layer: percent / 100 for layer, percent in plot["changed_pct_approx"].items()}
    for kind, metric, values in (
        ("share changed", "changed_ratio", shares),
        ("mean change", "mean_abs_diff", plot["mean_abs_diff_approx"]),
    ):
        for layer, value in values.items():
            a, b = ((model, INPUT, int(layer)) for model in ("GLM", "INTELLECT"))
            found = _cell("sionic fig3-1", a, b, metric, value, 5e-4 if values is shares else 0.05 * value)
            yield replace(found, kind=kind)
