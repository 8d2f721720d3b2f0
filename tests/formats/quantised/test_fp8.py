"""FP8 and int8 with scales by tensor, row, group and block."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from kinprint.formats.plan import rows, whole
from kinprint.formats.quantised import modules
from kinprint.formats.safetensors.writer import TensorSpec, spec_of
from support.quantisers import fp8, int8, stored

LAYER = "model.layers.0.mlp.up_proj"


def matrix(out, width, seed=3):
    return np.random.default_rng(seed).standard_normal((out, width)).astype(np.float32)


@pytest.mark.parametrize("kind", ["F8_E4M3", "F8_E5M2"])
@pytest.mark.parametrize(
    ("settings", "shape", "method"),
    [
        ({}, (40, 72), "one scale"),
        ({"each_row": True}, (40, 72), "a scale for each row"),
        ({"block": (128, 128)}, (300, 200), "blocks of 128 × 128"),
        ({"block": (128, 128)}, (100, 100), "one scale"),
    ],
)
def test_fp8(open_layer, check_layer, kind, settings, shape, method):
    layer = fp8(matrix(*shape), kind=kind, **settings)
    checkpoint = open_layer(layer, quant_method="fp8")
    tensor = check_layer(checkpoint, layer)
    name = kind.replace("F8_", "FP8 ")
    assert tensor.dtype == f"{name} scaled"
    assert checkpoint.notes == (f"1 weights are dequantised when read: {name} with scales, {method}",)


@pytest.mark.parametrize(
    "quantise", [fp8, partial(fp8, each_row=True), partial(fp8, block=(16, 32)), partial(int8, zeros=True)]
)
def test_built_in_pieces(open_layer, check_layer, monkeypatch, quantise):
    monkeypatch.setattr(modules, "CHUNK_ELEMENTS", 700)
    layer = quantise(matrix(100, 96))
    check_layer(open_layer(layer, quant_method="fp8", weight_block_size=[16, 32]), layer)


def test_blocks_of_a_size_that_the_config_gives(open_layer, check_layer):
    layer = fp8(matrix(100, 96), block=(16, 32))
    check_layer(open_layer(layer, quant_method="fp8", weight_block_size=[16, 32]), layer)
    left = open_layer(layer, quant_method="fp8")
    assert sorted(left.tensors) == sorted(layer.named(LAYER))
    assert "scales of shape [7, 3] fit neither rows, groups nor known blocks" in left.notes[0]


def test_blocks_named_by_compressed_tensors(open_layer, check_layer):
    layer = fp8(matrix(100, 96), block=(16, 32))
    tensors = dict(layer.tensors)
    tensors["weight_scale"] = tensors.pop("weight_scale_inv")
    weights = {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [16, 32]}
    settings = {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights}}}
    check_layer(open_layer(replace(layer, tensors=tensors), **settings), layer)


@pytest.mark.parametrize("zeros", [False, True])
def test_int8(open_layer, check_layer, zeros):
    layer = int8(matrix(40, 72), zeros=zeros)
    checkpoint = open_layer(layer, quant_method="compressed-tensors", format="int-quantized")
    assert check_layer(checkpoint, layer).dtype == "int8 scaled"
    assert checkpoint.notes == ("1 weights are dequantised when read: int8 with scales, a scale for each row",)


def test_int8_in_groups(open_layer, check_layer):
    rng = np.random.default_rng(5)
    codes = rng.integers(-128, 128, (40, 96)).astype(np.int8)
    scales = rng.random((40, 3)).astype(np.float16)
    layer = stored(codes * np.repeat(scales, 32, axis=1).astype(np.float64), weight=codes, weight_scale=scales)
    check_layer(open_layer(layer), layer)


def test_scales_of_activations_are_left_out(open_layer, check_layer):
    layer = fp8(matrix(40, 72))
    extra = {"input_scale": spec_of(np.array(0.5, np.float32)), "k_scale": spec_of(np.array(0.5, np.float32))}
    checkpoint = open_layer(replace(layer, tensors={**layer.tensors, **extra}), quant_method="fp8")
    check_layer(checkpoint, layer)
    assert checkpoint.notes[1] == "2 scales of activations, which say nothing about weights, are left out"


def test_rows_cost_their_bytes(open_layer):
    checkpoint = open_layer(fp8(matrix(512, 512), block=(128, 128)), quant_method="fp8")
    tensor = checkpoint.tensors[f"{LAYER}.weight"]
    assert rows(tensor, [(130, 140)]).nbytes == 10 * 512 + 4 * 4
    assert rows(tensor, [(120, 130)]).nbytes == 10 * 512 + 8 * 4


def test_numbers_that_are_none_stay_so(open_layer):
    codes = np.full((8, 8), 0x7F, np.uint8)
    layer = stored(
        np.zeros((8, 8)), weight=TensorSpec("F8_E4M3", (8, 8), codes), weight_scale=np.array(np.inf, np.float32)
    )
    checkpoint = open_layer(layer)
    assert np.isnan(checkpoint.read([whole(checkpoint.tensors[f"{LAYER}.weight"])])[0]).all()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"weight_scale": np.ones((3, 2), np.float32)}, "fit neither rows, groups nor known blocks"),
        ({"weight_scale": np.ones(39, np.float32)}, "fit neither rows, groups nor known blocks"),
        ({"weight_scale": np.ones((40, 5), np.float32)}, "5 groups of scales do not fit 72 columns"),
        ({"weight_scale": np.ones((40, 1), np.int32)}, "weight_scale is I32"),
        ({"weight_scale_inv": np.ones((40, 1), np.float32)}, "2 tensors of scales"),
        ({"weight_zero_point": np.ones((40, 1), np.int8)}, "zeros of shape [40, 1] beside scales of shape []"),
        ({"weight": np.zeros((40, 72, 1), np.int8)}, "weight is I8 of shape [40, 72, 1]"),
        ({"pre_quant_scale": np.ones(72, np.float32)}, "FP8 does not go with pre_quant_scale"),
        ({"weight_global_scale": np.ones(1, np.float32)}, "FP8 does not go with weight_global_scale"),
    ],
)
def test_what_does_not_fit_is_left_as_stored(open_layer, changes, reason):
    layer = fp8(matrix(40, 72))
    merged = {**layer.tensors, **{key: None if value is None else spec_of(value) for key, value in changes.items()}}
    layer = replace(layer, tensors={key: value for key, value in merged.items() if value is not None})
    checkpoint = open_layer(layer, quant_method="fp8")
    assert sorted(checkpoint.tensors) == sorted(layer.named(LAYER))
    assert reason in checkpoint.notes[0]


def test_fp8_without_scales_is_plain_numbers(open_layer):
    layer = fp8(matrix(40, 72))
    layer = replace(layer, tensors={"weight": layer.tensors["weight"]})
    checkpoint = open_layer(layer, quant_method="fp8")
    assert (list(checkpoint.tensors), checkpoint.notes) == ([f"{LAYER}.weight"], ())
