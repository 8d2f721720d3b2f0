"""Compare pairs of models by layer (figures 1, 3 and 4 of the bias study), and show what differs in the closest (3-1)."""

from functools import partial

import numpy as np

from kinprint.arch import Role
from kinprint.formats.dtypes import FLOATS
from kinprint.metrics import METRICS
from kinprint.metrics.identity import on_grid, ordinals
from kinprint.results.measurements import NullResult
from kinprint.stats.nulls import null_for
from kinprint.studies.bias.shared import INPUT, SAMPLE_SEED, compared_pairs, pair_sides, places, quartile_sample
from kinprint.studies.layer_pairs import LayerPair, layer_pair
from kinprint.studies.opened import StudyRun, attempt
from kinprint.studies.outcome import Missing, Section, columns
from kinprint.text import Text, Value

BY_LAYER = columns(
    "layer; cosine; cosine_null: cosine if independent .4; cosine_null_sd: its sd .4; pearson; "
    "pearson_null_sd: Pearson's null sd .4; z; log10_p"
)


def note_siblings(run: StudyRun, section: Section) -> None:
    """Add a note on how GLM and INTELLECT are related, if both are compared."""
    if run.original("GLM", "INTELLECT"):
        section.note(
            "INTELLECT-3 was trained (instruction tuning, then reinforcement learning) from GLM-4.5-Air-Base, as was "
            "GLM-4.5-Air: the two are siblings, so what differs between them is the training of both, not what a fine-tuning "
            "of one did to it."
        )


def one_pair(run: StudyRun, section: Section, role: Role, a: str, b: str) -> None:
    """Compare a pair layer by layer, and show 50 dimensions of the layer with the largest raw cosine (figures 1, 3, 4)."""
    note_siblings(run, section)
    pair = layer_pair(run, a, b, role)
    best = pair.best
    left, right = pair.left[best], pair.right[best]
    dims = quartile_sample(left, right, SAMPLE_SEED + run.request.seed)
    sampled: dict[str, Value] = {"count": len(dims), "layer": pair.layers[best], **pair.named}
    name = f"pair_{role.value}_{a}_{b}"
    rows = pair.rows("cosine", "null_mean", "null_sd", "pearson", "pearson_sd", "z", "log10_p")
    section.add_table(name, Text("{a} and {b} by layer, {role}", **pair.named), BY_LAYER, rows, shown=12)
    title = Text("{count} dimensions of layer {layer}: {a} (A) and {b} (B), {role}", **sampled)
    heads = columns("dimension; a: A .4; b: B .4; centred_a: A minus its mean .4; centred_b: B minus its mean .4")
    drawn = zip(dims, left[dims], right[dims], left[dims] - left.mean(), right[dims] - right.mean(), strict=True)
    section.add_table(f"{name}_sample", title, heads, drawn, shown=5)
    section.add_picture(name, "bias.pair_panels", pair, dims, places(run), **sampled)
    if role is INPUT:
        at_best = {"layer": pair.layers[best], "cosine": pair.cosine[best], "pearson": pair.pearson[best]}
        section.values |= {f"{a}-{b} {name}": float(value) for name, value in at_best.items()}


def changed(run: StudyRun, section: Section, role: Role) -> None:
    """Show what differs, layer by layer, between the two models whose norms correlate most (figure 3-1)."""
    note_siblings(run, section)
    usable = [pair for pair in compared_pairs(run, role, section.missing) if np.isfinite(pair.mean_pearson)]
    if usable:
        closest = max(usable, key=lambda pair: pair.mean_pearson)
        attempt(section.missing, partial(_add_change, run, section, closest), pair_sides(closest))


def _add_change(run: StudyRun, section: Section, pair: LayerPair) -> None:
    grid = _grid(run, pair)
    found = [_change(run, pair, layer, grid) for layer in pair.layers]
    rows = [
        (
            layer,
            100 * share,
            100 * by_share.mean,
            gap,
            by_gap.mean,
            ulp,
            by_ulp.mean,
            ulp / share if share > 0.0 else None,
        )
        for layer, ((share, by_share), (gap, by_gap), (ulp, by_ulp)) in zip(pair.layers, found, strict=True)
    ]
    nulls = [[(null.mean, null.sd) for _, null in by_layer] for by_layer in zip(*found, strict=True)]
    name = f"changed_{pair.role.value}_{pair.a}_{pair.b}"
    heads = columns(
        "layer; changed_percent: elements changed, % .3; changed_null: if independent, % .2; "
        "mean_abs_diff: mean absolute difference .2e; mean_abs_diff_null: if independent .2e; "
        "ulp: mean distance, ulp .4; ulp_null: if independent, ulp .1; ulp_changed: ulp for each changed element .2"
    )
    section.add_table(name, Text("What differs between {a} and {b}, {role}", **pair.named), heads, rows)
    section.add_picture(
        name, "bias.changed_lines", rows, nulls, pair.title, r=f"{pair.mean_pearson:.4f}", format=grid, **pair.named
    )
    section.note(
        "A share of changed elements depends on how coarse the stored numbers are: a change below half a step is "
        "rounded away, and steps grow with the values. The distance in steps (ulp) stands beside it for that "
        "reason."
    )


def _grid(run: StudyRun, pair: LayerPair) -> str:
    """Return the coarsest format in which a layer of either model is stored."""
    stored = {run.stored(name, pair.role, layer) for name in (pair.a, pair.b) for layer in pair.layers}
    strange = sorted(stored - set(FLOATS))
    if strange:
        raise Missing("{format} is no floating-point format: no distance in steps", format=", ".join(strange))
    return max(stored, key=FLOATS.index)


def _change(run: StudyRun, pair: LayerPair, layer: int, grid: str) -> list[tuple[float, NullResult]]:
    """Return share changed, mean absolute difference and ulp distance of one layer, each with its null."""
    a, b = (run.raw(name, pair.role, layer).ravel().astype(np.float64) for name in (pair.a, pair.b))
    at = pair.layers.index(layer)
    left, right = pair.left[at], pair.right[at]
    steps = [ordinals(on_grid(x, grid), grid) for x in (a, b)]
    measured = (
        ("changed", a, b, METRICS["changed_ratio"](a, b)),
        ("abs_diff", left, right, METRICS["mean_abs_diff"](left, right)),
        ("ulp", steps[0], steps[1], METRICS["ulp_distance"](a, b, dtype=grid)),
    )
    # of the nulls only mean and sd are used, and those are exact: no draws are worth their time
    return [
        (value, null_for(kind, x, y, observed=value, higher_is_closer=False, draws=1)) for kind, x, y, value in measured
    ]
