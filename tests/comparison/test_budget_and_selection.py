"""What is read of a pair: layers, roles, metrics, experts, rows, and never more bytes than allowed."""

import pytest

from kinprint.arch.roles import role_named
from kinprint.comparison.pipeline import compare
from kinprint.comparison.selection import (
    MAX_ELEMENTS,
    MIN_ROWS,
    fit_budget,
    pair_up,
    parse_layers,
)
from kinprint.errors import BadReference, BadSelection, BudgetExceeded
from kinprint.model.model import open_models
from kinprint.results.options import Options
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings


@pytest.fixture
def models(llama):
    with Session(Settings()) as session:
        yield open_models([llama("a", 1), llama("b", 2)], session)


# ---- layers and names ----


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("0", {0}),
        ("0,5", {0, 5}),
        ("2-4", {2, 3, 4}),
        (" 1 , 3-3 ", {1, 3}),
        ("5-900", {5, 6, 7}),
        ("1,1,1", {1}),
    ],
)
def test_layers_as_people_write_them(text, expected):
    assert parse_layers(text, 8) == expected


@pytest.mark.parametrize("text", ["", "x", "1-", "-1", "3-1", "1,,2", "²", "٣", "1-²", "9" * 5000, "0x1", "1.5"])
def test_layers_that_cannot_be_read(text):
    with pytest.raises(BadReference, match="cannot read") as caught:
        parse_layers(text, 8)
    assert caught.value.exit_code == 2


def test_layers_that_do_not_exist():
    with pytest.raises(BadReference, match="they share layers 0 to 7"):
        parse_layers("8-9", 8)


def test_misspelt_names_give_hints(llama, run):
    with pytest.raises(BadReference) as caught:
        role_named("input_nrom")
    assert caught.value.hint == "did you mean 'input_norm'?"
    with pytest.raises(BadReference) as caught:
        role_named("zzz")
    assert "attn_q" in caught.value.hint
    with pytest.raises(BadSelection) as unknown:
        compare("nowhere", "nowhere", Options(metrics=("cosin",)))
    assert unknown.value.hint == "did you mean 'cosine'?"


def test_selections_meet_in_the_report(llama, run):
    a, b = llama("a", 1), llama("b", 2)
    report = run(a, b, roles=("attn_q", "input_norm"), layers="0,2", metrics=("pearson", "l2"), rows=8)
    assert {(item.role, item.layer) for item in report.comparisons} == {
        ("attn_q", 0),
        ("attn_q", 2),
        ("input_norm", 0),
        ("input_norm", 2),
    }
    assert {tuple(found.metric for found in item.measurements) for item in report.comparisons} == {("pearson", "l2")}
    assert {item.rows for item in report.comparisons if item.role == "attn_q"} == {(0, 8)}
    assert {item.reason: item.count for item in report.skipped} == {
        "its role was not asked for": 24,
        "its layer was not asked for": 2,
    }
    assert report.settings.layers == "0,2"
    assert report.settings.metrics == ("pearson", "l2")


def test_without_pearson_a_role_has_no_joint_test_and_says_why(llama, run):
    report = run(llama("a", 1), llama("b", 2), roles=("input_norm",), metrics=("l2",))
    (line,) = report.summary
    assert (line.null, line.reason) == (None, "pearson was not among the metrics asked for")


def test_tensors_only_b_has_are_counted_even_if_not_asked_for(llama, run):
    def without(tensors):
        del tensors["lm_head.weight"]

    report = run(llama("a", 1, change=without), llama("b", 2), roles=("input_norm",))
    assert sum(item.count for item in report.skipped) == 27
    report = run(llama("c", 1, change=without), llama("d", 2), roles=("input_norm", "head"))
    assert "only model B has the role head there" in {item.reason for item in report.skipped}


def test_pairs_join_role_layer_and_expert(models):
    a, b = models
    pairs, skipped = pair_up(a, b, Options())
    assert skipped == []
    assert len(pairs) == len(a.naming.tensors) == 30
    assert all((pair.a.role, pair.a.layer) == (pair.b.role, pair.b.layer) == (pair.role, pair.layer) for pair in pairs)
    assert all(pair.reason is None for pair in pairs)


# ---- bytes ----


def cost(pairs, a, b):
    return sum(model.cost(pair.want) for pair in pairs for model in (a, b))


@pytest.mark.parametrize("budget", [0, 1_000, 5_000, 14_000, 20_000, 100_000, 200_000, 400_000, 10_000_000])
def test_what_is_kept_fits(models, budget):
    a, b = models
    pairs, _ = pair_up(a, b, Options())
    kept, skipped = fit_budget(pairs, a, b, rows=32, budget_bytes=budget)
    assert cost(kept, a, b) <= budget
    assert len(kept) + sum(item.count for item in skipped) == len(pairs)
    assert all("--budget" in item.reason for item in skipped)
    vectors, matrices = [p for p in kept if not p.is_matrix], [p for p in kept if p.is_matrix]
    if matrices:
        assert len(vectors) == 7  # norms come first
    rows = {pair.rows[1] - pair.rows[0] for pair in matrices}
    assert rows <= set(range(MIN_ROWS, 33))


def test_a_larger_budget_never_keeps_less(models):
    a, b = models
    pairs, _ = pair_up(a, b, Options())
    sizes = [
        cost(fit_budget(pairs, a, b, rows=32, budget_bytes=budget)[0], a, b) for budget in range(0, 1_700_000, 40_000)
    ]
    assert sizes == sorted(sizes)
    assert sizes[0] == 0
    assert sizes[-1] == cost(fit_budget(pairs, a, b, rows=32, budget_bytes=None)[0], a, b)


def test_thinning_goes_by_the_layers_asked_for(models):
    """Layer 1 alone, or 1 and 2: layer numbers that no step divides must not vanish while others would fit."""
    a, b = models
    pairs, _ = pair_up(a, b, Options(layers="1-2", roles=("input_norm",)))
    assert [pair.layer for pair in pairs] == [1, 2]
    kept, skipped = fit_budget(pairs, a, b, rows=32, budget_bytes=2 * 256 * 4)
    assert [pair.layer for pair in kept] == [1]
    assert skipped[0].count == 1


def test_few_rows_of_wide_matrices(llama, run):
    wide = MAX_ELEMENTS // 16
    dims = {"hidden": 64, "heads": 2, "kv_heads": 2, "neurons": wide, "layers": 1}
    report = run(llama("a", 1, **dims), llama("b", 2, **dims), roles=("mlp_down",), metrics=("pearson",))
    assert report.comparisons[0].rows == (0, 16)


def test_token_rows_start_a_quarter_into_the_vocabulary(llama, run):
    report = run(llama("a", 1), llama("b", 2), roles=("embedding", "attn_q"), metrics=("l2",), rows=8)
    assert {item.role: item.rows for item in report.comparisons} == {"embedding": (50, 58), "attn_q": (0, 8)}


def test_a_joint_test_on_fewer_rows_says_so(llama, run, monkeypatch):
    monkeypatch.setattr("kinprint.stats.joint.MAX_STACK", 20 * 25 * 64)
    dims = {"hidden": 64, "heads": 2, "kv_heads": 2, "neurons": 48, "vocab": 40, "layers": 20}
    report = run(llama("a", 1, **dims), llama("b", 2, **dims), roles=("attn_q", "input_norm"), metrics=("pearson",))
    assert {line.role: line.permutation for line in report.summary} == {
        "attn_q": "one permutation for all layers, on the first 25 rows of each",
        "input_norm": "one permutation for all layers",
    }


@pytest.mark.parametrize("budget", [1_000, 4_000, 8_000])
def test_a_budget_below_the_headers_is_refused(demo_folder, budget):
    with pytest.raises(BudgetExceeded) as caught:
        compare(str(demo_folder / "base"), str(demo_folder / "finetune"), budget_bytes=budget, settings=Settings())
    assert caught.value.exit_code == 7
    assert "--budget" in caught.value.hint


@pytest.mark.parametrize(("budget", "compared"), [(15_000, 9), (30_000, 16), (80_000, 25), (500_000, 39), (None, 39)])
def test_bytes_read_stay_within_the_budget(demo_folder, run, budget, compared):
    report = run(
        str(demo_folder / "base"), str(demo_folder / "unrelated"), budget_bytes=budget, metrics=("pearson", "l2")
    )
    assert report.settings.budget_bytes == budget
    assert len(report.comparisons) >= compared
    assert report.bytes_read > report.bytes_planned
    assert report.run.local_bytes == report.bytes_read
    if budget == 80_000:
        assert report.tokenizer.status == "not_comparable"
        assert "of the budget left" in report.tokenizer.reason
    if budget == 15_000:
        assert {item.what: "--budget" in item.reason for item in report.skipped} == {"matrices": True}


def test_a_budget_for_headers_only_is_a_report_without_comparisons(llama, run):
    a, b = llama("a", 1), llama("b", 2)
    with Session(Settings(range_cache=None)) as session:
        checkpoints = [model.checkpoint for model in open_models([a, b], session)]
        configs = [checkpoint.folder.read_small("config.json") for checkpoint in checkpoints]
    needed = sum(map(len, configs)) + sum(file.header_bytes for model in checkpoints for file in model.files)
    report = run(a, b, budget_bytes=needed + 10)
    assert report.status == "not_comparable"
    assert "budget" in report.reason
    assert sum(item.count for item in report.skipped) == 30


def test_one_connection_is_enough(demo_folder):
    """Reading ahead waits for reads: it must not hold the only thread that could do them."""
    report = compare(
        str(demo_folder / "base"),
        str(demo_folder / "finetune"),
        Options(metrics=("changed_ratio",), rows=4),
        settings=Settings(concurrency=1),
    )
    assert len(report.comparisons) == 39
