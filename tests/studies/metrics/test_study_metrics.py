"""The seven metrics: values against METRICS, nulls against null_for, what is missing, figures, Korean, replicas."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from kinprint.arch import Role
from kinprint.errors import DegenerateInput
from kinprint.metrics import METRICS
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from kinprint.stats.nulls import null_for
from kinprint.studies import metrics
from kinprint.studies.metrics import plan as metrics_plan
from kinprint.studies.metrics import tensor_pairs as metrics_pairs
from kinprint.studies.opened import Request, open_run
from kinprint.studies.outcome import Missing, Picture
from kinprint.studies.recipe import run_study
from kinprint.studies.studied_models import ModelChoice
from kinprint.text import Text
from support.figures import without_finding
from support.layouts import write_checkpoint

STUDIES = Path(metrics.__file__).parent
SAME = ("cosine", "pearson", "mean_abs_diff", "p99_abs_diff", "rel_l2_a", "rel_l2")


def part(outcome, name):
    return next(item.section for item in outcome.parts if item.name == name)


def records(section, name):
    found = next(table for table in section.tables if table.name == name)
    return [dict(zip((column.key for column in found.columns), row, strict=True)) for row in found.rows]


def stored(folder):
    found = {}
    for file in sorted(folder.glob("*.safetensors")):
        found |= {name: values.copy() for name, values in load_file(file).items()}
    return found


def sides(seed, shape, role, *, like=0.0):
    rng = np.random.default_rng(seed)
    shared = rng.standard_normal(shape)
    arrays = []
    for level in (0.3, 0.5):
        noise = rng.gamma(2.0, 1.0, shape) * (1.0 + 0.5 * rng.random(shape[-1]))
        arrays.append((level + 0.05 * (like * shared + noise)).astype(np.float32))
    return arrays, [metrics_pairs.compared_tensor(array, role, "F32") for array in arrays]


# -- one pair ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "role"), [((64,), Role.INPUT_NORM), ((24, 40), Role.ATTN_K)])
def test_small_tensors_have_the_values_and_nulls_of_the_library(shape, role):
    (a, b), (left, right) = sides(1, shape, role)
    found = metrics_pairs.measure_pair(role, "A", left, "B", right, seed=3)
    for name in (*SAME, "cv_diff"):
        assert found[name].value == pytest.approx(METRICS[name](a, b), rel=1e-6), name
    assert found["centred"].value == pytest.approx(METRICS["pearson"](a, b), abs=1e-12)
    for name in ("cosine", "rel_l2_a", "rel_l2"):
        metric = METRICS[name]
        null = null_for(
            metric.null,
            a,
            b,
            observed=found[name].value,
            higher_is_closer=metric.higher_is_closer,
            rng_seed=3,
            draws=499,
        )
        assert found[name].null_mean == pytest.approx(null.mean, rel=1e-9)
        assert found[name].null_sd == pytest.approx(null.sd, rel=1e-6)
        assert found[name].z == pytest.approx(null.z, rel=1e-3)
    for name in metrics_pairs.BLIND:
        assert (found[name].null_mean, found[name].log10_p) == (None, None)


@pytest.mark.parametrize(("role", "shape", "like"), [(Role.ATTN_K, (40, 64), 0.0), (Role.ATTN_O, (64, 40), 1.0)])
def test_large_matrices_give_the_same_in_blocks(monkeypatch, role, shape, like):
    monkeypatch.setattr(metrics_pairs, "SMALL", 0)
    (a, b), (left, right) = sides(2, shape, role, like=like)
    if role is Role.ATTN_O:  # its rows are the residual dimensions
        a, b = a.T, b.T
    assert left.values.shape == (40, 64)
    found = metrics_pairs.measure_pair(role, "A", left, "B", right, seed=0)
    for name in SAME:
        assert found[name].value == pytest.approx(METRICS[name](a, b), rel=1e-6), name
    for name in ("cosine", "pearson", "rel_l2_a", "rel_l2"):
        metric = METRICS[name]
        null = null_for(
            metric.null, a, b, observed=found[name].value, higher_is_closer=metric.higher_is_closer, rng_seed=0
        )
        assert found[name].null_mean == pytest.approx(null.mean, rel=1e-3, abs=1e-9)
        assert found[name].null_sd == pytest.approx(null.sd, rel=1e-3)
        assert found[name].z == pytest.approx(null.z, rel=1e-3, abs=1e-3)
    gap = found["mean_abs_diff"]
    assert gap.drawn == pytest.approx(gap.value, rel=0.05)
    assert gap.null_mean == pytest.approx(gap.drawn, rel=0.1)


def test_far_tails_are_bounds():
    near, held, far = (metrics_pairs._tail(z) for z in (1.0, 10.0, 1000.0))
    assert near == pytest.approx(np.log10(0.158655), abs=1e-4)
    assert held == metrics_pairs._tail(metrics_pairs.TRUSTED_Z)
    assert far == pytest.approx(-np.log10(1 + 1e6), abs=1e-9)


def test_tall_matrices_are_sampled_and_shapes_have_to_agree(monkeypatch):
    monkeypatch.setattr(metrics_pairs, "MAX_ROWS", 8)
    rng = np.random.default_rng(5)
    tall, other = rng.standard_normal((30, 16)), rng.standard_normal((20, 16))
    side = metrics_pairs.compared_tensor(tall, Role.ATTN_Q, "F32")
    assert side.values.shape == (8, 16)
    np.testing.assert_array_equal(side.values[[0, -1]], tall[[0, -1]])
    with pytest.raises(Missing, match="30×16 and 20×16"):
        metrics_pairs.measure_pair(
            Role.ATTN_Q, "A", side, "B", metrics_pairs.compared_tensor(other, Role.ATTN_Q, "F32"), seed=0
        )


@pytest.mark.parametrize("small", [0, 1 << 17])
def test_a_constant_matrix_is_refused(monkeypatch, small):
    monkeypatch.setattr(metrics_pairs, "SMALL", small)
    flat = metrics_pairs.compared_tensor(np.ones((8, 16), np.float32), Role.ATTN_K, "F32")
    other = metrics_pairs.compared_tensor(np.random.default_rng(0).standard_normal((8, 16)), Role.ATTN_K, "F32")
    with pytest.raises(DegenerateInput, match="constant"):
        metrics_pairs.measure_pair(Role.ATTN_K, "A", flat, "B", other, seed=0)


def test_a_role_without_an_axis_to_permute_has_no_null():
    (a, b), (left, right) = sides(7, (64,), Role.Q_NORM)
    found = metrics_pairs.measure_pair(Role.Q_NORM, "A", left, "B", right, seed=0)
    assert found["cosine"].value == pytest.approx(METRICS["cosine"](a, b))
    assert all(item.null_mean is None for item in found.values())


def test_the_step_of_the_format_at_the_99th_percentile():
    values = np.full(256, 0.40625, np.float32)
    values[0] = 0.25
    assert metrics_pairs.compared_tensor(values, Role.INPUT_NORM, "BF16").statistics.q99_step == 2.0**-9
    assert metrics_pairs.compared_tensor(values, Role.INPUT_NORM, "I8").statistics.q99_step is None


# -- the study on small models --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def three(tiny_models):
    models = tuple(f"{name}={tiny_models[name]}" for name in ("first", "second", "child"))
    with Session(Settings(range_cache=None)) as session:
        return run_study("metrics", session, models=models, request=Request(layers=(1, 3, 4)))


def test_the_parts_and_their_tables(three):
    names = ["tensors", "cosine", "centred", "mean_abs_diff", "p99_abs_diff", "rel_l2", "cv_diff", "layer_zero"]
    assert [item.name for item in three.parts] == names
    for name in names[1:-1]:
        section = part(three, name)
        assert [t.name for t in section.tables] == [f"{name}_{kind}" for kind in ("same_layer", "mixed", "within")]
        assert [len(t.rows) for t in section.tables] == [36, 12, 36]
    assert three.missing == []
    assert three.checks == []
    assert len(records(part(three, "tensors"), "tensors")) == 4 * 3 * 3


def test_numbers_are_those_of_the_library(three, tiny_models):
    key = "model.layers.3.self_attn.v_proj.weight"
    a, b = (stored(tiny_models[name])[key] for name in ("first", "child"))
    wanted = {"role": "attn_v", "model_a": "first", "layer_a": 3, "model_b": "child", "layer_b": 3}
    row = {}
    for name in ("cosine", "centred", "mean_abs_diff", "p99_abs_diff", "rel_l2"):
        row |= next(r for r in records(part(three, name), f"{name}_same_layer") if wanted.items() <= r.items())
    for name in ("cosine", "pearson", "mean_abs_diff", "p99_abs_diff", "rel_l2_a", "rel_l2"):
        assert row[name] == pytest.approx(METRICS[name](a, b), rel=1e-6), name
    assert row["rel_l2_b"] == pytest.approx(METRICS["rel_l2_a"](b, a), rel=1e-9)
    assert row["rel_l2_b"] != pytest.approx(row["rel_l2_a"], rel=1e-6)


def test_related_models_stand_out_and_unrelated_do_not(three):
    rows = records(part(three, "centred"), "centred_same_layer")
    z = {(r["role"], r["model_a"], r["model_b"], r["layer_a"]): r["z"] for r in rows}
    assert min(value for key, value in z.items() if key[1:3] == ("first", "child")) > 5
    assert max(abs(value) for key, value in z.items() if "second" in key) < 5
    assert max(r["difference"] for r in rows) < 1e-12


def test_mixed_layers_spread_over_the_models(three):
    rows = records(part(three, "cosine"), "cosine_mixed")
    spots = {(r[f"model_{side}"], r[f"layer_{side}"]) for r in rows for side in "ab"}
    assert spots == {("first", 1), ("second", 3), ("child", 4)}


def test_cv_of_centred_matrices_is_marked(three):
    rows = records(part(three, "cv_diff"), "cv_diff_same_layer")
    said = {role: {str(r["meaningful"]) for r in rows if r["role"] == role} for role in ("input_norm", "attn_k")}
    assert said == {"input_norm": {"yes"}, "attn_k": {"no: no meaning"}}


def test_what_is_missing_is_said_and_the_rest_is_there(run_tiny):
    found = run_tiny("metrics", "first", "narrow", "nopost", "shallow", layers=(1, 4))
    said = [str(text) for _, text in found.missing]
    assert "input_norm of first and narrow is not comparable: the shapes are 64 and 48" in said
    assert "attn_k of first and narrow is not comparable: the shapes are 32×64 and 32×48" in said
    assert "nopost has no tensor of the role post_attention_norm" in said
    assert "shallow has no layer 4: it has layers 0 to 2" in said
    assert len(said) == len(set(said))
    rows = records(part(found, "cosine"), "cosine_same_layer")
    pairs = {(r["model_a"], r["model_b"], r["layer_a"]) for r in rows if r["role"] == "input_norm"}
    assert pairs == {("first", "nopost", 1), ("first", "shallow", 1), ("nopost", "shallow", 1), ("first", "nopost", 4)}


def test_one_model_is_compared_with_itself(run_tiny):
    found = run_tiny("metrics", "first", roles=(Role.INPUT_NORM,))
    assert [str(text) for _, text in found.missing] == ["comparing models needs two of them; this run has 1"]
    assert [t.name for t in part(found, "cosine").tables] == ["cosine_within"]
    assert {r["layer_a"] for r in records(part(found, "cosine"), "cosine_within")} == {1, 3}
    assert len(records(part(found, "layer_zero"), "layer_zero")) > 0


def test_too_many_layers_are_thinned_out(run_tiny, monkeypatch):
    monkeypatch.setattr(metrics_plan, "MAX_LAYERS", 3)
    found = run_tiny("metrics", "first", "second", layers=(0, 1, 2, 3, 4), roles=(Role.INPUT_NORM,))
    assert [str(text) for _, text in found.missing] == ["5 layers were asked for, 3 is the most; compared: 0, 2, 4"]


def test_constant_and_broken_tensors_do_not_stop_the_study(tiny_models, tmp_path):
    made = stored(tiny_models["first"])
    made["model.layers.1.input_layernorm.weight"][:] = 1.0
    made["model.layers.1.self_attn.k_proj.weight"][0, 0] = np.nan
    config = json.loads((tiny_models["first"] / "config.json").read_text())
    for name in ("a", "b"):
        write_checkpoint(tmp_path / name, made, config=config)
    with Session(Settings(range_cache=None)) as session:
        models = tuple(f"{name}={tmp_path / name}" for name in ("a", "b"))
        found = run_study("metrics", session, models=models, request=Request(layers=(1, 2)))
    said = " | ".join(str(text) for _, text in found.missing)
    assert "input_norm, a layer 1 and b layer 1: " in said
    assert "a: attn_k of layer 1 holds values that are not finite" in said
    assert {r["layer_a"] for r in records(part(found, "cosine"), "cosine_same_layer") if r["role"] == "attn_k"} == {2}


# -- layer 0 --------------------------------------------------------------------------------------------------------------


def test_layer_zero(three, run_tiny):
    rows = records(part(three, "layer_zero"), "layer_zero")
    assert {(r["layer_a"], r["layer_b"]) for r in rows} == {(0, 1), (0, 3), (0, 4)}
    assert {r["model"] for r in rows} == {"first", "second", "child"}
    shallow = records(part(run_tiny("metrics", "shallow", roles=(Role.INPUT_NORM,)), "layer_zero"), "layer_zero")
    assert {(r["layer_a"], r["layer_b"]) for r in shallow} == {(0, 2), (1, 2)}
    for row in rows:
        predicted = 1.0 / np.hypot(1.0, row["cv_a"]) / np.hypot(1.0, row["cv_b"])
        assert row["null_mean"] == pytest.approx(predicted, rel=1e-9)


# -- figures and words -----------------------------------------------------------------------------------------------------


def test_every_picture_draws(run_tiny):
    found = run_tiny("metrics", "first", "second", roles=(Role.INPUT_NORM,), layers=(1, 3))
    pictures = [one for item in found.parts for one in item.section.pictures]
    assert len(pictures) == 3 * 7 + 1
    drawn = {one.name: one.draw() for one in pictures}
    assert all(figure.axes for figure in drawn.values())
    assert without_finding(drawn) == []
    for figure in drawn.values():  # panels of one role share a scale: here there is one role
        assert len({image.get_clim() for axes in figure.axes for image in axes.get_images()}) <= 1
    within = next(one for one in pictures if one.name == "rel_l2_a_same_layer")
    grid = within.arguments[0][0][0]
    assert np.isnan(np.diagonal(grid.values)).all()
    assert grid.values[0, 1] != grid.values[1, 0]  # not mirrored


def test_gaps_in_a_matrix_are_drawn_as_gaps():
    values = np.array([[np.nan, 0.98, np.nan], [0.98, np.nan, 0.97], [np.nan, 0.97, np.nan]])
    gaps, nothing = np.full((3, 3), np.nan), np.full((3, 3), np.nan)
    grids = [
        metrics_plan.MeasureGrid("some", ("a", "b", "c"), values, values - 0.01, np.full((3, 3), 0.001)),
        metrics_plan.MeasureGrid("none", ("a", "b", "c"), nothing, gaps, gaps),
    ]
    some, none = Picture("x", Text("x"), "metrics.figures.matrices", ([grids], "cosine", "title")).draw().axes
    said = [text.get_text() for text in some.texts]
    assert (said.count("self"), said.count("–"), said.count("0.98")) == (3, 2, 2)
    assert [text.get_text() for text in none.texts] == ["not comparable"]


# -- published figures ------------------------------------------------------------------------------------------------------


def test_published_figures_are_for_the_published_models_only(tiny_models):
    choices = [ModelChoice(name, str(tiny_models["first"]), None) for name in ("Solar", "GLM", "Phi")]
    with Session(Settings(range_cache=None)) as session:
        run = open_run(choices, session, Request(layers=(1, 2), roles=(Role.INPUT_NORM,)), lambda *_: None)
        section = metrics._measure_part(run, "cosine")
        assert section.tables
        assert section.checks == []


@pytest.fixture(scope="module")
def replica_run(run_on_replicas):
    return run_on_replicas("metrics")


@pytest.mark.slow
def test_published_figures_agree_on_replicas(replica_run):
    sure = [check for check in replica_run.checks if check.trust != "wrong"]
    assert len(sure) == 650
    assert [str(check.what) for check in sure if not check.agrees] == []
    assert replica_run.missing == []


@pytest.mark.slow
def test_wrong_figures_differ(replica_run):
    wrong = [check for check in replica_run.checks if check.trust == "wrong"]
    assert len(wrong) == 7
    assert all(check.reason is not None and check.agrees is False for check in wrong)


@pytest.mark.slow
def test_what_the_original_says_of_phi_has_an_exception(replica_run):
    notes = " ".join(str(note) for note in part(replica_run, "mean_abs_diff").notes)
    assert "holds in 5 of 6 cases (not in: post_attention_norm 10)" in notes
    zero = [r for r in records(part(replica_run, "p99_abs_diff"), "p99_abs_diff_within") if r["p99_abs_diff"] == 0.0]
    assert [(r["model_a"], r["layer_a"], r["layer_b"], r["role"]) for r in zero] == [("Solar", 10, 20, "input_norm")]
