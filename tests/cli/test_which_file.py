"""Which weights of a model are read: the best format, the one the user names, and what the report says about it."""

import json

import numpy as np
from click.testing import CliRunner

from kinprint.cli.main import main
from kinprint.errors import BadSelection
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
