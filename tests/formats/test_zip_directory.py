"""The zip directory by range: what two readers could understand differently is refused, and nothing large is asked for."""

import io
import struct
import zipfile

import numpy as np
import pytest

from kinprint.errors import FormatError
from kinprint.formats.tensors import TensorInfo
from kinprint.formats.zip_directory import (
    DEFLATED,
    DIRECTORY_CAP,
    Reader,
    contents,
    contiguous_strides,
    is_contiguous,
    locate,
    placed_tensor,
    read_directory,
)
from kinprint.refs import ByteRange
from support.fuzzing import MemoryFile, MemorySession, fuzz, spoil

END, LOCATOR, END64 = 22, 20, 56


def zipped(members=None, *, compression=zipfile.ZIP_STORED, comment=b""):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as file:
        for name, data in (members or {"a/one": b"1" * 300, "a/two": b"2" * 40, "a/nothing": b""}).items():
            file.writestr(zipfile.ZipInfo(name), data, compression)  # dated 1980, always
        file.comment = comment
    return out.getvalue()


def put(data, at, form, *values):
    """Overwrite fields; a negative place counts from the end."""
    out = bytearray(data)
    struct.pack_into(form, out, at % len(data), *values)
    return bytes(out)


@pytest.fixture
def opened(session_for):
    session = session_for()

    def open_(data, guess=65_536):
        reader = Reader(session, MemoryFile(data, label="the-archive"))
        return reader, read_directory(reader, guess)

    return open_


# ---- good archives ----


@pytest.mark.parametrize("guess", [1, 100, 250, 65_536])
def test_members_of_an_ordinary_archive(opened, guess):
    data = zipped()
    reader, directory = opened(data, guess)
    with zipfile.ZipFile(io.BytesIO(data)) as theirs:
        assert [(m.name, m.offset, m.size, m.crc) for m in directory.values()] == [
            (info.filename, info.header_offset, info.file_size, info.CRC) for info in theirs.infolist()
        ]
        assert max((member.limit for member in directory.values()), default=0) == (theirs.start_dir if directory else 0)
        found = contents(reader, list(directory.values()), cap=1000)
        assert [bytes(raw) for raw in found] == [theirs.read(name) for name in directory]


def test_a_large_archive_is_opened_by_its_end(opened):
    reader, directory = opened(zipped({f"a/{n}": bytes(100_000) for n in range(20)}))
    assert len(directory) == 20
    assert reader.source.reads == [(reader.size - 65_536, reader.size)]
    assert reader.bytes_read == 65_536


def test_a_tight_budget_is_not_spent_on_a_guess(session_for):
    session = session_for(budget_bytes=8000)
    reader = Reader(session, MemoryFile(zipped({f"a/{n}": bytes(3000) for n in range(20)})))
    assert len(read_directory(reader, 65_536)) == 20
    assert session.bytes_delivered == reader.bytes_read < 3000


def test_contents_are_where_they_are_expected(opened):
    reader, directory = opened(zipped({"a/one": b"1" * 300, "a/two": b"2" * 40}))
    members = list(directory.values())
    assert [member.expected_start() for member in members] == locate(reader, members)


def test_compressed_members_are_flagged(opened):
    reader, directory = opened(zipped({"a": b"x" * 5000}, compression=zipfile.ZIP_DEFLATED))
    member = directory["a"]
    assert (member.method, member.is_stored, member.size) == (DEFLATED, False, 5000)
    with pytest.raises(FormatError, match="member 'a' is compressed"):
        contents(reader, [member], cap=10_000)


def test_a_member_larger_than_allowed(opened):
    reader, directory = opened(zipped())
    with pytest.raises(FormatError, match="'a/one' has 300 bytes, more than the 299 allowed"):
        contents(reader, [directory["a/one"]], cap=299)


def wide_archive(sizes=(5, 5, 0), *, kind=1, fields=3):
    """One member whose sizes and place are in the 64-bit extra field, and 64-bit end records."""
    local = struct.pack("<4s5H3I2H", b"PK\3\4", 45, 0, 0, 0, 0, 0, 5, 5, 1, 0) + b"a" + b"hello"
    extra = struct.pack("<2H", kind, 8 * fields) + struct.pack("<3Q", *sizes)[: 8 * fields]
    full = 0xFFFFFFFF
    entry = struct.pack("<4s6H3I5H2I", b"PK\1\2", 45, 45, 0, 0, 0, 0, 0, full, full, 1, len(extra), 0, 0, 0, 0, full)
    directory = entry + b"a" + extra
    start = len(local)
    end64 = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, len(directory), start)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, start + len(directory), 1)
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, full, full, 0)
    return local + directory + end64 + locator + end


def test_sizes_of_64_bits(opened):
    reader, directory = opened(wide_archive())
    assert bytes(contents(reader, [directory["a"]], cap=9)[0]) == b"hello"
    with zipfile.ZipFile(io.BytesIO(wide_archive())) as theirs:
        assert theirs.infolist()[0].file_size == 5


def test_many_pieces_are_read_together(session_for):
    reader = Reader(session_for(), MemoryFile(bytes(range(256)) * 4000))
    spans = [ByteRange(start, start + 7) for start in (500_000, 3, 20, 900_000, 500_004, 20)]
    found = reader.read_many(spans)
    assert [bytes(raw) for raw in found] == [reader.source.data[span.start : span.end] for span in spans]
    assert sorted(reader.source.reads) == [(3, 27), (500_000, 500_011), (900_000, 900_007)]


# ---- archives that are refused ----

PLAIN = zipped()
DIRECTORY = PLAIN.index(b"PK\1\2")
SECOND_LOCAL = PLAIN.index(b"PK\3\4", 1)
SECOND_ENTRY = PLAIN.index(b"PK\1\2", DIRECTORY + 1)
TORCH_ENDS = wide_archive()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "0 bytes, too short"),
        (b"PK\3\4", "4 bytes, too short"),
        (PLAIN[:-1], "no zip end record"),
        (PLAIN + b"x", "no zip end record"),
        (zipped(comment=b"hello"), "no zip end record without a comment"),
        (b"x" + PLAIN, "does not end at the end record"),
        (put(PLAIN, -END + 4, "<H", 1), "on several disks"),
        (put(PLAIN, -END + 8, "<H", 2), "on several disks"),
        (put(PLAIN, -END + 8, "<2H", 2, 2), "entries take .* bytes of the directory, which has"),
        (put(PLAIN, -END + 8, "<2H", 4, 4), "claims 4 members in 157 bytes"),
        (put(PLAIN, -END + 8, "<2H", 60_000, 60_000), "claims 60000 members in"),
        (put(PLAIN, -END + 12, "<I", 10), "does not end at the end record"),
        (put(PLAIN, -END + 12, "<2I", 0xFFFFFFFF, 0xFFFFFFFF), "needs a 64-bit one"),
        (put(PLAIN, -END + 12, "<2I", len(PLAIN) - END, 0), "begins with b'PK"),
        (put(PLAIN, SECOND_ENTRY, "<I", 7), "begins with b'"),
        (put(PLAIN, DIRECTORY + 8, "<H", 1), "'a/one' is encrypted"),
        (put(PLAIN, DIRECTORY + 8, "<H", 0x2000), "stored in a way that is not supported"),
        (put(PLAIN, DIRECTORY + 24, "<I", 301), "of 301 bytes takes 300"),
        (put(PLAIN, DIRECTORY + 20, "<2I", 10**6, 10**6), "overlaps what begins at"),
        (put(PLAIN, DIRECTORY + 34, "<H", 3), "on disk 3"),
        (put(PLAIN, DIRECTORY + 42, "<I", SECOND_LOCAL), "overlaps what begins at"),
        (put(PLAIN, DIRECTORY + 42, "<I", 2**31), "overlaps what begins at"),
        (put(PLAIN, DIRECTORY + 42, "<I", 0xFFFFFFFF), "needs 64-bit sizes"),
        (put(PLAIN, DIRECTORY + 28, "<H", 60_000), "is cut off"),
        (put(PLAIN, DIRECTORY + 46, "<5s", b"a/two"), "two members 'a/two'"),
        (put(PLAIN, DIRECTORY + 46, "<B", 0xFF), "a name that is not text"),
        (put(PLAIN, DIRECTORY + 46, "<B", 0), "a name that is not text"),
        (wide_archive(kind=2), "needs 64-bit sizes"),
        (wide_archive(fields=2), "needs 64-bit sizes"),
        (wide_archive((2**60, 2**60, 0)), "overlaps what begins at"),
        (wide_archive((5, 5, 2**63)), "overlaps what begins at"),
        (put(TORCH_ENDS, -END - LOCATOR + 8, "<Q", 0), "the 64-bit end record is said to be at byte 0"),
        (put(TORCH_ENDS, -END - LOCATOR + 8, "<Q", 2**62), "the 64-bit end record is said to be at"),
        (put(TORCH_ENDS, -END - LOCATOR - END64, "<I", 0), "two end records do not agree"),
        (put(TORCH_ENDS, -END - LOCATOR - END64 + 24, "<Q", 2), "two end records do not agree"),
        (put(TORCH_ENDS, -END + 10, "<H", 2), "on several disks"),
        (put(TORCH_ENDS, -END + 12, "<I", 3), "two end records do not agree"),
        (put(TORCH_ENDS, -END - LOCATOR - END64 + 24, "<2Q", 2**40, 2**40), "claims 1099511627776 members"),
    ],
)
def test_bad_archives(opened, data, words):
    with pytest.raises(FormatError, match=words) as caught:
        opened(data)
    assert caught.value.message.startswith("the-archive: ")
    assert caught.value.hint


def test_a_directory_longer_than_any(opened):
    size = DIRECTORY_CAP + 46
    data = bytes(size) + struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 1, 1, size, 0, 0)
    with pytest.raises(FormatError, match=f"claims 1 members in {size} bytes"):
        opened(data)


@pytest.mark.parametrize(
    ("place", "form", "value", "words"),
    [
        (0, "<I", 7, "begins with b'"),
        (6, "<H", 1, "does not say what the archive's directory says"),
        (8, "<H", 8, "does not say what the archive's directory says"),
        (26, "<H", 4, "does not say what the archive's directory says"),
        (30, "<B", 65, "does not say what the archive's directory says"),
        (28, "<H", 1, "beyond the next member"),
        (28, "<H", 65_535, "beyond the next member"),
    ],
)
def test_a_member_whose_own_header_disagrees(opened, place, form, value, words):
    reader, directory = opened(put(PLAIN, place, form, value))
    with pytest.raises(FormatError, match=words):
        locate(reader, [directory["a/one"]])


# ---- strided tensors ----


def placed(shape, strides, flat_elements):
    flat = TensorInfo("t", "F32", (flat_elements,), 0, 0, 4 * flat_elements)
    return placed_tensor(flat, shape, strides, None, None, "x").made


@pytest.mark.parametrize(
    "make",
    [
        lambda a: a,
        lambda a: a.T,
        lambda a: a[:, 2:5],
        lambda a: a[::2],
        lambda a: a[::2, ::3].T,
        lambda a: a[:, None, :].transpose(2, 1, 0),
        lambda a: np.broadcast_to(a[0], (5, a.shape[1])),
        lambda a: a.reshape(2, 3, 7).transpose(1, 2, 0),
        lambda a: a[3:4, 5:6],
        lambda a: a[2],
    ],
)
def test_views_give_what_numpy_gives(make):
    stored = np.arange(42, dtype=np.float32).reshape(6, 7)
    view = make(stored)
    strides = tuple(stride // 4 for stride in view.strides)
    elements = 1 + sum((side - 1) * stride for side, stride in zip(view.shape, strides, strict=True))
    first = int(view.reshape(-1)[0])
    maker = placed(view.shape, strides, elements)
    for start in range(view.shape[0]):
        for stop in range(start + 1, view.shape[0] + 1):
            (part,) = maker.parts(start, stop)
            (run,) = part.runs
            assert 0 <= run[0] <= run[1] <= elements
            values = stored.reshape(-1)[first + run[0] : first + run[1]].reshape(part.shape)
            np.testing.assert_array_equal(maker.build(start, stop, [values]), view[start:stop])


def test_a_large_transposed_matrix_is_read_by_pieces_of_columns():
    maker = placed((1_000_000, 30), (1, 1_000_000), 30_000_000)
    (part,) = maker.parts(5, 8)
    assert part.nbytes == 3 * 30 * 4
    assert part.runs[:2] == ((5, 8), (1_000_005, 1_000_008))
    values = np.arange(90.0).reshape(part.shape)
    np.testing.assert_array_equal(maker.build(5, 8, [values]), values.T)


def test_strides_of_axes_that_do_not_move():
    assert contiguous_strides((2, 3, 4)) == (12, 4, 1)
    assert is_contiguous((1, 3), (99, 1))
    assert is_contiguous((), ())
    assert is_contiguous((0, 5), (1, 1))
    assert not is_contiguous((2, 3), (1, 2))


# ---- mutations ----


def _parsed(session, data):
    """Read the directory and check that what it says holds for the file."""
    reader = Reader(session, MemoryFile(data))
    directory = read_directory(reader, (98, 200, 65_536)[len(data) % 3])
    starts = locate(reader, list(directory.values()))
    for member, start in zip(directory.values(), starts, strict=True):
        assert member.offset < start <= start + member.stored <= member.limit < len(data)


@pytest.mark.parametrize("cases", [150, pytest.param(20_000, marks=pytest.mark.nightly)])
def test_mutants_are_refused_or_sound(cases):
    words = [b"PK\1\2", b"PK\3\4", b"PK\5\6", b"PK\6\6", b"PK\6\7", b"\xff" * 4, b"\xff" * 8, b"\1\0\x18\0"]
    with MemorySession() as session:
        refused = fuzz(
            lambda raw: _parsed(session, raw),
            lambda rng: spoil(rng.choice([PLAIN, TORCH_ENDS]), rng, words=words, most=3),
            seed=cases,
            cases=cases,
            room=5_000_000,
        )
    assert 0.5 * cases < refused < cases
