"""Which parts share: embedding alone, norms alone, one layer, some experts, everything."""

import numpy as np
import pytest

from kinprint.lab.zoo.derive import noise, replace_norms, stack_layers, upcycle
from kinprint.results.findings import DERIVED, NO_EVIDENCE, SHARES_COMPONENTS
from support.probes import probe_from_state

TABLE = "model.embed_tokens.weight"


@pytest.fixture(scope="module")
def parts(demo, demo_probe, weigh):
    """Weigh the demo's base against a state: the verdict, the state of every part, and the facts."""

    def found(state, config=None):
        verdict, facts = weigh(demo_probe("base"), probe_from_state(state, config or demo("base")[1]))
        return verdict, {item.component: item for item in facts.components}, facts

    return found


def states(found):
    return {name: item.state for name, item in found.items()}


def test_the_embedding_alone(demo, parts):
    state = {**demo("unrelated")[0], TABLE: noise(demo("base")[0], 0.1, 1)[TABLE]}
    verdict, found, _ = parts(state)
    assert verdict.class_ == SHARES_COMPONENTS
    assert verdict.kind is None
    assert "The two models share token embeddings, and not most of their layers" in verdict.sentence
    assert "norms" not in verdict.sentence
    assert states(found) == {
        "embedding": "shared",
        "norms": "not shared",
        "head": "not shared",
        "attention": "not shared",
        "mlp": "not shared",
        "mlp output": "not shared",
        "attention output": "not tested",
    }
    assert {"norms: not shared", "attention: not shared", "mlp: not shared"} <= set(verdict.against)
    assert verdict.layer_map == (None,) * 4
    assert next(rule for rule in verdict.rules if rule.fired).name == "trunk"


def test_norms_alone(demo, parts):
    """Norms copied into other weights share norms. This is not a derivation."""
    verdict, found, _ = parts(replace_norms(demo("unrelated")[0], demo("base")[0]))
    assert verdict.class_ == SHARES_COMPONENTS
    assert "share norm weights" in verdict.sentence
    assert states(found)["norms"] == "shared"
    assert (found["norms"].tested, found["norms"].shared) == (3, 3)
    assert states(found)["attention"] == states(found)["mlp"] == states(found)["embedding"] == "not shared"


def test_some_norms_are_partly_shared(demo, parts):
    """Final and post-attention norms of another model: one of three norm roles shares."""
    base, other = demo("base")[0], demo("unrelated")[0]
    state = {n: base[n] if "input_layernorm" in n else value for n, value in other.items()}
    verdict, found, _ = parts(state)
    assert states(found)["norms"] == "partly shared"
    assert (found["norms"].tested, found["norms"].shared) == (3, 1)
    assert "norm weights (in 1 of 3 places)" in verdict.sentence


def test_one_layer_of_four(demo, parts):
    """Layer 2 is the base's, at its place or at another: shared components, with the map saying where from."""
    base, other = noise(demo("base")[0], 0.05, 2), demo("unrelated")[0]
    state = {n: base[n] if ".layers.2." in n else value for n, value in other.items()}
    verdict, found, _ = parts(state)
    assert verdict.class_ == SHARES_COMPONENTS
    assert verdict.layer_map == (None, None, 2, None)
    assert next(rule for rule in verdict.rules if rule.fired).name == "coverage"
    assert "1 of 4 layers tested match" in next(rule for rule in verdict.rules if rule.fired).inputs[0]
    for name, said in (("attention", "attention"), ("mlp", "MLP matrices")):
        assert (found[name].state, found[name].tested, found[name].shared) == ("partly shared", 4, 1)
        assert f"{said} (in 1 of 4 places)" in verdict.sentence
    moved, _ = stack_layers(state, demo("base")[1], (2, 0, 1, 3))
    assert parts(moved)[0].layer_map == (2, None, None, None)


def test_mlps_alone(demo, parts):
    """Every MLP is the base's, everything else another model's."""
    base, other = demo("base")[0], demo("unrelated")[0]
    verdict, found, _ = parts({n: base[n] if ".mlp." in n else value for n, value in other.items()})
    assert states(found)["mlp"] == "shared"
    # in place nothing agrees; whether heads were reordered needs whole matrices, which a probe does not hold
    assert states(found)["attention"] == "not tested"
    assert verdict.class_ == DERIVED  # all layers share trained weights
    assert "attention: not in place: heads may be reordered or rotated" in verdict.untested


def test_output_matrices_alone(demo, parts):
    """Only what writes into the residual stream is the base's. It is seen, and the sentence names something."""
    base, other = demo("base")[0], demo("unrelated")[0]
    state = {n: base[n] if "down_proj" in n or "o_proj" in n else value for n, value in other.items()}
    verdict, _, _ = parts(state)
    assert verdict.class_ in (SHARES_COMPONENTS, DERIVED)
    assert "share ," not in verdict.sentence


@pytest.mark.parametrize(("related", "class_"), [(True, DERIVED), (False, NO_EVIDENCE)])
def test_models_with_sinusoidal_positions(small, weigh, related, class_):
    """Residual dimensions have an order, so norms and the layer map are off. Neurons have none: they still decide."""
    state, config, _ = small(31)
    fixed = {**config, "sinusoidal_pos_embds": True}
    other = noise(state, 0.1, 8) if related else small(32)[0]
    verdict, facts = weigh(probe_from_state(state, fixed), probe_from_state(other, fixed))
    off = {test.scope for test in facts.tests if test.name == "norm_joint" and test.status == "off"}
    assert off == {"input_norm", "post_attention_norm", "final_norm"}
    assert any("sinusoidal" in text for text in verdict.untested)
    assert "share ," not in verdict.sentence
    assert verdict.class_ == class_


def test_everything(demo, parts):
    verdict, found, _ = parts(demo("finetune")[0])
    assert verdict.class_ == DERIVED
    assert set(found) == {"embedding", "norms", "head", "attention", "mlp", "mlp output", "attention output"}
    assert states(found).pop("attention output") in ("shared", "not tested")  # 32 rows: a copy is barely seen
    assert all(i.shared == i.tested and i.log10_p < -4 for i in found.values() if i.component != "attention output")


def test_nothing(demo, parts):
    verdict, found, _ = parts(demo("unrelated")[0])
    assert verdict.class_ == NO_EVIDENCE
    assert set(states(found).values()) == {"not shared", "not tested"}
    assert verdict.layer_map is None


# -- experts -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def moe(demo):
    """Turn a demo model into four experts a layer."""

    def build(name, seed):
        state, config, _ = demo(name)
        return upcycle(state, config, 4, 0.2, seed)

    return build


def with_experts(state, other, replaced):
    return {n: other[n] if any(f".experts.{e}." in n for e in replaced) else value for n, value in state.items()}


def shared(experts):
    return {(item.layer, item.expert): item.source for item in experts if item.shared}


def test_some_experts_of_an_upcycled_model(moe, parts):
    """Experts 1 and 3 are another model's: the findings say exactly which come from the dense MLP."""
    state, config = moe("base", 3)
    verdict, found, facts = parts(with_experts(state, moe("unrelated", 4)[0], (1, 3)), config)
    assert shared(facts.experts) == {(layer, expert): None for layer in range(4) for expert in (0, 2)}
    assert {(item.layer, item.expert) for item in facts.experts} == {(i, e) for i in range(4) for e in range(4)}
    assert all(item.log10_p > -4 for item in facts.experts if not item.shared)
    experts = found["experts"]
    assert (experts.state, experts.tested, experts.shared) == ("partly shared", 16, 8)
    assert (verdict.class_, verdict.kind) == (DERIVED, "upcycled")
    assert "8 experts in 4 layers come from the dense MLP" in verdict.reasons
    assert "experts: partly shared" in verdict.against
    test = next(item for item in facts.tests if item.name == "expert_map")
    assert (test.statistic, test.n) == (8, 16)


@pytest.fixture(scope="module")
def mixture(small):
    """A mixture whose four experts have nothing in common, as after training from scratch."""

    def build(seed):
        state, config = upcycle(*small(seed)[:2], 4, 0.0, seed)
        for expert in range(1, 4):
            state = with_experts(state, upcycle(*small(seed + expert)[:2], 4, 0.0, seed)[0], (expert,))
        return state, config

    return build


def test_experts_are_traced_to_their_numbers(mixture, weigh):
    """B has A's experts in another order, one of them replaced: each is traced to its number in A."""
    state, config = mixture(30)
    order = (2, 0, 3, 1)
    child = dict(state)
    for name in state:
        for expert, source in enumerate(order):
            if f".experts.{expert}." in name:
                child[name] = state[name.replace(f".experts.{expert}.", f".experts.{source}.")]
    child = with_experts(noise(child, 0.1, 7), mixture(40)[0], (1,))
    verdict, facts = weigh(probe_from_state(state, config), probe_from_state(child, config))
    assert shared(facts.experts) == {(layer, e): order[e] for layer in range(3) for e in (0, 2, 3)}
    assert len(facts.experts) == 12
    experts = next(item for item in facts.components if item.component == "experts")
    assert (experts.tested, experts.shared) == (12, 9)
    assert (verdict.class_, verdict.layer_map) == (DERIVED, (0, 1, 2))


def test_unrelated_mixtures(mixture, weigh):
    verdict, facts = weigh(probe_from_state(*mixture(30)), probe_from_state(*mixture(40)))
    assert verdict.class_ == NO_EVIDENCE
    assert shared(facts.experts) == {}
    assert len(facts.experts) == 12
    assert np.median([item.log10_p for item in facts.experts]) > -0.5
