"""Scale and storage of norm weights: rounding, what is simulated, tables, what is missing, figures, Korean, replicas."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from kinprint.arch import Role
from kinprint.errors import DegenerateInput
from kinprint.metrics import METRICS
from kinprint.metrics.identity import on_grid
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from kinprint.stats.nulls import null_for
from kinprint.studies import scale
from kinprint.studies.recipe import run_study
from kinprint.studies.scale import rounding as scale_rounding
from kinprint.studies.scale.rounding import FORMATS, before_rounding, kept, needs_simulation, store
from support.figures import without_finding
from support.layouts import write_checkpoint

STUDIES = Path(scale.__file__).parent


def part(outcome, name):
    return next(item.section for item in outcome.parts if item.name == name)


def records(section, name):
    found = next(table for table in section.tables if table.name == name)
    return [dict(zip((column.key for column in found.columns), row, strict=True)) for row in found.rows]


def weights(mean, sd, size=4096, seed=0):
    return mean + sd * np.random.default_rng(seed).standard_normal(size)


# -- rounding ------------------------------------------------------------------------------------------------------------


def test_what_is_kept_is_measured_on_the_pattern():
    truth = weights(0.9, 0.05)
    shifted = kept(truth, truth + 0.25)
    assert shifted.error == pytest.approx(0.0, abs=1e-12)  # a common shift is no loss of pattern
    noisy = truth + 0.025 * np.random.default_rng(1).standard_normal(truth.size)
    found = kept(truth, noisy)
    assert found.error == pytest.approx(0.5, rel=0.05)
    assert found.bits == pytest.approx(1.0, abs=0.08)
    assert found.correlation == pytest.approx(METRICS["pearson"](truth, noisy))
    assert kept(truth, truth).bits == math.inf
    gone = kept(truth, np.full(truth.size, 0.9))
    assert (gone.bits, gone.correlation) == (pytest.approx(0.0, abs=1e-9), None)
    with pytest.raises(DegenerateInput, match="constant"):
        kept(np.ones(8), truth[:8])


@pytest.mark.parametrize(("dtype", "bits"), [("BF16", 8), ("F16", 11), ("F8_E4M3", 4)])
def test_bits_follow_from_the_step_at_the_common_scale(dtype, bits):
    truth = weights(0.75, 0.05)  # all between 0.5 and 1: one step
    expected = -math.log2(2.0**-bits / math.sqrt(12.0) / truth.std())
    assert store(truth, dtype, "as_is").bits == pytest.approx(expected, abs=0.1)


def test_storing_the_difference_from_one_helps_only_near_one():
    near, far = weights(1.0, 0.02), weights(0.3, 0.02)
    assert store(near, "BF16", "minus_one").bits > store(near, "BF16", "as_is").bits + 3
    assert store(far, "BF16", "minus_one").bits < store(far, "BF16", "as_is").bits
    for truth in (near, far):
        assert store(truth, "BF16", "apart").bits > store(truth, "BF16", "as_is").bits + 2


def test_scale_and_pattern_apart_needs_a_scale():
    with pytest.raises(DegenerateInput, match="mean is zero"):
        store(np.array([-1.0, 1.0]), "BF16", "apart")


@pytest.mark.parametrize("dtype", FORMATS)
def test_simulated_values_round_to_the_stored_ones(dtype):
    rng = np.random.default_rng(3)
    stored = on_grid(np.concatenate([weights(0.5, 0.2), [0.0, 0.5, -0.5, 1.0, 2.0**-9, -0.25]]), dtype)
    drawn = before_rounding(stored, dtype, rng)
    np.testing.assert_array_equal(np.abs(on_grid(drawn, dtype)), np.abs(stored))
    assert np.count_nonzero(drawn != stored) > 0.99 * stored.size
    again = before_rounding(stored, dtype, np.random.default_rng(3))
    np.testing.assert_array_equal(drawn, again)


def test_cells_below_a_power_of_two_are_half_as_wide():
    stored = np.full(20_000, 0.5)
    drawn = before_rounding(stored, "BF16", np.random.default_rng(0))
    assert drawn.min() == pytest.approx(0.5 - 2.0**-10, abs=2.0**-19)
    assert drawn.max() == pytest.approx(0.5 + 2.0**-9, abs=2.0**-18)


def test_where_the_truth_has_to_be_simulated():
    assert [needs_simulation("BF16", dtype) for dtype in FORMATS] == [True, True, False, False]
    assert not any(needs_simulation("F32", dtype) for dtype in FORMATS)
    assert not needs_simulation("I8", "BF16")


# -- the study on small models --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two(tiny_models):
    models = tuple(f"{name}={tiny_models[name]}" for name in ("first", "child"))
    with Session(Settings(range_cache=None)) as session:
        return run_study("scale", session, models=models)


def stored_norms(folder, name="input_layernorm"):
    found = {}
    for file in sorted(folder.glob("*.safetensors")):
        found |= load_file(file)
    return np.stack([found[f"model.layers.{layer}.{name}.weight"] for layer in range(6)]).astype(np.float64)


def test_scale_by_depth(two, tiny_models):
    rows = records(part(two, "by_depth"), "by_depth")
    assert len(rows) == 2 * 2 * 6
    own = [r for r in rows if (r["model"], r["role"]) == ("first", "input_norm")]
    values = stored_norms(tiny_models["first"])
    np.testing.assert_allclose([r["norm"] for r in own], np.linalg.norm(values, axis=1), rtol=1e-12)
    for row in rows:
        assert row["norm"] ** 2 == pytest.approx(64 * (row["mean"] ** 2 + row["sd"] ** 2), rel=1e-12)
        assert row["share"] == pytest.approx(row["cv"] ** 2 / (1 + row["cv"] ** 2), rel=1e-9)
    assert two.checks == []
    assert two.missing == []


def test_growth(two, tiny_models):
    row = next(r for r in records(part(two, "growth"), "growth") if (r["model"], r["role"]) == ("first", "input_norm"))
    norms, depth = np.linalg.norm(stored_norms(tiny_models["first"]), axis=1), np.arange(6.0)
    rho = METRICS["spearman"](depth, norms)
    null = null_for("spearman", depth, norms, observed=rho, higher_is_closer=True)
    assert (row["spearman"], row["null_sd"], row["log10_p"]) == (rho, null.sd, null.log10_p)
    assert row["slope"] == pytest.approx(np.polyfit(depth, norms, 1)[0])
    assert (row["greatest"], row["at"]) == (norms.max(), int(norms.argmax()))


def test_storage_of_values_as_they_are(two, tiny_models):
    rows = records(part(two, "storage"), "storage")
    assert len(rows) == 2 * 2 * 6 * 4
    wanted = {"model": "first", "role": "input_norm", "layer": 4, "format": "F8_E4M3"}
    row = next(r for r in rows if wanted.items() <= r.items())
    values = stored_norms(tiny_models["first"])[4]
    found = kept(values, on_grid(values, "F8_E4M3"))
    assert (row["error"], row["correlation"], str(row["truth"])) == (found.error, found.correlation, "stored")
    assert row["bits"] == pytest.approx(row["predicted"], abs=1.0)
    summary = records(part(two, "storage"), "storage_summary")
    assert len(summary) == 2 * 2 * 4
    chosen = [r["bits"] for r in rows if (r["model"], r["role"], r["format"]) == ("first", "input_norm", "F8_E4M3")]
    line = next(r for r in summary if (r["model"], r["role"], r["format"]) == ("first", "input_norm", "F8_E4M3"))
    assert (line["least"], line["median"]) == (min(chosen), pytest.approx(np.median(chosen)))


def test_the_format_of_the_file_is_simulated(tiny_models, tmp_path):
    tensors = {}
    for file in sorted(tiny_models["first"].glob("*.safetensors")):
        tensors |= load_file(file)
    config = json.loads((tiny_models["first"] / "config.json").read_text())
    write_checkpoint(tmp_path / "half", {k: v.astype(np.float16) for k, v in tensors.items()}, config=config)
    with Session(Settings(range_cache=None)) as session:
        found = run_study("scale", session, models=(f"half={tmp_path / 'half'}",))
    rows = records(part(found, "storage"), "storage")
    truth = {dtype: {str(r["truth"]) for r in rows if r["format"] == dtype} for dtype in FORMATS}
    assert truth == {"BF16": {"stored"}, "F16": {"simulated"}, "F8_E4M3": {"stored"}, "F8_E5M2": {"stored"}}
    # rounding to the file's own format costs half a step at most, not nothing
    assert all(5.0 < r["bits"] < 13.0 for r in rows if r["format"] == "F16")


def test_what_is_missing_is_said_and_the_rest_is_there(run_tiny):
    found = run_tiny("scale", "nopost", "shallow", "narrow")
    said = [str(text) for _, text in found.missing]
    assert "nopost has no tensor of the role post_attention_norm" in said
    assert "growth of input_norm in shallow: 3 layers are too few" in said
    assert {r["model"] for r in records(part(found, "storage"), "storage_summary")} == {"nopost", "shallow", "narrow"}
    other = run_tiny("scale", "first", roles=(Role.ATTN_K, Role.INPUT_NORM), layers=(1, 2, 3, 5))
    assert {str(text) for _, text in other.missing} == {"attn_k is no norm weight: this study looks at norms only"}
    assert [r["layer"] for r in records(part(other, "by_depth"), "by_depth")] == [1, 2, 3, 5]


def test_a_constant_weight_has_no_pattern(tiny_models, tmp_path):
    tensors = {}
    for file in sorted(tiny_models["first"].glob("*.safetensors")):
        tensors |= load_file(file)
    tensors = {name: np.ones_like(v) if "input_layernorm" in name else v for name, v in tensors.items()}
    config = json.loads((tiny_models["first"] / "config.json").read_text())
    write_checkpoint(tmp_path / "flat", tensors, config=config)
    with Session(Settings(range_cache=None)) as session:
        found = run_study("scale", session, models=(f"flat={tmp_path / 'flat'}",))
    flat = [r for r in records(part(found, "storage"), "storage") if r["role"] == "input_norm"]
    assert all(r["bits"] is None and r["error"] is None for r in flat)
    assert [str(text) for _, text in found.missing] == ["growth of input_norm in flat: ‖γ‖ is the same in all layers"]
    for item in found.parts:
        for picture in item.section.pictures:
            assert picture.draw().axes


# -- figures and words -----------------------------------------------------------------------------------------------------


def test_every_picture_draws(two):
    pictures = [picture for item in two.parts for picture in item.section.pictures]
    assert [picture.name for picture in pictures[:3]] == ["norm_by_depth", "scale_and_pattern", "growth"]
    assert len(pictures) == 7
    drawn = {picture.name: picture.draw() for picture in pictures}
    assert all(figure.axes for figure in drawn.values())
    assert without_finding(drawn) == []


# -- published figures ------------------------------------------------------------------------------------------------------


def test_any_name_is_in_the_legend_and_logarithms_are_plain_numbers(tiny_models):
    with Session(Settings(range_cache=None)) as session:
        chosen = tuple(f"{name}={tiny_models[path]}" for name, path in (("_hidden", "first"), ("a$b$", "second")))
        outcome = run_study("scale", session, models=chosen)
    figure = next(item for item in part(outcome, "by_depth").pictures if item.name == "norm_by_depth").draw()
    legend = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert legend[:2] == ["\u200b_hidden", "a$b$"]
    figure.draw_without_rendering()
    ticks = [label.get_text() for label in figure.axes[0].get_yticklabels(which="both")]
    assert any(ticks)
    assert not any("$" in text for text in ticks)


@pytest.fixture(scope="module")
def replica_run(run_on_replicas):
    return run_on_replicas("scale")


@pytest.mark.slow
def test_published_figures_agree_on_replicas(replica_run):
    sure = [check for check in replica_run.checks if check.trust != "wrong"]
    assert len(sure) == 22
    assert [str(check.what) for check in sure if not check.agrees] == []
    wrong = [check for check in replica_run.checks if check.trust == "wrong"]
    assert [(check.published, check.agrees) for check in wrong] == [(1.0, False), (140, False)]


@pytest.mark.slow
def test_what_low_precision_costs_on_replicas(replica_run):
    rows = records(part(replica_run, "storage"), "storage_summary")
    assert {str(r["truth"]) for r in rows if r["format"] in ("BF16", "F16")} == {"simulated"}
    for row in rows:
        assert row["median_apart"] > row["median"] + 2  # the scale no longer takes up bits of the pattern
    solar = next(r for r in rows if (r["model"], r["role"], r["format"]) == ("Solar", "input_norm", "BF16"))
    assert solar["median_minus_one"] < solar["median"]  # far from one, zero-centring costs bits
    assert scale_rounding.SCHEMES.keys() == {"as_is", "minus_one", "apart"}
