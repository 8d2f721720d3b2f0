"""Compare two models, or two towers of models, as far as their tensors go: choose, read, measure, judge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

from kinprint._util.cores import aside, may_fork, on_all_cores
from kinprint._util.cycles import no_collection
from kinprint._util.progress import Progress
from kinprint._util.records import dataclass
from kinprint.arch import Role, ordered_axes
from kinprint.comparison.by_name import jobs_by_name
from kinprint.comparison.measuring import Job, in_chunks, measure, not_compared
from kinprint.comparison.selection import Pair, fit_budget, pair_up, parse_layers
from kinprint.comparison.summary import Layer, summarise
from kinprint.evidence.attempts import attempt
from kinprint.evidence.empirical_null import EmpiricalNull
from kinprint.evidence.examine import examine
from kinprint.evidence.probe import Probe
from kinprint.evidence.reading import Scope, new_probe
from kinprint.evidence.searches import Case
from kinprint.metrics import Metric
from kinprint.model.model import Model
from kinprint.model.reader import ModelPlan, read_together
from kinprint.model.tokenizers import TokenPairs
from kinprint.results.findings import Evidence, Verdict
from kinprint.results.measurements import RoleSummary, Skipped, TensorComparison
from kinprint.results.options import Options
from kinprint.results.plain_json import between_forks
from kinprint.sources.session import Session
from kinprint.text import Text

WORTH_A_THREAD = 1 << 19  # elements of a slice: below, threads wait for the interpreter, and one is faster than two
WORTH_A_FORK = 1 << 22  # elements of one side, which take half a second to measure; a fork takes some hundredths
_FIGURES = tuple[TensorComparison, ...]
MEASURED_SHARE = 0.7  # of the budget then left: the rest is for tests, controls and escalation


@dataclass(frozen=True)
class Compared:
    """What was measured of two models, and what follows from it."""

    pairs: tuple[Pair, ...]
    comparisons: tuple[TensorComparison, ...]
    summary: tuple[RoleSummary, ...]
    skipped: tuple[Skipped, ...]
    probes: tuple[Probe, Probe]
    bytes_planned: int
    verdict: Verdict
    evidence: Evidence

    @property
    def blocked(self) -> list[Pair]:
        """Pairs that could not be compared."""
        return [pair for pair in self.pairs if pair.reason is not None]


def compare_tensors(
    models: tuple[Model, Model],
    run: Session,
    options: Options,
    metrics: Sequence[Metric],
    null: EmpiricalNull,
    tokens: TokenPairs | None,
    tell: Progress,
    when_read: Callable[[tuple[Probe, Probe]], None] = lambda _: None,
) -> Compared:
    """Compare two models tensor by tensor, within what is left of the budget, and judge."""
    left = run.remaining_bytes
    affordable = None if left is None else int(left * MEASURED_SHARE)
    with no_collection():
        pairs, skipped = pair_up(*models, options)
        pairs, unaffordable = fit_budget(pairs, *models, rows=options.rows, budget_bytes=affordable)
        batches = list(_plan_batches(pairs, *models))
    probes = new_probe(models[0]), new_probe(models[1])
    measured = _measurer(models, metrics, options.seed)
    jobs, figures = _read_and_measure(run, batches, probes, measured, tell)
    case = Case(models, probes, run, tokens, options, _scope(options, *models), null, when_read=when_read)
    verdict, evidence = examine(case, tell)
    comparisons = figures()
    summary = _summaries([len(batch.pairs) for batch in batches], jobs, comparisons, options.seed)
    unnamed, not_read, spent = jobs_by_name(models, run, options)  # after the verdict, which does not know of these
    figures_by_name = measured(unnamed)
    summary += _summaries([len(unnamed)], unnamed, figures_by_name, options.seed)
    checkpoints = [model.checkpoint for model in models]
    for pair in pairs:
        if pair.reason is not None:
            dtypes = (one.tensors[part.name].dtype for one, part in zip(checkpoints, (pair.a, pair.b), strict=True))
            comparisons.append(not_compared(pair, *dtypes))
    return Compared(
        pairs=(*pairs, *(pair for pair, _, _ in unnamed)),
        comparisons=(*comparisons, *figures_by_name),
        summary=tuple(summary),
        skipped=(*skipped, *unaffordable, *not_read),
        probes=probes,
        bytes_planned=sum(plan.nbytes for batch in batches for plan in batch.plans) + spent,
        verdict=verdict,
        evidence=evidence,
    )


def _read_and_measure(
    session: Session,
    batches: Sequence[_Batch],
    probes: tuple[Probe, Probe],
    measured: Callable[[Sequence[Job]], tuple[TensorComparison, ...]],
    tell: Progress,
) -> tuple[list[Job], Callable[[], list[TensorComparison]]]:
    """Read all batches into the probes, for the evidence engine, and begin to measure; what comes second waits for the figures."""
    total = sum(len(batch.pairs) for batch in batches)
    jobs: list[Job] = []
    begun: list[Callable[[], tuple[TensorComparison, ...]]] = []
    first = held = 0  # of the jobs that are not begun: the first, and the elements of one side
    reads = session.ahead(lambda batch: read_together(batch.plans), batches)
    for number, (batch, (values_a, values_b)) in enumerate(zip(batches, reads, strict=True), 1):
        jobs += zip(batch.pairs, values_a, values_b, strict=True)
        for probe, samples in zip(probes, (values_a, values_b), strict=True):
            probe.samples.update((pair.want.key, sample) for pair, sample in zip(batch.pairs, samples, strict=True))
        held += sum(sample.stored.size for sample in values_a)
        forked = may_fork() and (held >= WORTH_A_FORK or len(begun) > 0)
        if not may_fork() or held >= WORTH_A_FORK or number == len(batches):
            work = partial(measured, jobs[first:])
            begun.append(aside(work, *between_forks(_FIGURES)) if forked else partial(tuple, work()))
            first, held = len(jobs), 0
        tell("measuring", len(jobs), total)
        del values_a, values_b, samples  # before the next batch comes
    return jobs, lambda: [found for wait in begun for found in wait()]


def _measurer(
    models: tuple[Model, Model], metrics: Sequence[Metric], seed: int
) -> Callable[[Sequence[Job]], tuple[TensorComparison, ...]]:
    """Return what measures pairs of tensors, those of one role and shape together; large ones on all cores."""
    ordered = ordered_axes(models[0].checkpoint.config) | ordered_axes(models[1].checkpoint.config)

    def together(jobs: Sequence[Job]) -> list[TensorComparison]:
        def none(why: Text) -> list[TensorComparison]:
            return [not_compared(replace(job[0], reason=why), *(x.dtype for x in job[1:])) for job in jobs]

        return attempt(lambda: measure(jobs, metrics, seed=seed, ordered=ordered), none)

    def measured(jobs: Sequence[Job]) -> tuple[TensorComparison, ...]:
        chunks = in_chunks(jobs)
        large = any(jobs[chunk[0]][1].stored.size >= WORTH_A_THREAD for chunk in chunks)
        spread = on_all_cores if large else lambda work, items: list(map(work, items))
        found = spread(together, [[jobs[k] for k in chunk] for chunk in chunks])
        by_number = {
            k: one for chunk, ones in zip(chunks, found, strict=True) for k, one in zip(chunk, ones, strict=True)
        }
        return tuple(by_number[k] for k in range(len(jobs)))

    return measured


def _summaries(
    counts: Sequence[int], jobs: Sequence[Job], found: Sequence[TensorComparison], seed: int
) -> list[RoleSummary]:
    """Return a line for each role, batch by batch, each of so many jobs."""
    summary, rest = [], iter(zip(jobs, found, strict=True))
    for count in counts:
        layers: dict[Role, list[Layer]] = {}
        for (pair, left, right), one in islice(rest, count):
            layers.setdefault(pair.role, []).append((one, left, right))
        summary += [summarise(role, items, seed=seed) for role, items in layers.items()]
    return summary


def _scope(options: Options, a: Model, b: Model) -> Scope:
    """Return what may be read; a layer number means that layer in both models."""
    layers = parse_layers(options.layers, max(a.naming.layers, b.naming.layers)) if options.layers else None
    roles = frozenset(Role(name) for name in options.roles) if options.roles else None
    return Scope(None if layers is None else frozenset(layers), roles)


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
