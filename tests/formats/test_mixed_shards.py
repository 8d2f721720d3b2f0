"""An index whose shards have different formats is refused before any of them is read."""

import json

import numpy as np
import pytest

from kinprint.errors import FormatError
from kinprint.formats.checkpoint import open_checkpoint
from kinprint.formats.format import check_one_format
from support.layouts import write_checkpoint

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


@pytest.fixture
def folder(tmp_path):
    tensors = {f"model.layers.{n}.mlp.up_proj.weight": np.ones((4, 4), np.float32) for n in range(2)}
    write_checkpoint(tmp_path / "m", tensors, {"model_type": "llama"}, shards=2)
    return tmp_path / "m"


def _renamed(folder, new, index="model.safetensors.index.json"):
    """Give the second shard another name, in the index too."""
    (folder / SECOND).rename(folder / new)
    stored = folder / "model.safetensors.index.json"
    document = json.loads(stored.read_text())
    document["weight_map"] = {key: new if name == SECOND else name for key, name in document["weight_map"].items()}
    stored.unlink()
    (folder / index).write_text(json.dumps(document))


BIN = "PyTorch or CTranslate2 or llama2.c"


@pytest.mark.parametrize(
    ("new", "kind"),
    [
        ("pytorch_model-00002-of-00002.bin", BIN),
        ("model-00002-of-00002.gguf", "GGUF"),
        ("model-00002-of-00002.npz", "NumPy"),
        ("notes.txt", "no known format"),
    ],
)
def test_shards_of_different_formats(new, kind, folder, session_for):
    _renamed(folder, new)
    with pytest.raises(FormatError) as caught:
        open_checkpoint(str(folder), session_for())
    assert f"different formats: {FIRST!r} (safetensors), {new!r} ({kind})" in caught.value.message


def test_the_index_of_a_pytorch_model_too(folder, session_for):
    index, one, two = "pytorch_model.bin.index.json", "pytorch_model-00001-of-00002.bin", "model-00002-of-00002.gguf"
    _renamed(folder, two, index)
    (folder / FIRST).rename(folder / one)
    (folder / index).write_text((folder / index).read_text().replace(FIRST, one))
    with pytest.raises(FormatError) as caught:
        open_checkpoint(str(folder), session_for())
    assert f"different formats: {two!r} (GGUF), {one!r} ({BIN})" in caught.value.message


def test_shards_of_one_format_are_fine(folder, session_for):
    _renamed(folder, "rest.SAFETENSORS")
    assert len(open_checkpoint(str(folder), session_for()).tensors) == 2
    check_one_format(["a.safetensors", "b.safetensors"], "m")
    check_one_format([], "m")
