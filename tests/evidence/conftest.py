"""Small models for the evidence engine: the demo's, children made of them, synthetic ones; each comparison is made once."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from kinprint.comparison.pipeline import compare
from kinprint.evidence.assess import assess
from kinprint.evidence.controls import able_tests, own_controls
from kinprint.evidence.facts import Facts
from kinprint.evidence.power import power_of
from kinprint.evidence.probe import Probe
from kinprint.evidence.verdict import decide
from kinprint.lab.zoo.derive import load_state, save_state
from kinprint.results.findings import Verdict
from kinprint.results.options import Options
from kinprint.results.report import Report
from kinprint.sources.settings import Settings
from support.places import DEMO_MODELS, FAMILY_MODELS
from support.probes import probe_from_state

DEMO = DEMO_MODELS


def llama(
    seed: int, *, hidden=64, layers=3, heads=4, kv_heads=2, neurons=96, vocab=160, spread=0.3
) -> tuple[dict[str, np.ndarray], dict[str, Any], dict[str, Any]]:
    """Return a synthetic Llama with log-normal norms and Gaussian matrices: state, config and tokenizer."""
    rng = np.random.default_rng(seed)
    head_dim = hidden // heads

    def matrix(rows, columns):
        return (0.02 * rng.standard_normal((rows, columns))).astype(np.float32)

    def norm():
        return np.exp(spread * rng.standard_normal(hidden)).astype(np.float32)

    state = {"model.embed_tokens.weight": matrix(vocab, hidden)}
    for layer in range(layers):
        at = f"model.layers.{layer}."
        state |= {
            f"{at}input_layernorm.weight": norm(),
            f"{at}post_attention_layernorm.weight": norm(),
            f"{at}self_attn.q_proj.weight": matrix(heads * head_dim, hidden),
            f"{at}self_attn.k_proj.weight": matrix(kv_heads * head_dim, hidden),
            f"{at}self_attn.v_proj.weight": matrix(kv_heads * head_dim, hidden),
            f"{at}self_attn.o_proj.weight": matrix(hidden, heads * head_dim),
            f"{at}mlp.gate_proj.weight": matrix(neurons, hidden),
            f"{at}mlp.up_proj.weight": matrix(neurons, hidden),
            f"{at}mlp.down_proj.weight": matrix(hidden, neurons),
        }
    state |= {"model.norm.weight": norm(), "lm_head.weight": matrix(vocab, hidden)}
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "head_dim": head_dim,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": neurons,
        "vocab_size": vocab,
        "tie_word_embeddings": False,
    }
    tokenizer = {"model": {"type": "BPE", "vocab": {f"t{number}": number for number in range(vocab)}, "merges": []}}
    return state, config, tokenizer


@pytest.fixture(scope="session")
def small() -> Callable[..., Any]:
    """Build a synthetic Llama by its seed; models of different seeds are independent."""
    return llama


@pytest.fixture(scope="session")
def demo() -> Callable[[str], Any]:
    """Return state, config and tokenizer of a demo model."""
    return cache(lambda name: load_state(DEMO / name))


@pytest.fixture(scope="session")
def demo_probe(demo) -> Callable[[str], Probe]:
    """Return what would be read of a demo model, in memory."""

    @cache
    def probe(name: str) -> Probe:
        state, config, _ = demo(name)
        return probe_from_state(state, config, label=name)

    return probe


@pytest.fixture(scope="session")
def trained_probe() -> Callable[[str], Probe]:
    """Return what would be read of a model of the demo or of the trained family, in memory."""

    @cache
    def probe(name: str) -> Probe:
        root = DEMO if (DEMO / name).exists() else FAMILY_MODELS
        state, config, _ = load_state(root / name)
        return probe_from_state(state, config, label=name)

    return probe


@pytest.fixture(scope="session")
def folder(tmp_path_factory, demo) -> Callable[..., str]:
    """Write a model once and return its folder; without a state, return the demo model's own folder."""
    root = tmp_path_factory.mktemp("models")
    written: set[str] = set()

    def write(name: str, state=None, config=None, tokenizer=None, dtype="BF16") -> str:
        if state is None:
            return str(DEMO / name)
        assert name not in written
        written.add(name)
        save_state(root / name, state, config, tokenizer, dtype)
        return str(root / name)

    return write


@pytest.fixture(scope="session")
def judge() -> Callable[..., Report]:
    """Compare two folders, once for each question, measuring as little as can be beside the evidence."""

    @cache
    def report(a: str, b: str, **chosen) -> Report:
        return compare(a, b, Options(metrics=("byte_identity",)), **chosen, settings=Settings())

    return report


@pytest.fixture(scope="session")
def weigh() -> Callable[[Probe, Probe], tuple[Verdict, Facts]]:
    """Return the verdict on two probes as `examine` would reach it if it could read nothing more."""
    controls: dict[int, Any] = {}

    def verdict(a: Probe, b: Probe) -> tuple[Verdict, Facts]:
        if id(a) not in controls:
            controls[id(a)] = (a, own_controls(a, seed=0))  # the probe too: its id must not be given to another
        own, _ = controls[id(a)][1]
        found = assess(a, b)
        power = power_of(found)
        facts = replace(found.facts, controls=own, power=power, able=able_tests((a, b), power, seed=0))
        return decide(facts), facts

    return verdict
