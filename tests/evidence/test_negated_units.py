"""Units whose signs were changed, which changes nothing that a model computes: found as derived, and named for what they are."""

import pytest

from kinprint.results.findings import DERIVED
from support.keeping import negated

CASES = {
    "neurons": {"neurons": True},
    "values": {"values": True},
    "both": {"neurons": True, "values": True},
    "residual": {"residual": True},
    "all": {"neurons": True, "values": True, "residual": True},
}


@pytest.fixture(scope="module")
def report(demo, folder, judge):
    state, config, tokenizer = demo("base")

    def made(case):
        changed = negated(state, config, **CASES[case])
        return judge(folder("base"), folder(f"negated {case}", changed, config, tokenizer, "F32"))

    return made


@pytest.mark.parametrize("case", CASES)
def test_negated_units_are_found(case, report):
    found = report(case)
    verdict = found.verdict
    assert verdict.class_ == DERIVED, verdict.sentence
    if "residual" in CASES[case]:
        assert (verdict.kinds, verdict.variant) == (("re_based",), "negated")
    else:
        assert verdict.kinds == ("units_negated", "cast")
    assert "not shared" not in {item.state for item in found.evidence.components}


def test_they_are_named_without_running_the_models_too(demo, folder, judge):
    """A config that is not understood keeps the models from being run; signs are taken back before edits are looked for."""
    state, config, tokenizer = demo("base")
    config = config | {"something_new": 1}
    changed = negated(state, config, neurons=True, values=True)
    found = judge(folder("new", state, config, tokenizer), folder("new negated", changed, config, tokenizer, "BF16"))
    assert found.evidence.function.same is None
    assert found.verdict.kinds == ("units_negated",)
    assert any("something_new" in said for said in found.verdict.untested)
    assert "not shared" not in {item.state for item in found.evidence.components}


def test_a_heavily_trained_model_has_no_negated_units(judge, folder):
    assert "units_negated" not in judge(folder("base"), folder("finetune")).verdict.kinds
