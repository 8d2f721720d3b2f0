"""The red team: its table is well formed, what is said to keep the function does, and a sample of it is judged rightly."""

import numpy as np
import pytest
from click.testing import CliRunner

from kinprint.lab.lineage.command import bench_command
from kinprint.lab.red_team import running
from kinprint.lab.red_team.models import bundled, drawn
from kinprint.lab.red_team.recipe import DEPTHS, EVASIVE, HONEST, PRINCIPLES, Recipe, do, made
from kinprint.lab.zoo import derive
from kinprint.lab.zoo.forward import logits
from kinprint.results.findings import CLASSES, DERIVED, NO_EVIDENCE
from support.places import ROOT
from support.red_team import disguises as hide
from support.red_team import scripts as public
from support.red_team.recipes import all_recipes

TABLE = {recipe.name: recipe for recipe in all_recipes()}


def test_every_principle_has_recipes_of_both_intents_at_every_depth():
    assert len(TABLE) == len(all_recipes())  # names are keys
    for principle in PRINCIPLES:
        recipes = [recipe for recipe in TABLE.values() if recipe.principle == principle]
        assert len(recipes) >= 3
        assert {recipe.intent for recipe in recipes} == {HONEST, EVASIVE}
        assert {depth for recipe in recipes for depth in recipe.layers} == set(DEPTHS)


def test_every_recipe_expects_classes_that_exist():
    assert {name for recipe in TABLE.values() for name in recipe.classes} <= set(CLASSES)
    assert all(recipe.kinds is None or recipe.classes == (DERIVED,) for recipe in TABLE.values())


KEEPS = {
    "widened": (do(hide.widened),),
    "split neurons": (do(hide.more_neurons, count=64, idle=False),),
    "idle neurons": (do(hide.more_neurons, count=64, idle=True),),
    "half of every gain folded": (do(hide.partly_folded),),
    "gains traded": (do(hide.partly_folded, seed=4),),
    "half reordered": (do(hide.partly_reordered),),
    "layers cut in two": (do(hide.cut_in_two),),
    "values repeated": (do(public.repeated_values),),
    "experts reordered": (do(derive.upcycle, experts=4, noise=0.3), do(hide.reorder_experts)),
}


@pytest.mark.parametrize("name", KEEPS)
def test_a_change_that_is_said_to_keep_the_function_does(name):
    steps = KEEPS[name]
    before, after = made(bundled("base"), steps[:-1], 6), made(bundled("base"), steps, 6)
    ids = np.random.default_rng(0).integers(512, size=12)
    wanted, got = (logits(model.state, model.config, ids) for model in (before, after))
    assert np.abs(got - wanted).max() < 1e-3 * np.abs(wanted).max()


def test_factors_multiply_to_the_matrix():
    state = bundled("base")(6).state
    stored = hide.factored(state)
    name = "model.layers.1.mlp.down_proj"
    product = stored[f"{name}.1.weight"] @ stored[f"{name}.0.weight"]
    assert np.allclose(product, state[f"{name}.weight"], atol=1e-5)


def test_a_turn_of_each_layer_is_undone_by_the_shortcuts():
    model = bundled("base")(6)
    turned, _ = hide.rotate_each_layer(*derive.fold_norms(model.state, model.config), seed=3)
    folded, _ = derive.fold_norms(model.state, model.config)
    basis = np.eye(96)
    for layer in range(6):
        basis = basis @ turned[f"model.layers.{layer}.shortcut_Q"]
        name = f"model.layers.{layer}.mlp.up_proj.weight"
        assert np.allclose(turned[name] @ basis.T, folded[name], atol=1e-4)


def test_drawn_models_share_what_they_are_told_to():
    one, other, part = (drawn(seed, **told)(6).state for seed, told in ((1, {"start": 7}), (2, {"start": 7}), (2, {})))
    name = "model.layers.3.mlp.up_proj.weight"

    def r(a, b):
        return np.corrcoef(a.ravel(), b.ravel())[0, 1]

    assert r(one[name], other[name]) > 0.1
    assert abs(r(one[name], part[name])) < 0.02


def outcome(recipe, verdict_class, **more):
    row = dict.fromkeys(running._COLUMNS, "")
    return {**row, "principle": "1", "recipe": recipe, "layers": "6", "said": verdict_class, **more}


def test_the_page_counts_and_lists_and_keeps_its_section():
    rows = [
        outcome(
            "a", "derived", accused="yes", right_class="no", intent=HONEST, expected=NO_EVIDENCE, wrong="said derived"
        ),
        outcome("b", "derived", right_class="yes", right_kind="no", expected=DERIVED, wrong="kinds none"),
        outcome("c", "needs torch"),
        outcome(
            "d",
            "shares_components",
            accused="open",
            right_class="no",
            wrong="said shares_components, and that it cannot tell",
        ),
    ]
    found = running.section(running.from_csv(running.to_csv(rows)))
    assert "| all | 3 | 1 | 0 of 1 | 1 | 1 | 0 |" in found
    assert "- 1 a (6 layers, honest): expected no_evidence; said derived" in found
    assert "1 pairs" in found
    page = "# Page\n\n## One\n\ntext\n\n## How to read this\n\nso\n"
    placed = running.placed(page, found)
    assert placed == running.placed(placed, found)
    assert placed.replace(f"{found}\n\n", "") == page


def test_the_command_goes_on_with_its_table_and_writes_the_section(tmp_path):
    rows = [outcome(recipe.name, DERIVED, right_class="yes") for recipe in TABLE.values() if recipe.principle == 12]
    rows = [{**row, "principle": "12", "layers": str(TABLE[row["recipe"]].layers[0])} for row in rows]
    (tmp_path / running.FILE).write_text(running.to_csv(rows))
    (tmp_path / "lineage.md").write_text("# Page\n\n## How to read this\n")
    words = ["red-team", "--out", str(tmp_path), "--principle", "12", "--resume", "--workers", "1"]
    result = CliRunner().invoke(bench_command, words)
    assert result.exit_code == 0, result.output
    assert f"| 12 the order of the models | {len(rows)} | {len(rows)} |" in result.stdout
    assert running.section(rows) in (tmp_path / "lineage.md").read_text()


@pytest.mark.parametrize(
    ("classes", "said", "accused", "missed"),
    [
        ((NO_EVIDENCE,), "shares_initialisation", True, False),
        (("shares_initialisation",), "derived", True, False),
        (("shares_initialisation",), "no_evidence", False, True),
        (("no_evidence", "shares_components"), "shares_initialisation", True, False),
        (("shares_components",), "shares_initialisation", False, True),
        (("derived",), "derived", False, False),
        (("derived", "shares_initialisation"), "not_testable", False, True),
    ],
)
def test_more_than_is_so_is_an_accusation_and_less_is_a_miss(classes, said, accused, missed):
    recipe = Recipe("x", 1, HONEST, classes, bundled("base"), bundled("base"))
    assert running.mistaken(recipe, said) == (accused, missed)


SAMPLE = (("one public grid, strangers", 6), ("rotated, noise 50 %", 6), ("a stranger, widened, turned", 6))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "layers"), SAMPLE)
def test_a_sample_is_judged_rightly(name, layers):
    assert not running.judge(TABLE[name], layers)["wrong"]


def of_page():
    """What docs/red-team.csv says of each pair."""
    return {
        (row["recipe"], int(row["layers"])): row for row in running.from_csv((ROOT / "docs" / running.FILE).read_text())
    }


def test_the_page_is_of_this_table():
    """A recipe that is added or renamed has to be run: what is published is of the table as it is."""
    assert set(of_page()) == {(recipe.name, layers) for recipe in TABLE.values() for layers in recipe.layers}
    assert running.section(list(of_page().values())) in (ROOT / "docs" / "lineage.md").read_text()


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "layers"), [(recipe.name, layers) for recipe in TABLE.values() for layers in recipe.layers]
)
def test_what_the_page_calls_right_stays_right(name, layers):
    if of_page()[name, layers]["wrong"]:
        pytest.skip("listed on the page as wrong")
    found = running.judge(TABLE[name], layers)
    if found["said"] == "needs torch":
        pytest.skip("needs torch")
    assert not found["wrong"]
