"""GPTQ: what was packed by the definition of the format is what is read."""

import re
from dataclasses import replace

import numpy as np
import pytest

from kinprint.errors import FormatError
from kinprint.formats.checkpoint import open_checkpoint
from kinprint.formats.plan import rows, whole
from kinprint.formats.quantised import modules
from kinprint.formats.safetensors.writer import spec_of
from support.quantisers import gptq, write_layers

LAYER = "model.layers.0.mlp.up_proj"


def matrix(out, width, seed=3):
    return np.random.default_rng(seed).standard_normal((out, width)).astype(np.float32)


CONFIG = {"quant_method": "gptq"}


def changed(layer, **tensors):
    """Replace or (None) remove tensors of a layer."""
    merged = {**layer.tensors, **{key: None if value is None else spec_of(value) for key, value in tensors.items()}}
    return replace(layer, tensors={key: value for key, value in merged.items() if value is not None})


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("version", [1, 2])
def test_all_widths_and_versions(open_layer, check_layer, bits, version):
    layer = gptq(matrix(96, 128), bits=bits, group=32, version=version)
    stated = {"checkpoint_format": "gptq_v2"} if version == 2 else {}
    checkpoint = open_layer(layer, **CONFIG, bits=bits, group_size=32, **stated)
    tensor = check_layer(checkpoint, layer)
    assert tensor.dtype == f"GPTQ {bits}-bit"
    assert tensor.nbytes == sum(spec.nbytes for spec in layer.tensors.values())
    assert checkpoint.notes == (f"1 weights are dequantised when read: GPTQ {bits}-bit, groups of 32",)


def test_columns_out_of_order(open_layer, check_layer):
    layer = gptq(matrix(64, 128), order=np.random.default_rng(8).permutation(128))
    assert np.any(np.diff(layer.tensors["g_idx"].data) < 0)
    check_layer(open_layer(layer, **CONFIG), layer)


def test_without_an_order_and_without_a_config(open_layer, check_layer):
    layer = gptq(matrix(64, 128))
    check_layer(open_layer(changed(layer, g_idx=None)), layer)


def test_an_order_that_was_never_filled_in(open_layer, check_layer):
    layer = gptq(matrix(64, 128))
    check_layer(open_layer(changed(layer, g_idx=np.zeros(128, np.int32)), **CONFIG), layer)


def test_a_last_group_that_is_not_full(open_layer, check_layer):
    layer = gptq(matrix(64, 160), group=64)
    check_layer(open_layer(changed(layer, g_idx=None), **CONFIG, group_size=64), layer)


def test_built_in_pieces(open_layer, check_layer, monkeypatch):
    monkeypatch.setattr(modules, "CHUNK_ELEMENTS", 1000)
    layer = gptq(matrix(96, 128))
    check_layer(open_layer(layer, **CONFIG), layer)


def test_the_layers_of_gpt2_are_turned_back(tmp_path, session_for):
    layer = gptq(matrix(96, 64))
    write_layers(tmp_path, {"h.0.mlp.c_fc": layer}, {"model_type": "gpt2"}, **CONFIG)
    checkpoint = open_checkpoint(str(tmp_path), session_for())
    tensor = checkpoint.tensors["h.0.mlp.c_fc.weight"]
    assert np.array_equal(checkpoint.read([whole(tensor)])[0], layer.values.T)
    assert np.array_equal(checkpoint.read([rows(tensor, [(5, 9)])])[0], layer.values.T[5:9])


def test_an_order_outside_the_groups_is_refused_when_read(open_layer):
    layer = gptq(matrix(64, 128))
    for wrong in (2, -2):
        order = layer.tensors["g_idx"].data.copy()
        order[7] = wrong
        checkpoint = open_layer(changed(layer, g_idx=order), **CONFIG)
        with pytest.raises(FormatError, match="g_idx runs from"):
            checkpoint.read([whole(checkpoint.tensors[f"{LAYER}.weight"])])


@pytest.mark.parametrize(
    ("changes", "settings", "reason"),
    [
        ({"qzeros": None}, {}, "no qzeros is stored"),
        ({"scales": None}, {}, "no scales is stored"),
        ({"qzeros": np.zeros((2, 3), np.int32)}, {}, "no width of"),
        ({"qzeros": np.zeros((3, 8), np.int32)}, {}, "do not belong together"),
        ({"qweight": np.zeros((16, 64), np.float32)}, {}, "qweight is F32"),
        ({"qweight": np.zeros((16, 64, 1), np.int32)}, {}, "of shape \\[16, 64, 1\\]"),
        ({"qweight": np.zeros((0, 64), np.int32)}, {}, "of shape \\[0, 64\\]"),
        ({"g_idx": np.zeros(127, np.int32)}, {}, "g_idx of shape \\[127\\]"),
        ({"scales": np.zeros((7, 64), np.float16), "qzeros": np.zeros((7, 8), np.int32)}, {}, "7 groups of scales"),
        ({}, {"checkpoint_format": "marlin"}, "layout 'marlin'"),
        ({}, {"is_marlin_format": True}, "layout 'marlin'"),
    ],
)
def test_what_does_not_fit_is_left_as_stored(open_layer, changes, settings, reason):
    layer = changed(gptq(matrix(64, 128)), **changes)
    checkpoint = open_layer(layer, **CONFIG, **settings)
    assert sorted(checkpoint.tensors) == sorted(layer.named(LAYER))
    (note,) = checkpoint.notes
    assert note.startswith(f"1 quantised layer is left as stored, e.g. {LAYER}: ")
    assert re.search(reason, note)


def test_auto_round_says_which_packing_it_used(open_layer, check_layer):
    layer = gptq(matrix(64, 128))
    check_layer(open_layer(layer, quant_method="auto-round", packing_format="auto_round:auto_gptq"), layer)
    assert "layout 'auto_round'" in open_layer(layer, quant_method="auto-round", packing_format="auto_round").notes[0]
