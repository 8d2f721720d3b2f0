"""Compare two models: open both, choose what to read, read, measure, judge, and return a Report."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kinprint._util.progress import Progress, quiet
from kinprint._version import __version__
from kinprint.arch import Role, ordered_axes
from kinprint.arch.roles import role_named
from kinprint.comparison.config_differences import compare_configs
from kinprint.comparison.declarations import judge_declarations, read_declaration
from kinprint.comparison.measuring import Job, in_chunks, measure, not_compared
from kinprint.comparison.selection import Pair, fit_budget, pair_up, parse_layers
from kinprint.comparison.summary import Layer, summarise
from kinprint.evidence.attempts import attempt
from kinprint.evidence.empirical_null import load_null
from kinprint.evidence.examine import Case, examine
from kinprint.evidence.layer_grids import layer_grids
from kinprint.evidence.probe import Probe
from kinprint.evidence.reading import Scope, new_probe
from kinprint.evidence.rotary import in_one_order
from kinprint.formats.adapters.opening import shared_base
from kinprint.metrics import METRICS, Metric
from kinprint.model.model import Model, open_models
from kinprint.model.reader import ModelPlan, read_together
from kinprint.model.tokenizers import TokenPairs, compare_tokenizers
from kinprint.model.weights import StoredWeights
from kinprint.refs import path_text
from kinprint.results.measurements import NOT_COMPARABLE, OK, RoleSummary, Skipped, TensorComparison
from kinprint.results.models import TokenizerDifference
from kinprint.results.options import ALL, USUAL_METRICS, Options
from kinprint.results.report import Report, Run
from kinprint.results.result import SCHEMA_VERSION
from kinprint.sources.ledger import Ledger
from kinprint.sources.session import Session, running
from kinprint.sources.settings import Settings
from kinprint.text import Text, joined, labelled, within

if TYPE_CHECKING:
    from kinprint.fingerprints.base import Method

TOKENIZER_SHARE = 1 / 3  # of the budget left after the headers
GRIDS = Text("layer grids")
WORTH_A_THREAD = 1 << 19  # elements of a slice: below, threads wait for the interpreter, and one is faster than two
MEASURED_SHARE = 0.7  # of the budget then left: the rest is for tests, controls and escalation


def compare(
    a: str | Path,
    b: str | Path,
    options: Options | None = None,
    *,
    settings: Settings | None = None,
    session: Session | None = None,
    progress: Progress | None = None,
    **chosen: Any,
) -> Report:
    """Compare two models and return measurements, evidence and verdict.

    Parameters
    ----------
    a, b : models, as the command line takes them (hub id, folder, file or URL).
    options : what to look at, and how much of it; see `kinprint.Options`.
    settings : where and how to read; by default from the environment.
    session : an open session, whose connections and caches to share instead of opening others.
    progress : called with (stage, done, total) as the work proceeds.
    chosen : options by name, instead of `options` or on top of them: ``compare(a, b, deep=True, control=["c"])``.
    """
    open_budget = options is None and "budget_bytes" in Options.defaults(chosen)
    options = Options.of(options, **chosen).check()
    methods: list[Method] = []
    if options.methods:
        from kinprint.fingerprints.run import chosen_methods, room_for_methods, run_methods  # half of all modules

        methods = chosen_methods(options.methods)
        options = room_for_methods(options, a, b) if open_budget else options
    names = tuple(METRICS) if ALL in options.metrics else options.metrics or USUAL_METRICS
    metrics = [METRICS[name] for name in names]  # a misspelt metric fails before anything is read
    options = replace(options, metrics=names)
    for name in options.roles:
        role_named(name)  # and so do a misspelt role, and a broken null
    null = load_null(options.null)
    started, clock = datetime.now(UTC), time.monotonic()
    tell = progress or quiet
    with running(options, settings, session, ledger=Ledger()) as run:
        before = run.bytes_delivered
        tell("opening", 0, 1)
        first, second = in_one_order(*open_models([path_text(a), path_text(b)], run))
        models, checkpoints = (first, second), (first.checkpoint, second.checkpoint)
        config = compare_configs(first.checkpoint.config, second.checkpoint.config)
        tokenizer, tokens = compare_tokenizers(*models, share=TOKENIZER_SHARE)
        declarations = read_declaration(first), read_declaration(second)
        pairs, skipped = pair_up(*models, options)
        left = run.remaining_bytes
        affordable = None if left is None else int(left * MEASURED_SHARE)
        pairs, unaffordable = fit_budget(pairs, *models, rows=options.rows, budget_bytes=affordable)
        batches = list(_plan_batches(pairs, *models))
        probes = new_probe(first), new_probe(second)
        comparisons, summary = _measure_all(run, batches, *models, probes, metrics, options.seed, tell)
        blocked = [pair for pair in pairs if pair.reason is not None]
        for pair in blocked:
            dtypes = (one.tensors[part.name].dtype for one, part in zip(checkpoints, (pair.a, pair.b), strict=True))
            comparisons.append(not_compared(pair, *dtypes))
        status, reason = _status(comparisons, [*skipped, *unaffordable])
        shared, scope = _tokens(tokenizer, tokens, *models), _scope(options, *models)
        verdict, evidence = examine(Case(models, probes, run, shared, options, scope, null), tell)
        found = []
        if methods:
            found = run_methods(StoredWeights(first), StoredWeights(second), methods, seed=options.seed, tell=tell)
        grids, undrawn = attempt(lambda: layer_grids(*probes), lambda why: ((), labelled(GRIDS, why)))
        order = {role: position for position, role in enumerate(dict.fromkeys(pair.role.value for pair in pairs))}
        return Report(
            schema=Report.SCHEMA,
            schema_version=SCHEMA_VERSION,
            status=status,
            reason=reason,
            a=first.summary(),
            b=second.summary(),
            settings=options.public(),
            bytes_read=run.bytes_delivered - before,
            bytes_planned=sum(plan.nbytes for batch in batches for plan in batch.plans),
            config=config,
            tokenizer=tokenizer,
            summary=tuple(sorted(_with_blocked(summary, blocked), key=lambda line: order[line.role])),
            comparisons=tuple(comparisons),
            skipped=(*skipped, *unaffordable),
            notes=tuple(note for note in (shared_base(*checkpoints), undrawn) if note),
            verdict=verdict,
            evidence=evidence,
            run=_run(run, started, time.monotonic() - clock),
            methods=tuple(found),
            grids=grids,
            declared=judge_declarations(models, *declarations, verdict),
            reads=run.ledger.summary() if run.ledger else (),
        )


def _measure_all(
    session: Session,
    batches: Sequence[_Batch],
    a: Model,
    b: Model,
    probes: tuple[Probe, Probe],
    metrics: Sequence[Metric],
    seed: int,
    tell: Progress,
) -> tuple[list[TensorComparison], list[RoleSummary]]:
    """Read and measure batch by batch, on all cores; the slices are kept in the probes, for the evidence engine."""
    comparisons: list[TensorComparison] = []
    summary: list[RoleSummary] = []
    total = sum(len(batch.pairs) for batch in batches)
    ordered = ordered_axes(a.checkpoint.config) | ordered_axes(b.checkpoint.config)

    def together(jobs: Sequence[Job]) -> list[TensorComparison]:
        def none(why: Text) -> list[TensorComparison]:
            return [not_compared(replace(job[0], reason=why), *(x.dtype for x in job[1:])) for job in jobs]

        return attempt(lambda: measure(jobs, metrics, seed=seed, ordered=ordered), none)

    with ThreadPoolExecutor(os.cpu_count() or 1) as workers:
        for batch, (values_a, values_b) in zip(
            batches, session.ahead(lambda batch: read_together(batch.plans), batches), strict=True
        ):
            jobs = list(zip(batch.pairs, values_a, values_b, strict=True))
            chunks = in_chunks(jobs)
            found: dict[int, TensorComparison] = {}
            spread = workers.map if jobs[0][1].stored.size >= WORTH_A_THREAD else map
            made = spread(together, ([jobs[k] for k in chunk] for chunk in chunks))
            for chunk, measured in zip(chunks, made, strict=True):
                found.update(zip(chunk, measured, strict=True))
                tell("measuring", len(comparisons) + len(found), total)
            layers: dict[Role, list[Layer]] = {}
            for k, (pair, left, right) in enumerate(jobs):
                comparisons.append(found[k])
                layers.setdefault(pair.role, []).append((found[k], left, right))
                for probe, sample in zip(probes, (left, right), strict=True):
                    probe.samples[pair.want.key] = sample
            summary += [summarise(role, items, seed=seed) for role, items in layers.items()]
            del jobs, layers, values_a, values_b, left, right  # before the next batch comes
    return comparisons, summary


def _scope(options: Options, a: Model, b: Model) -> Scope:
    """Return what may be read; a layer number means that layer in both models."""
    layers = parse_layers(options.layers, max(a.naming.layers, b.naming.layers)) if options.layers else None
    roles = frozenset(Role(name) for name in options.roles) if options.roles else None
    return Scope(None if layers is None else frozenset(layers), roles)


def _tokens(found: TokenizerDifference, tokens: TokenPairs | None, a: Model, b: Model) -> TokenPairs | None:
    """Return the ids of shared tokens; equal files that were not read have the same ids throughout."""
    if tokens is None and found.identical_files:
        rows = [part.shape[0] for model in (a, b) for part in model.naming.tensors if part.role is Role.EMBEDDING]
        return tuple((number, number) for number in range(min(rows, default=0)))
    return tokens


def _run(session: Session, started: datetime, elapsed_s: float) -> Run:
    traffic = session.traffic
    return Run(
        kinprint=__version__,
        python=platform.python_version(),
        numpy=np.__version__,
        started=started.isoformat(timespec="seconds"),
        elapsed_s=round(elapsed_s, 3),
        requests=traffic.requests,
        retries=traffic.retries,
        network_bytes=traffic.network_bytes,
        cache_bytes=traffic.cache_bytes,
        local_bytes=traffic.local_bytes,
        problem=session.cache.problem if session.cache else None,
    )


@dataclass(frozen=True)
class _Batch:
    """Pairs read together: all vectors, or one role's matrices. Bounds what is in memory at a time."""

    pairs: tuple[Pair, ...]
    plans: tuple[ModelPlan, ModelPlan]


def _plan_batches(pairs: Sequence[Pair], a: Model, b: Model) -> Iterator[_Batch]:
    usable = [pair for pair in pairs if pair.reason is None]
    groups: dict[str, list[Pair]] = {}
    for pair in usable:
        # Roles that share a tensor which has to be read whole go together, so that it is read once.
        shares = any(part.transposed and part.rows is not None for part in (pair.a, pair.b))
        key = "transposed" if shares else pair.role.value
        groups.setdefault(key if pair.is_matrix else "", []).append(pair)
    for group in groups.values():
        wants = [pair.want for pair in group]
        yield _Batch(tuple(group), (a.plan(wants), b.plan(wants)))


def _with_blocked(done: Sequence[RoleSummary], blocked: Sequence[Pair]) -> list[RoleSummary]:
    """Count the pairs that could not be compared; a role with no other pair gets a line of its own, with the reason."""
    lines: dict[str, list[Pair]] = {}
    for pair in blocked:
        lines.setdefault(pair.role.value, []).append(pair)
    counted = [replace(line, not_compared=line.not_compared + len(lines.pop(line.role, ()))) for line in done]
    return counted + [
        RoleSummary(role, group[0].role.info.kind, 0, len(group), None, None, None, None, None, reason=group[0].reason)
        for role, group in lines.items()
    ]


def _status(comparisons: Sequence[TensorComparison], skipped: Sequence[Skipped]) -> tuple[str, Text | None]:
    if any(item.status == OK for item in comparisons):
        return OK, None
    reasons = [item.reason for item in comparisons if item.reason] or [item.reason for item in skipped]
    shown = dict.fromkeys(reasons) or (Text("neither model has a tensor whose role is known"),)
    return NOT_COMPARABLE, Text("not one tensor could be compared: {why}", why=joined(within(shown, 600)))
