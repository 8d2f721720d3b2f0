"""ONNX files that are damaged or meant to harm: a clear refusal, in bounded time and memory."""

import tracemalloc

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from kinprint.errors import FormatError, KinprintError
from kinprint.formats.checkpoint import open_checkpoint
from kinprint.formats.onnx import protobuf
from kinprint.formats.onnx import protos as onnx_proto
from kinprint.formats.plan import whole
from support.counting import at_most_calls
from support.fuzzing import MemorySession, fuzz, spoil

ROOM = 64 << 20
MATMUL = b"\x0a\x02xy\x12\x01z\x22\x06MatMul"


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number, content):
    """Return a field: a number as a varint, bytes with their length."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def tensor(*, name=b"a.weight", dims=(2, 3), code=1, data=None, more=b""):
    data = field(9, bytes(24)) if data is None else data
    return b"".join(field(1, side) for side in dims) + field(2, code) + field(8, name) + data + more


def model(*graph_fields):
    return field(1, 9) + field(7, b"".join(graph_fields)) + field(8, field(2, 17))


@pytest.fixture
def opening(tmp_path, session_for):
    def open_(raw):
        path = tmp_path / "model.onnx"
        path.write_bytes(raw)
        return open_checkpoint(str(path), session_for())

    return open_


def nested(depth):
    graph = b""
    for _ in range(depth):
        graph = field(1, field(2, b"y") + field(4, b"If") + field(5, field(1, b"then_branch") + field(6, graph)))
    return graph


REFUSED = {
    "nothing": (b"", "holds no graph"),
    "no graph": (field(1, 9), "holds no graph"),
    "two graphs": (field(7, b"") + field(7, b""), "two graphs"),
    "a page": (b"<!DOCTYPE html><html>", "wire type 4"),
    "a pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "Git LFS pointer"),
    "a graph that is a number": (field(7, 5), "wire type 0, expected 2"),
    "a graph that goes on": (b"\x3a\xff\x01", "has 255 bytes"),
    "a number without end": (b"\x08" + b"\xff" * 12, "does not end"),
    "field zero": (b"\x02\x00", "field 0"),
    "no name": (model(field(5, tensor(name=b""))), "no name"),
    "a name twice": (model(*[field(5, tensor())] * 2), "'a.weight' twice"),
    "a name that is no text": (model(field(5, tensor(name=b"\xff\xfe"))), "not UTF-8"),
    "a long name": (model(field(5, tensor(name=b"x" * 70_000))), "70000 bytes"),
    "no data": (model(field(5, tensor(data=b""))), "needs 24 bytes, has 0"),
    "too little data": (model(field(5, tensor(data=field(9, bytes(20))))), "needs 24 bytes, has 20"),
    "data in pieces": (model(field(5, tensor(data=field(9, bytes(12)) * 2))), "in pieces"),
    "data in the wrong field": (model(field(5, tensor(data=field(10, bytes(24))))), "in field 10"),
    "too few varints": (model(field(5, tensor(code=6, data=field(5, bytes(5))))), "6 numbers in 5 bytes"),
    "too many varints": (model(field(5, tensor(code=6, data=field(5, bytes(80))))), "6 numbers in 80 bytes"),
    "a large shape": (model(field(5, tensor(dims=(1 << 40, 1 << 40)))), "no array can have"),
    "a large shape of nothing": (model(field(5, tensor(dims=(0, 1 << 62)))), "no array can have"),
    "a negative side": (model(field(5, tensor(dims=(2, (1 << 64) - 3)))), "no array can have"),
    "many sides": (model(field(5, tensor(dims=(1,) * 65))), "more than 64 sides"),
    "many sides, packed": (model(field(5, field(1, b"\1" * 2000) + tensor())), "more than 64 sides"),
    "graphs in graphs": (model(nested(30)), "more than 8 deep"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(opening, name):
    raw, message = REFUSED[name]
    with pytest.raises(FormatError, match=message):
        opening(raw)


@pytest.mark.parametrize(
    ("where", "limit", "raw", "message"),
    [
        ((protobuf, "MAX_FIELDS"), 100, model(b"\x10\x01" * 200), "more than 100 fields"),
        ((protobuf, "READ_CAP"), 100_000, model(b"\x10\x01" * 200_000), "more than 100000 bytes"),
        ((onnx_proto, "MAX_NODES"), 10, model(field(1, MATMUL) * 11), "more than 10 nodes"),
        ((onnx_proto, "MAX_TENSORS"), 1, model(field(5, tensor()), field(5, tensor(name=b"b"))), "more than 1 tensors"),
    ],
)
def test_no_more_than_a_model_has(opening, monkeypatch, where, limit, raw, message):
    monkeypatch.setattr(*where, limit)
    with pytest.raises(FormatError, match=message):
        opening(raw)


def test_too_few_numbers_in_varints_show_when_they_are_read(opening):
    """Six bytes could be six numbers, or fewer and longer ones."""
    checkpoint = opening(model(field(5, tensor(code=6, data=field(5, b"\x80\x01" * 3)))))
    with pytest.raises(FormatError, match="holds 3 numbers, expected 6"):
        checkpoint.read([whole(checkpoint.tensors["a.weight"])])


def test_small_things_in_great_numbers_take_little_work(monkeypatch):
    """Two million fields are allowed; a hundredth of them must take a hundredth of the calls."""
    assert protobuf.MAX_FIELDS == 2_000_000
    monkeypatch.setattr(protobuf, "MAX_FIELDS", 20_000)
    raw, why = model(b"\x10\x01" * 20_000), "more than 20000 fields"
    with MemorySession() as session, pytest.raises(FormatError, match=why), at_most_calls(20 * 20_000):
        session.read_everything({"model.onnx": raw})


CONSTANT = field(5, field(1, b"value") + field(5, field(1, 1) + field(2, 7) + field(9, bytes(8)))) + field(
    4, b"Constant"
)
GREAT_NUMBERS = {
    "nodes": lambda n: field(1, MATMUL),
    "inputs": lambda n: field(1, b"".join(field(1, b"%d" % (n * 12 + i)) for i in range(12)) + MATMUL[4:]),
    "tensors": lambda n: field(5, tensor(name=b"%d" % n, dims=(1,), data=field(9, bytes(4)))),
    "constants": lambda n: field(1, field(2, b"%d" % n) + CONSTANT),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", GREAT_NUMBERS)
def test_small_things_in_great_numbers_take_little_memory(opening, monkeypatch, what):
    """An eighth of what is allowed must take an eighth of the room: to trace all of it would take minutes."""
    for name in ("MAX_NODES", "MAX_TENSORS"):
        monkeypatch.setattr(onnx_proto, name, getattr(onnx_proto, name) // 8)
    raw = model(b"".join(map(GREAT_NUMBERS[what], range(onnx_proto.MAX_NODES + 1))))
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match="more than"):
            opening(raw)
        assert tracemalloc.get_traced_memory()[1] < len(raw) + ROOM / 8
    finally:
        tracemalloc.stop()


# -- fuzz --------------------------------------------------------------------------------------------------------------


def varied():
    """Return a model with everything that is looked at."""
    rng = np.random.default_rng(4)

    def stored(name, values):
        return numpy_helper.from_array(np.asarray(values), name)

    def node(operator, inputs, output, name="", **attributes):
        return helper.make_node(operator, inputs, [output], name=name, **attributes)

    codes = rng.integers(-9, 9, (4, 6)).astype(np.int8)
    outside = onnx.TensorProto(name="o.weight", data_type=1, dims=(2, 3), data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "more.data"), ("offset", "8"), ("length", "24")):
        outside.external_data.add(key=key, value=value)
    tensors = [
        stored("model.embed_tokens.weight", rng.standard_normal((5, 4)).astype(np.float32)),
        stored("onnx::MatMul_1", rng.standard_normal((4, 6)).astype(np.float16)),
        stored("model.layers.0.k_proj.bias", rng.standard_normal(6).astype(np.float32)),
        stored("onnx::MatMul_2_quantized", codes),
        stored("onnx::MatMul_2_scale", np.ones(6, np.float32)),
        stored("onnx::MatMul_2_zero_point", np.zeros(6, np.int8)),
        stored("w.weight_q", codes),
        stored("w.weight_s", np.ones(4, np.float32)),
        stored("val_3_Q4", rng.integers(0, 255, (4, 2, 8)).astype(np.uint8)),
        stored("val_3_scales", np.ones(8, np.float32)),
        helper.make_tensor("t.weight", TensorProto.FLOAT16, (2, 3), [1.0, 2.0, -3.0, 4.0, 5.0, 6.0]),
        helper.make_tensor("t.bias", TensorProto.FLOAT, (3,), [1.0, 2.0, 3.0]),
        outside,
    ]
    branch = helper.make_graph(
        [node("MatMul", ["x", "onnx::MatMul_1"], "b", "/model/layers.0/q_proj/MatMul")], "b", [], []
    )
    nodes = [
        node("Constant", [], "s", value=stored("", np.array([0, 0, 3, 2]))),
        node("If", ["c"], "p", then_branch=branch),
        node("Reshape", ["b", "s"], "r"),
        node("MatMulInteger", ["x", "onnx::MatMul_2_quantized", "z", "onnx::MatMul_2_zero_point"], "q"),
        node("Cast", ["q"], "qc", to=1),
        node("Mul", ["qc", "f"], "qm"),
        node("Add", ["qm", "model.layers.0.k_proj.bias"], "k"),
        node(
            "MatMulNBits",
            ["x", "val_3_Q4", "val_3_scales"],
            "n",
            "/model/up/MatMul_Q4",
            K=30,
            N=4,
            bits=4,
            block_size=16,
        ),
        node("Identity", ["t.bias"], "u.bias"),
        node("DequantizeLinear", ["w.weight_q", "w.weight_s"], "d", axis=0),
    ]
    graph = helper.make_graph(nodes, "g", [], [], tensors)
    return helper.make_model(graph, producer_name="test").SerializeToString()


def test_the_sound_one_of_the_fuzz_is_read_whole(tmp_path, session_for):
    (tmp_path / "more.data").write_bytes(bytes(40))
    (tmp_path / "model.onnx").write_bytes(varied())
    checkpoint = open_checkpoint(str(tmp_path), session_for())
    names = {"q_proj.weight", "k_proj.weight", "k_proj.bias"}
    expected = {f"model.layers.0.{name}" for name in names} | {"model.embed_tokens.weight", "model.up.weight"}
    assert set(checkpoint.tensors) == expected | {"t.weight", "t.bias", "u.bias", "o.weight", "w.weight"}
    assert all(np.isfinite(each).all() for each in checkpoint.read([whole(t) for t in checkpoint.tensors.values()]))


@pytest.mark.parametrize("cases", [100, pytest.param(20_000, marks=pytest.mark.nightly)])
def test_mutants_are_refused_or_read(cases):
    sound = varied()
    words = [b"\x00", b"\xff", b"\x0a\x00", b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x80\x80\x80\x80\x40"]
    with MemorySession() as session:
        refused = fuzz(
            lambda raw: session.read_everything({"model.onnx": raw, "more.data": bytes(40)}),
            lambda rng: spoil(sound, rng, words=words),
            seed=cases,
            cases=cases,
            room=ROOM,
        )
    assert 0.3 * cases < refused < cases


def test_cut_off_anywhere(tmp_path, session_for):
    """A model cut off is refused; only right before a field of the outermost message does nothing seem to be missing."""
    sound, session = varied(), session_for()
    (tmp_path / "more.data").write_bytes(bytes(40))
    passed = []
    for length in [*range(0, len(sound), 7), len(sound) - 1]:
        (tmp_path / "model.onnx").write_bytes(sound[:length])
        try:
            open_checkpoint(str(tmp_path), session)
            passed.append(length)
        except KinprintError:
            continue
    assert all(length > len(sound) - 8 for length in passed)
