"""PyTorch archives without torch: the pickle assembled by hand, the zip laid out as torch's own writer does it.

The layout is checked against a file that torch wrote in tests/formats/pytorch/test_archives.py.
"""

import json
import math
import struct
import zlib

import numpy as np

from kinprint.formats.safetensors.writer import encode, to_bf16
from support.contract.little_model import Maker

KINDS = {
    "F64": "Double",
    "F32": "Float",
    "F16": "Half",
    "BF16": "BFloat16",
    "I64": "Long",
    "I32": "Int",
    "I8": "Char",
    "U8": "Byte",
}

# ---- pieces of pickles ----


def glob(module, name):
    return f"c{module}\n{name}\n".encode()


def text(value):
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def integer(value):
    if 0 <= value < 256:
        return b"K" + bytes([value])
    if -(2**31) <= value < 2**31:
        return b"J" + struct.pack("<i", value)
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def tuple_of(*items):
    return b"(" + b"".join(items) + b"t"


def numbers(values):
    return tuple_of(*map(integer, values))


NO_HOOKS = glob("collections", "OrderedDict") + b")R"


def storage(kind, key, count):
    module, name = ("torch.storage", kind) if kind == "UntypedStorage" else ("torch", f"{kind}Storage")
    return tuple_of(text("storage"), glob(module, name), text(key), text("cpu"), integer(count)) + b"Q"


def rebuilt(kind, key, count, shape, strides=None, offset=0, more=b"", version=2):
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))] if strides is None else strides
    parts = (storage(kind, key, count), integer(offset), numbers(shape), numbers(strides), b"\x89", NO_HOOKS, more)
    return glob("torch._utils", f"_rebuild_tensor_v{version}") + tuple_of(*parts) + b"R"


def mapping(entries, *, ordered=True):
    body = b"".join(text(name) + value for name, value in entries.items())
    return (glob("collections", "OrderedDict") + b")R" if ordered else b"}") + b"(" + body + b"u"


def pickled(value):
    return b"\x80\x02" + value + b"."


# ---- archives ----


def archive(members, *, root="archive", alignment=64, described=True):
    """Lay out members as torch does: content aligned by a padded extra field, sizes after the content, 64-bit end records."""
    out, directory = bytearray(), bytearray()
    for name, data in members:
        raw, offset = f"{root}/{name}".encode(), len(out)
        flags = 0x0808 if described and data else 0x0800
        before = offset + 30 + len(raw) + 4
        padding = -before % alignment
        extra = b"FB" + struct.pack("<H", padding) + b"Z" * padding
        crc = zlib.crc32(data)
        sizes = (0, 0, 0) if flags & 8 else (crc, len(data), len(data))
        out += struct.pack("<4s5H3I2H", b"PK\3\4", 0, flags, 0, 0, 0, *sizes, len(raw), len(extra)) + raw + extra + data
        if flags & 8:
            out += struct.pack("<4s3I", b"PK\7\x08", crc, len(data), len(data))
        fields = (0, 0, flags, 0, 0, 0, crc, len(data), len(data), len(raw), 0, 0, 0, 0, 0, offset)
        directory += struct.pack("<4s6H3I5H2I", b"PK\1\2", *fields) + raw
    start, count = len(out), len(members)
    out += directory
    wide = (b"PK\6\6", 44, 0x31E, 45, 0, 0, count, count, len(directory), start)
    end64 = len(out)
    out += struct.pack("<4sQ2H2I4Q", *wide) + struct.pack("<4sIQI", b"PK\6\7", 0, end64, 1)
    out += struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, count, count, len(directory), start, 0)
    return bytes(out)


def torch_file(value, storages, *, byteorder=b"little", version=b"3\n", **layout):
    """Return an archive with a pickled value and the storages it names, in torch's order."""
    members = [("data.pkl", pickled(value)), (".format_version", b"1"), ("byteorder", byteorder)]
    members += [(f"data/{key}", data) for key, data in storages.items()]
    return archive([*members, ("version", version)], **layout)


def encoded(values, dtype):
    if dtype == "BF16":
        return to_bf16(values).tobytes()
    return np.ascontiguousarray(values, dtype={"F32": "<f4", "F16": "<f2"}[dtype]).tobytes()


def state_dict(tensors, dtype, *, transposed=False):
    """Return the pickle and the storages of a state dict."""
    entries, storages = {}, {}
    for key, (name, values) in enumerate(tensors.items()):
        turned = transposed and values.ndim == 2
        storages[str(key)] = encoded(values.T if turned else values, dtype)
        strides = (1, values.shape[0]) if turned else None
        entries[name] = rebuilt(KINDS[dtype], str(key), values.size, values.shape, strides)
    return mapping(entries), storages


def state_dict_of(specs):
    """Return the pickle and the storages of tensors that have their own types."""
    entries, storages = {}, {}
    for key, (name, spec) in enumerate(specs.items()):
        storages[str(key)] = encode(name, spec)
        entries[name] = rebuilt(KINDS[spec.dtype], str(key), spec.count, spec.shape)
    return mapping(entries), storages


def _write(dtype, *, name="pytorch_model.bin", shards=1, wrapper=None, transposed=False, **layout):
    def write(folder, tensors, config):
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config))
        names = list(tensors)
        weight_map: dict[str, str] = {}
        for number in range(shards):
            file = name if shards == 1 else f"pytorch_model-{number + 1:05d}-of-{shards:05d}.bin"
            part = {key: tensors[key] for key in names[number::shards]}
            value, storages = state_dict(part, dtype, transposed=transposed)
            value = value if wrapper is None else mapping({"epoch": integer(3), wrapper: value}, ordered=False)
            (folder / file).write_bytes(torch_file(value, storages, **layout))
            weight_map |= dict.fromkeys(part, file)
        if shards > 1:
            index = {"metadata": {}, "weight_map": weight_map}
            (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))

    return write


MAKERS = {
    "PyTorch F32": Maker(_write("F32"), "pytorch_model.bin"),
    "PyTorch F16": Maker(_write("F16"), "pytorch_model.bin"),
    "PyTorch BF16 sharded": Maker(_write("BF16", shards=3), "pytorch_model-00001-of-00003.bin"),
    "PyTorch wrapped": Maker(_write("BF16", name="checkpoint.pth", wrapper="state_dict"), "checkpoint.pth"),
    "PyTorch unaligned": Maker(_write("F16", alignment=1), "pytorch_model.bin"),
    "PyTorch transposed": Maker(_write("F32", transposed=True), "pytorch_model.bin", rows_alone=False),
}
