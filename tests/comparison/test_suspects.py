"""Models made to break a comparison: it ends with a verdict or a refusal, and what could not run is said and claims nothing."""

import shutil
from functools import cache

import numpy as np
import pytest

from kinprint.comparison.pipeline import compare
from kinprint.errors import TransferError
from kinprint.evidence import attempts, controls, examine
from kinprint.formats.safetensors.writer import spec_of
from kinprint.results.findings import TESTED
from support.fuzzing import MemorySession, fuzz
from support.places import DEMO_MODELS
from support.suspects import files_of, sound, suspect, write

QUICK = {"metrics": ("pearson",)}


@pytest.fixture
def lenient(monkeypatch):
    """As users run it: the project's own tests let every error pass."""
    monkeypatch.setattr(attempts, "strict", False)


@pytest.fixture
def judge(tmp_path):
    """Compare the sound model with another, in either order."""

    def run(tensors, config, tokenizer, *, swapped=False, **chosen):
        a = write(tmp_path / "a", files_of(*sound()))
        b = write(tmp_path / "b", files_of(tensors, config, tokenizer))
        pair = (b, a) if swapped else (a, b)
        with MemorySession() as session:
            return compare(*pair, session=session, **(QUICK | chosen))

    return run


@pytest.mark.parametrize("swapped", [False, pytest.param(True, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("role", ["mlp.gate_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.q_proj"])
def test_one_matrix_narrower_than_its_neighbours(judge, role, swapped):
    tensors, *rest = sound()
    name = f"model.layers.1.{role}.weight"
    tensors[name] = np.ascontiguousarray(tensors[name][:, :-1])
    report = judge(tensors, *rest, swapped=swapped)
    assert report.verdict.log10_p < -6  # the rest is a copy all the same
    assert any(item.reason and "counts differ" in item.reason for item in report.comparisons)
    assert report.evidence.alignment.status == TESTED  # by the roles that are whole


ODD = ([], {}, None, 7, ["llama"])
KEYS = {"model_type": ODD, "architectures": ({}, 7), "num_attention_heads": ([], None), "hidden_size": ([], ["llama"])}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param(key, value, marks=() if value in sample else pytest.mark.nightly)
        for key, sample in KEYS.items()
        for value in ODD
    ],
)
def test_a_config_of_odd_types(judge, key, value):
    tensors, config, tokenizer = sound()
    assert judge(tensors, config | {key: value}, tokenizer).verdict.log10_p < -6


@pytest.mark.parametrize("scales", [(0, 1), (1, 1), (), (0,)])
def test_a_matrix_of_eight_bits_without_rows(judge, scales):
    tensors, config, tokenizer = sound()
    name = "model.layers.1.mlp.gate_proj.weight"
    tensors[name] = spec_of(np.zeros((0, 32), np.uint8), "F8_E4M3")
    tensors[f"{name}_scale_inv"] = np.ones(scales, np.float32)
    config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [16, 16]}
    assert judge(tensors, config, tokenizer).verdict.log10_p < -6


def test_truth_values_in_place_of_numbers(judge):
    tensors, *rest = sound()
    for name in [name for name in tensors if "layernorm" in name or "gate_proj" in name]:
        tensors[name] = spec_of((tensors[name] > 0).astype(np.uint8), "BOOL")
    judge(tensors, *rest)


# -- what nobody foresaw -------------------------------------------------------------------------------------------------

SAID = "this test could not run, because"
EVIDENCE = "kinprint.evidence"


def broken(*_arguments, **_more):
    raise RuntimeError("of all things")


@cache
def unbroken(a, b, **chosen):
    return compare(DEMO_MODELS / a, DEMO_MODELS / b, **QUICK, **chosen)


def texts(report):
    return report.to_json().decode()


@pytest.mark.parametrize(
    ("where", "pair", "chosen"),
    [
        pytest.param("battery.matrix_test", ("base", "finetune"), {}, marks=pytest.mark.nightly),
        ("battery.sign_test", ("base", "finetune"), {}),
        pytest.param("layer_map.row_test", ("base", "finetune"), {}, marks=pytest.mark.nightly),
        ("assess.align_layers", ("base", "finetune"), {}),
        pytest.param("assess.expert_map", ("base", "finetune"), {}, marks=pytest.mark.slow),
        ("neuron_matching.match_neurons", ("base", "permuted"), {"deep": True}),
        pytest.param("basis.align_basis", ("base", "unrelated"), {"deep": True}, marks=pytest.mark.nightly),
        ("rotation.examine_rotation", ("base", "unrelated"), {"deep": True}),
        pytest.param("examine.power_of", ("base", "unrelated"), {}, marks=pytest.mark.slow),
        ("editing.examine_edits", ("base", "finetune"), {}),
        pytest.param(
            "editing.merge_of",
            ("base", "finetune"),
            {"parents": (str(DEMO_MODELS / "unrelated"),)},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_an_unexpected_error_ends_one_test_and_no_comparison(lenient, monkeypatch, where, pair, chosen):
    a, b = (DEMO_MODELS / name for name in pair)
    sound_report = unbroken(*pair, **chosen)
    monkeypatch.setattr(f"{EVIDENCE}.{where}", broken)
    report = compare(a, b, **QUICK, **chosen)
    assert where == "layer_map.row_test" or SAID in texts(report)
    assert where == "layer_map.row_test" or "RuntimeError: of all things" in texts(report)
    # a test that did not run supports no claim that was not made before
    assert (
        report.verdict.log10_p is None or report.verdict.log10_p >= sound_report.verdict.log10_p - 1
    )  # corrected for fewer tests
    assert report.verdict.kinds in ((), ("unknown",))


def test_signs_that_could_not_be_looked_at_support_no_claim(lenient, monkeypatch):
    monkeypatch.setattr(f"{EVIDENCE}.battery.sign_test", broken)
    tests = compare(DEMO_MODELS / "base", DEMO_MODELS / "finetune", **QUICK).evidence.tests
    claims = {test.log10_p_claim for test in tests if test.name in ("matrix_correlation", "fixed_points")}
    ordered = [test for test in tests if test.name == "fixed_points" and test.scope == "mlp_gate"]
    assert claims
    assert [(test.log10_p < -6, test.log10_p_claim) for test in ordered] == [(True, 0.0)]


def test_without_a_look_at_the_weights_no_kind_and_no_descent_is_claimed(lenient, monkeypatch):
    monkeypatch.setattr(f"{EVIDENCE}.editing.examine_edits", broken)
    verdict = compare(DEMO_MODELS / "base", DEMO_MODELS / "finetune", **QUICK).verdict
    assert (verdict.class_, verdict.kinds) == ("shares_initialisation", ())
    assert any(SAID in text for text in verdict.untested)
    assert "too little" in verdict.sentence


def test_attention_that_could_not_be_compared_is_not_called_replaced(lenient, monkeypatch, tmp_path):
    from kinprint.lab.zoo.derive import load_state, permute_heads, save_state

    state, config, tokenizer = load_state(DEMO_MODELS / "base")
    save_state(tmp_path / "heads", permute_heads(state, config, 3), config, tokenizer)
    pair = DEMO_MODELS / "base", tmp_path / "heads"
    assert "heads_reordered" in compare(*pair, **QUICK).verdict.kinds
    monkeypatch.setattr(f"{EVIDENCE}.head_products.compare_heads", broken)
    report = compare(*pair, **QUICK)
    (attention,) = [item for item in report.evidence.components if item.component == "attention"]
    assert (attention.state, SAID in attention.note) == ("not tested", True)
    assert "attention_changed" not in report.verdict.kinds


@pytest.mark.parametrize(
    ("where", "pair", "chosen"),
    [
        ("controls.own_controls", ("base", "finetune"), {}),
        ("neuron_gram.rotation_controls", ("base", "unrelated"), {"deep": True}),
        ("controls.read_alike", ("base", "finetune"), {"controls": (str(DEMO_MODELS / "unrelated"),)}),
    ],
)
def test_controls_that_could_not_run_forbid_a_verdict(lenient, monkeypatch, where, pair, chosen):
    monkeypatch.setattr(f"{EVIDENCE}.{where}", broken)
    report = compare(*(DEMO_MODELS / name for name in pair), **QUICK, **chosen)
    assert report.verdict.class_ == "not_testable"
    assert any(SAID in (control.reason or "") for control in report.evidence.controls)


def test_measurements_grids_and_methods_that_could_not_run(lenient, monkeypatch):
    monkeypatch.setattr("kinprint.comparison.tensors.measure", broken)
    monkeypatch.setattr("kinprint.comparison.pipeline.layer_grids", broken)
    monkeypatch.setattr("kinprint.fingerprints.run.check_needs", broken)
    report = compare(DEMO_MODELS / "base", DEMO_MODELS / "finetune", **QUICK, methods=("pdf",))
    assert report.verdict.class_ == "derived"
    assert all(SAID in item.reason for item in report.comparisons)
    assert SAID in report.notes[0]
    assert SAID in report.methods[0].reason


def test_what_is_raised_on_purpose_is_not_swallowed(lenient, monkeypatch):
    def gone(*_arguments, **_more):
        raise TransferError("the server gave up")

    monkeypatch.setattr(f"{EVIDENCE}.editing.examine_edits", gone)
    with pytest.raises(TransferError):
        compare(DEMO_MODELS / "base", DEMO_MODELS / "finetune", **QUICK)


# -- many of them ----------------------------------------------------------------------------------------------------------


PART = "suspects through compare, with 512 MB to spare"


@cache
def sound_files(experts, layers):
    return files_of(*sound(experts=experts, layers=layers))


_found: dict = {}
MOST_FOUND = 300


def once(real):
    """Return what a function found of the same probes before: half of the suspects differ in nothing that it looks at."""

    def looked_up(*probes, seed):
        key = real.__name__, seed, *(probe.contents() for probe in probes)
        if key not in _found:
            with attempts.noting() as broken:
                _found[key] = real(*probes, seed=seed), broken
        found, broken = _found[key] = _found.pop(key)  # now the latest
        if len(_found) > MOST_FOUND:
            del _found[next(iter(_found))]
        attempts.note(broken)
        return found

    return looked_up


@pytest.fixture
def remembered(monkeypatch, tmp_path):
    """Tests of slices that were tested before, by the same seed, come out the same: they take most of a comparison."""
    monkeypatch.chdir(tmp_path)  # where models have the same names in every part of the campaign
    monkeypatch.setattr(controls, "own_controls", once(controls.own_controls))
    monkeypatch.setattr(examine, "assess", once(examine.assess))


def campaign(folder, first, cases):
    """Compare suspects with a sound model; return how many were refused. Anything but a report or a refusal is raised."""
    kinds = [(experts, layers) for experts in (0, 2) for layers in (1, 2)]
    bases = {kind: write(folder / "sound{}-{}".format(*kind), sound_files(*kind)) for kind in kinds}

    def attempt_one(raw):
        number = int(raw)
        shutil.rmtree(folder / "suspect", ignore_errors=True)
        base = bases[2 * (number % 5 == 0), 1 if number % 3 else 2]
        pair = [base, write(folder / "suspect", suspect(number))]
        chosen = {"metrics": () if number % 8 == 0 else ("pearson",), "deep": number % 8 == 4}
        chosen |= {"methods": ("all",)} if number % 16 == 1 else {}
        with MemorySession() as session, np.errstate(all="ignore"):
            report = compare(*pair[:: 1 - 2 * (number % 2)], session=session, **chosen)
        assert report.to_json()
        assert report.verdict.class_ in ("not_testable", "no_evidence") or report.verdict.log10_p <= -6

    numbers = iter(range(first, first + cases))
    return fuzz(attempt_one, lambda _rng: b"%d" % next(numbers), seed=0, cases=cases, room=1 << 29, part=PART)


@pytest.mark.slow
def test_a_sample_of_suspects(lenient, remembered, tmp_path):
    assert 0 < campaign(tmp_path, 0, 12) < 11


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(200))
def test_suspects(lenient, remembered, tmp_path, part):
    assert 10 < campaign(tmp_path, 100 * part, 100) < 90


def test_every_suspect_can_be_made():
    assert all(suspect(number)["model.safetensors"] for number in range(40))
