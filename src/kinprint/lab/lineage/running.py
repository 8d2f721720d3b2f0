"""Run every method on every trial in worker processes, and keep each result so that an interrupted run goes on."""

from __future__ import annotations

import json
import os
import time
import tracemalloc
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path

from kinprint._util.progress import Progress, quiet
from kinprint.errors import DegenerateInput, NeedsExtra
from kinprint.fingerprints.base import Features, Method, PortableMethod, Score
from kinprint.fingerprints.run import chosen_methods, share_tokens
from kinprint.lab.lineage.scoring import Key, MethodOutcome
from kinprint.lab.lineage.trials import Trial
from kinprint.lab.lineage.verdicts import VERDICT, VERDICT_VERSION, judge
from kinprint.lab.zoo.held import HeldWeights
from kinprint.lab.zoo.members import keys_of
from kinprint.lab.zoo.store import Zoo

RESULTS = "results.jsonl"
LACKING = "an optional dependency is missing"
SLOW = (VERDICT, "match_activations")
"""Methods that take seconds a pair even on the zoo's models: run on fewer unrelated pairs unless every pair is asked for."""
FORMAT = 1  # to be raised when the meaning of a result changes, so that kept ones do not count


def run_trials(
    zoo: Zoo,
    trials: Sequence[Trial],
    names: Sequence[str],
    folder: Path,
    *,
    workers: int = 2,
    seed: int = 0,
    slow_limit: int | None = None,
    progress: Progress = quiet,
) -> dict[Key, MethodOutcome]:
    """Return a result for every method and trial; what `folder` already holds for the same models and versions is not run again."""
    keys = keys_of(zoo.members)
    folder.mkdir(parents=True, exist_ok=True)
    kept = _kept(folder / RESULTS)
    outcomes: dict[Key, MethodOutcome] = {}
    jobs: dict[str, list[tuple[str, str, str, str]]] = {}
    for trial in trials:
        for name in names:
            key = _result_key(name, keys[trial.a], keys[trial.b], seed)
            if key in kept:
                outcomes[name, trial.a, trial.b] = kept[key]
            elif slow_limit is None or name not in SLOW or trial.turn <= slow_limit:
                jobs.setdefault(trial.b, []).append((name, trial.a, trial.b, key))
    done = len(outcomes)
    total = done + sum(map(len, jobs.values()))
    progress("trials", done, total)
    with (folder / RESULTS).open("a", encoding="utf-8") as log:
        for results in _map(zoo.folder, list(jobs.items()), seed, workers):
            for key, outcome in results:
                outcomes[outcome.method, outcome.a, outcome.b] = outcome
                if outcome.note != LACKING:  # what is missing may be installed by the next run
                    log.write("\n" + json.dumps({"key": key, **asdict(outcome)}))  # a line cut short stays alone
            log.flush()
            done += len(results)
            progress("trials", done, total)
    return outcomes


def _result_key(method: str, a: str, b: str, seed: int) -> str:
    version = VERDICT_VERSION if method == VERDICT else chosen_methods([method])[0].version
    return f"{FORMAT}:{method}:{version}:{a[:16]}:{b[:16]}:{seed}"


def _kept(file: Path) -> dict[str, MethodOutcome]:
    if not file.is_file():
        return {}
    found = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            data = json.loads(line)
            key = data.pop("key")
            found[key] = MethodOutcome(**data)
        except (ValueError, KeyError, TypeError):  # the last line of a run that was cut short
            continue
    return found


Batch = tuple[str, list[tuple[str, str, str, str]]]


def _map(folder: Path, batches: Sequence[Batch], seed: int, workers: int) -> Iterable[list[tuple[str, MethodOutcome]]]:
    if workers <= 1 or len(batches) < 2:
        runner = _Runner(folder, seed)
        yield from (runner.run(batch) for batch in batches)
        return
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # spawned: a fork would copy locks that threads of this process may hold
    with ProcessPoolExecutor(workers, get_context("spawn"), initializer=_begin, initargs=(folder, seed)) as pool:
        yield from pool.map(_one, batches)


_RUNNER: list[_Runner] = []  # of a worker process


def _begin(folder: Path, seed: int) -> None:
    _RUNNER.append(_Runner(folder, seed))


def _one(batch: Batch) -> list[tuple[str, MethodOutcome]]:
    return _RUNNER[0].run(batch)


class _Runner:
    """Run trials in one process: models of the zoo in memory, features of a model kept from pair to pair."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._zoo = Zoo.open(folder)
        self._seed = seed
        self._held: dict[str, HeldWeights] = {}
        self._features: dict[tuple[str, str], tuple[Features | str, float, int]] = {}
        self._bases = {member.name for member in self._zoo.members.values() if not member.parents}

    def run(self, batch: Batch) -> list[tuple[str, MethodOutcome]]:
        """Run all that is asked of one member, then forget it; bases are kept."""
        member, jobs = batch
        results = [(key, self._outcome(method, a, b)) for method, a, b, key in jobs]
        if member not in self._bases:
            self._held.pop(member, None)
            self._features = {key: value for key, value in self._features.items() if key[1] != member}
        return results

    def _outcome(self, name: str, a: str, b: str) -> MethodOutcome:
        if name == VERDICT:
            return judge(self._zoo, a, b, seed=self._seed)
        method = chosen_methods([name])[0]
        began = time.perf_counter()
        try:
            score, seconds, read = self._score(method, a, b)
        except (DegenerateInput, NeedsExtra) as error:
            note = LACKING if isinstance(error, NeedsExtra) else None
            return MethodOutcome(name, a, b, None, None, error.message, time.perf_counter() - began, 0, note)
        p = None if score.chance is None else score.chance.log10_p
        return MethodOutcome(name, a, b, score.value, p, None, seconds, read)

    def _score(self, method: Method, a: str, b: str) -> tuple[Score, float, int]:
        if isinstance(method, PortableMethod):
            # as fingerprint files would be compared: each side chose its tokens without knowing the other
            one, two = self._extract(method, a), self._extract(method, b)
            began = time.perf_counter()
            features = [found for found, _, _ in (one, two) if isinstance(found, Features)]
            if len(features) < 2:
                raise DegenerateInput(next(found for found, _, _ in (one, two) if isinstance(found, str)))
            score = method.score(*features, seed=self._seed)
            return score, time.perf_counter() - began + one[1] + two[1], one[2] + two[2]
        first, second = self._weights(a), self._weights(b)
        share_tokens(first, second)
        first.bytes_read = second.bytes_read = 0
        began = time.perf_counter()
        try:
            score = method.score_models(first, second, seed=self._seed)
        finally:
            first.shared = second.shared = None
        return score, time.perf_counter() - began, first.bytes_read + second.bytes_read

    def _weights(self, name: str) -> HeldWeights:
        if name not in self._held:
            self._held[name] = HeldWeights(name, *self._zoo.load(name))
        return self._held[name]

    def _extract(self, method: PortableMethod, name: str) -> tuple[Features | str, float, int]:
        if (method.name, name) not in self._features:
            weights = self._weights(name)
            weights.bytes_read, began = 0, time.perf_counter()
            found: Features | str
            try:
                found = method.extract(weights)
            except DegenerateInput as error:
                found = error.message
            self._features[method.name, name] = found, time.perf_counter() - began, weights.bytes_read
        return self._features[method.name, name]


def peaks(zoo: Zoo, trial: Trial, names: Sequence[str], *, seed: int = 0) -> Mapping[str, int]:
    """Return the most memory that each method asked for on one pair, in bytes, models themselves not counted."""
    runner = _Runner(zoo.folder, seed)
    found: dict[str, int] = {}
    for name in names:
        if name == VERDICT:
            continue
        runner.run((trial.b, [("pdf", trial.a, trial.b, "")]))  # loads both models before anything is counted
        tracemalloc.start()
        try:
            runner.run((trial.a, [(name, trial.a, trial.b, "")]))
            found[name] = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    return found
