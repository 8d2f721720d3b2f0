"""The shuffle test: numbers by construction, what is missing is said, every picture draws, Korean is complete."""

import numpy as np
import pytest
from safetensors.numpy import load_file

import kinprint.studies.sanity as module
from kinprint.arch import Role
from kinprint.metrics import METRICS
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from kinprint.studies.recipe import run_study
from support.figures import without_finding
from support.layouts import write_checkpoint


@pytest.fixture(autouse=True)
def few_draws(monkeypatch):
    monkeypatch.setattr(module, "DRAWS", 25)


def part(outcome, name):
    return next(item.section for item in outcome.parts if item.name == name)


def records(section, name):
    found = next(item for item in section.tables if item.name == name)
    return [dict(zip((column.key for column in found.columns), row, strict=True)) for row in found.rows]


def norm(folder, layer, kind="input"):
    return load_file(folder / "model.safetensors")[f"model.layers.{layer}.{kind}_layernorm.weight"].astype(np.float64)


@pytest.mark.parametrize(("role", "kind"), [("input_norm", "input"), ("post_attention_norm", "post_attention")])
def test_every_layer_as_the_registered_metrics_have_it(run_tiny, tiny_models, role, kind):
    found = records(part(run_tiny("sanity", "first", "second"), "shuffle"), f"shuffle_{role}_first_second")
    assert [row["layer"] for row in found] == list(range(6))
    for row in found:
        a, b = (norm(tiny_models[name], row["layer"], kind) for name in ("first", "second"))
        assert row["cosine"] == pytest.approx(METRICS["cosine"](a, b), abs=1e-12)
        assert row["pearson"] == pytest.approx(METRICS["pearson"](a, b), abs=1e-12)
        assert row["shuffled"] == METRICS["shuffled_cosine"](a, b)
        assert row["null_mean"] == pytest.approx(a.mean() * b.mean() / np.sqrt((a**2).mean() * (b**2).mean()))
        assert (row["mean_a"], row["sd_b"]) == pytest.approx((a.mean(), b.std()))


def test_summary_over_layers(run_tiny):
    section = part(run_tiny("sanity", "first", "child"), "shuffle")
    rows = records(section, "shuffle_input_norm_first_child")
    cosine, shuffled = (np.array([row[key] for row in rows]) for key in ("cosine", "shuffled"))
    summary = records(section, "shuffle_input_norm_first_child_mean")
    assert summary[0]["mean"] == pytest.approx(cosine.mean())
    assert summary[0]["median"] == pytest.approx(np.median(cosine))
    assert summary[4]["min"] == pytest.approx((cosine - shuffled).min())
    assert summary[3]["min"] > 0.9, "a near copy is seen by Pearson"


def test_layers_and_roles_asked_for(run_tiny):
    section = part(run_tiny("sanity", "first", "second", layers=(1, 4), roles=(Role.POST_ATTENTION_NORM,)), "shuffle")
    assert {item.name for item in section.tables} == {
        "shuffle_post_attention_norm_first_second",
        "shuffle_post_attention_norm_first_second_mean",
    }
    assert [row["layer"] for row in records(section, "shuffle_post_attention_norm_first_second")] == [1, 4]


def test_what_cannot_be_compared_is_said_and_the_rest_is_there(run_tiny):
    section = part(run_tiny("sanity", "first", "narrow", "nopost", "shallow"), "shuffle")
    said = [str(text) for text in section.missing]
    assert "first and narrow are not comparable: their vectors have 64 and 48 elements" in said
    assert any("nopost" in text and "post_attention_norm" in text for text in said)
    assert len(records(section, "shuffle_input_norm_first_shallow")) == 3
    assert len(records(section, "shuffle_input_norm_first_nopost")) == 6


def test_matrices_are_refused_unread(run_tiny):
    outcome = run_tiny("sanity", "first", "second", roles=(Role.ATTN_K, Role.INPUT_NORM))
    section = part(outcome, "shuffle")
    assert [str(text) for text in section.missing] == ["attn_k is a matrix: this study compares vectors"]
    assert {item.name for item in section.tables} >= {"shuffle_input_norm_first_second"}


def test_one_model_is_too_few(run_tiny):
    outcome = run_tiny("sanity", "first")
    assert [str(text) for text in part(outcome, "shuffle").missing] == ["two models are needed, and 1 could be opened"]
    assert part(outcome, "synthetic").tables


def constant_models(root):
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "intermediate_size": 128,
        "vocab_size": 50,
    }
    varied = np.linspace(0.5, 1.5, 64, dtype=np.float32)
    made = {"ones": np.ones(64, np.float32), "zeros": np.zeros(64, np.float32), "varied": varied}
    for name, values in made.items():
        tensors = {"model.embed_tokens.weight": np.ones((50, 64), np.float32)}
        tensors |= {f"model.layers.0.{kind}_layernorm.weight": values for kind in ("input", "post_attention")}
        write_checkpoint(root / name, tensors, config=config)
    return tuple(f"{name}={root / name}" for name in made)


def test_constants_are_reported_and_drawn(tmp_path):
    models = constant_models(tmp_path)
    with Session(Settings(range_cache=None)) as session:
        section = part(run_study("sanity", session, models=models), "shuffle")
    row = records(section, "shuffle_input_norm_ones_varied")[0]
    assert row["cosine"] == pytest.approx(row["null_mean"])
    assert np.isnan(row["pearson"])
    assert sum("not defined here" in str(text) for text in section.missing) == 4, "zeros against both, in both roles"
    for picture in section.pictures:
        assert picture.draw().axes


def test_synthetic_vectors_meet_the_prediction(run_tiny):
    rows = records(part(run_tiny("sanity", "first", seed=3), "synthetic"), "synthetic")
    assert len(rows) == 45
    for row in rows:
        error = 5 * row["cosine_sd"] / np.sqrt(25) + 2 / row["width"]
        assert row["cosine"] == pytest.approx(row["predicted"], abs=error), row
        assert row["positive_a"] == pytest.approx(row["expected_a"], abs=0.07)


def test_seed_decides_the_synthetic_draws(run_tiny):
    one, again, other = (
        records(part(run_tiny("sanity", "first", seed=seed), "synthetic"), "synthetic") for seed in (1, 1, 2)
    )
    assert one == again
    assert one != other


def test_every_picture_draws(run_tiny):
    outcome = run_tiny("sanity", "first", "child", layers=(2,))
    pictures = [picture for item in outcome.parts for picture in item.section.pictures]
    assert [picture.name for picture in pictures] == [
        "shuffle_input_norm_first_child",
        "shuffle_post_attention_norm_first_child",
        "synthetic",
    ]
    drawn = {picture.name: picture.draw() for picture in pictures}
    assert [len(figure.axes) for figure in drawn.values()] == [3, 3, 9]
    assert without_finding(drawn) == []
    assert "joint p ≤" in drawn["shuffle_input_norm_first_child"].get_suptitle()


def test_published_figures_are_for_the_published_models_only(run_tiny):
    assert run_tiny("sanity", "first", "second").checks == []


@pytest.mark.slow
def test_published_figures_agree_on_replicas(run_on_replicas):
    checks = run_on_replicas("sanity").checks
    assert len(checks) == 2 * (2 * 46 + 3)
    assert [str(check.what) for check in checks if not check.agrees] == []
