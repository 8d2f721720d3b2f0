"""The toy experiment goes on from what a killed run has kept, to the same numbers, and from nothing else."""

import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from kinprint.sources.session import Session
from kinprint.studies import toy_init
from kinprint.studies.opened import Request
from kinprint.studies.recipe import run_study
from kinprint.studies.toy_init.experiment import FULL, NORMS, REDUCED, ToySetting
from kinprint.studies.toy_init.kept import Kept

torch = pytest.importorskip("torch")

from kinprint.studies.toy_init import training  # noqa: E402 - needs torch
from kinprint.studies.toy_init.training import initial_parameters, masks, train  # noqa: E402 - needs torch

# more rows than are taken at a time, and no whole number of them
TINY = ToySetting(layers=2, width=16, heads=2, vocabulary=32, positions=9, batch=9, steps=35, distinct_data=True)
KILLED = """
import os, pathlib, signal, sys
from kinprint.studies.toy_init.experiment import ToySetting
from kinprint.studies.toy_init.training import train

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def progress(name, done, total):
    if done == 27 and sys.argv[2] == "between":
        die()

replaces, path_replace = [], pathlib.Path.replace

def replace(path, target):
    replaces.append(path)
    if len(replaces) == 2 and sys.argv[2] == "writing":
        die()
    return path_replace(path, target)

pathlib.Path.replace = replace
train(eval(sys.argv[3]), "random-a", "random", stream=3, seed=30, folder=pathlib.Path(sys.argv[1]), progress=progress)
"""


def trained(setting=TINY, folder=None, **changes):
    seen = []
    asked = {"stream": 3, "seed": 30, "progress": lambda name, done, total: seen.append(done)} | changes
    return train(setting, "random-a", "random", folder=folder, **asked), seen


@pytest.fixture(scope="module")
def whole():
    return trained()[0]


def assert_equal(a, b):
    assert a.losses == b.losses
    for norm in NORMS:
        np.testing.assert_array_equal(a.norms[norm], b.norms[norm])
        np.testing.assert_array_equal(a.start[norm], b.start[norm])


def kept_file(folder):
    (found,) = (path for path in folder.iterdir() if not path.name.startswith("."))
    return found


def halted(folder, at=20, setting=TINY):
    class Halted(Exception):
        pass

    def progress(name, done, total):
        if done == at:
            raise Halted

    with pytest.raises(Halted):
        trained(setting, folder, progress=progress)
    return kept_file(folder)


@pytest.mark.parametrize(("when", "first"), [("between", 21), ("writing", 11)])
def test_a_killed_run_goes_on_to_the_same_numbers(when, first, tmp_path, whole):
    command = [sys.executable, "-c", KILLED, str(tmp_path), when, repr(TINY)]
    assert subprocess.run(command, check=False, timeout=300).returncode == -signal.SIGKILL
    model, seen = trained(folder=tmp_path)
    assert seen == list(range(first, TINY.steps + 1)), "from the last state that was whole"
    assert_equal(model, whole)
    assert "was used" in model.note


def test_a_finished_model_is_not_trained_again(tmp_path, whole):
    first, _ = trained(folder=tmp_path)
    assert first.note is None
    again, seen = trained(folder=tmp_path)
    assert not seen
    assert "was used" in again.note
    assert_equal(first, whole)
    assert_equal(again, whole)
    assert kept_file(tmp_path).stat().st_size < 10_000, "the state is gone"


@pytest.mark.parametrize(
    "changes", [{"learning_rate": 2e-3}, {"dropout": 0.2}, {"batch": 8}, {"steps": 36}, {"seeds": (1, 2, 3, 4)}]
)
def test_what_another_setting_kept_is_not_used(changes, tmp_path):
    name = halted(tmp_path).name
    other = replace(TINY, **changes)
    model, seen = trained(other, tmp_path)
    assert len(seen) == other.steps
    assert model.note == f"{name} is of other settings or versions, and was not used."
    assert (tmp_path / name).exists(), "nor removed"


@pytest.mark.parametrize("changes", [{"seed": 31}, {"stream": 4}])
def test_what_another_model_kept_is_not_used(changes, tmp_path):
    halted(tmp_path)
    assert len(trained(folder=tmp_path, **changes)[1]) == TINY.steps


def test_what_another_torch_kept_is_not_used(tmp_path, monkeypatch):
    halted(tmp_path)
    monkeypatch.setattr(torch, "__version__", "0.0")
    assert len(trained(folder=tmp_path)[1]) == TINY.steps


def renamed(raw, path, folder):
    other = folder / "other"
    return halted(other, setting=replace(TINY, learning_rate=2e-3)).read_bytes()


DAMAGE = {
    "empty": lambda raw, *_: b"",
    "cut": lambda raw, *_: raw[:-1],
    "cut in the header": lambda raw, *_: raw[:100],
    "longer": lambda raw, *_: raw + b"\0",
    "much longer": lambda raw, *_: raw + bytes(2_000_000),
    "header": lambda raw, *_: raw[:50] + bytes([raw[50] ^ 1]) + raw[51:],
    "size of the header": lambda raw, *_: b"\xff" * 8 + raw[8:],
    "a number": lambda raw, *_: raw[:-200] + bytes([raw[-200] ^ 1]) + raw[-199:],
    "no file of ours": lambda raw, *_: b"\x80\x04cos\nsystem\n(S'exit'\ntR.",
    "of another setting": renamed,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_damaged_is_not_used_and_said(damage, tmp_path, whole):
    path = halted(tmp_path / "kept")
    path.write_bytes(DAMAGE[damage](path.read_bytes(), path, tmp_path))
    model, seen = trained(folder=tmp_path / "kept")
    assert len(seen) == TINY.steps
    assert "was not used" in model.note
    assert_equal(model, whole)


def test_a_kept_file_is_a_safetensors_file(tmp_path):
    load = pytest.importorskip("safetensors.numpy").load_file
    state = load(halted(tmp_path))
    assert {f"h.1.ln_2.weight{end}" for end in ("", ".exp_avg", ".exp_avg_sq")} < set(state)
    assert np.count_nonzero(state["losses"]) == 20
    model, _ = trained(folder=tmp_path)
    result = load(kept_file(tmp_path))
    assert set(result) == {"sha256", "losses", *NORMS}
    np.testing.assert_array_equal(result["ln_1"], model.norms["ln_1"])


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Kept(None, "x", {}).write({"x": np.ones(3, np.float32)})
    assert not list(tmp_path.iterdir())


def test_rows_taken_in_turn_have_the_gradient_of_the_batch(monkeypatch):
    found = {}
    for rows in (4, 100):
        monkeypatch.setattr(training, "_ROWS", rows)
        parameters = {k: x.requires_grad_() for k, x in initial_parameters(TINY, "random", seed=1).items()}
        tokens = torch.from_numpy(training.chain_text(TINY, 1)(0))
        loss = training._backward(parameters, tokens, TINY, lambda x: x)
        found[rows] = (loss, [x.grad for x in parameters.values()])
    assert found[4][0] == pytest.approx(found[100][0], rel=1e-6)
    for a, b in zip(found[4][1], found[100][1], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_dropout_keeps_the_mean_at_the_rate_asked_for():
    x = torch.ones(1001, 999)
    dropped = masks(7, 3, 0.1)(x)
    values = sorted(set(dropped.flatten().tolist()))
    assert values[0] == 0
    assert values[1:] == pytest.approx([1 / 0.9], rel=1e-4)
    share = float((dropped == 0).double().mean())
    assert share == pytest.approx(0.1, abs=5 * 0.3 / 1000), "five standard errors"
    assert torch.equal(masks(7, 3, 0.1)(x), dropped)
    for other in (masks(7, 4, 0.1), masks(8, 3, 0.1)):
        both = float(((other(x) == 0) & (dropped == 0)).double().mean())
        assert both == pytest.approx(0.01, abs=5 * 0.1 / 1000), "independent"
    drop = masks(7, 3, 0.1)
    assert not torch.equal(drop(x), drop(x))
    assert torch.equal(masks(7, 3, 0.0)(x), x)


def test_the_second_part_has_a_smaller_batch_only_in_full():
    assert (FULL.batch, FULL.distinct().batch, REDUCED.distinct().batch) == (32, 2, 1)
    assert replace(FULL.distinct(), batch=32, distinct_data=False) == FULL


def test_the_study_keeps_what_it_has_done_in_its_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(toy_init, "FULL", replace(TINY, steps=3, distinct_data=False))

    def study():
        with Session() as session:
            return run_study("toy-init", session, request=Request(full=True), folder=tmp_path)

    first, again = study(), study()
    assert len(list((tmp_path / "training").iterdir())) == 8
    for a, b in zip(first.parts, again.parts, strict=True):
        assert [table.rows for table in a.section.tables] == [table.rows for table in b.section.tables]
        assert not any("was used" in note for note in a.section.notes)
        assert sum("was used" in note for note in b.section.notes) == 4
    assert any("its batch is 2 instead of 9" in note for note in first.parts[1].section.notes)
