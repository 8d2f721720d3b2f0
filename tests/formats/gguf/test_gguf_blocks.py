"""The number formats of GGUF against the `gguf` package."""

import sys

import numpy as np
import pytest
from gguf.quants import dequantize

import gguf
from kinprint.errors import NeedsExtra, UnsupportedDtype
from kinprint.formats.dtypes import block_of, decode
from kinprint.formats.gguf.blocks import CHUNK, TYPES, type_of
from support.gguf_files import encode

CODED = [kind for kind in TYPES.values() if kind.elements > 1]
BY_PACKAGE = ("IQ1", "IQ2", "IQ3")
OWN = [kind for kind in CODED if not kind.name.startswith(BY_PACKAGE)]
by_name = pytest.mark.parametrize("kind", CODED, ids=lambda kind: kind.name)


def oracle(raw, kind):
    with np.errstate(all="ignore"):
        return dequantize(raw.reshape(-1, kind.size), gguf.GGMLQuantizationType[kind.name]).reshape(-1)


def same_bits(a, b):
    nan = np.isnan(a)
    return np.array_equal(nan, np.isnan(b)) and np.array_equal(a[~nan].view(np.uint32), b[~nan].view(np.uint32))


def test_all_types_of_the_package_that_it_decodes_are_here():
    known = {int(kind) for kind in gguf.quants._type_traits} | {0, 1, 24, 25, 26, 27, 28}
    assert set(TYPES) == known
    for number, kind in TYPES.items():
        assert gguf.GGMLQuantizationType(number).name == kind.name
        assert gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(number)] == (kind.elements, kind.size)
        assert block_of(kind.name) == (kind.elements, kind.size)


@by_name
def test_any_bytes_decode_as_the_package_decodes_them(kind):
    """Random bytes reach every code, and scales that are infinite, no numbers, or subnormal."""
    rng = np.random.default_rng(3)
    blocks = CHUNK // kind.elements + 37  # more than are decoded at a time
    raw = rng.integers(0, 256, blocks * kind.size, dtype=np.uint8)
    got = decode(memoryview(raw), kind.name)
    assert got.dtype == np.float32
    assert got.shape == (blocks * kind.elements,)
    assert same_bits(got, oracle(raw, kind))


@pytest.mark.parametrize("kind", OWN, ids=lambda kind: kind.name)
def test_every_byte_in_every_place(kind):
    raw = np.repeat(np.arange(256, dtype=np.uint8)[:, None], kind.size, axis=1).reshape(-1)
    assert same_bits(decode(memoryview(raw), kind.name), oracle(raw, kind))


@by_name
def test_blocks_decode_alone_and_none_at_all(kind):
    raw = np.random.default_rng(5).integers(0, 120, 5 * kind.size, dtype=np.uint8)
    whole = decode(memoryview(raw), kind.name)
    some = decode(memoryview(raw)[2 * kind.size : 3 * kind.size], kind.name)
    assert same_bits(some, whole[2 * kind.elements : 3 * kind.elements])
    assert decode(memoryview(b""), kind.name).shape == (0,)


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16", "F64", "I8", "I16", "I32", "I64"])
def test_plain_types(dtype):
    values = np.array([0, 1, -2, 100], dtype=np.float32)
    assert np.array_equal(decode(memoryview(encode(values, dtype)), dtype), values)


@pytest.mark.parametrize(
    ("dtype", "error"), [("Q8_0", 0.005), ("Q6_K", 0.03), ("Q4_K", 0.1), ("Q4_0", 0.13)], ids=lambda x: str(x)
)
def test_what_the_test_support_quantises_comes_back(dtype, error):
    values = np.random.default_rng(1).standard_normal((16, 512)).astype(np.float32)
    values[3] = 0.0
    got = decode(memoryview(encode(values, dtype)), dtype).reshape(values.shape)
    assert np.abs(got - values).max() <= error * np.abs(values).max()
    assert np.array_equal(got[3], values[3])


@pytest.mark.parametrize("dtype", ["Q8_0", "Q4_0"])
def test_the_test_support_quantises_nearly_as_the_package(dtype):
    values = np.random.default_rng(2).standard_normal((4, 256)).astype(np.float32)
    theirs = gguf.quants.quantize(values, gguf.GGMLQuantizationType[dtype]).reshape(-1)
    ours = np.frombuffer(encode(values, dtype), np.uint8)
    assert (
        np.mean(theirs == ours) > 0.95
    )  # halves are rounded to even here and upwards there, steps after F16 and before


@pytest.mark.parametrize("kind", CODED, ids=lambda kind: kind.name)
def test_without_the_package_only_tables_are_missing(kind, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    monkeypatch.setitem(sys.modules, "gguf.quants", None)
    raw = memoryview(bytes(kind.size))
    if kind.name.startswith(BY_PACKAGE):
        with pytest.raises(NeedsExtra, match=rf"{kind.name} needs the extra 'gguf'"):
            decode(raw, kind.name)
    else:
        assert decode(raw, kind.name).shape == (kind.elements,)


@pytest.mark.parametrize(("number", "name"), [(9, "Q8_1"), (31, "Q4_0_4_4"), (41, "Q1_0"), (999, "type 999")])
def test_other_types_are_refused_by_name(number, name):
    with pytest.raises(UnsupportedDtype, match=rf"f: tensor 'w' is stored as GGML {name};"):
        type_of(number, tensor="w", label="f")
