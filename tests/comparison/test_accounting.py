"""Nothing is silently dropped: pairs of every sort, each held against both models' stored tensors (`check_report`)."""

import itertools

import numpy as np
import pytest

SORTS = ("plain", "deep", "wide", "tall", "tied", "strange", "nan", "biased", "buffers", "guessed")
QUICK = {"rows": 4, "metrics": ("pearson", "changed_ratio")}


@pytest.fixture
def make(llama):
    def change(sort):
        def apply(tensors):
            rng = np.random.default_rng(5)
            if sort == "tied":
                del tensors["lm_head.weight"]
            if sort == "strange":
                tensors["visual.patch.weight"] = rng.random((3, 4, 5)).astype(np.float32)
                tensors["scalar"] = np.float32(3.0).reshape(())
                tensors["model.layers.0.mlp.mystery.weight"] = rng.random(7).astype(np.float32)
            if sort == "nan":
                tensors["model.layers.1.mlp.up_proj.weight"][0, 0] = np.nan
                tensors["model.norm.weight"][:] = np.inf
            if sort == "biased":
                for part, size in (("q", 64), ("k", 32), ("v", 32)):
                    tensors[f"model.layers.0.self_attn.{part}_proj.bias"] = rng.random(size).astype(np.float32)
            if sort == "buffers":
                for layer in range(2):
                    tensors[f"model.layers.{layer}.self_attn.rotary_emb.inv_freq"] = rng.random(8).astype(np.float32)

        return apply

    def write(sort, side):
        dims = {"hidden": 64, "heads": 4, "kv_heads": 2, "neurons": 48, "vocab": 40, "layers": 2}
        dims |= {"deep": {"layers": 3}, "wide": {"hidden": 96}, "tall": {"neurons": 80, "vocab": 64}}.get(sort, {})
        extra = {"model_type": "unheard-of", "architectures": ["X"]} if sort == "guessed" else None
        return llama(f"{sort}-{side}", SORTS.index(sort) + 1, change=change(sort), extra=extra, **dims)

    return write


@pytest.mark.parametrize(
    ("a", "b"),
    [
        pytest.param(a, b, marks=() if a == "plain" or (a, b) == ("strange", "biased") else pytest.mark.nightly)
        for a, b in itertools.combinations_with_replacement(SORTS, 2)
    ],
)
def test_every_tensor_of_both_models_is_accounted_for(make, run, a, b):
    report = run(make(a, "a"), make(b, "b"), **QUICK)
    wide = (a == "wide") != (b == "wide")
    assert (report.status == "not_comparable") == wide
    assert len(report.b.unmapped) == (2 if b == "strange" else 0)
    assert sum(item.count for item in report.b.excluded) == {"buffers": 2, "strange": 1}.get(b, 0)


@pytest.mark.parametrize("budget", [140_000, 150_000, 180_000])
@pytest.mark.parametrize("options", [{}, {"layers": "1"}, {"roles": ("attn_k", "final_norm")}])
def test_so_it_is_with_selections_and_budgets(make, run, budget, options):
    report = run(make("deep", "a"), make("biased", "b"), budget_bytes=budget, **QUICK, **options)
    assert report.skipped
