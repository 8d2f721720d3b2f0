"""Quantisers in a few lines each, written from the formats' definitions: what a layer becomes, and what it then stands for.

They share no code with the readers in `kinprint.formats.quantised`, and are there to test these. They round to the nearest and
calibrate nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinprint.formats.dtypes import fp8_table
from kinprint.formats.safetensors.writer import TensorSpec, from_bf16, spec_of, to_bf16
from support.layouts import write_checkpoint

Array = NDArray[Any]
# Dettmers et al. 2023, "QLoRA", appendix E.
NF4 = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)
# Its sign is the highest bit (bitsandbytes, create_fp4_map).
FP4 = (0.0, 0.0052083333, 0.6666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


@dataclass(frozen=True)
class Stored:
    """The tensors of a quantised layer by suffix, and the numbers they stand for."""

    tensors: Mapping[str, TensorSpec]
    values: Array

    def named(self, stem: str) -> dict[str, TensorSpec]:
        """Return the tensors under the names they have in a file; a suffix that begins with ``_`` is joined to the stem."""
        return {stem + ("" if key.startswith("_") else ".") + key: spec for key, spec in self.tensors.items()}


def write_layers(folder: Path, layers: Mapping[str, Stored], config: Mapping[str, object], **settings: object) -> None:
    """Write a checkpoint of quantised layers by their stems; `settings` is the quantization_config, left out if empty."""
    tensors = {name: spec for stem, layer in layers.items() for name, spec in layer.named(stem).items()}
    stated = {"quantization_config": settings} if settings else {}
    write_checkpoint(folder, tensors, {**config, **stated})


def stored(values: Array, **tensors: Array | TensorSpec) -> Stored:
    """Join arrays, stored as their own type, and the values; ``__`` in a name stands for a point."""
    return Stored({key.replace("__", "."): spec_of(value) for key, value in tensors.items()}, values.astype(np.float32))


def nearest(values: Array, table: Array) -> Array:
    """Return the index of the entry of a table that is nearest to each value."""
    order = np.argsort(table, kind="stable")
    middles = (table[order][1:] + table[order][:-1]) / 2
    return order[np.searchsorted(middles, values)]


def bit_stream(codes: Array, bits: int) -> Array:
    """Pack rows of integers into 32-bit words as one stream of bits for each row, the lowest bit first."""
    each = (codes[..., None].astype(np.int64) >> np.arange(bits)) & 1
    return np.packbits(each.reshape(len(codes), -1).astype(np.uint8), axis=1, bitorder="little").view("<i4")


def affine(weight: Array, bits: int, groups: Array, *, symmetric: bool = False) -> tuple[Array, Array, Array]:
    """Return codes, and scales (F16) and zeros by row and group; `groups` has the group of each column."""
    count, most = int(groups.max()) + 1, (1 << bits) - 1
    scales = np.empty((len(weight), count), np.float16)
    zeros = np.empty((len(weight), count), np.int64)
    for group in range(count):
        part = weight[:, groups == group].astype(np.float64)
        low, high = np.minimum(part.min(axis=1), 0), np.maximum(part.max(axis=1), 0)
        if symmetric:
            high = np.maximum(high, -low)
            low = -high
        scales[:, group] = np.maximum((high - low) / most, 1e-6)
        middle = np.full(len(weight), (most + 1) // 2)
        # A zero of 0 has no room in the first version of GPTQ's format, which stores it minus one.
        zeros[:, group] = middle if symmetric else np.clip(np.round(-low / scales[:, group]), 1, most)
    codes = np.clip(np.round(weight / scales[:, groups].astype(np.float64)) + zeros[:, groups], 0, most).astype(
        np.int64
    )
    return codes, scales, zeros


def gptq(weight: Array, *, bits: int = 4, group: int = 64, version: int = 1, order: Array | None = None) -> Stored:
    """Quantise as AutoGPTQ stores it; `order` shuffles the columns over the groups, as act-order does."""
    groups = np.arange(weight.shape[1]) // group
    if order is not None:
        groups = groups[order]
    codes, scales, zeros = affine(weight, bits, groups)
    return stored(
        (codes - zeros[:, groups]) * scales[:, groups].astype(np.float64),
        qweight=np.ascontiguousarray(bit_stream(codes, bits).T),
        qzeros=bit_stream(zeros.T - (1 if version == 1 else 0), bits),
        scales=np.ascontiguousarray(scales.T),
        g_idx=groups.astype(np.int32),
    )


def awq(weight: Array, *, group: int = 64) -> Stored:
    """Quantise to 4 bits as AutoAWQ's GEMM version stores it."""
    groups = np.arange(weight.shape[1]) // group
    codes, scales, zeros = affine(weight, 4, groups)

    def packed(matrix: Array) -> Array:
        words = np.zeros((matrix.shape[0], matrix.shape[1] // 8), np.int64)
        for place, column in enumerate((0, 2, 4, 6, 1, 3, 5, 7)):
            words |= matrix[:, column::8] << (4 * place)
        return words.astype(np.uint32).view(np.int32)

    return stored(
        (codes - zeros[:, groups]) * scales[:, groups].astype(np.float64),
        qweight=packed(codes.T),
        qzeros=packed(zeros.T),
        scales=np.ascontiguousarray(scales.T),
    )


def bnb_int8(weight: Array) -> Stored:
    """Quantise rows to int8 as bitsandbytes does."""
    largest = np.abs(weight).max(axis=1).astype(np.float32)
    codes = np.round(weight / largest[:, None] * 127).astype(np.int8)
    values = codes.astype(np.float32) * (largest / np.float32(127))[:, None]
    return stored(values, weight=codes, SCB=largest, weight_format=np.array(0, np.uint8))


def bnb_4bit(weight: Array, *, kind: str = "nf4", block: int = 64, nested: bool = True) -> Stored:
    """Quantise blocks to 4 bits as bitsandbytes does; `nested` quantises the scales too."""
    table = np.array(NF4 if kind == "nf4" else [*FP4, *(-value for value in FP4)], np.float32)
    flat = weight.astype(np.float32).reshape(-1)
    blocks = -(-flat.size // block)
    padded = np.zeros(blocks * block, np.float32)
    padded[: flat.size] = flat
    absmax = np.abs(padded.reshape(blocks, block)).max(axis=1)
    state: dict[str, object] = {
        "quant_type": kind,
        "blocksize": block,
        "dtype": "bfloat16",
        "shape": list(weight.shape),
    }
    tensors: dict[str, Array] = {"weight.quant_map": table, "weight.absmax": absmax}
    if nested:
        offset, inner = float(absmax.mean()), 256
        centred = np.zeros(-(-blocks // inner) * inner, np.float32)
        centred[:blocks] = absmax - np.float32(offset)
        second = np.maximum(np.abs(centred.reshape(-1, inner)).max(axis=1), np.float32(1e-12))
        levels = np.linspace(-1, 1, 256).astype(np.float32)
        codes = nearest(centred / np.repeat(second, inner), levels)[:blocks].astype(np.uint8)
        absmax = levels[codes] * np.repeat(second, inner)[:blocks] + np.float32(offset)
        tensors |= {"weight.absmax": codes, "weight.nested_absmax": second, "weight.nested_quant_map": levels}
        state |= {"nested_blocksize": inner, "nested_dtype": "float32", "nested_offset": offset}
    wide = np.repeat(absmax, block)
    codes = nearest(padded / np.where(wide == 0, 1, wide), table)
    values = (table[codes] * wide)[: flat.size].reshape(weight.shape)
    codes = codes[: flat.size + flat.size % 2].astype(np.uint8)
    tensors["weight"] = (codes[::2] << 4 | codes[1::2]).reshape(-1, 1)
    tensors[f"weight.quant_state.bitsandbytes__{kind}"] = np.frombuffer(json.dumps(state).encode(), np.uint8)
    return Stored({key: spec_of(value) for key, value in tensors.items()}, values)


def fp8(
    weight: Array, *, block: tuple[int, int] | None = None, each_row: bool = False, kind: str = "F8_E4M3"
) -> Stored:
    """Quantise to 8-bit floats with a scale for the tensor, each row, or each block (as DeepSeek does)."""
    table = fp8_table(4, 3) if kind == "F8_E4M3" else fp8_table(5, 2)
    finite = np.where(np.isfinite(table), table, 0)
    out, width = weight.shape
    tall, wide = block or ((1, width) if each_row else (out, width))
    scales = np.empty((-(-out // tall), -(-width // wide)), np.float32)
    for row, column in np.ndindex(*scales.shape):
        part = weight[row * tall : (row + 1) * tall, column * wide : (column + 1) * wide]
        scales[row, column] = np.abs(part).max() / finite.max()
    spread = np.repeat(np.repeat(scales, tall, axis=0), wide, axis=1)[:out, :width]
    codes = nearest(weight / spread, finite).astype(np.uint8)
    key = "weight_scale_inv" if block else "weight_scale"
    given = scales if block or each_row else scales.reshape(())
    return stored(table[codes] * spread, weight=TensorSpec(kind, codes.shape, codes), **{key: given})


def int8(weight: Array, *, zeros: bool = False) -> Stored:
    """Quantise rows to int8 as compressed-tensors stores it ("int-quantized")."""
    codes, scales, middle = affine(weight, 8, np.zeros(weight.shape[1], np.int64), symmetric=not zeros)
    extra = {"weight_zero_point": (middle - 128).astype(np.int8)} if zeros else {}
    values = (codes - middle) * scales.astype(np.float64)
    return stored(values, weight=(codes - 128).astype(np.int8), weight_scale=scales, **extra)


def packed(weight: Array, *, bits: int = 4, group: int = 64, zeros: str = "none", order: Array | None = None) -> Stored:
    """Quantise as compressed-tensors' "pack-quantized" does; `zeros` is "none", "plain" or "packed"."""
    groups = np.arange(weight.shape[1]) // group
    if order is not None:
        groups = groups[order]
    codes, scales, middle = affine(weight, bits, groups, symmetric=zeros == "none")
    each, half = 32 // bits, 1 << (bits - 1)

    def words(rows: Array) -> Array:
        found = np.zeros((len(rows), -(-rows.shape[1] // each)), np.int64)
        for column in range(rows.shape[1]):
            found[:, column // each] |= rows[:, column] << (bits * (column % each))
        return found.astype(np.uint32).view(np.int32)

    extra: dict[str, Array] = {}
    if zeros == "plain":
        extra["weight_zero_point"] = (middle - half).astype(np.int8)
    elif zeros == "packed":
        extra["weight_zero_point"] = np.ascontiguousarray(words(middle.T).T)
    if order is not None:
        extra["weight_g_idx"] = groups.astype(np.int32)
    return stored(
        (codes - middle[:, groups]) * scales[:, groups].astype(np.float64),
        weight_packed=words(codes),
        weight_scale=scales,
        weight_shape=np.array(weight.shape, np.int64),
        **extra,
    )


def _e2m1(values: Array) -> tuple[Array, Array]:
    """Return bytes of two codes, the first in the low half, and the values of the codes."""
    table = np.array(E2M1)
    codes = nearest(np.abs(values), table) + 8 * (values < 0)
    decoded = table[codes % 8] * np.where(codes >= 8, -1, 1)
    return (codes[..., ::2] | codes[..., 1::2] << 4).astype(np.uint8), decoded


def _mx(weight: Array) -> tuple[Array, Array, Array]:
    """Return bytes, exponents plus 127 and values in MXFP4, for runs of 32 along the last axis."""
    runs = weight.astype(np.float64).reshape(*weight.shape[:-1], -1, 32)
    exponents = np.floor(np.log2(np.maximum(np.abs(runs).max(axis=-1), 1e-30))).astype(np.int64) - 2
    codes, decoded = _e2m1(runs / 2.0 ** exponents[..., None])
    return codes, (exponents + 127).astype(np.uint8), (decoded * 2.0 ** exponents[..., None]).reshape(weight.shape)


def mxfp4(weight: Array) -> Stored:
    """Quantise a matrix as compressed-tensors' "mxfp4-pack-quantized" does."""
    codes, scales, values = _mx(weight)
    return stored(values, weight_packed=codes.reshape(len(weight), -1), weight_scale=scales)


def mxfp4_experts(weight: Array) -> Stored:
    """Quantise experts × out × in as gpt-oss stores them."""
    codes, scales, values = _mx(weight)
    return stored(values, _blocks=codes, _scales=scales)


def nvfp4(weight: Array, *, modelopt: bool = False) -> Stored:
    """Quantise to NVFP4 as compressed-tensors or ModelOpt stores it."""
    table = np.where(np.isfinite(fp8_table(4, 3)), fp8_table(4, 3), 0).astype(np.float64)
    runs = weight.astype(np.float64).reshape(len(weight), -1, 16)
    largest = np.abs(runs).max(axis=-1)
    common = np.float32(448 * 6 / largest.max())
    bits = nearest(largest / 6 * common, table).astype(np.uint8)
    scales = TensorSpec("F8_E4M3", bits.shape, bits)
    shared = np.float32(1 / common)
    factors = table[bits] * np.float64(shared) if modelopt else table[bits] / np.float64(common)
    codes, decoded = _e2m1(runs / np.where(factors == 0, 1, factors)[..., None])
    values = (decoded * factors[..., None]).reshape(weight.shape)
    codes = codes.reshape(len(weight), -1)
    if modelopt:
        return stored(values, weight=codes, weight_scale=scales, weight_scale_2=np.array(shared))
    return stored(values, weight_packed=codes, weight_scale=scales, weight_global_scale=np.array([common]))


def mlx(weight: Array, *, bits: int = 4, group: int = 64, dtype: str = "F32") -> Stored:
    """Quantise the last axis as MLX's mode "affine" does: scale · code + bias, the bias being the least of a group."""
    most = (1 << bits) - 1
    runs = weight.astype(np.float64).reshape(*weight.shape[:-1], -1, group)
    lowest, highest = runs.min(axis=-1), runs.max(axis=-1)
    scales, used_scales = _rounded(np.maximum((highest - lowest) / most, 1e-6), dtype)
    biases, used_biases = _rounded(lowest, dtype)
    codes = np.clip(np.round((runs - used_biases) / used_scales), 0, most).astype(np.int64)
    values = used_scales * codes.astype(np.float32) + used_biases
    words = bit_stream(codes.reshape(-1, weight.shape[-1]), bits).view("<u4").reshape(*weight.shape[:-1], -1)
    return stored(values.reshape(weight.shape), weight=words, scales=scales, biases=biases)


def _rounded(values: Array, dtype: str) -> tuple[TensorSpec, NDArray[np.float32]]:
    """Return numbers of groups as they are stored, and what they are then, with an axis for the group."""
    if dtype == "BF16":
        bits = to_bf16(values.astype(np.float32))
        return TensorSpec(dtype, bits.shape, bits), from_bf16(bits)[..., None]
    kept = values.astype({"F16": np.float16, "F32": np.float32}[dtype])
    return spec_of(kept), kept.astype(np.float32)[..., None]


def mlx_floats(weight: Array, mode: str) -> Stored:
    """Quantise as MLX's modes "mxfp4", "mxfp8" and "nvfp4" do."""
    group = 16 if mode == "nvfp4" else 32
    fp8 = np.where(np.isfinite(fp8_table(4, 3)), fp8_table(4, 3), 0).astype(np.float64)
    runs = weight.astype(np.float64).reshape(len(weight), -1, group)
    largest = np.abs(runs).max(axis=-1)
    if mode == "nvfp4":
        bits = nearest(largest / 6, fp8).astype(np.uint8)
        scales = fp8[bits]
    else:
        exponents = np.floor(np.log2(largest)).astype(np.int64) - (2 if mode == "mxfp4" else 8)
        bits, scales = (exponents + 127).astype(np.uint8), 2.0**exponents
    shares = runs / np.where(scales == 0, 1, scales)[..., None]
    if mode == "mxfp8":
        codes = nearest(shares, fp8).astype(np.uint8)
        decoded = fp8[codes]
    else:
        codes, decoded = _e2m1(shares)
    words = np.ascontiguousarray(codes.reshape(len(weight), -1)).view("<u4")
    return stored((decoded * scales[..., None]).reshape(weight.shape), weight=words, scales=bits)
