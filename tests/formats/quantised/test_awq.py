"""AWQ: what was packed by the definition of the format is what is read."""

from dataclasses import replace

import numpy as np
import pytest

from kinprint.formats.quantised import modules
from kinprint.formats.quantised.gptq_awq import _awq_columns
from kinprint.formats.safetensors.writer import spec_of
from support.quantisers import awq

LAYER = "model.layers.0.mlp.up_proj"


def matrix(out, width, seed=3):
    return np.random.default_rng(seed).standard_normal((out, width)).astype(np.float32)


CONFIG = {"quant_method": "awq", "bits": 4, "version": "GEMM"}


@pytest.mark.parametrize(("out", "width", "group"), [(64, 128, 64), (16, 32, 32), (200, 96, 16)])
def test_shapes_and_groups(open_layer, check_layer, out, width, group):
    layer = awq(matrix(out, width), group=group)
    checkpoint = open_layer(layer, **CONFIG, group_size=group)
    tensor = check_layer(checkpoint, layer)
    assert tensor.dtype == "AWQ 4-bit"
    assert checkpoint.notes == (f"1 weights are dequantised when read: AWQ 4-bit, groups of {group}",)


def test_built_in_pieces(open_layer, check_layer, monkeypatch):
    monkeypatch.setattr(modules, "CHUNK_ELEMENTS", 2500)
    layer = awq(matrix(72, 128))
    check_layer(open_layer(layer, **CONFIG), layer)


def test_without_a_config(open_layer, check_layer):
    layer = awq(matrix(64, 128))
    check_layer(open_layer(layer), layer)


def test_the_eight_numbers_of_a_word():
    """A word by hand: outputs 0 to 7 with the codes 0 to 7, lowest bits first 0, 2, 4, 6, 1, 3, 5, 7."""
    words = np.array([[0x75316420]], np.uint32).view(np.int32)

    assert _awq_columns(words, 0, 8).tolist() == [[0, 1, 2, 3, 4, 5, 6, 7]]
    assert _awq_columns(words, 3, 6).tolist() == [[3, 4, 5]]


@pytest.mark.parametrize(
    ("changes", "settings", "reason"),
    [
        ({}, {"version": "gemv"}, "layout 'gemv'"),
        ({}, {"bits": 3}, "AWQ with 3 bits"),
        ({"scales": np.zeros((2, 60), np.float16)}, {}, "do not belong together"),
        ({"qzeros": np.zeros((3, 8), np.int32)}, {}, "do not belong together"),
        ({"scales": np.zeros((5, 64), np.float16), "qzeros": np.zeros((5, 8), np.int32)}, {}, "5 groups of scales"),
    ],
)
def test_what_does_not_fit_is_left_as_stored(open_layer, changes, settings, reason):
    layer = awq(matrix(64, 128))
    layer = replace(layer, tensors={**layer.tensors, **{key: spec_of(value) for key, value in changes.items()}})
    checkpoint = open_layer(layer, **{**CONFIG, **settings})
    assert sorted(checkpoint.tensors) == sorted(layer.named(LAYER))
    assert reason in checkpoint.notes[0]
