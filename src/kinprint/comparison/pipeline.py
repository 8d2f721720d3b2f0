"""Compare two models: open both, choose what to read, read, measure, judge, and return a Report."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kinprint._util.progress import Progress, quiet
from kinprint._util.records import dataclass
from kinprint._version import __version__
from kinprint.arch import Role
from kinprint.arch.roles import role_named
from kinprint.comparison.config_differences import compare_configs
from kinprint.comparison.declarations import judge_declarations, read_declaration
from kinprint.comparison.selection import Pair
from kinprint.comparison.tensors import Compared, compare_tensors
from kinprint.comparison.towers import compare_towers, pair_towers
from kinprint.evidence.attempts import attempt, beside
from kinprint.evidence.empirical_null import load_null
from kinprint.evidence.layer_grids import layer_grids
from kinprint.evidence.probe import Probe
from kinprint.evidence.rotary import in_one_order
from kinprint.metrics import METRICS
from kinprint.model.model import Model, open_models
from kinprint.model.tokenizers import TokenPairs, compare_tokenizers
from kinprint.refs import path_text
from kinprint.results.context import LayerGrid
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
    from kinprint.evidence.empirical_null import EmpiricalNull
    from kinprint.fingerprints.base import Method
    from kinprint.formats.checkpoint import Checkpoint
    from kinprint.metrics.base import Metric
    from kinprint.results.findings import MethodFinding

TOKENIZER_SHARE = 1 / 3  # of the budget left after the headers
GRIDS = Text("layer grids")


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
    start = _Start(datetime.now(UTC), time.monotonic())
    choice = _choose(options, a, b, chosen)
    tell = progress or quiet
    with running(choice.options, settings, session, ledger=Ledger()) as run:
        start = replace(start, bytes_before=run.bytes_delivered)
        tell("opening", 0, 1)
        run.refuse_missing([*choice.options.controls, *choice.options.related, *choice.options.parents])
        return _compare(open_models([path_text(a), path_text(b)], run), run, choice, start, tell)


@dataclass(frozen=True)
class _Start:
    """When a comparison began, and what its session had read by then."""

    at: datetime
    clock: float
    bytes_before: int = 0


@dataclass(frozen=True)
class _Choice:
    """What a comparison was asked for, checked before anything is read."""

    options: Options
    metrics: Sequence[Metric]
    methods: Sequence[Method]
    null: EmpiricalNull


def _choose(options: Options | None, a: str | Path, b: str | Path, chosen: dict[str, Any]) -> _Choice:
    """Check the options: a misspelt metric, method or role, and a broken null, fail here."""
    open_budget = options is None and "budget_bytes" in Options.defaults(chosen)
    options = Options.of(options, **chosen).check()
    methods: list[Method] = []
    if options.methods:
        from kinprint.fingerprints.run import chosen_methods, room_for_methods  # half of all modules

        methods = chosen_methods(options.methods)
        options = room_for_methods(options, a, b) if open_budget else options
    names = tuple(METRICS) if ALL in options.metrics else options.metrics or USUAL_METRICS
    metrics = [METRICS[name] for name in names]
    for name in options.roles:
        role_named(name)
    return _Choice(replace(options, metrics=names), metrics, methods, load_null(options.null))


def _compare(opened: Sequence[Model], run: Session, choice: _Choice, start: _Start, tell: Progress) -> Report:
    """Read, measure and judge two open models."""
    options, metrics, null = choice.options, choice.metrics, choice.null
    models, others, told = pair_towers(*opened)
    first, second = models = in_one_order(*models)
    config = compare_configs(first.checkpoint.config, second.checkpoint.config)
    tokenizer, tokens = compare_tokenizers(*models, share=TOKENIZER_SHARE)
    declarations = read_declaration(first), read_declaration(second)
    shared = _tokens(tokenizer, tokens, *models)
    begun: list[Callable[[], _Grids]] = []  # one, as soon as all is read, to be done with the verdict

    def begin_grids(probes: tuple[Probe, Probe]) -> None:
        work = partial(_grids, probes)
        begun.append(beside(work, _Grids) if all(probe.is_wide for probe in probes) else work)

    compared = compare_tensors(models, run, options, metrics, null, shared, tell, when_read=begin_grids)
    status, reason = _status(compared.comparisons, compared.skipped)
    towers = compare_towers(others, run, options, metrics, null, tell)
    methods = _run_methods(models, choice, tell)
    grids = begun[0]()
    notes = _shared_base(first.checkpoint, second.checkpoint), grids.note, _by_name(compared), *told
    return Report(
        schema=Report.SCHEMA,
        schema_version=SCHEMA_VERSION,
        status=status,
        reason=reason,
        a=first.summary(),
        b=second.summary(),
        settings=options.public(),
        bytes_read=run.bytes_delivered - start.bytes_before,
        bytes_planned=compared.bytes_planned,
        config=config,
        tokenizer=tokenizer,
        summary=_summary(compared),
        comparisons=compared.comparisons,
        skipped=compared.skipped,
        notes=tuple(note for note in notes if note),
        verdict=compared.verdict,
        evidence=compared.evidence,
        run=_run(run, start),
        methods=methods,
        grids=grids.grids,
        declared=judge_declarations(models, *declarations, compared.verdict),
        reads=run.ledger.summary() if run.ledger else (),
        towers=tuple(towers),
    )


def _run_methods(models: tuple[Model, Model], choice: _Choice, tell: Progress) -> tuple[MethodFinding, ...]:
    if not choice.methods:
        return ()
    from kinprint.fingerprints.run import run_methods
    from kinprint.model.weights import StoredWeights

    first, second = (StoredWeights(model) for model in models)
    return tuple(run_methods(first, second, choice.methods, seed=choice.options.seed, tell=tell))


@dataclass(frozen=True)
class _Grids:
    """Layer grids, as they come from a fork, and what there is to say of them."""

    grids: tuple[LayerGrid, ...]
    note: Text | None


def _grids(probes: tuple[Probe, Probe]) -> _Grids:
    return attempt(lambda: _Grids(*layer_grids(*probes)), lambda why: _Grids((), labelled(GRIDS, why)))


def _by_name(compared: Compared) -> Text | None:
    n = sum(pair.role.value.startswith(Role.UNNAMED) for pair in compared.pairs)
    return Text("{n} tensors without a role are compared by name, and have no part in the verdict", n=n) if n else None


def _shared_base(a: Checkpoint, b: Checkpoint) -> Text | None:
    if a.base is None and b.base is None:
        return None
    from kinprint.formats.adapters.opening import shared_base

    return shared_base(a, b)


def _tokens(found: TokenizerDifference, tokens: TokenPairs | None, a: Model, b: Model) -> TokenPairs | None:
    """Return the ids of shared tokens; equal files that were not read have the same ids throughout."""
    if tokens is None and found.identical_files:
        rows = [part.shape[0] for model in (a, b) for part in model.naming.tensors if part.role is Role.EMBEDDING]
        return tuple((number, number) for number in range(min(rows, default=0)))
    return tokens


def _run(session: Session, start: _Start) -> Run:
    traffic = session.traffic
    return Run(
        kinprint=__version__,
        python=platform.python_version(),
        numpy=np.__version__,
        started=start.at.isoformat(timespec="seconds"),
        elapsed_s=round(time.monotonic() - start.clock, 3),
        requests=traffic.requests,
        retries=traffic.retries,
        network_bytes=traffic.network_bytes,
        cache_bytes=traffic.cache_bytes,
        local_bytes=traffic.local_bytes,
        problem=session.cache.problem if session.cache else None,
    )


def _summary(compared: Compared) -> tuple[RoleSummary, ...]:
    """Return a line a role, in the order in which roles were paired."""
    order = {role: place for place, role in enumerate(dict.fromkeys(pair.role.value for pair in compared.pairs))}
    return tuple(sorted(_with_blocked(compared.summary, compared.blocked), key=lambda line: order[line.role]))


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
