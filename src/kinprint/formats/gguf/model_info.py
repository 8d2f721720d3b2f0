"""Translate what a GGUF file says about its model to the spelling of other checkpoints: config, tokenizer, rows, experts.

What a conversion does to tensors is known from llama.cpp's converter (convert_hf_to_gguf.py, since 2026 the
modules of conversion/): `LlamaModel.permute` and the classes that use it, the stacking of experts, the tokens of WordPiece, and
norms stored with the one added, so that no offset is left here: gemma, gemma2, gemma3, gemma-embedding, nemotron, qwen3next,
qwen35, qwen35moe, minimax-m3 (not gemma3n, gemma4, nemotron_h; plamo2 adds other numbers). The architecture files of these
models say it of their own files. Chameleon's norms of q and k, one row for each head, have no role in either.
"""

import re
from collections.abc import Mapping, Sequence

from kinprint.errors import FormatError
from kinprint.formats.gguf.metadata import Metadata, Number
from kinprint.formats.tensors import TensorInfo
from kinprint.formats.views import MAX_ROWS_IN_ORDER, in_hugging_face_order, one_of
from kinprint.text import Text, Value

MAX_LAYERS = 9_999
MAX_HEADS = 1 << 16
MAX_EXPERTS = 4096
MAX_ROWS = 1 << 18  # tensors, when the experts of the largest models are taken apart: 70,000

_CONFIG = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "moe_intermediate_size": "expert_feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "max_position_embeddings": "context_length",
    "rope_theta": "rope.freq_base",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "layer_norm_eps": "attention.layer_norm_epsilon",
    "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "n_group": "expert_group_count",
    "q_lora_rank": "attention.q_lora_rank",
    "kv_lora_rank": "attention.kv_lora_rank",
    "sliding_window": "attention.sliding_window",
    "vocab_size": "vocab_size",
}


def config_of(metadata: Metadata, tensors: Mapping[str, TensorInfo], *, whole: bool) -> dict[str, object]:
    """Return the metadata as a config.json would say it. `whole`: the tensors are all there are."""
    kind = metadata.text("general.architecture") or ""
    config: dict[str, object] = {"model_type": kind, "gguf": True}
    for name, key in _CONFIG.items():
        values = metadata.numbers(f"{kind}.{key}", MAX_LAYERS)
        if values and len(set(values)) == 1:  # lists have an entry for each layer
            config[name] = values[0]
    if "kv_lora_rank" in config:
        for name in ("head_dim", "num_key_value_heads"):  # of latent attention, as llama.cpp computes it: one wide head
            config.pop(name, None)
    layers = metadata.number(f"{kind}.block_count")
    extra = metadata.number(f"{kind}.nextn_predict_layers")
    if isinstance(layers, int):
        # The count includes layers that predict further tokens, which other configs count by themselves.
        ahead = extra if isinstance(extra, int) and 0 < extra < layers else 0
        config["num_hidden_layers"] = layers - ahead
        if ahead:
            config["num_nextn_predict_layers"] = ahead
    tokens = metadata.count("tokenizer.ggml.tokens")
    if tokens:
        config.setdefault("vocab_size", tokens)
    if whole and "token_embd.weight" in tensors:
        config["tie_word_embeddings"] = "output.weight" not in tensors
    return config


_MOST_BASES = 8


def origin_of(metadata: Metadata) -> dict[str, object]:
    """Return licence and base models as the metadata name them; a base as owner/name where both are given."""
    count = metadata.number("general.base_model.count")
    bases = []
    for number in range(min(count, _MOST_BASES) if isinstance(count, int) else 0):
        of = f"general.base_model.{number}"
        address = metadata.text(f"{of}.repo_url") or ""
        owner, name = metadata.text(f"{of}.organization"), metadata.text(f"{of}.name")
        if address.count("/") >= 4:  # scheme, host, owner, name
            bases.append("/".join(address.rstrip("/").split("/")[-2:]))
        elif name:
            bases.append(f"{owner}/{name}" if owner else name)
    licence = metadata.text("general.license")
    if licence in (None, "other", "unknown"):
        licence = metadata.text("general.license.name") or licence
    return {"base_models": bases, "licence": licence}


_KINDS = {"gpt2": "BPE", "llama": "BPE", "bert": "WordPiece", "t5": "Unigram"}
_CONTROL = (2, 3, 4)  # unknown, control, added by the user: without a mark
_SPACE = "▁"


def tokenizer_of(metadata: Metadata) -> dict[str, object]:
    """Return the vocabulary and the merges as a tokenizer.json has them."""
    stated = metadata.text("tokenizer.ggml.model") or "?"
    tokens = metadata.strings("tokenizer.ggml.tokens")
    if stated == "bert":
        tokens = _wordpiece(tokens, metadata.numbers("tokenizer.ggml.token_type"))
    vocabulary: dict[str, int] = {}
    for number, token in enumerate(tokens):
        vocabulary.setdefault(token, number)
    model: dict[str, object] = {"type": _KINDS.get(stated, stated), "vocab": vocabulary}
    if "tokenizer.ggml.merges" in metadata:
        model["merges"] = metadata.strings("tokenizer.ggml.merges")
    return {"model": model}


def _wordpiece(tokens: Sequence[str], kinds: Sequence[Number]) -> list[str]:
    """Spell pieces as WordPiece does: ``##`` before those that go on, where the conversion marks those that begin."""
    kinds = kinds if len(kinds) == len(tokens) else [1] * len(tokens)
    spelt = []
    for token, kind in zip(tokens, kinds, strict=True):
        if kind in _CONTROL or re.fullmatch(r"\[[A-Za-z0-9]+\]", token):
            spelt.append(token)
        else:
            spelt.append(token.removeprefix(_SPACE) if token.startswith(_SPACE) else f"##{token}")
    return spelt


_STACKED = re.compile(r"^(blk\.\d{1,4}\.ffn_(?:gate|up|down|gate_up)_exps)\.weight$")
_SINGLE = re.compile(r"^blk\.\d{1,4}\.ffn_gate_inp_shexp\.weight$")


def unstacked(tensors: Mapping[str, TensorInfo], label: str) -> dict[str, TensorInfo]:
    """Take the experts that are stored as one tensor apart: each is a piece of its bytes."""
    found: dict[str, TensorInfo] = {}
    for name, tensor in tensors.items():
        stack = _STACKED.match(name)
        if stack is not None and len(tensor.shape) == 3 and 0 < tensor.shape[0] <= MAX_EXPERTS:
            for number in range(tensor.shape[0]):
                expert = f"{stack[1]}.{number}.weight"
                found[expert] = one_of(tensor, number)._replace(name=expert)
        elif len(tensor.shape) == 1 and _SINGLE.match(name):
            found[name] = tensor._replace(shape=(1, *tensor.shape))  # ggml drops sides of one
        else:
            found[name] = tensor
        if len(found) > MAX_ROWS:
            raise FormatError(f"{label}: more than {MAX_ROWS} tensors, its experts taken apart")
    taken_apart = sum(tensor.shape[0] if name not in found else 1 for name, tensor in tensors.items())
    if taken_apart != len(found):
        raise FormatError(f"{label}: an expert is stored both by itself and among others")
    return found


# Architectures whose rotary pairs are neighbouring rows in llama.cpp, and rows half a head apart in the original. Those with
# neighbours in both (command-r, chatglm, deepseek2, llama4, ernie4_5), or with halves in both, are converted without reordering.
_ARCHITECTURES = (
    "llama llama-embed mistral3 deci baichuan xverse internlm2 minicpm olmo arctic deepseek granite granitemoe granitehybrid "
    "chameleon bailingmoe smollm3 arcee llada nanbeige"
)
_INTERLEAVED = frozenset(_ARCHITECTURES.split())
_ROTARY = re.compile(r"^blk\.(?P<layer>\d{1,4})\.attn_(?P<which>[qk])\.(?:weight|bias)$")


def in_original_order(rows: Mapping[str, TensorInfo], metadata: Metadata, notes: list[Text]) -> dict[str, TensorInfo]:
    """Undo the reordering of the rows of q and k that the conversion of some architectures does."""
    kind = metadata.text("general.architecture")
    if kind not in _INTERLEAVED:
        return dict(rows)
    heads = metadata.numbers(f"{kind}.attention.head_count", MAX_LAYERS)
    kv_heads = metadata.numbers(f"{kind}.attention.head_count_kv", MAX_LAYERS) or heads
    found: dict[str, TensorInfo] = {}
    left: dict[Text, list[str]] = {}
    for name, tensor in rows.items():
        rotary = _ROTARY.match(name)
        found[name] = tensor
        if rotary is None or not tensor.shape:
            continue
        counts, layer = heads if rotary["which"] == "q" else kv_heads, int(rotary["layer"])
        count = counts[0] if len(counts) == 1 else counts[layer] if layer < len(counts) else None
        if not isinstance(count, int) or not 0 < count <= MAX_HEADS or tensor.shape[0] % (2 * count):
            left.setdefault(Text("the metadata give no number of heads that fits"), []).append(name)
        elif tensor.shape[0] > MAX_ROWS_IN_ORDER:
            left.setdefault(Text("more than {n} rows", n=MAX_ROWS_IN_ORDER), []).append(name)
        elif tensor.shape[0]:
            found[name] = in_hugging_face_order(tensor, count)
    for why, names in left.items():
        told: dict[str, Value] = {"n": len(names), "name": names[0], "why": why}
        notes.append(Text("{n} tensors of q and k left in the order of GGUF, e.g. {name}: {why}", **told))
    return found
