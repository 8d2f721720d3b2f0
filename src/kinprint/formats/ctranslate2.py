"""Read CTranslate2's model.bin: a short header, then one variable after the other, each with its name, shape, type and bytes.

Codes of eight or sixteen bits stand beside their scales, one for each row or one for all; a code is the weight times the scale.
Positions of encoder-decoders may be fixed sinusoids, and the file does not say: their residual dimensions count as ordered.

Reference: model_spec.py of CTranslate2, binary versions 4 to 6.
"""

import re
import struct
from collections.abc import Mapping

from kinprint.errors import FormatError
from kinprint.formats.checks import damaged, too_large
from kinprint.formats.dtypes import Array, item_bytes
from kinprint.formats.format import Shard
from kinprint.formats.row_maker import by_row, entire, made_of
from kinprint.formats.tensors import TensorInfo
from kinprint.refs import ByteRange
from kinprint.sources.base import Folder, Source
from kinprint.sources.session import Session
from kinprint.text import Text

VERSIONS = range(4, 7)
MOST_VARIABLES = 100_000
_TYPES = ("F32", "I8", "I16", "I32", "F16", "BF16")
_CHUNK = 1024  # longer than any variable's header: a name of 600 bytes, 64 sides
_LONGEST_NAME = 600
_SPEC = re.compile(rb"[\x01-\x20]\0\0\0[\x02-\x40]\0([A-Za-z0-9]{1,58}Spec)\0", re.DOTALL)
_LAYER = re.compile(r"(?<![a-z])layer_(\d+)")
_METHOD = Text("integers with scales; decoded when read")


def is_model(head: bytes) -> bool:
    """Whether a file begins like a model of CTranslate2: a version, and the name of a specification."""
    return _SPEC.match(head) is not None


def load(session: Session, _folder: Folder, source: Source, number: int, _first_read: int) -> Shard:
    """Go from header to header, past the data, as there is no table of contents."""
    size, label = source.size, source.label

    def read(at: int) -> bytes:
        return bytes(session.read_here(source, ByteRange(at, min(at + _CHUNK, size))))

    head = read(0)
    spec = _SPEC.match(head)
    if spec is None or head[0] not in VERSIONS:
        raise FormatError(
            f"{label}: no model of CTranslate2 in a known version (4 to 6)", hint="convert the model again"
        )
    at = spec.end() + 8
    (count,) = struct.unpack_from("<I", head.ljust(at, b"\0"), at - 4)
    if count > MOST_VARIABLES:
        raise damaged(f"{label}: {count} variables, more than any model has")
    stored: dict[str, TensorInfo] = {}
    for _ in range(count):
        info = _variable(read(at), at, number, label)
        if info.end > size or info.name in stored:
            raise damaged(f"{label}: {info.name[:80]!r} is there twice, or ends behind the file")
        stored[info.name], at = info, info.end
    if size - at > _LONGEST_NAME * MOST_VARIABLES or not _ends(bytes(session.read_here(source, ByteRange(at, size)))):
        raise damaged(f"{label}: what follows its variables is no list of aliases that ends with the file")
    tensors = {name: info for name, info in _decoded(stored).items() if info.shape}
    gated = any(name.endswith(".linear_0_noact.weight") for name in tensors)
    decoder = spec[1] == b"TransformerDecoderModelSpec" and not any("position_encodings" in name for name in tensors)
    config = {"model_type": "ctranslate2_gated" if gated else "ctranslate2", "sinusoidal_pos_embds": not decoder}
    notes = (_METHOD,) if any(info.made is not None for info in tensors.values()) else ()
    return Shard(source, size, sum(len(name) + 32 for name in stored), tensors, config=config, notes=notes)


def _ends(tail: bytes) -> bool:
    """Whether a file ends as it should: with pairs of names, of variables that are stored once and have several."""
    at = 4
    for _ in range(2 * min(int.from_bytes(tail[:4], "little"), len(tail))):
        at += 2 + int.from_bytes(tail[at : at + 2], "little")
    return at == len(tail)


def _variable(raw: bytes, at: int, number: int, label: str) -> TensorInfo:
    try:
        (length,) = struct.unpack_from("<H", raw)
        name = raw[2 : 1 + length].decode("ascii")
        shape = struct.unpack_from(f"<{raw[2 + length]}I", raw, 3 + length)
        end = 3 + length + 4 * len(shape)
        kind, nbytes = struct.unpack_from("<BI", raw, end)
        dtype = _TYPES[kind]
    except (struct.error, IndexError, UnicodeDecodeError):
        raise damaged(f"{label}: no variable at byte {at}") from None
    start = at + end + 5
    info = TensorInfo(_LAYER.sub(r"layer.\1", name.replace("/", ".")), dtype, shape, number, start, start + nbytes)
    if length > _LONGEST_NAME or too_large(shape) or info.elements * item_bytes(dtype, tensor=name) != nbytes:
        raise damaged(f"{label}: {name[:80]!r} has {nbytes} bytes, which is not what its shape and type mean")
    return info


def _decoded(stored: Mapping[str, TensorInfo]) -> dict[str, TensorInfo]:
    """Put codes and their scales together."""
    found = {name: info for name, info in stored.items() if not name.endswith("_scale")}
    for name, codes in found.items():
        scale = stored.get(f"{name}_scale")
        if scale is not None and codes.dtype in ("I8", "I16") and codes.shape and scale.elements in (1, codes.shape[0]):
            parts = (codes, by_row), (scale, by_row if scale.elements > 1 else entire)
            found[name] = made_of(name, f"{codes.dtype} with scales", _METHOD, codes.shape, _divide, *parts)
    return found


def _divide(_start: int, _stop: int, codes: Array, scales: Array) -> Array:
    values: Array = codes.astype("float32") / scales.reshape(-1, *(1,) * (codes.ndim - 1))
    return values
