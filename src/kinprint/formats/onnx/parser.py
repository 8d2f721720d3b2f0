"""Read the tensors of an ONNX model under the names that they had before the export.

A file is walked over without its tensors' data (`kinprint.formats.onnx.protobuf`), which takes a request for each large one. The
nodes are read because they hold what the tensors lack: names, and scales of quantised weights (`kinprint.formats.onnx.graph`).
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping
from urllib.parse import unquote

from kinprint.errors import FormatError, NotFound, UnsupportedDtype
from kinprint.formats.checks import CONFIG_NAME, read_above, refuse_lfs_pointer
from kinprint.formats.dtypes import FLOATS, stored_bytes
from kinprint.formats.format import Shard
from kinprint.formats.onnx import graph
from kinprint.formats.onnx.decoding import flat, near_columns, packed_blocks, scaled_codes, transposed, varints
from kinprint.formats.onnx.graph import CODES, Coding, Findings, is_anonymous
from kinprint.formats.onnx.protobuf import Window
from kinprint.formats.onnx.protos import LEAST_CODES, Contents, StoredTensor, read_model
from kinprint.formats.row_maker import RowMaker, made_of
from kinprint.formats.tensors import TensorInfo
from kinprint.refs import check_member_name
from kinprint.sources.base import CONFIG_CAP, Folder, Source
from kinprint.sources.session import Session
from kinprint.text import Text

MAX_VARINTS = 16 << 20  # bytes, decoded together to many times as many
MAX_FURTHER = 4096
_PART_OF_MANY = re.compile(r"-\d{5}-of-\d{5}\.onnx$", re.IGNORECASE)
_BITS = (2, 4, 8)


def load(session: Session, folder: Folder, source: Source, number: int, first_read: int) -> Shard:
    """Read the description of a model's tensors, and find their names."""
    window = Window(session, source, first_read)
    refuse_lfs_pointer(window.take(0, min(64, window.size)), window.label)
    contents = graph.unmerged(read_model(window))
    places = _TensorFiles(folder, source, number)
    stored = {name: places.of(tensor) for name, tensor in contents.tensors.items()}
    findings = graph.GraphStudy(contents).run()
    notes: list[Text] = []
    rows = _named(_Builder(stored, findings, window.label), contents, findings, notes)
    further, config = tuple(places.further.values()), _config(session, folder, findings)
    return Shard(source, window.size, window.bytes_read, rows, further=further, config=config, notes=tuple(notes))


class _TensorFiles:
    """Finds the data of tensors, in the file itself and in files beside it, which follow it in the checkpoint's list."""

    def __init__(self, folder: Folder, source: Source, number: int) -> None:
        self.further: dict[str, Source] = {}
        self._folder, self._source, self._number = folder, source, number

    def of(self, tensor: StoredTensor) -> TensorInfo:
        """Return where a tensor is, its length checked against its shape."""
        where = f"{self._source.label}: tensor {tensor.name[:200]!r}"
        if tensor.varints:
            return self._varints(tensor, where)
        needed = stored_bytes(tensor.dtype, tensor.elements, tensor=tensor.name)
        file, start, end = self._number, tensor.start, tensor.end
        if tensor.outside is not None:
            file, start, end = self._outside(tensor.outside, needed, where)
        if end - start != needed:
            raise FormatError(
                f"{where} of shape {str(list(tensor.shape))[:200]} and dtype {tensor.dtype} needs {needed} bytes, "
                f"has {end - start}",
                hint="the file is damaged, or was saved without its data; fetch it again",
            )
        return TensorInfo(tensor.name, tensor.dtype, tensor.shape, file, start, end)

    def _varints(self, tensor: StoredTensor, where: str) -> TensorInfo:
        size = tensor.end - tensor.start
        if size > MAX_VARINTS or not size <= 10 * tensor.elements <= 10 * size:
            raise FormatError(
                f"{where} has {tensor.elements} numbers in {size} bytes of varints, expected one to ten bytes for each "
                f"and at most {MAX_VARINTS}",
                hint="save the model anew with the onnx package, which writes raw data",
            )
        raw = TensorInfo(tensor.name, "U8", (size,), self._number, tensor.start, tensor.end)
        return varints(raw, tensor.dtype, tensor.shape)

    def _outside(self, entries: Mapping[str, str], needed: int, where: str) -> tuple[int, int, int]:
        location = entries.get("location", "")
        if self._number or _PART_OF_MANY.search(self._source.label):
            raise FormatError(f"{where}: data in another file, in a model of several parts; no tool writes such models")
        source = self.further.get(location)
        if source is None:
            if len(self.further) >= MAX_FURTHER:
                raise FormatError(f"{where}: more than {MAX_FURTHER} files of data; no model has so many")
            source = self.further[location] = self._open(location, where)
        start = _offset(entries.get("offset", "0"), where)
        end = start + _offset(entries["length"], where) if "length" in entries else start + needed
        size = source.size
        if end > size:
            said = f"{where} lies at bytes {start} to {end} of {location[:200]!r}, which has {size}"
            raise FormatError(said, hint="that file is truncated, or of another model; fetch it again")
        return 1 + list(self.further).index(location), start, end  # a model is one file, and those beside follow it

    def _open(self, location: str, where: str) -> Source:
        hint = f"fetch the file into the folder of {self._source.label.rsplit('/', 1)[-1]}"
        distrust = "no sound model does this; fetch it from a source you trust"
        check_member_name(location, where=where, error=FormatError, hint=distrust)
        try:
            source = self._folder.open(_beside(self._folder, self._source) + location)
            _ = source.size  # a missing remote file is noticed here
        except NotFound as error:
            raise FormatError(f"{where}: its data are in {location[:200]!r}, which is not there", hint=hint) from error
        return source


def _offset(text: str, where: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise FormatError(f"{where}: its data begin at, or have the length, {text[:40]!r}; expected a number of bytes")
    return int(text)


def _beside(folder: Folder, source: Source) -> str:
    """Return the folder of a file inside the model's folder, ending in a slash, or nothing."""
    label, location = source.label, folder.provenance.location.rstrip("/") + "/"
    if folder.provenance.kind == "url-folder" and label.startswith(location):
        name = unquote(label[len(location) :])
    else:
        name = max((each for each in folder.names or () if f"/{label}".endswith(f"/{each}")), key=len, default="")
    return name[: name.rfind("/") + 1]


class _Builder:
    """Makes the tensors that the model had from those that are stored."""

    def __init__(self, stored: Mapping[str, TensorInfo], findings: Findings, label: str) -> None:
        self._stored, self.label = stored, label
        self._codings = findings.codings

    def make(self, base: str, name: str, *, across: bool) -> TensorInfo:
        """Return a stored tensor under its own name, decoded and transposed as need be."""
        tensor = self._stored[base]
        coding = self._codings.get(base)
        if coding is not None:
            return self._decoded(tensor, coding, name, across=across)
        if not across:
            return tensor._replace(name=name)
        return made_of(name, tensor.dtype, None, tensor.shape[::-1], transposed, (tensor, near_columns))

    def _decoded(self, codes: TensorInfo, coding: Coding, name: str, *, across: bool) -> TensorInfo:
        scale = self._stored[coding.scale]
        zero = self._stored[coding.zero] if coding.zero is not None else None
        if coding.packed is not None:
            return self._packed(codes, flat(scale), flat(zero) if zero else None, coding.packed, name)
        try:
            axis = graph.scale_axis(codes.shape, scale.shape, coding)
        except ValueError as error:
            raise self.misfit(codes, str(error)) from error
        if scale.dtype not in FLOATS:
            raise self.misfit(codes, f"scales of {scale.dtype}")
        if zero is not None and zero.shape != scale.shape and not zero.elements == scale.elements == 1:
            raise self.misfit(codes, f"scales of shape {scale.shape}, zero points of shape {zero.shape}")
        block = coding.block if axis is not None else 0
        if not block:
            scale, zero = flat(scale), flat(zero) if zero else None
        return scaled_codes(codes, scale, zero, axis, block, name, across)

    def _packed(
        self, codes: TensorInfo, scale: TensorInfo, zero: TensorInfo | None, form: tuple[int, int, int], name: str
    ) -> TensorInfo:
        bits, block, width = form
        sound = len(codes.shape) == 3 and bits in _BITS and block > 0 and width > 0 and codes.shape[0] > 0
        if not sound or codes.dtype != "U8" or scale.dtype not in FLOATS:
            what = f"codes of shape {codes.shape} and {codes.dtype}"
            raise self.misfit(codes, f"{bits} bits in blocks of {block}, {what}")
        height, count, size = codes.shape
        if (count, size) != (-(-width // block), -(-block * bits // 8)) or scale.elements != height * count:
            raise self.misfit(codes, f"{scale.elements} scales and codes of shape {codes.shape} for {width} columns")
        packed_zeros = height * -(-count * bits // 8)
        if zero is not None and zero.elements != (height * count if zero.dtype in FLOATS else packed_zeros):
            raise self.misfit(codes, f"{zero.elements} zero points for {height} rows of {count} blocks")
        return packed_blocks(codes, scale, zero, bits, block, width, name)

    def misfit(self, codes: TensorInfo | StoredTensor, why: str) -> UnsupportedDtype:
        """Return the error for codes that cannot be decoded."""
        said = f"{self.label}: tensor {codes.name[:200]!r} is quantised in a way that is not known: {why[:200]}"
        return UnsupportedDtype(said, hint="compare a copy of the model that is not quantised")


def _named(builder: _Builder, contents: Contents, findings: Findings, notes: list[Text]) -> dict[str, TensorInfo]:
    helpers = {name for coding in findings.codings.values() for name in (coding.scale, coding.zero)}
    rows: dict[str, TensorInfo] = {}
    recovered = constants = 0
    for base, tensor in contents.tensors.items():
        if base in helpers and base not in findings.codings:
            continue
        name, across = findings.names.get(base, (base, False))
        if base not in findings.codings and _is_constant(name, tensor):
            constants += 1
            continue
        large = len(tensor.shape) > 1 and tensor.elements >= LEAST_CODES
        if tensor.dtype in CODES and large and tensor.name not in findings.codings:
            raise builder.misfit(tensor, f"{tensor.dtype}, and no scales are known")
        if name in rows or (name != base and name in contents.tensors):
            name, across = base, False  # two nodes of one module: neither is known to be the parameter
        recovered += name != base and is_anonymous(base)
        rows[name] = builder.make(base, name, across=across)
    for name, base in findings.copies.items():
        if name not in rows and not _is_constant(name, contents.tensors[base]):
            rows[name] = builder.make(base, name, across=False)
    if _ENCODER.search(builder.label) and not any("encoder." in name for name in rows):
        # exported by itself: the encoder of an encoder-decoder
        rows = {f"encoder.{name}": row._replace(name=f"encoder.{name}") for name, row in rows.items()}
    wrapper = graph.wrapper_of(rows)
    if wrapper and len({name.removeprefix(wrapper) for name in rows}) == len(rows):
        rows = {name.removeprefix(wrapper): row._replace(name=name.removeprefix(wrapper)) for name, row in rows.items()}
        module = repr(wrapper[:200])
        notes.append(Text("names are given without {name}, the module that the model was exported in", name=module))
    notes += _notes(rows, contents, recovered, constants)
    return rows


def _is_constant(name: str, tensor: StoredTensor) -> bool:
    """Whether a tensor is a number or a shape that the graph computes with, and no parameter."""
    if "." in name and not is_anonymous(name):
        return False
    return tensor.elements <= 1 or tensor.dtype in ("BOOL", "I16", "I32", "I64")


def _notes(rows: Mapping[str, TensorInfo], contents: Contents, recovered: int, constants: int) -> list[Text]:
    notes = []
    if n := recovered:
        notes.append(Text("{n} weights had lost their names in the export; the graph tells which they are", n=n))
    methods = Counter(row.made.method for row in rows.values() if isinstance(row.made, RowMaker) and row.made.method)
    for how, n in methods.items():
        notes.append(Text("{n} tensors are quantised ({how}); they are decoded when read", n=n, how=how))
    if constants:
        notes.append(Text("{n} constants of the graph are no parameters and are left out", n=constants))
    notes += [Text("{n} {what} are not read", n=count, what=what) for what, count in contents.left_out.items()]
    return notes


def _config(session: Session, folder: Folder, findings: Findings) -> Mapping[str, object] | None:
    """Return the config one level above a folder "onnx", else what the graph shows; None if the model has a config."""
    if folder.names is not None and folder.provenance.kind != "url-file":
        if CONFIG_NAME in folder.names:
            return None
    elif session.read_small(folder, CONFIG_NAME, CONFIG_CAP) is not None:
        return None
    return read_above(session, folder, CONFIG_NAME, CONFIG_CAP) or findings.config or None


_GRADES = (
    (3, re.compile(r"q[24]|int4|bnb|[24]bit", re.IGNORECASE)),
    (2, re.compile(r"quant|int8|uint8|q8", re.IGNORECASE)),
    (1, re.compile(r"fp16|f16|half|bf16", re.IGNORECASE)),
)


def with_encoder(name: str, files: Collection[str]) -> tuple[str, ...]:
    """Return a decoder's file with that of the encoder of the same precision, which was exported beside it."""
    encoder = re.sub(r"(^|/)decoder_model(?:_merged)?", r"\1encoder_model", name)
    return (encoder, name) if encoder != name and encoder in files else (name,)


_PARTS = ("decoder_with_past", "decoder_model", "encoder_model", "vision", "audio", "embed_tokens")
"""Files of a model that was exported in parts, after `model` and `decoder_model_merged`, which have most of it."""
_ENCODER = re.compile(r"(?:^|/)encoder_model[^/]*\.onnx$")


def grade(name: str) -> tuple[int, str]:
    """Order a model's files by what their names say of the part of the model they hold, and of precision."""
    stem = name.rsplit("/", 1)[-1]
    part = 0 if "merged" in stem else next((10 * at for at, word in enumerate(_PARTS, 1) if stem.startswith(word)), 0)
    return part + next((rank for rank, words in _GRADES if words.search(name)), 0), name
