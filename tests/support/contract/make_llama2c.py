"""llama2.c in its three versions. Rows of q and k stand as in Meta's checkpoints, the two rows of a pair next to each other."""

import struct

import numpy as np

from support.contract.little_model import Maker

POSITIONS = 64
GROUP = 64
LAYER = {
    "norm": "input_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "norm2": "post_attention_layernorm",
    "w1": "mlp.gate_proj",
    "w2": "mlp.down_proj",
    "w3": "mlp.up_proj",
}


def in_pairs(values, heads):
    """Undo the order of Hugging Face: halves of a head become neighbours."""
    rows, width = values.shape
    return values.reshape(heads, 2, rows // heads // 2, width).swapaxes(1, 2).reshape(rows, width)


def pieces(tensors, config):
    """Return the tensors by llama2.c's names, those of layers as lists."""
    heads = {"q": config["num_attention_heads"], "k": config["num_key_value_heads"]}
    found = {}
    for short, name in LAYER.items():
        stack = [tensors[f"model.layers.{layer}.{name}.weight"] for layer in range(config["num_hidden_layers"])]
        found[short] = [in_pairs(each, heads[short]) for each in stack] if short in heads else stack
    ends = {"embedding": "model.embed_tokens", "final": "model.norm", "head": "lm_head"}
    return found | {short: [tensors[f"{name}.weight"]] for short, name in ends.items()}


def sizes(config, sign=1):
    """Return the seven numbers of a header."""
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    return struct.pack("<7i", *(config[name] for name in names), sign * config["vocab_size"], POSITIONS)


def plain(values):
    """Return float32 bytes."""
    return np.ascontiguousarray(values, dtype="<f4").tobytes()


def coded(values):
    """Return int8 codes, and then the scale of each group."""
    groups = values.reshape(-1, GROUP)
    scales = np.abs(groups).max(axis=1) / np.float32(127)
    return np.round(groups / scales[:, None]).astype(np.int8).tobytes() + plain(scales)


def version_0(tensors, config):
    """Return a file of version 0, its head not tied."""
    parts = pieces(tensors, config)
    angles = np.zeros((2, POSITIONS, config["hidden_size"] // config["num_attention_heads"] // 2))
    order = ("embedding", "norm", "q", "k", "v", "o", "norm2", "w1", "w2", "w3", "final")
    body = b"".join(plain(each) for name in order for each in parts[name])
    return sizes(config, -1) + body + plain(angles) + plain(parts["head"][0])


def later(version):
    """Return a function that makes a file of version 1 or 2."""

    def make(tensors, config):
        parts = pieces(tensors, config)
        head = struct.pack("<Ii", 0x616B3432, version) + sizes(config) + b"\0"
        head += struct.pack("<i", GROUP) if version == 2 else b""
        encode = coded if version == 2 else plain
        body = b"".join(plain(each) for name in ("norm", "norm2", "final") for each in parts[name])
        order = ("embedding", "q", "k", "v", "o", "w1", "w2", "w3", "head")
        body += b"".join(encode(each) for name in order for each in parts[name])
        return head.ljust(256, b"\0") + body

    return make


def writer(make):
    """Return a function that writes a file."""

    def write(folder, tensors, config):
        folder.mkdir(exist_ok=True)
        (folder / "model.bin").write_bytes(make(tensors, config))

    return write


MAKERS = {
    "llama2.c version 0": Maker(writer(version_0), "model.bin"),
    "llama2.c version 1": Maker(writer(later(1)), "model.bin"),
    "llama2.c version 2": Maker(writer(later(2)), "model.bin", error=0.005),
}
