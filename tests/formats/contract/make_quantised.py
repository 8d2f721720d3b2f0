"""The little model with its linear layers quantised in every form there is a reader for."""

from functools import partial

from model import Maker

from kinprint.testing import quantisers
from kinprint.testing.layouts import write_checkpoint

KEPT = ("model.embed_tokens.weight", "lm_head.weight")


def _writer(quantise, method, shards=1, **settings):
    def write(folder, tensors, config):
        stored, dtypes = {}, {}
        for name, values in tensors.items():
            if values.ndim == 2 and name not in KEPT:
                stored |= quantise(values).named(name.removesuffix(".weight"))
            else:
                stored[name] = values
                dtypes[name] = "BF16"
        config["quantization_config"] = {"quant_method": method, **settings}
        write_checkpoint(folder, stored, config, dtype=dtypes, shards=shards)

    return write


def _maker(quantise, method, error, *, rows_alone=True, shards=1, **settings):
    main = "model.safetensors" if shards == 1 else f"model-00001-of-{shards:05d}.safetensors"
    return Maker(_writer(quantise, method, shards, **settings), main, error=error, rows_alone=rows_alone)


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
}
