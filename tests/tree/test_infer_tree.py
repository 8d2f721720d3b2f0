"""The tree from made-up facts whose lineage is known."""

import math
from dataclasses import replace

import numpy as np
import pytest

from kinprint.results.tree import BACKWARD, FORWARD, UNDIRECTED, Cue, FamilyTree
from kinprint.tree.cues import FAINT, LEANING, STRONG, names_same, reversed_cue
from kinprint.tree.distances import Lengths, bend
from kinprint.tree.facts import ModelFacts, PairFacts, log_distance
from kinprint.tree.infer import infer_tree
from kinprint.tree.merges import Mix, find_mixes
from kinprint.tree.orientation import DIRECTED_AT, FAINTER, HUB, SUREST, direction, probability

ROLES = ("attn_q", "attn_v", "attn_o", "mlp_up", "mlp_down")


def models(count):
    return [ModelFacts(name=f"m{number}", reference=f"owner/m{number}", layers=4) for number in range(count)]


def pair(a, b, distance, cues=(), **more):
    """A derived pair whose roles scatter a little around a distance."""
    around = np.random.default_rng([a, b]).normal(1.0, 0.03, len(ROLES))
    facts = {
        "found": "derived",
        "kind": "fine_tuned",
        "log10_p": -100.0,
        "distances": {role: distance * float(x) for role, x in zip(ROLES, around, strict=True)},
    }
    return PairFacts(a=a, b=b, cues=tuple(cues), **{**facts, **more})


def unrelated(a, b, found="no_evidence", log10_p=0.0):
    return PairFacts(a=a, b=b, found=found, log10_p=log10_p)


def lineage(steps, cues=None):
    """All pairs of a family given as child: (parent, length); distances add up along paths."""
    count = len(steps) + 1
    pairs = []
    for a in range(count):
        for b in range(a + 1, count):
            length = apart(steps, a, b)
            pairs.append(pair(a, b, length, (cues or {}).get((a, b), ())))
    return pairs


def apart(steps, a, b):
    """Length of the path between two members."""
    up = {a: 0.0}
    node, total = a, 0.0
    while node in steps:
        node, step = steps[node]
        total += step
        up[node] = total
    node, total = b, 0.0
    while node not in up:
        node, step = steps[node]
        total += step
    return total + up[node]


def neighbours(tree):
    return {frozenset((edge.parent, edge.child)) for edge in tree.edges}


def cue(strength, name="repeated layers"):
    return Cue(name, "structure", strength, "because")


def edge_of(tree, one, two):
    return next(edge for edge in tree.edges if {edge.parent, edge.child} == {one, two})


def runs(tree, one, two):
    """How the edge of two models runs, seen from the first."""
    edge = edge_of(tree, one, two)
    if edge.parent == one or edge.direction == UNDIRECTED:
        return edge.direction
    return {FORWARD: BACKWARD, BACKWARD: FORWARD}[edge.direction]


def test_a_star_is_found_with_its_centre_as_root_and_stays_undirected():
    tree = infer_tree(models(6), lineage({n: (0, 0.03 * n) for n in range(1, 6)}))
    assert neighbours(tree) == {frozenset((0, n)) for n in range(1, 6)}
    assert [model.index for model in tree.roots()] == [0]
    assert {edge.direction for edge in tree.edges} == {UNDIRECTED}
    assert all(0.5 < edge.probability < DIRECTED_AT for edge in tree.edges)  # position leans, and no more
    assert all(edge.support > 0.9 for edge in tree.edges)


@pytest.mark.parametrize("seed", range(8))
def test_random_lineages_are_recovered(seed):
    rng = np.random.default_rng(seed)
    steps = {n: (int(rng.integers(n)), float(rng.uniform(0.05, 0.3))) for n in range(1, 9)}
    tree = infer_tree(models(9), lineage(steps))
    assert neighbours(tree) == {frozenset((child, parent)) for child, (parent, _) in steps.items()}


def test_one_strong_cue_makes_an_arrow_and_its_reverse_turns_it():
    for sign, expected in ((1, FORWARD), (-1, BACKWARD)):
        tree = infer_tree(models(2), [pair(0, 1, 0.1, [cue(sign * STRONG)])])
        assert runs(tree, 0, 1) == expected
        assert tree.edges[0].direction == FORWARD  # drawn the way it runs
        assert tree.edges[0].probability == pytest.approx(1 / (1 + math.exp(-STRONG)))


def test_cues_that_contradict_each_other_leave_the_edge_open():
    tree = infer_tree(models(2), [pair(0, 1, 0.1, [cue(STRONG), cue(-STRONG, "zeros")])])
    assert tree.edges[0].direction == UNDIRECTED
    assert tree.edges[0].probability == pytest.approx(0.5)
    assert len(tree.edges[0].cues) == 2


def test_weak_cues_together_never_make_an_arrow():
    assert direction(probability(HUB + FAINT)) == UNDIRECTED
    assert direction(probability(HUB + FAINT + LEANING)) == UNDIRECTED
    assert direction(probability(STRONG)) == FORWARD
    assert direction(probability(-STRONG)) == BACKWARD
    assert direction(probability(FAINTER)) == UNDIRECTED
    assert probability(50.0) == SUREST
    assert probability(-1e9) == pytest.approx(1 - SUREST)


def test_a_sure_parent_leans_the_other_neighbours_and_makes_no_arrows():
    """What hangs on a child may be another child of the same parent, which lies farther off."""
    steps = {1: (0, 0.1), 2: (1, 0.1), 3: (2, 0.1)}
    tree = infer_tree(models(4), lineage(steps, {(0, 1): [cue(STRONG)]}))
    assert [runs(tree, n, n + 1) for n in range(3)] == [FORWARD, UNDIRECTED, UNDIRECTED]
    leaning = edge_of(tree, 1, 2)
    assert any(item.source == "position" and "one only" in item.says for item in leaning.cues)
    assert 0.5 < leaning.probability < DIRECTED_AT


def test_many_leaning_cues_make_no_arrow_without_a_strong_one():
    tree = infer_tree(models(2), lineage({1: (0, 0.1)}, {(0, 1): [cue(LEANING)] * 6}))
    assert runs(tree, 0, 1) == UNDIRECTED


def test_nothing_is_handed_on_against_the_arrow():
    steps = {1: (0, 0.1), 2: (1, 0.1)}
    tree = infer_tree(models(3), lineage(steps, {(1, 2): [cue(STRONG)]}))
    assert runs(tree, 1, 2) == FORWARD
    assert runs(tree, 0, 1) == UNDIRECTED


def test_two_sure_parents_are_reported_and_not_hidden():
    steps = {1: (0, 0.1), 2: (1, 0.1)}
    tree = infer_tree(models(3), lineage(steps, {(0, 1): [cue(STRONG)], (1, 2): [cue(-STRONG)]}))
    assert runs(tree, 0, 1) == FORWARD
    assert runs(tree, 2, 1) == FORWARD
    assert any("more than one parent" in note for note in tree.notes)


def test_equal_models_are_one_node_and_no_cycle():
    same = [PairFacts(a=a, b=b, found="identical", log10_p=None) for a, b in ((0, 1), (1, 2), (0, 2))]
    tree = infer_tree(models(4), [*same, pair(0, 3, 0.1), pair(1, 3, 0.1), pair(2, 3, 0.1)])
    assert [model.node for model in tree.models] == [0, 0, 0, 3]
    assert [model.index for model in tree.equal_to(0)] == [1, 2]
    assert neighbours(tree) == {frozenset((0, 3))}


def test_only_equal_models_make_no_edge_at_all():
    tree = infer_tree(models(2), [PairFacts(a=0, b=1, found="identical")])
    assert tree.edges == ()
    assert [model.index for model in tree.roots()] == [0]


def test_models_without_evidence_stand_alone():
    tree = infer_tree(models(3), [pair(0, 1, 0.1), unrelated(0, 2), unrelated(1, 2)])
    assert neighbours(tree) == {frozenset((0, 1))}
    assert [model.family for model in tree.models] == [0, 0, None]
    nothing = infer_tree(models(3), [unrelated(a, b) for a, b in ((0, 1), (0, 2), (1, 2))])
    assert nothing.edges == ()
    assert all(model.family is None for model in nothing.models)


def test_no_edge_without_a_test_that_stands_after_correction_for_the_pairs():
    weak = pair(0, 1, 0.01, log10_p=-6.3)
    assert len(infer_tree(models(2), [weak]).edges) == 1
    three = infer_tree(models(3), [weak, unrelated(0, 2), unrelated(1, 2)])
    assert three.edges == ()
    assert any("correction for all pairs" in note for note in three.notes)


@pytest.mark.parametrize("found", ["shares_components", "shares_initialisation"])
def test_what_is_shared_without_descent_is_a_link_and_no_edge(found):
    tree = infer_tree(models(3), [pair(0, 1, 0.1), unrelated(0, 2, found, -80.0), unrelated(1, 2, found, -3.0)])
    assert neighbours(tree) == {frozenset((0, 1))}
    assert [(link.a, link.b, link.shares) for link in tree.links] == [(0, 2, found)]


def test_pairs_that_could_not_be_tested_are_counted():
    tree = infer_tree(models(2), [unrelated(0, 1, "not_testable", None)])
    assert tree.edges == ()
    assert any("pairs that could not be tested" in note for note in tree.notes)


def test_an_absent_ancestor_is_noticed():
    steps = {1: (0, 0.1), 2: (0, 0.12), 3: (0, 0.15), 4: (0, 0.2)}
    orphans = [replace(p, a=p.a - 1, b=p.b - 1) for p in lineage(steps) if p.a > 0]
    tree = infer_tree(models(4), orphans)
    assert {edge.direction for edge in tree.edges} == {UNDIRECTED}
    assert any("common ancestor that is not among these models" in note for note in tree.notes)
    assert not any(item.source == "position" for edge in tree.edges for item in edge.cues)


def test_an_open_chain_says_what_else_it_may_be():
    steps = {1: (0, 0.1), 2: (1, 0.1)}
    (note,) = infer_tree(models(3), lineage(steps)).notes
    assert "look the same" in note
    assert infer_tree(models(3), lineage(steps, {(0, 1): [cue(STRONG)]})).notes == ()


def test_bend_tells_between_from_beside():
    lengths = Lengths(lineage({1: (0, 0.2), 2: (0, 0.2), 3: (1, 0.1)}))
    assert bend(lengths, 0, 1, 2) == pytest.approx(0.0, abs=0.1)
    assert bend(lengths, 0, 1, 3) == pytest.approx(1.0, abs=0.1)
    assert bend(lengths, 0, 1, 7) is None


def test_a_pair_that_was_seen_in_part_does_not_beat_one_seen_whole():
    """Number 2 has only attention to compare, and there number 1 happens to be a little nearer than by all roles."""
    part = pair(0, 2, 0.01, distances={"attn_q": 0.01, "attn_v": 0.01, "attn_o": 0.01})
    beside = pair(1, 2, 0.1, distances={"attn_q": 0.098, "attn_v": 0.098, "attn_o": 0.098})
    tree = infer_tree(models(3), [pair(0, 1, 0.1), part, beside])
    assert neighbours(tree) == {frozenset((0, 1)), frozenset((0, 2))}


def test_a_reordered_copy_hangs_on_the_one_it_equals_otherwise():
    near, far = {"embedding": 0.0, "norms": 0.0}, {"embedding": 0.04, "norms": 0.03}
    pairs = [
        replace(pair(0, 1, 0.1), carried=far),
        pair(0, 2, 0.0, distances={}, carried=near, kind="neurons_permuted"),
        pair(1, 2, 0.0, distances={}, carried=far, kind="neurons_permuted"),
    ]
    tree = infer_tree(models(3), pairs)
    assert neighbours(tree) == {frozenset((0, 1)), frozenset((0, 2))}
    assert edge_of(tree, 0, 2).reordered


def test_an_edge_that_tests_show_and_nothing_measures_is_kept_without_a_distance():
    tree = infer_tree(models(2), [pair(0, 1, 0.0, distances={})])
    assert tree.edges[0].distance is None
    assert tree.edges[0].support is None


def test_metadata_are_shown_and_turn_an_edge_only_if_trusted():
    given = models(2)
    given[0] = replace(given[0], declares=(("model card", "owner/m1"),))
    shown = infer_tree(given, [pair(0, 1, 0.1)]).edges[0]
    assert shown.direction == UNDIRECTED
    assert shown.probability == 0.5
    assert [(item.source, item.status, item.counts) for item in shown.cues] == [
        ("metadata", "metadata, not counted", False)
    ]
    trusted = infer_tree(given, [pair(0, 1, 0.1)], trust_metadata=True)
    assert runs(trusted, 1, 0) == FORWARD
    assert "asked for" in trusted.edges[0].cues[0].status
    assert infer_tree(given, [unrelated(0, 1)], trust_metadata=True).edges == ()


@pytest.mark.parametrize(
    ("declared", "reference", "same"),
    [
        ("owner/Base", "owner/base", True),
        ("owner/base", "hf://owner/base@main", True),
        ("other/base", "owner/base", False),
        ("base", "owner/base", True),
        ("/home/me/runs/base/", "models/demo/base", True),
        ("base-2", "owner/base", False),
        ("", "owner/base", False),
    ],
)
def test_a_declared_origin_is_matched_by_repository_or_last_part(declared, reference, same):
    assert names_same(declared, reference) is same


def test_a_cue_read_from_the_other_end():
    assert reversed_cue(cue(1.5)).strength == -1.5
    assert str(reversed_cue(cue(0.0)).strength) == "0.0"


def test_json_there_and_back_and_the_same_twice():
    pairs = lineage({1: (0, 0.1), 2: (0, 0.2), 3: (2, 0.1)}, {(0, 1): [cue(STRONG)]})
    tree = infer_tree(models(4), pairs)
    assert FamilyTree.from_json(tree.to_json()) == tree
    assert infer_tree(models(4), list(reversed(pairs))).edges == tree.edges


def test_log_distance_is_bounded():
    assert log_distance(1.0) == log_distance(1.0 + 1e-12) == 0.0
    assert log_distance(-0.5) == log_distance(0.0) == -math.log(0.01)


# -- merges --------------------------------------------------------------------------------------------------------------


def slices_of(*states):
    return [{f"s{number}": state[number] for number in range(len(state))} for state in states]


def family(seed=0, count=12):
    rng = np.random.default_rng(seed)
    base = rng.standard_normal((count, 16, 32))
    return base, base + 0.3 * rng.standard_normal(base.shape), base + 0.4 * rng.standard_normal(base.shape)


ALL = frozenset((a, b) for a in range(4) for b in range(a + 1, 4))


def test_a_weighted_sum_of_two_is_found_with_its_shares_and_only_once():
    base, one, two = family()
    (mix,) = find_mixes(slices_of(base, one, 0.7 * one + 0.3 * two, two), ALL)
    assert (mix.child, mix.parents) == (2, (1, 3))
    assert mix.shares == pytest.approx((0.7, 0.3), abs=0.01)


def test_a_chain_and_a_star_are_no_merges():
    base, one, two = family()
    rng = np.random.default_rng(5)
    assert find_mixes(slices_of(base, one, two, one + 0.3 * rng.standard_normal(one.shape)), ALL) == []


def test_equal_models_and_models_without_common_slices_are_no_merges():
    base, one, _ = family()
    assert find_mixes(slices_of(base, base, base, one), ALL) == []
    assert find_mixes([{"x": base[0]}, {"y": one[0]}, {}, {"x": one[0][:3]}], ALL) == []


def test_parents_must_be_related_to_the_child():
    _, one, two = family()
    assert find_mixes(slices_of(one, 0.5 * one + 0.5 * two, two), frozenset({(0, 1)})) == []


def test_a_merge_hangs_on_its_larger_parent_and_names_both():
    mix = Mix(2, (0, 1), (0.7, 0.3), 1 - 1e-6, 0.98)
    pairs = [unrelated(0, 1), pair(0, 2, 0.1), pair(1, 2, 0.9)]
    relatives = infer_tree(models(3), pairs, [Mix(2, (0, 1), (0.7, 0.3), 0.9995, 0.98)])
    assert {edge.direction for edge in relatives.edges} == {UNDIRECTED}  # rounding does not explain what is left
    tree = infer_tree(models(3), pairs, [mix])
    assert {(edge.parent, edge.child, edge.merge) for edge in tree.edges} == {(0, 2, 0.7), (1, 2, 0.3)}
    assert {edge.direction for edge in tree.edges} == {FORWARD}
    assert [model.index for model in tree.roots()] == [0, 1]
    assert tree.above(2).parent == 0
    assert tree.children(1) == ()


def test_a_merge_without_a_test_behind_it_is_dropped():
    mix = Mix(2, (0, 1), (0.7, 0.3), 0.99, 0.98)
    tree = infer_tree(models(3), [unrelated(0, 1), pair(0, 2, 0.1), unrelated(1, 2)], [mix])
    assert neighbours(tree) == {frozenset((0, 2))}
    assert tree.edges[0].merge is None
