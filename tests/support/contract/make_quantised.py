"""The little model with its linear layers quantised in every form there is a reader for."""

import json
from functools import partial

from kinprint.formats.safetensors.writer import spec_of
from support import quantisers
from support.contract.little_model import Maker
from support.contract.make_pytorch import state_dict_of, torch_file
from support.layouts import write_checkpoint

KEPT = ("model.embed_tokens.weight", "lm_head.weight")


def _stored(quantise, tensors):
    """Return the tensors as they are stored, each with its type."""
    stored: dict[str, object] = {}
    for name, values in tensors.items():
        if values.ndim == 2 and name not in KEPT:
            stored |= quantise(values).named(name.removesuffix(".weight"))
        else:
            stored[name] = spec_of(values, "BF16")
    return stored


def _stated(method, settings):
    """Return what a config says: MLX names no method."""
    if method is None:
        return {"quantization": settings, "quantization_config": settings}
    return {"quantization_config": {"quant_method": method, **settings}}


def _writer(quantise, method, shards=1, **settings):
    def write(folder, tensors, config):
        write_checkpoint(folder, _stored(quantise, tensors), config | _stated(method, settings), shards=shards)

    return write


def _archive(quantise, method, **settings):
    """Write a PyTorch archive."""

    def write(folder, tensors, config):
        (folder / "config.json").write_text(json.dumps(config | _stated(method, settings)))
        value, storages = state_dict_of(_stored(quantise, tensors))
        (folder / "pytorch_model.bin").write_bytes(torch_file(value, storages))

    return write


def _maker(quantise, method, error, *, rows_alone=True, shards=1, **settings):
    main = "model.safetensors" if shards == 1 else f"model-00001-of-{shards:05d}.safetensors"
    return Maker(_writer(quantise, method, shards, **settings), main, error=error, rows_alone=rows_alone)


def _bin(quantise, method, error, *, rows_alone=True, **settings):
    write = _archive(quantise, method, **settings)
    return Maker(write, "pytorch_model.bin", error=error, rows_alone=rows_alone)


CT = "compressed-tensors"
MAKERS = {
    "GPTQ 4-bit": _maker(quantisers.gptq, "gptq", 0.08, rows_alone=False, bits=4, group_size=64),
    "GPTQ 8-bit sharded": _maker(partial(quantisers.gptq, bits=8), "gptq", 0.01, rows_alone=False, shards=3, bits=8),
    "AWQ": _maker(quantisers.awq, "awq", 0.08, rows_alone=False, bits=4, group_size=64, version="gemm"),
    "bitsandbytes int8": _maker(quantisers.bnb_int8, "bitsandbytes", 0.005),
    "bitsandbytes NF4": _maker(quantisers.bnb_4bit, "bitsandbytes", 0.16),
    "bitsandbytes NF4 plain scales": _maker(partial(quantisers.bnb_4bit, nested=False), "bitsandbytes", 0.16),
    "FP8 in blocks": _maker(partial(quantisers.fp8, block=(128, 128)), "fp8", 0.07, weight_block_size=[128, 128]),
    "FP8 by tensor": _maker(quantisers.fp8, "fp8", 0.07),
    "FP8 by row": _maker(partial(quantisers.fp8, each_row=True), CT, 0.07, format="float-quantized"),
    "int8 by row": _maker(quantisers.int8, CT, 0.01, format="int-quantized"),
    "packed int4": _maker(quantisers.packed, CT, 0.08, format="pack-quantized"),
    "MXFP4": _maker(quantisers.mxfp4, CT, 0.26, format="mxfp4-pack-quantized"),
    "NVFP4": _maker(quantisers.nvfp4, CT, 0.25, format="nvfp4-pack-quantized"),
    "MLX 4-bit": _maker(quantisers.mlx, None, 0.08, group_size=64, bits=4),
    "MLX 3-bit sharded": _maker(partial(quantisers.mlx, bits=3, group=32), None, 0.16, shards=3, group_size=32, bits=3),
    "MLX MXFP8": _maker(partial(quantisers.mlx_floats, mode="mxfp8"), None, 0.13, group_size=32, bits=8, mode="mxfp8"),
    "PyTorch GPTQ": _bin(quantisers.gptq, "gptq", 0.08, rows_alone=False, bits=4, group_size=64),
    "PyTorch AWQ": _bin(quantisers.awq, "awq", 0.08, rows_alone=False, bits=4, group_size=64, version="gemm"),
    "PyTorch bitsandbytes int8": _bin(quantisers.bnb_int8, "bitsandbytes", 0.005),
    "PyTorch bitsandbytes NF4": _bin(quantisers.bnb_4bit, "bitsandbytes", 0.16),
    "PyTorch packed int4": _bin(quantisers.packed, CT, 0.08, format="pack-quantized"),
}
