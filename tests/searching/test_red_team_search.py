"""Strangers that a public recipe made alike, through the proof of a search: none is called a relative."""

import pytest

from kinprint.evidence.rules import LOG10_ALPHA
from kinprint.fingerprints.compact.proof import prove
from kinprint.fingerprints.methods import METHODS
from kinprint.lab.red_team.recipe import made
from kinprint.lab.zoo.held import HeldWeights
from kinprint.results.findings import NO_EVIDENCE, NOT_TESTABLE
from support.red_team.recipes import all_recipes

INNOCENT = {recipe.name: recipe for recipe in all_recipes() if {*recipe.classes} <= {NO_EVIDENCE, NOT_TESTABLE}}
TRAINED = "two starts, 50 steps"  # needs torch
SAMPLE = ("neurons in another's order", "all in another's order", *list(INNOCENT)[::14])


def proof_of(recipe, layers):
    sides = [(recipe.a, recipe.left), (recipe.b, recipe.right)]
    models = [HeldWeights(str(side), *made(*model, layers)) for side, model in enumerate(sides)]
    return prove(*(METHODS["compact"].extract(model) for model in models))


@pytest.mark.parametrize("name", dict.fromkeys(SAMPLE))
def test_a_sample_of_strangers_made_alike(name):
    recipe = INNOCENT[name]
    assert (proof_of(recipe, recipe.layers[0]).log10_p or 0.0) > LOG10_ALPHA


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name in INNOCENT if name != TRAINED])
def test_all_strangers_made_alike(name):
    recipe = INNOCENT[name]
    for layers in recipe.layers:
        assert (proof_of(recipe, layers).log10_p or 0.0) > LOG10_ALPHA, layers
