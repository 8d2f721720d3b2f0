"""The config comparison and the scan of tensor names of the first accusation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from kinprint.comparison.config_differences import compare_configs
from kinprint.studies.opened import StudyRun
from kinprint.studies.origin.shared import accused, controls, count_check, is_published, origin
from kinprint.studies.outcome import Cell, Check, Column, Section, columns
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
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.")
_EXPERT = re.compile(r"(?:^|\.)experts\.(\d+)\.")


def configs(run: StudyRun) -> Section:
    """Config key by key, and what the tensor names say."""
    section = Section()
    a, b = accused(run)
    one, two = (run.model(name).checkpoint.config for name in (a, b))
    rows = [
        (
            key,
            *(_shown(config[key]) if key in config else None for config in (one, two)),
            _YES_NO[one[key] == two[key]] if key in one and key in two else None,
        )
        for key in KEYS
        if key in one or key in two
    ]
    title = Text("The published keys: {a} (A) and {b} (B)", a=a, b=b)
    section.add_table("config", title, columns("key; a: A; b: B; equal"), rows)
    found = compare_configs(one, two)
    others = [item for item in found.differences if item.key not in KEYS]
    title = Text("Every other difference between {a} and {b} ({n} keys are equal)", a=a, b=b, n=found.equal_keys)
    section.add_table("config_differences", title, columns("key; a: A; b: B"), others)
    _add_scan(run, section)
    section.notes.append(
        Text(
            "A config describes a design. Designs are published and copied; equal values are no evidence about "
            "weights. Index 46 of GLM is the block that predicts further tokens: it counts as no layer here."
        )
        if run.original("GLM")
        else Text(
            "A config describes a design. Designs are published and copied; equal values are no evidence about weights."
        )
    )
    if is_published(run, a, b):
        for side, name, config in (("A", a, one), ("B", b, two)):
            section.checks += _checks(name, config, origin()["config"][side]["config_summary"])
    return section


def _shown(value: object) -> str:
    return str(value)[:200]


def _add_scan(run: StudyRun, section: Section) -> None:
    rows = []
    for name in (*accused(run), *controls(run)):
        model = run.model(name)
        rows.append((name, *scan(model.checkpoint.tensors), model.naming.layers, model.naming.experts))
    heads = (
        *columns("model; tensors; first: least layer index; last: greatest layer index"),
        *(Column(f"layer_{layer}", Text("names under layer {layer}", layer=layer)) for layer in SCANNED_LAYERS),
        *(Column(word, Text("names with “{word}”", word=word)) for word in WORDS),
        *columns("moe_layers: layers with experts; expert_names: greatest number of experts named in a layer"),
        *columns("layers: layers that count; experts: experts a layer"),
    )
    section.add_table("key_scan", Text("What the tensor names say"), heads, rows)


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
        len(listed),
        min(indices, default=None),
        max(indices, default=None),
        *(indices.count(layer) for layer in SCANNED_LAYERS),
        *(sum(word in name.lower() for name in listed) for word in WORDS),
        len(experts),
        max((len(found) for found in experts.values()), default=0),
    ]


def _checks(name: str, config: Mapping[str, object], known: Mapping[str, object]) -> list[Check]:
    """Compare the numbers of a published config; text is in the table."""
    checks = []
    for key, value in known.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found = config.get(key)
            measured = float(found) if isinstance(found, (int, float)) else None
            what = Text("{model}: {key}", model=name, key=key)
            checks.append(
                Check(what, value, measured, 1) if isinstance(value, float) else count_check(what, value, measured)
            )
    return checks
