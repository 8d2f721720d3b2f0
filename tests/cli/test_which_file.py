"""Which weights of a model are read: the best format, the one the user names, and what the report says about it."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import kinprint
from kinprint.cli.main import main
from kinprint.errors import BadSelection, FormatError
from support.layouts import write_checkpoint

CONFIG = {"model_type": "llama", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}


def two_formats(folder):
    rng = np.random.default_rng(3)
    tensors = {f"model.layers.{i}.input_layernorm.weight": rng.random(16).astype(np.float32) for i in range(2)}
    write_checkpoint(folder, tensors, CONFIG)
    np.savez(folder / "old.npz", **{name: values + 1 for name, values in tensors.items()})
    return folder


def inspected(*arguments):
    found = CliRunner().invoke(main, ["inspect", *map(str, arguments), "--format", "json"], standalone_mode=False)
    assert found.exception is None, found.output
    return json.loads(found.stdout)


def test_the_best_format_is_read_and_the_others_are_named(tmp_path):
    report = inspected(two_formats(tmp_path))
    assert [file["name"] for file in report["model"]["files"]] == ["model.safetensors"]
    notes = " ".join(report["model"]["notes"])
    assert "read from model.safetensors" in notes
    assert "old.npz" in notes


def test_the_file_that_is_named_is_read(tmp_path):
    report = inspected(two_formats(tmp_path), "--file", "old.npz")
    assert [file["name"] for file in report["model"]["files"]] == ["old.npz"]


def test_a_file_that_no_model_has_is_refused(tmp_path):
    arguments = ["inspect", str(two_formats(tmp_path)), "--file", "other.gguf"]
    found = CliRunner().invoke(main, arguments, standalone_mode=False)
    assert isinstance(found.exception, BadSelection)
    assert "no model here has a file called 'other.gguf'" in found.exception.message


def test_one_of_two_models_may_have_it(tmp_path):
    one, two = two_formats(tmp_path / "one"), two_formats(tmp_path / "two")
    (two / "old.npz").unlink()
    arguments = ["compare", str(one), str(two), "--file", "old.npz", "--format", "json"]
    found = CliRunner().invoke(main, arguments, standalone_mode=False)
    report = json.loads(found.stdout)
    assert [report[side]["files"][0]["name"] for side in "ab"] == ["old.npz", "model.safetensors"]


def laid_out(folder, below, *, config_below=False):
    """A model whose weights lie in a folder below, with the config and tokenizer above, as Transformers.js has them."""
    weights = two_formats(folder / below)
    (weights / "old.npz").unlink()
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"a": 0, "b": 1}}}))
    if not config_below:
        (weights / "config.json").rename(folder / "config.json")
    return folder


@pytest.mark.parametrize("below", ["onnx", "0_Transformer", "0_StaticEmbedding", "unet", "original"])
@pytest.mark.parametrize("config_below", [False, True])
def test_weights_in_a_known_folder_below_are_read_with_the_config_beside_or_above(tmp_path, below, config_below):
    model = laid_out(tmp_path, below, config_below=config_below)
    report = inspected(model)["model"]
    assert [file["name"] for file in report["files"]] == [f"{below}/model.safetensors"]
    assert (report["architecture"], report["architecture_guessed"]) == ("llama", False)
    assert any(f"read from {below}/" in note for note in report["notes"])
    with kinprint.open(model) as opened:
        assert dict(opened.tokens) == {"a": 0, "b": 1}


def test_a_file_in_any_folder_below_can_be_named(tmp_path):
    report = inspected(laid_out(tmp_path, "elsewhere"), "--file", "elsewhere/model.safetensors")["model"]
    assert [file["name"] for file in report["files"]] == ["elsewhere/model.safetensors"]
    assert report["architecture"] == "llama"


def test_weights_at_the_top_come_before_any_below(tmp_path):
    model = two_formats(tmp_path)
    laid_out(model, "onnx", config_below=True)
    assert [file["name"] for file in inspected(model)["model"]["files"]] == ["model.safetensors"]


def test_an_unknown_folder_below_is_not_searched(tmp_path):
    found = CliRunner().invoke(main, ["inspect", str(laid_out(tmp_path, "backup"))], standalone_mode=False)
    assert isinstance(found.exception, FormatError)
    assert "named with --file" in found.exception.hint


def test_a_link_below_is_not_followed(tmp_path):
    outside = laid_out(tmp_path / "outside", "onnx")
    model = tmp_path / "model"
    model.mkdir()
    (model / "onnx").symlink_to(outside / "onnx")
    found = CliRunner().invoke(main, ["inspect", str(model)], standalone_mode=False)
    assert isinstance(found.exception, FormatError)


@pytest.mark.parametrize("below", ["onnx", "0_Transformer", "transformer"])
def test_a_file_named_by_its_path_has_the_config_and_tokenizer_above(tmp_path, below):
    file = laid_out(tmp_path, below) / below / "model.safetensors"
    with kinprint.open(file) as opened:
        assert (opened.naming.architecture, opened.naming.guessed) == ("llama", False)
        assert dict(opened.tokens) == {"a": 0, "b": 1}


def test_a_file_in_some_other_folder_has_nothing_from_above(tmp_path):
    file = laid_out(tmp_path, "backup") / "backup" / "model.safetensors"
    with kinprint.open(file) as opened:
        assert opened.naming.guessed
        assert not opened.tokens


def test_a_pipeline_is_read_from_its_denoiser_and_its_other_parts_are_named(tmp_path):
    """As diffusers writes it: a folder for each part, with a variant of half precision beside the whole."""
    for below in ("vae", "text_encoder", "unet"):
        weights = two_formats(tmp_path / below)
        (weights / "old.npz").unlink()
        (weights / "model.safetensors").rename(weights / "diffusion_pytorch_model.safetensors")
    half = tmp_path / "unet" / "diffusion_pytorch_model.fp16.safetensors"
    half.write_bytes((tmp_path / "unet" / "diffusion_pytorch_model.safetensors").read_bytes())
    report = inspected(tmp_path)["model"]
    assert [file["name"] for file in report["files"]] == ["unet/diffusion_pytorch_model.safetensors"]
    notes = " ".join(report["notes"])
    assert "1 in text_encoder/" in notes
    assert "1 in vae/" in notes
    assert "fp16" in notes


@pytest.mark.parametrize("name", ["bert_model.ckpt.index", "tf_model.h5", "flax_model.msgpack", "saved_model.pb"])
def test_weights_of_other_frameworks_are_named_with_the_way_out(tmp_path, name):
    (tmp_path / name).write_bytes(b"whatever")
    found = CliRunner().invoke(main, ["inspect", str(tmp_path)], standalone_mode=False)
    assert isinstance(found.exception, FormatError)
    assert name in found.exception.hint
    assert "convert" in found.exception.hint
