"""An open checkpoint: the headers of all its shards, its config, and slices of its tensors on demand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import orjson

from kinprint.errors import FormatError, KinprintError, NotFound
from kinprint.formats.dtypes import Array, decode
from kinprint.formats.plan import ReadPlan, TensorSlice, plan_reads
from kinprint.formats.safetensors import (
    FIRST_READ,
    LENGTH_BYTES,
    Row,
    Tensors,
    expected_header_bytes,
    header_length,
    parse_rows,
)
from kinprint.refs import ByteRange, ModelRef, check_member_name, parse_ref
from kinprint.sources.base import CONFIG_CAP, SMALL_FILE_CAP, Folder, Provenance, Source, too_many_brackets
from kinprint.sources.session import Session

INDEX_NAMES = ("model.safetensors.index.json", "pytorch_model.safetensors.index.json")
CONFIG_NAME = "config.json"
SINGLE_NAMES = ("model.safetensors", "pytorch_model.safetensors")


@dataclass(frozen=True, slots=True)
class WeightFile:
    """One file of weights, as recorded in the report."""

    name: str
    size: int
    identity: str
    header_bytes: int


@dataclass(frozen=True)
class Checkpoint:
    """A model whose headers have been read and whose tensors have not."""

    provenance: Provenance
    config: Mapping[str, object]
    files: tuple[WeightFile, ...]
    tensors: Tensors
    notes: tuple[str, ...]
    session: Session = field(repr=False)
    folder: Folder = field(repr=False)
    sources: tuple[Source, ...] = field(repr=False)

    @property
    def label(self) -> str:
        """The model as the user named it."""
        return self.provenance.reference

    def read(self, slices: Sequence[TensorSlice]) -> list[Array]:
        """Plan and read slices of this checkpoint's tensors; arrays come back in the order asked for."""
        return self.execute(plan_reads(slices))

    def execute(self, plan: ReadPlan) -> list[Array]:
        """Read a plan's ranges together and cut the slices out of them."""
        return execute_together([(self, plan)])[0]

    def requests(self, plan: ReadPlan) -> list[tuple[Source, ByteRange]]:
        """Return a plan's ranges with the files they are in."""
        return [(self.sources[file], span) for file, span in zip(plan.files, plan.ranges, strict=True)]

    def cut(self, plan: ReadPlan, buffers: Sequence[memoryview]) -> list[Array]:
        """Cut the plan's slices out of its ranges and decode them."""
        arrays = []
        for item, pieces in zip(plan.slices, plan.pieces, strict=True):
            if len(pieces) == 1:
                raw = buffers[pieces[0].range_index][pieces[0].offset : pieces[0].offset + pieces[0].length]
            else:
                raw = memoryview(bytearray(item.nbytes))
                for piece in pieces:
                    part = buffers[piece.range_index][piece.offset : piece.offset + piece.length]
                    raw[piece.target : piece.target + piece.length] = part
            arrays.append(decode(raw, item.tensor.dtype, tensor=item.tensor.name).reshape(item.shape))
        return arrays

    def read_json(self, name: str, *, cap: int = SMALL_FILE_CAP) -> dict[str, object] | None:
        """Return a small JSON file of the model (a tokenizer, say) within the budget, or None if it has none."""
        return _read_json(self.session, self.folder, name, cap=cap)


def execute_together(plans: Sequence[tuple[Checkpoint, ReadPlan]]) -> list[list[Array]]:
    """Read the plans of several checkpoints of one session in one go: one wait for all of them."""
    requests = [request for checkpoint, plan in plans for request in checkpoint.requests(plan)]
    buffers = plans[0][0].session.read(requests) if plans else []
    arrays, at = [], 0
    for checkpoint, plan in plans:
        arrays.append(checkpoint.cut(plan, buffers[at : at + len(plan.ranges)]))
        at += len(plan.ranges)
    return arrays


def open_checkpoint(reference: str | ModelRef, session: Session) -> Checkpoint:
    """Open a model: pin it, find its weight files, read and check every header. No tensor is read.

    For a hub repository the look-ups of all shards run while the index is read, and each shard goes on to its header
    by itself. So opening takes three waves of requests however many shards there are: the description; index, config and
    look-ups; headers.
    """
    ref = parse_ref(reference, endpoint=session.settings.endpoint) if isinstance(reference, str) else reference
    folder = session.open_folder(ref)
    # The index goes first: it is the longest of the second wave, and takes over the connection that is already warm. The
    # config is the last to be needed.
    index_job = None if ref.file else session.start(lambda: _weight_map(session, folder))
    opened: dict[str, Source] = {}
    lookups = _look_up_ahead(session, folder, opened) if ref.file is None else {}
    config_job = session.start(lambda: _read_json(session, folder, CONFIG_NAME, cap=CONFIG_CAP))
    index = index_job.result() if index_job else {}
    names = sorted(set(index.values())) if index else [ref.file or _single_file(folder)]
    sources = _open_all(folder, names, opened, from_index=bool(index))
    predicted = expected_header_bytes(index)

    def load(number: int) -> _Shard:
        if names[number] in lookups:
            lookups[names[number]].result()  # queued before this job, so already done or under way
        return _load_shard(session, sources[number], number, predicted.get(names[number], FIRST_READ))

    shards = session.map(load, range(len(names)))
    tensors, files, notes = _gather(names, shards, index)
    config = config_job.result()
    if config is None:
        notes.append("no config.json: architecture and head counts have to be guessed from names and shapes")
    return Checkpoint(
        folder.provenance, config or {}, tuple(files), tensors, tuple(notes), session, folder, tuple(sources)
    )


def _read_json(session: Session, folder: Folder, name: str, *, cap: int = SMALL_FILE_CAP) -> dict[str, object] | None:
    raw = session.read_small(folder, name, cap)
    if raw is None:
        return None
    where, again = f"{folder.provenance.reference}: {name}", f"fetch {name} again, or correct it"
    dense = too_many_brackets(raw)
    if dense:
        raise FormatError(f"{where} {dense}", hint=again)
    try:
        value = _python_json(raw) if name == CONFIG_NAME else orjson.loads(raw)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{where} is not valid JSON: {error}", hint=again) from error
    if not isinstance(value, dict):
        raise FormatError(f"{where} holds a JSON {type(value).__name__}, expected an object", hint=again)
    return value


def _python_json(raw: bytes) -> object:
    """Parse JSON as Python writes it, with NaN and Infinity, which the standard forbids and configs hold all the same."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        value: object = json.loads(raw.decode())
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair could not be written into a report
        return value


def _look_up_ahead(session: Session, folder: Folder, opened: dict[str, Source]) -> dict[str, Future[None]]:
    """Begin to resolve the shards that a listing shows while the index is still on its way."""
    listed = folder.names
    if listed is None or not any(name in listed for name in INDEX_NAMES):
        return {}
    shards = sorted(n for n in listed if n.startswith("model-") and n.endswith(".safetensors") and "/" not in n)
    for name in shards:
        opened[name] = folder.open(name)
    return {name: session.start(opened[name].prefetch) for name in shards}


def _weight_map(session: Session, folder: Folder) -> dict[str, str]:
    """Return tensor name to file name from the index, or {} if the model has none."""
    listed = folder.names
    for name in INDEX_NAMES:
        if listed is not None and name not in listed:
            continue
        index = _read_json(session, folder, name)
        if index is None:
            continue
        mapping = index.get("weight_map")
        where = f"{folder.provenance.reference}: {name}"
        if not isinstance(mapping, dict) or not mapping or not all(isinstance(v, str) for v in mapping.values()):
            raise FormatError(
                f"{where} has no usable weight_map; expected tensor names with file names", hint=f"fetch {name} again"
            )
        for file in set(mapping.values()):
            try:
                check_member_name(file, where=where)
            except KinprintError as error:
                raise FormatError(
                    error.message, hint="no sound index does this; fetch the model again, from a source you trust"
                ) from error
        return mapping
    return {}


def _single_file(folder: Folder) -> str:
    listed, label = folder.names, folder.provenance.reference
    if listed is None:
        return SINGLE_NAMES[0]
    weights = sorted(name for name in listed if name.endswith(".safetensors") and "/" not in name)
    for name in SINGLE_NAMES:
        if name in weights:
            return name
    if len(weights) == 1:
        return weights[0]
    if weights:
        raise FormatError(
            f"{label}: {len(weights)} .safetensors files and no {INDEX_NAMES[0]} to say which belong together",
            hint="name the file you mean, for example " + weights[0],
        )
    others = sorted({name.rsplit(".", 1)[-1] for name in listed if "." in name})
    raise FormatError(
        f"{label}: no .safetensors file (it has: {', '.join(others)[:200] or 'nothing'})",
        hint="this version reads safetensors only",
    )


def _open_all(folder: Folder, names: Sequence[str], opened: dict[str, Source], *, from_index: bool) -> list[Source]:
    sources = []
    for name in names:
        try:
            sources.append(opened.get(name) or folder.open(name))
        except NotFound as error:
            if not from_index:
                raise
            raise FormatError(
                f"{folder.provenance.reference}: the index names {name!r}, which is not there",
                hint="the model is incomplete; fetch the missing file",
            ) from error
    return sources


@dataclass(frozen=True, slots=True)
class _Shard:
    """One weight file whose header has been read."""

    source: Source
    size: int
    header_bytes: int
    rows: dict[str, Row]


def _load_shard(session: Session, source: Source, number: int, guess: int) -> _Shard:
    """Read and parse one header; mostly by one read."""
    size, left = source.size, session.remaining_bytes
    if left is not None:  # a tight budget is not to be spent on a guess
        guess = min(guess, max(left // 8, LENGTH_BYTES))
    head = session.read_here(source, ByteRange(0, min(guess, size)))
    end = LENGTH_BYTES + header_length(head, file_size=size, label=source.label)
    if end > len(head):
        head = memoryview(bytes(head) + bytes(session.read_here(source, ByteRange(len(head), end))))
    rows, _ = parse_rows(head[LENGTH_BYTES:end], file=number, file_size=size, label=source.label)
    return _Shard(source, size, end, {row[0]: row for row in rows})


def _gather(
    names: Sequence[str], shards: Sequence[_Shard], index: Mapping[str, str]
) -> tuple[Tensors, list[WeightFile], list[str]]:
    """Join the shards' headers, and hold them against the index."""
    rows: dict[str, Row] = {}
    files: list[WeightFile] = []
    agreed = 0
    for number, (name, shard) in enumerate(zip(names, shards, strict=True)):
        before = len(rows)
        rows |= shard.rows
        if len(rows) != before + len(shard.rows):
            raise _stored_twice(names, shards, number)
        agreed += list(map(index.get, shard.rows)).count(name)
        files.append(WeightFile(name, shard.size, shard.source.identity, shard.header_bytes))
    tensors = Tensors(rows)
    if agreed != len(index):
        _check_index(index, {name: names[tensor.file] for name, tensor in tensors.items()})
    extra = len(rows) - len(index) if index else 0
    notes = [f"{extra} stored tensors are not in the index; they are read all the same"] if extra else []
    return tensors, files, notes


def _stored_twice(names: Sequence[str], shards: Sequence[_Shard], number: int) -> FormatError:
    """Say which tensor of a shard is in an earlier one too."""
    places = {tensor: names[at] for at, shard in enumerate(shards[:number]) for tensor in shard.rows}
    twice = min(places.keys() & shards[number].rows.keys())
    return FormatError(
        f"{shards[number].source.label}: tensor {twice[:200]!r} is also stored in {places[twice]!r}",
        hint="the shards do not belong together; fetch the model again",
    )


def _check_index(index: Mapping[str, str], stored: Mapping[str, str]) -> None:
    """Refuse an index that puts a tensor anywhere but where it is."""
    for tensor_name, file in index.items():
        where = stored.get(tensor_name, "nowhere")
        if where != file:
            raise FormatError(
                f"the index puts tensor {tensor_name[:200]!r} in {file!r}, but it is stored in {where}",
                hint="index and shards do not belong together; fetch the model again",
            )
