"""One model in two containers: paired by role where names do not do, rows of q and k in one order, a tied head."""

import json

import numpy as np
import pytest

from kinprint.comparison.pipeline import compare
from kinprint.evidence.rotary import NOTE
from kinprint.lab.zoo import derive
from kinprint.sources.settings import Settings
from support.gguf_files import convert_llama, interleaved, write_gguf
from support.places import DEMO_MODELS

DTYPE = "F32"


def archive(path, state, config=None):
    """Write arrays under their names; whoever made such a file seldom adds a config."""
    path.mkdir()
    np.savez(path / "model.npz", **state)
    if config is not None:
        (path / "config.json").write_text(json.dumps(config))
    return str(path)


def meta_order(state, config):
    """Return the model with the rows of q and k as Meta's checkpoints have them."""
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    return {
        name: interleaved(value, heads[module]) if (module := name.split(".")[-2]) in heads else value
        for name, value in state.items()
    }


@pytest.fixture(scope="module")
def model(small):
    state, config, _ = small(5)
    state["lm_head.weight"] = state["model.embed_tokens.weight"].copy()
    return state, config


@pytest.fixture(scope="module")
def hub_folder(folder, model):
    return folder("in safetensors", *model, None, DTYPE)


def test_the_same_arrays_are_identical(tmp_path, judge, model, hub_folder):
    state, _ = model
    assert judge(hub_folder, archive(tmp_path / "b", state)).verdict.class_ == "identical"
    state = {name: value.copy() for name, value in state.items()}
    state["model.layers.2.mlp.up_proj.weight"][-1, -1] += 1e-3  # in no slice that was read before
    verdict = judge(hub_folder, archive(tmp_path / "c", state)).verdict
    assert verdict.class_ == "derived"


@pytest.mark.parametrize("swap", [False, True])
def test_a_tied_head_is_the_embedding_or_it_is_not_identical(tmp_path, judge, model, hub_folder, swap):
    state, config = model
    tied = {name: value for name, value in state.items() if name != "lm_head.weight"}
    other = archive(tmp_path / "tied", tied, {**config, "tie_word_embeddings": True})
    pair = (other, hub_folder) if swap else (hub_folder, other)
    assert judge(*pair).verdict.class_ == "identical"
    changed = {**state, "lm_head.weight": state["lm_head.weight"] + np.float32(1e-3)}
    own = archive(tmp_path / "own", changed, config)
    pair = (other, own) if swap else (own, other)
    assert judge(*pair).verdict.class_ == "derived"


def test_names_of_another_format_do_not_matter(tmp_path, judge, model, hub_folder):
    state, config = model
    path = tmp_path / "model.gguf"
    write_gguf(path, *convert_llama(state, config, DTYPE))
    assert judge(hub_folder, str(path)).verdict.class_ == "identical"


@pytest.mark.parametrize("swap", [False, True])
def test_rows_of_q_and_k_may_stand_as_in_metas_checkpoints(tmp_path, judge, model, hub_folder, swap):
    other = archive(tmp_path / "meta", meta_order(*model))
    report = judge(other, hub_folder) if swap else judge(hub_folder, other)
    assert report.verdict.class_ == "identical"
    assert NOTE in (report.a if swap else report.b).notes
    assert NOTE not in (report.b if swap else report.a).notes


def test_a_model_that_says_what_it_is_is_believed(tmp_path, judge, model, hub_folder):
    _, config = model
    report = judge(hub_folder, archive(tmp_path / "meta", meta_order(*model), config))
    assert report.verdict.class_ == "derived"
    assert NOTE not in report.b.notes


def test_an_unrelated_model_is_left_as_it_is(tmp_path, judge, small, hub_folder):
    state, config, _ = small(6)
    report = judge(hub_folder, archive(tmp_path / "other", meta_order(state, config)))
    assert report.verdict.class_ == "no_evidence"
    assert NOTE not in report.a.notes + report.b.notes


def test_what_is_not_finite_is_no_reason_to_reorder(tmp_path, judge, model, hub_folder):
    state = {name: value.copy() for name, value in meta_order(*model).items()}
    state["model.layers.0.self_attn.k_proj.weight"][:] = np.inf
    report = judge(hub_folder, archive(tmp_path / "broken", state))
    assert NOTE not in report.a.notes + report.b.notes
    assert report.verdict.class_ == "derived"


def test_two_quantised_copies_of_one_model_are_called_that(tmp_path):
    base = DEMO_MODELS / "base"
    loaded = derive.load_state(base)
    state = loaded[0] if isinstance(loaded, tuple) else loaded
    config = json.loads((base / "config.json").read_text())
    for dtype in ("Q8_0", "Q4_0"):
        write_gguf(tmp_path / f"{dtype}.gguf", *convert_llama(state, config, dtype))
    verdict = compare(
        str(tmp_path / "Q8_0.gguf"), str(tmp_path / "Q4_0.gguf"), settings=Settings(range_cache=None)
    ).verdict
    assert (verdict.class_, verdict.kind) == ("derived", "quantised")
