"""Read PyTorch's zip archives (.bin, .pt, .pth): a pickle that describes tensors, and their storages as stored members.

The pickle is read by `kinprint.formats.pytorch.pickles`, which runs nothing. Values that training scripts add beside the weights
(arguments, paths, numpy's numbers) are passed over where their types are on a short list; any other type is refused by name.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from kinprint.errors import FormatError
from kinprint.formats import zip_directory
from kinprint.formats.checks import MAX_COUNT, MAX_SIDES, damaged, refuse_lfs_pointer, too_large
from kinprint.formats.dtypes import item_bytes
from kinprint.formats.format import FIRST_READ, MAGIC_BYTES, Shard
from kinprint.formats.pytorch import pickles
from kinprint.formats.pytorch.pickles import Global, PickledValue, Refusal
from kinprint.formats.tensors import Row, TensorInfo
from kinprint.formats.zip_directory import ZIP_MAGIC, Reader, ZipMember
from kinprint.sources.base import Folder, Source
from kinprint.sources.session import Session
from kinprint.text import Text

NEWEST_VERSION = 10
_DEEPEST = 32
_LONGEST_NAME = 1000
_VIEW_ELEMENTS = 1 << 20  # how far a view may repeat elements of its storage (a small mask made by expand)
_SLICE = re.compile(r"(?:^|/)consolidated\.(\d\d)\.pth$")
_CONVERT = (
    "on a machine where you trust the file, torch.load it and save the state dict again with torch.save of torch 1.6 "
    "or newer, or with safetensors"
)
_ALONE = "save the state dict alone"
_WRAPPERS = (
    "state_dict", "model_state_dict", "model", "module", "model_weights", "weights", "params", "network", "net",
)  # fmt: skip

_WIDTHS = {"float": (16, 32, 64), "complex": (32, 64, 128), "int": (8, 16, 32, 64), "uint": (8, 16, 32, 64)}
_DTYPES = {f"{word}{bits}": f"{word[0].upper()}{bits}" for word, widths in _WIDTHS.items() for bits in widths} | {
    "bool": "BOOL",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float8_e8m0fnu": "F8_E8M0",
    "float4_e2m1fn_x2": "F4_E2M1",
}
_TYPES = {
    "Double": "F64", "Float": "F32", "Half": "F16", "BFloat16": "BF16", "Long": "I64", "Int": "I32",
    "Short": "I16", "Char": "I8", "Byte": "U8", "Bool": "BOOL", "ComplexFloat": "C64", "ComplexDouble": "C128",
}  # fmt: skip


@dataclass(frozen=True, eq=False, slots=True)
class _StorageType:
    dtype: str | None  # None: bytes of any type


@dataclass(frozen=True, eq=False, slots=True)
class _Dtype:
    name: str


class _Class:
    """A class of tensors, of which nothing is needed but that it is known."""


@dataclass(frozen=True, eq=False, slots=True)
class _Storage:
    dtype: str | None
    key: str
    count: int  # elements, or bytes without a dtype


@dataclass(frozen=True, eq=False, slots=True)
class _Tensor:
    storage: _Storage
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def _storage(described: object) -> _Storage:
    """Take a persistent id: ("storage", type, key, device, count)."""
    if not isinstance(described, tuple) or len(described) != 5:
        raise Refusal("has a persistent id that is not a storage's")
    word, kind, key, device, count = described
    fine = isinstance(word, str) and word == "storage" and isinstance(kind, _StorageType) and isinstance(device, str)
    if not fine or not isinstance(key, str) or not re.fullmatch(r"[0-9A-Za-z_]{1,40}", key) or not _is_count(count):
        raise Refusal("has a persistent id that is not a storage's")
    return _Storage(kind.dtype, key, count)


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= MAX_COUNT


def _counts(value: object) -> tuple[int, ...]:
    if not isinstance(value, tuple) or len(value) > MAX_SIDES or not all(map(_is_count, value)):
        raise Refusal("gives a tensor a shape or strides that are no list of counts")
    return value


def _tensor(storage: object, offset: object, size: object, stride: object, *, dtype: str | None = None) -> _Tensor:
    if not isinstance(storage, _Storage) or not _is_count(offset):
        raise Refusal("makes a tensor of something that is no storage")
    shape, strides = _counts(size), _counts(stride)
    if len(shape) != len(strides):
        raise Refusal(f"gives a tensor {len(shape)} sides and {len(strides)} strides")
    dtype = dtype or storage.dtype
    if dtype is None:
        raise Refusal("makes a tensor of a storage without a type")
    return _Tensor(storage, dtype, offset, shape, strides)


def _plain_metadata(metadata: Sequence[object]) -> None:
    """Refuse what changes values: torch keeps a pending negation or conjugation here."""
    for item in metadata:
        if item is not None and not (isinstance(item, dict) and not any(map(bool, item.values()))):
            raise Refusal("describes a tensor with metadata (negated or conjugated), which is not supported")


def _tensor_v2(storage: object, offset: object, size: object, stride: object, *rest: object) -> _Tensor:
    if not 2 <= len(rest) <= 3:  # requires_grad, hooks, metadata
        raise Refusal(f"describes a tensor by {4 + len(rest)} values, expected 6 or 7")
    _plain_metadata(rest[2:])
    return _tensor(storage, offset, size, stride)


def _tensor_v3(storage: object, offset: object, size: object, stride: object, *rest: object) -> _Tensor:
    if not 3 <= len(rest) <= 4 or not isinstance(rest[2], _Dtype):  # as above, with the type before the metadata
        raise Refusal("describes a tensor without its type")
    _plain_metadata(rest[3:])
    return _tensor(storage, offset, size, stride, dtype=rest[2].name)


def _parameter(data: object, _grad: object, _hooks: object, _state: object = None) -> _Tensor:
    if not isinstance(data, _Tensor):
        raise Refusal("makes a parameter of something that is no tensor")
    return data


def _of_type(function: object, kind: object, arguments: object, _state: object) -> _Tensor:
    """Take a tensor that carries attributes: the arguments of its own rebuild function come as a tuple."""
    rebuild = _REBUILDS.get(function.name) if isinstance(function, Global) else None
    if rebuild is None or not isinstance(kind, _Class) or not isinstance(arguments, tuple) or len(arguments) > 8:
        raise Refusal("makes a tensor of a class that is not supported")
    return rebuild(*arguments)


def _ordered(items: object = ()) -> dict[object, object]:
    found: dict[object, object] = {}
    if not isinstance(items, (list, tuple)):
        raise Refusal("makes an ordered dictionary of something that is no list")
    if not all(isinstance(item, (list, tuple)) and len(item) == 2 for item in items):
        raise Refusal("makes an ordered dictionary of something that is no list of pairs")
    pickles.add_items(found, [(key, value) for key, value in items])
    return found


_REBUILDS: dict[str, Callable[..., _Tensor]] = {
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor_v2,
    "torch._utils._rebuild_tensor_v3": _tensor_v3,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter,
}
_OPAQUE = frozenset({
    "argparse.Namespace", "types.SimpleNamespace", "pathlib.PosixPath", "pathlib.WindowsPath",
    "pathlib.PurePosixPath", "pathlib._local.PosixPath", "collections.Counter", "builtins.set",
    "builtins.frozenset", "builtins.complex", "numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar",
    "numpy.dtype", "_codecs.encode", "torch.device",
})  # fmt: skip
VOCABULARY = pickles.Vocabulary(
    calls={
        **_REBUILDS,
        "torch._tensor._rebuild_from_type_v2": _of_type,
        "torch.Size": lambda sides=(): _counts(tuple(sides) if isinstance(sides, list) else sides),
        "collections.OrderedDict": _ordered,
    },
    constants={
        **{f"torch.{name}Storage": _StorageType(dtype) for name, dtype in _TYPES.items()},
        "torch.UntypedStorage": _StorageType(None),
        "torch.storage.UntypedStorage": _StorageType(None),
        **{f"torch.{name}": _Dtype(dtype) for name, dtype in _DTYPES.items()},
        "torch.Tensor": _Class(),
        "torch.nn.parameter.Parameter": _Class(),
    },
    opaque=_OPAQUE,
    persistent=_storage,
)


def _walk(
    value: object, path: tuple[str, ...], left: Iterator[int], label: str
) -> Iterator[tuple[tuple[str, ...], _Tensor]]:
    """Find the tensors in nested dictionaries and lists, with the keys that lead to them."""
    if isinstance(value, _Tensor):
        yield path, value
        return
    if not isinstance(value, (dict, list, tuple)):
        return
    items: Iterable[tuple[object, object]] = value.items() if isinstance(value, dict) else enumerate(value)
    if len(path) >= _DEEPEST:
        raise FormatError(f"{label}: the pickle nests values more than {_DEEPEST} deep", hint=_ALONE)
    for key, inner in items:
        if next(left, None) is None:  # shared parts are met once for each way to them: a short pickle can have 2**30
            raise FormatError(f"{label}: the pickle repeats its parts endlessly", hint=_ALONE)
        if isinstance(inner, (_Tensor, dict, list, tuple)):
            word = key if isinstance(key, str) else str(key) if isinstance(key, int) else "?"
            yield from _walk(inner, (*path, word), left, label)


def _named(outcome: PickledValue, pickle_bytes: int, label: str) -> tuple[dict[str, _Tensor], str]:
    """Return the tensors by dotted name, and the entries that all of them lie in, which are left out of the names."""
    found: list[tuple[tuple[str, ...], _Tensor]] = []
    left = iter(range(4 * outcome.instructions + 1000))
    room, distinct = 16 * pickle_bytes + (1 << 20), set()
    for path, tensor in _walk(outcome.value, (), left, label):
        found.append((path, tensor))
        distinct.add(id(tensor))
        length = sum(map(len, path)) + len(path)
        room -= length
        if length > _LONGEST_NAME or room < 0 or len(found) > 4 * len(distinct) + 64:
            raise FormatError(f"{label}: the pickle gives its tensors names without end", hint=_ALONE)
    skip = 0
    while found and all(len(path) > skip + 1 for path, _ in found):
        word = found[0][0][skip]
        if word not in _WRAPPERS or any(path[skip] != word for path, _ in found):
            break
        skip += 1
    named: dict[str, _Tensor] = {}
    for path, tensor in found:
        name = ".".join(path[skip:])
        if not name or name in named:
            raise FormatError(f"{label}: two tensors are called {name[:200]!r}", hint=_ALONE)
        named[name] = tensor
    return named, ".".join(found[0][0][:skip]) if found else ""


def _check(
    name: str, tensor: _Tensor, members: Mapping[str, ZipMember], root: str, label: str
) -> tuple[ZipMember, int]:
    """Check a tensor against its storage; return the storage's member and the elements from first to last."""
    storage, where = tensor.storage, f"{label}: tensor {name[:200]!r}"
    item = item_bytes(tensor.dtype, tensor=name, label=label)
    size = storage.count * (1 if storage.dtype is None else item_bytes(storage.dtype, tensor=name, label=label))
    member = members.get(f"{root}/data/{storage.key}")
    if member is None:
        raise damaged(f"{where} is in the storage {storage.key!r}, which is not in the archive")
    if not member.is_stored:
        said = f"{where} is in a compressed member of the archive; expected stored ones, as torch writes"
        raise FormatError(said, hint="unpack the archive and pack it without compression, or save the model again")
    if member.size != size:
        raise damaged(f"{where} is in a storage of {size} bytes, of which the archive has {member.size}")
    elements = math.prod(tensor.shape)
    if too_large(tensor.shape):
        raise FormatError(f"{where} has more elements than an array can have")
    if not elements:
        return member, 0
    extent = zip_directory.extent(tensor.shape, tensor.strides)
    room = size // item
    if (end := tensor.offset + extent) > room:
        raise damaged(f"{where} takes elements {tensor.offset} to {end} of a storage that has {room}")
    if elements > max(extent, _VIEW_ELEMENTS):
        said = f"{where} repeats {extent} stored elements {elements} times over; expected each of them once"
        raise FormatError(said, hint="save the model again with .contiguous() tensors")
    return member, extent


def _rows(
    reader: Reader, named: Mapping[str, _Tensor], members: Mapping[str, ZipMember], root: str, number: int
) -> dict[str, Row | TensorInfo]:
    label = reader.label
    checked = {name: _check(name, tensor, members, root, label) for name, tensor in named.items()}
    starts = {member.name: member.expected_start() for member, extent in checked.values() if extent}
    if any(member.expected_start() is None for member in members.values() if member.size):
        starts = dict.fromkeys(starts)  # another writer's layout: starts that fit may do so by chance
    unsure = [members[name] for name, start in starts.items() if start is None]
    known = dict(zip((member.name for member in unsure), zip_directory.locate(reader, unsure), strict=True))
    rows: dict[str, Row | TensorInfo] = {}
    for name, (member, extent) in checked.items():
        tensor = named[name]
        if not extent:
            rows[name] = TensorInfo(name, tensor.dtype, tensor.shape, number, member.offset, member.offset)
            continue
        predicted = starts[member.name]
        base = known[member.name] if predicted is None else predicted
        item = item_bytes(tensor.dtype, tensor=name)
        start = base + tensor.offset * item
        if predicted is None and zip_directory.is_contiguous(tensor.shape, tensor.strides):
            rows[name] = TensorInfo(name, tensor.dtype, tensor.shape, number, start, start + extent * item)
            continue
        flat = TensorInfo(name, tensor.dtype, (extent,), number, start, start + extent * item)
        head = TensorInfo(f"header of {member.name}", "U8", (base - member.offset,), number, member.offset, base)
        header = None if predicted is None else head
        rows[name] = zip_directory.placed_tensor(flat, tensor.shape, tensor.strides, header, member, label)
    return rows


def is_archive(head: bytes) -> bool:
    """Whether a file begins like a zip archive."""
    return head.startswith(ZIP_MAGIC)


def _not_an_archive(reader: Reader, error: FormatError) -> FormatError:
    head = bytes(reader.read(0, min(MAGIC_BYTES, reader.size)))
    label = reader.label
    if is_archive(head):
        return error
    refuse_lfs_pointer(head, label)
    said = f"begins with {head[:8]!r}; expected a zip archive, as torch.save writes since torch 1.6"
    if head[:1] == b"\x80" or head.startswith((b"ctorch", b"ccollections")):
        said = "a legacy PyTorch file, one bare pickle (torch before 1.6), which is not read"
    return FormatError(f"{label}: {said}", hint=_CONVERT)


def _root(members: Mapping[str, ZipMember], label: str) -> str:
    root = next(iter(members), "").partition("/")[0]
    if f"{root}/data.pkl" not in members:
        shown = ", ".join(list(members)[:3])[:200] or "nothing"
        said = f"{label}: a zip archive without {root[:100]}/data.pkl (it has {shown}); no file that torch.save wrote"
        raise FormatError(said, hint="name the file of weights itself")
    other = next((name for name in members if not name.startswith(f"{root}/")), None)
    if other is not None:
        raise FormatError(f"{label}: member {other[:200]!r} lies outside the archive's folder {root[:100]!r}")
    if f"{root}/constants.pkl" in members:
        said = f"{label}: a TorchScript program, which is not read"
        raise FormatError(said, hint="torch.save the state_dict() of the model")
    return root


def _check_records(records: Mapping[str, bytes], label: str) -> None:
    order = records.get("byteorder", b"little")
    if order != b"little":
        raise FormatError(f"{label}: byte order {order[:20]!r}; expected b'little'", hint="save it on a usual machine")
    version = records.get("version", b"3").strip()
    if not version.isdigit() or not 1 <= int(version) <= NEWEST_VERSION:
        said = f"{label}: version {version[:20]!r} of the archive's layout; expected 1 to {NEWEST_VERSION}"
        raise FormatError(said, hint=_CONVERT)


def _refuse_slices(folder: Folder, label: str) -> None:
    """Refuse one of several files that hold slices of each tensor, as the original Llama weights come."""
    found = _SLICE.search(label)
    others = [name for name in folder.names or () if found and _SLICE.search(name)]
    if found and (len(others) > 1 or int(found[1])):
        raise FormatError(
            f"{label}: one of {max(len(others), int(found[1]) + 1)} files that hold a slice of every tensor each; "
            "kinprint does not join them",
            hint="use the model converted to one file, or to shards of whole tensors",
        )


def _notes(outcome: PickledValue, wrapper: str, named: Mapping[str, _Tensor], stored: int) -> tuple[Text, ...]:
    notes = []
    if wrapper:
        notes.append(Text("the tensors lie in the entry {name}, which is left out of their names", name=repr(wrapper)))
    if outcome.passed_over:
        names = ", ".join(sorted(outcome.passed_over))[:300]
        notes.append(Text("values of these types were passed over: {names}", names=names))
    used = len({tensor.storage.key for tensor in named.values()})
    if stored > used:
        notes.append(Text("{n} of {m} storages in the archive belong to no named tensor", n=stored - used, m=stored))
    return tuple(notes)


def load(session: Session, folder: Folder, source: Source, number: int, guess: int) -> Shard:
    """Read an archive's directory and pickle: three reads of a remote file, mostly."""
    _refuse_slices(folder, source.label)
    reader = Reader(session, source)
    label = reader.label
    try:
        members = zip_directory.read_directory(reader, min(guess, FIRST_READ))
    except FormatError as error:
        raise _not_an_archive(reader, error) from error
    root = _root(members, label)
    small = [name for name in ("data.pkl", "byteorder", "version") if f"{root}/{name}" in members]
    read = zip_directory.contents(reader, [members[f"{root}/{name}"] for name in small], cap=pickles.PICKLE_CAP)
    records = dict(zip(small, read, strict=True))
    _check_records({name: bytes(records[name][:64]) for name in small[1:]}, label)
    outcome = pickles.read_pickle(records["data.pkl"], VOCABULARY, label=label)
    named, wrapper = _named(outcome, len(records["data.pkl"]), label)
    if not named:
        raise FormatError(f"{label}: the archive describes no tensor", hint="name the file of weights itself")
    rows = _rows(reader, named, members, root, number)
    stored = sum(name.startswith(f"{root}/data/") for name in members)
    return Shard(source, reader.size, reader.bytes_read, rows, notes=_notes(outcome, wrapper, named, stored))
