"""Recipes that give places a meaning: independent models made alike are accused of nothing, copies made alike are found."""

import pytest

from kinprint.lab.zoo.derive import noise
from kinprint.results.findings import DERIVED, NO_EVIDENCE, SAME_STRUCTURE
from support.probes import probe_from_state
from support.recipes import RECIPES
from support.red_team.scripts import wave_embeddings


@pytest.fixture(scope="module")
def judged(demo, weigh):
    def verdict(left, right):
        return weigh(*(probe_from_state(state, demo("base")[1]) for state in (left, right)))[0]

    return verdict


@pytest.mark.parametrize("recipe", RECIPES)
def test_independent_models_made_alike_are_not_accused(recipe, demo, judged):
    found = judged(*(RECIPES[recipe](demo(name)[0]) for name in ("base", "unrelated")))
    assert found.class_ == NO_EVIDENCE, found.sentence
    if recipe == "interleaved groups stored dense":
        assert found.variant == SAME_STRUCTURE
        assert "the same structure" in found.sentence


@pytest.mark.parametrize("recipe", RECIPES)
def test_copies_made_alike_are_found(recipe, demo, judged):
    made = RECIPES[recipe](demo("base")[0])
    found = judged(made, noise(made, 0.3, 5))
    assert found.class_ == DERIVED, found.sentence
    assert found.variant != SAME_STRUCTURE


def test_sinusoids_that_a_recipe_adds_to_embeddings_are_no_shared_embeddings(demo, weigh):
    """A token's number then says something of its row; a copy of the same table is found all the same."""
    config, (one, two) = demo("base")[1], (wave_embeddings(demo(name)[0]) for name in ("base", "unrelated"))
    verdict, facts = weigh(*(probe_from_state(state, config) for state in (one, two)))
    assert verdict.class_ == NO_EVIDENCE
    assert any("follow the number of their token" in str(test.reason) for test in facts.tests)
    assert weigh(*(probe_from_state(state, config) for state in (one, noise(one, 0.1, 3))))[0].class_ == DERIVED
