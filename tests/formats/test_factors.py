"""Matrices that are stored as two factors are read as their product; other pairs of names are left alone."""

import numpy as np
import pytest

from kinprint.comparison.pipeline import compare
from kinprint.formats.factors import ENDINGS, factor_pairs
from kinprint.lab.zoo import derive
from kinprint.model.model import open_model
from kinprint.results.options import Options
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from support.places import DEMO_MODELS


def factored(state, ends, rank=48):
    """Store what is wider than `rank` in both directions as two factors, cut to that rank."""
    result = {}
    for name, value in state.items():
        if value.ndim == 2 and ".layers." in name and min(value.shape) > rank:
            U, s, Vt = np.linalg.svd(value.astype(np.float64), full_matrices=False)
            half, stem = np.sqrt(s[:rank]), name.removesuffix(".weight")
            result[stem + ends[0]] = np.ascontiguousarray(U[:, :rank] * half, np.float32)
            result[stem + ends[1]] = np.ascontiguousarray(half[:, None] * Vt[:rank], np.float32)
        else:
            result[name] = value
    return result


def test_rows_of_a_product_are_the_same_whichever_are_read_with_them(tmp_path):
    state, config, tokenizer = derive.load_state(DEMO_MODELS / "base")
    child = factored(state, (".u", ".v"))
    derive.save_state(tmp_path / "m", child, config, tokenizer)
    with Session(Settings()) as session:
        model = open_model(str(tmp_path / "m"), session)
        assert not model.naming.unmapped
        assert any("two factors" in note for note in model.summary().notes)
        every = model.tensor("mlp_up", 1)
        some = model.tensor("mlp_up", 1, rows=(70, 75))
    stem = "model.layers.1.mlp.up_proj"
    np.testing.assert_allclose(every, child[f"{stem}.u"] @ child[f"{stem}.v"], atol=2e-3)  # factors are stored in BF16
    assert np.array_equal(every[70:75], some)


@pytest.mark.parametrize("ends", [(".u", ".v"), pytest.param((".1.weight", ".0.weight"), marks=pytest.mark.nightly)])
@pytest.mark.parametrize(("name", "expected"), [("base", "derived"), ("unrelated", "no_evidence")])
def test_a_factored_copy_is_derived_and_a_factored_stranger_is_not(ends, name, expected, tmp_path):
    state, config, tokenizer = derive.load_state(DEMO_MODELS / name)
    derive.save_state(tmp_path / "m", factored(state, ends, 80), config, tokenizer)
    report = compare(DEMO_MODELS / "base", tmp_path / "m", Options(metrics=("pearson",)), settings=Settings())
    assert report.verdict.class_ == expected
    if expected == "derived":
        assert report.verdict.kind == "rank_truncated"
        assert next(item for item in report.evidence.components if item.component == "mlp").state == "shared"


def test_pairs_that_do_not_multiply_stay_as_they_are():
    shapes = {
        "x.u": (64, 8),
        "x.v": (9, 64),
        "y.u": (64, 8),
        "y.v": (8, 64),
        "y.weight": (64, 64),
        "z.u": (4, 4, 4),
        "z.v": (4, 4),
    }
    assert factor_pairs(shapes, list(shapes)) == {}
    wide = {"x.left": (4, 8), "x.right": (8, 4)}
    assert factor_pairs(wide, list(wide)) == {}
    huge = {"x.u": (1 << 20, 1 << 10), "x.v": (1 << 10, 1 << 20)}
    assert factor_pairs(huge, list(huge)) == {}
    for left, right in ENDINGS:
        fits = {f"x{left}": (64, 8), f"x{right}": (8, 32)}
        assert factor_pairs(fits, list(fits)) == {"x.weight": (f"x{left}", f"x{right}")}
