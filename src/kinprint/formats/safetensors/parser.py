"""Parse safetensors headers, of local and remote files alike. A header is untrusted.

Format: 8 bytes little-endian length N, then N bytes of JSON ``{name: {dtype, shape, data_offsets}}`` with an optional
``__metadata__``, then the data; offsets are relative to byte 8+N. Tensors must tile the data without hole or overlap,
as the format's own library demands: a duplicate name or a wrong offset cannot hide in such a file.
"""

import math
import reprlib
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby, repeat
from operator import attrgetter, itemgetter, sub
from typing import Any

import orjson

from kinprint._util.strange_json import repeated_key
from kinprint.errors import FormatError
from kinprint.formats.checks import damaged, refuse_lfs_pointer, too_large
from kinprint.formats.dtypes import item_bytes
from kinprint.formats.format import Shard
from kinprint.formats.tensors import Row, TensorInfo
from kinprint.refs import ByteRange
from kinprint.sources.base import Folder, Source
from kinprint.sources.session import Session

LENGTH_BYTES = 8
MOST_TENSORS = 250_000  # of one file: a million took 50 s and 1 GB, and whole mixtures of 671 B have 91,000
HEADER_CAP = 100_000_000  # the cap of the format's own library


def header_length(first: bytes | memoryview, *, file_size: int, label: str) -> int:
    """Read and check the length field."""
    if file_size < LENGTH_BYTES or len(first) < LENGTH_BYTES:
        said = f"{label}: {file_size} bytes, too short to be a safetensors file"
        raise FormatError(said, hint="the download may be incomplete; fetch the file again")
    refuse_lfs_pointer(first, label)
    length = int.from_bytes(first[:LENGTH_BYTES], "little")
    if length > HEADER_CAP:
        raise FormatError(
            f"{label}: the header claims {length} bytes, more than the cap of {HEADER_CAP}; not a safetensors file",
            hint="check that this is the .safetensors file itself, not a page or an archive, and fetch it again",
        )
    if LENGTH_BYTES + length > file_size:
        raise damaged(f"{label}: the header claims {length} bytes, but the file has only {file_size}")
    return length


def expected_header_bytes(weight_map: Mapping[str, str]) -> dict[str, int]:
    """Guess how long each shard's header is from the names an index puts there, so that one read gets it whole."""
    # Beyond its name an entry takes at most 84 bytes, for a matrix of up to seven digits a side in a file of up to ten; the
    # slack is for ``__metadata__`` and padding. A header that is longer after all costs one more request.
    lengths: dict[str, int] = {}
    for file, run in groupby(weight_map, weight_map.__getitem__):  # an index mostly names a file's tensors together
        names = list(run)
        lengths[file] = lengths.get(file, LENGTH_BYTES + 512) + len("".join(names)) + 86 * len(names)
    return lengths


def parse_header(
    raw: bytes | memoryview, *, file: int, file_size: int, label: str
) -> tuple[Sequence[Row | TensorInfo], dict[str, str]]:
    """Return the tensors, ordered by position, and the free metadata of a header (without its length field)."""
    entries = _load(bytes(raw), label)
    metadata = entries.pop("__metadata__", {})
    base = LENGTH_BYTES + len(raw)
    rows = _plain_entries(entries, file, base, file_size) or _any_entries(entries, file, base, file_size, label)
    free = metadata.items() if isinstance(metadata, dict) else ()
    return rows, {str(key): value for key, value in free if isinstance(value, str)}


def _plain_entries(entries: Mapping[str, object], file: int, base: int, file_size: int) -> Sequence[Row | TensorInfo]:
    """Make the rows of a sound header whose entries stand in the order of the data, as writers leave them."""
    # Whole columns are checked at once, which saves a third of the time: a large model has 18,000 entries. At anything else nothing
    # is returned, and nothing said about the reason.
    try:
        dtypes, shapes, offsets = zip(*map(_FIELDS, entries.values()), strict=True)
        starts, ends = zip(*offsets, strict=True)
        lists = set(map(type, shapes)) == {list}
        keys = list(zip(dtypes, map(tuple, shapes), strict=True))
        # The experts of a model have few shapes between them, so each shape is checked once.
        forms = {key: (key[0], *_form("", key[0], list(key[1]), "")) for key in dict.fromkeys(keys)}
        dtypes, shapes, needed = zip(*map(forms.__getitem__, keys), strict=True)
        sound = {*map(type, starts), *map(type, ends)} == {int} and lists and tuple(map(sub, ends, starts)) == needed
    except (KeyError, TypeError, ValueError):  # FormatError is one of the last
        return []
    # Each tensor begins where the one before ends, the first with the data and the last ends with the file.
    if not sound or starts[0] != 0 or starts[1:] != ends[:-1] or base + ends[-1] != file_size:
        return []
    bounds = [*(base + start for start in starts), file_size]
    return list(zip(entries, dtypes, shapes, repeat(file), bounds, bounds[1:], strict=False))


def _any_entries(entries: Mapping[str, object], file: int, base: int, file_size: int, label: str) -> list[TensorInfo]:
    """Make the tensors of any header, one by one; refuse an unsound one with the reason."""
    forms: _Forms = {}
    data_bytes = file_size - base
    tensors = [_entry(name, entry, forms, file, base, data_bytes, label) for name, entry in entries.items()]
    tensors.sort(key=attrgetter("start", "end"))
    at = base
    for tensor in tensors:
        if tensor.start != at:
            what = "overlaps the tensor before it" if tensor.start < at else "leaves a hole before it"
            said = f"{label}: tensor {tensor.name[:200]!r} {what}: starts at byte {tensor.start - base}, expected {at - base}"
            raise FormatError(said)
        at = tensor.end
    if at != file_size:
        raise damaged(f"{label}: the tensors end at byte {at}, the file at {file_size}")
    return tensors


def _refuse_density(raw: bytes, label: str) -> None:
    """Refuse a header with more lists or objects than tensors could have, before parsing makes objects of them."""
    # The shortest sound entry has one object and two lists in 50 bytes; an empty list takes three bytes of text and sixty
    # of memory, so a header at the cap could otherwise ask for gigabytes.
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
    if (count := raw.count(b"data_offsets")) > MOST_TENSORS:
        said = f"{label}: the header has {count} tensors, expected at most {MOST_TENSORS}"
        raise FormatError(said, hint="no model has as many in one file; fetch it again, from a source you trust")
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
        try:
            twice = repeated_key(raw)
        except (ValueError, RecursionError) as error:
            raise FormatError(f"{label}: the header is not valid JSON: {error}") from error
        if twice is not None:
            raise damaged(f"{label}: the header names {twice[:200]!r} twice")
    return entries


def _quotes(entries: dict[str, object]) -> int:
    """Return how many quotation marks spell these entries if no key occurs twice."""
    metadata = entries.get("__metadata__")
    free = metadata.values() if isinstance(metadata, dict) else ()
    spelt = sum(4 if isinstance(value, str) else 2 for value in free)
    return 10 * len(entries) + spelt - (8 if "__metadata__" in entries else 0)


_Forms = dict[tuple[str, tuple[int, ...]], tuple[tuple[int, ...], int]]  # dtype and shape: the shape, bytes needed
_FIELDS: Callable[[Any], Any] = itemgetter("dtype", "shape", "data_offsets")


def _entry(name: str, entry: object, forms: _Forms, file: int, base: int, data_bytes: int, label: str) -> TensorInfo:
    try:
        dtype, (start, end) = entry["dtype"], entry["data_offsets"]  # type: ignore[index]
        key = (dtype, tuple(entry["shape"]))  # type: ignore[index]
        if key not in forms:
            forms[key] = _form(name, dtype, entry["shape"], label)  # type: ignore[index]
        # A string or an object would pass for a list once a tensor of that shape has been seen.
        fine = type(start) is int and type(end) is int and isinstance(entry["shape"], list)  # type: ignore[index]
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, FormatError):
            raise
        fine = False
    if not fine:
        raise _not_described(name, entry, label)
    if not 0 <= start <= end <= data_bytes:
        said = f"{label}: tensor {name[:200]!r} lies at bytes {start} to {end}, outside the {data_bytes} bytes of data"
        raise damaged(said)
    shape, needed = forms[key]
    if end - start != needed:
        raise FormatError(
            f"{label}: tensor {name[:200]!r} of shape {reprlib.repr(list(shape))} and dtype {dtype} "
            f"needs {needed} bytes, has {end - start}"
        )
    return TensorInfo(name, dtype, shape, file, base + start, base + end)


def _form(name: str, dtype: object, shape: object, label: str) -> tuple[tuple[int, ...], int]:
    """Check a dtype and a shape; return the shape and the bytes they take."""
    if not isinstance(dtype, str) or not isinstance(shape, list) or not all(type(s) is int and s >= 0 for s in shape):
        raise _not_described(name, {"dtype": dtype, "shape": shape}, label)
    if too_large(shape):
        said = f"{label}: tensor {name[:200]!r} has the shape {reprlib.repr(shape)}, more than an array can have"
        raise FormatError(said)
    return tuple(shape), math.prod(shape) * item_bytes(dtype, tensor=name, label=label)


def _not_described(name: str, entry: object, label: str) -> FormatError:
    what = f"tensor {name[:200]!r} is described by {reprlib.repr(entry)[:200]}"
    return FormatError(f"{label}: {what}; expected dtype, shape and data_offsets")


def load(session: Session, _folder: Folder, source: Source, number: int, guess: int) -> Shard:
    """Read and parse one header; mostly by one read."""
    size = source.size
    head = session.read_here(source, ByteRange(0, min(session.on_a_guess(guess, LENGTH_BYTES), size)))
    end = LENGTH_BYTES + header_length(head, file_size=size, label=source.label)
    if end > len(head):
        head = memoryview(bytes(head) + bytes(session.read_here(source, ByteRange(len(head), end))))
    rows, _ = parse_header(head[LENGTH_BYTES:end], file=number, file_size=size, label=source.label)
    return Shard(source, size, end, {row[0]: row for row in rows})
