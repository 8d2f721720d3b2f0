"""The lineage benchmark: which pairs, which figures, pages, kept results; on the zoo that ships with the project."""

import csv
import json

import numpy as np
import pytest
from click.testing import CliRunner

from kinprint.cli.main import main
from kinprint.lab.lineage.bench import null_of, open_or_build, run_benchmark
from kinprint.lab.lineage.pages import write_report
from kinprint.lab.lineage.running import RESULTS
from kinprint.lab.lineage.scoring import MethodOutcome, auc, table, threshold
from kinprint.lab.lineage.trials import RELATED, UNRELATED, Trial, trials_of
from kinprint.lab.lineage.verdicts import tells_what_was_done
from kinprint.lab.zoo.plan import FULL, QUICK
from kinprint.lab.zoo.store import Zoo
from support.places import FAMILY_MODELS

FAMILY = FAMILY_MODELS


@pytest.fixture(scope="module")
def zoo():
    return Zoo.open(FAMILY)


# -- figures -------------------------------------------------------------------------------------------------------------


def test_auc_is_the_chance_that_a_related_pair_scores_higher():
    assert auc(np.array([3.0, 4.0]), np.array([1.0, 2.0])) == 1.0
    assert auc(np.array([1.0]), np.array([2.0])) == 0.0
    assert auc(np.array([1.0, 1.0]), np.array([1.0])) == 0.5
    rng = np.random.default_rng(1)
    x, y = rng.normal(1.0, 1.0, 60), rng.normal(0.0, 1.0, 90)
    assert auc(x, y) == pytest.approx(np.mean(x[:, None] > y[None, :]))
    assert auc(np.array([-np.inf, 2.0]), np.array([1.0])) == 0.5  # a method that is off finds nothing


def test_a_threshold_lets_no_more_than_its_share_of_unrelated_pairs_through():
    values = np.arange(1000.0)
    for rate in (0.01, 0.001):
        limit = threshold(values, rate)
        assert np.mean(values > limit) == pytest.approx(rate)
    assert threshold(np.arange(99.0), 0.01) is None


def _trial(b, relation, attack="x"):
    return Trial("a", b, relation, attack, None, False)


def test_the_table_counts_related_pairs_by_attack_and_leaves_out_what_lies_between():
    trials = [_trial("p", "derived"), _trial("q", "derived", "y"), _trial("s", "same_init")]
    trials += [_trial(f"n{number}", "independent") for number in range(100)]
    values = {"p": 5.0, "q": None, "s": 9.0} | {f"n{number}": number / 100 for number in range(100)}
    outcomes = {("m", "a", b): MethodOutcome("m", "a", b, value, None, None, 0.0, 0) for b, value in values.items()}
    cells = {cell.attack: cell for cell in table(trials, outcomes, ["m"])}
    assert set(cells) == {"x", "y", "all"}
    assert (cells["x"].auc, cells["x"].at_1, cells["x"].at_01) == (1.0, 1.0, None)
    assert (cells["y"].auc, cells["y"].off, cells["y"].at_1) == (0.0, 1, 0.0)
    assert (cells["all"].pairs, cells["all"].auc) == (2, 0.5)


# -- pairs ---------------------------------------------------------------------------------------------------------------


def test_trials_know_the_right_answer(zoo):
    trials = trials_of(zoo)
    answers = {(trial.a, trial.b): trial.answer for trial in trials}
    assert answers["base", "finetune"] == RELATED
    assert answers["base", "unrelated"] == UNRELATED
    assert ("unrelated", "base") not in answers  # once is enough
    assert answers["base", "twin"] == answers["base", "distilled_1"] == UNRELATED
    assert answers["base", "sibling"] not in (RELATED, UNRELATED)
    assert len({(trial.a, trial.b) for trial in trials}) == len(trials)
    fewer = trials_of(zoo, limit=1)
    assert len(fewer) < len(trials)
    assert {t.b for t in fewer} == {t.b for t in trials}
    assert {"rotation", "all_symmetries"} <= {trial.group for trial in trials if trial.answer == RELATED}
    assert {trial.turn for trial in trials if trial.answer == RELATED} == {0}
    assert {trial.turn for trial in fewer} == {0, 1}


def test_a_merge_is_a_trial_of_each_parent_with_the_share_it_has(zoo):
    blends = [member for member in zoo.members.values() if member.attack == "linear"]
    trials = {(trial.a, trial.b): trial for trial in trials_of(zoo)}
    assert blends
    for member in blends:
        for link in member.links:
            assert trials[link.parent, member.name].strength == link.weight


def test_the_quick_zoo_is_a_closed_part_of_the_full_one():
    members = {member.name: member for member in QUICK}
    assert all(link.parent in members for member in members.values() for link in member.links)
    assert 50 < len(members) < 200


# -- a run ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small_zoo(tmp_path_factory):
    """Return the bundled bases and a few of their children: enough to see every part of the benchmark at work."""
    zoo = Zoo.open(FAMILY)
    names = ("base", "unrelated", "twin", "finetune", "base.rotation", "base.all_symmetries", "rotated_tuned")
    kept = {name: zoo.members[name] for name in names}
    from dataclasses import replace

    record = replace(
        zoo.record, members=kept, stored={k: v for k, v in zoo.record.stored.items() if k in kept}, measured={}
    )
    folder = tmp_path_factory.mktemp("zoo")
    root = FAMILY.resolve()
    stored = {name: (str((root / place).resolve()), hashes) for name, (place, hashes) in record.stored.items()}
    (folder / "zoo.json").write_bytes(replace(record, stored=stored).to_json())
    return Zoo.open(folder)


@pytest.mark.slow
def test_a_run_finds_what_each_method_can_and_keeps_its_results(small_zoo, tmp_path):
    names = ["gram", "kin", "pdf", "fixed_points"]
    seen = []
    bench = run_benchmark(
        small_zoo, tmp_path, methods=names, verdict=False, workers=1, progress=lambda *args: seen.append(args)
    )
    cells = {(cell.method, cell.attack): cell for cell in bench.cells}
    assert cells["kin", "all"].auc == 1.0
    assert cells["kin", "all_symmetries"].auc == 1.0
    assert cells["gram", "rotation"].auc == 1.0
    assert cells["gram", "all_symmetries"].auc < 1.0
    assert cells["fixed_points", "rotation"].auc < 1.0
    assert all(cost.peak_bytes for cost in bench.costs)
    lines = [line for line in (tmp_path / RESULTS).read_text().splitlines() if line]
    assert len(lines) == len(bench.trials) * len(names)
    assert seen[-1][1] == seen[-1][2] == len(lines)
    with (tmp_path / RESULTS).open("a") as log:
        log.write('\n{"key": "cut sho')  # as an interrupted run leaves it
    again = run_benchmark(small_zoo, tmp_path, methods=names, verdict=False, workers=1)
    assert {key: item.value for key, item in again.outcomes.items()} == {
        key: item.value for key, item in bench.outcomes.items()
    }
    paths = write_report(bench, tmp_path)
    page = paths[0].read_text()
    for word in ("# Lineage benchmark", "## All attacks together", "## Where methods fail", "kinprint bench lineage"):
        assert word in page
    rows = list(csv.DictReader(paths[1].read_text().splitlines()))
    assert {row["method"] for row in rows} == set(names)
    null = null_of(bench, "test", "")
    assert {sample.statistic for sample in null.samples} == {f"method:{name}:1" for name in names}


@pytest.mark.nightly
def test_the_verdict_is_a_row_too_and_workers_give_the_same(small_zoo, tmp_path):
    bench = run_benchmark(small_zoo, tmp_path, methods=["gram"], verdict=True, limit=1, slow_limit=1, workers=2)
    verdicts = {(key[1], key[2]): item for key, item in bench.outcomes.items() if key[0] == "verdict"}
    for trial in bench.trials:
        found = verdicts[trial.a, trial.b]
        if trial.answer == UNRELATED:
            assert found.note == "no_evidence", trial
        if trial.answer == RELATED:
            assert found.value == 1.0, (trial, found)
    page = write_report(bench, tmp_path)[0].read_text()
    assert "False accusations: 0 of" in page
    assert "untrue in 0: none" in page


def test_every_attack_of_the_zoo_has_kinds_that_are_true_of_it():
    attacks = {member.attack for member in FULL if member.relation in ("derived", "merged", "transplant")}
    for attack in attacks:
        assert not tells_what_was_done(attack, "nothing of the kind"), attack
    assert tells_what_was_done("finetune+quantised", "trained_and_quantised")
    assert not tells_what_was_done("quantised", "re_based")
    assert not tells_what_was_done("linear", "vocabulary_replaced")


def test_the_command_writes_its_pages(small_zoo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(
        main,
        [
            "bench",
            "lineage",
            "--zoo",
            str(small_zoo.folder),
            "--method",
            "pdf,gram",
            "--no-verdict",
            "--workers",
            "1",
            "-q",
        ],
        standalone_mode=False,
    )
    assert done.exception is None, done.exception
    assert "gram" in done.stdout
    assert {path.name for path in (tmp_path / "lineage-report").iterdir()} >= {
        "lineage.md",
        "cells.csv",
        "pairs.csv",
        "lineage.png",
        "lineage.svg",
        RESULTS,
    }


def test_a_zoo_that_is_there_is_opened_not_trained(small_zoo):
    assert (
        open_or_build(small_zoo.folder, full=False, workers=1, progress=None).members.keys() == small_zoo.members.keys()
    )


def test_relations_file_is_plain_json(zoo):
    data = json.loads((FAMILY / "zoo.json").read_bytes())
    assert data["schema_version"] == 1
    assert {member["name"] for member in data["members"]} == set(zoo.members)
