"""Replicas on disk: real names and sizes, sparse files, and the published figures in what is filled."""

import itertools
import json
import math

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from kinprint.errors import BadSelection, DegenerateInput
from kinprint.formats.safetensors.writer import from_bf16
from kinprint.lab.replicas import NAMES, PARTS, REPOS, attention, matrices, tokenizers, write_replicas
from kinprint.lab.replicas import writer as write
from kinprint.lab.replicas.noise import draw_codes, gaussian_table
from kinprint.lab.replicas.published_figures import published
from kinprint.lab.replicas.shapes import SHAPES, config_of, tensors_of
from kinprint.metrics import METRICS
from kinprint.model.model import open_model
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from kinprint.studies.origin.windows import windows

FAMILY = {
    "Solar": "solar_open",
    "GLM": "glm4_moe",
    "INTELLECT": "glm4_moe",
    "Phi": "phimoe",
    "Mixtral": "mixtral",
    "Mistral": "llama",
    "Yi-6B": "llama",
    "Yi-9B": "llama",
    "InternLM2": "internlm2",
    "Qwen1.5": "qwen2",
    "Qwen3-4B": "qwen3",
    "Qwen3-14B": "qwen3",
    "Mixtral-8x22B": "mixtral",
    "DeepSeek-V2-Lite": "deepseek_v2",
    "Qwen2.5-72B": "qwen2",
}
ORIGIN = published()["origin"]


def on_disk(folder):
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def cosine(a, b):
    a, b = a.astype(np.float64), b.astype(np.float64)
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def summary(values):
    return {"mean": np.mean(values), "std": np.std(values), "min": np.min(values), "max": np.max(values)}


@pytest.fixture(scope="module")
def hollow(tmp_path_factory):
    """All replicas with nothing filled."""
    root = tmp_path_factory.mktemp("hollow")
    return root, write_replicas(root, parts=())


@pytest.fixture
def session():
    with Session(Settings(range_cache=None)) as opened:
        yield opened


# -- what a replica looks like from outside ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_replica_opens_as_the_model_it_stands_for(hollow, session, name):
    model = open_model(str(hollow[1][name]), session)
    shape = SHAPES[name]
    assert model.naming.architecture == FAMILY[name]
    assert not model.naming.guessed
    assert model.naming.layers == shape.layers
    assert model.hidden == shape.hidden
    assert (model.naming.experts or 0) == shape.experts
    assert [item for item in model.naming.unmapped if "norm" in item] == []
    assert len(model.checkpoint.files) == shape.shards


def test_hub_ids_name_the_folders(hollow):
    root, folders = hollow
    assert {name: str(folder.relative_to(root)) for name, folder in folders.items()} == REPOS
    for name, folder in folders.items():
        first = (folder / "README.md").read_text(encoding="utf-8").splitlines()[0]
        assert "ynthetic" in first
        assert "replica" in first
        assert REPOS[name] in first


def test_holes_cost_no_disk(hollow):
    root, _ = hollow
    assert sum(path.stat().st_size for path in root.rglob("*.safetensors")) > 1.3e12
    assert on_disk(root) < 40e6  # headers and indexes


def test_parameter_counts_are_the_published_ones():
    # The counts were taken from loaded models: Solar's and GLM's without their heads, GLM's without the layer that predicts a
    # further token and without the correction biases, which are buffers there.
    counts = published()["hyunwoongko"]["params_billion"]
    total = {name: {tensor: spec.count for tensor, spec in tensors_of(name).items()} for name in NAMES}
    solar = sum(count for tensor, count in total["Solar"].items() if tensor != "lm_head.weight")
    kept = (
        t
        for t in total["GLM"]
        if not t.startswith(("lm_head", "model.layers.46.")) and not t.endswith("correction_bias")
    )
    glm = sum(total["GLM"][tensor] for tensor in kept)
    assert solar / 1e9 == pytest.approx(counts["solar"], abs=6e-7)
    assert glm / 1e9 == pytest.approx(counts["glm"], abs=6e-7)
    assert sum(total["Phi"].values()) / 1e9 == pytest.approx(counts["phi"], abs=6e-8)
    assert sum(total["Qwen3-4B"].values()) / 1e9 == pytest.approx(counts["qwen3_4b"], abs=6e-8)


@pytest.mark.parametrize(("name", "side"), [("Solar", "A"), ("GLM", "B")])
def test_configs_hold_every_published_value(hollow, name, side):
    stated = ORIGIN["config"][side]["config_summary"]
    written = json.loads((hollow[1][name] / "config.json").read_text(encoding="utf-8"))
    assert {key: written[key] for key in stated} == stated
    assert written == config_of(name) | {"synthetic": True}  # which pictures of it say


def test_a_model_without_further_layers_says_nothing_of_them():
    assert config_of("GLM")["num_nextn_predict_layers"] == 1
    assert "num_nextn_predict_layers" not in config_of("INTELLECT")
    assert not any(name.startswith("model.layers.46.") for name in tensors_of("INTELLECT"))


@pytest.mark.parametrize("choice", [{"names": ["Solaris"]}, {"names": [], "parts": ["norm"]}])
def test_an_unknown_name_or_part_is_refused(tmp_path, choice):
    with pytest.raises(BadSelection, match=r"there is no replica (model 'Solaris'|part 'norm')"):
        write_replicas(tmp_path, **choice)
    assert list(tmp_path.iterdir()) == []


def test_progress_counts_to_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(write, "norm_vectors", lambda seed: {})
    seen = []
    write_replicas(tmp_path, ["Mistral", "Qwen3-4B"], parts=PARTS, progress=lambda *step: seen.append(step))
    assert [done for _, done, _ in seen] == [0, 1, 2, 3]  # two models and their norms: no other part is theirs
    assert {total for _, _, total in seen} == {3}


def test_values_that_do_not_fit_are_refused(tmp_path):
    folder = write._Folder(tmp_path, "Mistral", (), 0)
    name = "model.norm.weight"
    with pytest.raises(ValueError, match=r"model\.norm\.weight: 2 values of uint16 from element 4095"):
        folder.put(matrices.Piece("Mistral", name, 4095, np.ones(2, dtype=np.uint16)))
    with pytest.raises(ValueError, match="values of float32"):
        folder.put(matrices.Piece("Mistral", name, 0, np.ones(2, dtype=np.float32)))


# -- norms ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def with_norms(tmp_path_factory):
    """Norms only, with vectors whose every element tells model, kind and layer."""
    names = ("GLM", "Phi", "InternLM2", "Qwen3-4B", "DeepSeek-V2-Lite")
    made = {}
    for number, name in enumerate(names[:-1]):
        shape = SHAPES[name]
        for kind, mark in (("input_norm", 1), ("post_attention_norm", 2)):
            rows = np.arange(shape.layers + shape.mtp, dtype=np.float32)[:, None] + 1
            made[name, kind] = np.broadcast_to(rows * 2.0 ** (4 * mark - 8 * number), (len(rows), shape.hidden))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write, "norm_vectors", lambda seed: made)
        return write_replicas(tmp_path_factory.mktemp("norms"), names, parts=["norms"]), made


def values(model, name):
    tensor = model.checkpoint.tensors[name]
    return model.checkpoint.read([windows(tensor, key="", count=1, length=tensor.elements)])[0]


@pytest.mark.parametrize("name", ["GLM", "Phi", "InternLM2", "Qwen3-4B"])
def test_block_norms_are_stored_at_their_layer(with_norms, session, name):
    folders, made = with_norms
    model = open_model(str(folders[name]), session)
    for kind in ("input_norm", "post_attention_norm"):
        for layer, row in enumerate(made[name, kind]):
            assert np.array_equal(values(model, write.norm_name(name, kind, layer)), row)


def test_every_norm_tensor_is_filled(with_norms, session):
    for folder in with_norms[0].values():
        model = open_model(str(folder), session)
        norms = [name for name in model.checkpoint.tensors if "norm" in name]
        assert norms
        assert all(np.all(values(model, name)) for name in norms)


def test_other_norms_lie_near_one_and_biases_near_zero(with_norms, session):
    further = "model.layers.46."
    glm = open_model(str(with_norms[0]["GLM"]), session)
    for name in (
        f"{further}enorm.weight",
        f"{further}hnorm.weight",
        f"{further}shared_head.norm.weight",
        "model.norm.weight",
    ):
        assert values(glm, name).mean() == pytest.approx(1, abs=0.01)
    phi = open_model(str(with_norms[0]["Phi"]), session)
    biases = [name for name in phi.checkpoint.tensors if name.endswith("norm.bias")]
    assert len(biases) == 2 * 32 + 1
    assert all(0 < np.abs(values(phi, name)).max() < 0.1 for name in biases)


def test_nothing_but_norms_is_filled(with_norms, session):
    model = open_model(str(with_norms[0]["Phi"]), session)
    assert not values(model, "model.layers.10.self_attn.k_proj.weight").any()
    assert on_disk(with_norms[0]["Phi"]) < 5e6


# -- noise and the ways to change it ----------------------------------------------------------------------------------------


def test_noise_has_its_mean_and_deviation_and_no_zero():
    drawn = from_bf16(draw_codes(np.random.default_rng(1), gaussian_table(0.02, 0.005), 1_000_003))
    assert drawn.size == 1_000_003
    assert drawn.mean(dtype=np.float64) == pytest.approx(0.005, abs=1e-4)
    assert drawn.std(dtype=np.float64) == pytest.approx(0.02, rel=5e-3)
    assert np.count_nonzero(drawn) == drawn.size


@pytest.mark.parametrize("wanted", [-0.05, 0.0, 0.002, 0.04])
def test_signs_bring_about_a_cosine(wanted):
    rng = np.random.default_rng(2)
    a, b = (draw_codes(rng, gaussian_table(0.02), 4096) for _ in range(2))
    before = b.copy()
    matrices.set_cosine(a, b, wanted)
    assert cosine(from_bf16(a), from_bf16(b)) == pytest.approx(wanted, abs=5e-6)
    assert np.array_equal(before & 0x7FFF, b & 0x7FFF)


@pytest.mark.parametrize(
    "tensor", ["self_attn.k_proj.weight", "self_attn.q_proj.weight", "mlp.gate.e_score_correction_bias"]
)
def test_values_by_layer_have_the_published_statistics(tensor):
    entry = next(row for row in ORIGIN["sampled_windows"][tensor] if "cosine" in row)
    rng = np.random.default_rng(3)
    fixed = {10: entry["cosine"]["mean"] * 1.1, 20: entry["cosine"]["mean"]}
    found = matrices.profile(rng, entry["cosine"], 46, fixed, entry["mean_abs_cosine"])
    assert {place: found[place] for place in fixed} == fixed
    assert np.abs(found).mean() == pytest.approx(entry["mean_abs_cosine"], rel=1e-6)
    distance = matrices.profile(rng, entry["rel_rmse"], 46, {})
    for stats, made in ((entry["cosine"], found), (entry["rel_rmse"], distance)):
        assert summary(made) == pytest.approx({key: stats[key] for key in ("mean", "std", "min", "max")}, rel=1e-6)


# -- matrices, piece by piece -------------------------------------------------------------------------------------------------


def test_windows_lie_where_the_probe_reads(hollow, session):
    solar, glm = (open_model(str(hollow[1][name]), session).checkpoint.tensors for name in ("Solar", "GLM"))
    for part in ("self_attn.q_proj", "self_attn.k_proj", "mlp.gate"):
        name = f"model.layers.7.{part}.weight"
        smaller = min((solar[name], glm[name]), key=lambda tensor: tensor.elements)
        planned = windows(smaller, key=name, count=3, length=262_144, seed=0).runs
        assert matrices.window_runs(name) == planned
    first = list(itertools.islice(matrices.window_pieces(0, {}), 6))
    name = "model.layers.0.self_attn.q_proj.weight"
    for model in ("Solar", "GLM"):
        mine = [piece for piece in first if piece.model == model and piece.tensor == name]
        assert tuple((piece.start, piece.start + piece.values.size) for piece in mine) == matrices.window_runs(name)
        assert all(np.all(piece.values & 0x7FFF) for piece in mine)
    a, b = ([piece.values.tobytes() for piece in first if piece.model == model] for model in ("Solar", "GLM"))
    assert not set(a) & set(b)


def aligned_cosine(a, b):
    """Return the mean cosine of rows under the best assignment."""
    a, b = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (a, b))
    table = a @ b.T
    return table[linear_sum_assignment(table, maximize=True)].mean()


def test_routers_have_the_published_cosines():
    rows = {row[0]: row[5:] for row in ORIGIN["layerwise"]}
    pieces = list(itertools.islice(matrices.router_pieces(0), 1 + 3 * 3))
    assert (pieces[0].model, pieces[0].tensor) == ("Solar", "model.layers.0.mlp.gate.weight")  # GLM has none there
    for layer, (a, b, c) in enumerate(zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True), 1):
        assert [a.model, b.model, c.model] == ["Solar", "GLM", "INTELLECT"]
        left, right, child = (from_bf16(piece.values).astype(np.float64) for piece in (a, b, c))
        assert METRICS["cosine"](left, right) == pytest.approx(rows[layer][0], abs=1e-6)
        assert METRICS["pearson"](left, right) == pytest.approx(rows[layer][1], abs=2e-6)
        assert aligned_cosine(left.reshape(128, -1), right.reshape(128, -1)) == pytest.approx(rows[layer][2], abs=5e-4)
        assert 0.999 < METRICS["cosine"](right, child) < 1


def test_correction_biases_have_the_published_statistics():
    entry = ORIGIN["sampled_windows"]["mlp.gate.e_score_correction_bias"][1]
    found = {(piece.model, int(piece.tensor.split(".")[2])): piece.values for piece in matrices.bias_pieces(0)}
    assert all(value.dtype == np.float32 and value.shape == (128,) for value in found.values())
    layers = sorted(layer for model, layer in found if model == "GLM")
    assert layers == list(range(1, 46))
    sides = [tuple(found[model, layer].astype(np.float64) for model in ("Solar", "GLM")) for layer in layers]
    for metric, key in (("cosine", "cosine"), ("rel_rmse", "rel_rmse")):
        measured = summary([METRICS[metric](a, b) for a, b in sides])
        assert measured == pytest.approx({name: entry[key][name] for name in measured}, rel=1e-4, abs=1e-7)


def test_embedding_rows_of_the_chosen_tokens_have_the_published_cosines():
    pieces = {piece.model: piece.values.reshape(-1, 4096) for piece in matrices.embedding_pieces(0)}
    assert {values.shape for values in pieces.values()} == {(10_000, 4096)}
    few, more = ORIGIN["embedding_200"], ORIGIN["embedding_300"]
    told = (
        {key: few[f"{key}_cosine"] for key in ("mean", "std", "min", "max")},
        {k: more[k] for k in ("mean", "std", "min", "max")},
    )
    for ids, stats in zip(tokenizers.first_tokens(0), told, strict=True):
        found = [cosine(from_bf16(pieces["Solar"][a]), from_bf16(pieces["GLM"][b])) for a, b in ids]
        assert summary(found) == pytest.approx(stats, abs=1e-5)
    rng = np.random.default_rng(42)
    pairs = [rng.choice(10_000, 2, replace=False) for _ in range(2000)]
    within = [cosine(*from_bf16(pieces["GLM"][list(pair)])) for pair in pairs]
    assert np.mean(within) == pytest.approx(few["baseline_mean"], abs=0.0012)


@pytest.mark.parametrize("part", ["k_proj", pytest.param("v_proj", marks=pytest.mark.nightly)])
def test_published_pairs_fix_deviations_means_and_quantiles(part):
    found = attention.targets(part)
    variation = np.abs(found.deviation / found.mean)
    for (a, b), gap in attention.pairs("cv_diff", part).items():
        assert abs(variation[a] - variation[b]) == pytest.approx(gap, rel=3e-4)
    for (a, b), gap in attention.pairs("p99_abs_diff", part).items():
        assert abs(found.quantile[a] - found.quantile[b]) == pytest.approx(gap, abs=1e-9)
    plain, centred = attention.pairs("cosine", part), attention.pairs("pearson", part)
    product = found.mean / found.deviation
    for a, b in plain:
        assert product[a] * product[b] == pytest.approx(plain[a, b] - centred[a, b], abs=3e-9)
    assert len(plain) == 21


@pytest.mark.nightly
@pytest.mark.parametrize("part", ["k_proj", "v_proj"])
def test_attention_matrices_meet_every_published_figure(part):
    made = attention.attention_matrices(part, 0)
    stored = [from_bf16(made[name, layer]).astype(np.float64) for name, layer in attention.MATRICES]
    inner, correlation = np.stack(stored) @ np.stack(stored).T, np.corrcoef(stored)
    norm = np.sqrt(np.diag(inner))
    measured = {
        "cosine": lambda a, b: inner[a, b] / (norm[a] * norm[b]),
        "pearson": lambda a, b: correlation[a, b],
        "mean_abs_diff": lambda a, b: np.abs(stored[a] - stored[b]).mean(),
        "rel_l2": lambda a, b: np.sqrt(inner[a, a] + inner[b, b] - 2 * inner[a, b]) / norm[a],
    }
    limits = {
        "cosine": {"abs": 2e-6},
        "pearson": {"abs": 2e-6},
        "mean_abs_diff": {"rel": 2e-5},
        "rel_l2": {"rel": 3e-5},
    }
    for metric, limit in limits.items():
        ours = METRICS["rel_l2_a" if metric == "rel_l2" else metric]
        for (a, b), told in attention.pairs(metric, part).items():
            if a == 0:  # the metrics themselves take a second a pair; the other pairs are measured at once
                assert ours(stored[a], stored[b]) == pytest.approx(told, **limit), (metric, a, b)
            assert measured[metric](a, b) == pytest.approx(told, **limit), (metric, a, b)
    quantile = [np.quantile(np.abs(values), 0.99) for values in stored]  # once each: the metric would sort every pair
    for (a, b), told in attention.pairs("p99_abs_diff", part).items():
        assert abs(quantile[a] - quantile[b]) == pytest.approx(told, abs=1e-9), (a, b)
    # cv_diff refuses means near zero, and rightly; the published number is still what these values give.
    with pytest.raises(DegenerateInput):
        METRICS["cv_diff"](stored[0], stored[1])
    variation = [values.std() / abs(values.mean()) for values in stored]
    for (a, b), told in attention.pairs("cv_diff", part).items():
        assert abs(variation[a] - variation[b]) == pytest.approx(told, rel=3e-4)


# -- all of it --------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """The four models that hold more than norms, with all parts but those of the norm solver."""
    root = tmp_path_factory.mktemp("filled")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write, "norm_vectors", lambda seed: {})
        return root, write_replicas(root, ["Solar", "GLM", "INTELLECT", "Phi"])


@pytest.mark.nightly
def test_all_parts_fit_on_a_small_disk(filled):
    root, folders = filled
    assert on_disk(root) < 1e9
    assert {name for name, folder in folders.items() if (folder / "tokenizer.json").exists()} == {
        "Solar",
        "GLM",
        "INTELLECT",
    }
    glm, child = ((folders[name] / "tokenizer.json").read_bytes() for name in ("GLM", "INTELLECT"))
    assert glm == child


@pytest.mark.nightly
def test_stored_windows_give_the_published_statistics(filled, session):
    solar, glm = (open_model(str(filled[1][name]), session).checkpoint for name in ("Solar", "GLM"))
    for part in ("q_proj", "k_proj", "v_proj"):
        entry = ORIGIN["sampled_windows"][f"self_attn.{part}.weight"][0]
        cosines, distances, starts = [], [], []
        for layer in range(46):
            name = f"model.layers.{layer}.self_attn.{part}.weight"
            smaller = solar.tensors[name]
            runs = windows(smaller, key=name, count=3, length=262_144, seed=0).runs
            a, b = (_read_runs(side, name, runs) for side in (solar, glm))
            assert np.count_nonzero(a) == a.size
            assert np.count_nonzero(b) == b.size
            cosines.append(METRICS["cosine"](a, b))
            distances.append(METRICS["rel_rmse"](a, b))
            starts.append(not np.array_equal(a[:262_144], b[:262_144]))
        assert all(starts)
        assert np.mean(cosines) == pytest.approx(entry["cosine"]["mean"], abs=2e-6)
        assert np.std(cosines) == pytest.approx(entry["cosine"]["std"], abs=2e-6)
        assert np.mean(np.abs(cosines)) == pytest.approx(entry["mean_abs_cosine"], abs=2e-6)
        told = {key: entry["rel_rmse"][key] for key in ("mean", "std", "min", "max")}
        assert summary(distances) == pytest.approx(told, abs=3e-3)


def _read_runs(checkpoint, name, runs):
    from kinprint.formats.plan import TensorSlice

    size = sum(stop - start for start, stop in runs)
    return checkpoint.read([TensorSlice(checkpoint.tensors[name], runs, (size,))])[0].astype(np.float64)


@pytest.mark.nightly
def test_stored_matrices_and_routers_are_those_made(filled, session):
    phi = open_model(str(filled[1]["Phi"]), session)
    made = attention.attention_matrices("v_proj", 0)["Phi", 20]
    assert np.array_equal(values(phi, "model.layers.20.self_attn.v_proj.weight").ravel(), from_bf16(made))
    glm = open_model(str(filled[1]["GLM"]), session)
    assert values(glm, "model.layers.45.mlp.gate.weight").all()
    assert values(glm, "model.layers.45.mlp.gate.e_score_correction_bias").all()
    assert not values(glm, "model.layers.46.mlp.gate.weight").any()  # a hole: no study reads it


@pytest.mark.nightly
def test_windows_alone_cover_the_routers_where_they_are_read(tmp_path, session):
    folders = write_replicas(tmp_path, ["GLM"], parts=["windows"])
    glm = open_model(str(folders["GLM"]), session).checkpoint
    for layer in (1, 23, 45):
        name = f"model.layers.{layer}.mlp.gate.weight"
        runs = matrices.window_runs(name)
        read = _read_runs(glm, name, runs)
        assert np.count_nonzero(read) == read.size
        whole = _read_runs(glm, name, ((0, 128 * 4096),))
        assert np.count_nonzero(whole) == read.size


@pytest.mark.nightly
def test_same_seed_same_bytes(filled, tmp_path):
    again = write_replicas(tmp_path, ["GLM"], parts=["routers", "embeddings"])["GLM"]
    for piece_of in ("model.embed_tokens.weight", "model.layers.9.mlp.gate.weight"):
        with Session(Settings(range_cache=None)) as session:
            one, two = (open_model(str(folder), session) for folder in (filled[1]["GLM"], again))
            rows = ((0, 4096 * 64),)
            assert np.array_equal(*(_read_runs(model.checkpoint, piece_of, rows) for model in (one, two)))
    other = next(matrices.router_pieces(1)).values
    assert not np.array_equal(other, next(matrices.router_pieces(0)).values)
    assert math.isclose(from_bf16(other).std(), 0.02, rel_tol=0.01)
