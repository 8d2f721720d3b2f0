"""The zoo's trainer: the numpy forward pass is torch's, builds are resumable and repeatable, and workers end."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kinprint.errors import KinprintError
from kinprint.lab.zoo import derive, forward
from kinprint.lab.zoo.build import build
from kinprint.lab.zoo.members import Edit, Link, Training, ZooMember
from kinprint.lab.zoo.store import Zoo, hashes_of
from support.places import ROOT

torch = pytest.importorskip("torch")

from tokenizers import Tokenizer  # noqa: E402 - comes with torch's extra

from kinprint.lab.zoo.corpus import read_corpora  # noqa: E402
from kinprint.lab.zoo.tinylm import Recipe, TinyLlama, TinyShape, token_loss, tokenise, train, train_tokenizer  # noqa: E402
from kinprint.lab.zoo.tinymore import MixtralShape, TinyMixtral, hidden_loss  # noqa: E402 - needs torch
from kinprint.lab.zoo.training import model_of, state_of  # noqa: E402 - needs torch

SMALL = {"layers": 2, "hidden": 32, "heads": 2, "kv_heads": 1, "ffn": 40, "vocab": 300}
# Of the first four steps from seed 101, read off the trainer that made demo/models/base.
EXPECTED_LOSSES = [6.254206, 6.092279, 5.895233, 5.727748]
HOW = Training(("manual-even",), 6, 4e-3, data_seed=1, init_seed=1, tokenizer=("manual-even",), shape=SMALL, batch=2)
PLAN = (
    ZooMember("a", "base", "base", HOW),
    ZooMember("b", "base", "base", replace(HOW, init_seed=2)),
    ZooMember("d", "distilled", "distilled", replace(HOW, init_seed=3), (Link("a", kind="outputs"),)),
    ZooMember("a.rotation", "derived", "rotation", Edit("rotate_residual"), (Link("a"),), seed=1),
    ZooMember("a.rotation.tuned", "derived", "tuned", Training(("manual-odd",), 4, 1e-3, 5), (Link("a.rotation"),)),
    ZooMember("a.lora", "derived", "lora", Training(("manual-odd",), 4, 1e-2, 5, lora_rank=2), (Link("a"),)),
)


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    calls = []
    built = build(tmp_path_factory.mktemp("zoo"), plan=PLAN, progress=lambda *call: calls.append(call))
    total = sum(member.how.steps for member in PLAN if isinstance(member.how, Training))
    assert calls[-1] == ("train", total, total)
    assert [done for _, done, _ in calls] == sorted(done for _, done, _ in calls)
    return built


@pytest.mark.parametrize("tied_to", ["llama", "mixtral"])
def test_the_numpy_forward_pass_is_that_of_torch(tied_to):
    shape = TinyShape(layers=2) if tied_to == "llama" else MixtralShape(layers=2)
    model = (TinyLlama if tied_to == "llama" else TinyMixtral)(shape).double()
    model.initialise(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel()))
    ids = np.random.default_rng(1).integers(0, 512, 40)
    state = {name: value.numpy() for name, value in model.state_dict().items()}
    with torch.no_grad():
        expected = model(torch.from_numpy(ids)[None])[0].numpy()
    np.testing.assert_allclose(forward.logits(state, shape.config(), ids), expected, rtol=0, atol=1e-10)


def test_a_rotated_model_is_the_same_function_to_torch_too():
    state, config, _ = derive.load_state(ROOT / "demo" / "models" / "base")
    wide = {name: value.astype(np.float64) for name, value in state.items()}
    rotated, changed = derive.all_symmetries(wide, config, 3)
    ids = torch.arange(5, 60)[None]
    with torch.no_grad():
        models = [model_of(*pair).double() for pair in ((wide, config), (rotated, changed))]
        for model, values in zip(models, (wide, rotated), strict=True):
            model.load_state_dict({name: torch.from_numpy(value) for name, value in values.items()})
        first, second = (model(ids) for model in models)
    assert float((first - second).abs().max()) < 1e-10


def test_a_built_zoo_opens_and_its_models_have_learnt(zoo):
    again = Zoo.open(zoo.folder)
    again.verify()
    for name, measured in again.record.measured.items():
        assert measured["final_loss_nats"] < measured["loss_before_nats"], name
        assert torch.__version__.startswith(measured["versions"]["torch"])  # a package may not name its build
    base, lora = (again.load(name).state for name in ("a", "a.lora"))
    touched = {name.split(".")[-2] for name in base if not np.array_equal(base[name], lora[name])}
    assert touched == {"q_proj", "v_proj", "up_proj", "down_proj"}
    assert again.load("a.rotation.tuned").tokenizer == again.load("a").tokenizer
    start, end = (
        again.load(name).state["model.layers.0.mlp.up_proj.weight"] for name in ("a.rotation", "a.rotation.tuned")
    )
    assert 0.9 < np.corrcoef(start.ravel(), end.ravel())[0, 1] < 1


@pytest.mark.nightly
def test_another_build_with_another_number_of_workers_gives_the_same_bytes(zoo, tmp_path):
    other = build(tmp_path, plan=PLAN, workers=1)
    assert other.record == zoo.record
    assert (tmp_path / "zoo.json").read_bytes() == (zoo.folder / "zoo.json").read_bytes()


@pytest.mark.nightly
def test_a_second_build_trains_nothing_and_a_changed_plan_only_what_depends(zoo):
    calls = []
    build(zoo.folder, plan=PLAN, progress=lambda *call: calls.append(call))
    assert calls == []
    before = {name: hashes_of(zoo.folder / "models" / name, ["model.safetensors"]) for name in zoo.record.stored}
    turned = replace(PLAN[3], seed=2)
    build(zoo.folder, plan=(*PLAN[:3], turned, *PLAN[4:]), progress=lambda *call: calls.append(call))
    assert calls[-1] == ("train", 4, 4)
    after = {name: hashes_of(zoo.folder / "models" / name, ["model.safetensors"]) for name in zoo.record.stored}
    assert {name for name in before if before[name] != after[name]} == {"a.rotation.tuned"}
    build(zoo.folder, plan=PLAN)


@pytest.mark.nightly
def test_a_worker_that_fails_is_named_and_the_others_end(tmp_path, capfd):
    bad = replace(PLAN[0], how=replace(HOW, corpora=("no such corpus",)))
    with pytest.raises(KinprintError, match="ended while training a"):
        build(tmp_path, plan=(bad, PLAN[1]))
    assert "no such corpus" in capfd.readouterr().err
    assert not (tmp_path / "zoo.json").exists()


def children_of(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("how", [pytest.param(signal.SIGINT, marks=pytest.mark.nightly), signal.SIGKILL])
def test_workers_end_with_the_build(tmp_path, how):
    """An interrupt ends them at once; if the build is killed, they find nobody to report to."""
    script = f"""
from dataclasses import replace
from kinprint.lab.zoo.build import build
from kinprint.lab.zoo.members import ZooMember, Training
how = Training(("docstrings-nz",), 100_000, 1e-3, 1, init_seed=1, shape={SMALL!r}, batch=2)
if __name__ == "__main__":
    plan = [ZooMember(name, "base", "base", replace(how, init_seed=seed)) for name, seed in (("a", 1), ("b", 2))]
    build({str(tmp_path)!r}, plan=plan, progress=lambda *call: print(call, flush=True))
"""
    file = tmp_path / "script.py"
    file.write_text(script)
    process = subprocess.Popen([sys.executable, str(file)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    workers = []
    try:
        assert process.stdout.readline().startswith(b"('train'")
        workers = children_of(process.pid)
        assert len(workers) >= 2
        process.send_signal(how)
        process.wait(timeout=60)
        deadline = time.monotonic() + 60
        while any(alive(pid) for pid in workers) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert [pid for pid in workers if alive(pid)] == []
        assert not (tmp_path / "zoo.json").exists()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        for pid in workers:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)


def test_pruned_and_extended_tokenizers_are_ones_that_tokenizers_reads():
    state, config, tokenizer = derive.load_state(ROOT / "demo" / "models" / "base")
    text = "def déjà(vu):\n    return 'spam' * 2"
    whole = Tokenizer.from_str(json.dumps(tokenizer))
    _, changed, cut = derive.prune_vocabulary(state, config, tokenizer, 300, 1)
    small = Tokenizer.from_str(json.dumps(cut))
    assert small.get_vocab_size() == changed["vocab_size"] == 300
    assert small.decode(small.encode(text).ids) == text == whole.decode(whole.encode(text).ids)
    assert len(small.encode(text).ids) > len(whole.encode(text).ids)
    _, changed, longer = derive.extend_vocabulary(state, config, tokenizer, 7, 1)
    big = Tokenizer.from_str(json.dumps(longer))
    assert big.get_vocab_size() == changed["vocab_size"]
    assert big.encode("<|extra_3|>").ids == [512 + 3]
    assert big.encode(text).ids == whole.encode(text).ids


def test_training_is_what_it_was_when_the_bundled_models_were_made():
    """A few steps of the demo's recipe; the digits are those of the trainer as it was before it moved here."""
    torch.set_num_threads(1)
    documents = read_corpora(("manual-even", "docstrings-am"))
    tokenizer = train_tokenizer(documents, 512)
    bundled = json.loads((ROOT / "demo" / "models" / "base" / "tokenizer.json").read_text(encoding="utf-8"))
    if json.loads(tokenizer.to_str()) != bundled:
        pytest.skip("this Python ships other text than the one the bundled models were trained with")
    model = TinyLlama(TinyShape())
    model.initialise(101)
    losses = []
    recipe = Recipe(steps=4, learning_rate=4e-3, data_seed=102)
    train(model, tokenise(documents, tokenizer), recipe, report=lambda _, loss: losses.append(loss))
    assert losses == pytest.approx(EXPECTED_LOSSES, abs=1e-4)
    assert state_of(model)["model.norm.weight"].std() > 0


def test_the_loss_on_hidden_states_is_that_of_the_text_for_the_teacher_itself_and_more_for_others():
    teacher, student = TinyLlama(TinyShape(layers=2)), TinyLlama(TinyShape(layers=3))
    teacher.initialise(1)
    student.initialise(2)
    rows = torch.randint(512, (2, 9), generator=torch.Generator().manual_seed(3))
    loss = hidden_loss(teacher)
    with torch.no_grad():
        assert float(loss(teacher, rows)) == pytest.approx(float(token_loss(teacher, rows)))
        assert float(loss(student, rows)) > float(token_loss(student, rows)) + 1.0  # embeddings and states are unlike
    loss(student, rows).backward()
    assert student.model.layers[2].mlp.up_proj.weight.grad.abs().max() > 0
