"""A small comparison and its bundles, made once; and a forger who changes a bundle and seals it again."""

import zipfile
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import orjson
import pytest

from kinprint.bundle import verifying, write_bundle
from kinprint.bundle.conclusion import CheckState
from kinprint.bundle.container import open_container
from kinprint.bundle.members import (
    MANIFEST,
    RANGES,
    README,
    REPORT,
    SOURCES,
    BundleMember,
    evidence_digest,
    read_manifest,
    read_sources,
)
from kinprint.bundle.rereading import enclosed_bytes
from kinprint.bundle.writing import readme
from kinprint.comparison.pipeline import compare
from kinprint.results.options import Options
from kinprint.sources.ledger import Ledger
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from support.layouts import write_checkpoint

WIDTH, LAYERS = 128, 4
NORMS = Options(roles=("input_norm", "post_attention_norm"), metrics=("cosine", "pearson"))
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 192,
    "vocab_size": 400,
}


def small_tensors(seed: int, noise: float = 0.0) -> dict[str, np.ndarray]:
    """Norms, which are all that the fast comparisons read, and one matrix."""
    rng, more = np.random.default_rng(seed), np.random.default_rng(seed + 100)
    tensors = {}
    for layer in range(LAYERS):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            values = np.exp(0.3 * rng.standard_normal(WIDTH)) + noise * more.standard_normal(WIDTH)
            tensors[f"model.layers.{layer}.{norm}.weight"] = values.astype(np.float32)
    tensors["model.embed_tokens.weight"] = rng.standard_normal((400, WIDTH)).astype(np.float32)
    return tensors


def write_small(folder: Path, seed: int, noise: float = 0.0, **more) -> Path:
    write_checkpoint(folder, small_tensors(seed, noise), CONFIG, **more)
    return folder


def run_and_bundle(target: Path, a, b, *, enclose=True, options=NORMS, settings=None, **chosen):
    """Compare, bundle, and return the report."""
    settings = settings or Settings()
    with Ledger(keep=enclose) as ledger:
        with Session(settings, ledger=ledger) as run:
            report = compare(a, b, options, session=run, **{"budget_bytes": None, **chosen})
        write_bundle(target, report, ledger, enclose=enclose, null=report.settings.null)
    return report


@pytest.fixture(scope="session")
def bundler() -> Callable:
    return run_and_bundle


@pytest.fixture(scope="session")
def small_model() -> Callable[..., Path]:
    return write_small


@pytest.fixture(scope="session")
def fast_options() -> Options:
    return NORMS


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Two related models, and a bundle with bytes and one without. Not to be changed."""
    root = tmp_path_factory.mktemp("bundles")
    a, b = write_small(root / "a", 1), write_small(root / "b", 1, 0.02)
    report = run_and_bundle(root / "full.zip", a, b)
    run_and_bundle(root / "lean.zip", a, b, enclose=False)
    return type("Made", (), {"a": a, "b": b, "full": root / "full.zip", "lean": root / "lean.zip", "report": report})


def forge(source: Path, target: Path, change: Callable[[dict[str, bytes]], None], *, seal: bool = True) -> Path:
    """Copy a bundle with changed members; with `seal`, as one who knows how all digests are made."""
    with zipfile.ZipFile(source) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    forge_members(members, target, seal=seal)
    return target


def forge_members(members: dict[str, bytes], target: Path, *, seal: bool = True, software=None) -> None:
    """Write members as a bundle, with all digests as they have to be."""
    if seal:
        manifest = read_manifest(members[MANIFEST])
        listed = [
            BundleMember(name, len(data), sha256(data).hexdigest())
            for name, data in sorted(members.items())
            if name != MANIFEST
        ]
        evidence = evidence_digest(members[REPORT], members[SOURCES], members[RANGES])
        manifest = replace(manifest, software=software or manifest.software)
        members[MANIFEST] = replace(manifest, members=tuple(listed), evidence=evidence).sealed().to_json()
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in members.items():
            stored = name.startswith("bytes/")
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED)


@pytest.fixture
def forged(tmp_path):
    def make(source: Path, change, *, seal=True) -> Path:
        return forge(source, tmp_path / "forged.zip", change, seal=seal)

    return make


def replayed(members: dict[str, bytes], folder: Path) -> None:
    """Make the report that follows from a forged record: what the best of forgers would put in."""
    target = folder / "draft.zip"
    forge_members(members, target)
    with open_container(target) as container:
        state = CheckState(offline=True)
        contents = verifying._check_container(container, state)
        found = enclosed_bytes(container, contents.sources)
        report, _, _ = verifying._replay(contents, found)
    data = orjson.loads(report.to_json())
    data["settings"]["null"] = contents.report.settings.null
    members[REPORT] = orjson.dumps(data, option=orjson.OPT_INDENT_2) + b"\n"


@pytest.fixture
def forged_well(tmp_path):
    """Forge the record of a bundle, compute the report that goes with it, write the README anew, and seal it all."""

    def make(source: Path, change, *, name="forged.zip", software=None) -> Path:
        with zipfile.ZipFile(source) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        data = orjson.loads(members[SOURCES])
        change(data, members)
        members[SOURCES] = orjson.dumps(data, option=orjson.OPT_INDENT_2) + b"\n"
        sources = read_sources(members[SOURCES], members[RANGES])
        members[README] = readme(sources.record, bool(sources.enclosed)).encode()
        replayed(members, tmp_path)
        forge_members(members, tmp_path / name, software=software)
        return tmp_path / name

    return make
