"""Reports for tests of pages: of many layers, of models made by an enemy, and of models with nothing in common."""

from __future__ import annotations

import json
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from kinprint.comparison.pipeline import compare
from kinprint.formats.safetensors.writer import spec_of
from kinprint.lab.safetensors_files import write_dense
from kinprint.results.context import UNDECLARED, Declaration, DeclaredFinding
from kinprint.results.findings import DERIVED, NO_EVIDENCE, ComponentFinding
from kinprint.results.options import Options
from kinprint.results.p_values import PMethod
from kinprint.results.report import Report
from kinprint.results.result import SCHEMA_VERSION
from kinprint.results.tree import PairsReport, PairSummary
from kinprint.sources.settings import Settings
from kinprint.text import Text, verbatim
from kinprint.tree.all_pairs import clusters_of, corrected
from kinprint.tree.facts import ModelFacts, PairFacts
from kinprint.tree.infer import infer_tree
from support.layouts import write_checkpoint

Weights = dict[str, NDArray[np.float32]]

LONG = "x" * 10_000
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</script><script>alert(1)</script>",
    "--><!--<svg/onload=alert(1)>",
    "javascript:alert(1)",
    "[click](javascript:alert(1))",
    "{{7*7}}{% raw %}${7*7}",
    "\u202egnp.exe\u202c\u2066\u200f",  # right-to-left override and isolate
    "\U0001f9ec\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1f0\U0001f1f7",
    "\x00\x07\x1b[31mred\x1b]0;title\x07\x7f\u2028\u2029\ufeff",
    "a|b`c`\n# heading\r\n=1+1",
    "' onmouseover='alert(1)' style='position:fixed;inset:0'",
    "&lt;b&gt;&amp;amp;&#60;i&#62;",
    "Donaudampfschiff" * 40,
    LONG,
)
"""Text that a page, a table or a terminal must show and never act on. None of it is longer than 10 kB."""

# The program's own words, a date, and what selects branches: other text there is a broken report, not a hostile name.
_OUR_WORDS = frozenset(
    {"schema", "status", "class_", "kind", "tail", "state", "edit", "expected", "found", "reading", "started", "cells"}
)
_KEYS = frozenset({"role", "metric", "method", "component", "scope", "permuted_axis"})


# -- models of many layers ---------------------------------------------------------------------------------------------


def wide_models(folder: Path, layers: int = 48, width: int = 64, *, seed: int = 0) -> tuple[Path, Path]:
    """Write a model of so many layers and a fine-tune of it, whose card declares no base; return both folders."""
    base = _llama(layers, width, np.random.default_rng([seed, 0]))
    noise = np.random.default_rng([seed, 1])
    tuned = {
        name: (values * (1 + 0.05 * noise.standard_normal(values.shape))).astype(np.float32)
        for name, values in base.items()
    }
    made = folder / "base", folder / "tuned"
    for place, weights, licence in zip(made, (base, tuned), ("apache-2.0", "mit"), strict=True):
        write_checkpoint(
            place, weights, _config(layers, width), dtype="BF16", tokenizer=_tokenizer({"<s>": 0, "the": 1, "a": 2})
        )
        (place / "README.md").write_text(f"---\nlicense: {licence}\n---\n# {place.name}\n", encoding="utf-8")
    return made


def _config(layers: int, width: int) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "head_dim": 16,
        "num_attention_heads": width // 16,
        "num_key_value_heads": max(1, width // 32),
        "num_hidden_layers": layers,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "vocab_size": 4 * width,
    }


def _tokenizer(vocabulary: Mapping[str, int], kind: str = "BPE") -> dict[str, Any]:
    return {"version": "1.0", "model": {"type": kind, "vocab": dict(vocabulary), "merges": []}}


def _llama(layers: int, width: int, rng: np.random.Generator) -> Weights:
    """Return weights under Llama's names: norms whose channels drift slowly with depth, matrices of plain noise."""
    config = _config(layers, width)
    keys = config["head_dim"] * config["num_key_value_heads"]
    shapes = {
        "self_attn.q_proj": (width, width),
        "self_attn.k_proj": (keys, width),
        "self_attn.v_proj": (keys, width),
        "self_attn.o_proj": (width, width),
        "mlp.gate_proj": (2 * width, width),
        "mlp.up_proj": (2 * width, width),
        "mlp.down_proj": (width, 2 * width),
    }
    weights: Weights = {"model.embed_tokens.weight": _matrix(rng, (config["vocab_size"], width))}
    channels = rng.standard_normal((2, width))
    for layer in range(layers):
        channels = 0.9 * channels + np.sqrt(1 - 0.81) * rng.standard_normal((2, width))
        level = 0.2 + layer / layers
        for norm, row in zip(("input_layernorm", "post_attention_layernorm"), channels, strict=True):
            weights[f"model.layers.{layer}.{norm}.weight"] = (level * np.exp(0.25 * row)).astype(np.float32)
        for name, shape in shapes.items():
            weights[f"model.layers.{layer}.{name}.weight"] = _matrix(rng, shape)
    weights["model.norm.weight"] = np.exp(0.2 * rng.standard_normal(width)).astype(np.float32)
    weights["lm_head.weight"] = _matrix(rng, (config["vocab_size"], width))
    return weights


def _matrix(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
    return (0.02 * rng.standard_normal(shape)).astype(np.float32)


# -- models of an enemy --------------------------------------------------------------------------------------------------


def hostile_model(folder: Path, *, seed: int = 0) -> Path:
    """Write a small model that maps, with every name an enemy can choose chosen badly; return its folder.

    Tensors beside those of Llama, keys and values of the config, tokens, the tokenizer's kind, the card, names of files and
    of the folder hold what is in `HOSTILE`.
    """
    layers, width = 3, 64
    rng = np.random.default_rng([seed, 7])
    place = folder / "<script>alert(1)<&'\" {{7*7}} \u202eledom"
    place.mkdir(parents=True)
    weights = _llama(layers, width, rng)
    for number, text in enumerate(HOSTILE):
        weights[text] = rng.standard_normal(8).astype(np.float32)
        weights[f"model.layers.{number % layers}.{text}.weight"] = rng.standard_normal(8).astype(np.float32)
    files = ("model-<img src=x onerror=alert(1)>-1.safetensors", "model-\u202e{{7*7}}\U0001f9ec-2.safetensors")
    parts: dict[str, dict[str, NDArray[np.float32]]] = {file: {} for file in files}
    for number, (name, values) in enumerate(weights.items()):
        parts[files[number % 2]][name] = values
    for file, part in parts.items():
        write_dense(place / file, {name: spec_of(values, "BF16") for name, values in part.items()})
    places = {name: file for file, part in parts.items() for name in part}
    _write(place / "model.safetensors.index.json", {"metadata": {}, "weight_map": places})
    odd = {f"key {text}"[:4000]: text for text in HOSTILE}
    _write(place / "config.json", _config(layers, width) | odd | {"nested": odd})
    tokens = {text: number for number, text in enumerate(HOSTILE)}
    _write(place / "tokenizer.json", _tokenizer(tokens, kind=HOSTILE[1]))
    (place / "README.md").write_text(_card(), encoding="utf-8")
    return place


def _write(path: Path, data: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(data), encoding="utf-8")


def _card() -> str:
    bases = "".join(f"- {json.dumps(text)}\n" for text in HOSTILE if text != LONG)
    return f"---\nlicense: {json.dumps(HOSTILE[0])}\nbase_model:\n{bases}base_model_relation: {json.dumps(HOSTILE[1])}\n---\n"


# -- reports -------------------------------------------------------------------------------------------------------------


def hostile_text(text: str) -> str:
    """Return `text` behind something hostile; the same text always gets the same, so that keys still match."""
    return f"{HOSTILE[zlib.crc32(text.encode()) % len(HOSTILE)]} {text}"


def hostile_report(report: Report, *, everything: bool = False) -> Report:
    """Return the report with something hostile in every string that is not a word of the program.

    Parameters
    ----------
    report
        Any report.
    everything
        Also in names of roles, metrics and methods, which no model can choose, but whoever edits a report's JSON can.
    """
    keep = _OUR_WORDS if everything else _OUR_WORDS | _KEYS
    return cast(Report, _poisoned(report, keep))


def _poisoned(value: object, keep: frozenset[str]) -> object:
    if isinstance(value, PMethod):
        return value  # nothing else is read
    if isinstance(value, Text):
        return Text.of(hostile_text(value), {})
    if isinstance(value, str):
        return hostile_text(value)
    if isinstance(value, tuple):
        return tuple(_poisoned(item, keep) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        chosen = {
            item.name: _poisoned(getattr(value, item.name), keep) for item in fields(value) if item.name not in keep
        }
        return replace(value, **chosen)
    return value


def wide_report(folder: Path, layers: int = 48, width: int = 64, *, metrics: tuple[str, ...] = ()) -> Report:
    """Return the report of `wide_models`, of few rows. With all metrics some 15 s go into the nulls of 7,000 figures."""
    a, b = wide_models(folder, layers, width)
    return compare(str(a), str(b), Options(rows=8, metrics=metrics), settings=Settings())


def empty_report(folder: Path | None = None) -> Report:
    """Return the report of two models that share no role: not one tensor can be compared."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="kinprint-empty-") as made:
            return empty_report(Path(made))
    rng = np.random.default_rng(3)
    norm = {"model.norm.weight": np.exp(rng.standard_normal(48)).astype(np.float32)}
    other = {"conv.0.kernel": _matrix(rng, (8, 8)), "conv.1.kernel": _matrix(rng, (8, 8))}
    for name, weights in (("only-a-norm", norm), ("only-convolutions", other)):
        write_checkpoint(folder / name, weights, {})
    return compare(str(folder / "only-a-norm"), str(folder / "only-convolutions"), Options(), settings=Settings())


def untestable_report(folder: Path) -> Report:
    """Return the report of two models of unlike widths, without a token in common."""
    for name, width, token in (("narrow", 32, "the"), ("broad", 64, "le")):
        weights = _llama(2, width, np.random.default_rng(width))
        write_checkpoint(folder / name, weights, _config(2, width), dtype="BF16", tokenizer=_tokenizer({token: 0}))
    return compare(str(folder / "narrow"), str(folder / "broad"), Options(), settings=Settings())


# -- all pairs of several models -----------------------------------------------------------------------------------------


def pairs_report(names: tuple[str, str, str] = ("base", "child", "other"), *, log10_p: float = -50.0) -> PairsReport:
    """Return a report on three models, of which the first two are related with this p-value."""
    facts = [ModelFacts(name, f"owner/{name}", f"owner/{name}", "c" * 40, "llama", 4, 0, 1000) for name in names]
    near = {"attn_v": 0.1, "mlp_up": 0.1, "mlp_down": 0.1}
    related = PairFacts(0, 1, DERIVED, "fine_tuned", verbatim("A sentence."), log10_p, near)
    apart = [PairFacts(a, b, NO_EVIDENCE, None, verbatim("None."), p) for a, b, p in ((0, 2, 0.0), (1, 2, -0.2))]
    pairs = [related, *apart]
    tree = infer_tree(facts, pairs)
    found = tuple(corrected(_pair(pair), tree.settings.pairs) for pair in pairs)
    return PairsReport(PairsReport.SCHEMA, SCHEMA_VERSION, clusters_of(tree), found, tree)


def _pair(facts: PairFacts) -> PairSummary:
    silent = Declaration((), None, None, ())
    declared = Text("The weights are related, and neither card declares it.")
    said = DeclaredFinding(UNDECLARED, declared, silent, silent)
    return PairSummary(
        a=facts.a,
        b=facts.b,
        class_=facts.found,
        kind=facts.kind,
        sentence=facts.sentence,
        log10_p=facts.log10_p,
        log10_p_pairs=None,
        significant=False,
        norm_cosine=0.99,
        norm_cosine_null=0.99,
        components=(ComponentFinding("mlp", "shared", 4, 4, -9.0),),
        declared=said if facts.found == DERIVED else None,
        against=(Text("the tests are symmetric: they do not say which of the two came first"),),
        untested=(),
        controls_passed=2,
        controls_run=2,
        bytes_read=1000,
    )
