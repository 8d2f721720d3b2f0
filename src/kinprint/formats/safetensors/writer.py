"""Write tensors in the safetensors format without torch, byte for byte as the official writer lays them out."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Fill = Callable[[str, "TensorSpec"], Array]

# In the official writer's order: it places the later ones first in a file, so that all stay aligned.
# Numpy has neither bfloat16 nor 8-bit floats: their bits travel as unsigned integers.
_CODES = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "F8_E5M2": "u1", "F8_E4M3": "u1", "F8_E8M0": "u1", "F8_E4M3FNUZ": "u1",
    "F8_E5M2FNUZ": "u1", "I16": "<i2", "U16": "<u2", "F16": "<f2", "BF16": "<u2", "I32": "<i4", "U32": "<u4",
    "F32": "<f4", "C64": "<c8", "F64": "<f8", "I64": "<i8", "U64": "<u8",
}  # fmt: skip
STORAGE: dict[str, np.dtype[Any]] = {name: np.dtype(code) for name, code in _CODES.items()}
_RANK = {name: rank for rank, name in enumerate(STORAGE)}
_NATURAL = {STORAGE[name]: name for name in STORAGE if not name.startswith(("BF", "F8"))}


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor's type and shape; ``data`` holds its values, or nothing where a fill callback supplies them."""

    dtype: str
    shape: tuple[int, ...]
    data: Array | None = None

    @property
    def count(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return self.count * STORAGE[self.dtype].itemsize


def to_bf16(values: Array) -> NDArray[np.uint16]:
    """Round to bfloat16 (nearest, ties to even) and return the bits; infinities stay, NaNs stay NaN."""
    wide = np.ascontiguousarray(values, dtype=np.float32)
    bits = wide.view(np.uint32)
    rounded = ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)
    quiet = ((bits >> np.uint32(16)) | np.uint32(0x40)).astype(np.uint16)
    return np.where(np.isnan(wide), quiet, rounded)


def from_bf16(bits: Array) -> NDArray[np.float32]:
    """Return the float32 values of bfloat16 bits."""
    return (np.asarray(bits, dtype=np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def spec_of(value: Array | TensorSpec, dtype: str | None = None) -> TensorSpec:
    """Describe an array, stored as ``dtype`` if given and as its own type if not."""
    if isinstance(value, TensorSpec):
        return TensorSpec(dtype or value.dtype, value.shape, value.data)
    own = np.asarray(value)
    return TensorSpec(dtype or _NATURAL[own.dtype.newbyteorder("<")], own.shape, own)


def encode(name: str, spec: TensorSpec, fill: Fill | None = None) -> bytes:
    """Return a tensor's bytes: floats are converted to its type; for BF16 and 8-bit types, integers pass as bits."""
    data = spec.data if spec.data is not None else fill(name, spec) if fill else None
    if data is None:
        return bytes(spec.nbytes)
    array = np.asarray(data)
    if array.shape != spec.shape:
        raise ValueError(f"tensor {name}: declared shape {spec.shape}, values of shape {array.shape}")
    if array.dtype.kind == "f" and spec.dtype == "BF16":
        array = to_bf16(array)
    elif array.dtype.kind == "f" and spec.dtype.startswith("F8"):
        raise ValueError(f"tensor {name}: give the bits of {spec.dtype} as uint8")
    return np.ascontiguousarray(array, dtype=STORAGE[spec.dtype]).tobytes()


def layout(specs: Mapping[str, TensorSpec], metadata: Mapping[str, str] | None) -> tuple[bytes, dict[str, int]]:
    """Return the file's head (length and header, padded to 8 bytes) and each tensor's offset in the file."""
    names = sorted(specs, key=lambda name: (-_RANK[specs[name].dtype], name))
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    starts: dict[str, int] = {}
    end = 0
    for name in names:
        spec = specs[name]
        starts[name] = end
        end += spec.nbytes
        header[name] = {"dtype": spec.dtype, "shape": list(spec.shape), "data_offsets": [starts[name], end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    head = len(text).to_bytes(8, "little") + text
    return head, {name: len(head) + start for name, start in starts.items()}
