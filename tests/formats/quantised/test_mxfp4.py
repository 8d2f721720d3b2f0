"""Four-bit floats: the experts of gpt-oss one by one, MXFP4 and NVFP4 matrices."""

from dataclasses import replace

import numpy as np
import pytest

from kinprint.formats.checkpoint import open_checkpoint
from kinprint.formats.dtypes import e8m0_table
from kinprint.formats.plan import rows, whole
from kinprint.formats.quantised import modules
from kinprint.formats.quantised.mxfp4 import pairs
from kinprint.formats.safetensors.writer import spec_of
from kinprint.model.model import open_model
from support.quantisers import mxfp4, mxfp4_experts, nvfp4, stored, write_layers

LAYER = "model.layers.0.mlp.up_proj"
EXPERTS = "model.layers.0.mlp.experts"


def matrix(*shape, seed=3):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_the_tables():
    assert pairs()[0x21].tolist() == [0.5, 1.0]  # the low half first
    assert pairs()[0xF7].tolist() == [6.0, -6.0]
    assert e8m0_table()[[0, 126, 127, 130, 254]].tolist() == [2.0**-127, 0.5, 1.0, 8.0, 2.0**127]
    assert np.isnan(e8m0_table()[255])


@pytest.mark.parametrize("quantise", [mxfp4, nvfp4, lambda weight: nvfp4(weight, modelopt=True)])
def test_matrices(open_layer, check_layer, quantise, monkeypatch):
    monkeypatch.setattr(modules, "CHUNK_ELEMENTS", 1000)
    layer = quantise(matrix(40, 96))
    checkpoint = open_layer(layer)
    tensor = check_layer(checkpoint, layer, exact=False)
    assert tensor.dtype == ("MXFP4" if quantise is mxfp4 else "NVFP4")
    assert rows(tensor, [(4, 8)]).nbytes <= 4 * (48 + 6) + 4


@pytest.fixture
def gpt_oss(tmp_path, session_for):
    up = mxfp4_experts(matrix(3, 64, 96, seed=1))
    down = mxfp4_experts(matrix(3, 96, 32, seed=2))
    layers = {f"{EXPERTS}.gate_up_proj": up, f"{EXPERTS}.down_proj": down}
    config = {"model_type": "gpt_oss", "num_hidden_layers": 1, "num_local_experts": 3, "hidden_size": 96}
    write_layers(tmp_path, layers, config, quant_method="mxfp4")
    return tmp_path, up.values, down.values


def test_experts_appear_one_by_one(gpt_oss, session_for):
    folder, up, down = gpt_oss
    checkpoint = open_checkpoint(str(folder), session_for())
    assert checkpoint.notes == ("9 weights are dequantised when read: MXFP4",)
    for expert in range(3):
        expected = {"gate": up[expert, ::2], "up": up[expert, 1::2], "down": down[expert]}
        for name, values in expected.items():
            tensor = checkpoint.tensors[f"{EXPERTS}.{expert}.{name}_proj.weight"]
            assert (tensor.dtype, tensor.shape) == ("MXFP4", values.shape)
            assert np.array_equal(checkpoint.read([whole(tensor)])[0], values)
            for start, stop in ((0, 1), (3, 9), (31, 32), (5, 5)):
                assert np.array_equal(checkpoint.read([rows(tensor, [(start, stop)])])[0], values[start:stop])
    stored_bytes = sum(file.size - file.header_bytes for file in checkpoint.files)
    assert sum(tensor.nbytes for tensor in checkpoint.tensors.values()) == stored_bytes


def test_experts_have_roles(gpt_oss, session_for):
    folder, up, down = gpt_oss
    model = open_model(str(folder), session_for())
    assert (model.naming.architecture, model.naming.guessed) == ("gpt_oss", False)
    assert (model.naming.experts, model.naming.unmapped, model.naming.excluded) == (3, (), ())
    expected = {"expert_gate": up[2, ::2], "expert_up": up[2, 1::2], "expert_down": down[2]}
    parts = {part.role.value: part for part in model.naming.tensors if part.expert == 2}
    assert parts.keys() == expected.keys()
    for role, part in parts.items():
        assert np.array_equal(model.tensor(*part.key, rows=(4, 11)), expected[role][4:11])


@pytest.mark.parametrize(
    ("stem", "blocks", "scales", "reason"),
    [
        (f"{EXPERTS}.gate_up_proj", (3, 64, 3, 8), (3, 64, 3), "blocks of shape [3, 64, 3, 8]"),
        (f"{EXPERTS}.gate_up_proj", (3, 64, 3, 16), (3, 64, 2), "beside scales of shape [3, 64, 2]"),
        (f"{EXPERTS}.gate_up_proj", (3, 63, 3, 16), (3, 63, 3), "not the gate_up_proj or down_proj"),
        (f"{EXPERTS}.other_proj", (3, 64, 3, 16), (3, 64, 3), "not the gate_up_proj or down_proj"),
        ("model.layers.0.mlp.down_proj", (3, 64, 3, 16), (3, 64, 3), "not the gate_up_proj or down_proj"),
        (f"{EXPERTS}.gate_up_proj", (5000, 2, 1, 16), (5000, 2, 1), "blocks of shape [5000"),
        (f"{EXPERTS}.gate_up_proj", (3, 64, 0, 16), (3, 64, 0), "of shape [3, 64, 0, 16]"),
        (f"{EXPERTS}.gate_up_proj", (64, 3, 16), (64, 3), "of shape [64, 3, 16]"),
    ],
)
def test_experts_that_do_not_fit_are_left_as_stored(tmp_path, session_for, stem, blocks, scales, reason):
    layer = stored(np.zeros(1), _blocks=np.zeros(blocks, np.uint8), _scales=np.zeros(scales, np.uint8))
    write_layers(tmp_path, {stem: layer}, {"model_type": "gpt_oss"}, quant_method="mxfp4")
    checkpoint = open_checkpoint(str(tmp_path), session_for())
    assert sorted(checkpoint.tensors) == sorted(layer.named(stem))
    assert reason in checkpoint.notes[0]


def test_an_expert_that_is_stored_by_itself_too(tmp_path, session_for):
    up = mxfp4_experts(matrix(3, 64, 96))
    single = stored(matrix(32, 96), weight=matrix(32, 96))
    layers = {f"{EXPERTS}.gate_up_proj": up, f"{EXPERTS}.1.up_proj": single}
    write_layers(tmp_path, layers, {"model_type": "gpt_oss"}, quant_method="mxfp4")
    checkpoint = open_checkpoint(str(tmp_path), session_for())
    assert len(checkpoint.tensors) == 3
    assert "a tensor with the name of the result is stored too" in checkpoint.notes[0]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"weight_scale": None}, "no weight_scale is stored"),
        ({"weight_global_scale": None}, "no weight_global_scale is stored"),
        ({"weight_global_scale": np.ones(2, np.float32)}, "2 common scales"),
        ({"weight_scale": np.ones((40, 5), np.uint8)}, "scales of shape [40, 5] for 40 rows of 96 in groups of 32"),
    ],
)
def test_matrices_that_do_not_fit_are_left_as_stored(open_layer, changes, reason):
    layer = nvfp4(matrix(40, 96))
    merged = {**layer.tensors, **{key: None if value is None else spec_of(value) for key, value in changes.items()}}
    layer = replace(layer, tensors={key: value for key, value in merged.items() if value is not None})
    checkpoint = open_layer(layer)
    assert sorted(checkpoint.tensors) == sorted(layer.named(LAYER))
    assert reason in checkpoint.notes[0]
