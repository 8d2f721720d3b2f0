"""The one parser of safetensors headers, for local and remote files alike. A header is hostile until proven otherwise.

Format: 8 bytes little-endian length N, then N bytes of JSON ``{name: {dtype, shape, data_offsets}}`` with an optional
``__metadata__``, then the data; offsets are relative to byte 8+N. Tensors must tile the data without hole or overlap,
as the format's own library demands: a duplicate name or a wrong offset cannot hide in such a file.
"""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Mapping
from operator import attrgetter
from typing import NamedTuple

import orjson

from kinprint.errors import FormatError
from kinprint.formats.dtypes import item_bytes

LENGTH_BYTES = 8
HEADER_CAP = 100_000_000  # the cap of the format's own library
MAX_SIDES = 64  # numpy's limit
MAX_COUNT = 1 << 59  # numpy counts bytes in 63 bits, whichever sides are zero
_LFS_POINTER = b"version https://git-lfs"
FIRST_READ = 65_536  # without an index to predict from; 512 KB cost five times the bytes for no gain in time


class TensorInfo(NamedTuple):  # a tuple: a large model has 18,000 of them, and it is made three times as fast
    """Where one tensor's bytes are. ``start`` and ``end`` are absolute in the file (half-open)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: int  # position in the checkpoint's list of files
    start: int
    end: int

    @property
    def nbytes(self) -> int:
        """Stored bytes."""
        return self.end - self.start

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return item_bytes(self.dtype, tensor=self.name)


def header_length(first: bytes | memoryview, *, file_size: int, label: str) -> int:
    """Read and check the length field."""
    if file_size < LENGTH_BYTES or len(first) < LENGTH_BYTES:
        raise FormatError(
            f"{label}: {file_size} bytes, too short to be a safetensors file",
            hint="the download may be incomplete; fetch the file again",
        )
    if bytes(first[: len(_LFS_POINTER)]) == _LFS_POINTER:
        raise FormatError(
            f"{label}: {file_size} bytes, a Git LFS pointer instead of the weights",
            hint="fetch the weights themselves: git lfs pull",
        )
    length = int.from_bytes(first[:LENGTH_BYTES], "little")
    if length > HEADER_CAP:
        raise FormatError(
            f"{label}: the header claims {length} bytes, more than the cap of {HEADER_CAP}; not a safetensors file",
            hint="check that this is the .safetensors file itself, not a page or an archive, and fetch it again",
        )
    if LENGTH_BYTES + length > file_size:
        raise FormatError(
            f"{label}: the header claims {length} bytes, but the file has only {file_size}",
            hint="the file is truncated; fetch it again",
        )
    return length


def expected_header_bytes(weight_map: Mapping[str, str]) -> dict[str, int]:
    """Guess how long each shard's header is from the names an index puts there, so that one read gets it whole.

    Beyond its name an entry takes at most 84 bytes with its quotation marks, for a matrix of up to seven digits a side in
    a file of up to ten; the slack is for ``__metadata__`` and padding. A header that is longer after all costs one more
    request, nothing else.
    """
    lengths: dict[str, int] = {}
    for name, file in weight_map.items():
        lengths[file] = lengths.get(file, LENGTH_BYTES + 512) + len(name) + 86
    return lengths


def parse_header(
    raw: bytes | memoryview, *, file: int, file_size: int, label: str
) -> tuple[list[TensorInfo], dict[str, str]]:
    """Return the tensors, ordered by position, and the free metadata of a header (without its length field)."""
    entries = _load(bytes(raw), label)
    metadata = entries.pop("__metadata__", {})
    base = LENGTH_BYTES + len(raw)
    data_bytes = file_size - base
    forms: _Forms = {}
    tensors = []
    for name, entry in entries.items():
        # The short way, for an entry whose dtype and shape have been checked before; anything else goes through `_entry`.
        try:
            dtype, (start, end) = entry["dtype"], entry["data_offsets"]  # type: ignore[index]
            shape, needed = forms[dtype, tuple(entry["shape"])]  # type: ignore[index]
            if type(start) is int and type(end) is int and start >= 0 and end - start == needed and end <= data_bytes:
                tensors.append(TensorInfo._make((name, dtype, shape, file, base + start, base + end)))
                continue
        except (KeyError, TypeError, ValueError):
            pass
        tensors.append(_entry(name, entry, forms, file, base, data_bytes, label))
    tensors.sort(key=_POSITION)
    at = base
    for tensor in tensors:
        if tensor.start != at:
            what = "overlaps the tensor before it" if tensor.start < at else "leaves a hole before it"
            raise FormatError(
                f"{label}: tensor {tensor.name[:200]!r} {what}: starts at byte {tensor.start - base}, expected {at - base}"
            )
        at = tensor.end
    if at != file_size:
        raise FormatError(
            f"{label}: the tensors end at byte {at}, the file at {file_size}",
            hint="the file is damaged; fetch it again",
        )
    return tensors, _strings(metadata)


def _refuse_density(raw: bytes, label: str) -> None:
    """Refuse a header with more lists or objects than tensors could have, before parsing makes objects of them.

    The shortest sound entry has one object and two lists in 50 bytes; an empty list takes three bytes of text and sixty
    of memory, so a header at the cap could otherwise ask for gigabytes.
    """
    for bracket, least in ((b"[", 20), (b"{", 30)):
        found = raw.count(bracket)
        if found * least > len(raw) + 4096:
            raise FormatError(
                f"{label}: the header has {found} of {bracket.decode()!r} in {len(raw)} bytes, "
                f"expected at most one in {least}",
                hint="no list of tensors looks like this; fetch the file again, from a source you trust",
            )


def _load(raw: bytes, label: str) -> dict[str, object]:
    _refuse_density(raw, label)
    try:
        entries = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise FormatError(f"{label}: the header is not valid UTF-8 JSON: {error}") from error
    if not isinstance(entries, dict):
        raise FormatError(f"{label}: the header is a JSON {type(entries).__name__}, expected an object")
    # orjson keeps the last of two equal keys without a word. A sound entry is spelt with five strings (its name, three keys,
    # its dtype), so a duplicate of any kind leaves quotes over; so does anything unusual, and an escape could disguise a
    # key: these go to the slower parser that sees each pair.
    if b"\\" in raw or raw.count(b'"') != _quotes(entries):
        _refuse_duplicates(raw, label)
    return entries


def _quotes(entries: dict[str, object]) -> int:
    """Return how many quotation marks spell these entries if nothing is there twice."""
    quotes = 10 * len(entries)
    if "__metadata__" in entries:
        quotes -= 8
        metadata = entries["__metadata__"]
        if isinstance(metadata, dict):
            quotes += sum(4 if isinstance(value, str) else 2 for value in metadata.values())
    return quotes


def _refuse_duplicates(raw: bytes, label: str) -> None:
    def check(pairs: list[tuple[str, object]]) -> dict[str, object]:
        seen: dict[str, object] = {}
        for key, value in pairs:
            if key in seen:
                raise FormatError(
                    f"{label}: the header names {key[:200]!r} twice", hint="the file is damaged; fetch it again"
                )
            seen[key] = value
        return seen

    try:
        json.loads(raw, object_pairs_hook=check)
    except (ValueError, RecursionError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{label}: the header is not valid JSON: {error}") from error


_Forms = dict[tuple[str, tuple[int, ...]], tuple[tuple[int, ...], int]]  # dtype and shape: the shape, bytes needed
_POSITION = attrgetter("start", "end")


def _entry(name: str, entry: object, forms: _Forms, file: int, base: int, data_bytes: int, label: str) -> TensorInfo:
    """Check one entry. The experts of a model have few shapes between them, so each shape is checked once."""
    try:
        dtype, (start, end) = entry["dtype"], entry["data_offsets"]  # type: ignore[index]
        key = (dtype, tuple(entry["shape"]))  # type: ignore[index]
        if key not in forms:
            forms[key] = _form(name, dtype, entry["shape"], label)  # type: ignore[index]
        fine = type(start) is int and type(end) is int
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, FormatError):
            raise
        fine = False
    if not fine:
        raise _not_described(name, entry, label)
    if not 0 <= start <= end <= data_bytes:
        raise FormatError(
            f"{label}: tensor {name[:200]!r} lies at bytes {start} to {end}, outside the {data_bytes} bytes of data",
            hint="the file is truncated or damaged; fetch it again",
        )
    shape, needed = forms[key]
    if end - start != needed:
        raise FormatError(
            f"{label}: tensor {name[:200]!r} of shape {reprlib.repr(list(shape))} and dtype {dtype} "
            f"needs {needed} bytes, has {end - start}"
        )
    return TensorInfo(name, dtype, shape, file, base + start, base + end)


def _form(name: str, dtype: object, shape: object, label: str) -> tuple[tuple[int, ...], int]:
    """Check a dtype and a shape; return the shape and the bytes they take."""
    fine = isinstance(dtype, str) and isinstance(shape, list) and all(type(side) is int and side >= 0 for side in shape)
    if not fine:
        raise _not_described(name, {"dtype": dtype, "shape": shape}, label)
    assert isinstance(dtype, str)
    assert isinstance(shape, list)
    if len(shape) > MAX_SIDES or math.prod(max(side, 1) for side in shape) > MAX_COUNT:
        raise FormatError(
            f"{label}: tensor {name[:200]!r} has the shape {reprlib.repr(shape)}, more than an array can have"
        )
    return tuple(shape), math.prod(shape) * item_bytes(dtype, tensor=name, label=label)


def _not_described(name: str, entry: object, label: str) -> FormatError:
    return FormatError(
        f"{label}: tensor {name[:200]!r} is described by {reprlib.repr(entry)[:200]}; "
        "expected dtype, shape and data_offsets"
    )


def _strings(metadata: object) -> dict[str, str]:
    if not isinstance(metadata, dict):
        return {}
    return {str(key): value for key, value in metadata.items() if isinstance(value, str)}
