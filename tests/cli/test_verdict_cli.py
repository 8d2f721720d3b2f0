"""The verdict on the command line: exit codes, reasoning, controls, JSON, and calibrated nulls."""

import json

import numpy as np
import pytest

from kinprint.lab.zoo.derive import drop_layers, load_state, noise, save_state
from kinprint.results.findings import CLASSES

QUICK = ("--metrics", "byte_identity", "--quiet", "--format", "json", "--full", "--exit-code")
CODES = {
    "no_evidence": 0,
    "not_testable": 7,
    "identical": 10,
    "derived": 11,
    "shares_components": 12,
    "shares_initialisation": 13,
}
RULES = ("controls", "comparable", "identical", "independent", "trunk", "initialisation", "coverage", "derived")


@pytest.fixture(scope="module")
def models(demo, tmp_path_factory):
    """Two layers each of the demo's models, and children made of them."""
    root = tmp_path_factory.mktemp("two_layers")
    states = {}
    for name in ("base", "unrelated", "finetune"):
        state, config, tokenizer = load_state(demo / name)
        states[name], config = drop_layers(state, config, (0, 2))
        save_state(root / name, states[name], config, tokenizer)
    tokenizer = load_state(demo / "base")[2]
    table = {"model.embed_tokens.weight": states["base"]["model.embed_tokens.weight"]}
    save_state(root / "embedding", {**states["unrelated"], **table}, config, tokenizer)
    for seed, name in enumerate(("start_1", "start_2")):
        save_state(root / name, started(states["base"], seed), config, tokenizer)
    return root


def started(state, seed):
    """A model of a random start that all seeds share and of training that they do not: strong directions, its norms."""
    result = {}
    for number, (name, value) in enumerate(sorted(state.items())):
        own, common = np.random.default_rng([seed, number]), np.random.default_rng([99, number])
        if value.ndim == 1:
            result[name] = (1 + 0.2 * own.standard_normal(value.shape)).astype(np.float32)
            continue
        rows, columns = value.shape
        learned = own.standard_normal((rows, 12)) @ own.standard_normal((12, columns)) / np.sqrt(12)
        drift = (1.0, 2.0)[number % 2] * own.standard_normal(value.shape)
        result[name] = (0.02 * (common.standard_normal(value.shape) + drift + 2 * learned)).astype(np.float32)
    return result


def verdict_of(done, class_):
    """Check code and JSON of one run and return the verdict."""
    assert done.code == CODES[class_], (done.out[-400:], done.err)
    data = json.loads(done.out)
    assert data["verdict"]["class"] == class_
    assert {"kind", "log10_p", "layer_map", "reasons", "untested"} <= set(data["verdict"])
    return data["verdict"]


def test_exit_codes_are_documented(inside):
    done = inside("compare", "--help")
    assert done.code == 0
    text = " ".join(done.out.split())
    for words in ("0 no evidence", "7 not testable", "10 identical", "11 derived", "12 shares components"):
        assert words in text
    assert "13 shares initialisation" in text
    assert "10 to 18 findings of compare, if --exit-code or --fail-on" in " ".join(inside("--help").out.split())
    for option in ("--control", "--related", "--parent", "--deep", "--explain", "--null"):
        assert option in text
    assert set(CODES) == set(CLASSES)


def test_0_no_evidence(inside, models):
    verdict = verdict_of(inside("compare", models / "base", models / "unrelated", *QUICK), "no_evidence")
    assert verdict["layer_map"] is None
    assert verdict["log10_p"] > -6


def test_7_a_control_that_is_related(inside, models):
    done = inside(
        "compare", models / "base", models / "unrelated", *QUICK, "--control", models / "finetune", "--format", "json"
    )
    verdict = verdict_of(done, "not_testable")
    assert "did not give the answer known beforehand" in verdict["sentence"]
    assert "Traceback" not in done.err


def test_10_identical(inside, models):
    verdict = verdict_of(inside("compare", models / "base", models / "base", *QUICK), "identical")
    assert verdict["layer_map"] == [0, 1]


def test_11_derived(inside, models, tmp_path):
    done = inside("compare", models / "base", models / "finetune", *QUICK, "--out", tmp_path / "out")
    verdict = verdict_of(done, "derived")
    assert verdict["kind"] == "fine_tuned"
    assert verdict["log10_p"] < -6
    assert json.loads((tmp_path / "out" / "report.json").read_bytes())["verdict"] == verdict


@pytest.mark.slow
def test_12_shares_components(inside, models):
    verdict = verdict_of(inside("compare", models / "base", models / "embedding", *QUICK), "shares_components")
    assert "embedding" in verdict["sentence"]


@pytest.mark.slow
def test_13_shares_initialisation(inside, models):
    verdict = verdict_of(inside("compare", models / "start_1", models / "start_2", *QUICK), "shares_initialisation")
    assert "initialisation" in verdict["sentence"]


@pytest.mark.slow
def test_codes_outside(kinprint, models):
    """The process itself ends with the verdict's code, if asked, and stdout is JSON alone."""
    done = kinprint("compare", models / "base", models / "finetune", *QUICK)
    assert verdict_of(done, "derived")["layer_map"] == [0, 1]
    assert done.err == ""


# -- reasoning -------------------------------------------------------------------------------------------------------------


def test_explain_shows_every_rule_with_its_inputs(inside, models):
    table = ("--format", "table", "--summary")
    done = inside("compare", models / "base", models / "finetune", *QUICK, *table, "--explain")
    assert done.code == 11
    assert "How the verdict was reached" in done.out
    reasoning = done.out.split("How the verdict was reached")[1].split("Reading, stage by stage")[0]
    lines = reasoning.splitlines()
    for rule in RULES:
        (at,) = [number for number, text in enumerate(lines) if text.startswith(f"{rule}: ")]
        assert lines[at].endswith("Outcome: derived." if rule == "derived" else "No, go on.")
        assert lines[at + 1].startswith("  · ")  # at least one input
    assert "self: passed" in reasoning
    assert "threshold -6" in reasoning
    assert "comparison: " in done.out.split("Reading, stage by stage")[1]
    assert "Verdict: derived" in done.out
    assert "Evidence by role" in done.out
    alone = inside("compare", models / "base", models / "finetune", *QUICK[:3], "--explain")
    assert reasoning in alone.out  # why, without what was measured in every role and layer
    assert "Tests of the hypothesis" in alone.out
    assert "Evidence by role" not in alone.out
    plain = inside("compare", models / "base", models / "base", *QUICK, *table)
    assert plain.code == 10
    assert "Reasoning" not in plain.out
    assert "Verdict: identical" in plain.out


# -- controls --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["--control", "--related", "--parent"])
@pytest.mark.parametrize("name", ["{here}/none", "no-model"])
def test_a_further_model_that_does_not_exist_is_refused_before_anything_is_read(inside, models, tmp_path, option, name):
    given = option, name.format(here=tmp_path), "--control", models / "unrelated"
    done = inside("compare", models / "base", models / "finetune", *QUICK, *given)
    assert (done.code, done.out) == (3, "")
    assert name.format(here=tmp_path) in done.err
    assert "next: " in done.err


@pytest.mark.parametrize("form", [(), ("--explain",), ("--full",)])
def test_a_parent_without_weights_is_told_in_every_form(inside, models, tmp_path, form):
    done = inside("compare", models / "base", models / "finetune", "--parent", tmp_path, "--quiet", *form)
    told = " ".join(done.out.split())
    assert done.code == 0
    assert "merge of A and the models given as parents: a parent could not be read" in told


def test_a_control_without_weights(inside, models, tmp_path):
    """One of two: the verdict stands and says so. The only one: there is no verdict."""
    missing = tmp_path
    both = ("--control", models / "unrelated", "--control", missing)
    done = inside("compare", models / "base", models / "finetune", *QUICK, *both)
    verdict = verdict_of(done, "derived")
    assert any(str(missing) in text and "not run" in text for text in verdict["untested"])
    controls = json.loads(done.out)["evidence"]["controls"]
    assert [item["status"] for item in controls] == ["passed", "passed", "passed", "not run"]
    alone = inside("compare", models / "base", models / "finetune", *QUICK, "--control", missing)
    verdict_of(alone, "not_testable")


# -- calibration -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def null(inside, models, tmp_path):
    target = tmp_path / "mine.json"
    done = inside(
        "calibrate",
        models / "base",
        models / "unrelated",
        "--out",
        target,
        "--name",
        "two of mine",
        "-q",
        "--format",
        "json",
    )
    assert done.code == 0, done.err
    assert f"wrote {target}" in done.err
    return target, done


def test_calibrate_writes_a_null_with_its_provenance(null, models):
    target, done = null
    data = json.loads(target.read_bytes())
    assert json.loads(done.out) == data
    assert (data["schema"], data["schema_version"], data["name"]) == ("kinprint.null", 1, "two of mine")
    assert data["made_by"].startswith("kinprint ")
    assert [model["label"] for model in data["models"]] == ["base", "unrelated"]
    assert all(model["identity"].startswith("sha256:") for model in data["models"])
    sample = next(item for item in data["samples"] if item["statistic"] == "neuron_agreement")
    assert sample["pairs"] == len(sample["values"]) == 4
    assert sample["largest"] == max(sample["values"]) < 0.5
    assert str(models) not in target.read_text()  # no path of this machine


@pytest.mark.slow
def test_compare_uses_and_names_the_null(inside, null, models):
    target, _ = null
    state, config, tokenizer = load_state(models / "base")
    order = np.random.default_rng(5).permutation(config["intermediate_size"])
    for name in list(state):
        if "gate_proj" in name or "up_proj" in name:
            state[name] = state[name][order]
        elif "down_proj" in name:
            state[name] = np.ascontiguousarray(state[name][:, order])
    child = target.parent / "reordered"
    save_state(child, noise(state, 0.05, 6), config, tokenizer)
    done = inside("compare", models / "base", child, *QUICK, "--null", target)
    verdict = verdict_of(done, "derived")
    assert verdict["null"] == "two of mine"
    tests = [test for test in json.loads(done.out)["evidence"]["tests"] if test["name"] == "neuron_match"]
    assert tests
    assert all("two of mine" in test["null"] for test in tests)


def test_calibrate_as_a_table(inside, models, tmp_path):
    done = inside(
        "calibrate", models / "base", models / "unrelated", "--out", tmp_path / "n.json", "--format", "table", "-q"
    )
    assert done.code == 0
    assert "neuron_agreement: 4 pairs of layers, mean " in done.out


def test_calibrate_refuses_related_models(inside, models, tmp_path):
    target = tmp_path / "null.json"
    done = inside("calibrate", models / "base", models / "finetune", "--out", target, "-q")
    assert (done.code, done.out) == (7, "")
    assert "are not independent" in done.err
    assert "  next: " in done.err
    assert not target.exists()


def test_calibrate_needs_two_models(inside, models):
    done = inside("calibrate", models / "base", "-q")
    assert done.code == 2
    assert "at least two models" in done.err


BROKEN = {
    "not json": (b"{", 6),
    "empty": (b"", 6),
    "a list": (b"[]", 6),
    "another schema": (b'{"schema": "kinprint.report", "schema_version": 1}', 6),
    "a later version": (b'{"schema": "kinprint.null", "schema_version": 99}', 6),
    "parts missing": (b'{"schema": "kinprint.null", "schema_version": 1, "name": "x"}', 6),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_null_is_refused(inside, models, tmp_path, how):
    raw, code = BROKEN[how]
    path = tmp_path / "null.json"
    path.write_bytes(raw)
    done = inside("compare", models / "base", models / "unrelated", *QUICK, "--null", path)
    assert (done.code, done.out) == (code, "")
    assert "error: " in done.err
    assert "Traceback" not in done.err


def test_a_null_that_does_not_exist(inside, models, tmp_path):
    done = inside("compare", models / "base", models / "unrelated", *QUICK, "--null", tmp_path / "none.json")
    assert (done.code, done.out) == (3, "")
    assert "none.json" in done.err
    assert "kinprint calibrate makes one" in done.err


def test_calibrate_takes_a_folder_of_models(inside, models, tmp_path):
    folder = tmp_path / "independent"
    folder.mkdir()
    for name in ("base", "unrelated"):
        (folder / name).symlink_to(models / name, target_is_directory=True)
    done = inside("calibrate", folder, "--out", tmp_path / "null.json", "--quiet", "--format", "json")
    assert done.code == 0
    assert [item["label"] for item in json.loads(done.out)["models"]] == ["base", "unrelated"]
