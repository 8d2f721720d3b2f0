"""Plans carried out: what lands as it is read is what is cut out of buffers, and streams are gone through once."""

import io
import itertools
import random
import threading
import tracemalloc
import zipfile

import numpy as np
import pytest

from kinprint.formats import execution, npz
from kinprint.formats.checkpoint import execute_together, open_checkpoint
from kinprint.formats.dtypes import ITEM_BYTES, Landing, block_of, decode
from kinprint.formats.plan import plan_reads, rows, whole
from kinprint.formats.safetensors.writer import TensorSpec
from kinprint.lab.safetensors_files import write_dense
from kinprint.sources.buffers import Recycler
from kinprint.sources.session import PIECE_BYTES
from kinprint.studies.origin.windows import windows
from support.fuzzing import MemoryFile, MemorySession

# -- landing -----------------------------------------------------------------------------------------------------------


def land(landing, data, edges):
    for start, stop in edges:
        room = landing.room(start, stop - start)
        room[:] = data[start:stop]
        landing.filled(start, room)


@pytest.mark.parametrize("dtype", sorted(ITEM_BYTES))
def test_pieces_in_any_order_make_the_same_numbers(dtype):
    item, rng = ITEM_BYTES[dtype], random.Random(dtype)
    assert block_of(dtype) == (1, item)
    data = rng.randbytes(1001 * item) if dtype != "BOOL" else bytes(n % 2 for n in range(1001))
    cuts = sorted({0, 1001, *rng.sample(range(1001), 9)})
    edges = [(low * item, high * item) for low, high in itertools.pairwise(cuts)]
    rng.shuffle(edges)
    filthy = Recycler()
    filthy.take(2 << 20)[:] = 0xFF

    landing = Landing(dtype, 1001, lambda nbytes: filthy.take(2 << 20)[:nbytes])
    land(landing, data, edges)
    expected = decode(memoryview(data), dtype)
    assert landing.values.dtype == expected.dtype
    assert landing.values.tobytes() == expected.tobytes()


def test_every_bf16_number():
    bits = np.arange(1 << 16, dtype="<u2")
    expected = (bits.astype(np.uint32) << 16).astype("<u4")
    assert decode(memoryview(bits.tobytes()), "BF16").tobytes() == expected.tobytes()
    assert decode(memoryview(b""), "BF16").shape == (0,)


def test_threads_that_meet_in_the_middle_of_a_word():
    data = np.random.default_rng(3).integers(0, 1 << 16, 400_000, dtype=np.uint16)
    landing = Landing("BF16", len(data), lambda nbytes: np.full(nbytes, 0xFF, np.uint8))
    raw = data.tobytes()
    edges = [(at, min(len(raw), at + 998)) for at in range(0, len(raw), 998)]
    threads = [threading.Thread(target=land, args=(landing, raw, edges[n::4])) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert np.array_equal(landing.values.view(np.uint32), data.astype(np.uint32) << 16)


# -- plans on files ----------------------------------------------------------------------------------------------------


CODES = {"F32": "<f4", "BF16": "<u2", "F16": "<f2", "I8": "i1"}


@pytest.fixture
def stored(tmp_path, session_for):
    """Two matrices of each type, larger than a piece that a thread reads."""
    rng, specs = np.random.default_rng(2), {}
    for dtype in ("F32", "BF16", "F16", "I8"):
        width = 3 * PIECE_BYTES // (2 * 1024 * ITEM_BYTES[dtype])
        for name in "ab":
            data = rng.integers(0, 100, (1024, width * ITEM_BYTES[dtype]), dtype=np.uint8)
            specs[f"{dtype}.{name}"] = TensorSpec(dtype, (1024, width), data.view(CODES[dtype]))
    write_dense(tmp_path / "model.safetensors", specs)
    raw = {name: spec.data.view(np.uint8) for name, spec in specs.items()}
    return open_checkpoint(str(tmp_path / "model.safetensors"), session_for()), raw


def slices(tensor):
    yield whole(tensor)
    yield rows(tensor, [(0, 1000)])
    yield rows(tensor, [(3, 700), (701, 1024)])
    yield rows(tensor, [(5, 5)])
    yield rows(tensor, [])
    yield windows(tensor, key="k", count=40, length=999)


@pytest.mark.parametrize("dtype", ["F32", "BF16", "F16", "I8"])
@pytest.mark.parametrize("max_range", [100_000, 100_001, 16 << 20])
def test_alone_or_together_the_numbers_are_the_same(stored, dtype, max_range):
    checkpoint, raw = stored
    item = ITEM_BYTES[dtype]
    wanted = [one for name in "ab" for one in slices(checkpoint.tensors[f"{dtype}.{name}"])]
    together = execute_together([(checkpoint, plan_reads(wanted, max_range_bytes=max_range))])[0]
    for each, found in zip(wanted, together, strict=True):
        (alone,) = execute_together([(checkpoint, plan_reads([each], max_gap_bytes=0, max_range_bytes=max_range))])[0]
        flat = raw[each.tensor.name].reshape(-1)
        data = b"".join(flat[start * item : stop * item].tobytes() for start, stop in each.runs)
        expected = decode(memoryview(data), dtype).reshape(each.shape)
        assert found.tobytes() == alone.tobytes() == expected.tobytes()
        assert found.shape == alone.shape == expected.shape
        assert found.dtype == alone.dtype == expected.dtype


def test_batches_do_not_write_into_each_other(stored):
    checkpoint, _ = stored
    tensor = checkpoint.tensors["BF16.a"]
    kept = [checkpoint.read([whole(tensor)])[0] for _ in range(3)]
    copies = [each.copy() for each in kept]
    for name in checkpoint.tensors:
        checkpoint.read([whole(checkpoint.tensors[name])])
    assert all(np.array_equal(one, other) for one, other in zip(kept, copies, strict=True))


# -- streams -----------------------------------------------------------------------------------------------------------


def archive(**arrays):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for name, array in arrays.items():
            one = io.BytesIO()
            np.save(one, array)
            file.writestr(zipfile.ZipInfo(f"{name}.npy"), one.getvalue(), zipfile.ZIP_DEFLATED, 1)
    return out.getvalue()


@pytest.fixture
def inflated(monkeypatch):
    """Count what is inflated."""
    counted, inflate = [], npz._inflate

    def counting(engine, packed, stop):
        for piece in inflate(engine, packed, stop):
            counted.append(len(piece))
            yield piece

    monkeypatch.setattr(npz, "_inflate", counting)
    return counted


NOISE = np.random.default_rng(6).standard_normal((900, 700)).astype(np.float32)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("held", [200_000, 64 << 20])
def test_a_compressed_array_is_inflated_once_for_a_plan(inflated, monkeypatch, order, held):
    monkeypatch.setattr(execution, "STREAM_BYTES", held)
    arrays = {"w": np.asarray(NOISE, order=order), "v": NOISE[:9], "e": NOISE[:0]}
    with MemorySession() as session:
        checkpoint = session.open_files({"model.npz": archive(**arrays)})
        inflated.clear()
        w, v, e = (checkpoint.tensors[name] for name in "wve")
        several = [(0, 1), (7, 40), (500, 502), (899, 900)]
        wanted = [rows(w, several), rows(v, [(2, 4)]), rows(w, [(30, 60), (80, 81)]), rows(w, [(9, 9)]), whole(e)]
        plan = plan_reads(wanted, max_range_bytes=100_001)
        assert plan.nbytes <= checkpoint.files[0].size
        found = execute_together([(checkpoint, plan)])[0]
    assert sum(inflated) <= NOISE.nbytes + 9 * 700 * 4 + 512
    joined = np.concatenate([NOISE[start:stop] for start, stop in several])
    expected = [joined, NOISE[2:4], np.concatenate([NOISE[30:60], NOISE[80:81]]), NOISE[:0], NOISE[:0]]
    for one, other in zip(found, expected, strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("order", ["C", "F"])
def test_neither_the_packed_bytes_nor_the_array_are_held(monkeypatch, order):
    monkeypatch.setattr(execution, "STREAM_BYTES", 1 << 20)
    monkeypatch.setattr("kinprint.formats.zip_directory.WHOLE_BYTES", 1 << 20)
    wide = np.random.default_rng(7).standard_normal((2700, 700), dtype=np.float32)
    with MemorySession() as session:
        checkpoint = session.open_files({"model.npz": archive(w=np.asarray(wide, order=order))})
        assert checkpoint.files[0].size > 6 << 20
        plan = plan_reads([rows(checkpoint.tensors["w"], [(2690, 2700)])], max_range_bytes=1 << 18)
        tracemalloc.start()
        (found,) = execute_together([(checkpoint, plan)])[0]
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert np.array_equal(found, wide[2690:2700])
    assert peak < 4 << 20


def test_a_slice_of_a_compressed_array_needs_its_bytes_once():
    with MemorySession() as session:
        checkpoint = session.open_files({"model.npz": archive(w=NOISE)})
        tensor = checkpoint.tensors["w"]
        assert rows(tensor, [(0, 1), (5, 6), (9, 10)]).nbytes == whole(tensor).nbytes < NOISE.nbytes


def test_long_headers_are_read_together():
    """A second look at many headers must not be a request after the other."""
    fields = "{'descr': '<f4', 'fortran_order': False, 'shape': (6000,), }"
    head = b"\x93NUMPY\1\0" + (1000).to_bytes(2, "little") + fields.ljust(999).encode() + b"\n"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for number in range(12):
            file.writestr(zipfile.ZipInfo(f"w{number}.npy"), head + bytes(24_000))
    source = MemoryFile(out.getvalue())
    together = []

    class Counting(npz.Reader):
        def read_many(self, spans):
            together.append(len(spans))
            return super().read_many(spans)

    with MemorySession() as session, pytest.MonkeyPatch.context() as patch:
        patch.setattr(npz, "Reader", Counting)
        shard = npz.load(session, None, source, 0, 1000)
    assert together == [12, 12]
    assert len(shard.rows) == 12
    assert len(source.reads) <= 1 + 2 * 12 + 1
    assert all(end - start < 5000 for start, end in source.reads)
