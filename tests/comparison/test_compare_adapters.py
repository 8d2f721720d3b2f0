"""Adapters through the whole pipeline: made at random, and made of what LoRA training really changed."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from kinprint.comparison.pipeline import compare
from kinprint.errors import KinprintError
from kinprint.formats.checkpoint import open_checkpoint
from kinprint.formats.plan import whole
from kinprint.model.inspection import inspect
from kinprint.results.options import Options
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from support.adapter_files import lora_names, write_adapter
from support.places import FAMILY_MODELS

FAMILY = FAMILY_MODELS
QUICK = Options(metrics=("byte_identity",))


def everything(folder):
    with Session(Settings()) as session:
        found = open_checkpoint(str(folder), session)
        names = sorted(found.tensors)
        return dict(zip(names, found.read([whole(found.tensors[name]) for name in names]), strict=True))


@pytest.fixture(scope="module")
def weights(demo_folder):
    return everything(demo_folder / "base")


@pytest.fixture(scope="module")
def made(demo_folder, weights, tmp_path_factory):
    """Write a random adapter of the demo's base, once for each rank and choice of targets."""
    root = tmp_path_factory.mktemp("adapters")

    def write(rank, targets, *, seed=0, size=0.05, base=demo_folder / "base", name=None):
        rng = np.random.default_rng([seed, rank])
        tensors = {}
        for name_, values in weights.items():
            path = name_.removesuffix(".weight")
            if path.endswith(targets):
                down, up = (
                    size * rng.standard_normal(shape) for shape in ((rank, values.shape[1]), (values.shape[0], rank))
                )
                tensors |= lora_names(path, down.astype(np.float32), up.astype(np.float32))
        folder = root / (name or f"{rank}-{seed}-{'-'.join(targets)}")
        return str(write_adapter(folder, tensors, base=base, r=rank, lora_alpha=2 * rank))

    return write


ATTENTION = ("q_proj", "v_proj")
LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@pytest.mark.parametrize(("rank", "targets"), [(2, ATTENTION), (4, ATTENTION), (8, LINEAR)])
def test_base_and_adapter(rank, targets, made, demo_folder, checked):
    base, adapter = str(demo_folder / "base"), made(rank, targets)
    report = compare(base, adapter, QUICK, settings=Settings())
    checked(report, base, adapter)
    assert (report.verdict.class_, report.verdict.kind) == ("derived", "lora_merged")
    assert f"(rank {rank})" in report.verdict.sentence
    edits = {item.scope: (item.edit, item.rank) for item in report.evidence.edits}
    assert edits["attn_q"] == edits["attn_v"] == ("low_rank", rank)
    assert edits["mlp_up"] == (("low_rank", rank) if targets is LINEAR else ("identical", None))
    said = f"LoRA adapter: rank {rank}, alpha {2 * rank}, targets {', '.join(sorted(targets))} in 4 layers"
    assert report.b.notes[0] == f"{said}; merged into {base} (declared)"
    assert report.b.reference == adapter
    assert [file.name for file in report.b.files] == ["model.safetensors", "adapter_model.safetensors"]
    assert report.b.layers == 4
    assert report.b.unmapped == ()
    (note,) = report.notes
    assert note.startswith("B is an adapter merged into A itself: all that no adapter changes is equal by construction")


def test_the_other_way_round(made, demo_folder):
    report = compare(made(4, ATTENTION), str(demo_folder / "base"), QUICK, settings=Settings())
    assert (report.verdict.class_, report.verdict.kind) == ("derived", "lora_merged")
    assert report.notes[0].startswith("A is an adapter merged into B itself")


def test_two_adapters_of_one_base(made):
    report = compare(made(4, ATTENTION), made(2, LINEAR, seed=5), QUICK, settings=Settings())
    assert report.verdict.class_ == "derived"
    assert report.notes[0].startswith("A and B are adapters merged into the same base")


def test_an_adapter_and_itself(made):
    adapter = made(4, ATTENTION)
    report = compare(adapter, adapter, QUICK, settings=Settings())
    assert report.verdict.class_ == "identical"


@pytest.fixture(scope="module")
def distilled(weights, demo_folder, tmp_path_factory):
    """An adapter of rank 4 made of the difference between a model trained with LoRA, and merged, and its base."""
    trained = everything(FAMILY / "lora")
    tensors = {}
    for name, values in trained.items():
        change = values.astype(np.float64) - weights[name]
        if values.ndim == 2 and np.any(change):
            left, sizes, right = np.linalg.svd(change, full_matrices=False)
            root = np.sqrt(sizes[:4])
            down, up = root[:, None] * right[:4], left[:, :4] * root
            tensors |= lora_names(name.removesuffix(".weight"), down.astype(np.float32), up.astype(np.float32))
    folder = tmp_path_factory.mktemp("distilled")
    return str(write_adapter(folder, tensors, base=demo_folder / "base", r=4, lora_alpha=4)), trained


def test_what_training_changed(distilled, weights, demo_folder):
    folder, trained = distilled
    merged = everything(folder)
    assert merged.keys() == trained.keys()
    for name, values in trained.items():
        unit = np.abs(values).max() * 2.0**-8  # half a step of BF16 at most, and what its roundings add up to in rank 4
        assert np.abs(merged[name] - values).max() <= unit, name
        if np.array_equal(values, weights[name]):
            assert np.array_equal(merged[name], values)
    report = compare(str(demo_folder / "base"), folder, QUICK, settings=Settings())
    assert (report.verdict.class_, report.verdict.kind) == ("derived", "lora_merged")
    assert "(rank 4)" in report.verdict.sentence
    assert "targets down_proj, q_proj, up_proj, v_proj in 4 layers" in report.b.notes[0]


def test_the_adapter_and_the_model_it_was_merged_into(distilled):
    report = compare(str(FAMILY / "lora"), distilled[0], QUICK, settings=Settings())
    assert report.verdict.class_ == "derived"
    assert report.notes == ()  # that they share a base is what the evidence shows, not how they were opened


def test_an_unrelated_model(made, demo_folder):
    report = compare(str(demo_folder / "unrelated"), made(4, ATTENTION), QUICK, settings=Settings())
    assert report.verdict.class_ == "no_evidence"
    assert report.notes == ()


def test_a_base_that_is_given(made, demo_folder):
    """The adapter fits any model of its shape: what is found then is what was given, and the report says so."""
    adapter, other = made(4, ATTENTION), str(demo_folder / "unrelated")
    report = compare(other, adapter, QUICK, base=other, settings=Settings())
    assert report.settings.bases == (other,)
    assert report.verdict.class_ == "derived"
    assert report.b.notes[0].endswith(f"merged into {other} (given)")
    assert report.notes[0].startswith("B is an adapter merged into A itself")


def test_a_base_that_is_missing(made, demo_folder, tmp_path):
    adapter = made(4, ATTENTION, base=tmp_path / "gone", name="lost")
    with pytest.raises(KinprintError) as caught:
        compare(str(demo_folder / "base"), adapter, QUICK, settings=Settings())
    assert "a path that is not here" in caught.value.message
    assert "--base" in caught.value.hint
    found = inspect(adapter, settings=Settings())
    assert found.model.notes[0].startswith(
        "LoRA adapter: rank 4, alpha 8, targets q_proj, v_proj in 4 layers; its base,"
    )
    assert len(found.model.unmapped) == found.model.tensors == 16
    assert found.roles == found.norms == ()


def test_inspect_with_a_base(made, demo_folder):
    base = str(demo_folder / "base")
    merged = inspect(made(4, ATTENTION), base=base, settings=Settings())
    plain = inspect(base, settings=Settings())
    assert [(item.role, item.shape, item.tensors) for item in merged.roles] == [
        (item.role, item.shape, item.tensors) for item in plain.roles
    ]
    assert merged.norms == plain.norms
    assert merged.model.notes[0].endswith(f"merged into {base} (given)")


def test_a_tokenizer_of_its_own(made, demo_folder):
    adapter = Path(made(4, ATTENTION, name="spoken"))
    without = compare(str(demo_folder / "base"), str(adapter), QUICK, settings=Settings())
    assert without.tokenizer.identical_files  # the base's
    (adapter / "tokenizer.json").write_text('{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}}}')
    own = compare(str(demo_folder / "base"), str(adapter), QUICK, settings=Settings())
    assert own.tokenizer.tokens_b == 2


def test_a_small_budget(made, demo_folder, checked):
    base, adapter = str(demo_folder / "base"), made(8, LINEAR)
    report = compare(base, adapter, QUICK, settings=Settings(), budget_bytes=400_000)
    checked(report, base, adapter)
    assert report.bytes_read <= 400_000
    assert report.verdict.class_ == "derived"


def test_a_copy_of_the_base_elsewhere_is_not_the_base_itself(made, demo_folder, tmp_path):
    """Only the very same files are equal by construction; a copy is recognised by the evidence."""
    shutil.copytree(demo_folder / "base", tmp_path / "copy")
    report = compare(str(tmp_path / "copy"), made(4, ATTENTION), QUICK, settings=Settings())
    assert report.verdict.kind == "lora_merged"
    assert report.notes == ()
