"""Choose the models, layers and arrangements of the metrics study, and measure all pairs once for all its parts."""

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
from kinprint.model.reader import Want
from kinprint.studies.metrics import tensor_pairs
from kinprint.studies.metrics.tensor_pairs import ComparedTensor, MeasuredValue, TensorStatistics
from kinprint.studies.opened import ModelWant, StudyRun, attempt, each
from kinprint.studies.outcome import Missing
from kinprint.text import Text

ModelLayer: TypeAlias = tuple[str, int]  # a model and a layer: with a role, a tensor
ROLES = (Role.INPUT_NORM, Role.POST_ATTENTION_NORM, Role.ATTN_K, Role.ATTN_V)
LAYERS = (10, 20, 30)
MAX_LAYERS = 6  # pairs, and with them nulls, grow with the square
WITHIN_ONLY = ("Qwen3-4B", "Qwen3-14B")
"""Models that the original compares only with themselves; their width is their own."""


@dataclass(frozen=True)
class TensorGroup:
    """Tensors that are compared with each other."""

    title: str
    members: tuple[ModelLayer, ...]
    labels: tuple[str, ...]

    @property
    def pairs(self) -> list[tuple[ModelLayer, ModelLayer]]:
        """All pairs, each once."""
        return list(itertools.combinations(self.members, 2))


@dataclass(frozen=True)
class MeasureGrid:
    """A matrix of one measure: labels, values, and the null of each cell (NaN: none)."""

    title: str
    labels: tuple[str, ...]
    values: FloatArray
    null_mean: FloatArray
    null_sd: FloatArray
    remark: str = ""


@dataclass
class MeasuredPairs:
    """Measured pairs of tensors of all roles, with the statistics of each tensor."""

    roles: tuple[Role, ...]
    arrangements: dict[str, list[TensorGroup]]
    statistics: dict[tuple[Role, ModelLayer], TensorStatistics] = field(default_factory=dict)
    pairs: dict[tuple[Role, ModelLayer, ModelLayer], dict[str, MeasuredValue]] = field(default_factory=dict)
    notes: list[Text] = field(default_factory=list)
    missing: list[Text] = field(default_factory=list)

    def get(self, role: Role, a: ModelLayer, b: ModelLayer, measure: str) -> MeasuredValue | None:
        """Return one measure of one pair, in this order; None if it could not be measured."""
        if (role, a, b) in self.pairs:
            return self.pairs[role, a, b][measure]
        if (role, b, a) not in self.pairs:
            return None
        # only this one has a side to it: it is divided by the norm of the first
        sided = measure == "rel_l2_a"
        factor = self.statistics[role, b].norm / self.statistics[role, a].norm if sided else 1.0
        return self.pairs[role, b, a][measure].times(factor)

    def grid(self, role: Role, group: TensorGroup, measure: str) -> MeasureGrid:
        """Return the matrix of a group; the diagonal, a tensor against itself, is left empty."""
        values, mean, sd = np.full((3, len(group.members), len(group.members)), np.nan)
        for (i, a), (j, b) in itertools.permutations(enumerate(group.members), 2):
            if found := self.get(role, a, b, measure):
                cell = (found.value, found.null_mean, found.null_sd)
                values[i, j], mean[i, j], sd[i, j] = (np.nan if x is None else x for x in cell)
        known = [self.statistics[role, one] for one in group.members if (role, one) in self.statistics]
        near_zero = measure == "cv_diff" and not all(one.meaningful_cv for one in known)
        remark = "no meaning (mean near zero)" if near_zero else ""
        return MeasureGrid(f"{role.value}, {group.title}", group.labels, values, mean, sd, remark)


def compared(run: StudyRun) -> tuple[str, ...]:
    """Return the models that take part in the matrices: all, but those of `WITHIN_ONLY` if no other has their width."""
    widths = {name: run.width(name) for name in run.names}
    alone = {name for name in WITHIN_ONLY if run.original(name) and [*widths.values()].count(widths[name]) == 1}
    return tuple(name for name in run.names if name not in alone) or run.names


def chosen_layers(run: StudyRun) -> tuple[int, ...]:
    """Return the layers asked for, else 10, 20, 30, else (shallow models) the quarter points of the shallowest."""
    asked = run.request.layers
    if asked is not None:
        even = np.linspace(0, len(asked) - 1, min(MAX_LAYERS, len(asked))).round().astype(int)
        return tuple(asked[i] for i in even)
    depths = [run.depth(name) for name in compared(run)]
    if sum(depth > max(LAYERS) for depth in depths) >= min(2, len(depths)):
        return LAYERS
    return tuple(sorted({min(depths) * quarter // 4 for quarter in (1, 2, 3)})) if depths else ()


def arrangements(run: StudyRun) -> dict[str, list[TensorGroup]]:
    """Return the groups of the three arrangements: same layer, mixed layers, within a model."""
    names, layers = compared(run), chosen_layers(run)
    same = [TensorGroup(f"layer {layer}", tuple((name, layer) for name in names), names) for layer in layers]
    steps = np.linspace(0, len(layers) - 1, len(names)).round().astype(int) if layers else ()
    members = tuple((name, layers[i]) for name, i in zip(names, steps, strict=False))
    mixed = [TensorGroup("mixed layers", members, tuple(f"{name} {layer}" for name, layer in members))]
    labels = tuple(f"L{layer}" for layer in layers)
    within = [TensorGroup(name, tuple((name, n) for n in layers), labels) for name in names]
    several, apart = len(names) > 1, len(layers) > 1
    return {"same_layer": same * several, "mixed": mixed * (several and apart), "within": within * apart}


def wants(run: StudyRun) -> Iterator[ModelWant]:
    """Yield the vectors of the matrices. Matrices are read role by role, and not kept."""
    vectors = [role for role in run.request.roles or ROLES if role.info.kind != "matrix"]
    for role, name, layer in itertools.product(vectors, compared(run), chosen_layers(run)):
        yield (name, Want(role, layer))


def measured(run: StudyRun) -> MeasuredPairs:
    """Return all measurements of a run, which the parts of the study share."""
    return run.once("measurements", partial(_measure, run))


def _measure(run: StudyRun) -> MeasuredPairs:
    found = MeasuredPairs(run.request.roles or ROLES, arrangements(run))
    _remarks(run, found)
    groups = list(itertools.chain.from_iterable(found.arrangements.values()))
    members = list(dict.fromkeys(one for group in groups for one in group.members))
    members = members or list(itertools.product(compared(run), chosen_layers(run)))
    pairs = dict.fromkeys(pair for group in groups for pair in group.pairs)
    for number, role in enumerate(found.roles):
        run.progress(f"measuring {role.value}", number, len(found.roles))
        tensors = _tensors(run, role, members, found.missing)
        found.statistics |= {(role, one): tensor.statistics for one, tensor in tensors.items()}
        there = [(a, b) for a, b in pairs if a in tensors and b in tensors]
        each(found.missing, there, partial(_one_pair, run, found, role, tensors))
    found.missing[:] = dict.fromkeys(found.missing)
    return found


def _remarks(run: StudyRun, found: MeasuredPairs) -> None:
    names, asked = compared(run), run.request.layers
    alone = ", ".join(name for name in run.names if name not in names)
    if alone:
        said = "{models}: compared only with themselves, as in the original (last part); their width is their own."
        found.notes.append(Text(said, models=alone))
    if len(names) < 2:
        found.missing.append(Text("comparing models needs two of them; this run has {count}", count=len(names)))
    if asked is not None and len(asked) > MAX_LAYERS:
        chosen = ", ".join(str(layer) for layer in chosen_layers(run))
        said = "{count} layers were asked for, {most} is the most; compared: {chosen}"
        found.missing.append(Text(said, count=len(asked), most=MAX_LAYERS, chosen=chosen))
    others = [role.value for role in found.roles if role.info.scope != "layer"]
    found.missing += [Text("{role} is not a role of a layer with one tensor", role=role) for role in others]


def _tensors(
    run: StudyRun, role: Role, members: Sequence[ModelLayer], missing: list[Text]
) -> dict[ModelLayer, ComparedTensor]:
    """Read one role of all models and layers, and take the statistics of each tensor."""
    there = [one for one in members if attempt(missing, partial(run.part, one[0], role, one[1])) is not None]
    ordered: dict[Axis, Text] = {}  # axes that have an order in one of the models, and may not be permuted then
    for name in run.names:
        ordered |= ordered_axes(run.model(name).checkpoint.config)
    tensors: dict[ModelLayer, ComparedTensor] = {}
    for (name, layer), values in _read(run, role, there):
        tensor = attempt(missing, partial(_tensor, run, role, name, layer, values, ordered))
        if tensor is not None:
            tensors[name, layer] = tensor
        if tensor is not None and tensor.values.size < math.prod(tensor.statistics.shape):
            said = "{role}: of the rows of {model}, {most} evenly spaced ones are compared"
            missing.append(Text(said, role=role.value, model=name, most=tensor_pairs.MAX_ROWS))
    return tensors


def _read(run: StudyRun, role: Role, members: Sequence[ModelLayer]) -> Iterator[tuple[ModelLayer, Array | None]]:
    """Yield matrices as stored, layer by layer, so that few are held at a time; None for vectors, which the run holds."""
    if role.info.kind != "matrix":
        yield from ((one, None) for one in members)
        return
    groups = [[one for one in members if one[1] == layer] for layer in dict.fromkeys(layer for _, layer in members)]
    reads = [[(name, Want(role, layer)) for name, layer in group] for group in groups]
    for group, arrays in zip(groups, run.stream(reads), strict=True):
        yield from zip(group, arrays, strict=True)


def _tensor(
    run: StudyRun, role: Role, name: str, layer: int, matrix: Array | None, ordered: dict[Axis, Text]
) -> ComparedTensor:
    values = run.values(name, role, layer) if matrix is None else matrix
    if not np.isfinite(values).all():
        said = "{model}: {role} of layer {layer} holds values that are not finite"
        raise Missing(said, model=name, role=role.value, layer=layer)
    return tensor_pairs.compared_tensor(values, role, run.stored(name, role, layer), ordered)


def _one_pair(
    run: StudyRun,
    found: MeasuredPairs,
    role: Role,
    tensors: dict[ModelLayer, ComparedTensor],
    pair: tuple[ModelLayer, ModelLayer],
) -> None:
    a, b = pair
    try:
        measures = tensor_pairs.measure_pair(role, a[0], tensors[a], b[0], tensors[b], seed=run.request.seed)
        found.pairs[role, a, b] = measures
    except DegenerateInput as error:
        said = "{role}, {a} layer {i} and {b} layer {j}: {why}"
        raise Missing(said, role=role.value, a=a[0], i=a[1], b=b[0], j=b[1], why=error.reason) from error
