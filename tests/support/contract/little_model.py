"""The little model that every format stores, and what a maker of a format is."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kinprint.formats.safetensors.writer import from_bf16, to_bf16

LAYERS, WIDTH, HEADS, KV_HEADS, NEURONS, TOKENS = 2, 256, 8, 4, 512, 96
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "intermediate_size": NEURONS,
    "vocab_size": TOKENS,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def little_model(seed: int = 5) -> dict[str, np.ndarray]:
    """Return float32 tensors with Hugging Face names, every value a BF16 number, so that F32, F16 and BF16 files can hold it."""
    rng = np.random.default_rng(seed)
    kv = WIDTH // HEADS * KV_HEADS
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (TOKENS, WIDTH)}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        shapes |= {
            prefix + "input_layernorm.weight": (WIDTH,),
            prefix + "self_attn.q_proj.weight": (WIDTH, WIDTH),
            prefix + "self_attn.k_proj.weight": (kv, WIDTH),
            prefix + "self_attn.v_proj.weight": (kv, WIDTH),
            prefix + "self_attn.o_proj.weight": (WIDTH, WIDTH),
            prefix + "post_attention_layernorm.weight": (WIDTH,),
            prefix + "mlp.gate_proj.weight": (NEURONS, WIDTH),
            prefix + "mlp.up_proj.weight": (NEURONS, WIDTH),
            prefix + "mlp.down_proj.weight": (WIDTH, NEURONS),
        }
    shapes |= {"model.norm.weight": (WIDTH,), "lm_head.weight": (TOKENS, WIDTH)}
    found = {}
    for name, shape in shapes.items():
        drawn = rng.standard_normal(shape)
        values = 1.0 + 0.1 * drawn if len(shape) == 1 else 0.05 * drawn
        steps = np.round(values * 2**12) / 2**12  # BF16 goes finer near zero than F16 can
        found[name] = from_bf16(to_bf16(steps.astype(np.float32)))
    return found


@dataclass(frozen=True)
class Maker:
    """Writes the little model in one format.

    Attributes
    ----------
    write
        ``write(folder, tensors, config)`` writes the file or files.
    main
        Name of the weight file that is truncated and addressed alone.
    error
        Largest error of a matrix element, as a share of its row's largest magnitude; 0 means bit for bit.
    roles
        Roles that this format does not store (adapters, say); empty for all.
    rows_alone
        Whether some rows of a matrix can be read without the others.
    """

    write: Callable[[Path, dict[str, np.ndarray], dict], None]
    main: str
    error: float = 0.0
    without: tuple[str, ...] = ()
    rows_alone: bool = True
