"""Reorder a saved model along the axes that kinprint's roles call exchangeable.

If the model still computes what it did, every such axis is what the role says: a wrongly paired axis breaks the function.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import takewhile
from operator import eq
from typing import Any

import numpy as np

from kinprint.arch import Axis, Naming, Role, RoleTensor, residual_width
from kinprint.arch.roles import BIASES

Arrays = dict[str, np.ndarray]
LATENTS = {
    "attn_q_a": "q",
    "q_a_norm": "q",
    "attn_q_b": "q",
    "attn_q_a_bias": "q",
    "kv_a_norm": "kv",
    "attn_kv_b": "kv",
}
MIXER_CHANNELS = (
    Role.MIXER_GATE, Role.MIXER_VALUE, Role.MIXER_CONV, BIASES[Role.MIXER_CONV], Role.MIXER_NORM, Role.MIXER_OUT,
)  # fmt: skip
INTO_RESIDUAL = ("encoder.layers.14.conv.", "encoder_seanet.layers.11.conv.")  # the last convolution (Mimi, Pocket TTS)
# Left out, and counted by the neurons of their layer, once or of gate and up.
OF_NEURONS = {".dwconv.dwconv.": 1, ".grn.": 1, ".gate_up_proj_adapter_list.0.1.": 2}
# Beside the channels inside a block of convolutions, and the axis that counts these.
OF_CHANNELS = {
    ".layer.0.normalization.": 0, ".layer.1.convolution.": 1,  # ResNet
    ".expand_1x1.normalization.": 0, ".conv_3x3.": 0,  # MobileNet 2
    ".expansion.expand_bn.": 0, ".depthwise_conv.": 0, ".squeeze_excite.reduce.weight": 1,  # EfficientNet
    ".squeeze_excite.expand.": 0, ".projection.project_conv.": 1,
    ".linear_up.batch_norm.": 0,  # LeViT
}  # fmt: skip
CHANNELS = re.compile(
    r"\.(layer\.0\.convolution|expand_1x1\.convolution|expansion\.expand_conv|linear_up\.linear)\.weight"
)
HEADS = ("attn_q", "attn_k", "attn_v", "attn_o")


def stored_view(arrays: Arrays, tensor: RoleTensor) -> np.ndarray:
    """Return a tensor out × in: a view or, of a fused tensor, a copy."""
    name, _, number = tensor.name.partition("[")
    whole = arrays[tensor.name] if tensor.name in arrays else arrays[name][int(number[:-1])]
    if tensor.rows is not None:
        whole = np.concatenate([np.take(whole, range(*run), axis=tensor.axis) for run in tensor.rows], axis=tensor.axis)
    return whole.T if tensor.transposed else whole


def put_back(arrays: Arrays, tensor: RoleTensor, values: np.ndarray) -> None:
    """Store a tensor that was changed."""
    name, _, number = tensor.name.partition("[")
    whole = arrays[tensor.name] if tensor.name in arrays else arrays[name][int(number[:-1])]
    values = values.T if tensor.transposed else values
    if tensor.rows is None:
        whole[...] = values.reshape(whole.shape)
        return
    at = 0
    for start, stop in tensor.rows:
        where = [slice(None)] * whole.ndim
        where[tensor.axis] = slice(start, stop)
        whole[tuple(where)] = np.take(values, range(at, at + stop - start), axis=tensor.axis)
        at += stop - start


class Orders:
    """One permutation for each axis that has units of its own, drawn when first asked for."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._drawn: dict[object, np.ndarray] = {}

    def of(self, name: object, count: int) -> np.ndarray:
        if (name, count) not in self._drawn:
            self._drawn[name, count] = self._rng.permutation(count)
        return self._drawn[name, count]


def units(tensor: RoleTensor, axis: Axis, narrow: bool) -> object | None:
    """Name the units that run along an axis of a tensor; None for those whose order has a meaning, or that others read."""
    role = tensor.role.value
    if axis is Axis.RESIDUAL:
        return "residual"
    if axis is Axis.NEURON:
        return role.split("_")[0], tensor.layer, tensor.expert
    if axis is Axis.LATENT and "_projection" in role:
        return "residual" if narrow else None  # of narrow embeddings, or of a space that another tower projects to
    if axis is Axis.LATENT:
        return "latent", LATENTS.get(role.removesuffix("_bias"), role.removesuffix("_bias")), tensor.layer
    return None


def reordered(
    arrays: Arrays,
    naming: Naming,
    ordered: dict[Axis, Any],
    kv_heads: int | None,
    seed: int,
    mixer_head: int | None = None,
) -> tuple[Arrays, Orders]:
    """Return a copy with residual dimensions, neurons, latent channels, experts and, if their number is known, heads reordered."""
    orders = Orders(seed)
    found = {name: np.array(values) for name, values in arrays.items()}
    experts = {t.layer: 1 + max(x.expert for x in naming.tensors if x.layer == t.layer and x.expert is not None)
               for t in naming.tensors if t.expert is not None}  # fmt: skip
    keys = {tensor.key: tensor for tensor in naming.tensors}
    narrow = {tensor.shape[1] for tensor in naming.tensors if tensor.role in (Role.EMBEDDING, Role.HEAD)}
    for tensor in naming.tensors:
        source = tensor
        if tensor.expert is not None and Axis.EXPERT not in ordered:
            expert = int(orders.of(("experts", tensor.layer), experts[tensor.layer])[tensor.expert])
            source = keys.get((tensor.role, tensor.layer, expert), tensor)
        values = stored_view(arrays, source)
        for position, axis in enumerate(tensor.role.info.axes):
            if axis in ordered:
                continue
            count = values.shape[position]
            name = units(source, axis, count in narrow)
            if name == "residual" and Axis.RESIDUAL in ordered:
                continue
            if axis is Axis.EXPERT and count == experts.get(tensor.layer):
                name = "experts", tensor.layer
            if name is not None:
                values = np.take(values, orders.of(name, count), axis=position)
        values = _latent_keys(values, source, keys, orders)
        value = keys.get((Role.MIXER_VALUE, tensor.layer, None))
        if mixer_head and value is not None and tensor.role in MIXER_CHANNELS:
            values = _inside_heads(values, tensor, value.shape[0], mixer_head, orders)
        put_back(found, tensor, _heads(values, tensor, kv_heads, orders.of))
    _move_excluded(found, naming, orders, Axis.RESIDUAL in ordered)
    return found, orders


def _move_excluded(found: Arrays, naming: Naming, orders: Orders, in_place: bool) -> None:
    """Reorder what is not compared with the rest: along the residual stream, and readers of a latent that is reordered."""
    widths = residual_widths(naming)
    width = residual_width(naming) or max(widths, default=None)
    keys = {tensor.key: tensor for tensor in naming.tensors}
    channels = {CHANNELS.sub("", t.name): t for t in naming.tensors if t.role in (Role.CONV_UP, Role.MLP_UP)}
    for item in naming.excluded:
        shape = found[item.name].shape
        axes = (0,) if item.name.startswith(INTO_RESIDUAL) else item.residual
        for axis in [each for each in axes if each < len(shape)] if width and not in_place else ():
            size = width if len(widths) == 1 else _stage_width(found, item.name, axis)
            if size in widths:
                found[item.name] = along_residual(found[item.name], axis, orders.of("residual", size))
        if part := next((part for part in OF_NEURONS if part in item.name), None):
            axis, parts = int(np.argmax(shape)), OF_NEURONS[part]
            order = orders.of(("mlp", _layer_of(item.name, naming), None), shape[axis] // parts)
            found[item.name] = along_residual(found[item.name], axis, order)
        for part, axis in OF_CHANNELS.items():
            if len(shape) and (up := channels.get(item.name.partition(part)[0])) and part in item.name:
                order = orders.of(units(up, Axis.NEURON, False), up.shape[0])
                found[item.name] = np.take(found[item.name], order, axis=axis)
        number = re.search(r"\.(\d+)\..*(q_b_proj|wq_b)\.weight$", item.name)
        latent = keys.get((Role.ATTN_Q_A, int(number[1]), None)) if number else None
        if latent is not None and (number[2] == "wq_b" or (Role.ATTN_Q_B, latent.layer, None) not in keys):
            order = orders.of(("latent", "q", latent.layer), latent.shape[0])
            found[item.name] = along_residual(found[item.name], 1, order)


def residual_widths(naming: Naming) -> set[int]:
    """Return every width that the residual stream has: stages have one each."""
    return {
        size
        for tensor in naming.tensors
        for axis, size in zip(tensor.role.info.axes, tensor.shape, strict=True)
        if axis is Axis.RESIDUAL
    }


def _stage_width(found: Arrays, name: str, axis: int) -> int:
    """Return the width of the stage that an axis belongs to; a change of stages may read several neighbours side by side."""
    shape, merge = found[name].shape, found.get(name.partition(".norm.")[0] + ".reduction.weight")
    if name.endswith(".downsample.reduction.weight") and axis == 1:
        return shape[1] // 4  # Swin
    if ".downsample.norm." in name and merge is not None and shape[0] == merge.shape[1]:
        return shape[0] // 4  # acts before that, and after it in Swin 2
    number = re.fullmatch(r"layers\.(\d+)\.patch_embedder\.proj\.weight", name)
    if number and axis == 1 and number[1] != "0":  # Muse Spark
        return found[f"layers.{int(number[1]) - 1}.patch_embedder.proj.weight"].shape[0]
    return shape[axis]


def _layer_of(name: str, naming: Naming) -> int | None:
    """Return the layer of a tensor that is left out: that of the MLP beside it, whose name begins as its own does."""
    ups = [tensor for tensor in naming.tensors if tensor.role is Role.MLP_UP]
    return max(ups, key=lambda tensor: sum(takewhile(bool, map(eq, tensor.name, name)))).layer


def _inside_heads(values: np.ndarray, tensor: RoleTensor, channels: int, size: int, orders: Orders) -> np.ndarray:
    """Reorder the channels of each head of Mamba 2; of the convolution's, those of x come first."""
    axis = 1 if tensor.role is Role.MIXER_OUT else 0
    inside = [at + orders.of(("mixer", tensor.layer, at), size) for at in range(0, channels, size)]
    rest = np.arange(channels, values.shape[axis])
    return np.take(values, np.concatenate([*inside, rest]), axis=axis)


def along_residual(values: np.ndarray, axis: int, order: np.ndarray) -> np.ndarray:
    """Reorder an axis that holds the units of an order once, or several times one after the other (hyper-connections)."""
    streams = values.shape[axis] // len(order)
    every = np.arange(values.shape[axis])  # what comes after whole streams stays
    every[: streams * len(order)] = np.concatenate([order + at * len(order) for at in range(streams)] or [order[:0]])
    return np.take(values, every, axis=axis)


def _latent_keys(values: np.ndarray, tensor: RoleTensor, keys: Any, orders: Orders) -> np.ndarray:
    """Reorder the latent rows of kv_a, which rotary rows follow."""
    norm = keys.get((Role.KV_A_NORM, tensor.layer, None))
    if tensor.role is not Role.ATTN_KV_A or norm is None:
        return values
    count = norm.shape[0]
    order = orders.of(("latent", "kv", tensor.layer), count)
    return np.concatenate([values[:count][order], values[count:]])


def _heads(
    values: np.ndarray, tensor: RoleTensor, groups: int | None, order: Callable[[object, int], np.ndarray]
) -> np.ndarray:
    """Reorder key-value heads, each with the query heads that use it."""
    role = tensor.role.value.removesuffix("_bias")
    if not groups or role not in HEADS or tensor.role is BIASES[Role.ATTN_O]:
        return values
    position = 1 if role == "attn_o" else 0
    if values.shape[position] % groups:
        return values
    blocks = np.arange(values.shape[position]).reshape(groups, -1)
    return np.take(values, blocks[order(("heads", tensor.layer), groups)].ravel(), axis=position)
