"""Published figures of the bias study beside the measured ones, and what is wrong with those that are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import numpy as np

from kinprint.arch import Role
from kinprint.studies.layer_pairs import LayerPair
from kinprint.studies.opened import StudyRun
from kinprint.studies.outcome import Cell, Check, Trust
from kinprint.studies.published import layerwise, published
from kinprint.text import Text

EVERYWHERE = Text("the text to figure 1(c) says 0.94 to 0.99 everywhere; its own plot begins at 0.13, 0.34 and 0.83")
OVER_NINETY = Text("the text to figure 3-1 says more than 90 % for layers 0 to 2; its own bars show 96, 87 and 62")
MILLIONTH = Text("the text to figure 3-1 says 1e-6 at layer 40; its own plot shows five times as much")
ROUNDING = Text("in float32 many layers' cosine rounds to 1, so which of them is largest is chance")
OFF_PICTURE = Text("read off the figure, to about 0.003")
UNCONSTRAINED = Text("not fixed by the replicas")
LEVEL = Text(
    "the text to figure 8 says about 1.0 for GLM and 0.8 to 1.0 for Phi; its own plot shows up to 0.91 and up to 0.54"
)
LONGEST = Text("the text says 1 to 140; from the published means and spreads it follows that 148.7 is reached")
_FIGURES = {
    ("Solar", "GLM"): ("1", "fig1_solar_glm", ""),
    ("GLM", "INTELLECT"): ("3", "fig3_glm_intellect", ""),
    ("Phi", "Solar"): ("4a", "fig4a_phi_solar", "phi_solar_L0_31"),
    ("GLM", "Phi"): ("4b", "fig4b_glm_phi", "glm_phi_L0_31"),
}
_CATEGORY = {Role.INPUT_NORM: "norm_pre", Role.POST_ATTENTION_NORM: "norm_post"}
_FIRST_LENGTH = {Role.INPUT_NORM: 2.80, Role.POST_ATTENTION_NORM: 10.17}
_LEVELS = {"GLM": 1.0, "Phi": 0.8}


def printed() -> dict[str, Any]:
    """Return the numbers that the published figures print."""
    found: dict[str, Any] = published()["sionic_tables"]["figure_annotations"]
    return found


class Freedom(TypedDict):
    """What a check says of a number that no replica is made to have."""

    reason: Text | None
    comparable: bool


def free(run: StudyRun) -> Freedom:
    """Return, on replicas, that a number is not fixed by them, so that neither result would mean anything."""
    replicas = run.request.replicas
    return {"reason": UNCONSTRAINED if replicas else None, "comparable": not replicas}


def known_pair(pair: LayerPair, known: Mapping[str, object]) -> str | None:
    """Return the name under which a publication lists a pair, in either order."""
    return next((name for name in (f"{pair.a}-{pair.b}", f"{pair.b}-{pair.a}") if name in known), None)


def best_layer_checks(pair: LayerPair) -> list[Check]:
    """Figures 1, 3, 4: the layer with the largest cosine, its cosine and Pearson, and the lines where they were read."""
    if (pair.a, pair.b) not in _FIGURES:
        return []
    figure, key, line = _FIGURES[pair.a, pair.b]
    shown, best = printed()[key], pair.best
    named = {"a": pair.a, "b": pair.b, "figure": figure}
    close = ROUNDING if shown["cos"] == 1.0 else None
    what = Text("figure {figure}: layer with the largest cosine, {a} and {b}", **named)
    found = [Check(what, shown["best_layer"], float(pair.layers[best]), 0, reason=close, within=0.0)]
    what = Text("figure {figure}: largest cosine, {a} and {b}", **named)
    found.append(Check(what, shown["cos"], float(pair.cosine[best]), 2))
    what = Text("figure {figure}: Pearson of that layer, {a} and {b}", **named)
    found.append(Check(what, shown["r"], float(pair.pearson[best]), 2))
    if figure == "1" and 0 in pair.layers:
        what = Text("figure 1(c): least cosine of any layer")
        found.append(Check(what, 0.94, float(np.nanmin(pair.cosine)), 2, "wrong", EVERYWHERE))
    read = published()["sionic_tables"]["fig4_panel_c_cosine_read_from_png"].get(line, ())
    for layer, cosine in zip(pair.layers, pair.cosine, strict=True):
        if layer < len(read):
            what = Text("figure {figure}(c): cosine, layer {layer}", figure=figure, layer=layer)
            found.append(Check(what, read[layer], float(cosine), 3, "picture", OFF_PICTURE, within=0.003))
    return found


def changed_checks(layers: Sequence[int], rows: Sequence[Sequence[Cell]]) -> list[Check]:
    """Figure 3-1: share of changed elements, and mean absolute difference."""
    picture = published()["sionic_tables"]["fig3_1_read_from_png"]
    share, gap = (
        {layer: float(row[at]) for layer, row in zip(layers, rows, strict=True)}  # type: ignore[arg-type]
        for at in (1, 3)
    )
    found: list[Check] = []

    def add_share(layer: int, value: float, digits: int, trust: Trust, reason: Text | None = None) -> None:
        if layer in share:
            what = Text("figure 3-1: elements changed, %, layer {layer}", layer=layer)
            found.append(Check(what, value, share[layer], digits, trust, reason))

    def add_gap(layer: int, value: float, trust: Trust, reason: Text | None = None) -> None:
        if layer in gap:
            what, digits = Text("figure 3-1: mean absolute difference, layer {layer}", layer=layer), _decimals(value)
            # what rounding hides and no more: differences of millionths would be lost in the allowance for BF16 vectors
            half_unit = 0.5 * 10.0**-digits * (1 + 1e-6)
            found.append(Check(what, value, gap[layer], digits, trust, reason, within=half_unit))

    for layer, value in picture["changed_pct_approx"].items():
        add_share(int(layer), value, 1 if value % 1 else 0, "picture")
    late = [value for layer, value in share.items() if layer >= 16]
    if late:
        what = Text("figure 3-1: elements changed, %, largest from layer 16 on")
        found.append(Check(what, picture["layers16plus_pct_max"], max(late), 1, "picture"))
    for layer, value in picture["mean_abs_diff_approx"].items():
        add_gap(int(layer), value, "picture")
    add_share(2, 90.0, 0, "wrong", OVER_NINETY)
    add_gap(40, 1e-6, "wrong", MILLIONTH)
    return found


def _decimals(value: float) -> int:
    """Return the decimals of a number that was written with as few digits as it needs."""
    mantissa, exponent = f"{value:.6e}".split("e")
    return len(mantissa.rstrip("0").partition(".")[2]) - int(exponent)


def diagonal_checks(pair: LayerPair) -> list[Check]:
    """Figure 5: mean Pearson of the same layer."""
    known = printed()["fig5_diag_mean_r"]
    key = known_pair(pair, known)
    what = Text("figure 5: mean Pearson of the same layer, {a} and {b}", a=pair.a, b=pair.b)
    return [] if key is None else [Check(what, known[key], pair.mean_pearson, 3)]


def statistics_checks(name: str, role: Role, lines: Sequence[Sequence[float]]) -> list[Check]:
    """Figure 8: means, spreads and lengths; `lines` are (layer, mean, sd, least, largest, length)."""
    by_layer = {int(line[0]): line for line in lines}
    found: list[Check] = []
    named = {"model": name, "role": role.value}
    category, side = _CATEGORY.get(role), {"Solar": "A", "GLM": "B"}.get(name)
    for layer, row in sorted(layerwise(category).items()) if category and side else ():
        if layer % 5 == 0 and layer in by_layer:
            what = Text("mean of {model}, {role}, layer {layer}", layer=layer, **named)
            found.append(Check(what, row[f"{side}_mean"], by_layer[layer][1]))
            what = Text("sd of {model}, {role}, layer {layer}", layer=layer, **named)
            found.append(Check(what, row[f"{side}_std"], by_layer[layer][2]))
    if name == "Solar" and role in _FIRST_LENGTH and 0 in by_layer:
        what = Text("length of {model}, {role}, layer {layer}", layer=0, **named)
        found.append(Check(what, _FIRST_LENGTH[role], by_layer[0][5], 2, "text"))
    if name == "GLM" and role is Role.POST_ATTENTION_NORM:
        what = Text("largest length of {model}, {role}", **named)
        found.append(Check(what, 140.0, max(line[5] for line in lines), 0, "wrong", LONGEST))
    if name in _LEVELS and role is Role.INPUT_NORM:
        what = Text("figure 8: level of {model} (mean over layers)", model=name)
        level = sum(line[1] for line in lines) / len(lines)
        found.append(Check(what, _LEVELS[name], level, 1, "wrong", LEVEL))
    return found


def text_check(
    what: Text, value: float, measured: float | None, digits: int, wrong: Text | None, remark: Text | None = None,
    *, comparable: bool = True,
) -> Check:  # fmt: skip
    """Return a check of a number that only the text has; wrong if there is a reason why."""
    trust: Trust = "text" if wrong is None else "wrong"
    within = 0.0 if isinstance(value, int) else None  # a count is right or wrong
    return Check(what, value, measured, digits, trust, remark if wrong is None else wrong, within, comparable)
