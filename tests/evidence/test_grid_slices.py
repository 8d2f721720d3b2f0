"""Of a layer grid, only the rows that are shown are converted, and those are the first."""

import numpy as np
import pytest

from kinprint.arch import Role
from kinprint.evidence import layer_grids
from kinprint.evidence.probe import Probe
from kinprint.model.reader import Sample
from kinprint.results.context import UNITS, packed
from kinprint.stats.layer_grid import matrix_grid

LAYERS = 3


def probe(seed, largest=1.0, shape=(8, 24)):
    rng = np.random.default_rng(seed)
    samples = {}
    for layer in range(LAYERS):
        values = rng.standard_normal(shape).astype(np.float64)
        values[-1, -1] = largest
        samples[Role.MLP_UP, layer, None] = Sample(values, "F64", shape)
    return Probe("model", LAYERS, samples=samples)


@pytest.mark.parametrize("axis", [0, 1])
def test_rows_are_cut_before_they_are_converted(axis, monkeypatch):
    monkeypatch.setattr(layer_grids, "permuted_axis", lambda *_: (axis, "some"))
    units, rows = ((8, 24)[axis], 2)
    monkeypatch.setattr(layer_grids, "MOST_ELEMENTS", LAYERS * units * rows)
    a, b = probe(1), probe(2)
    converted = []
    part = Sample.part
    monkeypatch.setattr(Sample, "part", lambda *asked: converted.append(part(*asked)) or converted[-1])
    (found,), _ = layer_grids.layer_grids(a, b)
    assert {values.size for values in converted} == {units * rows}
    whole = [np.stack([x.stored.astype(np.float64) for x in side.samples.values()]) for side in (a, b)]
    expected = matrix_grid(*((X.transpose(0, 2, 1) if axis == 0 else X)[:, :rows] for X in whole))
    monkeypatch.undo()
    assert (found.n, found.rows) == (units, (0, rows))
    assert found.cells == packed(*(getattr(expected, part).tolist() for part in UNITS))


def test_values_that_are_not_shown_are_still_held_to_the_range(monkeypatch):
    monkeypatch.setattr(layer_grids, "MOST_ELEMENTS", LAYERS * 24)
    (found,), _ = layer_grids.layer_grids(probe(1), probe(2, largest=1e70))
    assert "the largest value of B" in str(found.reason)
