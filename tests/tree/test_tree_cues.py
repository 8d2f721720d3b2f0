"""Hints at direction: each reads the same from either end, and points from the parent to the child it was made of."""

from dataclasses import replace
from itertools import combinations

import pytest

from kinprint.comparison.pipeline import compare
from kinprint.results.findings import EditFinding
from kinprint.results.models import TokenizerDifference
from kinprint.results.options import Options
from kinprint.tree.cues import FAINT, LEANING, STRONG, cues_of
from kinprint.tree.driver import METRICS, build_tree
from kinprint.tree.facts import ModelFacts, pair_facts
from kinprint.tree.model_samples import kurtosis

PLAIN = ModelFacts(name="x")


@pytest.fixture(scope="module")
def report(short):
    return compare(str(short / "base"), str(short / "finetune"), Options(metrics=METRICS))


def edit(name, reasons=(), **more):
    found = EditFinding("mlp_up", name, 3, 0, 0.9, None, 1.0, 0.95, 0.3, 0.0, 0.0)
    return replace(found, reasons=tuple(reasons), **more)


def strengths(report, a=PLAIN, b=PLAIN):
    return {cue.name: cue.strength for cue in cues_of(report, a, b)}


def with_edits(report, *edits):
    return replace(report, evidence=replace(report.evidence, edits=edits))


def test_a_fine_tune_gives_no_hint(report):
    assert strengths(report) == {}
    facts = pair_facts(report, 0, 1)
    assert facts.found == "derived"
    assert len(facts.distances) == 6
    assert set(facts.carried) == {"embedding", "head", "norms"}


@pytest.mark.parametrize(("direction", "expected"), [("forward", STRONG), ("backward", -STRONG)])
def test_the_one_on_a_grid_is_the_child(report, direction, expected):
    assert strengths(with_edits(report, edit("quantised", direction=direction))) == {"quantised": expected}


def test_two_quantised_copies_say_nothing(report):
    both = edit("quantised", ("stored as Q8_0 and as Q4_K", "0.01 of their size apart"), direction=None)
    assert strengths(with_edits(report, both)) == {}
    assert (
        strengths(with_edits(report, edit("quantised", direction="forward"), edit("quantised", direction="backward")))
        == {}
    )


@pytest.mark.parametrize(("zeros", "expected"), [((0.0, 0.5), STRONG), ((0.5, 0.0), -STRONG)])
def test_the_one_with_more_zeros_is_the_child(report, zeros, expected):
    made = edit("pruned", zeros_a=zeros[0], zeros_b=zeros[1], direction="forward" if expected > 0 else "backward")
    assert strengths(with_edits(report, made)) == {"zeros": expected}


def test_two_that_were_pruned_or_rounded_may_both_come_from_an_unseen_model(report):
    """No direction was found in the weights: the one with fewer zeros has some of its own, or the grid of neither is enough."""
    sparse = edit("pruned", zeros_a=0.2, zeros_b=0.5, direction=None)
    assert strengths(with_edits(report, sparse)) == {"zeros": 0.0}
    coarse = edit("quantised", zeros_b=0.1, direction=None)
    assert strengths(with_edits(report, coarse)) == {"zeros": 0.0}


def test_hints_against_each_other_speak_of_siblings(report):
    """The one on a grid has layers that the other has not: each was made of something that the other is not."""
    deeper = replace(report, a=replace(report.a, layers=3))
    found = strengths(with_edits(deeper, edit("quantised", direction="backward")))
    assert found == {"quantised": 0.0, "dropped layers": 0.0}


def test_an_unseen_ancestor_leaves_hints_and_no_arrow(report):
    """Zeros, a grid or more tokens beside other changes: such a child of the parent of both has them too."""
    for name, more in (("zeros", {"zeros_b": 0.5}), ("quantised", {"direction": "forward"})):
        kind = "quantised" if name == "quantised" else "pruned"
        (cue,) = cues_of(with_edits(report, edit(kind, **more), edit("changed")), PLAIN, PLAIN)
        assert (cue.name, cue.strength) == (name, 0.0)
        assert cue.says.endswith("children of one unseen ancestor would look the same")
    words = TokenizerDifference("ok", None, tokens_a=1000, tokens_b=1010, tokens_common=1000, same_id=1000, jaccard=0.9)
    assert strengths(replace(report, tokenizer=words)) == {"vocabulary growth": 0.0}


def test_a_few_zeros_say_nothing(report):
    assert strengths(with_edits(report, edit("changed", zeros_a=0.01, zeros_b=0.04))) == {}


def test_a_low_rank_difference_is_named_and_has_no_direction(report):
    (cue,) = cues_of(with_edits(report, edit("low_rank", rank=8)), PLAIN, PLAIN)
    assert (cue.name, cue.strength) == ("low-rank difference", 0.0)
    assert "rank 8" in cue.says


@pytest.mark.parametrize(
    ("sizes", "common", "same", "expected"),
    [
        ((1000, 1010), 1000, 1000, LEANING),
        ((1010, 1000), 1000, 1000, -LEANING),
        ((1000, 3000), 1000, 1000, FAINT),  # as likely the larger one cut
        ((1000, 1010), 990, 990, None),
        ((1000, 1010), 1000, 700, None),  # numbered anew
        ((1000, 1000), 1000, 1000, None),
    ],
)
def test_a_vocabulary_grows_from_parent_to_child(report, sizes, common, same, expected):
    words = TokenizerDifference(
        "ok", None, tokens_a=sizes[0], tokens_b=sizes[1], tokens_common=common, same_id=same, jaccard=0.9
    )
    found = strengths(with_edits(replace(report, tokenizer=words), edit("identical")))
    assert found == ({} if expected is None else {"vocabulary growth": expected})


def test_kurtosis_is_faint_and_needs_most_matrices(report):
    heavy = ModelFacts(name="A", kurtosis={str(n): 4.0 for n in range(8)})
    light = ModelFacts(name="B", kurtosis={str(n): 3.0 for n in range(8)})
    mixed = ModelFacts(name="B", kurtosis={str(n): 3.0 + 2.0 * (n % 2) for n in range(8)})
    assert strengths(report, heavy, light) == {"kurtosis": FAINT}
    assert strengths(report, light, heavy) == {"kurtosis": -FAINT}
    assert strengths(report, heavy, mixed) == {"kurtosis": 0.0}
    assert strengths(report, heavy, heavy) == {}


def test_kurtosis_of_known_shapes():
    import numpy as np

    rng = np.random.default_rng(0)
    assert kurtosis(rng.standard_normal((400, 400))) == pytest.approx(3.0, abs=0.05)
    assert kurtosis(np.array([[1.0, -1.0], [1.0, -1.0]])) == pytest.approx(1.0)
    assert kurtosis(np.ones((3, 3))) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parent", "child", "cue"),
    [
        ("base", "quantised", "quantised"),
        ("base", "pruned", "zeros"),
        ("wide", "cast", "cast"),
        ("base", "repeated", "repeated layers"),
        ("base", "experts", "experts of a dense model"),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_a_child_made_by_construction_is_found_to_be_one(short, parent, child, cue, turned):
    order = [parent, child][:: -1 if turned else 1]
    tree = build_tree([str(short / name) for name in order])
    (edge,) = tree.edges
    assert edge.direction == "forward"
    assert (order[edge.parent], order[edge.child]) == (parent, child)
    assert edge.cues[0].name == cue
    assert 0.8 <= edge.probability <= 0.97


@pytest.mark.slow
def test_of_a_part_and_a_whole_both_may_be_parts_of_an_unseen_model(short):
    (edge,) = build_tree([str(short / name) for name in ("deep", "base")]).edges
    assert edge.direction == "undirected"
    assert edge.cues[0].name == "dropped layers"
    assert 0.6 < edge.probability < 0.8


SIBLINGS = ("quantised", "coarse", "pruned", "sparser", "repeated", "longer", "first", "narrow", "experts", "lora")
SAMPLE = {("pruned", "sparser"), ("quantised", "coarse"), ("repeated", "longer"), ("repeated", "narrow")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("one", "two"),
    [
        pytest.param(*p, marks=() if set(p) in map(set, SAMPLE) else pytest.mark.nightly)
        for p in combinations(SIBLINGS, 2)
    ],
)
def test_siblings_of_an_absent_parent_get_no_arrow(short, one, two):
    """All were made of base, which is not given: of the one, nothing but base explains the other."""
    tree = build_tree([str(short / one), str(short / two)])
    assert {edge.direction for edge in tree.edges} <= {"undirected"}


@pytest.mark.slow
def test_a_merged_lora_is_named_and_left_undirected(short):
    (edge,) = build_tree([str(short / name) for name in ("base", "lora")]).edges
    assert edge.kind == "lora_merged"
    assert edge.direction == "undirected"
    assert any(cue.name == "low-rank difference" for cue in edge.cues)
