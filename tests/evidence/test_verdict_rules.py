"""The rules, one by one, on facts made by hand: each class is reached, in the stated order, with its reasons."""

import math
from dataclasses import replace

import pytest

from kinprint.evidence.common_start import INITIALISATION, TRAINING, UNCLEAR, Origin
from kinprint.evidence.facts import Facts, Identity
from kinprint.evidence.rules import LOG10_ALPHA
from kinprint.evidence.untested import DISTILLATION
from kinprint.evidence.verdict import decide
from kinprint.results.findings import (
    CLASSES,
    DERIVED,
    IDENTICAL,
    NO_EVIDENCE,
    NOT_TESTABLE,
    OFF,
    SHARES_COMPONENTS,
    SHARES_INITIALISATION,
    ComponentFinding,
    ControlFinding,
    EditFinding,
    EvidenceTest,
    FunctionFinding,
    LayerAlignment,
    LayerFinding,
    MergeFinding,
    PowerFinding,
)

ORDER = (
    "controls",
    "comparable",
    "identical",
    "structure",
    "independent",
    "likeness",
    "trunk",
    "initialisation",
    "coverage",
    "derived",
)
ABLE = frozenset({("fixed_points", "mlp_up")})
SELF = ControlFinding("self", "identical", "passed", "identical", -90.0, 30.0)
SHUFFLED = ControlFinding("shuffled self", "no_evidence", "passed", "no_evidence", 0.0, 0.3)


def finding(log10_p, name="fixed_points", scope="mlp_up", **more):
    return EvidenceTest(
        name, scope, statistic=3.0, null_mean=4.0, null_sd=2.0, z=-0.5, log10_p=log10_p, log10_p_holm=log10_p,
        n=128, blocks=4, assumptions=("neurons have no order of their own",), **more,
    )  # fmt: skip


def layers(*sources):
    found = [
        LayerFinding(layer, source, 0.9, 40.0, -80.0 if source is not None else 0.0, 4, source is not None)
        for layer, source in enumerate(sources)
    ]
    kind = "identity" if sources == tuple(range(len(sources))) else "partial"
    return LayerAlignment("ok", kind, tuple(found), ("mlp_up",))


def part(name, shared, tested=4):
    state = "shared" if shared == tested else "partly shared" if shared else "not shared"
    return ComponentFinding(name, state, tested, shared, -80.0 if shared else None)


def origin(reading):
    return Origin(reading, ("what norms learned correlates at 0.20",), 0.2, 0.2)


def facts(log10_p=-100.0, **changes):
    """Return facts of a plain fine-tune: everything shares, most of it by training."""
    usual = Facts(
        tests=(finding(log10_p),),
        alignment=layers(0, 1, 2, 3),
        components=(part("embedding", 1, 1), part("norms", 3, 3), part("attention", 4), part("mlp", 4)),
        identity=Identity(40, 0, True, 0.3),
        layers_a=4,
        layers_b=4,
        origin=origin(TRAINING),
        edits=(EditFinding("mlp_up", "changed", 3, 0, 1.0, 50.0, 0.98, 0.97, 0.2, 0.0, 0.0, reasons=("r",)),),
        controls=(SELF, SHUFFLED),
        able=ABLE,
    )
    return replace(usual, **changes)


UNRELATED = {
    "alignment": layers(None, None, None, None),
    "components": (part("embedding", 0, 1), part("norms", 0, 3), part("attention", 0), part("mlp", 0)),
    "origin": None,
    "edits": (),
    "power": (
        PowerFinding("norm_joint", "input_norm", "correlation of norm scales", 0.42, 0.95, -7.3, 96, 96, 4),
        PowerFinding("fixed_points", "mlp_up", "cosine of rows", 0.118, 0.95, -7.3, 32, 96, 4),
        PowerFinding("norm_joint", "final_norm", "correlation of norm scales", None, 0.95, -7.3, 96, 96, 1, "too few"),
    ),
}


def fired(verdict):
    (rule,) = [rule for rule in verdict.rules if rule.fired]
    assert verdict.rules[-1] is rule
    assert rule.outcome == verdict.class_
    assert all(earlier.outcome == "go on" for earlier in verdict.rules[:-1])
    assert tuple(rule.name for rule in verdict.rules) == ORDER[: len(verdict.rules)]
    assert all(rule.question and rule.inputs for rule in verdict.rules)
    return rule.name


def sound(verdict):
    """What holds for every verdict."""
    assert verdict.class_ in CLASSES
    assert verdict.sentence.endswith(".")
    assert 30 < len(verdict.sentence) < 500
    assert "\n" not in verdict.sentence
    assert verdict.sentence.count(". ") <= 1
    assert verdict.reasons
    assert all(verdict.reasons)
    assert DISTILLATION in verdict.untested
    assert verdict.log10_alpha == LOG10_ALPHA == -6.0
    return verdict


# -- each class ------------------------------------------------------------------------------------------------------------


def test_derived():
    verdict = sound(decide(facts()))
    assert (verdict.class_, fired(verdict), verdict.kind) == (DERIVED, "derived", "fine_tuned")
    assert verdict.sentence.startswith("One of the two models derives from the other by further training")
    assert "10^-100" in verdict.sentence
    assert (verdict.log10_p, verdict.layer_map, verdict.tests) == (-100.0, (0, 1, 2, 3), 1)
    assert "they do not say which of the two came first" in verdict.against[-1]
    assert verdict.assumptions == ("neurons have no order of their own",)
    assert "fixed_points of mlp_up" in verdict.reasons[0]


def test_identical():
    verdict = sound(decide(facts(identity=Identity(40, 40, True, 1.0))))
    assert (verdict.class_, fired(verdict), verdict.kind) == (IDENTICAL, "identical", None)
    assert "every weight is the same" in verdict.sentence
    sampled = decide(facts(identity=Identity(40, 40, True, 0.031)))
    assert (sampled.class_, sampled.kind) == (DERIVED, "no_difference_found")
    assert "no difference in what was read (3.10% of the weights" in sampled.sentence


@pytest.mark.parametrize(
    "identity", [Identity(40, 39, True, 1.0), Identity(40, 40, False, 1.0), Identity(0, 0, True, 0)]
)
def test_nearly_identical_is_not_identical(identity):
    assert decide(facts(identity=identity)).class_ == DERIVED


def test_no_evidence():
    verdict = sound(decide(facts(-0.4, **UNRELATED)))
    assert (verdict.class_, fired(verdict), verdict.kind) == (NO_EVIDENCE, "independent", None)
    assert verdict.layer_map is None
    assert verdict.sentence.startswith("No evidence that either model derives from the other")
    assert "a correlation of norm scales of 0.42 or a cosine of rows of 0.12 would have been seen" in verdict.sentence
    assert "does not prove training from scratch" in verdict.sentence
    assert "strongest of 1 tests" in verdict.reasons[0]
    assert "self: passed" in verdict.reasons
    assert verdict.assumptions


def test_no_evidence_without_known_power_says_no_figure():
    verdict = sound(decide(facts(-0.4, **UNRELATED | {"power": ()})))
    assert verdict.class_ == NO_EVIDENCE
    assert "95 %" not in verdict.sentence


def test_a_test_that_stands_out_is_mentioned():
    """10^-4 is not enough for a verdict, and too much to be silent about."""
    verdict = decide(facts(-4.0, **UNRELATED))
    assert verdict.class_ == NO_EVIDENCE
    assert verdict.against == ("one test stands out, but not enough: log10 p -4.0 corrected",)
    assert decide(facts(-1.0, **UNRELATED)).against == ()


@pytest.mark.parametrize(("log10_p", "class_"), [(-5.99, NO_EVIDENCE), (-6.0, DERIVED), (-6.01, DERIVED)])
def test_the_threshold(log10_p, class_):
    assert decide(facts(log10_p)).class_ == class_


def test_only_corrected_p_values_count():
    verdict = decide(facts(tests=(replace(finding(-30.0), log10_p_holm=-5.0),)))
    assert verdict.class_ == NO_EVIDENCE
    assert verdict.log10_p == -5.0


def test_shares_components_outside_the_trunk():
    few = (part("embedding", 1, 1), part("norms", 0, 3), part("attention", 0), part("mlp", 0))
    verdict = sound(decide(facts(components=few, alignment=layers(None, None, None, None))))
    assert (verdict.class_, fired(verdict)) == (SHARES_COMPONENTS, "trunk")
    assert "share token embeddings, and not most of their layers" in verdict.sentence
    assert "10^-100" in verdict.sentence
    assert verdict.layer_map == (None,) * 4
    assert {"norms: not shared", "attention: not shared", "mlp: not shared"} <= set(verdict.against)


def test_a_strong_test_of_no_listed_part_is_named_all_the_same():
    """Down projections belong to no part that is tested by itself: the sentence must not say "share ,"."""
    none = tuple(part(name, 0) for name in ("embedding", "norms", "attention", "mlp"))
    strong = finding(-50.0, "matrix_correlation", "mlp_down")
    verdict = sound(decide(facts(tests=(strong,), components=none, alignment=layers(None, None, None, None))))
    assert verdict.class_ == SHARES_COMPONENTS
    assert "share ," not in verdict.sentence
    assert "mlp_down" in " ".join((verdict.sentence, *verdict.reasons))


def test_shares_components_by_coverage():
    few = (part("embedding", 0, 1), part("norms", 3, 3), part("attention", 1), part("mlp", 1))
    verdict = sound(decide(facts(components=few, alignment=layers(None, 1, None, None))))
    assert (verdict.class_, fired(verdict)) == (SHARES_COMPONENTS, "coverage")
    assert "norm weights, attention (in 1 of 4 places) and MLP matrices (in 1 of 4 places)" in verdict.sentence
    assert verdict.layer_map == (None, 1, None, None)


@pytest.mark.parametrize(
    ("sources", "layers_a", "class_"),
    [
        ((0, 1, None, None), 4, DERIVED),  # half of either
        ((0, None, None, None), 4, SHARES_COMPONENTS),
        ((0, None, None, None), 2, DERIVED),  # half of A is in B
        ((3,), 4, DERIVED),  # all of B is in A
        ((None, None, None, None), 4, SHARES_COMPONENTS),
    ],
)
def test_half_of_the_layers_of_either_model(sources, layers_a, class_):
    count = sum(source is not None for source in sources)
    parts = (part("attention", max(count, 1), 99),)
    verdict = decide(facts(components=parts, alignment=layers(*sources), layers_a=layers_a, layers_b=len(sources)))
    assert verdict.class_ == class_


@pytest.mark.parametrize("reading", [INITIALISATION, UNCLEAR])
def test_shares_initialisation(reading):
    verdict = sound(decide(facts(origin=origin(reading))))
    assert (verdict.class_, fired(verdict)) == (SHARES_INITIALISATION, "initialisation")
    assert "share weights or their initialisation" in verdict.sentence
    assert "10^-100" in verdict.sentence
    assert verdict.layer_map == (0, 1, 2, 3)
    assert "what norms learned correlates at 0.20" in verdict.reasons
    assert verdict.against


@pytest.mark.parametrize(("learned", "said"), [(None, "too little training"), (0.3, "does not tell which")])
def test_what_cannot_be_told_says_why(learned, said):
    verdict = decide(facts(origin=Origin(UNCLEAR, (), 0.2, learned, 0.3)))
    assert said in verdict.sentence


@pytest.mark.parametrize(
    ("correlation", "kinds"), [(0.97, ("norms_replaced", "fine_tuned")), (0.7, ("continued_pretraining",))]
)
def test_norms_were_reset_only_where_matrices_were_kept(correlation, kinds):
    """What DARE leaves at random, scaled up, lets neither norms nor matrices near the parent's, and its directions are kept."""
    edit = EditFinding("mlp_up", "changed", 3, 0, 1.0, 50.0, 1.0, correlation, 0.2, 0.0, 0.0, reasons=("r",))
    verdict = decide(facts(origin=Origin(TRAINING, (), 0.59, 0.88, 0.88), edits=(edit,)))
    assert verdict.kinds == kinds
    reset = "with its norms reset and trained again (or trained far more than the rest)" in verdict.sentence
    assert (reset, verdict.variant == "reset") == (correlation > 0.9,) * 2


def test_a_merge_of_given_parents_is_no_shared_initialisation():
    merge = MergeFinding(("a", "c"), (0.7, 0.3), (0.01, 0.01), 0.99, 0.97, 10_000)
    verdict = decide(facts(origin=origin(INITIALISATION), merge=merge))
    assert (verdict.class_, verdict.kind) == (DERIVED, "merged")
    assert "(0.70 ± 0.02) × a + (0.30 ± 0.02) × c" in verdict.sentence
    poor = replace(merge, r_squared=0.5)
    assert decide(facts(origin=origin(INITIALISATION), merge=poor)).class_ == SHARES_INITIALISATION


def test_an_origin_not_examined_does_not_fire():
    verdict = decide(facts(origin=None))
    assert verdict.class_ == DERIVED
    assert next(rule for rule in verdict.rules if rule.name == "initialisation").inputs == ("not examined",)


# -- abstaining ------------------------------------------------------------------------------------------------------------


def control(name, status, reason=None):
    return ControlFinding(name, "no_evidence", status, None, None, None, reason)


def abstains(verdict, rule, *words):
    sound(verdict)
    assert (verdict.class_, fired(verdict)) == (NOT_TESTABLE, rule)
    assert verdict.layer_map is None
    assert verdict.kind is None
    assert verdict.sentence.startswith("Not testable: ")
    for word in words:
        assert word in verdict.sentence


@pytest.mark.parametrize("identity", [Identity(40, 0, True, 0.3), Identity(40, 40, True, 1.0)])
def test_a_failed_control_forbids_any_verdict(identity):
    """Even where everything read is identical."""
    bad = control("other/model", "failed", "expected no evidence, found related")
    verdict = decide(facts(identity=identity, controls=(SELF, SHUFFLED, bad)))
    abstains(verdict, "controls", "other/model did not give the answer known beforehand")
    assert any("expected no evidence, found related" in text for text in verdict.rules[0].inputs)


@pytest.mark.parametrize("name", ["self", "shuffled self"])
@pytest.mark.parametrize("how", ["failed", "not run", "absent"])
def test_a_missing_or_failed_built_in_control(name, how):
    kept = [item for item in (SELF, SHUFFLED) if item.name != name]
    if how != "absent":
        kept.append(control(name, how, "why"))
    abstains(decide(facts(controls=tuple(kept))), "controls", name if how == "failed" else "the built-in controls")


def test_no_control_at_all():
    verdict = decide(facts(controls=()))
    abstains(verdict, "controls")
    assert verdict.rules[0].inputs == ("none ran",)


def test_all_controls_asked_for_not_run():
    missing = [control(name, "not run", "no such folder") for name in ("x", "y", "z")]
    verdict = decide(facts(controls=(SELF, SHUFFLED, *missing)))
    abstains(verdict, "controls", "the controls asked for")
    assert len([text for text in verdict.untested if "was not run: no such folder" in text]) == 3


@pytest.mark.parametrize("log10_p", [-100.0, -0.2])
def test_one_of_three_not_run_is_said_and_the_verdict_stands(log10_p):
    three = (control("x", "passed"), control("y", "not run", "no such folder"), control("z", "passed"))
    changes = {} if log10_p < -6 else UNRELATED
    verdict = sound(decide(facts(log10_p, controls=(SELF, SHUFFLED, *three), **changes)))
    assert verdict.class_ == (DERIVED if log10_p < -6 else NO_EVIDENCE)
    assert verdict.untested[0] == "control y was not run: no such folder"
    assert any("y: not run (no such folder)" in text for text in verdict.rules[0].inputs)


def test_no_test_that_could_have_seen_a_copy():
    weak = (finding(-0.3), finding(None, "norm_joint", "input_norm", status=OFF, reason="all norms are constant"))
    verdict = decide(facts(tests=weak, able=frozenset(), **UNRELATED))
    abstains(verdict, "comparable", "all norms are constant")
    assert verdict.rules[-1].inputs == ("1 tests ran", "at least 0 of them see it")


def test_nothing_ran_at_all():
    verdict = decide(facts(tests=(), **UNRELATED))
    abstains(verdict, "comparable", "no test that could be run would have seen a strong relation")
    assert (verdict.log10_p, verdict.tests, verdict.assumptions) == (None, 0, ())


@pytest.mark.parametrize(
    ("log10_p", "identity", "class_"),
    [(-50.0, Identity(40, 0, True, 0.3), DERIVED), (-0.1, Identity(40, 40, True, 1.0), IDENTICAL)],
)
def test_a_result_is_enough_without_a_copy_to_go_by(log10_p, identity, class_):
    assert decide(facts(log10_p, able=frozenset(), identity=identity)).class_ == class_


# -- words -----------------------------------------------------------------------------------------------------------------


def test_tests_that_were_off_are_untested_and_lend_no_assumption():
    off = EvidenceTest("norm_joint", "input_norm", assumptions=("never",), status=OFF, reason="norms are sorted")
    none = LayerAlignment(OFF, "none", (), (), "residual widths differ: 96 and 48")
    unseen = ComponentFinding("router", "not tested", 0, 0, None, "one side has no router")
    verdict = decide(
        facts(tests=(finding(-50.0), off), alignment=none, components=(part("mlp", 4), unseen), untested=("heads",))
    )
    assert "norm_joint (input_norm): norms are sorted" in verdict.untested
    assert "layer map: residual widths differ: 96 and 48" in verdict.untested
    assert "router: one side has no router" in verdict.untested
    assert "heads" in verdict.untested
    assert verdict.untested[0] == DISTILLATION
    assert verdict.assumptions == ("neurons have no order of their own",)
    assert verdict.tests == 1


def test_what_most_readers_would_miss_stands_first_among_what_was_not_tested():
    unread = LayerAlignment("ok", "identity", (), (), unread=(4, 5, 6), unread_a=(4, 5, 6))
    parts = [ComponentFinding(name, "not tested", 0, 0, None, "no room") for name in ("router", "attention")]
    said = decide(facts(alignment=unread, components=parts, limits=("asked for",), untested=("see --deep",))).untested
    first = ["asked for", "layers 4–6 of both models: not read", "attention: no room", DISTILLATION, "see --deep"]
    assert [*said[:6]] == [*first, "router: no room"]
    one = decide(facts(alignment=replace(unread, unread=(4,), unread_a=()), components=parts)).untested
    assert one[0] == "layers 4 of B: not read"


def test_the_strongest_tests_come_first():
    tests = [finding(-10.0, scope="weak"), finding(-90.0, scope="strong"), finding(-50.0, scope="middle")]
    verdict = decide(facts(tests=tests))
    assert [text.split(" of ")[1].split(":")[0] for text in verdict.reasons[:3]] == ["strong", "middle", "weak"]
    assert verdict.log10_p == -90.0


def test_every_number_is_finite():
    for changes in ({}, UNRELATED, {"identity": Identity(40, 40, True, 1.0)}):
        verdict = decide(facts(-3.0 if changes is UNRELATED else -100.0, **changes))
        assert math.isfinite(verdict.log10_p)
        assert math.isfinite(verdict.log10_alpha)


def test_the_null_is_named():
    assert decide(facts(null="null of 12 models")).null == "null of 12 models"
    assert decide(facts()).null is None


def test_no_rule_denies_what_running_both_models_shows():
    nothing = (part("attention", 0), part("mlp", 0), part("norms", 3, 3))
    unmatched = {"components": nothing, "alignment": layers(None, None, None, None), "origin": origin(INITIALISATION)}
    assert decide(facts(**unmatched)).class_ == SHARES_COMPONENTS
    verdict = decide(facts(**unmatched, function=FunctionFinding(True, 1e-3, 2e-3, 64, 512)))
    assert (verdict.class_, verdict.kind) == (DERIVED, "same_function")
    assert any("both compute the same function" in reason for reason in verdict.reasons)
    other = FunctionFinding(False, 1e-1, 2e-3, 64, 512)
    assert decide(facts(**unmatched, function=other)).class_ == SHARES_COMPONENTS
