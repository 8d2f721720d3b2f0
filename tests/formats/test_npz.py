"""NumPy archives: numpy is the oracle for what is read, and objects, fields and bombs are refused."""

import io
import struct
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest

from kinprint.errors import FormatError, UnsupportedDtype
from kinprint.formats.all_formats import NUMPY
from kinprint.formats.checkpoint import open_checkpoint
from kinprint.formats.format import FORMATS
from kinprint.formats.npz import HEADER_CAP, INFLATED_FREE, parse_array_header
from kinprint.formats.plan import rows, whole
from support.fuzzing import MemorySession, fuzz, spoil

RNG = np.random.default_rng(8)
ARRAYS = {
    "f4": RNG.standard_normal((5, 7)).astype("<f4"),
    "f2": RNG.standard_normal((4, 3)).astype("<f2"),
    "f8": RNG.standard_normal(6),
    "i8": np.arange(-3, 9).reshape(2, 3, 2),
    "i4": np.arange(5, dtype="<i4"),
    "i2": np.arange(5, dtype="<i2"),
    "i1": np.arange(-2, 3, dtype="i1"),
    "u1": np.arange(5, dtype="u1"),
    "b1": np.array([True, False, True]),
    "scalar": np.float32(2.5),
    "empty": np.zeros((0, 4), "<f4"),
    "transposed": np.asfortranarray(RNG.standard_normal((6, 4)).astype("<f4")),
    "transposed3": np.asfortranarray(RNG.standard_normal((2, 3, 4)).astype("<f4")),
    "layer.0/weight": np.ones((1, 3), "<f4"),
}


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    monkeypatch.setitem(FORMATS, "NumPy", NUMPY)


@pytest.fixture
def opened(tmp_path, session_for):
    def open_(data):
        path = tmp_path / "model.npz"
        path.write_bytes(data)
        return open_checkpoint(str(path), session_for())

    return open_


def saved(arrays, save=np.savez):
    out = io.BytesIO()
    save(out, **arrays)
    return out.getvalue()


def header(text, version=1, magic=b"\x93NUMPY"):
    raw = text.encode("latin-1") if isinstance(text, str) else text
    return magic + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(raw)) + raw


def zipped(members, compression=zipfile.ZIP_STORED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name, data in members.items():
            file.writestr(zipfile.ZipInfo(name), data, compression)
    return out.getvalue()


def everything(checkpoint):
    tensors = checkpoint.tensors
    return dict(zip(tensors, checkpoint.read([whole(tensor) for tensor in tensors.values()]), strict=True))


# ---- what numpy wrote ----


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_numpy_reads_the_same(opened, save):
    data = saved(ARRAYS, save)
    checkpoint = opened(data)
    found = everything(checkpoint)
    with np.load(io.BytesIO(data)) as theirs:
        assert set(found) == set(theirs.files)
        for name, values in found.items():
            want = theirs[name]
            np.testing.assert_array_equal(values, want.astype(np.float32) if want.dtype == "<f2" else want)
            assert checkpoint.tensors[name].shape == want.shape
    assert checkpoint.tensors["f2"].dtype == "F16"
    packed = [note for note in checkpoint.notes if "are compressed" in note]
    assert len(packed) == (save is np.savez_compressed)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_rows(opened, save):
    checkpoint = opened(saved(ARRAYS, save))
    for name in ("f4", "i8", "transposed", "transposed3", "f8"):
        values = ARRAYS[name]
        last = len(values)
        got = checkpoint.read([rows(checkpoint.tensors[name], [(0, 1), (last - 1, last)])])[0]
        np.testing.assert_array_equal(got, values[[0, -1]])


def test_a_remote_archive_is_indexed_by_few_bytes(web, session_for):
    arrays = {f"layers.{n}.w": RNG.standard_normal((100, 500)).astype("<f4") for n in range(12)}
    (web.root / "big.npz").write_bytes(saved(arrays))
    session = session_for()
    checkpoint = open_checkpoint(f"{web.url}/big.npz", session)
    assert session.bytes_delivered < 65_536 + 12 * 400
    got = checkpoint.read([rows(checkpoint.tensors["layers.7.w"], [(10, 12)])])[0]
    np.testing.assert_array_equal(got, arrays["layers.7.w"][10:12])


def test_rows_of_a_compressed_array_take_little_memory(opened):
    values = np.repeat(RNG.standard_normal((4000, 64)).astype("<f4"), 16, axis=1)  # 16 MB that compress well
    checkpoint = opened(saved({"w": values}, np.savez_compressed))
    tensor = checkpoint.tensors["w"]
    tracemalloc.start()
    got = checkpoint.read([rows(tensor, [(3000, 3010)])])[0]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_array_equal(got, values[3000:3010])
    assert peak < tensor.nbytes * 2 + (2 << 20) < values.nbytes


def test_members_that_are_no_arrays(opened):
    out = io.BytesIO(saved({"w": ARRAYS["f4"]}))
    with zipfile.ZipFile(out, "a") as file:
        file.writestr("readme.txt", "hello")
    assert "1 members of the archive are no arrays, and are not read" in opened(out.getvalue()).notes


def test_a_long_extra_field_before_the_content(opened):
    data = saved({"w": ARRAYS["f4"]})
    info = zipfile.ZipInfo("w.npy")
    info.extra = struct.pack("<2H", 0x4242, 600) + bytes(600)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr(info, zipfile.ZipFile(io.BytesIO(data)).read("w.npy"))
    np.testing.assert_array_equal(everything(opened(out.getvalue()))["w"], ARRAYS["f4"])


# ---- headers ----

GOOD = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }          \n"


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_good_header(version):
    found = parse_array_header(header(GOOD, version), name="w", label="x")
    assert (found.dtype, found.fortran, found.shape) == ("F32", False, (2, 3))
    assert found.length == len(header(GOOD, version))


@pytest.mark.parametrize(("text", "shape"), [("()", ()), ("(5,)", (5,)), ("(2, 3)", (2, 3)), ("(2,3,)", (2, 3))])
def test_shapes(text, shape):
    raw = header(f"{{'shape': {text}, 'fortran_order': True, 'descr': '|u1'}}")
    assert parse_array_header(raw, name="w", label="x").shape == shape


def test_part_of_a_header():
    raw = header(GOOD)
    assert all(parse_array_header(raw[:length], name="w", label="x") is None for length in range(len(raw)))


def with_(key, value):
    return {"descr": "'<f4'", "fortran_order": "False", "shape": "(2, 3)"} | {key: value}


def spelt(fields):
    return "{" + "".join(f"'{key}': {value}, " for key, value in fields.items()) + "}\n"


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (header(GOOD, magic=b"\x93NUMPX"), "expected a NumPy header"),
        (header(GOOD, 4), "expected a NumPy header of version 1 to 3"),
        (header(" " * (HEADER_CAP + 1)), "has a header of .* more than the"),
        (header(b"", 2)[:8] + b"\xff" * 8, "has a header of 4294967307 bytes"),
        (header(GOOD.replace("shape", "form")), "expected descr, fortran_order and shape"),
        (header(GOOD + "x"), "expected descr, fortran_order and shape"),
        (header("__import__('os').system('true')"), "expected descr, fortran_order and shape"),
        (header("  "), "expected descr, fortran_order and shape"),
        (header("{" * 4000), "expected descr, fortran_order and shape"),
        (header(spelt(with_("shape", "__import__('os')"))), "expected descr"),
        (header(spelt(with_("fortran_order", "0"))), "expected descr"),
        (header(spelt(with_("descr", "False"))), "expected descr"),
        (header(spelt(with_("shape", "(2, -3)"))), "expected descr"),
        (header(spelt(with_("shape", "(5)"))), "which is a number and no list"),
        (header(spelt(with_("shape", "(,)"))), "expected up to 64 numbers"),
        (header(spelt(with_("shape", "(2 3,)"))), "expected up to 64 numbers"),
        (header(spelt(with_("shape", f"({'1, ' * 65})"))), "expected up to 64 numbers"),
        (header(spelt(with_("shape", f"({'9' * 30},)"))), "expected up to 64 numbers"),
        (header(spelt(with_("shape", f"({2**40}, {2**40}, 0)"))), "more than an array can have"),
        (header("{'shape': (1,), 'shape': (1,), }"), "'shape' twice"),
    ],
)
def test_bad_headers(raw, words):
    with pytest.raises(FormatError, match=words) as caught:
        parse_array_header(raw, name="w", label="the-file")
    assert caught.value.message.startswith("the-file: array 'w' ")
    assert len(caught.value.message) < 400


@pytest.mark.parametrize(
    ("descr", "words"),
    [
        ("'|O'", "Python objects, which are pickled and never read"),
        ("'>f4'", "'>f4' in big-endian order"),
        ("'|V2'", r"the type '\|V2'"),
        ("'<U5'", "the type '<U5'"),
        ("'<M8[ns]'", "the type '<M8"),
        ("[('a', '<f4'), ('b', '|O')]", "named fields"),
    ],
)
def test_types_that_are_no_numbers(descr, words):
    with pytest.raises(UnsupportedDtype, match=words):
        parse_array_header(header(spelt(with_("descr", descr))), name="w", label="x")


def test_objects_are_never_unpickled(tmp_path, opened):
    marker = tmp_path / "marker"

    class Attack:
        def __reduce__(self):
            return marker.touch, ()

    data = saved({"w": np.array([Attack()], dtype=object)})
    with pytest.raises(UnsupportedDtype, match="Python objects"):
        opened(data)
    assert not marker.exists()
    with np.load(io.BytesIO(data), allow_pickle=True) as theirs:
        _ = theirs["w"]
    assert marker.exists()  # it was a real one


# ---- archives ----

ARRAY = header(GOOD) + np.arange(6, dtype="<f4").tobytes()


def bomb(size=INFLATED_FREE + (1 << 20)):
    fields = spelt(with_("shape", f"({size // 4},)"))
    return zipped({"w.npy": header(fields) + bytes(size // 4 * 4)}, zipfile.ZIP_DEFLATED)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "too short"),
        (zipped({}), "has 0 arrays"),
        (zipped({"w.txt": b"x"}), "has 0 arrays"),
        (zipped({"w.npy": b""}), "ends within its header"),
        (zipped({"w.npy": ARRAY[:40]}), "ends within its header"),
        (zipped({"w.npy": ARRAY[:-1]}), "of 6 elements of type F32 needs .* bytes, has"),
        (zipped({"w.npy": ARRAY + b"x"}), "of 6 elements of type F32 needs .* bytes, has"),
        (zipped({"w.npy": ARRAY[:-1]}, zipfile.ZIP_DEFLATED), "of 6 elements of type F32 needs"),
        (zipped({"w.npy": ARRAY}, zipfile.ZIP_BZIP2), "compressed by method 12"),
        (zipped({"w.npy": ARRAY})[:-10], "no zip end record"),
        (saved({"w": np.zeros(3, "<c8")}), "'w' is stored as 'C64'"),
    ],
)
def test_bad_archives(opened, data, words):
    with pytest.raises(FormatError, match=words):
        opened(data)


def test_a_zip_bomb(opened):
    data = bomb()
    tracemalloc.start()
    with pytest.raises(FormatError, match=r"claims to inflate from \d+ to \d+ bytes"):
        opened(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def test_an_array_that_inflates_to_less_or_to_something_else(opened):
    data = zipped({"w.npy": ARRAY}, zipfile.ZIP_DEFLATED)
    at = data.index(b"PK\1\2")
    broken = bytearray(data)
    struct.pack_into("<I", broken, at + 16, zlib.crc32(ARRAY) ^ 1)
    with pytest.raises(FormatError, match="something else than what its checksum says"):
        everything(opened(bytes(broken)))
    more = header(GOOD.replace("(2, 3)", "(2, 9)")) + ARRAY[len(header(GOOD)) :]
    short = bytearray(zipped({"w.npy": more}, zipfile.ZIP_DEFLATED))
    struct.pack_into("<I", short, short.index(b"PK\1\2") + 24, len(more) + 48)
    with pytest.raises(FormatError, match=rf"inflates to {len(more)} bytes; expected {len(more) + 48} bytes"):
        everything(opened(bytes(short)))


# ---- mutations ----


def _npy(values):
    out = io.BytesIO()
    np.save(out, values)
    return out.getvalue()


SMALL = {f"{name}.npy": _npy(ARRAYS[name]) for name in ("f4", "transposed", "i8")}
SEEDS = [zipped(SMALL), zipped(SMALL, zipfile.ZIP_DEFLATED)]


@pytest.mark.parametrize("cases", [100, pytest.param(20_000, marks=pytest.mark.nightly)])
def test_mutants_are_refused_or_read(cases):
    words = [b"'descr'", b"(", b")", b",", b"'<f4'", b"'|O'", b"True", b"9" * 20, b"\x93NUMPY", b"PK\1\2", b"PK\3\4"]
    with MemorySession() as session:
        refused = fuzz(
            lambda raw: session.read_everything({"model.npz": raw}),
            lambda rng: spoil(rng.choice(SEEDS), rng, words=words, most=3),
            seed=cases,
            cases=cases,
        )
    assert 0.5 * cases < refused < cases
