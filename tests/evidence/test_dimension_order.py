"""Norms propose an order of residual dimensions; neurons and value channels, which no norm has seen, are the test of it."""

import numpy as np
import pytest

from kinprint.comparison.pipeline import compare
from kinprint.evidence.assess import assess
from kinprint.evidence.basis import BY_NORMS, _all_norms, _profile_match, _tested
from kinprint.lab.zoo import derive
from kinprint.results.options import Options
from kinprint.sources.settings import Settings
from support.places import DEMO_MODELS, FAMILY_MODELS
from support.probes import probe_from_state
from support.red_team.disguises import partly_reordered, redrawn

DEEP = Options(budget_bytes=None, metrics=("pearson",), deep=True)


def load(name):
    return derive.load_state(next(at / name for at in (DEMO_MODELS, FAMILY_MODELS) if (at / name).is_dir()))


def hidden(model, *, negated=False):
    """Return a model with new tokens and MLPs, its residual dimensions in another order: norms and attention are left."""
    state, config, tokenizer = model
    state = derive.permute_residual(derive.replace_embeddings(redrawn(state), 9), config, 7)
    return (derive.flip_signs(state, config, 3) if negated else state), config, tokenizer


def verdict(one, two, folder):
    for name, model in (("a", one), ("b", two)):
        derive.save_state(folder / name, *model)
    return compare(
        str(folder / "a"), str(folder / "b"), DEEP, settings=Settings(offline=True, range_cache=None)
    ).verdict


@pytest.mark.parametrize(("name", "negated"), [("base", False), ("finetune", True)])
def test_norms_and_attention_in_another_order_are_found(tmp_path, name, negated):
    found = verdict(load("base"), hidden(load(name), negated=negated), tmp_path)
    assert (found.class_, found.kinds[0]) == ("derived", "re_based")
    assert found.log10_p < -40


@pytest.mark.parametrize("name", ["unrelated", "sibling", "norms_copied"])
def test_models_without_common_layers_stay_unaccused(tmp_path, name):
    """A stranger, one of the same start that is told from it by nothing left, and one that has the norms alone."""
    assert verdict(load("base"), hidden(load(name)), tmp_path).class_ in ("no_evidence", "shares_initialisation")


def proposals(one, two):
    """Return log10 p of the tests under the order that norms propose."""
    assessment = assess(probe_from_state(*one[:2]), probe_from_state(*two[:2]))
    match = _profile_match(_all_norms(assessment), 0)
    assert match is not None
    return [test.log10_p for test in _tested(assessment, match, BY_NORMS, signed=False).tests]


def test_p_values_of_independent_models_are_conservative(small):
    models = [small(seed, layers=3) for seed in range(11)]
    found = np.array([p for n, one in enumerate(models) for two in models[:n] for p in proposals(one, two)])
    assert found.size >= 110
    for level in (0.5, 0.1, 0.01):
        assert np.mean(found <= np.log10(level)) <= level + 3.0 * np.sqrt(level / found.size)


def test_dimensions_in_their_places_are_no_proposal(small):
    model = small(1)
    assessment = assess(probe_from_state(*model[:2]), probe_from_state(*model[:2]))
    assert _profile_match(_all_norms(assessment), 0) is None


@pytest.mark.slow
def test_a_model_of_which_half_was_reordered_is_derived(tmp_path):
    """What stands in place is like a common start there; what moved has to be put back before that is asked."""
    state, config, tokenizer = load("finetune")
    found = verdict(load("base"), (partly_reordered(state, config, 3), config, tokenizer), tmp_path)
    assert (found.class_, found.kinds[0]) == ("derived", "re_based")
    assert "continued_pretraining" not in found.kinds  # what did not move is no measure of training
