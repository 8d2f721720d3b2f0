"""Every edit made by construction gets its name, on Gaussian and on heavy-tailed weights, whole and in small slices."""

import numpy as np
import pytest

from kinprint.edits.edit_names import explain_edit
from kinprint.edits.pair import describe
from kinprint.errors import DegenerateInput
from support.counting import calls_of

SHAPES = [(128, 512), (8, 4096), (32, 96)]


def children(make, rng, A, weights):
    """Yield (case, expected name, child before storage)."""
    few = A.shape[0] < 48  # too few rows to tell noise from training
    sd = A.std()
    return [
        ("copy", "identical", A),
        ("noise 10 %", "changed" if few else "noise", A + 0.1 * sd * rng.standard_normal(A.shape)),
        ("noise 3 %", "changed" if few else "noise", A + 0.03 * sd * rng.standard_normal(A.shape)),
        ("times 1.7", "scaled", 1.7 * A),
        ("times 0.99", "scaled", 0.99 * A),
        ("negated", "scaled", -A),
        ("half pruned", "pruned", make.halved(A)),
        ("2:4", "pruned", make.two_of_four(A)),
        ("pruned at random", "pruned", A * (rng.random(A.shape) > 0.3)),
        ("int8 rows", "quantised", make.quantised(A, 8)),
        ("int8 rows, zero point", "quantised", make.quantised(A, 8, zero="whole")),
        ("int4 of 32", "quantised", make.quantised(A, 4, 32)),
        ("int4 of 32, zero point", "quantised", make.quantised(A, 4, 32, zero="whole")),
        ("adapter of rank 1", "low_rank", make.adapter(rng, A, 1, 0.03)),
        ("adapter of rank 2", "low_rank", make.adapter(rng, A, 2, 0.03)),
        ("trained, steep", "changed", make.trained(rng, A, 0.7, 0.01)),
        ("trained", "changed", make.trained(rng, A, 0.5, 0.1)),
        ("trained and shrunk", "changed", make.trained(rng, 0.97 * A, 0.3, 0.2)),
        ("merged", "merged_or_reweighted", 0.7 * A + 0.3 * weights(rng, *A.shape)),
        ("unrelated", "changed", weights(rng, *A.shape)),
    ]


@pytest.mark.parametrize("dtype", ["BF16", *(pytest.param(d, marks=pytest.mark.slow) for d in ("F16", "F32"))])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("family", ["gaussian", "heavy"])
def test_every_edit_gets_its_name(make, family, shape, dtype):
    rng, weights = np.random.default_rng(7), make.weights[family]
    A = make.stored(weights(rng, *shape), dtype)
    wrong = []
    for case, expected, child in children(make, rng, A, weights):
        verdict = explain_edit(describe(A, make.stored(child, dtype), dtype_a=dtype, dtype_b=dtype))
        assert verdict.reasons
        if verdict.name != expected:
            wrong.append((case, verdict))
    assert wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("family", ["heavy", pytest.param("gaussian", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("shapes", [SHAPES, pytest.param([(256, 1024)], marks=pytest.mark.nightly)])
def test_trained_weights_are_never_called_anything_special(make, family, seed, shapes):
    rng, weights = np.random.default_rng(100 + seed), make.weights[family]
    for shape in shapes:
        A = weights(rng, *shape)
        for dtype in ("BF16", "F32"):
            for exponent in (0.3, 0.5, 0.7, 1.0):
                for size in (0.003, 0.01, 0.1):
                    for parent in (A, make.stored(A, dtype)):  # the child of what was stored, and of what was not
                        child = make.stored(make.trained(rng, 0.99 * parent, exponent, size), dtype)
                        edit = describe(make.stored(A, dtype), child, dtype_a=dtype, dtype_b=dtype)
                        assert explain_edit(edit).name == "changed", (shape, dtype, exponent, size, explain_edit(edit))


@pytest.mark.parametrize(("dtype_a", "dtype_b"), [("F32", "BF16"), ("F32", "F16"), ("BF16", "F32"), ("F16", "BF16")])
def test_a_cast_is_named_with_its_formats(make, dtype_a, dtype_b):
    A = make.stored(make.weights["gaussian"](np.random.default_rng(1), 32, 96), dtype_a)
    edit = describe(A, make.stored(A, dtype_b), dtype_a=dtype_a, dtype_b=dtype_b)
    assert edit.identity.cast == f"{dtype_a} to {dtype_b}"
    assert not edit.identity.byte_identical
    assert explain_edit(edit).name == "cast"


def test_the_demo_family(demo):
    for tensor, A in demo["base"].items():
        for rows in (slice(None), slice(8, 24)):
            for other, expected in (("base", "identical"), ("finetune", "changed"), ("unrelated", "changed")):
                edit = describe(A[rows], demo[other][tensor][rows], dtype_a="BF16", dtype_b="BF16")
                assert explain_edit(edit).name == expected, (tensor, rows, other, explain_edit(edit))


def test_edits_of_really_trained_weights(make, demo):
    rng = np.random.default_rng(3)
    for tensor, stored in list(demo["base"].items())[::6]:
        A, other = stored.astype(np.float64), demo["unrelated"][tensor].astype(np.float64)
        cases = [
            ("quantised", make.quantised(A, 8)),
            ("quantised", make.quantised(A, 4, 32)),
            ("quantised", make.quantised(A, 4, 32, zero="whole")),
            ("pruned", make.halved(A)),
            ("pruned", make.two_of_four(A)),
            ("scaled", 0.6 * A),
            ("low_rank", make.adapter(rng, A, 4, 0.03)),
            ("noise" if min(A.shape) >= 48 else "changed", A + 0.1 * A.std() * rng.standard_normal(A.shape)),
            ("merged_or_reweighted", 0.7 * A + 0.3 * other),
            ("changed", 0.5 * A + 0.5 * demo["finetune"][tensor]),
        ]
        for expected, child in cases:
            edit = describe(stored, make.stored(child, "BF16"), dtype_a="BF16", dtype_b="BF16")
            assert explain_edit(edit).name == expected, (tensor, explain_edit(edit))


def test_too_little_to_tell_is_unknown(make):
    A = make.weights["gaussian"](np.random.default_rng(2), 4, 8)
    edit = describe(A, A + 0.001, dtype_a="F64", dtype_b="F64")
    assert explain_edit(edit).name == "unknown"
    assert edit.limits == ("32 elements: expected 64 or more",)
    zero = np.zeros((32, 96))
    assert explain_edit(describe(zero, zero + 1.0, dtype_a="F32", dtype_b="F32")).name == "unknown"
    assert explain_edit(describe(zero + 1.0, zero, dtype_a="F32", dtype_b="F32")).name == "unknown"
    assert explain_edit(describe(zero, -zero, dtype_a="F32", dtype_b="F32")).name == "identical"


def test_what_is_not_a_pair_of_finite_matrices_is_refused():
    A = np.ones((8, 16))
    with pytest.raises(DegenerateInput, match="expected two equal matrices"):
        describe(A, A[:4], dtype_a="F32", dtype_b="F32")
    with pytest.raises(DegenerateInput, match="expected finite weights"):
        describe(A, A * np.inf, dtype_a="F32", dtype_b="F32")


def test_integers_are_quantised_by_their_format(make):
    rng = np.random.default_rng(5)
    A = make.stored(make.weights["gaussian"](rng, 32, 128), "BF16")
    codes = np.rint(A / np.abs(A).max(axis=1, keepdims=True) * 127).astype(np.int8)
    edit = describe(A, codes, dtype_a="BF16", dtype_b="I8")
    assert edit.grid.is_quantised is None
    assert explain_edit(edit).name == "quantised"
    other = rng.integers(-127, 128, A.shape).astype(np.int8)
    assert explain_edit(describe(A, other, dtype_a="BF16", dtype_b="I8")).name == "unknown"


def test_a_slope_has_its_error_and_rows_their_spread(make):
    rng = np.random.default_rng(8)
    A = make.weights["gaussian"](rng, 64, 1024)
    slopes = []
    for _ in range(40):
        B = 0.7 * A + 0.3 * make.weights["gaussian"](rng, 64, 1024)
        slopes.append(describe(A, B, dtype_a="F64", dtype_b="F64", spectrum=False).slope)
    scores = np.array([(found.slope - 0.7) / found.error for found in slopes])
    assert 0.75 < scores.std() < 1.3
    assert max(found.spread for found in slopes) < 0.01
    uneven = np.linspace(0.5, 0.9, 64)[:, None] * A + 0.1 * B
    assert describe(A, uneven, dtype_a="F64", dtype_b="F64", spectrum=False).slope.spread > 0.1


def test_a_pair_without_its_spectrum_takes_few_steps_whatever_its_size(make, monkeypatch):
    monkeypatch.setattr(np.linalg, "eigvalsh", None)
    rng = np.random.default_rng(9)
    A = make.stored(make.weights["gaussian"](rng, 256, 4096), "BF16").astype(np.float32)
    B = make.stored(A + 0.002 * rng.standard_normal(A.shape), "BF16").astype(np.float32)

    def calls(rows):
        return calls_of(lambda: describe(A[:rows], B[:rows], dtype_a="BF16", dtype_b="BF16", spectrum=False))

    calls(64)  # what is loaded late
    assert calls(256) < 1.2 * calls(64)  # 1,228 and 1,180
