"""Compare the configs of two models, and count their tensor names."""

import re
from collections.abc import Iterable

from kinprint.comparison.config_differences import compare_configs
from kinprint.studies.opened import StudyRun
from kinprint.studies.origin.shared import controls
from kinprint.studies.outcome import Cell, Column, Section, columns
from kinprint.text import Text

KEYS = (
    "model_type", "architectures", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
    "head_dim", "intermediate_size", "moe_intermediate_size", "n_routed_experts", "n_shared_experts",
    "num_experts_per_tok", "max_position_embeddings", "rope_theta", "partial_rotary_factor",
    "first_k_dense_replace", "vocab_size", "pad_token_id", "bos_token_id", "eos_token_id",
    "num_nextn_predict_layers", "tie_word_embeddings", "torch_dtype", "transformers_version",
)  # fmt: skip
WORDS = ("nextn", "mtp", "predict", "gmask", "sop")
SCANNED_LAYERS = (46, 92)
_YES_NO = {True: Text("yes"), False: Text("no")}
_SCAN = (
    *columns("model; tensors; first: least layer index; last: greatest layer index"),
    *(Column(f"layer_{layer}", Text("names under layer {layer}", layer=layer)) for layer in SCANNED_LAYERS),
    *(Column(word, Text("names with “{word}”", word=word)) for word in WORDS),
    *columns("moe_layers: layers with experts; expert_names: greatest number of experts named in a layer"),
    *columns("layers: layers that count; experts: experts a layer"),
)
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.")
_EXPERT = re.compile(r"(?:^|\.)experts\.(\d+)\.")


def configs(run: StudyRun, section: Section, a: str, b: str) -> None:
    """Compare the configs key by key, and count tensor names."""
    sides = one, two = [run.model(name).checkpoint.config for name in (a, b)]
    rows: list[tuple[Cell, ...]] = []
    for key in KEYS:
        if key in one or key in two:
            equal = _YES_NO[one[key] == two[key]] if key in one and key in two else None
            rows.append((key, *(str(config[key])[:200] if key in config else None for config in sides), equal))
    title = Text("The published keys: {a} (A) and {b} (B)", a=a, b=b)
    section.add_table("config", title, columns("key; a; b; equal"), rows)
    found = compare_configs(one, two)
    others = [item for item in found.differences if item.key not in KEYS]
    title = Text("Every other difference between {a} and {b} ({n} keys are equal)", a=a, b=b, n=found.equal_keys)
    section.add_table("config_differences", title, columns("key; a; b"), others)
    models = {name: run.model(name) for name in (a, b, *controls(run))}
    rows = [(name, *scan(m.checkpoint.tensors), m.naming.layers, m.naming.experts) for name, m in models.items()]
    section.add_table("key_scan", Text("What the tensor names say"), _SCAN, rows)
    if run.original("GLM"):
        section.note(
            "A config describes a design. Designs are published and copied; equal values are no evidence about "
            "weights. Index 46 of GLM is the block that predicts further tokens: it counts as no layer here."
        )
    else:
        section.note(
            "A config describes a design. Designs are published and copied; equal values are no evidence about weights."
        )
    for name, config in zip((a, b), sides, strict=True):
        for key in KEYS:
            value = config.get(key)
            if not isinstance(value, bool):
                section.values[f"{name} {key}"] = float(value) if isinstance(value, int | float) else None


def scan(names: Iterable[str]) -> list[Cell]:
    """Count tensor names: all, least and greatest layer index, two layers, five words, layers and numbers of experts."""
    listed = list(names)
    layers = {name: int(found.group(1)) for name in listed if (found := _LAYER.search(name))}
    experts: dict[int, set[int]] = {}
    for name, layer in layers.items():
        if found := _EXPERT.search(name):
            experts.setdefault(layer, set()).add(int(found.group(1)))
    indices = list(layers.values())
    return [
        *(len(listed), min(indices, default=None), max(indices, default=None)),
        *(indices.count(layer) for layer in SCANNED_LAYERS),
        *(sum(word in name.lower() for name in listed) for word in WORDS),
        *(len(experts), max((len(found) for found in experts.values()), default=0)),
    ]
