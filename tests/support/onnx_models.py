"""ONNX models for tests, written by the onnx package."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from kinprint.formats.checkpoint import Checkpoint
from kinprint.formats.dtypes import Array
from kinprint.formats.plan import rows, whole

RNG = np.random.default_rng(31)


def model_of(tensors: Iterable[TensorProto], nodes: Iterable[NodeProto] = (), **options: Any) -> ModelProto:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("x", "y")]
    graph = helper.make_graph(list(nodes), "main_graph", ends[:1], ends[1:], list(tensors))
    return helper.make_model(graph, **options)


def drawn(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def stored(name: str, values: Array) -> TensorProto:
    return numpy_helper.from_array(np.ascontiguousarray(values), name)


def node(operator: str, inputs: list[str], output: str, name: str = "", **attributes: Any) -> NodeProto:
    return helper.make_node(operator, inputs, [output], name=name, **attributes)


def read(checkpoint: Checkpoint, name: str) -> Array:
    tensor = checkpoint.tensors[name]
    values = checkpoint.read([whole(tensor)])[0]
    assert values.shape == tensor.shape
    for start, stop in ((0, 1), (1, 3), (0, 0)):
        if tensor.shape and stop <= tensor.shape[0]:
            assert np.array_equal(
                checkpoint.read([rows(tensor, [(start, stop)])])[0], values[start:stop], equal_nan=True
            )
    return values
