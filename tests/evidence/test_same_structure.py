"""Recipes that give places a meaning: independent models made alike are accused of nothing, copies made alike are found."""

import numpy as np
import pytest

from kinprint import compare
from kinprint.evidence.components import PLACES_ALONE
from kinprint.lab.zoo.derive import load_state, noise, permute_neurons, save_state
from kinprint.lab.zoo.derive.symmetry import residual_axis
from kinprint.results.findings import DERIVED, NO_EVIDENCE, SAME_STRUCTURE, SHARES_INITIALISATION
from support.places import DEMO_MODELS, FAMILY_MODELS
from support.probes import probe_from_state
from support.recipes import RECIPES
from support.red_team.scripts import put_in_order, wave_embeddings


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


@pytest.mark.parametrize("recipe", [None, "interleaved groups stored dense"])
def test_places_are_said_to_agree_only_where_they_do(recipe, demo, weigh):
    """Of parts of unrelated models that agree in nothing, "whatever agrees is places" would not be so."""
    made = (demo(name)[0] if recipe is None else RECIPES[recipe](demo(name)[0]) for name in ("base", "unrelated"))
    _, facts = weigh(*(probe_from_state(state, demo("base")[1]) for state in made))
    notes = [facts.component(part).note for part in ("attention", "mlp")]
    assert notes == [None if recipe is None else PLACES_ALONE] * 2


def test_sinusoids_that_a_recipe_adds_to_embeddings_are_no_shared_embeddings(demo, weigh):
    """A token's number then says something of its row; a copy of the same table is found all the same."""
    config, (one, two) = demo("base")[1], (wave_embeddings(demo(name)[0]) for name in ("base", "unrelated"))
    verdict, facts = weigh(*(probe_from_state(state, config) for state in (one, two)))
    assert verdict.class_ == NO_EVIDENCE
    assert any("follow the number of their token" in str(test.reason) for test in facts.tests)
    assert weigh(*(probe_from_state(state, config) for state in (one, noise(one, 0.1, 3))))[0].class_ == DERIVED


def test_weights_projected_on_one_public_direction_are_not_shared(tmp_path):
    """Along residual dimensions all rows are the same vector then: permuting dimensions says nothing of the weights."""
    direction = np.linalg.qr(np.random.default_rng(0).standard_normal((96, 1)))[0]
    P = direction @ direction.T
    for folder in (DEMO_MODELS / "unrelated", FAMILY_MODELS / "indep"):
        state, *rest = load_state(folder)
        sides = {key: residual_axis(key) for key in state}
        made = {key: v if v.ndim == 1 else v @ P if sides[key] == 1 else P @ v for key, v in state.items()}
        save_state(tmp_path / folder.name, made, *rest)
    save_state(tmp_path / "child", noise(made, 0.3, 5), *rest)
    said = [compare(tmp_path / "indep", tmp_path / name).verdict.class_ for name in ("unrelated", "child")]
    assert said[0] == NO_EVIDENCE
    assert said[1] != NO_EVIDENCE
    # neurons that are all alike are not assigned to each other, which took a minute of CPU
    deep = compare(tmp_path / "indep", tmp_path / "unrelated", deep=True)
    assert deep.verdict.class_ == NO_EVIDENCE
    assert any(stage.startswith("disguises were not looked for") for stage in deep.evidence.stages)
    assert not [test for test in deep.evidence.tests if test.name.startswith("neuron_match")]


def test_neurons_put_in_the_order_of_the_other_models_are_no_shared_start(demo, judged):
    """Places and signs agree after that, and attention does not; a copy whose neurons were put back is found all the same."""
    (base, config, _), (stranger, _, _) = demo("base"), demo("unrelated")
    found = judged(base, put_in_order([stranger, base], config))
    assert (found.class_, found.variant, found.rules[-1].name) == (NO_EVIDENCE, SAME_STRUCTURE, "likeness")
    assert "put in the order of the other's" in found.sentence
    assert found.log10_p < -50
    assert not [line for line in found.against if "stands out" in line]
    tuned = permute_neurons(demo("finetune")[0], config, 3)
    assert judged(base, put_in_order([tuned, base], config)).class_ == DERIVED


def test_value_channels_put_in_order_along_with_neurons_are_no_shared_start(demo, tmp_path):
    """Queries and keys have an order that nobody may change, and agree where a start is shared."""
    base, config, _ = demo("base")
    for folder in (DEMO_MODELS / "unrelated", FAMILY_MODELS / "sibling"):
        state, _, own = load_state(folder)
        save_state(tmp_path / folder.name, put_in_order([state, base], config, values=True), config, own)
    stranger, sibling = (compare(DEMO_MODELS / "base", tmp_path / name).verdict for name in ("unrelated", "sibling"))
    assert (stranger.class_, stranger.variant, stranger.rules[-1].name) == (NO_EVIDENCE, SAME_STRUCTURE, "likeness")
    assert sibling.class_ == SHARES_INITIALISATION


def test_two_models_in_the_order_of_a_third_share_nothing(demo, judged):
    """What is left of that order between them shows in the outputs of MLPs alone."""
    (base, config, _), others = demo("base"), (load_state(FAMILY_MODELS / name)[0] for name in ("twin", "indep"))
    found = judged(*(put_in_order([state, base], config, tables=True) for state in others))
    assert (found.class_, found.rules[-1].name) == (NO_EVIDENCE, "likeness")
