"""The command in a process of its own, with an environment of its own."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from kinprint.cli import main
from support.hub import HubServer
from support.layouts import write_checkpoint
from support.places import DEMO_MODELS

DEMO = DEMO_MODELS
KEPT = ("PATH", "PYTHONPATH", "SYSTEMROOT", "LANG", "LD_LIBRARY_PATH", "VIRTUAL_ENV")


@dataclass
class Done:
    code: int
    out: str
    err: str


@pytest.fixture
def environment(tmp_path):
    """Nothing of this machine's own settings; caches below tmp_path."""
    home = tmp_path / "home"
    home.mkdir()
    env = {name: os.environ[name] for name in KEPT if name in os.environ}
    return env | {
        "HOME": str(home),
        "KINPRINT_CACHE": str(tmp_path / "ranges"),
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONWARNINGS": "error",
        "PYTHONUTF8": "1",
    }


@pytest.fixture
def command():
    return [sys.executable, "-m", "kinprint"]


@pytest.fixture
def kinprint(environment, command):
    def run(*arguments, env=None, **more) -> Done:
        done = subprocess.run(
            [*command, *map(str, arguments)],
            env=environment | (env or {}),
            stdout=more.pop("stdout", subprocess.PIPE),
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            timeout=60,
            **more,
        )
        return Done(done.returncode, (done.stdout or b"").decode(), done.stderr.decode())

    return run


@pytest.fixture
def inside(environment, monkeypatch, capsysbinary):
    """Run the command in this process, which saves its start; otherwise as `kinprint` does."""

    def run(*arguments, env=None) -> Done:
        with monkeypatch.context() as patch:
            for name, value in (environment | (env or {})).items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", ["kinprint", *map(str, arguments)])
            with pytest.raises(SystemExit) as ended:
                main.run()
        out, error = capsysbinary.readouterr()
        return Done(ended.value.code, out.decode(), error.decode())

    return run


@pytest.fixture(scope="session")
def demo() -> Path:
    return DEMO


@pytest.fixture
def demo_hub():
    with HubServer(token="hf_right") as server:
        server.add_repo("demo/base", DEMO / "base")
        server.add_repo("demo/finetune", DEMO / "finetune")
        server.add_repo("demo/gated", DEMO / "base", gated=True)
        yield server


@pytest.fixture
def narrow(tmp_path):
    """A Llama of another width than the demo's."""
    rng = np.random.default_rng(1)
    tensors = {f"model.layers.{i}.input_layernorm.weight": rng.random(48).astype(np.float32) for i in range(4)}
    config = {"model_type": "llama", "hidden_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4}
    write_checkpoint(tmp_path / "narrow", tensors, config)
    return tmp_path / "narrow"
