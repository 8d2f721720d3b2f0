"""Members are loaded or made on demand, always the same, and written out as they are."""

import shutil

import numpy as np
import pytest

from kinprint.errors import BadReference, FormatError, NotFound, SchemaError
from kinprint.lab.zoo import derive, forward
from kinprint.lab.zoo.members import Edit, Link, ZooMember
from kinprint.lab.zoo.relations import Record
from kinprint.lab.zoo.store import KEPT, Zoo, hashes_of
from support.places import FAMILY_MODELS

FAMILY = FAMILY_MODELS
IDS = np.random.default_rng(1).integers(0, 400, 24)


@pytest.fixture(scope="module")
def zoo():
    return Zoo.open(FAMILY)


def test_the_stored_files_are_those_recorded(zoo):
    zoo.verify()


def test_every_member_can_be_had_and_is_a_model(zoo):
    for name, member in zoo.members.items():
        state, config, tokenizer = zoo.load(name)
        assert all(np.isfinite(value).all() for value in state.values()), name
        assert config["vocab_size"] == len(state["model.embed_tokens.weight"]) == len(state["lm_head.weight"]), name
        vocabulary = set(tokenizer["model"]["vocab"].values()) | {added["id"] for added in tokenizer["added_tokens"]}
        assert vocabulary == set(range(config["vocab_size"])), name
        layers = {key.split(".")[2] for key in state if key.startswith("model.layers.")}
        assert len(layers) == config["num_hidden_layers"], name
        assert config["torch_dtype"] == {"BF16": "bfloat16", "F16": "float16"}[member.dtype], name
    assert len(zoo._kept) <= KEPT


def test_members_that_keep_the_function_do_and_the_others_do_not(zoo):
    for name, member in zoo.members.items():
        if not member.parents or member.parents[0] not in ("base", "unrelated"):
            continue
        parent, child = zoo.load(member.parents[0]), zoo.load(name)
        expected = forward.logits(parent.state, parent.config, IDS)
        got = forward.logits(child.state, child.config, IDS)[:, : expected.shape[1]]
        error = np.sqrt(np.mean((got - expected[:, : got.shape[1]]) ** 2)) / expected.std()
        if member.preserves_function:
            assert error < 0.01, name
        elif member.attack != "vocabulary_extended":
            assert error > 0.01 or member.attack == "quantised", name


def test_the_same_name_is_the_same_model_in_another_zoo(zoo):
    other = Zoo.open(FAMILY)
    for name in ("base.all_symmetries", "base.noise-20", "rotated_tuned.pruned", "base.vocabulary_pruned"):
        first, second = zoo.load(name), other.load(name)
        assert first.config == second.config
        assert first.tokenizer == second.tokenizer
        assert all(np.array_equal(first.state[key], second.state[key]) for key in first.state)


@pytest.mark.parametrize("name", ["base.rotation", "base.cast", "grown"])
def test_written_out_a_member_is_what_was_loaded(zoo, tmp_path, name):
    zoo.write(name, tmp_path / "model")
    state, config, tokenizer = derive.load_state(tmp_path / "model")
    loaded = zoo.load(name)
    assert (config, tokenizer) == (loaded.config, loaded.tokenizer)
    assert all(np.array_equal(state[key], loaded.state[key]) for key in state)
    header = (tmp_path / "model" / "model.safetensors").read_bytes()[:4000]
    assert (b'"F16"' in header) == (name == "base.cast")


def test_what_was_loaded_cannot_be_changed_by_accident(zoo):
    state = zoo.load("base.noise-20").state
    with pytest.raises(ValueError, match="read-only"):
        state["model.norm.weight"] *= 2


def test_bundled_members_were_made_as_the_plan_says(zoo):
    """Fine-tuned from the rotated and the reordered base: near them, and nowhere near base itself."""
    base, name = zoo.load("base").state, "model.layers.1.mlp.up_proj.weight"
    for tuned, edit in (
        ("rotated_tuned", derive.rotate_residual),
        ("permuted_tuned", derive.permute_and_flip),
        ("disguised_tuned", derive.all_symmetries),
    ):
        seed = zoo.record.measured[tuned]["seeds"]["init"]
        made = edit(base, zoo.load("base").config, seed)
        start = made[0] if isinstance(made, tuple) else made
        child = zoo.load(tuned).state
        assert np.corrcoef(start[name].ravel(), child[name].ravel())[0, 1] > 0.9
        assert abs(np.corrcoef(base[name].ravel(), child[name].ravel())[0, 1]) < 0.05
    child, parent = zoo.load("child_of_child").state, zoo.load("finetune").state
    assert (
        np.corrcoef(parent[name].ravel(), child[name].ravel())[0, 1]
        > np.corrcoef(base[name].ravel(), child[name].ravel())[0, 1]
        > 0.9
    )


def test_errors_say_what_is_missing(zoo, tmp_path):
    with pytest.raises(BadReference, match="no member 'nobody'"):
        zoo.load("nobody")
    with pytest.raises(NotFound, match=r"zoo\.json does not exist"):
        Zoo.open(tmp_path)
    shutil.copy(FAMILY / "zoo.json", tmp_path / "zoo.json")
    with pytest.raises(NotFound, match="indep is not in"):
        Zoo.open(tmp_path).load("indep.noise-20")
    with pytest.raises(NotFound, match=r"config\.json does not exist"):
        hashes_of(tmp_path, ["config.json"])
    odd = ZooMember("odd", "derived", "odd", Edit("melt"), (Link("base"),))
    broken = Record("tiny", "", {}, {**zoo.members, "odd": odd}, zoo.record.stored)
    with pytest.raises(SchemaError, match="made by 'melt', which is no edit"):
        Zoo(FAMILY, broken).load("odd")


def test_a_changed_file_is_noticed(zoo, tmp_path):
    shutil.copytree(FAMILY / "indep", tmp_path / "indep")
    record = Record("tiny", "", {}, {"indep": zoo.members["indep"]}, {"indep": zoo.record.stored["indep"]})
    Zoo(tmp_path, record).verify()
    with (tmp_path / "indep" / "model.safetensors").open("r+b") as stream:
        stream.seek(-1, 2)
        stream.write(b"\x7f")
    with pytest.raises(FormatError, match="files of indep are not those"):
        Zoo(tmp_path, record).verify()
