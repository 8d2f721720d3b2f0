"""Score methods by attack: area under the curve, true positives at a given rate of false ones, mean costs."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kinprint._util.numeric import FloatArray, ranks
from kinprint.lab.lineage.trials import RELATED, UNRELATED, Trial

Key = tuple[str, str, str]  # method, and both members of a pair


@dataclass(frozen=True, slots=True)
class MethodOutcome:
    """One method on one pair. ``value`` is None where the method was off, with the reason; costs are of this pair alone."""

    method: str
    a: str
    b: str
    value: float | None
    log10_p: float | None
    reason: str | None
    seconds: float
    bytes_read: int
    note: str | None = None


@dataclass(frozen=True, slots=True)
class AttackScore:
    """One method on one attack.

    ``auc`` compares related pairs of this attack with ALL unrelated pairs of the zoo that the method answered: the chance that
    a related pair scores higher, ties counting half. A related pair on which the method was off counts as the least value of all:
    a method that cannot answer does not find anything. ``at_1`` and ``at_01`` are the shares of related pairs above the
    thresholds that 1 % and 0.1 % of unrelated pairs exceed; None where there are too few of these to have such a threshold.
    """

    method: str
    attack: str
    pairs: int
    off: int
    auc: float | None
    at_1: float | None
    at_01: float | None
    median: float | None


def auc(positive: FloatArray, negative: FloatArray) -> float:
    """Return P(X > Y) + P(X = Y)/2 (Mann & Whitney 1947)."""
    together = ranks(np.concatenate([positive, negative]))
    n, m = positive.size, negative.size
    return float((together[:n].sum() - n * (n + 1) / 2.0) / (n * m))


def threshold(negative: FloatArray, rate: float) -> float | None:
    """Return the value that at most `rate` of the unrelated pairs exceed; None where they are fewer than 1/rate."""
    allowed = math.floor(rate * negative.size + 1e-9)
    if allowed < 1:
        return None
    return float(np.sort(negative)[negative.size - 1 - allowed])


def of_method(outcomes: Mapping[Key, MethodOutcome], method: str, trials: Iterable[Trial]) -> list[MethodOutcome]:
    """Return a method's outcomes on the trials that it was run on."""
    return [outcomes[key] for trial in trials if (key := (method, trial.a, trial.b)) in outcomes]


def known(outcomes: Iterable[MethodOutcome]) -> FloatArray:
    """Return the values of the outcomes where the method was not off."""
    return np.array([item.value for item in outcomes if item.value is not None])


def table(trials: Sequence[Trial], outcomes: Mapping[Key, MethodOutcome], methods: Sequence[str]) -> list[AttackScore]:
    """Return a cell for every method and attack, and for all attacks together ("all")."""
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        if trial.answer == RELATED:
            groups.setdefault(trial.group, []).append(trial)
    unrelated = [trial for trial in trials if trial.answer == UNRELATED]
    everything = [trial for group in groups.values() for trial in group]
    cells = []
    for method in methods:
        # where the method is off it cannot be wrong either: such pairs would only lower the threshold
        negative = known(of_method(outcomes, method, unrelated))
        for name, group in [*groups.items(), ("all", everything)]:
            cells.append(_cell(method, name, of_method(outcomes, method, group), negative))
    return cells


def _cell(method: str, attack: str, found: Sequence[MethodOutcome], negative: FloatArray) -> AttackScore:
    positive = np.array([-math.inf if item.value is None else item.value for item in found])
    off = sum(item.value is None for item in found)
    if not positive.size or not negative.size:
        return AttackScore(method, attack, positive.size, off, None, None, None, None)
    limits = (threshold(negative, rate) for rate in (0.01, 0.001))
    at_1, at_01 = (None if limit is None else float(np.mean(positive > limit)) for limit in limits)
    finite = positive[np.isfinite(positive)]
    median = float(np.median(finite)) if finite.size else None
    return AttackScore(method, attack, positive.size, off, auc(positive, negative), at_1, at_01, median)


@dataclass(frozen=True, slots=True)
class MethodCost:
    """Mean cost of a method over the pairs of a zoo; the peak is of one pair, by tracemalloc."""

    method: str
    pairs: int
    off: int
    seconds: float
    bytes_read: float
    peak_bytes: int | None


def costs(outcomes: Mapping[Key, MethodOutcome], methods: Sequence[str], peaks: Mapping[str, int]) -> list[MethodCost]:
    """Return the mean cost of each method."""
    found = []
    for method in methods:
        mine = [item for key, item in outcomes.items() if key[0] == method]
        ran = [item for item in mine if item.value is not None]
        seconds = float(np.mean([item.seconds for item in ran])) if ran else 0.0
        read = float(np.mean([item.bytes_read for item in ran])) if ran else 0.0
        found.append(MethodCost(method, len(mine), len(mine) - len(ran), seconds, read, peaks.get(method)))
    return found
