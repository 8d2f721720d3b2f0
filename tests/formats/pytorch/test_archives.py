"""PyTorch archives: what torch wrote is read as it was, and a pickle that is more than a description runs nothing.

GOLDEN was made by torch 2.13.0 with::

    a = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    state = collections.OrderedDict(
        embed=a, tied=a, part=a[1:, :], turned=a.t(), norm=torch.nn.Parameter(torch.tensor([1.5, -2.0]).bfloat16()),
        half=torch.tensor([0.1, 65504.0]).half(), eight=torch.tensor([448.0, -0.5]).to(torch.float8_e4m3fn),
        count=torch.tensor(7), none=torch.zeros(0, 3), mask=torch.tensor([True, False]),
        wide=torch.ones(1, 2).expand(3, 2),
    )
    state._metadata = {"": {"version": 1}}
    extra = {"args": argparse.Namespace(lr=1e-3), "epoch": 3, "device": torch.device("cpu")}
    buffer = io.BytesIO()
    torch.save({"state_dict": state, **extra}, buffer)
    base64.b64encode(zlib.compress(buffer.getvalue(), 9))
"""

import base64
import io
import os
import pickle  # noqa: TID251 - makes the malicious files, and proves that they are
import re
import struct
import subprocess
import sys
import zipfile
import zlib

import numpy as np
import pytest

from kinprint.errors import FormatError, UnsupportedDtype
from kinprint.formats.all_formats import PYTORCH
from kinprint.formats.checkpoint import open_checkpoint
from kinprint.formats.format import FORMATS, choose_files
from kinprint.formats.plan import rows, whole
from support.contract import little_model as model
from support.contract import make_pytorch as make
from support.counting import at_most_calls
from support.fuzzing import MemorySession, fuzz, spoil

GOLDEN = zlib.decompress(
    base64.b64decode(
        b"eNqlVstv3EQYn31kd+O2eRFaWqAUymMD7XazL2+bNpuYsm1xH4lLYBsei+P17pp47f3s2ZSCgoJQAtwQ4sAJcUJCXBAXblXEP4BAAnHg"
        b"gNQD6qlwQOKABDOejWM7SUMTJ7OON/N7zDff942nxEgUoUQCbbgG0BCSLaWpLagnajKWU+15vSz0oVnftRReBJSscARgYxmr1ZqmYAgp"
        b"iqnrqoI107C5K1ZNtdTaWfIfDsIjEkSSlR4CUFtzag2iCjaJTKrawZpuc1VLnetoeq2KVcM2repChoOeZLISdxRMS26oEGMQrqybMr7K"
        b"vuQgXgmROWlIVCLkrrQ70CvuxcBNi0iMiNEV2CNGxdAK7P2wSU3sw9AnQX+FLB9hjRgZaLKHtmxhGGwS0WasGW8mmg7N0DRBhynNfYxm"
        b"mNHcj2G/BAcqMUrTsQxC9EAQe5BaiIqRFTgkhijFgwz7EIaHJTjsqBqm1YJHtogFsSS3VKxaHBxh5N0ICE4IRgtuEB51gjAKjxHlMIaj"
        b"VDm8DI+LoWV4gqk+ieEpCZIfOA8j78PTEjzjWGjKeh2O+fjPk69c7uMOdwZSjPtElztNuUcZdwZDVoIc216t0cSQ32Z7sxwU1gVT3S3m"
        b"Zgx8o63WXG3e0c5CkWmf7GqfotpjTPt013OdhqRYVXOtbN3g4AyGcQlKjiXF7BgYJnxLvGgaDVdm0pHJgUBkQhieJTIjI4z+LIbnJCh3"
        b"N8tQ4dzaNjuYPJwnGIThArWG6GY/T9KOJIrI8BcxXJLgsoNvyfY8XPHvpGnqro0ph7IA02y1Une1V+lqX2B0MxhelOAlh+66VlOh4rPD"
        b"wzWGnWXpH16Bl8kfxM4rDP8qhtckqHYW4fVKLwFUSX7JtM5BXoS5Cu0AoCxCzSm8BdWySSmDKoZs255zRGWrYUNdITeSnbbKXSYZardl"
        b"hdhvjLwLzUXQKmEyT7fgjXOlqblLP/755T8E66RG21SaMC9GnLKpqQuaooLejQR75KDl1rGxDKYE7U5qSownbn+PvjCIATqmtuxeB9A+"
        b"t3ul6qS2ZFztrqIs9K43sVFK+e2dX9+jQaNja8pDiF+n7OZpVda1htFSDVwWsoHW+L+uQo4aKF2H2zRW4bsaGEQl18DcDayatK+WhbGd"
        b"6K5duoaxrlIPy2duHaS7Eburhz407jsVTqTLwqldGGCsSyXyMUF+yVgi43MyVsn4jQw0Sc4iMo6QkZ6kTt9crI+naavfxumw3+loWRjY"
        b"4HS1hFYpZ3x69hbN6ug2nBN+zkxZOL2b8M/WU/++TfXvXBi5tgP97G713/maqu/5Kzq2ff71IcGvnisL47tSn52Nd7mpi/bPv5tUNuG6"
        b"QJu6OO13kS8LxR27uIf8KWyWPyHH+c2j31V2ED9+9/FjtbNUoi4+mo795I/fZi760Zjrwu2I/E5tZDmq/MNnjZnt138YZdYbqBMAW7U0"
        b"0kHfkumLYlWrlYXUPRpJFzOFYiHH89l8IZ3L8zyfTqf5zEk+wxdPFvPpYpZ8kB/q8qs/pG+SxEfScRmiZl2f3lNlYIPz4HtwEO09QA74"
        b"kDejaKtzKEjiPQQO+Rt/D7rLyRPk8TbyQR/Pxx4e9wAJwr3dtc8H3x9Dgd4fxHq7qB+7GsSOBrHeDujHDscD2EwQ6+1ffuwnQWw2iPV2"
        b"HT92KBHA5tawm/cl7/VpEJsP6np7hh+LegPYQhDrrXQ/Vgpi+SDWW6v9PuwvHuwWOeotocN+YQ5tU9xTYix2bK0VRI5vCNza3Y6w+9/c"
        b"2tEQc06J+e4E9pbWE2OYPmc+m/sf7txlww=="
    )
)


A = np.arange(12, dtype="<f4").reshape(3, 4)
W = make.rebuilt("Float", "0", 12, (3, 4))


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    monkeypatch.setitem(FORMATS, "PyTorch", PYTORCH)


@pytest.fixture
def opened(tmp_path, session_for):
    """Open the bytes of an archive as a file."""

    def open_(data, name="model.pt"):
        path = tmp_path / name
        path.write_bytes(data)
        return open_checkpoint(str(path), session_for())

    return open_


def everything(checkpoint):
    tensors = checkpoint.tensors
    return dict(zip(tensors, checkpoint.read([whole(tensor) for tensor in tensors.values()]), strict=True))


def one(value=None, **layout):
    """Return an archive of one tensor, or of whatever is pickled over its storage."""
    value = make.mapping({"w": W}) if value is None else value
    return make.torch_file(value, {"0": A.tobytes()}, **layout)


def single(**changes):
    return one(
        make.mapping({"w": make.rebuilt(**{"kind": "Float", "key": "0", "count": 12, "shape": (3, 4)} | changes)})
    )


# ---- what torch wrote ----


def test_a_file_that_torch_wrote(opened):
    checkpoint = opened(GOLDEN)
    found = everything(checkpoint)
    expected = {
        "embed": A,
        "tied": A,
        "part": A[1:],
        "turned": A.T,
        "norm": np.float32([1.5, -2.0]),
        "half": np.float16([0.1, 65504.0]).astype(np.float32),
        "eight": np.float32([448.0, -0.5]),
        "count": np.int64(7),
        "none": np.zeros((0, 3), np.float32),
        "mask": np.array([True, False]),
        "wide": np.ones((3, 2), np.float32),
    }
    assert list(found) == list(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name, strict=True)
    dtypes = {name: tensor.dtype for name, tensor in checkpoint.tensors.items()}
    assert [dtypes[name] for name in ("norm", "half", "eight", "count", "mask")] == [
        "BF16",
        "F16",
        "F8_E4M3",
        "I64",
        "BOOL",
    ]
    assert checkpoint.notes[:2] == (
        "the tensors lie in the entry 'state_dict', which is left out of their names",
        "values of these types were passed over: argparse.Namespace, torch.device",
    )


def test_rows_of_what_torch_wrote(opened):
    checkpoint = opened(GOLDEN)
    names = {"embed": A, "part": A[1:], "turned": A.T}
    for name, values in names.items():
        tensor = checkpoint.tensors[name]
        got = checkpoint.read([rows(tensor, [(0, 1), (len(values) - 1, len(values))])])[0]
        np.testing.assert_array_equal(got, values[[0, -1]])


def test_the_makers_lay_files_out_as_torch_does():
    theirs = zipfile.ZipFile(io.BytesIO(GOLDEN))
    members = [(info.filename.partition("/")[2], theirs.read(info)) for info in theirs.infolist()]
    assert make.archive(members) == GOLDEN


def test_a_large_remote_file_is_indexed_by_few_bytes(tmp_path, web, session_for):
    values = np.random.default_rng(3).standard_normal((64, 1000)).astype("<f4")
    entries = {f"layers.{n}.w": make.rebuilt("Float", str(n), values.size, values.shape) for n in range(30)}
    data = make.torch_file(make.mapping(entries), {str(n): values.tobytes() for n in range(30)})
    (web.root / "big.pth").write_bytes(data)
    session = session_for()
    checkpoint = open_checkpoint(f"{web.url}/big.pth", session)
    asked = [span for path, span in web.log if path == "/big.pth"]
    assert len(asked) <= 4  # size and first bytes, the end, the beginning
    assert session.bytes_delivered < 80_000 < len(data) / 90
    before = session.bytes_delivered
    got = checkpoint.read([rows(checkpoint.tensors["layers.7.w"], [(10, 12)])])[0]
    np.testing.assert_array_equal(got, values[10:12])
    assert session.bytes_delivered - before < 2 * 4000 + 200


def test_shards_and_trainers_leavings(tmp_path, session_for):
    make.MAKERS["PyTorch BF16 sharded"].write(tmp_path, model.little_model(), dict(model.CONFIG))
    for name in ("optimizer.pt", "training_args.bin", "rng_state_0.pth"):
        (tmp_path / name).write_bytes(b"\x80\x02junk")
    checkpoint = open_checkpoint(str(tmp_path), session_for())
    assert set(checkpoint.tensors) == set(model.little_model())
    with pytest.raises(FormatError, match="no file of weights"):
        choose_files(["optimizer.pt", "training_args.bin"], None, "x")


# ---- kinds of checkpoints ----


def test_nested_dictionaries_get_dotted_names(opened):
    w = make.rebuilt("Float", "0", 12, (12,))
    inner = make.mapping({"h": b"](" + w + make.mapping({"b": w}, ordered=False) + b"e", "module.x": w})
    found = everything(opened(one(make.mapping({"model": inner, "ema": make.mapping({"y": w})}))))
    assert set(found) == {"model.h.0", "model.h.1.b", "model.module.x", "ema.y"}
    alone = everything(opened(one(make.mapping({"model": make.mapping({"module": inner}), "step": b"K\x05"}))))
    assert set(alone) == {"h.0", "h.1.b", "module.x"}


@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_newer_protocols(opened, protocol):
    body = pickle.dumps({"lr": [1e-3, -70_000, 2**40, None, True], "tags": {"a"}, "raw": b"x"}, protocol)[2:-1]
    body = body[9:] if protocol >= 4 else body  # without its frame
    value = b"}(" + make.text("extra") + body + make.text("w") + W + b"u"
    data = make.archive([("data.pkl", b"\x80" + bytes([protocol]) + value + b"."), ("data/0", A.tobytes())])
    np.testing.assert_array_equal(everything(opened(data))["w"], A)


def test_parameters_and_tensors_with_attributes(opened):
    parameter = make.glob("torch._utils", "_rebuild_parameter") + make.tuple_of(W, b"\x88", make.NO_HOOKS) + b"R"
    arguments = W.removeprefix(make.glob("torch._utils", "_rebuild_tensor_v2")).removesuffix(b"R")
    kinds = make.glob("torch._utils", "_rebuild_tensor_v2") + make.glob("torch", "Tensor")
    marked = make.glob("torch._tensor", "_rebuild_from_type_v2") + make.tuple_of(kinds, arguments, b"}") + b"R"
    for values in everything(opened(one(make.mapping({"p": parameter, "m": marked})))).values():
        np.testing.assert_array_equal(values, A)


@pytest.mark.parametrize(("dtype", "name"), [("float32", "F32"), ("bfloat16", "BF16"), ("float8_e5m2", "F8_E5M2")])
def test_storages_of_bytes(opened, dtype, name):
    count = {"F32": 12, "BF16": 24, "F8_E5M2": 48}[name]
    more = make.glob("torch", dtype)
    checkpoint = opened(single(kind="UntypedStorage", count=48, shape=(count,), more=more, version=3))
    assert checkpoint.tensors["w"].dtype == name
    assert everything(checkpoint)["w"].shape == (count,)


def test_offsets_into_a_storage(opened):
    found = everything(opened(single(shape=(2, 2), strides=(4, 1), offset=5)))["w"]
    np.testing.assert_array_equal(found, A[1:, 1:3])


# ---- files that are refused ----


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"shape": (4, 4)}, "tensor 'w' takes elements 0 to 16 of a storage that has 12"),
        ({"offset": 1}, "takes elements 1 to 13"),
        ({"strides": (5, 1)}, "takes elements 0 to 14"),
        ({"strides": (4,)}, "2 sides and 1 strides"),
        ({"strides": (-4, 1)}, "no list of counts"),
        ({"shape": (-3, 4)}, "no list of counts"),
        ({"shape": (2**59 + 1,), "strides": (0,)}, "no list of counts"),
        ({"shape": (2**40, 2**40, 0), "strides": (0, 0, 0)}, "more elements than an array can have"),
        ({"shape": (2**30, 2**20), "strides": (0, 0)}, "repeats 1 stored elements"),
        ({"shape": (1,) * 65}, "no list of counts"),
        ({"offset": -1}, "no storage"),
        ({"count": 13}, "storage of 52 bytes, of which the archive has 48"),
        ({"count": 2**70}, "persistent id that is not a storage's"),
        ({"kind": "Double"}, "storage of 96 bytes"),
        ({"key": "7"}, "'7', which is not in the archive"),
        ({"key": "../data.pkl"}, "persistent id that is not a storage's"),
        ({"more": b"}" + make.text("neg") + b"\x88s"}, "negated or conjugated"),
        ({"kind": "QInt8"}, "refuses to import torch.QInt8Storage"),
        ({"kind": "UntypedStorage", "count": 48}, "storage without a type"),
        ({"version": 9}, "refuses to import torch._utils._rebuild_tensor_v9"),
        ({"version": 3}, "without its type"),
    ],
)
def test_bad_tensors(opened, changes, words):
    with pytest.raises(FormatError, match=words) as caught:
        opened(single(**changes))
    assert "model.pt: " in caught.value.message


@pytest.mark.parametrize("dtype", ["complex64", "float4_e2m1fn_x2", "float8_e4m3fnuz"])
def test_types_that_are_not_supported(opened, dtype):
    more = make.glob("torch", dtype)
    with pytest.raises(UnsupportedDtype, match="tensor 'w' is stored as"):
        opened(single(kind="UntypedStorage", count=48, shape=(1,), more=more, version=3))


def stored_with(name, data, **changes):
    members = {"data.pkl": make.pickled(make.mapping({"w": W}))}
    return make.archive([*(members | {"data/0": A.tobytes(), name: data} | changes).items()])


@pytest.mark.parametrize(
    ("data", "words", "hint"),
    [
        (b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.", "legacy PyTorch file", "torch 1.6"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "Git LFS pointer", "git lfs pull"),
        (b"<!DOCTYPE html><html></html>", "begins with b'<!DOCTYP'", "torch.load it"),
        (GOLDEN[:-30], "no zip end record", "fetch it again"),
        (one(byteorder=b"big"), "byte order b'big'", "usual machine"),
        (one(version=b"11\n"), "version b'11' of the archive's layout", "torch 1.6"),
        (one(version=b"x"), "version b'x'", "torch 1.6"),
        (stored_with("constants.pkl", b"x"), "TorchScript", "state_dict"),
        (make.archive([("other", b"x")]), "without archive/data.pkl", "file of weights"),
        (one(make.mapping({})), "describes no tensor", "file of weights"),
        (one(make.mapping({"a": make.mapping({"b": W}), "a.b": W})), "two tensors are called 'a.b'", "state dict"),
    ],
)
def test_bad_files(opened, data, words, hint):
    with pytest.raises(FormatError, match=words) as caught:
        opened(data)
    assert hint in caught.value.hint


def test_compressed_storages(opened):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for info in zipfile.ZipFile(io.BytesIO(one())).infolist():
            data = zipfile.ZipFile(io.BytesIO(one())).read(info)
            file.writestr(info.filename, data, zipfile.ZIP_DEFLATED if "/data/" in info.filename else None)
    with pytest.raises(FormatError, match="'w' is in a compressed member"):
        opened(out.getvalue())


def test_members_of_two_archives(opened):
    out = io.BytesIO(one())
    with zipfile.ZipFile(out, "a") as file:
        file.writestr("other/data.pkl", b"x")
    with pytest.raises(FormatError, match=r"'other/data\.pkl' lies outside the archive's folder"):
        opened(out.getvalue())


def test_one_of_several_slices(tmp_path, session_for):
    for number in range(2):
        (tmp_path / f"consolidated.0{number}.pth").write_bytes(one())
    with pytest.raises(FormatError, match="one of 2 files that hold a slice of every tensor"):
        open_checkpoint(str(tmp_path), session_for())


def test_a_member_that_hides_where_its_content_is(opened):
    """torch follows a member's own header; kinprint must not read a decoy where the directory makes it look."""
    data = bytearray(one())
    at = data.index(b"archive/data/0") - 2
    struct.pack_into("<H", data, at, struct.unpack_from("<H", data, at)[0] - 8)
    checkpoint = opened(bytes(data))
    with pytest.raises(FormatError, match="'archive/data/0' puts its content at byte"):
        everything(checkpoint)


# ---- a file that attacks ----

OPEN = """
import sys
from kinprint.errors import FormatError
from kinprint.formats.checkpoint import open_checkpoint
from kinprint.formats.format import FORMATS
from kinprint.formats.all_formats import PYTORCH
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
if PYTORCH.name not in FORMATS:
    FORMATS.add(PYTORCH.name, PYTORCH)
with Session(Settings()) as session:
    try:
        open_checkpoint(sys.argv[1], session)
    except FormatError as error:
        print(error)
"""
LOAD = "import pickle, sys, zipfile; pickle.loads(zipfile.ZipFile(sys.argv[1]).read('archive/data.pkl'))"


def _run(code, path):
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, timeout=60)
    return done.stdout


class _Attack:
    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


def test_a_file_that_attacks_is_refused_and_does_nothing(tmp_path, opened):
    marker = tmp_path / "marker"
    body = pickle.dumps({"weight": _Attack(f"touch {marker}")}, 2)
    data = make.archive([("data.pkl", body), ("data/0", A.tobytes())])
    with pytest.raises(FormatError, match=r"model\.pt: .* refuses to import (posix|nt)\.system"):
        opened(data)
    path = str(tmp_path / "model.pt")
    assert re.search(r"refuses to import (posix|nt)\.system", _run(OPEN, path))
    assert not marker.exists()
    _run(LOAD, path)
    assert marker.exists()  # what Python's own reader does with it


# ---- values without end ----


def _laughs(levels, opening, entry, closing):
    """Nest containers of two entries each, both of them the one before."""
    body = make.tuple_of(W) + b"q\x00" if opening == b"(" else W + b"q\x00"
    for level in range(levels):
        get = b"h" + bytes([level])
        body += b"0" + opening + entry(0) + get + entry(1) + get + closing + b"q" + bytes([level + 1])
    return body


@pytest.mark.parametrize(
    "value",
    [
        _laughs(30, b"](", lambda _: b"", b"e"),
        _laughs(30, b"}(", lambda n: make.text(f"k{n}"), b"u"),
        _laughs(30, b"(", lambda _: b"", b"t"),
        b"]q\x00(h\x00h\x00" + W + b"e",
        W + b"\x85" * 5000,
        b"]" * 500 + W + b"a" * 500,
        b"}" + b"".join(make.text("n" * 60) + b"}" for _ in range(30)) + make.text("w") + W + b"s" + b"s" * 30,
        W + b"q\x00}(" + b"".join(make.text(f"{n}") + b"h\x00" for n in range(100)) + b"u\x86",
    ],
)
def test_values_without_end(value):
    raw, why = one(value), r"more than 32 deep|repeats its parts endlessly|names without end"
    with MemorySession() as session, pytest.raises(FormatError, match=why), at_most_calls(100_000):
        session.read_everything({"model.pt": raw})


def test_many_names_of_few_tensors_are_no_names_without_end(opened):
    value = make.mapping({"a": W + b"q\x00", **{f"b{n}": b"h\x00" for n in range(40)}})
    assert len(opened(one(value)).tensors) == 41


# ---- mutations ----


@pytest.mark.parametrize("cases", [100, pytest.param(20_000, marks=pytest.mark.nightly)])
def test_mutants_are_refused_or_read(cases):
    words = [b"PK\1\2", b"PK\3\4", b"q\x00", b"(", b"t", b"R", b"Q", b"\x85", b"K\xff", b"ctorch\nFloatStorage\n"]

    def mutant(rng):
        """Most changes go to the pickle at the beginning and to the directory at the end."""
        where = rng.randrange(3)
        if where == 0:
            return spoil(GOLDEN, rng, words=words, most=3)
        if where == 1:
            return spoil(GOLDEN, rng, words=words, most=3, stop=1500)
        return GOLDEN[:-900] + spoil(GOLDEN[-900:], rng, words=words, most=3, cut=0)

    with MemorySession() as session:
        refused = fuzz(lambda raw: session.read_everything({"model.pt": raw}), mutant, seed=cases, cases=cases)
    assert 0.5 * cases < refused < cases


@pytest.mark.parametrize("length", [0, 1, 3, 30, 64, 500, 900, 1500, 2500, 3000, 3500, 3700, 3767, 3788])
def test_truncated_files(opened, length):
    with pytest.raises(FormatError):
        opened(GOLDEN[:length])
