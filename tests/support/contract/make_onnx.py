"""ONNX as torch's exporters and onnxruntime's quantisers leave it, written by the onnx package."""

import json

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from kinprint.formats.safetensors.writer import to_bf16
from support.contract.little_model import Maker

TYPES = {"F32": TensorProto.FLOAT, "F16": TensorProto.FLOAT16, "BF16": TensorProto.BFLOAT16}


def tensor(name, values, dtype="F32"):
    """Return a tensor with raw data; integers as they are."""
    if values.dtype.kind != "f":
        return numpy_helper.from_array(np.ascontiguousarray(values), name)
    raw = to_bf16(values) if dtype == "BF16" else values.astype({"F32": "<f4", "F16": "<f2"}[dtype])
    return helper.make_tensor(name, TYPES[dtype], values.shape, np.ascontiguousarray(raw).tobytes(), raw=True)


def path_of(name):
    """Return the name of a module's node: model.layers.0.mlp.up_proj.weight → /model/layers.0/mlp/up_proj."""
    module = name.removesuffix(".weight").replace(".layers.", ".layers,")
    head, _, rest = module.partition(",")
    number, _, rest = rest.partition(".")
    return "/" + (f"{head.replace('.', '/')}.{number}/{rest.replace('.', '/')}" if rest else module.replace(".", "/"))


class Graph:
    """Nodes and tensors of a graph in the making."""

    def __init__(self, dtype="F32"):
        self.dtype = dtype
        self.nodes, self.tensors = [], []
        self.count = 800

    def add(self, name, values):
        """Add a tensor."""
        self.tensors.append(tensor(name, values, self.dtype))
        return name

    def node(self, operator, inputs, name, **attributes):
        """Add a node."""
        domain = "com.microsoft" if operator == "MatMulNBits" else ""
        self.nodes.append(
            helper.make_node(operator, inputs, [f"{name}_output_0"], name=name, domain=domain, **attributes)
        )
        return f"{name}_output_0"

    def number(self):
        """Return the next number for a made-up name."""
        self.count += 7
        return self.count

    def save(self, path, **options):
        """Write the model."""
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("x", "y")]
        graph = helper.make_graph(self.nodes, "main_graph", ends[:1], ends[1:], self.tensors)
        onnx.save(helper.make_model(graph, producer_name="pytorch"), path, **options)


def transposed(graph, name, values):
    """Store a linear layer's weight in × out, under a made-up name."""
    weight = graph.add(f"onnx::MatMul_{graph.number()}", values.T)
    graph.node("MatMul", ["x", weight], f"{path_of(name)}/MatMul")


def as_it_is(graph, name, values):
    """Store it as it is, and let the graph turn it."""
    weight = graph.node("Transpose", [graph.add(name, values)], f"{path_of(name)}/Transpose", perm=[1, 0])
    graph.node("MatMul", ["x", weight], f"{path_of(name)}/MatMul")


def by_channel(graph, name, values):
    """Store unsigned codes in × out with a scale and a zero point for each output, as dynamic quantisation does."""
    stem = f"onnx::MatMul_{graph.number()}"
    low, high = np.minimum(values.min(axis=1), 0), np.maximum(values.max(axis=1), 0)
    scale = ((high - low) / 255).astype(np.float32)
    zero = np.round(-low / scale).astype(np.uint8)
    codes = np.clip(np.round(values / scale[:, None]) + zero[:, None], 0, 255).astype(np.uint8)
    graph.add(f"{stem}_quantized", codes.T)
    graph.add(f"{stem}_scale", scale)
    graph.add(f"{stem}_zero_point", zero)
    inputs = ["x_quantized", f"{stem}_quantized", "x_zero_point", f"{stem}_zero_point"]
    graph.node("MatMulInteger", inputs, f"{path_of(name)}/MatMul_quant")


def in_blocks(graph, name, values, block=32):
    """Store 4-bit codes with a scale for each block of a row."""
    blocks = values.reshape(values.shape[0], -1, block)
    scale = (np.abs(blocks).max(axis=2) / 7).astype(np.float32)
    codes = (np.round(blocks / scale[:, :, None]) + 8).astype(np.uint8)
    stem = f"onnx::MatMul_{graph.number()}"
    inputs = [
        "x",
        graph.add(f"{stem}_Q4", codes[:, :, 0::2] | codes[:, :, 1::2] << 4),
        graph.add(f"{stem}_scales", scale),
    ]
    sizes = {"K": values.shape[1], "N": values.shape[0], "bits": 4, "block_size": block}
    graph.node("MatMulNBits", inputs, f"{path_of(name)}/MatMul_Q4", **sizes)


def embedding_codes(graph, name, values):
    """Store an embedding as signed codes with one scale."""
    scale = np.float32(np.abs(values).max() / 127)
    graph.add(f"{name}_quantized", np.round(values / scale).astype(np.int8))
    graph.add(f"{name}_scale", np.array(scale))
    graph.add(f"{name}_zero_point", np.array(0, dtype=np.int8))
    taken = graph.node("Gather", [f"{name}_quantized", "x"], f"{path_of(name)}/Gather_quant")
    graph.node("DequantizeLinear", [taken, f"{name}_scale", f"{name}_zero_point"], f"{path_of(name)}/DequantizeLinear")


def plain_embedding(graph, name, values):
    """Store an embedding by its name."""
    graph.node("Gather", [graph.add(name, values), "x"], f"{path_of(name)}/Gather")


def writer(linear, embedding=plain_embedding, dtype="F32", **options):
    """Return a function that writes a model, its linear layers and its embedding stored in the ways given."""

    def write(folder, tensors, config):
        graph = Graph(dtype)
        for name, values in tensors.items():
            if values.ndim == 1:
                graph.node("Mul", ["x", graph.add(name, values)], f"{path_of(name)}/Mul")
            else:
                (embedding if "embed" in name else linear)(graph, name, values)
        graph.add("/model/Constant_3_output_0", np.array([-1, 8, 32]))
        folder.mkdir(exist_ok=True)
        graph.save(folder / "model.onnx", **options)
        (folder / "config.json").write_text(json.dumps(config))

    return write


OUTSIDE = {
    "save_as_external_data": True,
    "all_tensors_to_one_file": True,
    "location": "model.onnx_data",
    "size_threshold": 0,
}
OUTSIDE_EACH = {"save_as_external_data": True, "all_tensors_to_one_file": False, "size_threshold": 4096}

MAKERS = {
    "ONNX F32": Maker(writer(transposed), "model.onnx", rows_alone=False),
    "ONNX BF16 as it is": Maker(writer(as_it_is, dtype="BF16"), "model.onnx"),
    "ONNX F16 outside": Maker(writer(transposed, dtype="F16", **OUTSIDE), "model.onnx", rows_alone=False),
    "ONNX F32 outside, file by file": Maker(writer(transposed, **OUTSIDE_EACH), "model.onnx", rows_alone=False),
    "ONNX int8": Maker(writer(by_channel, embedding_codes), "model.onnx", error=0.01, rows_alone=False),
    "ONNX 4-bit": Maker(writer(in_blocks), "model.onnx", error=0.08),
}
