"""Layers that a quantiser transposed are transposed back, piece by piece; only the columns asked for are dequantised."""

import tracemalloc

import numpy as np
import pytest

from kinprint.formats.checkpoint import open_checkpoint
from kinprint.formats.plan import plan_reads, rows, whole
from kinprint.formats.quantised import gptq_awq as gptq_reader
from kinprint.formats.quantised import modules
from kinprint.studies.origin.windows import windows
from support.quantisers import bnb_4bit, bnb_int8, gptq, write_layers

NAME = "h.0.mlp.c_fc"


def matrix(out, width, seed=3):
    return np.random.default_rng(seed).standard_normal((out, width)).astype(np.float32)


@pytest.fixture
def open_conv1d(tmp_path, session_for):
    def build(layer, method):
        write_layers(tmp_path, {NAME: layer}, {"model_type": "gpt2"}, quant_method=method)
        checkpoint = open_checkpoint(str(tmp_path), session_for())
        return checkpoint, checkpoint.tensors[f"{NAME}.weight"]

    return build


KINDS = pytest.mark.parametrize(
    ("quantise", "method"), [(gptq, "gptq"), (bnb_int8, "bitsandbytes"), (bnb_4bit, "bitsandbytes")]
)


@KINDS
@pytest.mark.parametrize("piece", [1, 700, 1 << 21])
def test_the_same_in_pieces_of_any_size(quantise, method, piece, open_conv1d, monkeypatch):
    monkeypatch.setattr(modules, "CHUNK_ELEMENTS", piece)
    layer = quantise(matrix(96, 128))
    checkpoint, tensor = open_conv1d(layer, method)
    assert tensor.made.method.endswith(", transposed")
    assert np.array_equal(checkpoint.read([whole(tensor)])[0], layer.values.T)
    several = [(0, 1), (5, 9), (126, 128)]
    joined = np.concatenate([layer.values.T[start:stop] for start, stop in several])
    assert np.array_equal(checkpoint.read([rows(tensor, several)])[0], joined)
    assert checkpoint.read([rows(tensor, [(7, 7)])])[0].shape == (0, 96)


def test_many_windows_read_each_byte_once(open_conv1d):
    layer = gptq(matrix(96, 128))
    _, tensor = open_conv1d(layer, "gptq")
    wanted = windows(tensor, key="k", count=8, length=50)
    assert len(wanted.runs) > 4
    stored = sum(spec.nbytes for spec in layer.tensors.values())
    assert plan_reads([wanted], max_gap_bytes=0).nbytes <= stored


@KINDS
def test_the_matrix_is_never_held(quantise, method, open_conv1d, monkeypatch):
    monkeypatch.setattr(modules, "CHUNK_ELEMENTS", 1 << 15)
    checkpoint, tensor = open_conv1d(quantise(matrix(1024, 2048)), method)
    wanted = rows(tensor, [(100, 102)])
    checkpoint.read([wanted])
    tracemalloc.start()
    try:
        checkpoint.read([wanted])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < tensor.nbytes + 3 * (1 << 20) < 4 * tensor.elements  # codes, scales, and pieces


def test_zeros_are_unpacked_for_the_columns_asked_for(open_layer, monkeypatch):
    unpacked = []

    def counting(words, bits):
        unpacked.append(words.size)
        return modules.unpack_words(words, bits)

    monkeypatch.setattr(gptq_reader, "unpack_words", counting)
    layer = gptq(matrix(256, 128), bits=3, group=32)
    checkpoint = open_layer(layer, quant_method="gptq", bits=3, group_size=32)
    tensor = checkpoint.tensors["model.layers.0.mlp.up_proj.weight"]
    found = checkpoint.read([rows(tensor, [(37, 39)])])[0]
    assert np.array_equal(found, layer.values[37:39])
    assert unpacked == [2 * 128 * 3 // 32, 4 * 3]  # codes of two columns, zeros of the 32 columns they lie among
