"""CTranslate2's model.bin of a decoder: variables one after the other, qkv in one, codes of eight bits beside their scales."""

import struct

import numpy as np

from kinprint.formats.safetensors.writer import to_bf16
from support.contract.little_model import Maker

TYPES = {"F32": 0, "I8": 1, "I16": 2, "I32": 3, "F16": 4, "BF16": 5}
LAYER = {
    "self_attention/layer_norm/gamma": ("input_layernorm",),
    "self_attention/linear_0/weight": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention/linear_1/weight": ("self_attn.o_proj",),
    "ffn/layer_norm/gamma": ("post_attention_layernorm",),
    "ffn/linear_0/weight": ("mlp.gate_proj",),
    "ffn/linear_0_noact/weight": ("mlp.up_proj",),
    "ffn/linear_1/weight": ("mlp.down_proj",),
}
ENDS = {
    "decoder/embeddings/weight": "model.embed_tokens",
    "decoder/layer_norm/gamma": "model.norm",
    "decoder/projection/weight": "lm_head",
}


def string(text):
    return struct.pack("<H", len(text) + 1) + text.encode() + b"\0"


def variable(name, values, kind):
    raw = {"F16": lambda: values.astype("<f2"), "BF16": lambda: to_bf16(values), "I8": lambda: values.astype("i1")}
    raw |= {"F32": lambda: values.astype("<f4"), "I16": lambda: values.astype("<i2")}
    data = raw[kind]().tobytes()
    shape = struct.pack(f"<B{values.ndim}I", values.ndim, *values.shape)
    return string(name) + shape + struct.pack("<BI", TYPES[kind], len(data)) + data


def stored(name, values, kind):
    """Return the variables of one tensor: of matrices in eight bits, codes and the scale of each row."""
    if kind != "I8" or values.ndim != 2:
        return [variable(name, values, "F32" if kind == "I8" else kind)]
    scales = 127.0 / np.abs(values).max(axis=1)
    return [variable(name, np.round(values * scales[:, None]), "I8"), variable(f"{name}_scale", scales, "F32")]


def model_bytes(tensors, layers, kind, spec="TransformerDecoderModelSpec"):
    found = [variable("decoder/num_heads", np.array(8), "I16")]
    for name, source in ENDS.items():
        found += stored(name, tensors[f"{source}.weight"], kind)
    for layer in range(layers):
        for name, parts in LAYER.items():
            whole = np.concatenate([tensors[f"model.layers.{layer}.{part}.weight"] for part in parts])
            found += stored(f"decoder/layer_{layer}/{name}", whole, kind)
    head = struct.pack("<I", 6) + string(spec) + struct.pack("<II", 8, len(found))
    return head + b"".join(found) + struct.pack("<I", 0)


def writer(kind):
    def write(folder, tensors, config):
        folder.mkdir(exist_ok=True)
        (folder / "model.bin").write_bytes(model_bytes(tensors, config["num_hidden_layers"], kind))

    return write


MAKERS = {
    "CTranslate2 F32": Maker(writer("F32"), "model.bin"),
    "CTranslate2 F16": Maker(writer("F16"), "model.bin"),
    "CTranslate2 BF16": Maker(writer("BF16"), "model.bin"),
    "CTranslate2 int8": Maker(writer("I8"), "model.bin", error=0.005),
}
