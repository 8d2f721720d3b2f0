"""Checkpoints built so that the right answer is known."""

import numpy as np
import pytest

NORMS = ("input_norm", "post_attention_norm", "final_norm")
INPUT0 = "model.layers.0.input_layernorm.weight"


def heavy(rng, width):
    return np.exp(rng.standard_normal(width))


def lines(report):
    return {line.role: line for line in report.summary}


def pick(report, role, layer=0, expert=None):
    (found,) = [c for c in report.comparisons if (c.role, c.layer, c.expert) == (role, layer, expert)]
    return found


def metric(comparison, name):
    (found,) = [item for item in comparison.measurements if item.metric == name]
    return found


def noisy(seed, sigma):
    rng = np.random.default_rng(seed)

    def change(tensors):
        for name, values in tensors.items():
            tensors[name] = (values * (1 + sigma * rng.standard_normal(values.shape))).astype(np.float32)

    return change


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_independent_norms_with_heavy_tails_are_no_accusation(llama, run, seed):
    report = run(llama("a", seed, norm=heavy), llama("b", 100 + seed, norm=heavy), roles=("input_norm", "attn_q"))
    for item in report.comparisons:
        for found in item.measurements:
            if found.null is not None and found.null.z is not None:
                assert abs(found.null.z) < 5, (item.role, found.metric)
                assert found.null.log10_p is None or found.null.log10_p > -4
    assert min(line.null.log10_p for line in report.summary) > -3


def test_a_noisy_copy_is_seen_in_every_role(llama, run):
    report = run(llama("a", 1), llama("b", 1, change=noisy(5, 0.3)), layers="0-1", rows=16, metrics=("pearson",))
    assert {line.null.log10_p < -3.5 for line in report.summary} == {True}
    assert {line.null.z > 8 for line in report.summary} == {True}


def test_other_widths_are_not_comparable_and_named(llama, run):
    report = run(llama("a", 1), llama("b", 2, hidden=384))
    assert report.status == "not_comparable"
    assert "256" in report.reason
    assert "384" in report.reason
    assert all(item.status == "not_comparable" and item.measurements == () for item in report.comparisons)
    assert pick(report, "input_norm").reason == "residual counts differ: 256 and 384"
    assert lines(report)["input_norm"].reason == "residual counts differ: 256 and 384"
    assert report.bytes_planned == 0


def test_other_depths_compare_the_layers_both_have(llama, run):
    report = run(llama("a", 1, layers=4), llama("b", 2, layers=2), metrics=("pearson",))
    (skipped,) = report.skipped
    assert (skipped.count, skipped.reason) == (18, "model B has only 2 layers")
    assert {item.layer for item in report.comparisons} == {None, 0, 1}


def test_other_vocabularies_compare_rows_both_have(llama, run):
    report = run(llama("a", 1, vocab=200), llama("b", 1, vocab=120), roles=("embedding",), metrics="all")
    found = pick(report, "embedding", None)
    assert (found.status, found.rows) == ("ok", (30, 62))
    assert (found.a.shape, found.b.shape) == ((200, 256), (120, 256))
    assert metric(found, "byte_identity").value == 1.0  # the builder draws both embeddings from one stream


def test_grouped_queries_against_full_heads(llama, run):
    report = run(llama("a", 1, kv_heads=2), llama("b", 2, kv_heads=4), roles=("attn_q", "attn_k"))
    found = pick(report, "attn_k")
    assert (found.status, found.rows) == ("ok", (0, 32))
    assert (found.a.shape, found.b.shape) == ((128, 256), (256, 256))
    assert pick(report, "attn_q").status == "ok"


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_bad_number_spoils_its_tensor_only(llama, run, bad):
    def spoil(tensors):
        tensors[INPUT0][[3, 7]] = bad

    report = run(llama("a", 1, change=spoil), llama("b", 1), roles=("input_norm", "final_norm"))
    found = pick(report, "input_norm", 0)
    assert (found.a.nonfinite, found.b.nonfinite) == (2, 0)
    assert (found.status, found.measurements) == ("not_comparable", ())
    assert found.reason == "NaN or infinity in 2 of 256 values of A and 0 of 256 values of B"
    assert {item.status for item in report.comparisons if item is not found} == {"ok"}
    line = lines(report)["input_norm"]
    assert (line.compared, line.not_compared) == (2, 1)
    assert line.null is not None


@pytest.mark.parametrize("other", ["ones", "drawn"])
def test_constant_norms_have_reasons_and_no_numbers(llama, run, other):
    def ones(rng, width):
        return np.ones(width)

    report = run(llama("a", 1, norm=ones), llama("b", 2, **({"norm": ones} if other == "ones" else {})), roles=NORMS)
    found = pick(report, "input_norm")
    pearson = metric(found, "pearson")
    assert (pearson.status, pearson.value, pearson.null) == ("not_comparable", None, None)
    assert "constant" in pearson.reason
    cosine = metric(found, "cosine")
    assert cosine.null.z is None
    assert cosine.null.log10_p == 0.0
    line = lines(report)["input_norm"]
    assert line.null is None
    assert "constant" in line.reason


def test_norms_constant_up_to_rounding_give_every_metric_the_same_chance(llama, run):
    """The first metric of the dot family must not pay for the null they share."""

    def nearly(rng, width):
        return 1.0 + 1e-13 * rng.standard_normal(width)

    def precise(tensors):
        rng = np.random.default_rng(1)
        for name in tensors:
            if "norm" in name:
                tensors[name] = nearly(rng, 256)

    report = run(llama("a", 1, change=precise), llama("b", 2, change=precise), roles=NORMS, metrics="all")
    found = pick(report, "input_norm")
    assert metric(found, "pearson").status == "not_comparable"
    assert {metric(found, name).status for name in ("cosine", "l2", "rel_l2", "rel_l2_a")} == {"ok"}


def test_a_rounded_copy_differs_by_no_step_of_the_coarser_type(llama, run):
    report = run(llama("a", 1), llama("b", 1, dtype="BF16"), roles=("attn_q",), layers="0", metrics="all")
    found = pick(report, "attn_q")
    assert (found.a.dtype, found.b.dtype) == ("F32", "BF16")
    assert metric(found, "ulp_distance").value == 0.0
    # of 2^16 F32 values that round to one BF16 value, one is unchanged
    assert metric(found, "changed_ratio").value > 0.999
    assert metric(found, "byte_identity").value == 0.0
    assert metric(found, "pearson").value > 0.9999


def test_gemma_norms_get_their_one_back(llama, run):
    def minus_one(tensors):
        for name in tensors:
            if "norm" in name:
                tensors[name] = (tensors[name].astype(np.float64) - 1).astype(np.float32)

    gemma = {"model_type": "gemma", "architectures": ["GemmaForCausalLM"]}
    plain, offset = llama("a", 1), llama("b", 1, change=minus_one, extra=gemma)
    found = pick(run(plain, offset, roles=NORMS, metrics="all"), "input_norm")
    assert metric(found, "cosine").value == pytest.approx(1.0, abs=1e-9)
    assert metric(found, "rel_l2").value < 1e-6


def test_experts_are_sampled_and_the_rest_counted(checkpoint, run):
    config = {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_local_experts": 8}
    config |= {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 2}
    config |= {"intermediate_size": 48, "vocab_size": 50}

    def tensors(seed):
        rng = np.random.default_rng(seed)
        made = {"model.norm.weight": np.exp(0.3 * rng.standard_normal(64))}
        for layer in range(2):
            moe = f"model.layers.{layer}.block_sparse_moe."
            made[f"{moe}gate.weight"] = rng.standard_normal((8, 64))
            for expert in range(8):
                for part, shape in (("w1", (48, 64)), ("w2", (64, 48)), ("w3", (48, 64))):
                    made[f"{moe}experts.{expert}.{part}.weight"] = rng.standard_normal(shape)
        return {name: values.astype(np.float32) for name, values in made.items()}

    a, b = checkpoint("a", tensors(1), config), checkpoint("b", tensors(2), config)
    report = run(a, b, metrics=("pearson",))
    (skipped,) = report.skipped
    assert skipped.count == 2 * 3 * 7
    assert "1 of 8 experts" in skipped.reason
    assert {item.expert for item in report.comparisons} == {None, 0}
    assert pick(report, "expert_down", 1, 0).permuted_axis == "neuron"
    four = run(a, b, experts=4, metrics=("l2",))
    assert {item.expert for item in four.comparisons} == {None, 0, 2, 4, 6}
    none = run(a, b, experts=0, metrics=("l2",))
    assert {item.expert for item in none.comparisons} == {None}
    assert none.skipped[0].count == 2 * 3 * 8


def test_families_with_nothing_in_common(checkpoint, run, llama):
    strange = checkpoint(
        "x", {"a.b.c": np.ones((3, 3), np.float32), "d": np.ones(4, np.float32)}, {"model_type": "odd"}
    )
    report = run(llama("a", 1), strange)
    assert report.status == "not_comparable"
    assert set(report.b.unmapped) == {"a.b.c", "d"}
    assert report.b.architecture_guessed
    assert sum(item.count for item in report.skipped) == 30
    both = run(strange, strange)
    assert (both.status, both.verdict.class_) == ("ok", "identical")  # equal bytes need no role
    other = checkpoint("y", {"a.b.c": np.eye(3, dtype=np.float32), "d": np.ones(4, np.float32)}, {"model_type": "odd"})
    both = run(strange, other)
    assert both.verdict.class_ == "not_testable"
    assert both.verdict.sentence == "Not testable: the models have no tensor in common whose role is known."


def test_empty_tensors_are_named(llama, run):
    def empty(tensors):
        tensors[INPUT0] = np.zeros(0, np.float32)
        tensors["model.layers.1.mlp.up_proj.weight"] = np.zeros((0, 256), np.float32)
        tensors["model.layers.1.mlp.gate_proj.weight"] = np.zeros((320, 0), np.float32)

    report = run(llama("a", 1, change=empty), llama("b", 2, change=empty), rows=8, metrics=("pearson", "l2"))
    assert report.status == "ok"
    bad = {(item.role, item.layer) for item in report.comparisons if item.status != "ok"}
    assert bad == {("input_norm", 0), ("mlp_up", 1), ("mlp_gate", 1)}
    assert lines(report)["mlp_up"].not_compared == 1


def test_numbers_near_the_end_of_float64_make_no_nan(llama, run):
    def huge(tensors):
        for name in tensors:
            if "norm" in name:
                tensors[name] = tensors[name].astype(np.float64) * 1e200

    report = run(llama("a", 1, change=huge), llama("b", 1, change=huge), roles=("input_norm", "attn_q"))
    found = pick(report, "input_norm")
    assert (found.status, found.measurements) == ("not_comparable", ())
    assert "expected between" in found.reason
    assert lines(report)["attn_q"].null.z > 10


def test_integer_weights_have_no_ulps_but_are_compared(llama, run):
    def integers(tensors):
        tensors["model.layers.0.mlp.up_proj.weight"] = (
            np.random.default_rng(3).integers(-100, 100, (320, 256)).astype(np.int8)
        )

    report = run(
        llama("a", 1, change=integers), llama("b", 1, change=integers), roles=("mlp_up",), layers="0", metrics="all"
    )
    found = pick(report, "mlp_up")
    assert metric(found, "ulp_distance").status == "not_comparable"
    assert metric(found, "byte_identity").value == 1.0
