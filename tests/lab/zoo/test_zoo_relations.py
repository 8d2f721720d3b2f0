"""Relations of the tiny zoo against what was done by hand, and of small families that are hard to get right."""

import subprocess
import sys
from itertools import combinations

import pytest

from kinprint.errors import BadReference, SchemaError
from kinprint.lab.zoo.members import COMPONENTS, NORM_PARTS, Edit, Link, ZooMember
from kinprint.lab.zoo.relations import KINDS, Record, Relations
from kinprint.lab.zoo.store import Zoo
from support.places import ROOT

FAMILY = ROOT / "tests" / "family"
EXPECTED = {
    ("base", "base"): "same",
    ("base", "finetune"): "derived",
    ("base", "child_of_child"): "derived",
    ("finetune", "child_of_child"): "derived",
    ("base", "rotated_tuned"): "derived",
    ("rotated_tuned", "permuted_tuned"): "siblings",
    ("finetune", "continued"): "siblings",
    ("base.rotation", "lora"): "siblings",
    ("base", "sibling"): "same_init",
    ("finetune", "sibling"): "same_init",
    ("base", "distilled_1"): "distilled",
    ("continued", "distilled_2"): "distilled",
    ("distilled_1", "distilled_2"): "distilled",
    ("sibling", "distilled_1"): "independent",
    ("base", "norms_copied"): "partial",
    ("finetune", "norms_copied"): "partial",
    ("norms_reset", "norms_copied"): "independent",
    ("revocab", "norms_copied"): "partial",
    ("base", "revocab"): "derived",
    ("revocab", "norms_reset"): "siblings",
    ("base", "twin"): "independent",
    ("base", "unrelated"): "independent",
    ("upcycled", "indep"): "independent",
    ("base", "base.linear-90"): "derived",
    ("indep", "base.linear-90"): "derived",
    ("indep.noise-20", "base.linear-90"): "siblings",
    ("twin", "base.linear-90"): "independent",
    # The hosts keep their own layers, and have embeddings or norms of the donor.
    ("indep", "indep.embeddings_of_base"): "derived",
    ("base", "indep.embeddings_of_base"): "partial",
    ("finetune", "indep.norms_of_base"): "partial",
    ("revocab", "indep.embeddings_of_base"): "independent",
    ("indep.embeddings_of_base", "indep.norms_of_base"): "siblings",
    # One has indep's upper half, the other its lower half: nothing of indep is in both.
    ("base.frankenmerge", "indep.frankenmerge"): "independent",
    ("base.passthrough", "indep.passthrough"): "siblings",
    ("base.frankenmerge", "indep"): "derived",
    ("base.ties-50", "child_of_child"): "siblings",
    ("base.ties-50", "continued"): "derived",
}


@pytest.fixture(scope="module")
def zoo():
    return Zoo.open(FAMILY)


@pytest.mark.parametrize(
    ("pair", "expected"), EXPECTED.items(), ids=lambda value: "-".join(value) if isinstance(value, tuple) else value
)
def test_pairs_judged_by_hand(zoo, pair, expected):
    assert zoo.relation(*pair) == expected
    assert zoo.relation(*reversed(pair)) == expected


def test_every_pair_has_one_relation_whatever_the_order(zoo):
    found = set()
    for a, b in combinations(zoo.members, 2):
        kind = zoo.relation(a, b)
        found.add(kind)
        assert kind == zoo.relation(b, a)
        shared = zoo.shared(a, b)
        assert (kind in ("derived", "siblings")) == bool(shared & {"lower", "upper"})
        if shared and not shared & {"lower", "upper"}:
            assert kind == "partial"
        if kind == "partial" and not shared:  # embeddings that started from the same numbers
            assert "sibling" in a + b or "base" in a + b
    assert found == set(KINDS) - {"same"}
    assert all(zoo.relation(name, name) == "same" for name in zoo.members)


def test_what_is_shared(zoo):
    assert zoo.shared("base", "finetune") == set(COMPONENTS)
    assert zoo.shared("finetune", "norms_copied") == set(NORM_PARTS)
    assert zoo.shared("base", "indep.embeddings_of_base") == {"embeddings"}
    assert zoo.shared("base", "twin") == set()
    with pytest.raises(BadReference, match="no member 'nobody'"):
        zoo.relation("base", "nobody")


def made(name, *links):
    return ZooMember(name, "derived" if links else "base", "x", Edit("copy"), links)


def test_what_a_child_does_not_hand_down_its_children_do_not_have():
    members = [
        made("a"),
        made("b"),
        made("stripped", Link("a", shares=("lower", "upper"))),
        made("host", Link("b", shares=("lower", "upper")), Link("stripped", shares=("embeddings",))),
        made("child", Link("host")),
    ]
    relations = Relations({member.name: member for member in members})
    assert relations.relation("host", "stripped") == "partial"
    assert relations.relation("child", "stripped") == "partial"
    # The embeddings of "stripped" are not those of a.
    assert relations.relation("child", "a") == "independent"
    assert relations.relation("child", "b") == "derived"


def test_the_committed_file_is_what_the_models_and_the_plan_give():
    script = [sys.executable, str(ROOT / "demo" / "make_zoo.py"), "--check"]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_a_record_survives_the_file_and_refuses_what_is_not_its_own(zoo):
    data = zoo.record.to_json()
    assert data == (FAMILY / "zoo.json").read_bytes()
    assert Record.from_json(data) == zoo.record
    for bad, message in (
        (b"{", "cannot be read"),
        (b"[]", "cannot be read"),
        (data.replace(b'"schema_version": 1', b'"schema_version": 2'), "version 2, this program knows 1"),
        (data.replace(b'"relative_sigma": 0.2', b'"relative_sigma": 0.3', 1), r"the key of \w+\.noise-20"),
        (data.replace(b'"tier": "tiny",', b""), "lacks something: 'tier'"),
        (data.replace(b'"name": "twin"', b'"name": "base"', 1), "two members called base"),
    ):
        with pytest.raises(SchemaError, match=message):
            Record.from_json(bad)
