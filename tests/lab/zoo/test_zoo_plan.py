"""The plans say what the zoo is meant to hold, and every entry can be made."""

import json
from collections import Counter, defaultdict
from dataclasses import replace

import pytest

from kinprint.errors import SchemaError
from kinprint.lab.zoo.corpus import CORPORA
from kinprint.lab.zoo.edits import EDITS
from kinprint.lab.zoo.members import Bundled, Edit, Link, Training, ZooMember, keys_of
from kinprint.lab.zoo.plan import BASES, FULL, TUNED, ordered
from kinprint.lab.zoo.tiny import BUNDLED, TINY

NUMPY_ATTACKS = {
    *("sign_flips", "rotation", "neuron_scaling", "value_scaling", "value_mixing", "rotary_turns", "all_symmetries"),
    *("neuron_permutation", "head_permutation", "residual_permutation", "permutation"),
    *("noise", "quantised", "pruned", "low_rank", "cast", "embeddings_drawn"),
    *("depth_up", "layer_drop", "width_pruned", "vocabulary_pruned", "vocabulary_extended"),
}
MERGES = {"linear", "slerp", "frankenmerge", "passthrough", "embeddings_transplant", "norms_transplant"}
TRAINED = {
    *("finetune", "continued", "lora", "rotation+finetune", "permutation+finetune", "all_symmetries+finetune"),
    *("depth_up+train", "finetune+finetune"),
}


def attacks_by_base(members):
    """Which attacks were tried on each base, followed down from children to the base they come from."""
    roots, found = {}, defaultdict(set)
    for member in members:
        roots[member.name] = roots[member.parents[0]] if member.parents else member.name
        found[roots[member.name]].add(member.attack)
    return found


@pytest.mark.parametrize("plan", [FULL, TINY], ids=["full", "tiny"])
def test_every_entry_has_a_name_of_its_own_comes_after_its_parents_and_can_be_made(plan):
    members = {member.name: member for member in plan}
    assert len(members) == len(plan)
    keys = keys_of(members)
    assert len(set(keys.values())) == len(plan)
    for member in plan:
        if isinstance(member.how, Edit):
            assert member.how.function in EDITS
            assert member.links
        elif isinstance(member.how, Training):
            assert set(member.how.corpora) <= CORPORA.keys()
            assert member.parents or member.how.init_seed is not None
        assert ZooMember.from_dict(json.loads(json.dumps(member.to_dict()))) == member


def test_the_bases_of_the_full_zoo():
    named = {member.name: member for member in BASES}
    assert len(named) >= 8
    alike = [
        m
        for m in BASES
        if m.how.corpora == named["a0"].how.corpora and m.relation == "base" and m.how.shape == {"layers": 6}
    ]
    assert len({member.how.init_seed for member in alike}) == 3
    tokenizers = {member.how.tokenizer for member in BASES}
    assert len(tokenizers) == 3
    assert named["s0"].how.init_seed == named["a0"].how.init_seed
    assert named["s0"].how.corpora != named["a0"].how.corpora
    assert named["d0"].teacher == "a0"
    assert named["d0"].parents == ()
    fresh = [member.how.init_seed for member in BASES if member.name != "s0"]
    assert len(set(fresh)) == len(fresh)
    assert len({member.how.data_seed for member in BASES}) == len(BASES)


def test_the_full_zoo_tries_every_attack_on_enough_bases():
    tried = attacks_by_base(FULL)
    assert set(tried) == {member.name for member in BASES}
    for attack in NUMPY_ATTACKS:
        assert sum(attack in found for found in tried.values()) == len(BASES), attack
    for attack in MERGES:
        assert sum(attack in found for found in tried.values()) >= 6, attack
    for attack in TRAINED | {"ties", "dare"}:
        assert {base for base, found in tried.items() if attack in found} == set(TUNED), attack
    assert len(TUNED) >= 3
    assert len(FULL) > 300
    strengths = Counter(
        (m.parents[0].split(".")[0], m.attack) for m in FULL if isinstance(m.how, Training) and m.parents
    )
    assert strengths["a0", "rotation+finetune"] == strengths["a0", "permutation+finetune"] == 3


def test_training_the_full_zoo_fits_its_time():
    """One process alone did 15 steps a second of the common shape; two that slow each other to 8 do 30,000 in 31 minutes."""
    cost = 0.0
    for member in FULL:
        if isinstance(member.how, Training):
            wide = 1.5 if member.how.shape.get("hidden", 96) > 96 else 1.0
            deep = 4 / 3 if ".depth_up." in member.name else 1.0
            taught = 1.35 if member.teacher else 1.0
            cost += member.how.steps * wide * deep * taught
    assert cost < 30_000


def test_the_tiny_zoo_bundles_every_hard_case_and_trains_nothing():
    assert {type(member.how) for member in TINY} == {Bundled, Edit}
    assert {"same_init", "distilled", "transplant", "merged", "base", "derived"} == {m.relation for m in TINY}
    assert {member.attack for member in TINY} >= NUMPY_ATTACKS | MERGES | {
        "rotation+finetune",
        "finetune+finetune",
        "ties",
    }
    assert {"rotated_tuned", "permuted_tuned", "child_of_child"} <= {member.name for member in BUNDLED}


def test_a_key_changes_with_what_decides_the_weights_and_with_nothing_else():
    members = {member.name: member for member in FULL}
    before = keys_of(members)

    def changed(name, **changes):
        after = keys_of(members | {name: replace(members[name], **changes)})
        return {key for key in before if before[key] != after[key]}

    assert changed("a0", attack="another name", strength=3.0, relation="derived") == set()
    moved = changed("c0", how=replace(members["c0"].how, steps=801))
    assert {"c0", "c0.rotation", "c0.rotation.finetune-light", "b1.linear-50"} <= moved
    assert not {"a0", "b1", "b1.noise-20", "a0.rotation"} & moved
    # The student of a0 depends on it, and the model with a0's initial weights does not: it has a seed of its own.
    moved = changed("a0", how=replace(members["a0"].how, steps=801))
    assert "d0" in moved
    assert "s0" not in moved


def test_entries_that_make_no_sense_are_refused():
    with pytest.raises(SchemaError, match="kind 'blood'"):
        Link("a0", kind="blood")
    with pytest.raises(SchemaError, match="shares tail"):
        Link("a0", shares=("tail",))
    with pytest.raises(SchemaError, match="relation 'cousin'"):
        ZooMember("x", "cousin", "x", Edit("copy"))
    child = ZooMember("x", "derived", "x", Edit("copy"), (Link("y"),))
    with pytest.raises(SchemaError, match="x comes from y, which does not come before it"):
        keys_of({"x": child})
    with pytest.raises(ValueError, match="nothing to make x from: y"):
        ordered([child], [])
    for entry in ({}, FULL[0].to_dict() | {"surplus": 1}, FULL[0].to_dict() | {"how": {"kind": "magic"}}):
        with pytest.raises(SchemaError, match="not a member"):
            ZooMember.from_dict(entry)
