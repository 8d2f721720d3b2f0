"""The benchmark from end to end: a zoo, all trials, figures, pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kinprint._util.progress import Progress, quiet
from kinprint.errors import BadSelection
from kinprint.evidence.empirical_null import NULL_SCHEMA, NULL_VERSION, EmpiricalNull, NullModel, summarise
from kinprint.fingerprints.run import METHODS_NULL, chosen_methods, statistic_of
from kinprint.lab.lineage.pages import Benchmark
from kinprint.lab.lineage.running import peaks, run_trials
from kinprint.lab.lineage.scoring import costs, table
from kinprint.lab.lineage.trials import RELATED, UNRELATED, trials_of
from kinprint.lab.lineage.verdicts import VERDICT
from kinprint.lab.zoo.store import Zoo

NULL_VALUES = 400
"""Values of each method that the shipped null keeps: their quantiles, the largest among them."""


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
    """Return what the unrelated pairs show to each method, as the null that fingerprint tables use."""
    samples = []
    for method in bench.methods:
        if method == VERDICT:
            continue
        values = sorted(
            found.value
            for trial in bench.trials
            if trial.answer == UNRELATED
            and (found := bench.outcomes.get((method, trial.a, trial.b))) is not None
            and found.value is not None
        )
        if values:
            count = min(NULL_VALUES, len(values))
            # evenly through the sorted values, the largest always among them
            kept = [values[len(values) - 1 - index * len(values) // count] for index in range(count)]
            sample = summarise(statistic_of(chosen_methods([method])[0]), tuple(float(f"{x:.6g}") for x in kept[::-1]))
            samples.append(sample)
    bases = [(key, member) for key, member in bench.zoo.members.items() if not member.parents]
    stored = bench.zoo.record.stored
    return EmpiricalNull(
        schema=NULL_SCHEMA,
        schema_version=NULL_VERSION,
        name=name,
        made_by=bench.command,
        note=note,
        models=tuple(
            NullModel(
                key, f"sha256:{stored[key][1].get('model.safetensors', '')}" if key in stored else "", member.relation
            )
            for key, member in bases
        ),
        samples=tuple(samples),
    )


__all__ = ["METHODS_NULL", "null_of", "run_benchmark"]
