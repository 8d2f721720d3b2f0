"""Controls: the built-in ones pass on every model, one that is wrong forbids a verdict, one that cannot be read is said."""

from dataclasses import replace

import numpy as np
import pytest

from kinprint.evidence import controls as engine
from kinprint.evidence.controls import FAILED, NOT_RUN, PASSED, RELATED, able_tests, own_controls, run_controls
from kinprint.evidence.probe import Probe
from kinprint.evidence.verdict import decide
from kinprint.lab.zoo.derive import noise, upcycle
from kinprint.results.findings import DERIVED, IDENTICAL, NO_EVIDENCE, NOT_TESTABLE
from kinprint.results.options import Options
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from support.probes import probe_from_state


@pytest.fixture(scope="module")
def controls(demo_probe):
    """Run controls beside the demo's base and return them by name."""

    def run(*unrelated, related=(), like=None):
        options = Options(controls=unrelated, related=related)
        with Session(Settings()) as session:
            return run_controls(options, like or demo_probe("base"), session)

    return run


@pytest.mark.parametrize("name", ["base", "unrelated", pytest.param("grown", marks=pytest.mark.slow)])
def test_the_built_in_controls_pass(demo_probe, name):
    (same, shuffled), _ = own_controls(demo_probe(name), seed=0)
    able = able_tests((demo_probe(name), demo_probe("base")), (), seed=0)
    assert (same.name, same.expected, same.status, same.found) == ("self", IDENTICAL, PASSED, IDENTICAL)
    assert (shuffled.name, shuffled.status, shuffled.found) == ("shuffled self", PASSED, NO_EVIDENCE)
    assert (same.reason, shuffled.reason) == (None, None)
    assert same.log10_p < -100
    assert shuffled.log10_p > -6
    assert {("fixed_points", "mlp_up"), ("fixed_points", "mlp_gate")} <= able
    assert ("head_fixed_points", "attn_k") not in able  # two heads in four layers: 1/2!^4 could not show a copy


def test_a_model_in_several_pairs_is_controlled_once_and_anew_where_anything_of_it_differs(demo_probe, monkeypatch):
    seen = []
    monkeypatch.setattr(
        engine, "own_controls", lambda few, *, seed: seen.append(few.label) or own_controls(few, seed=seed)
    )
    base, finetune, unrelated = (demo_probe(name) for name in ("base", "finetune", "unrelated"))
    first = engine.both_controls_aside(base, finetune, seed=0)()
    assert engine.both_controls_aside(base, finetune, seed=0)() == first
    engine.both_controls_aside(unrelated, base, seed=0)()
    assert [name.rsplit("/", 1)[-1] for name in seen] == ["base", "finetune", "unrelated"]
    key, sample = next(iter(base.samples.items()))
    other = replace(base, samples=base.samples | {key: replace(sample, stored=-sample.stored)})
    engine.both_controls_aside(other, replace(base, hidden=95), seed=0)()
    engine.both_controls_aside(base, base, seed=1)()
    assert len(seen) == 7


@pytest.mark.parametrize("seed", range(5))
def test_shuffled_self_passes_whatever_the_seed(small, seed):
    probe = probe_from_state(*small(50, layers=2)[:2])
    (_, shuffled), _ = own_controls(probe, seed=seed)
    assert shuffled.status == PASSED
    assert shuffled.log10_p > -4


def test_built_in_controls_of_a_mixture(small):
    state, config, _ = small(51, layers=2)
    mixture = probe_from_state(*upcycle(state, config, 4, 1.0, 1))
    assert [control.status for control in own_controls(mixture, seed=3)[0]] == [PASSED, PASSED]
    assert ("fixed_points", "expert_up") in able_tests((mixture, mixture), (), seed=3)


def test_a_shuffled_probe_is_the_same_numbers_in_another_order(demo_probe):
    base = demo_probe("base")
    shuffled = base.shuffled(7)
    assert shuffled.samples.keys() == base.samples.keys()
    moved = 0
    for key, sample in base.samples.items():
        other = shuffled.samples[key].stored
        assert np.array_equal(np.sort(sample.stored, axis=None), np.sort(other, axis=None))
        moved += not np.array_equal(sample.stored, other)
    assert moved == len(base.samples)


def test_nothing_to_test_makes_no_control():
    """An empty probe: neither control may claim to have passed."""
    found, _ = own_controls(Probe("empty", 0), seed=0)
    assert [control.status for control in found] == [NOT_RUN, NOT_RUN]
    assert all(control.reason for control in found)
    assert able_tests((Probe("empty", 0), Probe("empty", 0)), (), seed=0) == frozenset()


# -- controls of the user ------------------------------------------------------------------------------------------------


def test_unrelated_and_related_controls_pass(controls, folder):
    one, two = controls(folder("unrelated"), related=[folder("finetune")])
    assert (one.name, one.expected, one.status, one.found) == (folder("unrelated"), NO_EVIDENCE, PASSED, NO_EVIDENCE)
    assert (two.name, two.expected, two.status, two.found) == (folder("finetune"), RELATED, PASSED, RELATED)
    assert one.log10_p > -6
    assert two.log10_p < -100
    assert one.z is not None


def test_controls_that_are_not_what_was_said_fail(controls, folder, weigh, demo_probe):
    one, two = controls(folder("finetune"), related=[folder("unrelated")])
    assert (one.status, one.found, one.reason) == (FAILED, RELATED, "expected no evidence, found related")
    assert (two.status, two.found, two.reason) == (FAILED, NO_EVIDENCE, "expected related, found no evidence")


def test_controls_that_cannot_be_read_are_reported(controls, folder, tmp_path):
    """Three, of which one does not exist and one is no model."""
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "model.safetensors").write_bytes(b"\x02\x00\x00\x00\x00\x00\x00\x00[]")
    found = controls(folder("unrelated"), tmp_path / "none", broken)
    assert [item.status for item in found] == [PASSED, NOT_RUN, NOT_RUN]
    assert [item.name for item in found] == [folder("unrelated"), str(tmp_path / "none"), str(broken)]
    for item in found[1:]:
        assert (item.found, item.log10_p, item.z) == (None, None, None)
        assert item.reason
    assert "none" in found[1].reason


def test_a_control_of_another_width_has_tested_nothing(controls, folder, small):
    """No test applies to it. It must not count as passed: nothing could have failed."""
    (found,) = controls(folder("control_narrow", *small(52)))
    assert found.status == NOT_RUN
    assert found.reason


@pytest.fixture(scope="module")
def judged(judge, folder, small, tmp_path_factory):
    """A model and its child, with three controls of which one holds no weights; and with a bad one."""
    state, config, tokenizer = small(53)
    a = folder("controls", state, config, tokenizer)
    b, other = (folder(f"controls_{seed}", noise(state, 0.1, seed), config, tokenizer) for seed in (1, 2))
    unrelated = folder("controls_unrelated", *small(54))
    missing = str(tmp_path_factory.mktemp("controls"))
    three = judge(a, b, controls=(unrelated, missing), related=(other,))
    return three, judge(a, b, controls=(other,)), missing


def test_three_controls_of_which_one_holds_no_weights(judged):
    report, _, missing = judged
    by_name = {item.name: item for item in report.evidence.controls}
    assert len(report.evidence.controls) == 5
    assert by_name[missing].status == NOT_RUN
    assert [item.status for item in report.evidence.controls].count(PASSED) == 4
    assert report.verdict.class_ == DERIVED
    assert any(missing in text and "was not run" in text for text in report.verdict.untested)
    assert report.settings.controls[1] == missing
    assert "controls: 4 run" in report.evidence.stages


def test_a_bad_control_forbids_the_verdict(judged):
    """The evidence is the same; what cannot be trusted is the yardstick."""
    good, bad, _ = judged
    assert bad.verdict.class_ == NOT_TESTABLE
    assert "did not give the answer known beforehand" in bad.verdict.sentence
    assert bad.verdict.layer_map is None
    assert [t.log10_p for t in bad.evidence.tests] == [t.log10_p for t in good.evidence.tests]
    assert next(item for item in bad.evidence.controls if item.status == FAILED).found == RELATED


def test_a_control_that_fails_in_memory_does_too(weigh, demo_probe, controls, folder):
    verdict, facts = weigh(demo_probe("base"), demo_probe("unrelated"))
    assert verdict.class_ == NO_EVIDENCE
    wrong = controls(folder("finetune"))
    assert decide(replace(facts, controls=(*facts.controls, *wrong))).class_ == NOT_TESTABLE
