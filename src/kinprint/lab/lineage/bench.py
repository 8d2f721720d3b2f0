"""Run the lineage benchmark: open or build a zoo, run all trials, score them."""

import os
from collections.abc import Sequence
from pathlib import Path

from kinprint._util.numeric import evenly_spaced
from kinprint._util.progress import Progress, quiet
from kinprint.errors import BadSelection
from kinprint.evidence.empirical_null import NULL_SCHEMA, NULL_VERSION, EmpiricalNull, NullModel, summarise
from kinprint.fingerprints.run import chosen_methods, statistic_of
from kinprint.lab.lineage.pages import Benchmark
from kinprint.lab.lineage.running import peaks, run_trials
from kinprint.lab.lineage.scoring import costs, known, of_method, table
from kinprint.lab.lineage.trials import RELATED, UNRELATED, trials_of
from kinprint.lab.lineage.verdicts import VERDICT
from kinprint.lab.zoo.build import build
from kinprint.lab.zoo.store import FILE, Zoo

NULL_VALUES = 400  # values of each method that the shipped null keeps: quantiles, the largest among them


def open_or_build(folder: Path | None, *, full: bool, workers: int, progress: Progress) -> Zoo:
    """Open the zoo of a folder, or train the full or the quick one there (by default in the user's cache)."""
    if folder is not None and not full and (folder / FILE).is_file():
        return Zoo.open(folder)
    tier = "full" if full else "quick"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return build(folder or cache / "kinprint" / "zoo" / tier, tier, progress=progress, workers=workers)


def run_benchmark(
    zoo: Zoo,
    folder: Path,
    *,
    methods: Sequence[str] = ("all",),
    verdict: bool = True,
    limit: int | None = None,
    slow_limit: int | None = None,
    workers: int = 2,
    seed: int = 0,
    command: str = "kinprint bench lineage",
    progress: Progress = quiet,
) -> Benchmark:
    """Run every method on every trial of a zoo; results are kept in `folder`."""
    names = [method.name for method in chosen_methods(methods)]
    if verdict:
        names.append(VERDICT)
    if not names:
        raise BadSelection("no method was named", hint="see kinprint fingerprint --list")
    trials = trials_of(zoo, limit)
    outcomes = run_trials(
        zoo, trials, names, folder, workers=workers, seed=seed, slow_limit=slow_limit, progress=progress
    )
    related = next((trial for trial in trials if trial.answer == RELATED), None)
    most = {} if related is None else peaks(zoo, related, names, seed=seed)
    cells = table(trials, outcomes, names)
    return Benchmark(zoo, trials, outcomes, cells, costs(outcomes, names, most), names, command, seed)


def null_of(bench: Benchmark, name: str, note: str) -> EmpiricalNull:
    """Return each method's values on unrelated pairs as the empirical null of fingerprint tables."""
    unrelated = [trial for trial in bench.trials if trial.answer == UNRELATED]
    samples = []
    for method in bench.methods:
        if method == VERDICT:
            continue
        values = sorted(known(of_method(bench.outcomes, method, unrelated)).tolist(), reverse=True)
        if values:
            kept = evenly_spaced(values, NULL_VALUES)[::-1]  # the largest is always among them
            statistic = statistic_of(chosen_methods([method])[0])
            samples.append(summarise(statistic, tuple(float(f"{x:.6g}") for x in kept)))
    stored = bench.zoo.record.stored
    models = [
        NullModel(
            key, f"sha256:{stored[key][1].get('model.safetensors', '')}" if key in stored else "", member.relation
        )
        for key, member in bench.zoo.members.items()
        if not member.parents
    ]
    return EmpiricalNull(
        schema=NULL_SCHEMA,
        schema_version=NULL_VERSION,
        name=name,
        made_by=bench.command,
        note=note,
        models=tuple(models),
        samples=tuple(samples),
    )
