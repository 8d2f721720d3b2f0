"""The header parser against good files, every kind of bad one, and mutations of both."""

import json
import random
import tracemalloc

import numpy as np
import pytest
from safetensors import safe_open

from kinprint.errors import FormatError, UnsupportedDtype
from kinprint.formats.checkpoint import open_checkpoint
from kinprint.formats.dtypes import ITEM_BYTES
from kinprint.formats.safetensors.parser import (
    HEADER_CAP,
    _any_entries,
    _plain_entries,
    expected_header_bytes,
    header_length,
    parse_header,
)
from kinprint.formats.tensors import TensorInfo, Tensors
from support.fuzzing import MemorySession, fuzz, spoil

F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
TWO = {"a": F32, "b": {"dtype": "F32", "shape": [1, 3], "data_offsets": [8, 20]}}


def parse(header, data_bytes=None):
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    size = 8 + len(raw) + (20 if data_bytes is None else data_bytes)
    rows, metadata = parse_header(raw, file=0, file_size=size, label="the-model")
    return [TensorInfo(*row) for row in rows], metadata


def entry(**changes):
    return {"a": {**F32, **changes}}


def test_a_good_header():
    tensors, metadata = parse({"__metadata__": {"format": "pt", "n": 5}, **TWO})
    assert [(t.name, t.shape, t.nbytes, t.elements) for t in tensors] == [("a", (2,), 8, 2), ("b", (1, 3), 12, 3)]
    assert metadata == {"format": "pt"}


def test_order_of_entries_does_not_matter():
    assert [t.name for t in parse(dict(reversed(TWO.items())))[0]] == ["a", "b"]


FOUR = {
    "a": {"dtype": "F32", "shape": [1, 2], "data_offsets": [0, 8]},
    "b": {"dtype": "F32", "shape": [1, 2], "data_offsets": [8, 16]},
    "c": {"dtype": "BF16", "shape": [], "data_offsets": [16, 18]},
    "d": {"dtype": "BF16", "shape": [1], "data_offsets": [18, 20]},
}


def test_columns_and_entries_agree():
    raw = json.dumps(FOUR).encode()
    where = 0, 8 + len(raw), 28 + len(raw)
    at_once = _plain_entries(FOUR, *where)
    assert len(at_once) == 4
    assert [TensorInfo(*row) for row in at_once] == _any_entries(FOUR, *where, "x")
    tensors = Tensors({row[0]: row for row in at_once})
    assert list(tensors.values()) == parse(FOUR)[0]
    assert (len(tensors), tensors.shapes()) == (4, {"a": (1, 2), "b": (1, 2), "c": (), "d": (1,)})


@pytest.mark.parametrize("value", [True, 1.0, "1", "12", "", None, [], {}, -1, 1, 8, [1], 10**30, [0, 8], {"a": 1}])
@pytest.mark.parametrize("place", ["dtype", "shape", "data_offsets", "start", "end", "side", "missing"])
@pytest.mark.parametrize("name", ["a", "b", "c", "d"])
def test_what_the_columns_take_the_entries_take(name, place, value):
    header = json.loads(json.dumps(FOUR))
    if place in ("start", "end"):
        header[name]["data_offsets"][place == "end"] = value
    elif place == "side":
        header[name]["shape"].append(value)
    elif place == "missing":
        del header[name]["shape"]
    else:
        header[name][place] = value
    where = 0, 8 + 500, 28 + 500
    at_once = _plain_entries(header, *where)
    if at_once:
        assert [TensorInfo(*row) for row in at_once] == _any_entries(header, *where, "x")
    else:
        with pytest.raises(FormatError):
            _any_entries(header, *where, "x")


def test_empty_tensors_share_a_place():
    empty = {"dtype": "F32", "shape": [0, 4], "data_offsets": [8, 8]}
    assert [t.name for t in parse({**TWO, "e": empty, "f": empty})[0]] == ["a", "e", "f", "b"]


def test_no_tensors_at_all():
    assert parse({}, 0) == ([], {})


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ({"a": F32, "b": {**F32, "data_offsets": [4, 12]}}, "'b' overlaps the tensor before it"),
        ({"a": F32, "b": {**F32, "data_offsets": [0, 8]}}, "overlaps the tensor before it"),
        ({"a": F32, "b": {**F32, "data_offsets": [12, 20]}}, "'b' leaves a hole before it"),
        ({"a": {**F32, "data_offsets": [4, 12]}}, "'a' leaves a hole before it"),
        ({"a": F32}, "the tensors end at byte .*, the file at"),
        ({}, "the tensors end at byte"),
        (entry(data_offsets=[0, 21]), "outside the 20 bytes of data"),
        (entry(data_offsets=[8, 0]), "lies at bytes 8 to 0"),
        (entry(data_offsets=[-8, 0]), "lies at bytes -8 to 0"),
        (entry(data_offsets=[0, 2**62]), "outside the 20 bytes"),
        (entry(data_offsets=[0, 10**30]), "expected dtype, shape and data_offsets"),
        (entry(data_offsets=[0.0, 8.0]), "expected dtype, shape and data_offsets"),
        (entry(data_offsets=[False, 8]), "expected dtype, shape and data_offsets"),
        (entry(data_offsets=[0]), "expected dtype, shape and data_offsets"),
        (entry(data_offsets=[0, 4, 8]), "expected dtype, shape and data_offsets"),
        (entry(data_offsets="08"), "expected dtype, shape and data_offsets"),
        (entry(data_offsets=None), "expected dtype, shape and data_offsets"),
        (entry(shape=[3]), "needs 12 bytes, has 8"),
        (entry(shape=[]), "needs 4 bytes, has 8"),
        (entry(shape=[-1, -2]), "expected dtype, shape and data_offsets"),
        (entry(shape=[2.0]), "expected dtype, shape and data_offsets"),
        (entry(shape=[True, 2]), "expected dtype, shape and data_offsets"),
        (entry(shape="2"), "expected dtype, shape and data_offsets"),
        (entry(shape={"0": 2}), "expected dtype, shape and data_offsets"),
        (entry(shape=[10**30]), "expected dtype, shape and data_offsets"),
        (entry(shape=[2**40, 2**40]), "more than an array can have"),
        (entry(shape=[2**62, 2**62, 0], data_offsets=[0, 0]), "more than an array can have"),
        (entry(shape=[2**63 - 1] * 5000), "more than an array can have"),
        (entry(shape=[1] * 65), "more than an array can have"),
        (entry(dtype=5), "expected dtype, shape and data_offsets"),
        ({"a": {"dtype": "F32"}}, "'a' is described by"),
        ({"a": 5}, "'a' is described by 5"),
        ({"a": None}, "expected dtype"),
        ({"a" * 10_000: 5}, "is described by 5"),
        ([], "is a JSON list, expected an object"),
        (b"5", "is a JSON int"),
        (b"null", "is a JSON NoneType"),
        (b"", "not valid UTF-8 JSON"),
        (b"{", "not valid UTF-8 JSON"),
        (b'{"\xff": 5}', "not valid UTF-8 JSON"),
        (b'{"\\ud800": 5}', "not valid UTF-8 JSON"),
        (b'{"a": NaN}', "not valid UTF-8 JSON"),
        (b'{"a": Infinity}', "not valid UTF-8 JSON"),
        (b'{"a":5} trailing', "not valid UTF-8 JSON"),
        (b"[" * 100_000, r"has 100000 of '\[' in 100000 bytes, expected at most one in 20"),
        (b'{"a":' * 300 + b"}" * 300, "has 300 of '{' in|not valid UTF-8 JSON"),
        (b'{"a":{},' * 1000 + b"}" * 1000, r"has 2000 of '\{' in 9000 bytes, expected at most one in 30"),
        (b"[" * 100, "not valid UTF-8 JSON"),
        (b'{"a":' + b"[" * 1000 + b"]" * 1000 + b"}", "expected at most one in 20"),
        (b'{"a":' + b"[" * 1000 + b" " * 20_000 + b"]" * 1000 + b"}", "is described by|not valid JSON"),
        (b'{"a":' + b"[" * 200 + b"]" * 200 + b"}", "is described by"),
        (b'{"a\\n":' + b"[" * 1000 + b" " * 20_000 + b"]" * 1000 + b"}", "is described by|not valid JSON"),
    ],
)
def test_bad_headers(header, words):
    with pytest.raises(FormatError, match=words) as caught:
        parse(header)
    assert "the-model" in caught.value.message
    assert len(caught.value.message) < 1000  # hostile text is quoted, not repeated


def test_truncation_has_a_next_step():
    with pytest.raises(FormatError) as caught:
        parse(TWO, data_bytes=15)
    assert "fetch it again" in caught.value.hint


ONE = json.dumps(F32)


@pytest.mark.parametrize(
    "text",
    [
        f'{{"a":{ONE},"a":{ONE}}}',
        f'{{"a":{ONE},"\\u0061":{ONE}}}',
        f'{{"\\u0061":{ONE},"a":{ONE}}}',
        f'{{"a":5,"a":{ONE}}}',
        f'{{"a":{{}},"a":{ONE}}}',
        f'{{"__metadata__":{{}},"a":{ONE},"__metadata__":{{}}}}',
        f'{{"__metadata__":{{"x":"1","x":"2"}},"a":{ONE}}}',
        f'{{"__metadata__":{{"data_offsets":"1"}},"a":{ONE},"a":{ONE}}}',
        '{"a":{"dtype":"F16","dtype":"F32","shape":[2],"data_offsets":[0,8]}}',
        '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4],"data_offsets":[0,8]}}',
        '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4],"data\\u005foffsets":[0,8]}}',
    ],
)
def test_duplicate_names(text):
    with pytest.raises(FormatError, match=r"the header names '.*' twice") as caught:
        parse(text.encode(), data_bytes=8)
    assert "fetch it again" in caught.value.hint


def test_escapes_alone_are_no_crime():
    tensors, metadata = parse(f'{{"__metadata__":{{"k":"\\"q\\""}},"a\\u00fc":{ONE}}}'.encode(), data_bytes=8)
    assert (tensors[0].name, metadata) == ("aü", {"k": '"q"'})


def test_unknown_dtype_names_the_tensor():
    with pytest.raises(UnsupportedDtype, match="the-model: tensor 'a' is stored as 'F4'"):
        parse(entry(dtype="F4"))


@pytest.mark.parametrize(
    ("first", "size", "words", "hint"),
    [
        (b"", 0, "0 bytes, too short", "incomplete"),
        (b"1234567", 7, "7 bytes, too short", "incomplete"),
        ((HEADER_CAP + 1).to_bytes(8, "little"), 2**40, "more than the cap", "fetch it again"),
        (b"\xff" * 8, 2**40, "claims 18446744073709551615 bytes", "fetch it again"),
        ((100).to_bytes(8, "little"), 107, "the file has only 107", "truncated"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00", 130, "Git LFS pointer", "git lfs pull"),
        (b"<!DOCTYPE html><html>", 5000, "not a safetensors file", "not a page"),
    ],
)
def test_bad_length_field(first, size, words, hint):
    with pytest.raises(FormatError, match=words) as caught:
        header_length(first, file_size=size, label="the-model")
    assert hint in caught.value.hint


def test_length_field_at_its_limits():
    assert header_length((100).to_bytes(8, "little"), file_size=108, label="x") == 100
    assert header_length(HEADER_CAP.to_bytes(8, "little"), file_size=HEADER_CAP + 8, label="x") == HEADER_CAP


@pytest.mark.parametrize("size", [0, 3, 8, 40, 500])
def test_truncated_file(model_folder, session_for, size):
    path = model_folder / "model-00001-of-00002.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(FormatError, match=r"too short|has only|outside the"):
        open_checkpoint(str(path), session_for())


def test_a_lie_about_the_header_allocates_nothing():
    first = HEADER_CAP.to_bytes(8, "little")
    tracemalloc.start()
    with pytest.raises(FormatError):
        header_length(first, file_size=1000, label="x")
    with pytest.raises(FormatError):
        parse(entry(shape=[2**31, 2**27]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


def test_the_densest_sound_header_is_accepted():
    header = {}
    for number in range(20_000):
        header[f"{number:x}"] = {"dtype": "U8", "shape": [], "data_offsets": [number, number + 1]}
    raw = json.dumps(header, separators=(",", ":")).encode()
    assert len(parse(raw, data_bytes=20_000)[0]) == 20_000


def test_a_header_of_empty_lists_is_not_made_into_lists():
    raw = b'{"a":[' + b"[]," * 1_000_000 + b"[]]}"
    tracemalloc.start()
    with pytest.raises(FormatError, match="expected at most one in 20"):
        parse(raw)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


def test_prediction_covers_ordinary_headers():
    names = [f"model.layers.{i}.mlp.experts.{i}.down_proj.weight" for i in range(300)]
    header = {"__metadata__": {"format": "pt"}}
    for i, name in enumerate(names):
        start = 5_000_000_000 + i
        header[name] = {"dtype": "BF16", "shape": [1408000, 4096000], "data_offsets": [start, start + 9_999]}
    real = 8 + len(json.dumps(header, separators=(",", ":")))
    assert real <= expected_header_bytes(dict.fromkeys(names, "one"))["one"] <= 1.25 * real


# ---- mutations ----

_TOKENS = [b'"', b"{", b"}", b"[", b"]", b":", b",", b"-", b"0", b"9" * 30, b"1e5", b"null", b"true", b"\\", b"\xff"]
_TOKENS += [b"F4", b"BF16", b"\\u0061", b"__metadata__", b" ", b"\x00", b"18446744073709551616"]


def _check_invariants(tensors, file_size, base):
    at = base
    for tensor in tensors:
        assert tensor.start == at
        assert tensor.nbytes == tensor.elements * ITEM_BYTES[tensor.dtype]
        assert all(type(side) is int and side >= 0 for side in tensor.shape)
        at = tensor.end
    assert at == file_size
    assert len({tensor.name for tensor in tensors}) == len(tensors)


SOUND = json.dumps({"__metadata__": {"format": "pt"}, **TWO}).encode()


def _mutant(rng):
    return spoil(SOUND, rng, words=_TOKENS)


def _parse(raw):
    _check_invariants(parse(raw)[0], 8 + len(raw) + 20, 8 + len(raw))


@pytest.mark.parametrize("cases", [150, pytest.param(20_000, marks=pytest.mark.nightly)])
def test_mutants_are_refused_or_sound(cases):
    assert 0.5 * cases < fuzz(_parse, _mutant, seed=cases, cases=cases, room=5_000_000) < cases


@pytest.mark.parametrize("cases", [100, pytest.param(20_000, marks=pytest.mark.nightly)])
def test_mutated_files_are_refused_or_read(cases):
    """The whole file, length of the header included, or an index beside a sound file."""
    one = len(SOUND).to_bytes(8, "little") + SOUND + bytes(20)
    index = json.dumps({"weight_map": dict.fromkeys(TWO, "model.safetensors")}).encode()

    def attempt(raw):
        if raw[:1] == b"{":
            return session.read_everything({"model.safetensors": one, "model.safetensors.index.json": raw})
        return session.read_everything({"model.safetensors": raw})

    with MemorySession() as session:
        assert attempt(one) > 0
        assert attempt(index) > 0
        refused = fuzz(
            attempt, lambda rng: spoil(rng.choice([one, one, index]), rng, words=_TOKENS), seed=cases, cases=cases
        )
    assert 0.5 * cases < refused < cases


def test_what_we_accept_the_official_library_accepts(tmp_path):
    rng = random.Random(3)
    accepted = 0
    for _ in range(4000):
        mutant = _mutant(rng)
        try:
            tensors, _ = parse(mutant)
        except FormatError:
            continue
        path = tmp_path / "m.safetensors"
        path.write_bytes(len(mutant).to_bytes(8, "little") + mutant + bytes(20))
        with safe_open(path, "np") as theirs:
            assert set(theirs.keys()) == {tensor.name for tensor in tensors}
        accepted += 1
    assert accepted > 10


def test_numbers_come_through(tmp_path, session_for):
    values = np.arange(6, dtype="<f4").reshape(2, 3)
    header = json.dumps({"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}).encode()
    path = tmp_path / "w.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + values.tobytes())
    checkpoint = open_checkpoint(str(path), session_for())
    from kinprint.formats.plan import rows

    np.testing.assert_array_equal(checkpoint.read([rows(checkpoint.tensors["w"], [(1, 2)])])[0], values[1:])
