"""Calibration: p-values of independent pairs are uniform or larger, and no independent pair is called related.

Ten thousand pairs that share nothing go through the engine in memory. With ``--page`` the committed ``bench/CALIBRATION.md``
is written from the run.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # two workers share two cores; more threads would only wait

import numpy as np

from bench.calibration_pairs import (
    COPIED,
    COPIED_TRAINED,
    HARD,
    NORMS_COPIED,
    ROOT,
    UNIFORM,
    Trial,
    plan,
    trained_pairs,
)
from bench.common import Cell, Goal, Report, finish, machine, parser, timed
from kinprint.evidence.assess import Assessment, assess
from kinprint.evidence.rules import LOG10_ALPHA
from kinprint.evidence.verdict import decide
from kinprint.results.findings import (
    DERIVED,
    IDENTICAL,
    NO_EVIDENCE,
    NOT_TESTABLE,
    SHARES_COMPONENTS,
    SHARES_INITIALISATION,
    ControlFinding,
)
from kinprint.results.p_values import PMethod

PAGE = Path(__file__).resolve().parent / "CALIBRATION.md"
WORKERS = 2
FULL, QUICK = (600, 360, 4_200), (6, 3, 6)
"""Trials of each synthetic family, of each hard one, and of all trained pairs together."""

LEAST_PAIRS, LEAST_TRIALS = 2_000, 10_000

EXACT = ("norm_joint", "matrix_correlation", "token_rows")
LEVELS = (0.05, 0.01, 0.001)
KS_LEVEL = 0.001
FALSE = (IDENTICAL, DERIVED, SHARES_COMPONENTS, SHARES_INITIALISATION)
PASSED = tuple(ControlFinding(name, "known", "passed", None, None, None) for name in ("self", "shuffled self"))


@dataclass(frozen=True)
class Outcome:
    """What one trial gave: the verdict, the least corrected p-value, and (test, log10 p, whether a bound) for each test."""

    trial: Trial
    verdict: str
    log10_p: float
    shared: tuple[str, ...]
    tests: tuple[tuple[str, float, bool], ...]


def verdict_of(found: Assessment) -> str:
    """Return the verdict at its most credulous: controls passed, every test able, nothing known about initialisation."""
    able = frozenset((test.name, test.scope) for test in found.tests)
    return decide(replace(found.facts, controls=PASSED, able=able)).class_


def run_trial(trial: Trial) -> Outcome:
    """Judge one pair."""
    a, b = trial.pair()
    found = assess(a, b)
    tests = tuple(
        (
            f"{test.name} {test.scope}",
            test.log10_p,
            test.p_detail is not None or test.p_method not in (PMethod.NORMAL, PMethod.MONTE_CARLO),
        )
        for test in found.tests
        if test.log10_p is not None
    )
    shared = tuple(part.component for part in found.components if part.shared)
    return Outcome(trial, verdict_of(found), found.log10_p, shared, tests)


def run_all(trials: Sequence[Trial], workers: int = WORKERS) -> list[Outcome]:
    """Judge all pairs; the outcome depends on the trials alone, not on the number of workers."""
    if workers < 2:
        return [run_trial(trial) for trial in trials]
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        return pool.map(run_trial, trials, chunksize=16)


# -- uniformity ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spread:
    """How the p-values of one test are distributed over many independent pairs."""

    population: str
    test: str
    exact: bool
    p: np.ndarray

    @property
    def distance(self) -> tuple[float, float]:
        """Kolmogorov-Smirnov distance from the uniform distribution and its p-value."""
        from scipy.stats import kstest

        found = kstest(self.p, "uniform")
        return float(found.statistic), float(found.pvalue)

    def share(self, level: float) -> float:
        """Return the share of p-values at or below a level."""
        return float(np.mean(self.p <= level))

    def excess(self, level: float) -> float:
        """Return by how many standard errors that share is above the level."""
        return (self.share(level) - level) / math.sqrt(level * (1.0 - level) / self.p.size)

    def surprise(self, level: float) -> float:
        """Return the chance of so many p-values at or below a level, were they uniform: exact where few are expected."""
        from scipy.stats import binom

        return float(binom.sf(np.count_nonzero(self.p <= level) - 1, self.p.size, level))


def spreads(outcomes: Iterable[Outcome]) -> list[Spread]:
    """Pool the p-values by population and test, those of exact tests apart from upper bounds.

    A test counts as exact in a family (or trained pair) if it is of a kind that is, and none of its p-values above 0.01 there
    is a bound. Whether the tail is trusted depends on the values of the two models, which all orders of them share.
    """
    groups: dict[tuple[str, str, str], list[tuple[float, bool]]] = {}
    for outcome in outcomes:
        if not outcome.trial.population:
            continue
        for test, log10_p, bound in outcome.tests:
            key = outcome.trial.population, outcome.trial.family, test
            groups.setdefault(key, []).append((10.0**log10_p, bound))
    pooled: dict[tuple[str, str, bool], list[float]] = {}
    for (population, _, test), found in groups.items():
        exact = test.startswith(EXACT) and not any(bound for p, bound in found if p > LEVELS[1])
        pooled.setdefault((population, test, exact), []).extend(p for p, _ in found)
    made = [Spread(*key, np.array(values)) for key, values in pooled.items()]
    return sorted(made, key=lambda spread: (spread.population, not spread.exact, spread.test))


def uniformity(outcomes: Sequence[Outcome], missing: Sequence[str], *, full: bool = True) -> Report:
    """Hold every test's p-values against the uniform distribution."""
    found = spreads(outcomes)
    rows: list[dict[str, Cell]] = []
    for spread in found:
        distance, ks = spread.distance
        rows.append(
            {
                "pairs": spread.population,
                "test": spread.test,
                "p is": "exact" if spread.exact else "a bound",
                "n": spread.p.size,
                "KS D": distance if spread.exact else None,
                "KS p": ks if spread.exact else None,
                **{f"P(p ≤ {level:g})": spread.share(level) for level in LEVELS},
                "worst excess, se": max(spread.excess(level) for level in LEVELS),
            }
        )
    exact = [spread for spread in found if spread.exact]
    pairs = Counter(outcome.trial.population for outcome in outcomes)
    tries = len(found) * len(LEVELS)
    least = min(spread.surprise(level) for spread in found for level in LEVELS)
    goals = [
        Goal("synthetic pairs", float(pairs["synthetic"]), ">=", LEAST_PAIRS, "", required=full),
        Goal("least Kolmogorov-Smirnov p of any exact test", min(s.distance[1] for s in exact), ">=", KS_LEVEL, ""),
        Goal(f"least binomial p of too many small p-values, times {tries}", least * tries, ">=", KS_LEVEL, ""),
    ]
    notes = [
        f"{pairs['synthetic']:,} synthetic and {pairs['trained']:,} trained pairs.",
        f"Trained models not there yet: {', '.join(Path(m).name for m in missing)}." if missing else "",
    ]
    return Report("calibration_uniformity", "p-values of independent pairs", tuple(rows), tuple(goals), _said(notes))


def _said(notes: Iterable[str]) -> tuple[str, ...]:
    return tuple(note for note in notes if note)


# -- false verdicts ------------------------------------------------------------------------------------------------------


def _group(outcome: Outcome) -> str:
    trial = outcome.trial
    if trial.models is None or trial.family == COPIED_TRAINED:
        return trial.family
    names = {Path(name).name for name in trial.models}
    if any(name.startswith("distilled") for name in names):
        both = all(name.startswith("distilled") for name in names)
        return "trained: both distilled from base" if both else "trained: one distilled from base"
    if "twin" in names:
        return "trained: twin (base's text and order)"
    return "trained: other independent pairs"


def verdicts(outcomes: Sequence[Outcome], *, full: bool = True) -> Report:
    """Count what independent pairs were called, and hold pairs that share norms alone against that."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(_group(outcome), []).append(outcome)
    rows: list[dict[str, Cell]] = []
    for name, found in groups.items():
        said = Counter(item.verdict for item in found)
        p = 10.0 ** np.array([item.log10_p for item in found])
        rows.append(
            {
                "pairs": name,
                "trials": len(found),
                **{verdict: said[verdict] for verdict in (DERIVED, SHARES_COMPONENTS, SHARES_INITIALISATION)},
                "nothing": said[NO_EVIDENCE] + said[NOT_TESTABLE],
                "least log10 p": min(item.log10_p for item in found),
                "P(p ≤ 0.01)": float(np.mean(p <= LEVELS[1])),
            }
        )
    alone = [item for item in outcomes if item.trial.family not in (COPIED, COPIED_TRAINED)]
    copied = [item for item in outcomes if item.trial.family in (COPIED, COPIED_TRAINED)]
    related = sum(item.verdict in FALSE for item in alone)
    wrong = sum(item.verdict != SHARES_COMPONENTS or item.shared != ("norms",) for item in copied)
    tail = _surprise(alone)
    goals = [
        Goal("independent pairs", float(len(alone)), ">=", LEAST_TRIALS, "", required=full),
        Goal("independent pairs called derived", float(sum(i.verdict == DERIVED for i in outcomes)), "<=", 0.0, ""),
        Goal("independent pairs called related in any way", float(related), "<=", 0.0, ""),
        Goal("pairs with copied norms called anything but that", float(wrong), "<=", 0.0, ""),
        Goal("chance of so many least p-values ≤ 0.01, worst family", tail, ">=", KS_LEVEL, ""),
    ]
    notes = [
        f"{len(alone):,} independent pairs and {len(copied):,} that share norms; threshold log10 p ≤ {LOG10_ALPHA:g}."
    ]
    return Report("calibration_verdicts", "Verdicts on independent pairs", tuple(rows), tuple(goals), _said(notes))


def _surprise(outcomes: Sequence[Outcome]) -> float:
    """Return the least binomial tail over families of the number of corrected p-values ≤ 0.01, corrected for families."""
    groups: dict[str, list[float]] = {}
    for outcome in outcomes:
        groups.setdefault(_group(outcome), []).append(10.0**outcome.log10_p)
    found = [Spread("", name, exact=False, p=np.array(values)).surprise(LEVELS[1]) for name, values in groups.items()]
    return min(1.0, min(found) * len(found))


def real_pair() -> Report | None:
    """Run the whole comparison on the trained pair that shares norms alone, in its stored order; None if it is not there."""
    from kinprint.comparison.pipeline import compare

    folders = [ROOT / name for name in NORMS_COPIED]
    if not all((folder / "model.safetensors").is_file() for folder in folders):
        return None
    report = compare(str(folders[0]), str(folders[1]))
    verdict, evidence = report.verdict, report.evidence
    assert verdict is not None
    assert evidence is not None
    rows: tuple[dict[str, Cell], ...] = tuple(
        {"part": item.component, "state": item.state, "tested": item.tested, "shared": item.shared}
        for item in evidence.components
    )
    others = sum(item.shared > 0 for item in evidence.components if item.component != "norms")
    norms = sum(item.shared for item in evidence.components if item.component == "norms")
    goals = (
        Goal("verdict is shares_components", float(verdict.class_ == SHARES_COMPONENTS), ">=", 1.0, ""),
        Goal("norm roles that share", float(norms), ">=", 1.0, ""),
        Goal("other parts that share", float(others), "<=", 0.0, ""),
    )
    notes = (f"`kinprint compare`: {verdict.sentence}",)
    return Report("calibration_norms_copied", "base and norms_copied, in full", rows, goals, notes)


# -- the page ------------------------------------------------------------------------------------------------------------

_ABOUT = """# Calibration

Written by `python -m bench.calibration --page`. Is a p-value of 10⁻⁶ what it says? Pairs of models that share nothing go
through the evidence engine, and what it reports is held against what it should.

**Synthetic pairs** are Llama-shaped models of width 64 with three layers, drawn independently: {uniform}. Hard ones
are made to deceive: {hard}.
**Trained pairs** are all pairs of the demo and test families without common weights, each many times: before every comparison
the order of neurons, heads, value dimensions and residual dimensions of one side is drawn anew, uniformly. This is an exact
symmetry of the model, so the computed function stays and the p-values must be uniform if the tests are right.

An exact p-value must be uniform: the Kolmogorov-Smirnov test must not reject it. A bound must not be small too often; the
binomial tail of the number of p-values at or below 0.05, 0.01 and 0.001 is computed for either. Fixed points are bounds; so are
the other tests where the null's shape does not allow the normal tail.

Verdicts are taken at their most credulous: controls count as passed, every test as able, and what could speak for a common
initialisation only is not looked at. {seconds:.0f} s on {cores} cores.

"""


def page(reports: Sequence[Report], seconds: float) -> str:
    """Return the committed page."""
    about = _ABOUT.format(uniform=", ".join(UNIFORM), hard=", ".join(HARD), seconds=seconds, cores=machine()["cores"])
    return about + "\n".join(report.markdown() for report in reports)


def main(argv: list[str] | None = None) -> int:
    """Run what was asked for."""
    line = parser("bench.calibration", __doc__)
    line.add_argument("--page", action="store_true", help="write bench/CALIBRATION.md from this run; needs a full run")
    line.add_argument("--workers", type=int, default=WORKERS, help="processes (default: %(default)s)")
    asked = line.parse_args(argv)
    if asked.page and asked.quick:
        line.error("--page needs a full run")
    trials = plan(*(QUICK if asked.quick else FULL))
    seconds, outcomes = timed(lambda: run_all(trials, asked.workers))
    full = not asked.quick
    reports = [uniformity(outcomes, trained_pairs()[1], full=full), verdicts(outcomes, full=full)]
    if (real := real_pair()) is not None:
        reports.append(real)
    if asked.page:
        PAGE.write_text(page(reports, seconds), encoding="utf-8")
    print(f"{len(trials):,} pairs in {seconds:.0f} s\n")
    return finish(reports, asked.json)


if __name__ == "__main__":
    sys.exit(main())
