"""Small models for the behaviour of studies, and one set of replicas that all workers share."""

import fcntl
import json
from pathlib import Path

import numpy as np
import pytest

from kinprint.lab.replicas import REPOS, write_replicas
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from kinprint.studies.opened import Request
from kinprint.studies.recipe import run_study
from support.hub import HubServer
from support.layouts import write_checkpoint

LAYERS, WIDTH = 6, 64


def tiny_tensors(seed, *, layers=LAYERS, width=WIDTH, post=True, like=None, noise=0.0):
    """Return norms, k and v of a Llama-layout model; `like` another one, with noise, if given."""
    rng = np.random.default_rng(seed)
    found = {"model.embed_tokens.weight": rng.standard_normal((50, width)).astype(np.float32)}
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        found[prefix + "input_layernorm.weight"] = (0.3 + 0.05 * layer + 0.05 * rng.standard_normal(width)).astype(
            np.float32
        )
        if post:
            found[prefix + "post_attention_layernorm.weight"] = (0.6 + 0.1 * rng.standard_normal(width)).astype(
                np.float32
            )
        for name, rows in (("q", 64), ("k", 32), ("v", 32)):
            found[f"{prefix}self_attn.{name}_proj.weight"] = (0.05 * rng.standard_normal((rows, width))).astype(
                np.float32
            )
    if like is not None:
        found = {name: (like[name] + noise * value).astype(np.float32) for name, value in found.items() if name in like}
    return found


def tiny_config(layers=LAYERS, width=WIDTH):
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "intermediate_size": 128,
        "vocab_size": 50,
    }


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory):
    """Folders by name: two independent models, a near copy of the first, one narrower, one without post norms, one shallower."""
    root = tmp_path_factory.mktemp("tiny")
    first = tiny_tensors(1)
    made = {
        "first": (first, tiny_config()),
        "second": (tiny_tensors(2), tiny_config()),
        "child": (tiny_tensors(3, like=first, noise=0.01), tiny_config()),
        "narrow": (tiny_tensors(4, width=48), tiny_config(width=48)),
        "nopost": (tiny_tensors(5, post=False), tiny_config()),
        "shallow": (tiny_tensors(6, layers=3), tiny_config(layers=3)),
    }
    for name, (tensors, config) in made.items():
        write_checkpoint(root / name, tensors, config=config)
    return {name: root / name for name in made}


@pytest.fixture
def run_tiny(tiny_models):
    """Run a study on some of the tiny models and return its outcome."""

    def run(study, *names, **request):
        chosen = tuple(f"{name}={tiny_models[name]}" for name in names)
        with Session(Settings(range_cache=None)) as session:
            return run_study(study, session, models=chosen, request=Request(**request))

    return run


@pytest.fixture(scope="session")
def replica_folders(tmp_path_factory):
    """Replicas of all studied models with everything the studies read, made once for all workers of a run."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if base.name.startswith("popen-") else base  # xdist gives each worker a folder of its own
    root = shared / "replicas"
    with (shared / "replicas.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = root / "done.json"
        if not done.exists():
            made = write_replicas(root)
            done.write_text(json.dumps({name: str(path) for name, path in made.items()}))
    return {name: Path(path) for name, path in json.loads(done.read_text()).items()}


@pytest.fixture(scope="session")
def run_on_replicas(replica_folders):
    """Run a study on the replicas, read through the local hub by their repositories' names, as a user reads the real ones."""
    done = {}

    def run(study):
        if study not in done:
            with HubServer() as server:
                for name, folder in replica_folders.items():
                    server.add_repo(REPOS[name], folder)
                with Session(Settings(endpoint=server.endpoint, range_cache=None)) as session:
                    done[study] = run_study(study, session, request=Request(replicas=True))
                run.bytes[study] = asked_for(server)
        return done[study]

    run.bytes = {}
    return run


def asked_for(server):
    """Return how many bytes of weights were asked for, and how many of them more than once."""
    spans = {}
    for request in server.requests:
        if request.range and request.body_bytes and request.file.endswith(".safetensors"):
            first, last = request.range.removeprefix("bytes=").split("-")
            spans.setdefault(request.path.partition("?")[0], []).append((int(first), int(last) + 1))
    total = twice = 0
    for ranges in spans.values():
        end = 0
        for start, stop in sorted(ranges):
            total += stop - start
            twice += max(0, min(stop, end) - start)
            end = max(end, stop)
    return total, twice
