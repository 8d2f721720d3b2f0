"""The judge of the fuzz tests can say no."""

import mmap
import time

import numpy as np
import pytest

from kinprint.errors import FormatError
from kinprint.formats.safetensors.writer import TensorSpec
from kinprint.lab.safetensors_files import write_dense
from support import campaign, fuzzing
from support.fuzzing import MemorySession, fuzz, spoil


def mutant(rng):
    return spoil(b"some file with 123 numbers", rng)


def refuse(raw):
    raise FormatError("no")


def test_refusals_are_counted():
    assert fuzz(refuse, mutant, seed=1, cases=40) == 40
    assert fuzz(len, mutant, seed=1, cases=40) == 0


def test_a_crash_is_told_with_its_case():
    def crash(raw):
        if b"\xff" in raw:
            raise IndexError("a bug")

    with pytest.raises(IndexError) as caught:
        fuzz(crash, mutant, seed=3, cases=5000)
    (note,) = caught.value.__notes__
    number = int(note.split("case ")[1].split(":")[0])
    assert note.startswith(f"seed 3, case {number}: a file of ")
    with pytest.raises(IndexError):
        fuzz(crash, mutant, seed=3, cases=1, first=number)


def test_a_hang_is_ended(monkeypatch):
    monkeypatch.setattr(fuzzing, "SECONDS", 0.2)
    slept = []
    with pytest.raises(fuzzing.Hang):
        fuzz(lambda raw: slept.append(time.sleep(30)), mutant, seed=1, cases=1)
    assert slept == []  # it did not wake by itself


def test_allocation_is_bounded():
    with pytest.raises(AssertionError, match="allocated"):
        fuzz(lambda raw: np.empty(3 << 20, np.uint8), mutant, seed=1, cases=1, room=2 << 20)
    fuzz(lambda raw: np.empty(1 << 20, np.uint8), mutant, seed=1, cases=1, room=2 << 20)


@pytest.mark.skipif(not fuzzing.Path("/proc/self/clear_refs").exists(), reason="the system does not tell its peak")
def test_memory_in_use_is_bounded_in_every_case(monkeypatch):
    monkeypatch.setattr(fuzzing, "ROOM", 4 << 20)

    def large(raw):
        with mmap.mmap(-1, 16 << 20) as new:  # never from what a heap still holds
            new.write(bytes(16 << 20))

    with pytest.raises(AssertionError, match="more were in use"):
        fuzz(large, mutant, seed=1, cases=2, first=1, room=1 << 20)
    assert sum(count for (_, kind), count in campaign.COUNTS.items() if kind == "failed") == 1


def test_spoilt_bytes_differ_and_do_not_depend_on_anything_else():
    sound = bytes(range(256))
    first = [spoil(sound, fuzzing.Random(n), words=[b"word"]) for n in range(300)]
    assert first == [spoil(sound, fuzzing.Random(n), words=[b"word"]) for n in range(300)]
    assert len(set(first)) > 250
    assert sum(each == sound for each in first) < 30
    assert any(len(each) < 200 for each in first)
    header = [spoil(sound, fuzzing.Random(n), stop=20, cut=0) for n in range(300)]
    assert all(each.endswith(sound[100:]) for each in header)


def test_files_in_memory_are_a_model(tmp_path):
    write_dense(tmp_path / "m.safetensors", {"w": TensorSpec("F32", (2, 3), np.ones((2, 3), np.float32))})
    files = {"model.safetensors": (tmp_path / "m.safetensors").read_bytes()}
    with MemorySession() as session:
        assert session.read_everything(files) == 24
        with pytest.raises(FormatError):
            session.read_everything({"model.safetensors": b"x"})
