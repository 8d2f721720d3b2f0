"""compressed-tensors' packed integers."""

from dataclasses import replace

import numpy as np
import pytest

from kinprint.errors import FormatError
from kinprint.formats.checkpoint import open_checkpoint
from kinprint.formats.plan import rows, whole
from kinprint.formats.quantised import modules
from kinprint.formats.safetensors.writer import spec_of
from support.quantisers import packed, write_layers

LAYER = "model.layers.0.mlp.up_proj"


def matrix(out, width, seed=3):
    return np.random.default_rng(seed).standard_normal((out, width)).astype(np.float32)


def settings(bits=4, **weights):
    groups = {
        "group_0": {"weights": {"num_bits": bits, "type": "int", **weights}, "input_activations": {"num_bits": 16}}
    }
    return {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": groups}


def changed(layer, tensors):
    merged = {**layer.tensors, **{key: None if value is None else spec_of(value) for key, value in tensors.items()}}
    return replace(layer, tensors={key: value for key, value in merged.items() if value is not None})


@pytest.mark.parametrize("zeros", ["none", "plain", "packed"])
@pytest.mark.parametrize(("bits", "width"), [(4, 128), (8, 128), (3, 128), (4, 100), (2, 128)])
def test_widths_zeros_and_padding(open_layer, check_layer, bits, width, zeros):
    layer = packed(matrix(37, width), bits=bits, group=width // 2, zeros=zeros)
    checkpoint = open_layer(layer, **settings(bits))
    assert check_layer(checkpoint, layer).dtype == f"compressed-tensors int{bits}"
    method = f"compressed-tensors int{bits}, groups of {width // 2}"
    assert checkpoint.notes == (f"1 weights are dequantised when read: {method}",)


def test_one_scale_for_a_row(open_layer, check_layer):
    layer = packed(matrix(37, 128), group=128)
    check_layer(open_layer(layer), layer)
    layer = changed(layer, {"weight_scale": layer.tensors["weight_scale"].data.reshape(-1)})
    check_layer(open_layer(layer), layer)


def test_columns_out_of_order(open_layer, check_layer):
    layer = packed(matrix(37, 128), zeros="packed", order=np.random.default_rng(8).permutation(128))
    assert np.any(np.diff(layer.tensors["weight_g_idx"].data) < 0)
    check_layer(open_layer(layer), layer)


def test_an_order_that_was_never_filled_in(open_layer, check_layer):
    layer = packed(matrix(37, 128))
    check_layer(open_layer(changed(layer, {"weight_g_idx": np.full(128, -1, np.int32)})), layer)


def test_built_in_pieces(open_layer, check_layer, monkeypatch):
    monkeypatch.setattr(modules, "CHUNK_ELEMENTS", 300)
    layer = packed(matrix(37, 128), zeros="packed")
    check_layer(open_layer(layer), layer)


def test_rows_cost_their_bytes(open_layer):
    checkpoint = open_layer(packed(matrix(512, 256)))
    assert rows(checkpoint.tensors[f"{LAYER}.weight"], [(64, 80)]).nbytes == 16 * 128 + 16 * 4 * 2 + 16


def test_a_layer_whose_shape_is_unlike_the_others_is_refused_when_read(tmp_path, session_for):
    layers = {f"model.layers.{number}.up_proj": packed(matrix(16, 128)) for number in range(2)}
    wrong = np.array([16, 127], np.int64)
    layers["model.layers.1.up_proj"] = changed(layers["model.layers.1.up_proj"], {"weight_shape": wrong})
    write_layers(tmp_path, layers, {"model_type": "llama"})
    checkpoint = open_checkpoint(str(tmp_path), session_for())
    checkpoint.read([whole(checkpoint.tensors["model.layers.0.up_proj.weight"])])
    with pytest.raises(FormatError, match="like weight"):
        checkpoint.read([whole(checkpoint.tensors["model.layers.1.up_proj.weight"])])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"weight_shape": None}, "no weight_shape"),
        ({"weight_shape": np.array([37, 128, 1])}, "no weight_shape"),
        ({"weight_shape": np.array([37, 500])}, "does not fit words of shape [37, 16]"),
        ({"weight_shape": np.array([38, 128])}, "does not fit words of shape [37, 16]"),
        ({"weight_shape": np.array([37, -128])}, "does not fit words"),
        ({"weight_shape": np.array([-(2**63), 2**63 - 1])}, "does not fit words"),
        ({"weight_scale": None}, "no weight_scale is stored"),
        ({"weight_scale": np.ones((36, 2), np.float16)}, "scales of shape [36, 2] for 37 rows"),
        ({"weight_scale": np.ones((37, 3), np.float16)}, "3 groups of scales do not fit"),
        ({"weight_zero_point": np.ones((37, 3), np.int8)}, "zeros of shape [37, 3], expected [37, 2]"),
        ({"weight_zero_point": np.ones((37, 2), np.int32)}, "zeros of shape [37, 2], expected [5, 2]"),
        ({"weight_g_idx": np.ones(127, np.int32)}, "weight_g_idx of shape [127]"),
        ({"weight": np.ones((37, 128), np.int8)}, "compressed-tensors does not go with weight"),
    ],
)
def test_what_does_not_fit_is_left_as_stored(open_layer, changes, reason):
    layer = changed(packed(matrix(37, 128)), changes)
    checkpoint = open_layer(layer)
    assert sorted(checkpoint.tensors) == sorted(layer.named(LAYER))
    assert reason in checkpoint.notes[0]
