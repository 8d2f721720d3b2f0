"""The baselines study: numbers by construction, groups, nulls, what is missing, pictures, Korean, published figures."""

import itertools
import math

import numpy as np
import pytest
from safetensors.numpy import load_file

from kinprint.arch import Role
from kinprint.metrics import METRICS
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from kinprint.stats.nulls import null_for
from kinprint.studies.baselines import moe_and_dense, three_measures
from kinprint.studies.recipe import run_study
from kinprint.studies.vector_pairs import vector_pairs
from kinprint.text import Text
from support.figures import without_finding
from support.layouts import write_checkpoint

PARTS = ["exp1", "exp2", "exp3", "exp4", "exp5", "exp6", "five_moe", "summary"]


@pytest.fixture(autouse=True)
def few_draws(monkeypatch):
    monkeypatch.setattr(three_measures, "FIXED_DRAWS", 40)
    monkeypatch.setattr(three_measures, "DRAWS", 60)


def part(outcome, name):
    return next(item.section for item in outcome.parts if item.name == name)


def records(section, name):
    found = next(item for item in section.tables if item.name == name)
    return [dict(zip((column.key for column in found.columns), row, strict=True)) for row in found.rows]


def norm(folder, layer):
    return load_file(folder / "model.safetensors")[f"model.layers.{layer}.input_layernorm.weight"].astype(np.float64)


def assert_measured(row, tiny_models):
    a, b = norm(tiny_models[row["a"]], row["layer_a"]), norm(tiny_models[row["b"]], row["layer_b"])
    null = null_for("cosine", a, b, observed=METRICS["cosine"](a, b), higher_is_closer=True)
    assert row["cosine"] == pytest.approx(METRICS["cosine"](a, b), abs=1e-12)
    assert row["pearson"] == pytest.approx(METRICS["pearson"](a, b), abs=1e-12)
    assert (row["null_mean"], row["null_sd"], row["z"]) == pytest.approx((null.mean, null.sd, null.z), rel=1e-6)
    assert (row["cv_a"], row["cv_b"]) == pytest.approx((a.std() / a.mean(), b.std() / b.mean()))
    assert row["pearson_sd"] == pytest.approx(1 / math.sqrt(63))


# -- layers inside a model -----------------------------------------------------------------------------------------------


def test_layer_zero_of_the_first_two_models(run_tiny, tiny_models):
    section = part(run_tiny("baselines", "first", "second", "child"), "exp1")
    rows = records(section, "exp1_layer0")
    assert [(row["a"], row["layer_a"], row["layer_b"]) for row in rows] == [
        (model, 0, layer) for model in ("first", "second") for layer in (1, 2, 3)
    ]
    for row in rows:
        assert_measured(row, tiny_models)
    means = records(section, "exp1_means")
    assert means[0]["mean"] == pytest.approx(np.mean([row["cosine"] for row in rows[:3]]))
    assert means[0]["null_mean"] == pytest.approx(np.mean([row["null_mean"] for row in rows[:3]]))


def test_equal_distance_within_and_across(run_tiny, tiny_models):
    rows = records(part(run_tiny("baselines", "first", "second"), "exp2"), "exp2_equal_distance")
    for row in rows:
        assert_measured(row, tiny_models)
    within = {(r["a"], r["layer_a"], r["layer_b"]) for r in rows if r["a"] == r["b"]}
    crossing = {(r["layer_a"], r["layer_b"]) for r in rows if r["a"] != r["b"]}
    assert within == {(model, low, low + 1) for model in ("first", "second") for low in (1, 2)}
    assert crossing == {(1, 1), (2, 2), (3, 3), (1, 2), (2, 1), (2, 3), (3, 2)}


def test_layers_asked_for(run_tiny):
    outcome = run_tiny("baselines", "first", "second", layers=(0, 2, 5))
    assert [r["layer_b"] for r in records(part(outcome, "exp1"), "exp1_layer0")] == [2, 5, 2, 5]
    assert records(part(outcome, "exp2"), "exp2_equal_distance")[0]["layer_b"] == 5
    assert {r["layer_a"] for r in records(part(outcome, "exp3"), "exp3_moe")} == {2}
    assert [r["layer"] for r in records(part(outcome, "exp4"), "exp4_layers")] == [0, 2, 5]


# -- models against models -----------------------------------------------------------------------------------------------


def test_models_at_one_layer_and_at_several(run_tiny, tiny_models):
    outcome = run_tiny("baselines", "first", "second", "child", "nopost")
    section = part(outcome, "exp3")
    assert any("no two MoE models" in str(note) for note in section.notes)
    rows = records(section, "exp3_moe")
    pairs = list(itertools.combinations(("first", "second", "child", "nopost"), 2))
    assert [(row["a"], row["b"]) for row in rows] == pairs
    for row in rows:
        assert_measured(row, tiny_models)
    swept = part(outcome, "exp4")
    every = records(swept, "exp4_layers_pairs")
    for row in records(swept, "exp4_layers"):
        cosines = [item["cosine"] for item in every if item["layer_a"] == row["layer"]]
        assert (row["n"], row["mean"], row["sd"]) == (
            6,
            pytest.approx(np.mean(cosines)),
            pytest.approx(np.std(cosines)),
        )
    assert records(swept, "exp4_layers_all")[0]["n"] == len(every)


def test_another_width_is_reported_and_the_rest_is_there(run_tiny):
    outcome = run_tiny("baselines", "first", "second", "narrow", "shallow")
    for name in ("exp3", "exp4", "exp5", "five_moe"):
        said = [str(text) for text in part(outcome, name).missing]
        assert said.count("first and narrow are not comparable: their vectors have 64 and 48 elements") == 1, name
    assert len(records(part(outcome, "exp3"), "exp3_moe")) == 3
    assert [str(text) for text in part(outcome, "exp4").missing if "shallow" in str(text)] == [
        f"shallow has no layer {layer}: it has layers 0 to 2" for layer in (3, 4, 5)
    ]
    widths = records(part(outcome, "five_moe"), "five_moe")
    assert {row["model"]: row["width"] for row in widths} == {"first": 64, "second": 64, "narrow": 48, "shallow": 64}
    shown = part(outcome, "five_moe").pictures[0].arguments[0]
    narrow = shown.names.index("narrow")
    assert np.isnan(shown.cosine[narrow]).all()
    predicted = np.delete(shown.null_mean[narrow], narrow)
    cv = [row["cv"] for row in widths]
    expected = [1 / math.hypot(1, cv[narrow]) / math.hypot(1, x) for i, x in enumerate(cv) if i != narrow]
    assert predicted == pytest.approx(expected)


def test_a_model_that_cannot_be_opened_is_named(tiny_models, tmp_path):
    models = (f"gone={tmp_path / 'gone'}", *(f"{name}={tiny_models[name]}" for name in ("first", "second")))
    with Session(Settings(range_cache=None, offline=True)) as session:
        outcome = run_study("baselines", session, models=models)
    for name in ("exp3", "exp4", "exp5"):
        assert any(str(text).startswith("gone could not be opened") for text in part(outcome, name).missing)
        assert part(outcome, name).tables


def test_roles_without_vectors_are_said_once(run_tiny):
    outcome = run_tiny("baselines", "first", "second", roles=(Role.POST_ATTENTION_NORM, Role.ATTN_K, Role.ROUTER))
    for item in outcome.parts:
        assert [str(text) for text in item.section.missing] == [
            "attn_k is a matrix: this study compares vectors",
            "none of these models has router in its layers",
        ]
    assert {item.name for item in part(outcome, "exp1").tables} == {
        "exp1_layer0_post_attention_norm",
        "exp1_means_post_attention_norm",
    }


@pytest.mark.parametrize("models", [("first",), ("first", "narrow")])
def test_too_little_to_compare(run_tiny, models):
    outcome = run_tiny("baselines", *models)
    assert [item.name for item in outcome.parts] == PARTS
    assert part(outcome, "exp1").tables
    assert not part(outcome, "exp3").tables
    assert any("no two of these models" in str(text) for text in part(outcome, "exp5").missing)
    assert part(outcome, "summary").missing
    for item in outcome.parts:
        for picture in item.section.pictures:
            assert picture.draw().axes


# -- groups --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mixed_models(tmp_path_factory):
    """Two MoE and three dense models of one layer pattern; the last two dense ones are related."""
    root, rng = tmp_path_factory.mktemp("mixed"), np.random.default_rng(7)
    made, last = {}, {}
    for number, name in enumerate(("d1", "m1", "m2", "d2", "d3")):
        moe = name.startswith("m")
        tensors = {"model.embed_tokens.weight": np.ones((50, 64), np.float32)}
        for layer in range(4):
            fresh = (1.0 + (0.05 + 0.02 * number) * rng.standard_normal(64)).astype(np.float32)
            values = (last[layer] + 0.05 * (fresh - 1)).astype(np.float32) if name == "d3" else fresh
            last[layer] = values
            for kind in ("input", "post_attention"):
                tensors[f"model.layers.{layer}.{kind}_layernorm.weight"] = values
            for expert in range(2 if moe else 0):
                tensors[f"model.layers.{layer}.block_sparse_moe.experts.{expert}.w1.weight"] = np.ones(
                    (8, 64), np.float32
                )
        config = {
            "model_type": "mixtral" if moe else "llama",
            "architectures": ["MixtralForCausalLM" if moe else "LlamaForCausalLM"],
            "hidden_size": 64,
            "num_hidden_layers": 4,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "intermediate_size": 8,
            "vocab_size": 50,
        } | ({"num_local_experts": 2} if moe else {})
        write_checkpoint(root / name, tensors, config=config)
        made[name] = root / name
    return made


@pytest.fixture
def mixed(mixed_models):
    with Session(Settings(range_cache=None)) as session:
        return run_study("baselines", session, models=tuple(f"{name}={path}" for name, path in mixed_models.items()))


def test_groups_with_and_without_the_related_pair(mixed):
    section = part(mixed, "exp5")
    pairs = {(row["a"], row["b"]): row for row in records(section, "exp5_pairs")}
    rows = {(str(row["choice"]), str(row["group"])): row for row in records(section, "exp5_groups")}
    assert {key: row["n"] for key, row in rows.items()} == {
        ("all models", "MoE–MoE"): 1,
        ("all models", "MoE–dense"): 6,
        ("all models", "dense–dense"): 3,
        ("without the related pairs", "MoE–MoE"): 1,
        ("without the related pairs", "MoE–dense"): 6,
        ("without the related pairs", "dense–dense"): 2,
    }
    related = records(section, "exp5_related")
    assert [(row["a"], row["b"]) for row in related] == [("d2", "d3")]
    assert "over 5 null standard deviations" in str(related[0]["why"])
    left = [pairs["d1", "d2"]["cosine"], pairs["d1", "d3"]["cosine"]]
    assert rows["without the related pairs", "dense–dense"]["mean"] == pytest.approx(np.mean(left))
    assert rows["all models", "dense–dense"]["median"] == pytest.approx(np.median([*left, related[0]["cosine"]]))


def test_moe_models_alone_in_experiment_three(mixed):
    assert [(row["a"], row["b"]) for row in records(part(mixed, "exp3"), "exp3_moe")] == [("m1", "m2")]
    assert part(mixed, "exp5").pictures[1].arguments[0].names == ("m1", "m2", "d1", "d2", "d3")


def test_gap_against_all_other_divisions(mixed):
    section = part(mixed, "exp5")
    found = records(section, "exp5_labels")[0]
    pairs = {frozenset((row["a"], row["b"])): row["cosine"] for row in records(section, "exp5_pairs")}

    def gap(chosen):
        inside = [value for pair, value in pairs.items() if pair <= set(chosen)]
        return np.mean(inside) - np.mean([value for pair, value in pairs.items() if not pair <= set(chosen)])

    gaps = [gap(chosen) for chosen in itertools.combinations(("d1", "m1", "m2", "d2", "d3"), 2)]
    assert found["gap"] == pytest.approx(gap(("m1", "m2")))
    assert (found["labellings"], found["p"]) == (10, np.mean(np.abs(gaps) >= abs(found["gap"]) - 1e-12))


def test_many_divisions_are_drawn(mixed, monkeypatch):
    section = part(mixed, "exp5")
    choice, kinds = section.pictures[0].arguments[0][0], {"d1": "", "d2": "", "d3": "", "m1": "moe", "m2": "moe"}
    monkeypatch.setattr(moe_and_dense, "MAX_LABELLINGS", 9)
    _, tried, drawn = moe_and_dense.division_gap(choice, kinds, 0)
    assert tried == 9
    assert drawn * 10 == pytest.approx(round(drawn * 10)), "counted with the division itself, so never zero"
    assert drawn >= 0.1


def test_documented_pairs_are_related_whatever_their_numbers():
    rng = np.random.default_rng(5)
    found = {(name, 0): 1 + 0.1 * rng.standard_normal(64) for name in ("Yi-6B", "Yi-9B", "Solar")}
    same, other = vector_pairs(found, [(("Yi-6B", 0), ("Yi-9B", 0)), (("Yi-6B", 0), ("Solar", 0))])
    assert "grown from the smaller" in str(moe_and_dense.relation(same))
    assert moe_and_dense.relation(other) is None


# -- three measures and random vectors -----------------------------------------------------------------------------------


def test_three_measures_of_the_same_pairs(run_tiny, tiny_models):
    section = part(run_tiny("baselines", "first", "child"), "exp6")
    rows = {row["pair"]: row for row in records(section, "exp6_metrics")}
    assert list(rows) == [
        "first[1] – child[1]",
        "first[1] – first[2]",
        "child[1] – child[2]",
        "first[0] – first[1]",
        "child[0] – child[1]",
    ]
    a, b = norm(tiny_models["first"], 1), norm(tiny_models["child"], 1)
    row = rows["first[1] – child[1]"]
    assert [row[key] for key in ("cosine", "pearson", "l2")] == pytest.approx(
        [METRICS[key](a, b) for key in ("cosine", "pearson", "l2")]
    )
    null = null_for("l2", a, b, observed=row["l2"], higher_is_closer=False)
    assert (row["l2_null"], row["l2_sd"]) == pytest.approx((null.mean, null.sd))


def test_matched_random_vectors_have_the_pairs_own_null(run_tiny):
    section = part(run_tiny("baselines", "first", "second", seed=4), "exp6")
    values = {row["pair"]: row for row in records(section, "exp6_metrics")}
    randoms = records(section, "exp6_random")
    assert randoms[0]["cosine_mean"] == pytest.approx(1 / 1.01, abs=1e-4), "as published: mean 1, sd 0.1"
    assert randoms[0]["pearson_sd"] == pytest.approx(1 / math.sqrt(4095), rel=0.4)
    assert randoms[0]["l2_mean"] == pytest.approx(0.1 * math.sqrt(2 * 4096), abs=0.1)
    for row in randoms[1:]:
        pair = values[str(row["pair"]).removeprefix("matched to ")]
        assert row["cosine_mean"] == pytest.approx(pair["cosine_null"], abs=5 * row["cosine_sd"] / math.sqrt(60) + 1e-3)
        assert row["l2_mean"] == pytest.approx(pair["l2_null"], abs=5 * row["l2_sd"] / math.sqrt(60) + 0.02)


def test_seed_decides_the_draws(run_tiny):
    one, again, other = (
        records(part(run_tiny("baselines", "first", "second", layers=(0, 1), seed=seed), "exp6"), "exp6_random")
        for seed in (1, 1, 2)
    )
    assert [list(row.values())[1:] for row in one] == [list(row.values())[1:] for row in again]
    assert one[0]["cosine_mean"] != other[0]["cosine_mean"]


def test_constant_vectors_leave_the_rest(tmp_path):
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "intermediate_size": 8,
        "vocab_size": 50,
    }
    rng = np.random.default_rng(1)
    for name in ("ones", "varied", "other"):
        tensors = {"model.embed_tokens.weight": np.ones((50, 64), np.float32)}
        for layer, kind in itertools.product(range(3), ("input", "post_attention")):
            noise = 0.0 if name == "ones" else 0.1
            values = (1.0 + noise * rng.standard_normal(64)).astype(np.float32)
            tensors[f"model.layers.{layer}.{kind}_layernorm.weight"] = values
        write_checkpoint(tmp_path / name, tensors, config=config)
    with Session(Settings(range_cache=None)) as session:
        models = tuple(f"{name}={tmp_path / name}" for name in ("ones", "varied", "other"))
        outcome = run_study("baselines", session, models=models)
    row = records(part(outcome, "exp3"), "exp3_moe")[0]
    assert np.isnan(row["pearson"])
    assert row["cosine"] == pytest.approx(row["null_mean"])
    said = [str(text) for text in part(outcome, "exp6").missing if "constant" in str(text)]
    assert said
    assert all("(a) and" in text and "(b): not defined here" in text for text in said)
    assert "varied[1] – other[1]" in [r["pair"] for r in records(part(outcome, "exp6"), "exp6_metrics")]
    for item in outcome.parts:
        for picture in item.section.pictures:
            assert picture.draw().axes


# -- pictures and languages ------------------------------------------------------------------------------------------------


def test_every_picture_draws(mixed):
    pictures = [picture for item in mixed.parts for picture in item.section.pictures]
    assert [picture.name for picture in pictures] == [
        "exp1_layer0",
        "exp2_equal_distance",
        "exp3_moe",
        "exp4_layers",
        "exp5_groups",
        "exp5_heatmap",
        "exp6_metrics",
        "five_moe",
        "summary",
    ]
    drawn = {picture.name: picture.draw() for picture in pictures}
    for name, figure in drawn.items():
        assert all(axes.get_title() or axes.get_label() == "<colorbar>" for axes in figure.axes), name
    assert without_finding(drawn) == []


def test_nothing_lies_outside_the_axes(mixed):
    for name in ("exp1", "exp2", "exp4", "exp6"):
        for axes in part(mixed, name).pictures[0].draw().axes:
            low, high = axes.get_xlim()
            bottom, top = sorted(axes.get_ylim())
            free = [line for line in axes.lines if line.get_transform() == axes.transData]
            assert free
            for line in free:
                x, y = (np.asarray(values, dtype=float) for values in line.get_data())
                assert ((x >= low) & (x <= high)).all(), (name, axes.get_title())
                assert ((y >= bottom) & (y <= top)).all(), (name, axes.get_title())


def test_korean_formats_numbers():
    template = "{where}: Pearson lies from {low:.1f} to {high:.1f} null standard deviations above zero."
    said = Text(template, where=Text("two models, same layer"), low=1.0, high=2.0)
    assert said.render("ko").startswith("두 모델, 같은 레이어: ")


def test_published_figures_are_for_the_published_models_only(mixed):
    assert mixed.checks == []


# -- replicas --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def replica_run(run_on_replicas):
    return run_on_replicas("baselines")


@pytest.mark.nightly  # CI runs three other studies on replicas
def test_published_figures_agree_on_replicas(replica_run):
    sure = [check for check in replica_run.checks if check.trust != "wrong"]
    assert len(sure) == 105
    distances = [check for check in sure if str(check.what).startswith("L2, ")]
    assert len(distances) == 7
    for check in distances:  # printed to a millionth of their value: closer than replicas are made to meet them
        assert check.measured == pytest.approx(check.published, rel=1e-4), check.what
    assert [str(check.what) for check in sure if not check.agrees] == ["L2, GLM[10] – Mixtral[10]"]


@pytest.mark.nightly
def test_wrong_figures_differ_or_are_no_test(replica_run):
    wrong = {str(check.what): check for check in replica_run.checks if check.trust == "wrong"}
    assert len(wrong) == 7
    assert all(check.reason for check in wrong.values())
    agreeing = [what for what, check in wrong.items() if check.agrees]
    assert agreeing == ["gap between layer 0 within GLM and Solar–GLM, in pooled standard deviations"]
    assert wrong["cosine, Solar[10] – GLM[20]"].measured == pytest.approx(0.982, abs=1e-3)


@pytest.mark.nightly
def test_replicas_have_the_published_groups_and_one_model_of_another_width(replica_run):
    counts = [(str(r["choice"]), r["n"]) for r in records(part(replica_run, "exp5"), "exp5_groups")]
    assert [n for _, n in counts] == [6, 16, 6, 6, 20, 10, 6, 19, 9]
    pairs = [f"{name} and Mixtral-8x22B are not comparable" for name in ("Solar", "GLM", "Phi", "Mixtral")]
    assert [(item.name, str(text).partition(":")[0]) for item, text in replica_run.missing] == [
        ("five_moe", pair) for pair in pairs
    ]
    means = {(str(r["choice"]), str(r["group"])): r["mean"] for r in records(part(replica_run, "exp5"), "exp5_groups")}
    assert means["without the related pairs", "MoE–dense"] == pytest.approx(0.970, abs=2e-3)
