"""What a build keeps and what it would train, without training anything: torch is not needed here."""

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kinprint.errors import BadSetting, NeedsExtra, NotFound, StorageError
from kinprint.lab.zoo import build as building
from kinprint.lab.zoo.build import build, store_member
from kinprint.lab.zoo.members import Edit, Link, Loaded, Training, ZooMember, keys_of
from kinprint.lab.zoo.store import Zoo

CONFIG = {"vocab_size": 3, "num_hidden_layers": 0}
HOW = Training(("manual-even",), steps=10, learning_rate=1e-3, data_seed=1, init_seed=1)
PLAN = (
    ZooMember("a", "base", "base", HOW),
    ZooMember("b", "base", "base", replace(HOW, init_seed=2)),
    ZooMember("a.noisy", "derived", "noise", Edit("noise", {"relative_sigma": 0.1}), (Link("a"),), seed=1),
    ZooMember("a.noisy.tuned", "derived", "tuned", replace(HOW, init_seed=None), (Link("a.noisy"),)),
    ZooMember("d", "distilled", "distilled", replace(HOW, init_seed=3), (Link("b", kind="outputs"),)),
)


def model(seed):
    rng = np.random.default_rng(seed)
    state = {
        name: rng.standard_normal((3, 4)).astype(np.float32) for name in ("model.embed_tokens.weight", "lm_head.weight")
    }
    return Loaded(state, CONFIG, {"model": {"vocab": {"a": 0}}})


def fill(folder, plan=PLAN):
    """Store every trained member as a worker would."""
    keys = keys_of({member.name: member for member in plan})
    for number, member in enumerate(plan):
        if isinstance(member.how, Training):
            store_member(folder, member.name, keys[member.name], model(number), {"final_loss_nats": 1.0})


@pytest.fixture
def trainings(monkeypatch):
    """Instead of training, note what would be trained and store something in its place."""
    seen = []

    def pretend(tasks, folder, members, *, workers, progress):
        seen.append({task.name: set(task.waits_for) for task in tasks})
        for task in tasks:
            store_member(folder, task.name, task.key, model(len(task.name)), {})

    monkeypatch.setattr(building, "run_tasks", pretend)
    monkeypatch.setattr(building, "_need_torch", lambda: None)
    return seen


def test_all_is_trained_once_each_after_what_it_comes_from(tmp_path, trainings):
    zoo = build(tmp_path, plan=PLAN)
    assert trainings == [{"a": set(), "b": set(), "a.noisy.tuned": {"a"}, "d": {"b"}}]
    data = (tmp_path / "zoo.json").read_bytes()
    build(tmp_path, plan=PLAN)
    assert len(trainings) == 1
    assert (tmp_path / "zoo.json").read_bytes() == data
    again = Zoo.open(tmp_path)
    again.verify()
    assert list(again.members) == [member.name for member in PLAN] == list(zoo.members)
    assert again.relation("a", "a.noisy.tuned") == "derived"
    assert again.load("a.noisy").state.keys() == zoo.load("a").state.keys()


def test_a_changed_entry_trains_what_depends_on_it(tmp_path, trainings):
    fill(tmp_path)
    build(tmp_path, plan=PLAN)
    assert trainings == []
    louder = replace(PLAN[2], how=Edit("noise", {"relative_sigma": 0.2}))
    build(tmp_path, plan=(*PLAN[:2], louder, *PLAN[3:]))
    longer = replace(PLAN[1], how=replace(HOW, init_seed=2, steps=11))
    build(tmp_path, plan=(PLAN[0], longer, louder, *PLAN[3:]))
    renamed = replace(longer, attack="another name", strength=2.0)
    build(tmp_path, plan=(PLAN[0], renamed, louder, *PLAN[3:]))
    assert trainings == [{"a.noisy.tuned": set()}, {"b": set(), "d": {"b"}}]


def test_what_is_damaged_or_half_written_is_trained_again(tmp_path, trainings):
    fill(tmp_path)
    weights = tmp_path / "models" / "a" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    (tmp_path / "models" / "b" / "tokenizer.json").unlink()
    (tmp_path / "models" / "d" / "member.json").write_text("{")
    (tmp_path / "models" / ".a.noisy.tuned.new").mkdir()
    build(tmp_path, plan=PLAN)
    assert trainings == [{"a": set(), "b": set(), "d": {"b"}}]


def test_what_was_measured_is_in_the_record(tmp_path):
    fill(tmp_path)
    build(tmp_path, plan=PLAN)
    entries = {entry["name"]: entry for entry in json.loads((tmp_path / "zoo.json").read_text())["members"]}
    assert entries["a"]["measured"]["final_loss_nats"] == 1.0
    assert {"python", "numpy"} <= entries["a"]["measured"]["versions"].keys()
    assert "stored" not in entries["a.noisy"]
    assert entries["d"]["stored"]["folder"] == "models/d"


def test_without_torch_only_a_finished_zoo_can_be_had(tmp_path, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in ("torch", "tokenizers") else found(name)
    )
    with pytest.raises(NeedsExtra, match=r"training the zoo needs the extra 'torch'"):
        build(tmp_path, plan=PLAN)
    fill(tmp_path)
    assert len(build(tmp_path, plan=PLAN).members) == len(PLAN)


def test_settings_that_make_no_sense_are_refused(tmp_path):
    with pytest.raises(BadSetting, match="no tier 'huge'"):
        build(tmp_path, tier="huge")
    with pytest.raises(BadSetting, match="at least one worker"):
        build(tmp_path, workers=0)
    (tmp_path / "file").write_text("")
    fill(tmp_path / "zoo")
    (tmp_path / "zoo" / "zoo.json").mkdir()
    with pytest.raises(StorageError, match=r"cannot write .*zoo\.json"):
        build(tmp_path / "zoo", plan=PLAN)


def test_a_member_that_vanishes_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(building, "run_tasks", lambda *_, **__: None)
    monkeypatch.setattr(building, "_need_torch", lambda: None)
    with pytest.raises(NotFound, match="a was trained and is not in"):
        build(tmp_path, plan=PLAN)
    assert not Path(tmp_path / "zoo.json").exists()
