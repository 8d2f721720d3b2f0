"""Small models whose lineage is known, and the command in this process."""

import os
import sys
from dataclasses import dataclass

import pytest

from kinprint.cli import main
from kinprint.lab.zoo.derive import (
    drop_layers,
    load_state,
    low_rank,
    merge,
    prune,
    prune_neurons,
    quantise,
    save_state,
    stack_layers,
    upcycle,
)
from support.places import ROOT

DEMO = ROOT / "demo" / "models"
FAMILY = ROOT / "tests" / "family"
KEPT = ("PATH", "LANG", "LD_LIBRARY_PATH", "VIRTUAL_ENV")


@dataclass
class Done:
    code: int
    out: str
    err: str


@pytest.fixture
def command(tmp_path, monkeypatch, capsysbinary):
    """Run `kinprint tree` in this process, with nothing of this machine's own settings."""

    def run(*arguments) -> Done:
        with monkeypatch.context() as patch:
            for name in list(os.environ):
                if name not in KEPT and not name.startswith("PYTEST"):
                    patch.delenv(name)
            patch.setenv("HOME", str(tmp_path))
            patch.setenv("KINPRINT_CACHE", str(tmp_path / "ranges"))
            patch.setenv("OPENBLAS_NUM_THREADS", "1")
            patch.setattr(sys, "argv", ["kinprint", "tree", *map(str, arguments)])
            with pytest.raises(SystemExit) as ended:
                main.run()
        out, error = capsysbinary.readouterr()
        return Done(ended.value.code, out.decode(), error.decode())

    return run


@pytest.fixture(scope="session")
def short(tmp_path_factory):
    """Two layers each of the demo's base, its fine-tune and a stranger, and children made of them, by name."""
    root = tmp_path_factory.mktemp("short")
    states = {}
    for name in ("base", "finetune", "unrelated"):
        state, config, tokenizer = load_state(DEMO / name)
        states[name], small = drop_layers(state, config, (0, 2))
        save_state(root / name, states[name], small, tokenizer)
    base, tokenizer = states["base"], load_state(DEMO / "base")[2]
    made = {
        "quantised": quantise(base, 4),
        "pruned": prune(base, 0.5),
        "sparser": prune(base, 0.2),
        "coarse": quantise(base, 8),
        "lora": low_rank(base, 4, 0.2, seed=3),
        "merged": merge([base, states["finetune"]], [0.4, 0.6]),
        "blended": merge([base, states["unrelated"]], [0.6, 0.4]),
    }
    for name, state in made.items():
        save_state(root / name, state, small, tokenizer)
    save_state(root / "wide", low_rank(base, 4, 0.1, seed=4), small, tokenizer, dtype="F32")
    save_state(root / "cast", load_state(root / "wide")[0], small, tokenizer, dtype="BF16")
    save_state(root / "copy", base, small, tokenizer)
    for name, (state, other) in {
        "repeated": stack_layers(base, small, (0, 1, 0, 1)),
        "longer": stack_layers(base, small, (0, 0, 1, 1, 1)),
        "first": drop_layers(base, small, (0,)),
        "narrow": prune_neurons(base, small, 200, 5),
        "experts": upcycle(base, small, 2, 0.05, seed=5),
        "deep": drop_layers(*load_state(DEMO / "base")[:2], (0, 1, 2)),
    }.items():
        save_state(root / name, state, other, tokenizer)
    more = {**tokenizer, "model": {**tokenizer["model"], "vocab": dict(tokenizer["model"]["vocab"])}}
    more["added_tokens"] = [*more.get("added_tokens", []), {"id": 512, "content": "<|im_start|>"}]
    save_state(root / "worded", low_rank(base, 4, 0.1, seed=6), small, more)
    return root
