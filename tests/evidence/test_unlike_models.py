"""Models that do not fit each other: other widths and depths, quantised, tied, parts missing, themselves, NaN."""

import numpy as np
import pytest

from kinprint.lab.zoo.derive import drop_layers, noise, quantise, stack_layers
from kinprint.results.findings import DERIVED, IDENTICAL, NO_EVIDENCE, NOT_TESTABLE, SHARES_INITIALISATION

NORMS = ("input_layernorm", "post_attention_layernorm", "norm")
WRITERS = ("o_proj", "down_proj")
UP1 = "model.layers.1.mlp.up_proj.weight"


def narrowed(state, config, kept):
    """Keep some residual dimensions wherever they are read, written or scaled."""
    result = {}
    for name, value in state.items():
        rows = name.split(".")[-2] in (*NORMS, *WRITERS)
        result[name] = value[kept] if rows else np.ascontiguousarray(value[:, kept])
    return result, {**config, "hidden_size": len(kept)}


@pytest.fixture(scope="module")
def model(small):
    """State, config and tokenizer of model A of this module."""
    return small(60, hidden=96)


@pytest.fixture(scope="module")
def against(model, folder, judge):
    """Compare A with another state; the config is A's unless another is given."""
    a = folder("unlike", *model)

    def report(name, state, config=None, tokenizer=None, **chosen):
        b = folder(f"unlike_{name}", state, config or model[1], tokenizer or model[2])
        return judge(a, b, **chosen)

    return report


def states(report):
    return {item.component: item.state for item in report.evidence.components}


def untested(report, *words):
    return any(all(word in text for word in words) for text in report.verdict.untested)


# -- width -----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def half():
    return np.sort(np.random.default_rng(61).permutation(96)[:48])


def test_a_narrowed_model_is_found_by_its_tokens(model, against, half):
    state, config, _ = model
    report = against("narrowed", *narrowed(noise(state, 0.1, 1), config, half))
    assert (report.a.hidden, report.b.hidden) == (96, 48)
    assert report.verdict.class_ == SHARES_INITIALISATION  # nothing in drawn weights was learned: weights, or a start
    tests = {(test.name, test.scope): test for test in report.evidence.tests}
    for role in ("mlp_gate", "mlp_up"):
        assert tests["fixed_points_aligned", role].log10_p < -50
        assert any("embeddings of shared tokens" in text for text in tests["fixed_points_aligned", role].assumptions)
        assert tests["fixed_points", role].status == "off"
    assert untested(report, "layer map", "residual widths differ: 96 and 48")
    assert untested(report, "token_rows", "widths differ: 96 and 48")


@pytest.mark.slow
def test_a_narrowed_trained_model(demo, folder, judge, half):
    state, config, tokenizer = demo("base")
    report = judge(folder("base"), folder("unlike_base_narrowed", *narrowed(state, config, half), tokenizer))
    assert (report.verdict.class_, report.verdict.kind) == (DERIVED, "re_based")
    assert "narrowed or widened" in report.verdict.sentence


@pytest.mark.slow
def test_an_unrelated_trained_model_of_another_width(demo, folder, judge, half):
    state, config, tokenizer = demo("unrelated")
    report = judge(folder("base"), folder("unlike_unrelated_narrowed", *narrowed(state, config, half), tokenizer))
    assert report.verdict.class_ in (NO_EVIDENCE, NOT_TESTABLE)
    assert report.verdict.log10_p > -3


def test_an_unrelated_model_of_another_width_is_not_found(small, against):
    state, config, tokenizer = small(62, hidden=48)
    report = against("other_width", state, config, tokenizer)
    assert report.verdict.class_ in (NO_EVIDENCE, NOT_TESTABLE)
    assert report.verdict.log10_p > -3
    ran = {test.name for test in report.evidence.tests if test.status == "ok"}
    assert ran == {"fixed_points_aligned", "neuron_match_aligned"}  # what could still be tested was
    assert untested(report, "layer map", "residual widths differ: 96 and 48")
    notes = {item.component: item.note for item in report.evidence.components if item.state == "not tested"}
    assert {"embedding", "norms", "head", "attention output", "mlp output"} <= notes.keys()
    for component in ("embedding", "norms", "head", "attention output", "mlp output"):
        assert "differ" in notes[component], component
        assert "not stored" not in notes[component]


def test_a_part_that_one_model_lacks_is_said_to_be_its_alone(small, against):
    state, config, tokenizer = small(61)
    state = {name: values for name, values in state.items() if "o_proj" not in name}
    report = against("no_output", state, config, tokenizer)
    notes = {item.component: item.note for item in report.evidence.components}
    assert notes["attention output"] == "only model A has it"


def test_another_width_and_no_common_token(small, against):
    """Nothing is left to align by: not testable, and the reason is said."""
    state, config, tokenizer = small(63, hidden=48)
    words = {f"other{number}": number for number in range(160)}
    report = against("other_words", state, config, {"model": {**tokenizer["model"], "vocab": words}})
    assert report.verdict.class_ == NOT_TESTABLE
    assert untested(report, "fewer than 64 tokens are known to be in both vocabularies")
    assert "widths differ" in report.verdict.sentence or "equal width" in report.verdict.sentence


# -- depth -----------------------------------------------------------------------------------------------------------------


def test_an_unrelated_model_of_another_depth(small, against):
    state, config, tokenizer = small(64, hidden=96)
    report = against("shallow", *drop_layers(state, config, (0, 2)), tokenizer)
    assert report.verdict.class_ == NO_EVIDENCE
    assert report.verdict.layer_map is None
    assert len(report.evidence.alignment.layers) == 2
    assert {item.tries for item in report.evidence.alignment.layers} == {2}  # and three lines: six pairs either way
    assert any("model B has only 2 layers" in item.reason for item in report.skipped)


def test_a_deeper_child(model, against):
    state, config, _ = model
    report = against("deeper", *stack_layers(noise(state, 0.2, 2), config, (0, 1, 1, 2, 2)))
    assert (report.verdict.class_, report.verdict.kind) == (DERIVED, "depth_changed")
    assert report.verdict.layer_map == (0, 1, 1, 2, 2)


# -- what was stored -------------------------------------------------------------------------------------------------------


def test_one_side_quantised(model, against):
    report = against("int4", quantise(model[0], 4))
    assert (report.verdict.class_, report.verdict.kind) == (DERIVED, "quantised")
    assert "4 bits" in report.verdict.sentence
    assert {item.bits for item in report.evidence.edits} == {4}
    assert report.verdict.layer_map == (0, 1, 2)


def test_tied_embeddings(model, against):
    """B has no head of its own. That is said, and hides nothing else."""
    state, config, _ = model
    tied = {name: value for name, value in noise(state, 0.1, 3).items() if name != "lm_head.weight"}
    report = against("tied", tied, {**config, "tie_word_embeddings": True})
    assert report.verdict.class_ == DERIVED
    assert states(report).get("head", "not tested") == "not tested"
    assert {states(report)[name] for name in ("embedding", "norms", "attention", "mlp")} == {"shared"}
    assert any("only model A has the role head" in item.reason for item in report.skipped)
    assert untested(report, "head")


def test_no_norms(model, against):
    bare = {name: value for name, value in noise(model[0], 0.1, 4).items() if value.ndim == 2}
    report = against("no_norms", bare)
    assert report.verdict.class_ == SHARES_INITIALISATION  # nothing in drawn weights was learned: weights, or a start
    assert states(report).get("norms", "not tested") == "not tested"
    assert not any(test.name == "norm_joint" for test in report.evidence.tests)
    assert any("only model A has the role input_norm" in item.reason for item in report.skipped)
    assert untested(report, "norm")


def test_no_mlp(model, against):
    """What one side does not have was not tested. It was not found to differ."""
    bare = {name: value for name, value in noise(model[0], 0.1, 5).items() if ".mlp." not in name}
    report = against("no_mlp", bare)
    assert report.verdict.class_ == DERIVED
    assert report.verdict.layer_map == (0, 1, 2)
    assert untested(report, "mlp: only model A has it")
    assert states(report).get("mlp", "not tested") == "not tested"
    assert report.verdict.kind != "mlp_changed"
    assert "mlp: not shared" not in report.verdict.against


def test_config_alone_changes_nothing(model, against):
    """Names, sizes of no consequence, dates: the same weights give the same class."""
    state, config, _ = model
    edited = {
        **config,
        "model_type": "mistral",
        "architectures": ["MistralForCausalLM"],
        "rope_theta": 5e6,
        "_name_or_path": "someone/else",
        "transformers_version": "9.9",
        "max_position_embeddings": 7,
    }
    one, two = against("plain", noise(state, 0.1, 6)), against("edited", noise(state, 0.1, 6), edited)
    assert two.config.differences
    for found in (one, two):
        assert (found.verdict.class_, found.verdict.kind) == (DERIVED, one.verdict.kind)
    assert one.verdict.log10_p == two.verdict.log10_p
    assert [rule.fired for rule in one.verdict.rules] == [rule.fired for rule in two.verdict.rules]


# -- the same model --------------------------------------------------------------------------------------------------------


def test_a_model_and_itself(model, folder, judge, against):
    copy = against("copy", model[0])
    itself = judge(copy.a.location, copy.a.location)
    for report in (copy, itself):
        verdict = report.verdict
        assert (verdict.class_, verdict.kind, verdict.layer_map) == (IDENTICAL, None, (0, 1, 2))
        assert "every weight is the same" in verdict.sentence
        assert any(text.startswith("identity:") and "100.0%" in text for text in report.evidence.stages)
        rule = verdict.rules[-1]
        assert (rule.name, rule.inputs[0]) == ("identical", "30 of 30 tensors identical")


@pytest.mark.parametrize("where", [(80, 3), pytest.param((95, 95), marks=pytest.mark.slow)])
def test_one_weight_outside_the_sample(model, against, where):
    """Only 32 rows are sampled; before "identical" is said, the rest is looked at."""
    state = {name: value.copy() for name, value in model[0].items()}
    state[UP1][where] += 0.01
    report = against(f"one_weight_{where[0]}", state)
    assert report.verdict.class_ == DERIVED
    rule = next(rule for rule in report.verdict.rules if rule.name == "identical")
    assert (rule.fired, rule.inputs[0]) == (False, "29 of 30 tensors identical")


# -- not a number ----------------------------------------------------------------------------------------------------------


def test_nan_in_a_few_places(model, against):
    """The tests it reaches are off and say where; the others decide."""
    state = {name: value.copy() for name, value in noise(model[0], 0.1, 7).items()}
    state[UP1][3, 3] = np.nan
    state["model.layers.0.input_layernorm.weight"][5] = np.nan
    report = against("nan", state)
    assert report.verdict.class_ == DERIVED
    assert untested(report, "norm_joint (input_norm)", "NaN or infinity", "of B in layer 0")
    assert untested(report, "fixed_points (mlp_up)", "NaN or infinity", "of B in layer 1")
    assert report.verdict.layer_map == (0, 1, 2)


def test_nothing_but_nan(model, against):
    report = against("all_nan", {name: np.full_like(value, np.nan) for name, value in model[0].items()})
    assert report.verdict.class_ == NOT_TESTABLE
    assert not any(test.log10_p is not None for test in report.evidence.tests)
    assert "NaN" in report.verdict.sentence or "finite" in report.verdict.sentence
    assert b"NaN" not in report.to_json().replace(b"NaN or infinity", b"")
