"""Compare every layer of A with every layer of B, role by role, for the report's heatmaps; no verdict rests on these grids."""

import math
from collections import Counter
from collections.abc import Mapping

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.arch import Axis, Role
from kinprint.arch.roles import permuted_axis
from kinprint.errors import DegenerateInput
from kinprint.evidence.probe import Probe
from kinprint.model.reader import Sample
from kinprint.results.context import UNITS, LayerGrid, packed
from kinprint.results.findings import NOTHING_SAID
from kinprint.results.measurements import NOT_COMPARABLE
from kinprint.stats.layer_grid import CentredMatrices, centred_grid
from kinprint.stats.moments import check_magnitude
from kinprint.text import Text

MOST_CELLS = 5 << 19  # of all grids together; they take 56 MB of the 128 MB that a report may have
MOST_ELEMENTS = 1 << 20  # of one role's slices on one side: what is shown needs no more rows than that
Slices = Mapping[int, Sample]  # of one role, by layer
ASSUMPTIONS = (
    Text("units of the permuted axis are exchangeable if the models are unrelated"),
    Text("each cell stands alone: with L × M of them, some exceed 3 by chance; no verdict rests on this picture"),
)


def layer_grids(a: Probe, b: Probe) -> tuple[tuple[LayerGrid, ...], Text | None]:
    """Return a grid for every role that has layers and no experts, of what was read, and a note if not all layers found room."""
    read = [{role for role, layer, expert in probe.samples if layer is not None and expert is None} for probe in (a, b)]
    roles = [role for role in Role if role in read[0] & read[1]]  # what only one model has is listed as not compared
    most = math.isqrt(MOST_CELLS // max(1, len(roles)))
    note = Text("layer grids hold {n} evenly spaced layers of each model at most; all else is of all layers", n=most)
    few, found = (a.thinned(most), b.thinned(most)), []
    for role in roles:
        left, right = ({n: x for n, x in probe.of(role).items() if n is not None} for probe in few)
        kind = "matrix" if role.info.kind == "matrix" else "vector"
        try:
            found.append(_grid(role, kind, left, right, {**a.ordered, **b.ordered}))
        except DegenerateInput as error:
            no = ((), (), "", 0, NOTHING_SAID)
            found.append(LayerGrid(role.value, kind, *no, status=NOT_COMPARABLE, reason=error.reason))
    return tuple(found), None if few[0] is a and few[1] is b else note


def _grid(role: Role, kind: str, left: Slices, right: Slices, ordered: Mapping[Axis, Text]) -> LayerGrid:
    axis, name = permuted_axis(role, ordered)
    if axis is None:
        raise DegenerateInput("no axis may be permuted: {why}", why=name)
    place = _usual_place(left, right)
    one, two = ({n: x for n, x in sorted(side.items()) if _place(x) == place and x.finite} for side in (left, right))
    if not one or not two:
        raise DegenerateInput("no two layers have slices of the same shape and place, without NaN or infinity")
    shape = next(iter(one.values())).stored.shape
    units = shape[axis] if len(shape) == 2 else shape[0]
    rows = max(1, min(math.prod(shape) // max(1, units), MOST_ELEMENTS // max(1, max(len(one), len(two)) * units)))
    for name_of_side, side in (("A", one), ("B", two)):
        check_magnitude(max(sample.largest for sample in side.values()), name_of_side)
    # one side after the other: a stack is as large as all that grids hold else
    pairs = centred_grid(*[CentredMatrices.of(_stacked(side, axis, rows)) for side in (one, two)])
    grids = (getattr(pairs, part) for part in UNITS)
    cells = packed(*([[x if math.isfinite(x) else None for x in row] for row in grid.tolist()] for grid in grids))
    null = Text("permuted {axis} indices, for each pair alone", axis=name)
    used = None if kind == "vector" else (0, rows)
    return LayerGrid(role.value, kind, tuple(one), tuple(two), cells, units, null, ASSUMPTIONS, used)


def _usual_place(left: Slices, right: Slices) -> object:
    """Return the shape and place that most slices of both models have, None if they have none in common."""
    counts = [Counter(_place(sample) for sample in side.values()) for side in (left, right)]
    common = sorted(counts[0].keys() & counts[1].keys(), key=str)
    return max(common, key=lambda place: counts[0][place] + counts[1][place], default=None)


def _place(sample: Sample) -> tuple[object, ...]:
    return sample.stored.shape, sample.rows, sample.columns


def _stacked(side: Slices, axis: int, rows: int) -> FloatArray:
    """Return layers × rows × units, the units being what is permuted."""
    first = next(iter(side.values())).stored

    def turned(sample: Sample) -> FloatArray:
        if first.ndim < 2:
            return sample.values[None]
        return sample.part(slice(None), slice(rows)).T if axis == 0 else sample.part(slice(rows))

    shape = turned(next(iter(side.values()))).shape
    stacked = np.empty((len(side), *shape))
    for layer, sample in zip(stacked, side.values(), strict=True):
        layer[:] = turned(sample)
    return stacked
