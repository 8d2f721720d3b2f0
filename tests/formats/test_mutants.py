"""Mutated headers of every format through `inspect`: each is described, or refused with a message, within memory and time."""

import importlib
import pkgutil
import tempfile
from functools import cache
from pathlib import Path

import pytest

from kinprint.model.inspection import inspect
from support import contract
from support.adapter_files import HIDDEN, PATHS, factors, lora_names, write_adapter
from support.contract import little_model
from support.fuzzing import IN_MEMORY, MemorySession, Pieces, fuzz, spoil

CASES, PARTS = 100_000, 20
NEAR = 3000  # bytes from either end, where most headers and directories are
WORDS = [b"[]", b"{}", b"-1", b"null", b'"', b"1e999", b'"shape":[0]', b'"data_offsets":[0,0]', b"model.layers.0."]
WORDS += [
    b"PK\1\2",
    b"PK\3\4",
    b"\xff" * 8,
    b"\0" * 8,
    b"\xff\xff\xff\xff\x0f",
    b"GGUF",
    b"(",
    b"R",
    b"ctorch\nFloatStorage\n",
]


def _adapter(folder):
    every = [lora_names(path, *factors(path, out, HIDDEN, 4)) for path, out in PATHS.items()]
    write_adapter(folder, {name: values for pair in every for name, values in pair.items()}, r=4, base="owner/base")


def _makers(file):
    made = importlib.import_module(f"support.contract.{file}").MAKERS
    return {
        name: lambda folder, m=m: m.write(folder, little_model.little_model(), dict(little_model.CONFIG))
        for name, m in made.items()
    }


FILES = sorted(found.name for found in pkgutil.iter_modules(contract.__path__) if found.name.startswith("make_"))
FORMATS = {file.removeprefix("make_"): _makers(file) for file in FILES} | {"adapters": {"LoRA": _adapter}}
FORMATS["quantised safetensors"] = FORMATS.pop("quantised")


@cache
def written(kind, name):
    """Return the files of the little model in a format."""
    with tempfile.TemporaryDirectory() as folder:
        FORMATS[kind][name](Path(folder))
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def mutants(kind, first, cases, most=None):
    """Describe as many mutants of a format, of at most so many variants; return how many were refused."""
    files, variants = {}, list(FORMATS[kind])[:most]

    def mutant(rng):
        files.clear()
        files.update(written(kind, rng.choice(variants)))
        small = [name for name in files if name.endswith(".json")]
        chosen = rng.choice(small) if small and rng.random() < 0.15 else rng.choice(sorted(files.keys() - small))
        raw, where = memoryview(files[chosen]), rng.random()
        at = 0 if where < 0.5 else max(0, len(raw) - NEAR) if where < 0.8 else rng.randrange(len(raw))
        rest = raw[at + NEAR :] if rng.random() < 0.95 else b""
        files[chosen] = Pieces(raw[:at], spoil(bytes(raw[at : at + NEAR]), rng, words=WORDS, most=3), rest)
        return files[chosen]

    for name in variants:
        written(kind, name)  # before memory is judged
    with MemorySession() as session:
        session.put(files)
        part = f"mutated headers through inspect: {kind}"
        return fuzz(lambda _: inspect(IN_MEMORY, session=session), mutant, seed=7, first=first, cases=cases, part=part)


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORMATS)
def test_a_sample_of_mutants(kind):
    assert 2 < mutants(kind, CASES, 25, most=1) < 25


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("kind", FORMATS)
def test_mutants(kind, part):
    cases = CASES // PARTS
    assert 0.1 * cases < mutants(kind, part * cases, cases) < cases


@pytest.mark.parametrize("kind", FORMATS)
def test_what_is_mutated_is_sound(kind):
    with MemorySession() as session:
        for name in list(FORMATS[kind])[:1]:
            session.put(written(kind, name))
            assert inspect(IN_MEMORY, session=session).model.parameters > 1000
