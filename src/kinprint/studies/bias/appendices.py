"""Recompute the two appendices of the bias study: one pair of models layer by layer (D), all pairs over the same layers (E)."""

import math

from kinprint.arch import Naming, Role
from kinprint.model.model import Model
from kinprint.studies.bias.matrices import JOINT, SUMMARY, joint_cells, layer_grid, note_joint
from kinprint.studies.bias.pairs import note_siblings
from kinprint.studies.bias.shared import INPUT, compared_pairs, lag_one, naive_t, pair_sides
from kinprint.studies.layer_pairs import LayerPair, finite_mean, finite_median
from kinprint.studies.opened import StudyRun, each
from kinprint.studies.outcome import Cell, Section, columns
from kinprint.studies.published import published
from kinprint.text import Text

_DIAGONAL_STEP = 5
_SAMPLES = ((0, 23), (10, 30), (20, 5), (25, 40), (35, 10), (46, 0))
_COLUMNS = columns(
    "layer_a; layer_b; cosine; cosine_null: cosine if independent .4; published_cosine: cosine as published .4; pearson; z; "
    "published_pearson: Pearson as published .4"
)
_BASICS = columns(
    "a; b; layers; cosine_mean: mean cosine .4; cosine_median: median cosine .4; "
    "cosine_null: mean cosine if independent .4; pearson_mean: mean Pearson .4; pearson_median: median Pearson .4"
)
_BEST = columns(
    "best_layer: best layer; best_cosine: its cosine .4; best_pearson: its Pearson .4; "
    "lag_one: autocorrelation of neighbouring layers .2; naive_t: t if layers were independent .2"
)


def appendix_d(run: StudyRun, section: Section, role: Role, a: str, b: str) -> None:
    """Repeat appendix D: the same layer, samples of different layers, and a summary, for two models."""
    grid = layer_grid(run, a, b, role)
    named = {"a": a, "b": b, "role": role.value}
    whole = run.request.layers is None
    section.comparable = (a, b) == ("Solar", "GLM") and run.original(a, b)
    printed = _printed() if section.comparable and role is INPUT and whole else {}
    diagonal = [(layer, layer) for layer in grid.shared]
    others = [pair for pair in _SAMPLES if pair[0] in grid.rows and pair[1] in grid.columns]
    others = others if len(others) > 2 else _corners(grid.rows, grid.columns)
    for name, title, chosen in (
        (
            "same",
            Text("Appendix D: the same layer of {a} and {b}, {role}", **named),
            diagonal[:: _DIAGONAL_STEP if whole else 1],
        ),
        ("different", Text("Appendix D: different layers of {a} and {b}, {role}", **named), others),
    ):
        rows = []
        for pair in chosen:
            cosine, null, *tested = grid.at(*pair, "cosine", "cosine_null_mean", "pearson", "z")
            said = printed.get(pair, (None, None))
            rows.append((*pair, cosine, null, said[0], *tested, said[1]))
        section.add_table(f"d_{name}_{role.value}", title, _COLUMNS, rows)
    title = Text("Appendix D: summary of {a} and {b}, {role}", **named)
    section.add_table(f"d_summary_{role.value}", title, SUMMARY, grid.summary())
    if printed:
        for name in ("cosine", "pearson"):
            same, different = grid.split(name)
            section.values[f"difference {name}"] = float(same.mean() - different.mean())
        section.note(
            "The columns of published values show appendix D-2 as printed; the list of published figures says what "
            "is wrong with it."
        )


def _corners(rows: tuple[int, ...], others: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return some different layers of models that are too shallow for the published samples."""
    middle = rows[len(rows) // 2], others[len(others) // 2]
    wanted = ((rows[0], middle[1]), (middle[0], others[0]), (rows[0], others[-1]), (rows[-1], others[0]))
    return [pair for pair in dict.fromkeys(wanted) if pair[0] != pair[1]]


def _printed() -> dict[tuple[int, int], tuple[float, float]]:
    """Return (cosine, Pearson) as printed, by pair of layers."""
    known = published()["sionic_tables"]
    same, rows = known["D2_1_diagonal"], known["D2_2_offdiag"]["rows"]
    found = {(int(x), int(x)): (c, r) for x, c, r in zip(same["layer"], same["cosine"], same["pearson"], strict=True)}
    return found | {(int(p), int(q)): (c, r) for p, q, c, r in rows}


def appendix_e(run: StudyRun, section: Section, role: Role) -> None:
    """Repeat appendix E: all pairs over the same layers, with means, medians and one test; best layers apart."""
    note_siblings(run, section)
    note_joint(run, section)
    if not section.tables:
        _add_models(run, section)
    section.note(
        "Means and medians are over the same layers for all pairs, those that all models have; the second table "
        "takes all layers that a pair shares, and states the best layer apart. A best layer is no summary: it is "
        "the largest of many."
    )
    found = compared_pairs(run, role, section.missing)
    if not found:
        return
    common = sorted(set.intersection(*(set(pair.layers) for pair in found)))

    def over_common(pair: LayerPair) -> tuple[Cell, ...]:
        return *_basics(part := pair.only(common)), *joint_cells(run, part)

    def over_own(pair: LayerPair) -> tuple[Cell, ...]:
        at_best = pair.layers[pair.best], float(pair.cosine[pair.best]), float(pair.pearson[pair.best])
        return *_basics(pair), *at_best, lag_one(pair.pearson), naive_t(pair.pearson)

    if common:
        named: dict[str, int | str] = {"count": len(common), "role": role.value}
        title = Text("Appendix E: all pairs over the {count} layers that all have, {role}", **named)
        rows = each(section.missing, found, over_common, pair_sides)
        section.add_table(f"e_same_layers_{role.value}", title, (*_BASICS, *JOINT), rows)
    title = Text("Appendix E: all pairs, each over all layers it shares, {role}", role=role.value)
    rows = each(section.missing, found, over_own, pair_sides)
    section.add_table(f"e_own_layers_{role.value}", title, (*_BASICS, *_BEST), rows)
    section.add_picture(f"e_{role.value}", "bias.pair_strips", found, role.value, role=role.value)


def _add_models(run: StudyRun, section: Section) -> None:
    rows: list[tuple[Cell, ...]] = []
    for name in run.names:
        layers, left_out = run.depth(name), _left_out(run.model(name).naming)
        rows.append((name, layers, left_out or None, run.width(name), _parameters(run.model(name)) / 1e9))
        if left_out:
            section.note(
                "{model}: what is stored under layer {index} only predicts further tokens and is left out "
                "everywhere; {count} layers remain.",
                model=name,
                index=left_out,
                count=layers,
            )
    heads = columns("model; layers; left_out: layers left out; width; parameters: parameters, billions .2")
    section.add_table("e_models", Text("Appendix E: the models"), heads, rows)


def _parameters(model: Model) -> int:
    """Return the number of parameters without those of blocks that are left out."""
    aside = {item.name for item in model.naming.excluded}
    shapes = model.checkpoint.tensors.shapes()
    return sum(math.prod(shape) for name, shape in shapes.items() if name not in aside)


def _left_out(naming: Naming) -> str:
    """Return the indices of stored blocks beyond the layers that count."""
    numbers = (next((part for part in item.name.split(".") if part.isdigit()), "-1") for item in naming.excluded)
    return ", ".join(str(index) for index in sorted({int(number) for number in numbers}) if index >= naming.layers)


def _basics(pair: LayerPair) -> tuple[Cell, ...]:
    cosine, null = (finite_mean(pair.cosine), finite_median(pair.cosine)), finite_mean(pair.null_mean)
    return pair.a, pair.b, len(pair.layers), *cosine, null, pair.mean_pearson, finite_median(pair.pearson)
