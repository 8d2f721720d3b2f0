"""The bias study: numbers by construction, what is missing is said, every picture draws, Korean is complete."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from kinprint.arch import Role
from kinprint.errors import DegenerateInput
from kinprint.metrics import METRICS
from kinprint.metrics.identity import ordinals
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from kinprint.stats.nulls import null_for
from kinprint.studies.bias import STUDY as BIAS
from kinprint.studies.bias.shared import PUBLISHED_PAIRS, effective_layers, lag_one, naive_t, quartile_sample
from kinprint.studies.bias.space import joint_path
from kinprint.studies.opened import Request
from kinprint.studies.outcome import Missing
from kinprint.studies.published import published
from kinprint.studies.recipe import run_study
from support.figures import without_finding
from support.layouts import write_checkpoint

INPUT, POST = "input_layernorm", "post_attention_layernorm"


def part(outcome, name):
    return next(item.section for item in outcome.parts if item.name == name)


def records(section, name):
    found = next(item for item in section.tables if item.name == name)
    return [dict(zip((column.key for column in found.columns), row, strict=True)) for row in found.rows]


def norms(folder, kind=INPUT):
    stored = load_file(folder / "model.safetensors")
    count = len([name for name in stored if name.endswith(f".{kind}.weight")])
    return np.stack([stored[f"model.layers.{layer}.{kind}.weight"].astype(np.float64) for layer in range(count)])


def run_on(folders, **request):
    """Run on folders by name; with `replicas` the names of published models stand for those."""
    models = tuple(f"{name}={path}" for name, path in folders.items())
    with Session(Settings(range_cache=None)) as session:
        return run_study("bias", session, models=models, request=Request(**request))


@pytest.fixture(scope="module")
def family(tiny_models):
    """The study on two independent models and a near copy of the first."""
    return run_on({name: tiny_models[name] for name in ("first", "second", "child")})


# -- numbers -----------------------------------------------------------------------------------------------------------


def test_made_up_vectors_are_the_published_ones(family):
    section = part(family, "fig0")
    assert [check.agrees for check in section.checks] == [True] * 4
    a, b = np.array([0.95, 0.70, 0.72]), np.array([0.70, 1.05, 0.72])
    assert records(section, "toy")[1]["cosine"] == METRICS["pearson"](a, b)


def test_pairs_by_layer_as_the_registered_metrics_have_them(family, tiny_models):
    section = part(family, "fig1")
    assert len(section.pictures) == 3
    a, b = norms(tiny_models["first"]), norms(tiny_models["second"])
    rows = records(section, "pair_input_norm_first_second")
    assert [row["layer"] for row in rows] == list(range(6))
    for x, y, row in zip(a, b, rows, strict=True):
        assert row["cosine"] == pytest.approx(METRICS["cosine"](x, y), abs=1e-12)
        assert row["pearson"] == pytest.approx(METRICS["pearson"](x, y), abs=1e-12)
        null = null_for("cosine", x, y, observed=row["cosine"], higher_is_closer=True)
        assert (row["cosine_null"], row["cosine_null_sd"]) == pytest.approx((null.mean, null.sd))
        assert row["pearson_null_sd"] == pytest.approx(1 / np.sqrt(63))
        assert row["z"] == pytest.approx(null.z)


def test_sample_is_of_the_best_layer_and_centred_by_the_whole_vector(family, tiny_models):
    a, b = norms(tiny_models["first"]), norms(tiny_models["second"])
    best = int(np.argmax([METRICS["cosine"](x, y) for x, y in zip(a, b, strict=True)]))
    section = part(family, "fig1")
    title = next(str(item.title) for item in section.tables if item.name == "pair_input_norm_first_second_sample")
    assert title == f"50 dimensions of layer {best}: first (A) and second (B), input_norm"
    rows = records(section, "pair_input_norm_first_second_sample")
    assert len({row["dimension"] for row in rows}) == 50
    for row in rows:
        assert row["centred_a"] == pytest.approx(a[best][row["dimension"]] - a[best].mean())
        assert row["centred_b"] == pytest.approx(b[best][row["dimension"]] - b[best].mean())
    middle = [row["a"] + row["b"] for row in rows]
    assert middle == sorted(middle)


def test_quarters_give_13_13_12_12():
    rng = np.random.default_rng(5)
    a, b = rng.random(4096), rng.random(4096)
    chosen = quartile_sample(a, b, 42)
    rank = np.argsort(np.argsort(a + b))
    assert np.bincount(rank[chosen] // 1024).tolist() == [13, 13, 12, 12]
    assert not np.array_equal(chosen, quartile_sample(a, b, 43))
    assert quartile_sample(a[:20], b[:20], 42).size == 20


def test_all_layers_and_their_summary(family, tiny_models):
    a, b = norms(tiny_models["first"]), norms(tiny_models["second"])
    section = part(family, "fig2")
    rows = records(section, "layers_input_norm_first_second")
    pearson = {(row["layer_a"], row["layer_b"]): row["pearson"] for row in rows}
    assert pearson[2, 5] == pytest.approx(METRICS["pearson"](a[2], b[5]))
    same, different = records(section, "layers_input_norm_first_second_summary")
    off = [value for (p, q), value in pearson.items() if p != q]
    assert (same["count"], different["count"]) == (6, 30)
    assert different["pearson_mean"] == pytest.approx(np.mean(off))
    assert different["pearson_median"] == pytest.approx(np.median(off))
    assert different["pearson_sd"] == pytest.approx(np.std(off))
    assert same["pearson_mean"] == pytest.approx(np.mean([pearson[i, i] for i in range(6)]))


def test_what_differs_is_shown_for_the_closest_pair(family, tiny_models):
    section = part(family, "fig3_1")
    assert [item.name for item in section.tables] == ["changed_input_norm_first_child"]
    a, b = norms(tiny_models["first"]), norms(tiny_models["child"])
    for layer, row in enumerate(records(section, "changed_input_norm_first_child")):
        assert row["changed_percent"] == pytest.approx(100 * np.mean(a[layer] != b[layer]))
        assert row["mean_abs_diff"] == pytest.approx(np.abs(a[layer] - b[layer]).mean())
        steps = np.abs(ordinals(a[layer], "F32") - ordinals(b[layer], "F32"))
        assert row["ulp"] == pytest.approx(steps.mean())
        assert row["ulp_changed"] == pytest.approx(steps[steps > 0].mean())
        expected = np.abs(a[layer][:, None] - b[layer][None, :]).mean()  # mean over all permutations
        assert row["mean_abs_diff_null"] == pytest.approx(expected)


def test_diagonals_are_tested_under_one_permutation_for_all_layers(family, tiny_models):
    rows = {(row["a"], row["b"]): row for row in records(part(family, "fig5"), "diagonals_input_norm")}
    assert set(rows) == {("first", "second"), ("first", "child"), ("second", "child")}
    a, b = norms(tiny_models["first"]), norms(tiny_models["second"])
    unit_a, unit_b = ((x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True) / 8 for x in (a, b))
    sd = np.sqrt(((unit_a @ unit_a.T) * (unit_b @ unit_b.T)).sum() / (36 * 63))
    row = rows["first", "second"]
    assert row["joint_sd"] == pytest.approx(sd)
    assert row["z"] == pytest.approx(row["mean"] / sd)
    assert row["effective"] == pytest.approx(1 / (63 * sd**2))
    assert rows["first", "child"]["log10_p"] < -5 < rows["first", "second"]["log10_p"]


def test_layers_that_are_copies_count_once(tmp_path, tiny_models):
    """Six layers that are one vector six times are worth one independent layer, not six."""
    rng = np.random.default_rng(8)
    made = {}
    for name in ("one", "other"):
        vector = (1 + 0.1 * rng.standard_normal(64)).astype(np.float32)
        tensors = {f"model.layers.{i}.input_layernorm.weight": vector for i in range(6)}
        write_checkpoint(tmp_path / name, tensors, config=_config())
        made[name] = tmp_path / name
    (row,) = records(part(run_on(made), "fig5"), "diagonals_input_norm")
    assert row["effective"] == pytest.approx(1.0)
    assert row["joint_sd"] == pytest.approx(row["null_sd"])


def test_published_autocorrelation_and_t_follow_from_the_published_rows():
    for category, known in (("norm_pre", "norm_pre"), ("norm_post", "norm_post")):
        values = np.array([row["cosine_centered"] for _, row in sorted(published()["layerwise"][category].items())])
        expected = published()["recomputed_checks"][known]
        assert naive_t(values) == pytest.approx(expected["naive_t_of_mean_pearson"], rel=1e-6)
        assert lag_one(values) == pytest.approx(expected["lag1_autocorr"], rel=1e-6)
    assert (naive_t(np.array([0.1])), lag_one(np.array([0.1, 0.1]))) == (None, None)


def test_null_without_spread_is_worth_no_layer():
    flat = np.ones(16)
    null = null_for("changed", flat, flat, observed=0.0, higher_is_closer=False)
    assert effective_layers(null) is None


def test_statistics_and_difference_by_layer(family, tiny_models):
    before, after = norms(tiny_models["first"]), norms(tiny_models["first"], POST)
    row = next(r for r in records(part(family, "fig8"), "statistics_post_attention_norm") if r["layer"] == 3)
    assert (row["mean"], row["sd"], row["length"]) == pytest.approx(
        (after[3].mean(), after[3].std(), np.linalg.norm(after[3]))
    )
    other = norms(tiny_models["second"]) - norms(tiny_models["second"], POST)
    rows = records(part(family, "fig10"), "difference_first_second")
    for layer, row in enumerate(rows):
        assert row["pearson"] == pytest.approx(METRICS["pearson"]((before - after)[layer], other[layer]))


def test_ridges_say_what_the_original_would_have_cut(tmp_path):
    high = np.full(64, 1.9, dtype=np.float32)
    high[:16] = 2.5
    tensors = {f"model.layers.{i}.input_layernorm.weight": high for i in range(2)}
    write_checkpoint(tmp_path / "high", tensors, config=_config(layers=2))
    section = part(run_on({"high": tmp_path / "high"}), "fig9")
    (row,) = records(section, "ridges")
    assert (row["layers_outside"], row["largest_share"], row["largest"]) == (2, 25.0, 2.5)
    assert section.pictures[0].draw().axes[0].get_xlim()[1] > 2.5


def test_bins_lie_on_the_grid_of_the_stored_numbers():
    from kinprint.studies.bias.figures import BINS, bin_edges

    edges = bin_edges(-0.3, 2.6, 2.0**-6)
    assert edges[0] <= -0.3 < edges[1]
    assert edges[-2] <= 2.6 < edges[-1]
    assert np.unique(np.diff(edges)).tolist() == [2.0**-5]
    assert len(edges) <= BINS + 3
    assert np.diff(bin_edges(1.0, 1.001, 2.0**-7)).tolist() == [2.0**-7]
    assert len(bin_edges(1.0, 1.0, 0.0)) >= 2


def test_principal_components_are_those_of_a_singular_value_decomposition():
    rng = np.random.default_rng(3)
    stacks = {name: ((0, 1, 2, 3), 1 + 0.2 * rng.standard_normal((4, 50))) for name in ("a", "b")}
    found = joint_path(stacks, seed=0)
    rows = np.concatenate([values for _, values in stacks.values()])
    u, s, _ = np.linalg.svd(rows - rows.mean(0), full_matrices=False)
    assert found.explained == pytest.approx((s**2 / (s**2).sum())[:3])
    assert np.abs(found.scores.reshape(8, 3)) == pytest.approx(np.abs(u[:, :3] * s[:3]))
    assert joint_path(stacks, seed=0).null.tolist() == found.null.tolist()


def test_level_stays_in_random_order_and_likeness_does_not():
    rng = np.random.default_rng(4)
    base, layers = rng.standard_normal(400), tuple(range(5))
    alike = {name: (layers, np.outer(np.arange(1.0, 6.0), base)) for name in ("a", "b")}
    found = joint_path(alike, seed=1)
    assert found.explained[0] == pytest.approx(1.0)
    # Orthogonal bases: rows k·a and k·b have variance Σk² = 55 along a − b and Σ(k − 3)² = 10 along a + b.
    assert found.null[0] == pytest.approx(55 / 65, abs=0.02)
    level = {name: (layers, np.arange(5.0)[:, None] + 0.01 * rng.standard_normal((5, 400))) for name in ("a", "b")}
    found = joint_path(level, seed=1)
    assert found.null[0] == pytest.approx(found.explained[0], abs=1e-3)
    assert abs(found.with_mean[0]) > 0.999


def test_too_few_or_equal_layers_have_no_components():
    one = {"a": ((0, 1), np.ones((2, 8)))}
    with pytest.raises(Missing, match="at least 4 layers in all; 2 are there"):
        joint_path(one, seed=0)
    with pytest.raises(DegenerateInput, match="all layers are the same"):
        joint_path({"a": ((0, 1, 2, 3), np.ones((4, 8)))}, seed=0)


def test_appendix_e_takes_the_same_layers_for_all_pairs(tiny_models):
    outcome = run_on({name: tiny_models[name] for name in ("first", "second", "shallow")})
    section = part(outcome, "appendix_e")
    assert {row["layers"] for row in records(section, "e_same_layers_input_norm")} == {3}
    own = {(row["a"], row["b"]): row for row in records(section, "e_own_layers_input_norm")}
    assert [row["layers"] for row in own.values()] == [6, 3, 3]
    a, b = norms(tiny_models["first"]), norms(tiny_models["second"])
    cosines = [METRICS["cosine"](x, y) for x, y in zip(a, b, strict=True)]
    row = own["first", "second"]
    assert (row["cosine_mean"], row["cosine_median"]) == pytest.approx((np.mean(cosines), np.median(cosines)))
    assert (row["best_layer"], row["best_cosine"]) == (np.argmax(cosines), pytest.approx(max(cosines)))
    assert not outcome.missing


def test_a_block_that_only_predicts_tokens_is_left_out_and_said_to_be(tmp_path, tiny_models):
    rng = np.random.default_rng(0)
    tensors = {
        f"model.layers.{i}.{kind}.weight": rng.random(64).astype(np.float32) for i in range(4) for kind in (INPUT, POST)
    }
    tensors["model.layers.3.mlp.experts.7.up_proj.weight"] = rng.random((8, 64)).astype(np.float32)
    config = _config(layers=3) | {"model_type": "glm4_moe", "num_nextn_predict_layers": 1, "n_routed_experts": 0}
    write_checkpoint(tmp_path / "mtp", tensors, config=config)
    outcome = run_on({"mtp": tmp_path / "mtp", "first": tiny_models["first"]})
    section = part(outcome, "appendix_e")
    mtp = records(section, "e_models")[0]
    assert (mtp["layers"], mtp["left_out"], mtp["parameters"] * 1e9) == (3, "3", pytest.approx(6 * 64))
    assert any("layer 3 only predicts further tokens" in str(note) for note in section.notes)
    assert [row["layer"] for row in records(part(outcome, "fig1"), "pair_input_norm_mtp_first")] == [0, 1, 2]


# -- requests, and what is missing -------------------------------------------------------------------------------------


def test_layers_and_roles_asked_for(run_tiny):
    outcome = run_tiny("bias", "first", "second", layers=(1, 4), roles=(Role.POST_ATTENTION_NORM,))
    rows = records(part(outcome, "fig1"), "pair_post_attention_norm_first_second")
    assert [row["layer"] for row in rows] == [1, 4]
    same = records(part(outcome, "appendix_d"), "d_same_post_attention_norm")
    assert [row["layer_a"] for row in same] == [1, 4]
    assert not outcome.missing


def test_a_matrix_is_refused_by_name(run_tiny):
    outcome = run_tiny("bias", "first", "second", roles=(Role.ATTN_K,))
    assert "attn_k is no vector along the residual stream" in str(part(outcome, "fig1").missing[0])
    assert not part(outcome, "fig1").tables
    assert part(outcome, "fig10").tables  # this one has its roles from the figure


def test_another_width_and_a_missing_role_are_reported_and_the_rest_is_there(run_tiny):
    outcome = run_tiny("bias", "first", "second", "narrow", "nopost")
    said = [(item.name, str(text)) for item, text in outcome.missing]
    assert ("fig1", "first and narrow are not comparable: their vectors have 64 and 48 elements") in said
    assert ("fig7", "first and narrow are not comparable: their vectors have 64 and 48 elements") in said
    assert ("fig8", "nopost has no tensor of the role post_attention_norm") in said
    assert ("fig10", "nopost has no tensor of the role post_attention_norm") in said
    assert [picture.name for picture in part(outcome, "fig1").pictures] == [
        "pair_input_norm_first_second",
        "pair_input_norm_first_nopost",
        "pair_input_norm_second_nopost",
    ]
    assert len(records(part(outcome, "fig6"), "surfaces_input_norm")) == 4
    assert {row["a"] for row in records(part(outcome, "appendix_e"), "e_own_layers_post_attention_norm")} == {"first"}


def test_one_model_has_what_needs_one(run_tiny):
    outcome = run_tiny("bias", "first")
    missing = {item.name for item, text in outcome.missing if "two models are needed" in str(text)}
    assert missing == {"fig1", "fig2", "fig3_1", "fig5", "appendix_d", "appendix_e"}
    for name in ("fig0", "fig6", "fig7", "fig8", "fig9", "fig10"):
        assert part(outcome, name).tables
        for item in part(outcome, name).pictures:
            if item.name != "toy_film":
                assert item.draw().axes


def test_constant_and_zero_layers_do_not_stop_the_others(tmp_path, tiny_models):
    rng = np.random.default_rng(2)
    tensors = {f"model.layers.{i}.{INPUT}.weight": rng.random(64).astype(np.float32) for i in range(6)}
    tensors[f"model.layers.1.{INPUT}.weight"][:] = 1.0
    tensors[f"model.layers.2.{INPUT}.weight"][:] = 0.0
    write_checkpoint(tmp_path / "flat", tensors, config=_config())
    outcome = run_on({"flat": tmp_path / "flat", "first": tiny_models["first"]})
    rows = records(part(outcome, "fig1"), "pair_input_norm_flat_first")
    assert [np.isnan(row["pearson"]) for row in rows] == [False, True, True, False, False, False]
    assert [np.isnan(row["cosine"]) for row in rows] == [False, False, True, False, False, False]
    (row,) = records(part(outcome, "fig5"), "diagonals_input_norm")
    assert row["mean"] == pytest.approx(np.mean([r["pearson"] for i, r in enumerate(rows) if i not in (1, 2)]))
    for item in outcome.parts:
        for drawn in item.section.pictures:
            if drawn.name != "toy_film":
                assert drawn.draw().axes


def test_models_that_are_all_constant_have_tables_and_say_why_not_more(tmp_path):
    made = {}
    for name, value in (("ones", 1.0), ("twos", 2.0)):
        tensors = {f"model.layers.{i}.{INPUT}.weight": np.full(64, value, dtype=np.float32) for i in range(6)}
        write_checkpoint(tmp_path / name, tensors, config=_config())
        made[name] = tmp_path / name
    outcome = run_on(made)
    assert part(outcome, "fig1").tables
    assert part(outcome, "fig8").tables
    said = "ones and twos: no layer of input_norm to test, as one side or the other is constant in each"
    assert any(item.name == "fig5" and str(text) == said for item, text in outcome.missing)


# -- published figures -------------------------------------------------------------------------------------------------


def test_published_pairs_and_checks_only_for_the_published_models(tiny_models):
    names = {"Solar": "first", "GLM": "second", "INTELLECT": "child", "Phi": "shallow"}
    folders = {name: tiny_models[other] for name, other in names.items()}
    outcome = run_on(folders, replicas=True)
    shown = [item.name.removeprefix("pair_input_norm_") for item in part(outcome, "fig1").pictures]
    assert shown == [f"{a}_{b}" for a, b in PUBLISHED_PAIRS]
    assert any("siblings" in str(note) for note in part(outcome, "fig1").notes)
    diagonal = {str(check.what): check for check in part(outcome, "fig5").checks}
    assert len(diagonal) == 6
    check = diagonal["figure 5: mean Pearson of the same layer, Solar and GLM"]
    row = records(part(outcome, "fig5"), "diagonals_input_norm")[0]
    assert (check.published, check.measured) == (0.013, row["mean"])
    plain = run_on({name.lower(): path for name, path in folders.items()})
    assert not plain.checks[4:]  # figure 0 needs no model
    some = run_on(folders, replicas=True, layers=(0, 1))
    assert not part(some, "fig5").checks


def test_every_wrong_figure_has_a_reason(tiny_models):
    names = {"Solar": "first", "GLM": "second", "INTELLECT": "child", "Phi": "shallow"}
    outcome = run_on({name: tiny_models[other] for name, other in names.items()}, replicas=True)
    wrong = [check for check in outcome.checks if check.trust == "wrong"]
    assert len(wrong) > 15
    assert all(check.reason is not None for check in wrong)


# -- pictures and Korean -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [item.name for item in BIAS.parts if item.name != "fig0"])
def test_every_picture_draws(family, name):
    drawn = [item.draw() for item in part(family, name).pictures]
    assert len(drawn) == {"fig1": 3, "appendix_d": 0, "appendix_e": 2}.get(name, 1)
    assert without_finding(dict(enumerate(drawn))) == []
    for figure in drawn:
        assert all(axes.get_title() for axes in figure.axes if axes.get_label() != "<colorbar>" and axes.axison)


def test_stills_and_film_of_the_mean_taken_away(family):
    raw, centred, film = (item.draw() for item in part(family, "fig0").pictures)
    assert "cosine 0.96, angle 17°" in raw.axes[0].get_title()
    assert "cosine -0.60, angle 127°" in centred.axes[0].get_title()
    assert film.frames == 120
    film.update(0)
    assert film.figure.axes[0].get_title() == raw.axes[0].get_title()
    film.update(119)
    assert film.figure.axes[0].get_title() == centred.axes[0].get_title()
    assert (film.figure.axes[0].elev, film.figure.axes[0].azim) == pytest.approx((35.2644, 45.0), abs=1e-4)


@pytest.mark.nightly
@pytest.mark.parametrize("film", [False, True])
def test_every_picture_renders_and_the_film_is_small(family, film):
    from kinprint.studies.figure_style import rendered

    pictures = [item for part_ in family.parts for item in part_.section.pictures]
    chosen = [item for item in pictures if (item.name == "toy_film") == film]
    assert len(chosen) == (1 if film else len(pictures) - 1)
    for item in chosen:
        found = dict(rendered(item.draw()))
        assert set(found) == ({"gif"} if film else {"png", "svg"})
        assert max(map(len, found.values())) < 3_000_000


def test_colours_of_matrices_hold_every_value(family):
    gallery = next(item for item in part(family, "fig5").pictures)
    images = [image for axes in gallery.draw().axes for image in axes.get_images()]
    assert len(images) == 3
    for image in images:
        low, high = image.get_clim()
        values = np.ma.compressed(image.get_array())
        assert low <= values.min()
        assert values.max() <= high


def _config(layers=6, width=64):
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "intermediate_size": 128,
        "vocab_size": 50,
    }
