"""Every stored number format, every pattern where there are few enough, against two independent implementations."""

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from kinprint.errors import UnsupportedDtype
from kinprint.formats.checkpoint import open_checkpoint
from kinprint.formats.dtypes import ITEM_BYTES, decode, fp8_table
from kinprint.formats.plan import whole

ALL_16 = np.arange(65536, dtype=np.uint16)
ALL_8 = np.arange(256, dtype=np.uint8)


def same(mine, theirs):
    """Equal in every bit that means something: NaN where NaN, and the sign of zero."""
    nan = np.isnan(theirs)
    np.testing.assert_array_equal(np.isnan(mine), nan)
    np.testing.assert_array_equal(mine[~nan], theirs[~nan])
    np.testing.assert_array_equal(np.signbit(mine[~nan]), np.signbit(theirs[~nan]))


@pytest.mark.parametrize(
    ("dtype", "codes", "reference"),
    [
        ("BF16", ALL_16, ml_dtypes.bfloat16),
        ("F16", ALL_16, np.float16),
        ("F8_E4M3", ALL_8, ml_dtypes.float8_e4m3fn),
        ("F8_E5M2", ALL_8, ml_dtypes.float8_e5m2),
    ],
)
def test_every_pattern(dtype, codes, reference):
    mine = decode(memoryview(codes.tobytes()), dtype)
    assert mine.dtype == np.float32
    with np.errstate(invalid="ignore"):
        same(mine, codes.view(reference).astype(np.float32))


def test_fp8_landmarks():
    e4m3, e5m2 = fp8_table(4, 3), fp8_table(5, 2)
    assert (e4m3[0x7E], e4m3[0x01]) == (448.0, 2.0**-9)
    assert np.isnan(e4m3[[0x7F, 0xFF]]).all()
    assert np.isnan(e4m3).sum() == 2
    assert not np.isinf(e4m3).any()
    assert (e5m2[0x7B], e5m2[0x7C], e5m2[0xFC]) == (57344.0, np.inf, -np.inf)
    assert np.isnan(e5m2).sum() == 6


ARRAYS = {
    "F64": np.array([[1e300, -0.0, np.nan], [np.inf, 5e-324, -1.5]]),
    "F32": np.array([3.4e38, -1e-45, np.nan, np.inf], np.float32),
    "F16": np.array([65504, -6e-8, np.nan], np.float16),
    "BF16": np.array([[1.5], [-3e38]], ml_dtypes.bfloat16),
    "I64": np.array([-(2**63), 2**63 - 1]),
    "I32": np.array([-(2**31), 2**31 - 1], np.int32),
    "I16": np.array([-32768, 32767], np.int16),
    "I8": np.array([-128, 127], np.int8),
    "U16": np.array([0, 2**16 - 1], np.uint16),
    "U32": np.array([0, 2**32 - 1], np.uint32),
    "U64": np.array([0, 2**64 - 1], np.uint64),
    "U8": np.array([0, 255], np.uint8),
    "BOOL": np.array([[True, False, True]]),
    "scalar": np.array(2.5, np.float32),
    "empty": np.zeros((3, 0, 2), np.float32),
}


def test_files_of_the_official_writer(tmp_path, session_for):
    # F8 is left to the test of every code above: the numpy side of the official package has no such type.
    save_file(ARRAYS, tmp_path / "model.safetensors", metadata={"format": "pt"})
    theirs = load_file(tmp_path / "model.safetensors")
    checkpoint = open_checkpoint(str(tmp_path / "model.safetensors"), session_for())
    assert set(checkpoint.tensors) == set(ARRAYS)
    for name, mine in zip(
        checkpoint.tensors, checkpoint.read([whole(t) for t in checkpoint.tensors.values()]), strict=True
    ):
        assert mine.shape == theirs[name].shape
        if mine.dtype.kind == "f":
            same(mine.ravel(), theirs[name].astype(mine.dtype).ravel())
        else:
            assert mine.dtype == theirs[name].dtype
            np.testing.assert_array_equal(mine, theirs[name])


def test_unaligned_bytes_decode():
    raw = b"x" + np.array([1.5, 2.5], "<f8").tobytes()
    np.testing.assert_array_equal(decode(memoryview(raw)[1:], "F64"), [1.5, 2.5])


@pytest.mark.parametrize("dtype", ["F4", "U128", "f32", "", "C64", "F8_E4M3FNUZ", "X" * 1000])
def test_unknown_dtype_names_the_tensor(dtype):
    with pytest.raises(UnsupportedDtype, match=r"tensor 'layer.w' is stored as .*supported: F64") as caught:
        decode(memoryview(b""), dtype, tensor="layer.w")
    assert all(known in caught.value.message for known in ITEM_BYTES)
    assert len(caught.value.message) < 400
