"""Build an empirical null from models known to be independent, for tests that align before they look."""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import combinations, product
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from kinprint._util.numeric import evenly_spaced
from kinprint._util.progress import Progress, quiet
from kinprint._version import __version__
from kinprint.align.neuron_assignment import match_rows
from kinprint.align.residual_basis import ColumnMatch, match_columns
from kinprint.arch import Role
from kinprint.errors import DegenerateInput, NotComparable
from kinprint.evidence.assess import assess
from kinprint.evidence.basis import LEAST_TOKENS, shared_embeddings
from kinprint.evidence.empirical_null import NULL_SCHEMA, NULL_VERSION, EmpiricalNull, NullModel, summarise
from kinprint.evidence.neuron_matching import ALIGNED_STATISTIC, STATISTIC, moved
from kinprint.evidence.probe import Probe
from kinprint.evidence.reading import read_probe
from kinprint.evidence.rotated_layers import choose_pairs, fit, half_held_out, held_out
from kinprint.evidence.rotation import HALF_STATISTIC
from kinprint.evidence.rotation import STATISTIC as ROTATED_STATISTIC
from kinprint.evidence.rules import LOG10_ALPHA
from kinprint.model.model import Model, open_models
from kinprint.model.reader import Sample, Want
from kinprint.model.tokenizers import compare_tokenizers
from kinprint.model.weights import StoredWeights, Weights
from kinprint.refs import path_text
from kinprint.results.options import Options
from kinprint.sources.session import Session, running
from kinprint.sources.settings import Settings

MAX_LAYERS = 4
ROLES = (Role.MLP_GATE, Role.MLP_UP)
CHECKED = (Role.INPUT_NORM, Role.POST_ATTENTION_NORM, Role.ATTN_Q, Role.ATTN_V, *ROLES)
_CHECK_ROWS = 32


def calibrate(
    models: Sequence[str | Path],
    options: Options | None = None,
    *,
    name: str | None = None,
    note: str = "",
    groups: Mapping[str, str] | None = None,
    settings: Settings | None = None,
    session: Session | None = None,
    progress: Progress | None = None,
    **chosen: Any,
) -> EmpiricalNull:
    """Measure on every pair of independent models what neuron matching finds by chance.

    Parameters
    ----------
    models : hub ids, folders, files or URLs.
    options : budget, files and bases; the others do not matter here.
    name, note : how reports name this null, and what else its reader should know.
    groups : group of each model, where some are related: those of one group are not paired.
    settings, session, progress, chosen : as for `kinprint.compare`.

    Raises NotComparable if two of the models are related by the exact tests, or no pair can be matched.
    """
    options = Options.of(options, **chosen).check()
    references = [path_text(model) for model in models]
    groups = groups or {reference: f"model {number}" for number, reference in enumerate(references, 1)}
    label = name or f"null from {len(references)} models given to kinprint calibrate"
    with running(options, settings, session) as run:
        return _null_of(open_models(references, run), references, groups, label, note, progress or quiet)


def _null_of(
    models: Sequence[Model], references: Sequence[str], groups: Mapping[str, str], name: str, note: str, tell: Progress
) -> EmpiricalNull:
    probes = [_probe(model) for model in models]
    values: dict[str, list[float]] = {STATISTIC: [], ALIGNED_STATISTIC: [], ROTATED_STATISTIC: [], HALF_STATISTIC: []}
    pairs = [(i, j) for i, j in combinations(range(len(models)), 2) if groups[references[i]] != groups[references[j]]]
    for done, (i, j) in enumerate(pairs):
        _check_independent(probes[i], probes[j])
        values[STATISTIC] += _agreements(probes[i], probes[j])
        if (columns := _columns((models[i], models[j]))) is not None:
            values[ALIGNED_STATISTIC] += _agreements(probes[i], probes[j], columns)
        with suppress(DegenerateInput):
            values[ROTATED_STATISTIC] += _rotated(StoredWeights(models[i]), StoredWeights(models[j]))
        for one, two in ((i, j), (j, i)):
            with suppress(DegenerateInput):
                values[HALF_STATISTIC] += _half_rotated(StoredWeights(models[one]), StoredWeights(models[two]))
        tell("pairs", done + 1, len(pairs))
    if not values[STATISTIC]:
        raise NotComparable(
            "no two of these models have gate and up matrices of one width",
            hint="give at least two independent models of the same hidden size",
        )
    return EmpiricalNull(
        schema=NULL_SCHEMA,
        schema_version=NULL_VERSION,
        name=name,
        made_by=f"kinprint {__version__}",
        note=note,
        models=tuple(
            NullModel(PurePosixPath(reference).name or reference, _fingerprint(probe), groups[reference])
            for probe, reference in zip(probes, references, strict=True)
        ),
        samples=tuple(summarise(statistic, tuple(found)) for statistic, found in values.items() if found),
    )


def _fingerprint(probe: Probe) -> str:
    """Return a digest of everything that was read: it pins the model's content, whatever its folder is called."""
    digest = hashlib.sha256()
    for key in sorted(probe.samples, key=str):
        digest.update(np.ascontiguousarray(probe.samples[key].stored).tobytes())
    return f"sha256:{digest.hexdigest()}"


def _probe(model: Model) -> Probe:
    """Read whole gate and up matrices and what the exact tests need, in a few layers."""
    layers = evenly_spaced(range(model.naming.layers), MAX_LAYERS)
    wants = []
    for key, part in model.parts.items():
        if key[0] in CHECKED and key[1] in layers:
            rows = None if key[0] in ROLES or part.shape[0] <= _CHECK_ROWS else (0, _CHECK_ROWS)
            wants.append(Want(*key, rows))
    return read_probe(model, wants, None)


def _check_independent(a: Probe, b: Probe) -> None:
    found = assess(a, b)
    if found.log10_p <= LOG10_ALPHA:
        raise NotComparable(
            f"{a.label} and {b.label} are not independent: log10 p {found.log10_p:.1f}",
            hint="leave one of them out: a null made from related models would hide relations",
        )


def _columns(models: tuple[Model, Model]) -> ColumnMatch | None:
    """Pair residual dimensions by the tokens that both models have; None where that cannot be done."""
    _, tokens = compare_tokenizers(*models, share=1.0)
    if not tokens or len(tokens) < LEAST_TOKENS:
        return None
    embedded, _ = shared_embeddings(models, tokens, None)
    return None if embedded is None else match_columns(*embedded)


def _rotated(a: Weights, b: Weights) -> list[float]:
    """Return the shares of neurons that gate and up pair alike under a rotation fitted on other layers."""
    pairs = choose_pairs(a, b)
    cut = (len(pairs) + 1) // 2
    # both ways round, fitting on what the other tests: twice as many values
    halves = [(pairs[:cut], pairs[cut:]), (pairs[cut:], pairs[:cut])]
    return [
        found.share
        for fitted, tested in halves
        for found in held_out(a, b, tested, fit(a, b, fitted, seed=0).rotation.R, seed=0, draws=1)
    ]


def _half_rotated(a: Weights, b: Weights) -> list[float]:
    """Return the shares of neurons that gate and up pair alike under a rotation fitted on other neurons of their layer."""
    return [found.share for found in half_held_out(a, b, choose_pairs(a, b), seed=0, draws=1)]


def _agreements(a: Probe, b: Probe, columns: ColumnMatch | None = None) -> list[float]:
    """Return the share of neurons that gate and up pair alike, for every pair of layers read."""
    values = []
    for one, two in product(_gates_and_ups(a), _gates_and_ups(b)):
        try:
            gate_a, up_a, gate_b, up_b = moved([sample.values for sample in (*one, *two)], columns)
            by_gate, by_up = match_rows(gate_a, gate_b), match_rows(up_a, up_b)
        except DegenerateInput:
            continue
        agreement = int(np.count_nonzero((by_gate == by_up) & (by_gate >= 0)))
        values.append(agreement / min(len(one[0].stored), len(two[0].stored)))
    return values


def _gates_and_ups(probe: Probe) -> list[tuple[Sample, Sample]]:
    ups = probe.of(Role.MLP_UP)
    return [(gate, ups[layer]) for layer, gate in probe.of(Role.MLP_GATE).items() if layer in ups]
