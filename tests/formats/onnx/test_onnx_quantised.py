"""Quantised weights in ONNX files: the onnx package's own operators are the oracle."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from kinprint.errors import UnsupportedDtype
from kinprint.formats.onnx import decoding as onnx_made
from kinprint.formats.plan import rows
from support.onnx_models import RNG, drawn, model_of, node, read, stored


def decoded_by_onnx(codes, scale, zero, **attributes):
    graph = helper.make_graph(
        [helper.make_node("DequantizeLinear", ["c", "s", "z"], ["y"], **attributes)],
        "g",
        [],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [stored("c", codes), stored("s", scale), stored("z", zero)],
    )
    return ReferenceEvaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])).run(None, {})[0]


CODES = RNG.integers(-128, 128, (6, 8)).astype(np.int8)
SCALINGS = {
    "one": (np.float32(0.02), np.int8(3), {}),
    "columns": (np.abs(drawn(8)), RNG.integers(-9, 9, 8).astype(np.int8), {"axis": 1}),
    "rows": (np.abs(drawn(6)), RNG.integers(-9, 9, 6).astype(np.int8), {"axis": 0}),
    "blocks of columns": (
        np.abs(drawn(6, 3)),
        RNG.integers(-9, 9, (6, 3)).astype(np.int8),
        {"axis": 1, "block_size": 3},
    ),
    "blocks of rows": (np.abs(drawn(2, 8)), RNG.integers(-9, 9, (2, 8)).astype(np.int8), {"axis": 0, "block_size": 3}),
}


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("name", SCALINGS)
def test_scales_as_onnx_applies_them(opened, name, across):
    scale, zero, attributes = SCALINGS[name]
    base = "onnx::MatMul_5_quantized" if across else "a.dense.weight_quantized"
    nodes = [node("DequantizeLinear", [base, "s", "z"], "val_1", **attributes)]
    nodes += [node("MatMul", ["x", "val_1"], "y", "/a/dense/MatMul")] if across else []
    checkpoint = opened(
        model_of([stored(base, CODES), stored("s", np.asarray(scale)), stored("z", np.asarray(zero))], nodes)
    )
    assert set(checkpoint.tensors) == {"a.dense.weight"}
    expected = decoded_by_onnx(CODES, np.asarray(scale), np.asarray(zero), **attributes)
    assert np.array_equal(read(checkpoint, "a.dense.weight"), expected.T if across else expected)
    assert checkpoint.tensors["a.dense.weight"].dtype == "int8 with scales"
    assert any("quantised (int8 with scales" in note for note in checkpoint.notes)


def test_codes_scaled_by_plain_arithmetic(opened):
    by_row, by_column = np.abs(drawn(6, 1)), np.abs(drawn(1, 8))
    nodes = [
        node("Cast", ["e.weight_q"], "e.weight_f", to=1),
        node("Mul", ["e.weight_f", "e.weight_scale"], "e.weight"),
        node("Cast", ["val_4_q"], "val_4_f", to=1),
        node("Sub", ["val_4_f", "val_4_zero"], "val_4_z"),
        node("Mul", ["val_4_scale", "val_4_z"], "val_4"),
        node("MatMul", ["x", "val_4"], "m"),
        node("Add", ["m", "d.bias"], "y"),
    ]
    tensors = {"e.weight_q": CODES, "e.weight_scale": by_row, "val_4_q": CODES, "val_4_scale": by_column}
    tensors |= {"val_4_zero": np.full((1, 8), 2, np.float32), "d.bias": drawn(8)}
    checkpoint = opened(model_of([stored(*item) for item in tensors.items()], nodes))
    assert set(checkpoint.tensors) == {"e.weight", "d.weight", "d.bias"}
    assert np.array_equal(read(checkpoint, "e.weight"), CODES.astype(np.float32) * by_row)
    assert np.array_equal(read(checkpoint, "d.weight"), ((CODES.astype(np.float32) - 2) * by_column).T)


OPERATORS = {
    "MatMulInteger": ["x", "W", "xz", "Wz"],
    "QLinearMatMul": ["x", "xs", "xz", "W", "Ws", "Wz", "ys", "yz"],
    "MatMulIntegerToFloat": ["x", "W", "xs", "Ws", "xz", "Wz"],
    "DynamicQuantizeMatMul": ["x", "W", "Ws", "Wz"],
    "QGemm": ["x", "xs", "xz", "W", "Ws", "Wz"],
}


@pytest.mark.parametrize("operator", OPERATORS)
def test_operators_that_take_codes(opened, operator):
    names = {"W": "onnx::MatMul_1_quantized", "Ws": "onnx::MatMul_1_scale", "Wz": "onnx::MatMul_1_zero_point"}
    scale, zero = np.abs(drawn(8)), RNG.integers(0, 9, 8).astype(np.int8)
    inputs = [names.get(each, each) for each in OPERATORS[operator]]
    tensors = [stored(names["W"], CODES), stored(names["Ws"], scale), stored(names["Wz"], zero)]
    checkpoint = opened(model_of(tensors, [node(operator, inputs, "y", "/l/q/MatMul_quant")]))
    assert np.array_equal(read(checkpoint, "l.q.weight"), ((CODES.astype(np.float32) - zero) * scale).T)


def test_a_named_linear_layer_that_was_turned_to_be_quantised(opened):
    """onnxruntime makes MatMulInteger of Gemm; GPT-2's layers are stored in × out before and after."""
    nodes, tensors = [], []
    for module in ("pooler.dense", "h.0.attn.c_attn"):
        nodes.append(node("MatMulInteger", ["x", f"{module}.weight_quantized"], module, f"/{module}/Gemm_MatMul_quant"))
        tensors += [stored(f"{module}.weight_quantized", CODES), stored(f"{module}.weight_scale", np.float32(0.5))]
    checkpoint = opened(model_of(tensors, nodes))
    assert np.array_equal(read(checkpoint, "pooler.dense.weight"), CODES.T.astype(np.float32) / 2)
    assert np.array_equal(read(checkpoint, "h.0.attn.c_attn.weight"), CODES.astype(np.float32) / 2)


def test_a_bias_of_wide_codes(opened):
    codes = np.array([1 << 20, -5, 7], dtype=np.int32)
    nodes = [node("DequantizeLinear", ["d.bias_quantized", "d.bias_quantized_scale", "z"], "d.bias_out")]
    tensors = [
        stored("d.bias_quantized", codes),
        stored("d.bias_quantized_scale", np.float32(2**-10)),
        stored("z", np.int32(0)),
    ]
    assert np.array_equal(
        read(opened(model_of(tensors, nodes)), "d.bias"), codes.astype(np.float32) * np.float32(2**-10)
    )


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", ["middle", "packed", "numbers"])
def test_codes_in_packed_blocks(opened, bits, zeros):
    height, width, block = 5, 40, 16
    count = 3  # the last block of a row is not full
    codes = RNG.integers(0, 1 << bits, (height, count, block)).astype(np.uint8)
    scale = np.abs(drawn(height, count))
    zero = RNG.integers(0, 1 << bits, (height, count)).astype(np.uint8)

    def packed(values):
        values = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, -values.shape[-1] % (8 // bits))])
        found = np.zeros((*values.shape[:-1], values.shape[-1] * bits // 8), dtype=np.uint8)
        for at in range(8 // bits):
            found |= values[..., at :: 8 // bits] << np.uint8(at * bits)
        return found

    tensors = [stored("val_1_Q4", packed(codes)), stored("val_1_scales", scale)]
    inputs = ["x", "val_1_Q4", "val_1_scales"]
    if zeros == "middle":
        zero = np.full_like(zero, 1 << (bits - 1))
    else:
        tensors.append(stored("val_1_zp", packed(zero).reshape(-1) if zeros == "packed" else zero.astype(np.float32)))
        inputs.append("val_1_zp")
    sizes = {"K": width, "N": height, "bits": bits, "block_size": block}
    nodes = [node("MatMulNBits", inputs, "y", "/l/q/MatMul_Q4", domain="com.microsoft", **sizes)]
    checkpoint = opened(model_of(tensors, nodes))
    expected = ((codes.astype(np.float32) - zero[:, :, None]) * scale[:, :, None]).reshape(height, -1)[:, :width]
    assert np.array_equal(read(checkpoint, "l.q.weight"), expected)
    assert checkpoint.tensors["l.q.weight"].dtype == f"{bits}-bit with scales"


@pytest.mark.parametrize(
    ("scale", "zero", "why"),
    [
        (np.ones(7, np.float32), np.zeros(7, np.int8), "scales of shape"),
        (np.ones(8, np.float32), np.zeros(3, np.int8), "zero points of shape"),
        (np.ones(8, np.int32), np.zeros(8, np.int8), "scales of I32"),
        (None, None, "no scales"),
    ],
)
def test_a_quantisation_that_is_not_known_is_named_with_its_tensor(opened, scale, zero, why):
    codes = np.zeros((800, 8), np.int8)
    tensors = [stored("a.weight_quantized", codes)]
    if scale is not None:
        tensors += [stored("a.weight_scale", scale), stored("a.weight_zero_point", zero)]
    with pytest.raises(UnsupportedDtype, match=rf"a\.weight_quantized.*not known: .*{why}"):
        opened(model_of(tensors))


def test_columns_of_a_large_matrix_are_read_by_themselves(opened, monkeypatch):
    values = drawn(12, 9000)
    nodes = [node("MatMul", ["x", "onnx::MatMul_1"], "y", "/lm_head/MatMul")]
    checkpoint = opened(model_of([stored("onnx::MatMul_1", values)], nodes))
    monkeypatch.setattr(onnx_made, "WHOLE_BYTES", 1 << 16)
    before = checkpoint.session.bytes_delivered
    got = checkpoint.read([rows(checkpoint.tensors["lm_head.weight"], [(5, 9)])])[0]
    assert np.array_equal(got, values.T[5:9])
    assert checkpoint.session.bytes_delivered - before == 12 * 4 * 4
