"""Every registered metric keeps what it declares: invariances (and no others), symmetry, bounds, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kinprint.errors import BadSelection, DegenerateInput
from kinprint.metrics import METRICS, register
from kinprint.metrics.base import INVARIANCES

NAMES = list(METRICS)
FLAT = [name for name in NAMES if "vector" in METRICS[name].kinds]


def _pairs(name: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return a related, an unrelated and an identical pair, positive and with varied spreads."""
    rng = np.random.default_rng(11)
    shape = (12, 5) if name not in FLAT else (64,)
    a = rng.lognormal(0.0, 0.4, shape)
    related, unrelated = a + 0.1 * rng.normal(size=shape), rng.lognormal(0.5, 0.7, shape)
    half = np.where(np.arange(a.size).reshape(shape) % 2 == 0, a, related)
    return [(a, related), (a, unrelated), (a, half), (a - 1.6, unrelated - 1.6), (a, a.copy())]


def _transform(kind: str, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    order = rng.permutation(a.shape[0])
    rotation = np.linalg.qr(rng.normal(size=(b.shape[-1], b.shape[-1])))[0]
    changed = {
        "scale": lambda: (a, 1.7 * b),
        "shift": lambda: (a, b + 0.3),
        "joint_scale": lambda: (1.7 * a, 1.7 * b),
        "joint_shift": lambda: (a + 0.3, b + 0.3),
        "joint_permutation": lambda: (a[order], b[order]),
        "one_sided_permutation": lambda: (a, b[order]),
        "rotation": lambda: (a, b @ rotation),
    }
    return changed[kind]()


@pytest.mark.parametrize("kind", INVARIANCES)
@pytest.mark.parametrize("name", NAMES)
def test_declared_invariances_hold_and_no_others(name: str, kind: str) -> None:
    metric = METRICS[name]
    if kind == "rotation" and name in FLAT:
        assert kind not in metric.invariant_to
        return
    gaps = []
    for a, b in _pairs(name):
        before, after = metric(a, b), metric(*_transform(kind, a, b))
        gaps.append(abs(after - before) / max(1.0, abs(before)))
    if kind in metric.invariant_to:
        assert max(gaps) < 1e-10
    else:
        assert max(gaps) > 1e-4


@pytest.mark.parametrize("name", NAMES)
def test_symmetry_is_as_declared(name: str) -> None:
    metric = METRICS[name]
    gaps = [abs(metric(a, b) - metric(b, a)) for a, b in _pairs(name)]
    if metric.symmetric:
        assert max(gaps) < 1e-12
    else:
        assert max(gaps) > 1e-4


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_is_as_close_as_it_gets(name: str) -> None:
    metric, (a, _) = METRICS[name], _pairs(name)[0]
    value = metric(a, a.copy())
    if name == "shuffled_cosine":
        assert value < 0.99
    elif metric.higher_is_closer:
        assert value == pytest.approx(metric.bounds[1], abs=1e-12)
    else:
        assert value == metric.bounds[0] == 0.0


@given(
    hnp.arrays(np.float64, (2, 12), elements=st.floats(-1e200, 1e200, allow_subnormal=True)),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_values_stay_in_bounds_or_are_refused(data: np.ndarray) -> None:
    for name in FLAT:
        metric = METRICS[name]
        try:
            value = metric(data[0], data[1], **({"dtype": "F64"} if name == "ulp_distance" else {}))
        except DegenerateInput as error:
            refusal = str(error)
            value = None
        if value is None:
            assert refusal.startswith(f"{name}: ")
        else:
            assert metric.bounds[0] <= value <= metric.bounds[1]
            assert math.isfinite(value)


@pytest.mark.parametrize("name", NAMES)
def test_bad_input_is_refused_with_a_reason(name: str) -> None:
    metric, (a, b) = METRICS[name], _pairs(name)[0]
    holes = b.copy()
    holes.flat[[3, 7]] = np.nan, np.inf
    with pytest.raises(DegenerateInput, match=rf"{name}: b holds 2 non-finite of {b.size}"):
        metric(a, holes)
    with pytest.raises(DegenerateInput, match="differ"):
        metric(a, b[:-1])
    with pytest.raises(DegenerateInput, match="a is empty"):
        metric(a[:0], b[:0])
    with pytest.raises(DegenerateInput, match="expected one or two dimensions"):
        metric(np.ones((2, 2, 2)), np.ones((2, 2, 2)))


@pytest.mark.parametrize(
    ("name", "jitter"),  # ranks see any difference, however small, so Spearman has no case with jitter
    [("spearman", 0.0), *((name, jitter) for name in ("pearson", "cka", "cka_unbiased") for jitter in (0.0, 1e-15))],
)
def test_constant_sides_are_refused(name: str, jitter: float) -> None:
    a, _ = _pairs(name)[0]
    constant = np.full(a.shape, 3.0) * (1.0 + jitter * (np.arange(a.size).reshape(a.shape) % 2))
    for sides in ((a, constant), (constant, a)):
        with pytest.raises(DegenerateInput, match=r"constant|equal"):
            METRICS[name](*sides)


@pytest.mark.parametrize(
    ("name", "value"), [("cosine", 0.0), ("shuffled_cosine", 0.0), ("deviation_cosine", 1.0), ("rel_l2_a", 0.0)]
)
def test_zero_length_is_refused(name: str, value: float) -> None:
    with pytest.raises(DegenerateInput, match="zero"):
        METRICS[name](np.full(8, value), np.arange(8.0))


def test_ratios_of_zero_are_refused() -> None:
    for name in ("rel_l2", "rel_rmse"):
        with pytest.raises(DegenerateInput, match="denominator"):
            METRICS[name](np.zeros(4), np.zeros(4))


def test_matrices_are_flattened() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.lognormal(size=(2, 6, 7))
    for name in FLAT:
        assert METRICS[name](a, b) == METRICS[name](a.ravel(), b.ravel())


def test_registration_is_checked() -> None:
    kwargs = {
        "label": "x",
        "higher_is_closer": True,
        "bounds": (0.0, 1.0),
        "symmetric": True,
        "null": "cosine",
        "reference": "x",
    }
    with pytest.raises(ValueError, match="unknown invariances: tilt"):
        register("unused", invariant_to=("tilt",), **kwargs)
    with pytest.raises(ValueError, match="registered twice"):
        register("cosine", invariant_to=(), **kwargs)(lambda a, b: 0.0)
    with pytest.raises(BadSelection, match="pearson"):
        METRICS["pearsn"]
    assert all(METRICS[name].label and METRICS[name].reference for name in NAMES)


@pytest.mark.parametrize("scale", [1e-200, 1e-60, 1.0, 1e60, 1e200])
def test_distances_from_zero_are_seen_at_every_size(scale: float) -> None:
    a, zero = np.linspace(1.0, 2.0, 8) * scale, np.zeros(8)
    assert METRICS["l2"](a, zero) == pytest.approx(scale * float(np.linalg.norm(a / scale)))
    assert METRICS["l2"](zero, a) == METRICS["l2"](a, zero)
    assert METRICS["rel_l2_a"](a, zero) == pytest.approx(1.0)
    assert METRICS["mean_abs_diff"](a, zero) == pytest.approx(1.5 * scale)


@pytest.mark.parametrize("name", [name for name in NAMES if METRICS[name].stacked])
def test_many_pairs_at_once_are_each_by_itself(name: str) -> None:
    metric = METRICS[name]
    pairs = _pairs(name)[:3] + [(1e-70 * a, 1e50 * b) for a, b in _pairs(name)[:2]]
    a, b = (np.stack(side) for side in zip(*pairs, strict=True))
    assert metric.each(a, b) == [metric(one, two) for one, two in pairs]
