"""Fixed points of rows, experts, heads, and token rows paired by their strings."""

import math

import numpy as np
import pytest

from kinprint.arch import Role
from kinprint.errors import DegenerateInput
from kinprint.evidence import battery as table
from kinprint.evidence.battery import run_battery
from kinprint.evidence.exact_tests import HEAD_ORDER, NEURON_ORDER, head_test, row_test
from kinprint.evidence.probe import Probe, SamplePair
from kinprint.model.reader import Sample
from kinprint.results.findings import OFF, TESTED, EvidenceTest
from kinprint.results.p_values import PMethod

LAYERS, ROWS, WIDTH = 4, 32, 64


def sample(values, shape=None):
    return Sample(np.asarray(values, np.float32), "F32", shape or np.shape(values), rows=(0, len(values)))


def rows_of(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


def probe(values, role=Role.MLP_UP, **more):
    """A model of which one matrix was read in each layer; with a further axis before rows, of each expert."""
    samples = {}
    for layer, found in enumerate(values):
        if np.ndim(found) == 3:
            samples |= {(role, layer, expert): sample(rows) for expert, rows in enumerate(found)}
        else:
            samples[role, layer, None] = sample(found)
    return Probe("rows", len(values), hidden=WIDTH, samples=samples, **more)


def battery(a, b):
    return {(test.name, test.scope): test for test in run_battery(a, b, {layer: layer for layer in range(a.layers)})}


def sample_pairs(a, b, role=Role.MLP_UP):
    return [
        SamplePair(role, layer, None, sample(one), sample(two))
        for layer, (one, two) in enumerate(zip(a, b, strict=True))
    ]


def log10_factorial(count):
    return math.lgamma(count + 1) / math.log(10)


@pytest.mark.parametrize("role", [Role.MLP_UP, Role.MLP_GATE, Role.SHARED_UP])
def test_a_copy_has_every_row_at_its_place(role):
    a = rows_of(1, LAYERS, ROWS, WIDTH)
    b = a + 0.3 * rows_of(2, LAYERS, ROWS, WIDTH)
    test = battery(probe(a, role), probe(b, role))["fixed_points", role.value]
    assert (test.status, test.statistic, test.n, test.blocks) == (TESTED, LAYERS * ROWS, LAYERS * ROWS, LAYERS)
    assert (test.null_mean, test.null_sd) == (LAYERS, math.sqrt(LAYERS))
    assert test.z == pytest.approx((LAYERS * ROWS - LAYERS) / math.sqrt(LAYERS))
    assert test.log10_p == pytest.approx(-LAYERS * log10_factorial(ROWS))
    assert test.assumptions == (NEURON_ORDER,)
    assert test.p_method is PMethod.FACTORIAL
    assert test.null == "a random order in each layer"


def test_layer_by_layer_and_combined():
    """One layer is worth 1/k!; all together are worth more than the best, and less than their product."""
    a = rows_of(3, LAYERS, ROWS, WIDTH)
    b = rows_of(4, LAYERS, ROWS, WIDTH)
    kept = (20, 9, 0, 3)
    for layer, count in enumerate(kept):
        b[layer, :count] = a[layer, :count]
    group = sample_pairs(a, b)
    singles = [row_test(Role.MLP_UP, [place]) for place in group]
    for single, count in zip(singles, kept, strict=True):
        assert count <= single.statistic <= count + 4
        assert single.log10_p == pytest.approx(min(0.0, -log10_factorial(single.statistic)), abs=1e-9)
        assert (single.n, single.blocks) == (ROWS, 1)
    combined = row_test(Role.MLP_UP, group)
    assert combined.statistic == sum(single.statistic for single in singles)
    assert combined.log10_p < -12
    assert combined.log10_p > sum(single.log10_p for single in singles)


@pytest.mark.parametrize(
    ("count", "log10_p"), [(2_000, -5735.521), pytest.param(10_000, -35659.454, marks=pytest.mark.slow)]
)
def test_many_rows_do_not_underflow(count, log10_p):
    rows = rows_of(5, count, 6)
    (place,) = sample_pairs(rows[None], 2 * rows[None])
    test = row_test(Role.MLP_UP, [place])
    assert (test.statistic, test.n) == (count, count)
    assert test.log10_p == pytest.approx(log10_p, abs=0.01)


def test_independent_rows_show_nothing():
    ps = []
    for seed in range(20):
        a, b = rows_of(100 + seed, LAYERS, ROWS, WIDTH), rows_of(200 + seed, LAYERS, ROWS, WIDTH)
        test = battery(probe(a), probe(b))["fixed_points", "mlp_up"]
        ps.append(test.log10_p)
    assert np.median(ps) > -0.5
    assert min(ps) > -3
    assert max(ps) == 0.0


def test_reordered_rows_are_not_at_their_places():
    a = rows_of(6, LAYERS, ROWS, WIDTH)
    order = np.random.default_rng(7).permutation(ROWS)
    assert battery(probe(a), probe(a[:, order]))["fixed_points", "mlp_up"].log10_p > -3


def test_rows_that_one_side_lacks_and_other_widths():
    """As many rows as both have are looked at; without two of one width the test is off."""
    a = rows_of(8, 2, 20, WIDTH)
    test = battery(probe(a), probe(a[:, :12]))["fixed_points", "mlp_up"]
    assert (test.n, test.statistic) == (24, 24)
    off = battery(probe(a), probe(a[:, :, :32]))
    assert off["fixed_points", "mlp_up"].status == OFF
    assert off["fixed_points", "mlp_up"].reason == "no slice has two rows of equal width on both sides"
    assert off["matrix_correlation", "mlp_up"].status == OFF
    assert battery(probe(a[:, :1]), probe(a))["fixed_points", "mlp_up"].status == OFF


def test_not_a_number_in_one_layer_is_said():
    a = rows_of(9, LAYERS, ROWS, WIDTH)
    b = a.copy()
    b[1, 3, 5] = np.nan
    found = battery(probe(a), probe(b))
    assert found["fixed_points", "mlp_up"].status == OFF
    assert "of B in layer 1" in found["fixed_points", "mlp_up"].reason
    assert found["matrix_correlation", "mlp_up"].blocks == LAYERS - 1


def test_each_expert_counts_by_itself():
    a = rows_of(10, 2, 3, ROWS, WIDTH)
    b = rows_of(11, 2, 3, ROWS, WIDTH)
    b[:, 1] = a[:, 1]
    found = battery(probe(a, Role.EXPERT_UP), probe(b, Role.EXPERT_UP))["fixed_points", "expert_up"]
    assert (found.blocks, found.n) == (6, 6 * ROWS)
    assert 2 * ROWS <= found.statistic <= 2 * ROWS + 12
    assert found.log10_p < -40
    swapped = battery(probe(a, Role.EXPERT_UP), probe(a[:, [1, 2, 0]], Role.EXPERT_UP))["fixed_points", "expert_up"]
    assert swapped.log10_p > -3


def test_value_rows_are_free_inside_one_head_only():
    """Rows of the first head are compared: those of several heads have no common order."""
    a = rows_of(12, LAYERS, ROWS, WIDTH)
    one, two = (probe(x, Role.ATTN_V, kv_heads=4) for x in (a, a + 0.1))
    test = battery(one, two)["fixed_points", "attn_v"]
    assert (test.n, test.blocks) == (LAYERS * ROWS // 4, LAYERS)
    assert ("fixed_points", "attn_v") not in battery(one, probe(a, Role.ATTN_V, kv_heads=2))
    assert ("fixed_points", "attn_q") not in battery(probe(a, Role.ATTN_Q), probe(a, Role.ATTN_Q))


# -- heads ---------------------------------------------------------------------------------------------------------------


def headed(values, role=Role.ATTN_K):
    heads = {(role, layer, None): sample(rows, (len(rows) * 16, WIDTH)) for layer, rows in enumerate(values)}
    return Probe("heads", len(values), hidden=WIDTH, kv_heads=len(values[0]), heads=heads)


@pytest.mark.parametrize("role", [Role.ATTN_K, Role.ATTN_V])
def test_heads_at_their_places(role):
    a = rows_of(13, LAYERS, 8, WIDTH)
    b = a + 0.3 * rows_of(14, LAYERS, 8, WIDTH)
    test = battery(headed(a, role), headed(b, role))["head_fixed_points", role.value]
    assert (test.statistic, test.n, test.blocks) == (LAYERS * 8, LAYERS * 8, LAYERS)
    assert test.log10_p == pytest.approx(-LAYERS * log10_factorial(8))
    assert test.assumptions == (HEAD_ORDER,)
    moved = battery(headed(a, role), headed(np.roll(a, 1, axis=1), role))["head_fixed_points", role.value]
    assert (moved.statistic, moved.log10_p) == (0, 0.0)


def test_one_head_or_other_numbers_of_heads():
    a = rows_of(15, LAYERS, 8, WIDTH)
    for other in (a[:, :4], a[:, :1]):
        test = battery(headed(a), headed(other))["head_fixed_points", "attn_k"]
        assert test.status == OFF
        assert test.reason == "the numbers of key/value heads differ, or there is only one"
    bad = a.copy()
    bad[0] = np.nan
    assert head_test(Role.ATTN_K, [(sample(x), sample(y)) for x, y in zip(a, bad, strict=True)]).blocks == LAYERS - 1


def test_heads_follow_the_layer_map():
    a = rows_of(16, LAYERS, 8, WIDTH)
    one, two = headed(a), headed(a[[1, 3]])
    (test,) = run_battery(one, two, {0: 1, 1: 3})
    assert test.statistic == 16
    (wrong,) = run_battery(one, two, {0: 0, 1: 1})
    assert wrong.log10_p > -3


# -- tokens --------------------------------------------------------------------------------------------------------------


def test_token_rows_in_memory():
    key = (Role.EMBEDDING, None, None)
    a = rows_of(17, 64, 128)
    one = Probe("a", 1, hidden=128, tokens={key: sample(a)})
    for scale, low in ((0.5, True), (None, False)):
        values = rows_of(18, 64, 128) + (a if scale else 0)
        test = battery(one, Probe("b", 1, hidden=128, tokens={key: sample(values)}))["token_rows", "embedding"]
        assert "rows are paired by token string" in test.assumptions
        assert (test.log10_p < -6) is low
    narrow = Probe("b", 1, hidden=64, tokens={key: sample(a[:, :64])})
    test = battery(one, narrow)["token_rows", "embedding"]
    assert (test.status, test.reason) == (OFF, "widths differ: 128 and 64")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_token_rows_that_are_no_numbers(value):
    key = (Role.EMBEDDING, None, None)
    a = rows_of(19, 64, 128)
    b = a.copy()
    b[7, 7] = value
    one, two = (Probe("tokens", 1, hidden=128, tokens={key: sample(x)}) for x in (a, b))
    test = battery(one, two)["token_rows", "embedding"]
    assert (test.status, test.log10_p) == (OFF, None)
    assert "NaN or infinity" in test.reason


@pytest.fixture(scope="module")
def reordered_vocabulary(small, folder, judge):
    """An unrelated model with the embeddings of the first, both vocabularies being the same strings in another order."""
    state, config, tokenizer = small(21, vocab=320, hidden=96, layers=2, neurons=40)
    other, _, _ = small(22, vocab=320, hidden=96, layers=2, neurons=40)
    order = np.random.default_rng(23).permutation(320)
    other["model.embed_tokens.weight"] = state["model.embed_tokens.weight"][order]
    names = list(tokenizer["model"]["vocab"])
    words = {"model": {**tokenizer["model"], "vocab": {names[old]: new for new, old in enumerate(order)}}}
    return judge(folder("vocabulary", state, config, tokenizer), folder("vocabulary_reordered", other, config, words))


def test_tokens_are_found_by_string_in_any_order(reordered_vocabulary):
    tests = {(test.name, test.scope): test for test in reordered_vocabulary.evidence.tests}
    assert tests["token_rows", "embedding"].log10_p < -6
    assert tests["matrix_correlation", "embedding"].log10_p > -3  # by number the rows are those of other tokens
    assert all((test.log10_p or 0.0) > -3 for key, test in tests.items() if key != ("token_rows", "embedding"))
    verdict = reordered_vocabulary.verdict
    assert verdict.class_ == "shares_components"
    assert "agree in token embeddings" in verdict.sentence


def test_a_family_is_added_by_a_line_in_the_table(monkeypatch):
    def family(pair, role):
        return EvidenceTest("new", role.value, blocks=len(pair.slices[role])) if role is Role.MLP_UP else None

    def without_rows(pair, role):
        raise DegenerateInput("no rows")

    monkeypatch.setattr(table, "FAMILIES", (*table.FAMILIES, {"new": family, "newer": without_rows}))
    values = rows_of(1, LAYERS, ROWS, WIDTH)
    found = battery(probe(values), probe(values))
    assert (found["new", "mlp_up"].status, found["new", "mlp_up"].blocks) == (TESTED, LAYERS)
    assert (found["newer", "mlp_up"].status, found["newer", "mlp_up"].reason) == (OFF, "no rows")
    assert sum(name.startswith("new") for name, _ in found) == 2  # roles that were not read are not asked for
