"""Wants are planned without reading, cost what the plan says, and come back in the orientation and order asked for."""

import numpy as np
import pytest

from kinprint.arch import Role
from kinprint.errors import BudgetExceeded
from kinprint.model.model import open_model
from kinprint.model.reader import Sample, Want, read_together
from support.places import DEMO_MODELS

Q = Role.ATTN_Q


@pytest.fixture
def model(session_for):
    return open_model(str(DEMO_MODELS / "base"), session_for())


def delivered(model):
    return model.checkpoint.session.bytes_delivered


def test_planning_reads_nothing_and_tells_the_bytes(model):
    before = delivered(model)
    wants = [Want(Q, 0, rows=(0, 4)), Want(Q, 1, rows=((2, 3), (8, 10)))]
    plan = model.plan(wants)
    assert delivered(model) == before
    assert [model.cost(want) for want in wants] == [4 * 96 * 2, 3 * 96 * 2]
    assert plan.nbytes == 7 * 96 * 2
    read_together([plan])
    assert delivered(model) - before == plan.nbytes


def test_what_wants_share_is_read_once(model):
    wants = [Want(Q, 0, rows=(0, 4)), Want(Q, 0, rows=(2, 6))]
    assert sum(map(model.cost, wants)) == 8 * 96 * 2
    assert model.plan(wants).nbytes == 6 * 96 * 2
    one, two = model.read(wants)
    np.testing.assert_array_equal(one.stored[2:], two.stored[:2])


def test_small_gaps_are_read_through_only_if_allowed(model):
    wants = [Want(Q, 0, rows=(0, 1)), Want(Q, 0, rows=(2, 3))]
    assert model.plan(wants).nbytes == 2 * 96 * 2
    assert model.plan(wants, max_gap_bytes=96 * 2).nbytes == 3 * 96 * 2


def test_rows_columns_and_elements(model):
    whole = model.tensor(Q, 2)
    rows, runs, cut, flat = model.read(
        [
            Want(Q, 2, rows=(3, 7)),
            Want(Q, 2, rows=((9, 11), (1, 2))),  # runs need not ascend
            Want(Q, 2, rows=(0, 8), columns=(10, 20)),
            Want(Q, 2, elements=((5, 8), (200, 202))),
        ]
    )
    np.testing.assert_array_equal(rows.values, whole[3:7])
    np.testing.assert_array_equal(runs.values, whole[[9, 10, 1]])
    np.testing.assert_array_equal(cut.values, whole[:8, 10:20])
    np.testing.assert_array_equal(flat.values, whole.ravel()[[5, 6, 7, 200, 201]])
    assert (rows.dtype, rows.shape, rows.rows, runs.rows, cut.columns) == ("BF16", (96, 96), (3, 7), None, (10, 20))


def test_several_models_are_read_together(session_for):
    session = session_for()
    one, two = (open_model(str(DEMO_MODELS / name), session) for name in ("base", "unrelated"))
    (left, norm), (right,) = read_together([one.plan([Want(Q, 1), Want(Role.FINAL_NORM)]), two.plan([Want(Q, 1)])])
    np.testing.assert_array_equal(left.values, one.tensor(Q, 1))
    np.testing.assert_array_equal(right.values, two.tensor(Q, 1))
    assert norm.values.shape == (96,)
    assert not np.array_equal(left.values, right.values)


def test_the_budget_holds_for_all_models_of_one_reading(session_for):
    session = session_for(budget_bytes=20_000)
    one, two = (open_model(str(DEMO_MODELS / name), session) for name in ("base", "unrelated"))
    left = session.remaining_bytes
    rows = left // (2 * 96 * 2) + 1  # either side alone would fit
    plans = [model.plan([Want(Q, 0, rows=(0, rows))]) for model in (one, two)]
    assert plans[0].nbytes <= left < plans[0].nbytes + plans[1].nbytes
    with pytest.raises(BudgetExceeded):
        read_together(plans)
    assert session.remaining_bytes == left


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8])
def test_the_largest_magnitude_is_that_of_the_values(dtype):
    for offset in (0.0, 1.0):
        sample = Sample(np.array([[-3, 1], [2, 0]], dtype), "F32", (2, 2), offset)
        assert sample.largest == np.abs(sample.values).max()


def test_a_signalling_nan_is_found_without_a_warning():
    stored = np.array([0x7FA00000, 0x3F800000], np.uint32).view(np.float32)
    sample = Sample(stored, "F32", (2,))
    assert not sample.finite
    assert np.isnan(sample.largest)


def test_a_figure_of_two_slices_is_computed_once_for_a_partner():
    one, two, three = (Sample(np.full(2, float(n)), "F64", (2,)) for n in (1, 2, 3))
    asked = []

    def total(a, b):
        asked.append(b)
        return float((a.values + b.values).sum())

    assert [one.beside(other, total) for other in (two, two, three, three, two)] == [6.0, 6.0, 8.0, 8.0, 6.0]
    assert len(asked) == 3
