"""What the metrics study compares: which models at which layers, in which arrangements; measured once for all its parts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.arch import Axis, Role, ordered_axes
from kinprint.errors import DegenerateInput
from kinprint.formats.dtypes import Array
from kinprint.studies.metrics.pairs import MAX_ROWS, Facts, Measured, Side, measure_pair, side_of
from kinprint.studies.opened import Stage, Want, attempt
from kinprint.studies.outcome import Missing
from kinprint.text import Text

Spot: TypeAlias = tuple[str, int]
"""A model and a layer."""

ROLES = (Role.INPUT_NORM, Role.POST_ATTENTION_NORM, Role.ATTN_K, Role.ATTN_V)
LAYERS = (10, 20, 30)
MAX_LAYERS = 6  # pairs, and with them nulls, grow with the square
WITHIN_ONLY = ("Qwen3-4B", "Qwen3-14B")
"""Models that the original compares only with themselves; their width is their own."""


@dataclass(frozen=True)
class Group:
    """Tensors that are compared with each other."""

    title: str
    spots: tuple[Spot, ...]
    labels: tuple[str, ...]

    @property
    def pairs(self) -> list[tuple[Spot, Spot]]:
        """All pairs, each once."""
        return list(itertools.combinations(self.spots, 2))


@dataclass(frozen=True)
class Grid:
    """A matrix of one measure: labels, values, and the null of each cell (NaN: none)."""

    title: str
    labels: tuple[str, ...]
    values: FloatArray
    null_mean: FloatArray
    null_sd: FloatArray
    remark: str = ""


@dataclass
class Measurements:
    """All pairs of all roles."""

    roles: tuple[Role, ...]
    arrangements: dict[str, list[Group]]
    facts: dict[tuple[Role, Spot], Facts] = field(default_factory=dict)
    pairs: dict[tuple[Role, Spot, Spot], dict[str, Measured]] = field(default_factory=dict)
    notes: list[Text] = field(default_factory=list)
    missing: list[Text] = field(default_factory=list)

    def get(self, role: Role, a: Spot, b: Spot, measure: str) -> Measured | None:
        """Return one measure of one pair, in this order; None if it could not be had."""
        if (role, a, b) in self.pairs:
            return self.pairs[role, a, b][measure]
        if (role, b, a) not in self.pairs:
            return None
        found = self.pairs[role, b, a][measure]
        # only this one has a side to it: it is divided by the norm of the first
        turned = self.facts[role, b].norm / self.facts[role, a].norm if measure == "rel_l2_a" else 1.0
        return found.times(turned)

    def grid(self, role: Role, group: Group, measure: str) -> Grid:
        """Return the matrix of a group; the diagonal, where a tensor meets itself, is left empty."""
        size = len(group.spots)
        values, mean, sd = (np.full((size, size), np.nan) for _ in range(3))
        for (i, a), (j, b) in itertools.permutations(enumerate(group.spots), 2):
            found = self.get(role, a, b, measure)
            if found is not None:
                values[i, j] = found.value
                mean[i, j] = np.nan if found.null_mean is None else found.null_mean
                sd[i, j] = np.nan if found.null_sd is None else found.null_sd
        facts = [self.facts[role, spot] for spot in group.spots if (role, spot) in self.facts]
        near_zero = measure == "cv_diff" and not all(side.meaningful_cv for side in facts)
        remark = "no meaning (mean near zero)" if near_zero else ""
        return Grid(f"{role.value}, {group.title}", group.labels, values, mean, sd, remark)


# -- what is compared ----------------------------------------------------------------------------------------------------


def roles_of(stage: Stage) -> tuple[Role, ...]:
    """Return the roles asked for, else those of the original."""
    return stage.request.roles or ROLES


def compared(stage: Stage) -> tuple[str, ...]:
    """Return the models that take part in the matrices: all, but those of `WITHIN_ONLY` if no other has their width."""
    widths = [stage.width(name) for name in stage.names]
    kept = tuple(
        name
        for name in stage.names
        if not (name in WITHIN_ONLY and stage.original(name) and widths.count(stage.width(name)) == 1)
    )
    return kept or stage.names


def chosen_layers(stage: Stage) -> tuple[int, ...]:
    """Return the layers asked for, else 10, 20, 30, else (shallow models) the quarter points of the shallowest."""
    asked = stage.request.layers
    if asked is not None:
        even = np.linspace(0, len(asked) - 1, min(MAX_LAYERS, len(asked))).round().astype(int)
        return tuple(asked[i] for i in even)
    depths = [stage.depth(name) for name in compared(stage)]
    if sum(depth > max(LAYERS) for depth in depths) >= min(2, len(depths)):
        return LAYERS
    return tuple(sorted({min(depths) * quarter // 4 for quarter in (1, 2, 3)})) if depths else ()


def arrangements(stage: Stage) -> dict[str, list[Group]]:
    """Return the groups of the three arrangements: same layer, mixed layers, within a model."""
    names, layers = compared(stage), chosen_layers(stage)
    found: dict[str, list[Group]] = {"same_layer": [], "mixed": [], "within": []}
    if len(names) > 1 and layers:
        found["same_layer"] = [
            Group(f"layer {layer}", tuple((name, layer) for name in names), names) for layer in layers
        ]
        if len(layers) > 1:
            steps = np.linspace(0, len(layers) - 1, len(names)).round().astype(int)
            spots = tuple((name, layers[i]) for name, i in zip(names, steps, strict=True))
            found["mixed"] = [Group("mixed layers", spots, tuple(f"{name} {layer}" for name, layer in spots))]
    if len(layers) > 1:
        found["within"] = [
            Group(name, tuple((name, layer) for layer in layers), tuple(f"L{layer}" for layer in layers))
            for name in names
        ]
    return found


def wants(stage: Stage) -> Iterator[Want]:
    """Yield the vectors of the matrices. Matrices are read role by role, and not kept."""
    for role, name, layer in itertools.product(_vectors(stage), compared(stage), chosen_layers(stage)):
        yield Want(name, role, layer)


def _vectors(stage: Stage) -> list[Role]:
    return [role for role in roles_of(stage) if role.info.kind != "matrix"]


# -- measuring ------------------------------------------------------------------------------------------------------------


def measured(stage: Stage) -> Measurements:
    """Return all measurements of a run, which the parts of the study share."""
    return stage.once("measurements", partial(_measure, stage))


def _measure(stage: Stage) -> Measurements:
    found = Measurements(roles_of(stage), arrangements(stage))
    _remarks(stage, found)
    groups = [group for groups in found.arrangements.values() for group in groups]
    spots = list(dict.fromkeys(spot for group in groups for spot in group.spots))
    spots = spots or list(itertools.product(compared(stage), chosen_layers(stage)))
    pairs = list(dict.fromkeys(pair for group in groups for pair in group.pairs))
    for number, role in enumerate(found.roles):
        stage.progress(f"measuring {role.value}", number, len(found.roles))
        sides = _sides(stage, role, spots, found.missing)
        found.facts |= {(role, spot): side.facts for spot, side in sides.items()}
        for a, b in pairs:
            if a in sides and b in sides:
                attempt(found.missing, partial(_one_pair, stage, found, role, (a, b), sides))
    found.missing[:] = list({text.render(): text for text in found.missing}.values())
    return found


def _remarks(stage: Stage, found: Measurements) -> None:
    names, asked = compared(stage), stage.request.layers
    alone = [name for name in stage.names if name not in names]
    if alone:
        found.notes.append(
            Text(
                "{models}: compared only with themselves, as in the original (last part); their width is their own.",
                models=", ".join(alone),
            )
        )
    if len(names) < 2:
        found.missing.append(Text("comparing models needs two of them; this run has {count}", count=len(names)))
    if asked is not None and len(asked) > MAX_LAYERS:
        chosen = ", ".join(str(layer) for layer in chosen_layers(stage))
        found.missing.append(
            Text(
                "{count} layers were asked for, {most} is the most; compared: {chosen}",
                count=len(asked),
                most=MAX_LAYERS,
                chosen=chosen,
            )
        )
    for role in found.roles:
        if role.info.scope != "layer":
            found.missing.append(Text("{role} is not a role of a layer with one tensor", role=role.value))


def _sides(stage: Stage, role: Role, spots: Sequence[Spot], missing: list[Text]) -> dict[Spot, Side]:
    """Read one role of all models and layers, and take the statistics of each tensor."""
    there: list[Spot] = []
    for name, layer in spots:
        try:
            stage.part(name, role, layer)
        except Missing as error:
            missing.append(error.text)
        else:
            there.append((name, layer))
    sides: dict[Spot, Side] = {}
    ordered = _ordered(stage)
    for spot, values in _read(stage, role, there):
        attempt(missing, partial(_add_side, stage, role, spot, values, ordered, sides))
        if spot in sides and sides[spot].values.size < math.prod(sides[spot].facts.shape):
            missing.append(
                Text(
                    "{role}: of the rows of {model}, {most} evenly spaced ones are compared",
                    role=role.value,
                    model=spot[0],
                    most=MAX_ROWS,
                )
            )
    return sides


def _read(stage: Stage, role: Role, spots: Sequence[Spot]) -> Iterator[tuple[Spot, Array | None]]:
    """Yield matrices as stored, layer by layer, so that few are held at a time; None for vectors, which the stage holds."""
    if role.info.kind != "matrix":
        yield from ((spot, None) for spot in spots)
        return
    layers = dict.fromkeys(layer for _, layer in spots)
    groups = [[spot for spot in spots if spot[1] == layer] for layer in layers]
    reads = [[Want(name, role, layer) for name, layer in group] for group in groups]
    for group, arrays in zip(groups, stage.stream(reads), strict=True):
        yield from zip(group, arrays, strict=True)


def _add_side(
    stage: Stage, role: Role, spot: Spot, matrix: Array | None, ordered: dict[Axis, str], sides: dict[Spot, Side]
) -> None:
    name, layer = spot
    values = stage.values(name, role, layer) if matrix is None else matrix
    if not np.isfinite(values).all():
        raise Missing(
            Text(
                "{model}: {role} of layer {layer} holds values that are not finite",
                model=name,
                role=role.value,
                layer=layer,
            )
        )
    sides[spot] = side_of(values, role, stage.stored(name, role, layer), ordered)


def _ordered(stage: Stage) -> dict[Axis, str]:
    """Return the axes that have an order in one of the models, and may not be permuted then."""
    found: dict[Axis, str] = {}
    for name in stage.names:
        found |= ordered_axes(stage.model(name).checkpoint.config)
    return found


def _one_pair(stage: Stage, found: Measurements, role: Role, pair: tuple[Spot, Spot], sides: dict[Spot, Side]) -> None:
    a, b = pair
    try:
        found.pairs[role, a, b] = measure_pair(role, a[0], sides[a], b[0], sides[b], seed=stage.request.seed)
    except DegenerateInput as error:
        raise Missing(
            Text(
                "{role}, {a} layer {i} and {b} layer {j}: {why}",
                role=role.value,
                a=a[0],
                i=a[1],
                b=b[0],
                j=b[1],
                why=error.message,
            )
        ) from error
