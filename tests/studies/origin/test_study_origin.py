"""The audit of the first accusation: numbers by construction, what is missing, tokens, windows, pictures, Korean, replicas."""

import hashlib

import numpy as np
import pytest
from numpy.testing import assert_allclose
from safetensors.numpy import load_file

from kinprint.arch import Role
from kinprint.formats.tensors import TensorInfo
from kinprint.metrics import METRICS
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from kinprint.stats.montecarlo import draw_columns
from kinprint.studies.layer_pairs import LayerPair
from kinprint.studies.opened import Request
from kinprint.studies.origin import STUDY as ORIGIN
from kinprint.studies.origin import baselines as origin_baselines
from kinprint.studies.origin import decay as origin_decay
from kinprint.studies.origin import windows as origin_windows
from kinprint.studies.origin.baselines import mismatched_places
from kinprint.studies.origin.routers import aligned_cosine, gaussian_alignment, unit_rows
from kinprint.studies.origin.sigma import effect, probed_layers
from kinprint.studies.origin.tokens import byte_spelling, decode
from kinprint.studies.origin.windows import score, windows
from kinprint.studies.recipe import run_study
from support.figures import without_finding
from support.layouts import write_checkpoint

LAYERS, WIDTH, EXPERTS = 4, 32, 8
SPELT = {value: character for character, value in byte_spelling().items()}


def spelt(text):
    return "".join(SPELT[value] for value in text.encode())


def moe_tensors(seed, *, q_rows=32, dense_first=False, like=None, noise=0.0):
    """Return norms, attention, routers, biases and an embedding in GLM's layout."""
    rng = np.random.default_rng(seed)
    found = {"model.embed_tokens.weight": rng.standard_normal((400, WIDTH))}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        found[prefix + "input_layernorm.weight"] = 0.3 + 0.1 * rng.standard_normal(WIDTH)
        found[prefix + "post_attention_layernorm.weight"] = 0.8 + 0.1 * rng.standard_normal(WIDTH)
        shapes = {"q": (q_rows, WIDTH), "k": (16, WIDTH), "v": (16, WIDTH), "o": (WIDTH, q_rows)}
        for name, shape in shapes.items():
            found[f"{prefix}self_attn.{name}_proj.weight"] = 0.05 * rng.standard_normal(shape)
        if not (dense_first and layer == 0):
            found[prefix + "mlp.gate.weight"] = 0.02 * rng.standard_normal((EXPERTS, WIDTH))
            found[prefix + "mlp.gate.e_score_correction_bias"] = rng.standard_normal(EXPERTS)
            for expert in range(EXPERTS):
                found[f"{prefix}mlp.experts.{expert}.gate_proj.weight"] = rng.standard_normal((4, WIDTH))
    if like is not None:
        found = {name: like[name] + noise * value for name, value in found.items() if name in like}
    return {name: value.astype(np.float32) for name, value in found.items()}


def moe_config(q_rows=32, dense_first=False):
    return {
        "model_type": "glm4_moe",
        "architectures": ["Glm4MoeForCausalLM"],
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": q_rows // 4,
        "num_key_value_heads": 4,
        "head_dim": 4,
        "n_routed_experts": EXPERTS,
        "first_k_dense_replace": int(dense_first),
        "vocab_size": 400,
    }


def tokenizer_file(first, words, merges=()):
    """Return a byte-level tokenizer.json: reserved ids below `first`, then the bytes, then the words."""
    tokens = [f"<|reserved_{number}|>" for number in range(first)] + [SPELT[value] for value in range(256)]
    tokens += [spelt(word) for word in words]
    vocab = {token: number for number, token in enumerate(tokens)}
    added = [{"id": len(tokens), "content": "<|outside|>"}]
    return {"model": {"type": "BPE", "vocab": vocab, "merges": list(merges)}, "added_tokens": added}


WORDS = ["  ", " the", " cat", "ing", "the", "dogs", "한국", "中文", "12", " bird", "tree"]


@pytest.fixture(scope="module")
def moe_models(tmp_path_factory):
    """Two independent mixtures with tokenizers (the second has more query rows and a dense first layer), and a near copy."""
    root = tmp_path_factory.mktemp("moe")
    first = moe_tensors(11)
    made = {
        "one": (first, moe_config(), tokenizer_file(20, WORDS, ["t h", "th e"])),
        "two": (
            moe_tensors(12, q_rows=48, dense_first=True),
            moe_config(48, True),
            tokenizer_file(0, [*WORDS[::-1], "extra"], ["t h", "a b"]),
        ),
        "copy": (moe_tensors(13, like=first, noise=1e-3), moe_config(), None),
    }
    for name, (tensors, config, tokenizer) in made.items():
        write_checkpoint(root / name, tensors, config=config, tokenizer=tokenizer, dtype="BF16")
    return {name: root / name for name in made}


def run(folders, *names, **request):
    chosen = tuple(f"{name}={folders[name]}" for name in names)
    with Session(Settings(range_cache=None)) as session:
        return run_study("origin", session, models=chosen, request=Request(**request))


@pytest.fixture(scope="module")
def outcome(moe_models):
    return run(moe_models, "one", "two", "copy")


def part(outcome, name):
    return next(item.section for item in outcome.parts if item.name == name)


def rows(section, name):
    found = next(item for item in section.tables if item.name == name)
    keys = [column.key for column in found.columns]
    return [dict(zip(keys, row, strict=True)) for row in found.rows]


def stored(folder):
    """Return a checkpoint's BF16 tensors as float64."""
    import json
    import struct

    raw = (folder / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    found = {}
    for name, entry in json.loads(raw[8 : 8 + size]).items():
        if name != "__metadata__":
            start, stop = (8 + size + place for place in entry["data_offsets"])
            bits = np.frombuffer(raw[start:stop], dtype="<u2").astype(np.uint32) << 16
            found[name] = bits.view(np.float32).astype(np.float64).reshape(entry["shape"])
    return found


# -- norms -----------------------------------------------------------------------------------------------------------------


def test_every_part_runs_and_draws(outcome):
    assert [item.name for item in outcome.parts] == [item.name for item in ORIGIN.parts]
    assert all(item.section.tables for item in outcome.parts)
    drawn = {picture.name: picture.draw() for item in outcome.parts for picture in item.section.pictures}
    assert len(drawn) == 11
    assert all(figure.axes for figure in drawn.values())
    assert without_finding(drawn) == []
    for axes in drawn["layer_probe"].axes[:2]:  # cosine and Pearson of one pair, on one axis
        low, high = axes.get_ylim()
        assert low < 0 < 1 < high


def test_layer_probe_is_the_metrics_on_the_same_arrays(run_tiny, tiny_models):
    section = part(run_tiny("origin", "first", "second"), "layers")
    one, two = (load_file(tiny_models[name] / "model.safetensors") for name in ("first", "second"))
    for row in rows(section, "layers_input_norm"):
        name = f"model.layers.{row['layer']}.input_layernorm.weight"
        assert_allclose(row["cosine"], METRICS["cosine"](one[name], two[name]), atol=1e-12)
        assert_allclose(row["pearson"], METRICS["pearson"](one[name], two[name]), atol=1e-12)
        assert_allclose(row["pearson_sd"], 1 / np.sqrt(63))
    cosine = next(row for row in rows(section, "layer_summary") if row["role"] == "input_norm")
    assert_allclose(cosine["mean"], np.mean([row["cosine"] for row in rows(section, "layers_input_norm")]))


def test_controls_tell_the_copy_from_the_unrelated(run_tiny):
    found = rows(part(run_tiny("origin", "first", "second", "child"), "controls"), "controls")
    by_pair = {row["pair"]: row for row in found if row["role"] == "input_norm"}
    assert list(by_pair) == ["first–second", "first–child", "second–child"]
    assert by_pair["first–child"]["z"] > 6
    assert abs(by_pair["first–second"]["z"]) < 4
    assert by_pair["first–second"]["cosine"] > 0.9  # high, though nothing is shared


def test_sigma_formula_and_its_prediction(run_tiny, tiny_models):
    section = part(run_tiny("origin", "first", "second"), "sigma")
    one, two = (load_file(tiny_models[name] / "model.safetensors") for name in ("first", "second"))
    row = rows(section, "sigma")[0]
    layers = [int(number) for number in row["layers"].split(", ")]
    name = "model.layers.{}.input_layernorm.weight".format
    cosine = METRICS["cosine"]
    cross = np.array([cosine(one[name(layer)], two[name(layer)]) for layer in layers])
    within = np.array([cosine(two[name(0)], two[name(layer)]) for layer in layers])
    expected = (cross.mean() - within.mean()) / np.sqrt((cross.var() + within.var()) / 2)
    assert_allclose(row["sigma"], expected)
    assert_allclose(effect(cross, within), expected)
    assert effect(np.ones(3), np.ones(3)) is None


@pytest.mark.parametrize(
    ("shared", "expected"),
    [
        (range(46), (10, 20, 30, 40)),
        (range(32), (10, 20, 30)),
        (range(4), (1, 2, 3)),
        (range(1), ()),
        (range(12), (1, 4, 8, 11)),
    ],
)
def test_probed_layers(shared, expected):
    assert probed_layers(shared) == expected


def test_mismatched_places_are_those_of_the_script():
    places = mismatched_places(92)
    assert len(places) == 150
    assert places[0] == (0, 5)
    assert places[-1] == (29, 38)
    assert mismatched_places(4) == []


def test_deviation_cosine_against_the_metric(run_tiny, tiny_models):
    row = rows(part(run_tiny("origin", "first", "second"), "deviation"), "deviation")[0]
    one, two = (load_file(tiny_models[name] / "model.safetensors") for name in ("first", "second"))
    names = [name for name in one if "layernorm" in name]
    expected = [METRICS["deviation_cosine"](one[name], two[name]) for name in names]
    assert row["n"] == len(names)
    assert_allclose([row["deviation"], row["deviation_sd"]], [np.mean(expected), np.std(expected)])


def test_decay_matrix_and_its_null():
    rng = np.random.default_rng(3)
    left = 1 + rng.uniform(0.1, 2, 9)[:, None] * rng.standard_normal((9, 200))
    right = 1 + rng.uniform(0.1, 2, 9)[:, None] * rng.standard_normal((9, 200))
    pair = LayerPair("a", "b", Role.INPUT_NORM, tuple(range(9)), left, right)
    found = origin_decay.compute([pair], draws=99, seed=0)
    assert_allclose(found.diagonal, [METRICS["cosine"](x, y) for x, y in zip(left, right, strict=True)])
    assert_allclose(found.null_diagonal.mean(axis=0), pair.null_mean, atol=0.03)
    # independent rows of unlike spread: dominance is whatever the spreads make it, and the null knows
    assert abs(found.dominance - found.null_dominance.mean()) < 4 * found.null_dominance.std()
    assert found.swapped.size == origin_decay.SWAPS


# -- routers -----------------------------------------------------------------------------------------------------------------


def test_aligned_cosine_undoes_an_order_of_experts():
    rng = np.random.default_rng(5)
    router = unit_rows(rng.standard_normal((16, 64)))
    assert_allclose(aligned_cosine(router, router[rng.permutation(16)]), 1.0)
    noise = gaussian_alignment(16, 64, seed=0)
    drawn = draw_columns(router, unit_rows(rng.standard_normal((16, 64))), {"x": aligned_cosine}, draws=8, seed=0)["x"]
    assert noise.min() > 0.1  # noise alone, and yet positive
    assert abs(drawn.mean() - noise.mean()) < 0.05


def test_routers_by_layer_and_control(outcome, moe_models):
    section = part(outcome, "routers")
    one, two = stored(moe_models["one"]), stored(moe_models["two"])
    found = rows(section, "routers")
    assert [row["layer"] for row in found] == [1, 2, 3]  # the second model's first layer is dense
    for row in found:
        name = f"model.layers.{row['layer']}.mlp.gate.weight"
        assert_allclose(row["cosine"], METRICS["cosine"](one[name], two[name]), atol=1e-12)
        assert_allclose(row["aligned"], aligned_cosine(unit_rows(one[name]), unit_rows(two[name])), atol=1e-12)
    summary = {row["pair"]: row for row in rows(section, "router_controls")}
    assert summary["one–copy"]["aligned"] > 0.95 > 0.7 > summary["one–two"]["aligned"]


# -- windows -----------------------------------------------------------------------------------------------------------------


def test_window_statuses(outcome):
    found = {(row["layer"], row["role"]): row for row in rows(part(outcome, "windows"), "windows")}
    assert len(found) == LAYERS * len(origin_windows.ROLES)
    assert found[1, "attn_k"]["status"] == origin_windows.OK
    assert found[1, "attn_q"]["status"] == origin_windows.TRUNCATED
    assert found[1, "attn_o"]["status"] == origin_windows.MISMATCH
    assert found[0, "router"]["status"] == origin_windows.MISSING
    assert found[1, "router_bias"]["n"] == EXPERTS
    assert found[1, "input_norm"]["n"] == WIDTH  # whole, once


def test_window_values_and_hashes(outcome, moe_models):
    found = {(row["layer"], row["role"]): row for row in rows(part(outcome, "windows"), "windows")}
    one, two = stored(moe_models["one"]), stored(moe_models["two"])
    name = "model.layers.2.self_attn.q_proj.weight"
    row = found[2, "attn_q"]
    a, b = one[name], two[name][:32]
    assert_allclose(row["cosine"], METRICS["cosine"](a, b), atol=1e-12)
    assert_allclose(row["rel_rmse"], METRICS["rel_rmse"](a, b), rtol=1e-12)
    bits = (a.astype(np.float32).view(np.uint32) >> 16).astype("<u2").tobytes()
    assert row["sha256_a"] == hashlib.sha256(bits).hexdigest()[:16]
    assert row["identical"] == 0
    drawn = draw_columns(a, b, {"cosine": lambda x, y: METRICS["cosine"](x, y)}, draws=600, seed=1)["cosine"]
    assert_allclose([row["null_mean"], row["null_sd"]], [drawn.mean(), drawn.std()], atol=0.006)


def test_identical_tensors_are_seen_by_their_bytes(moe_models, tmp_path):
    tensors = moe_tensors(11)
    tensors["model.layers.1.self_attn.v_proj.weight"] = moe_tensors(99)["model.layers.1.self_attn.v_proj.weight"]
    write_checkpoint(tmp_path / "edited", tensors, config=moe_config(), dtype="BF16")
    found = rows(
        part(
            run({**moe_models, "edited": tmp_path / "edited"}, "one", "edited", roles=(Role.ATTN_V, Role.ATTN_K)),
            "windows",
        ),
        "windows",
    )
    same = {(row["layer"], row["role"]): row["identical"] for row in found}
    assert same == {
        (layer, role): int((layer, role) != (1, "attn_v")) for layer in range(LAYERS) for role in ("attn_v", "attn_k")
    }


def test_constant_windows_are_not_taken_for_equal_ones(tmp_path):
    folders = {}
    for name, seed in (("left", 11), ("right", 99)):
        tensors = moe_tensors(seed)
        for layer in range(LAYERS):
            weight = f"model.layers.{layer}.self_attn.v_proj.weight"
            tensors[weight] = np.full_like(tensors[weight], 0.0 if layer < 2 else 0.5)
        write_checkpoint(tmp_path / name, tensors, config=moe_config(), dtype="BF16")
        folders[name] = tmp_path / name
    section = part(run(folders, "left", "right", roles=(Role.ATTN_V, Role.ATTN_K)), "windows")
    found = {(row["layer"], row["role"]): row for row in rows(section, "windows")}
    for layer in range(LAYERS):
        one, other = found[layer, "attn_v"], found[layer, "attn_k"]
        assert one["sha256_a"] == one["sha256_b"]
        assert (one["identical"], one["constant"]) == (0, one["windows"])
        assert (other["identical"], other["constant"]) == (0, 0)
    assert "0 of 8 windows are equal byte for byte (SHA-256); 4 more are constant" in str(section.notes[0])
    points = {str(row["rule"]): row["points"] for row in rows(section, "score")}
    assert points["identical bytes anywhere (constant windows apart): 100"] == 0


def test_windows_lie_where_the_hash_says_and_only_their_beginnings_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(origin_baselines, "FULL_TRIALS", 20)  # the long settings are about the windows here
    monkeypatch.setattr(origin_decay, "FULL_DRAWS", 20)
    rng = np.random.default_rng(7)
    shape = (3000, 512)
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 512, "num_hidden_layers": 1}
    name = "model.layers.0.self_attn.k_proj.weight"
    folders, values = {}, {}
    for model in ("a", "b"):
        values[model] = rng.standard_normal(shape).astype(np.float32)
        tensors = {
            "model.layers.0.input_layernorm.weight": rng.standard_normal(512).astype(np.float32),
            name: values[model],
        }
        write_checkpoint(tmp_path / model, tensors, config=config)
        folders[model] = tmp_path / model
    row = rows(part(run(folders, "a", "b", roles=(Role.ATTN_K,)), "windows"), "windows")[0]
    info = TensorInfo(name, "F32", shape, 0, 0, 0)
    runs = windows(info, key=name, count=3, length=262_144, seed=0).runs
    flat = [
        np.concatenate([values[model].ravel()[start : start + 32_768] for start, _ in runs]) for model in ("a", "b")
    ]
    assert row["n"] == flat[0].size == 32_768 * len(runs)
    assert_allclose(row["cosine"], METRICS["cosine"](*flat), atol=1e-12)
    whole = rows(part(run(folders, "a", "b", roles=(Role.ATTN_K,), full=True), "windows"), "windows")[0]
    assert whole["n"] == sum(stop - start for start, stop in runs)


def test_whole_rows_drops_the_pieces_at_the_ends():
    values = np.arange(20.0)
    assert origin_windows.whole_rows(values[:11], [(3, 14)], 5).tolist() == [[2, 3, 4, 5, 6]]
    assert origin_windows.whole_rows(values[:12], [(0, 6), (9, 15)], 5).tolist() == [[0, 1, 2, 3, 4], [7, 8, 9, 10, 11]]


def test_score_by_the_scripts_rules():
    assert score(0.9676, 0.377, -0.0001, 0)[-1][2] == 40
    assert score(0.9676, 0.94, -0.0001, 0)[-1][2] == 20
    assert score(0.94, 0.377, 0.5, 3)[-1][2] == 100
    assert score(0.94, 0.377, None, 0)[-1][2] == 0


# -- configs, tokens, embeddings -----------------------------------------------------------------------------------------------


def test_config_table_has_the_published_keys_first(outcome):
    found = {row["key"]: row for row in rows(part(outcome, "configs"), "config")}
    assert (found["num_attention_heads"]["a"], found["num_attention_heads"]["b"]) == ("8", "12")
    assert str(found["num_attention_heads"]["equal"]) == "no"
    assert str(found["hidden_size"]["equal"]) == "yes"


def test_tokenizer_tables(outcome):
    found = {str(row["what"]): row["value"] for row in rows(part(outcome, "tokenizers"), "tokenizers")}
    assert found["tokens in common"] == 256 + len(WORDS)
    assert found["tokens of A"] == 20 + 256 + len(WORDS)
    offsets = rows(part(outcome, "tokenizers"), "offsets")
    ascii_top = offsets[0]
    assert (ascii_top["offset"], ascii_top["run"]) == (-20, 256)
    scripts = {str(row["script"]): row["only"] for row in rows(part(outcome, "vocabulary"), "scripts")}
    assert scripts["other"] == 20


def test_embeddings_are_matched_by_text(outcome, moe_models):
    found = rows(part(outcome, "embeddings"), "embedding_tokens")
    one, two = (stored(moe_models[name])["model.embed_tokens.weight"] for name in ("one", "two"))
    for row in found:
        assert_allclose(row["cosine"], METRICS["cosine"](one[row["id_a"]], two[row["id_b"]]), atol=1e-9)
    english = [row for row in found if row["sample"] == "english"]
    assert {decode(row["token"]) for row in english} == {
        "  ",
        " the",
        " cat",
        "ing",
        "the",
        "dogs",
        "12",
        " bird",
        "tree",
    }
    assert [decode(row["token"]) for row in english if row["blank"] is not None] == ["  "]
    assert all(row["blank"] is None for row in found if row["sample"] == "english_written")
    assert {decode(row["token"]) for row in found if row["sample"] == "words"} == {
        " the",
        " cat",
        "ing",
        "the",
        "dogs",
        " bird",
        "tree",
    }
    summary = rows(part(outcome, "embeddings"), "embeddings")
    assert_allclose(summary[0]["mean"], np.mean([row["cosine"] for row in english]))


# -- what is missing ---------------------------------------------------------------------------------------------------------


def test_one_model_is_reported(run_tiny):
    outcome = run_tiny("origin", "first")
    assert {item.name for item in outcome.parts if item.section.missing} == {item.name for item in ORIGIN.parts}
    assert "two models are needed" in str(outcome.missing[0][1])


def test_what_models_lack_is_reported_and_the_rest_is_there(run_tiny):
    outcome = run_tiny("origin", "first", "nopost", "narrow", "shallow")
    said = [str(text) for _, text in outcome.missing]
    assert any(
        "nopost has no tensor of the role post_attention_norm" in text or "share no layer with the role post" in text
        for text in said
    )
    assert any("64 and 48 elements" in text for text in said)
    assert any("share no layer with a router" in text for text in said)
    assert any("first has no tokenizer.json" in text for text in said)
    for name in ("layers", "controls", "sigma", "baselines", "deviation", "decay", "windows", "configs"):
        assert part(outcome, name).tables
    assert all(picture.draw().axes for item in outcome.parts for picture in item.section.pictures)


def test_constant_norms_are_left_out_by_name(tmp_path):
    folders = {}
    for model, seed in (("a", 1), ("b", 2)):
        tensors = moe_tensors(seed)
        tensors["model.layers.1.input_layernorm.weight"][:] = 1.0
        write_checkpoint(tmp_path / model, tensors, config=moe_config())
        folders[model] = tmp_path / model
    section = part(run(folders, "a", "b"), "layers")
    assert [row["layer"] for row in rows(section, "layers_input_norm")] == [0, 2, 3]
    assert "input_norm is constant in the layers 1" in str(section.missing[0])


def test_layers_can_be_chosen(moe_models):
    outcome = run(moe_models, "one", "two", layers=(1, 3))
    assert [row["layer"] for row in rows(part(outcome, "layers"), "layers_input_norm")] == [1, 3]
    assert {row["layer"] for row in rows(part(outcome, "windows"), "windows")} == {1, 3}
    assert [row["layer"] for row in rows(part(outcome, "routers"), "routers")] == [1, 3]


def test_no_published_figures_for_other_models(outcome):
    assert outcome.checks == []
