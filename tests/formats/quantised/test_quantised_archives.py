"""Quantised layers in PyTorch archives: strided views, codes of an odd type, headers that say otherwise."""

import json
from dataclasses import replace

import numpy as np
import pytest

from kinprint.errors import FormatError
from kinprint.formats.checkpoint import open_checkpoint
from kinprint.formats.plan import rows, whole
from support import quantisers
from support.contract import make_pytorch

LAYER = "model.layers.0.mlp.up_proj"


def matrix(out, width, seed=3):
    return np.random.default_rng(seed).standard_normal((out, width)).astype(np.float32)


@pytest.fixture
def write(tmp_path):
    def build(value, storages, **stated):
        config = {"model_type": "llama"} | ({"quantization_config": stated} if stated else {})
        (tmp_path / "config.json").write_text(json.dumps(config))
        (tmp_path / "pytorch_model.bin").write_bytes(make_pytorch.torch_file(value, storages))
        return tmp_path / "pytorch_model.bin"

    return build


def test_codes_that_are_stored_turned_round(write, tmp_path, session_for):
    layer = quantisers.bnb_int8(matrix(48, 32))
    codes, scales = (layer.tensors[key].data for key in ("weight", "SCB"))
    entries = {
        f"{LAYER}.weight": make_pytorch.rebuilt("Char", "0", codes.size, codes.shape, (1, codes.shape[0])),
        f"{LAYER}.SCB": make_pytorch.rebuilt("Float", "1", scales.size, scales.shape),
    }
    turned = np.ascontiguousarray(codes.T).tobytes()
    write(
        make_pytorch.mapping(entries), {"0": turned, "1": scales.astype("<f4").tobytes()}, quant_method="bitsandbytes"
    )
    checkpoint = open_checkpoint(str(tmp_path), session_for())
    tensor = checkpoint.tensors[f"{LAYER}.weight"]
    assert tensor.dtype == "bitsandbytes int8"
    assert np.array_equal(checkpoint.read([whole(tensor)])[0], layer.values)
    found = checkpoint.read([rows(tensor, [(3, 5), (40, 44)])])[0]
    assert np.array_equal(found, layer.values[[3, 4, 40, 41, 42, 43]])


def test_rows_of_four_bit_codes_cost_their_bytes(write, tmp_path, session_for):
    layer = quantisers.bnb_4bit(matrix(512, 256), nested=False)
    write(*make_pytorch.state_dict_of(layer.named(LAYER)), quant_method="bitsandbytes")
    session = session_for()
    checkpoint = open_checkpoint(str(tmp_path), session)
    tensor = checkpoint.tensors[f"{LAYER}.weight"]
    wanted = rows(tensor, [(17, 19)])
    assert wanted.nbytes < tensor.nbytes / 50
    assert np.array_equal(checkpoint.read([wanted])[0], layer.values[17:19])


def test_four_bit_codes_of_another_type_are_left_as_stored(write, tmp_path, session_for):
    layer = quantisers.bnb_4bit(matrix(32, 64))
    codes = layer.tensors["weight"]
    halves = replace(codes, dtype="F16", shape=(codes.count // 2,), data=codes.data.reshape(-1).view("<f2"))
    changed = replace(layer, tensors={**layer.tensors, "weight": halves})
    write(*make_pytorch.state_dict_of(changed.named(LAYER)), quant_method="bitsandbytes")
    checkpoint = open_checkpoint(str(tmp_path), session_for())
    assert "4-bit codes stored as F16 in an archive; known: U8" in checkpoint.notes[0]
    assert sorted(checkpoint.tensors) == sorted(changed.named(LAYER))


def test_a_member_that_is_not_where_the_directory_says(write, tmp_path, session_for):
    layer = quantisers.gptq(matrix(64, 128))
    path = write(*make_pytorch.state_dict_of(layer.named(LAYER)), quant_method="gptq")
    raw = bytearray(path.read_bytes())
    at = raw.index(b"archive/data/0")
    raw[at + len(b"archive/data/")] = ord("9")
    path.write_bytes(bytes(raw))
    checkpoint = open_checkpoint(str(tmp_path), session_for())
    with pytest.raises(FormatError, match="archive/data/0"):  # its header is read with its content
        checkpoint.read([whole(checkpoint.tensors[f"{LAYER}.weight"])])
