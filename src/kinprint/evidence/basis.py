"""Align reordered, negated or narrowed residual dimensions by shared tokens, and test the alignment on other matrices.

The alignment looks at embeddings alone. The tests that follow count neurons that stand at their places, and under the null the
order of neurons is independent of everything the alignment saw, so their p-values stay exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import FloatArray, evenly_spaced
from kinprint.align.residual_basis import MAX_WIDTH, ColumnMatch, embedding_rotation, match_columns
from kinprint.arch import Role
from kinprint.errors import DegenerateInput
from kinprint.evidence.assess import Assessment, SearchResult
from kinprint.evidence.common_start import Pairs, origin_of
from kinprint.evidence.exact_tests import row_test
from kinprint.evidence.probe import SamplePair, has_neuron_rows, is_residual_norm, sample_pairs
from kinprint.model.model import Model
from kinprint.model.reader import Want, read_together
from kinprint.refs import join_runs
from kinprint.results.findings import OFF, EvidenceTest
from kinprint.text import Text, labelled, verbatim

BASIS_TOKENS = 1024
LEAST_TOKENS = 64
NAME = "fixed_points_aligned"
ALIGNED = Text(
    "residual dimensions are paired by the embeddings of shared tokens; the order of neurons was not looked at"
)


@dataclass(frozen=True)
class BasisEvidence(SearchResult):
    """Tests after the alignment, and the map of residual dimensions that they rest on."""

    match: ColumnMatch | None = None
    norms: Pairs = ()  # of layers at the same place, in A's order


def align_basis(
    models: tuple[Model, Model],
    assessment: Assessment,
    tokens: Sequence[tuple[int, int]] | None,
    *,
    allowance: int | None,
    seed: int,
) -> BasisEvidence:
    """Pair residual dimensions by tokens that both models have, then count neurons at their places."""
    match, spent = _column_match(models, tokens, allowance, seed)
    if isinstance(match, Text):
        return BasisEvidence(spent=spent, untested=labelled(Text("reordered or narrowed residual stream"), match))
    by_role: dict[Role, list[SamplePair]] = {}
    norms = []
    kept, widths = np.flatnonzero(match.index >= 0), (models[0].hidden, models[1].hidden)
    for pair in sample_pairs(*assessment.probes, assessment.layer_map):
        if has_neuron_rows(pair.role) and pair.finite:
            by_role.setdefault(pair.role, []).append(_aligned(pair, match))
        elif is_residual_norm(pair.role) and pair.finite and (pair.a.stored.size, pair.b.stored.size) == widths:
            norms.append((pair.a.values[kept], pair.b.values[match.index[kept]]))
    tests: list[EvidenceTest] = []
    by_layer: dict[int, float] = {}
    for role, group in by_role.items():
        try:
            test = row_test(role, group)
            tests.append(replace(test, name=NAME, assumptions=(*test.assumptions, ALIGNED)))
            for pair in group:
                log10_p = row_test(role, [pair]).log10_p
                if pair.layer is not None and log10_p is not None:
                    by_layer[pair.layer] = min(by_layer.get(pair.layer, 0.0), log10_p)
        except DegenerateInput as error:
            tests.append(EvidenceTest(NAME, verbatim(role.value), status=OFF, reason=error.reason))
    # rows of all layers together: a few rows of one layer would hide what was learned behind the random edge
    slices = {role.value: [_stacked(group)] for role, group in by_role.items()}
    return BasisEvidence(tuple(tests), by_layer, origin_of(slices, norms), spent, match=match, norms=norms)


def _stacked(group: Sequence[SamplePair]) -> tuple[FloatArray, FloatArray]:
    """Return the slices of all layers, one below the other, each scaled by A's spread."""
    scales = [float(np.sqrt(np.mean(pair.a.values**2))) or 1.0 for pair in group]
    one, two = ([getattr(pair, side).values / x for pair, x in zip(group, scales, strict=True)] for side in ("a", "b"))
    return np.concatenate(one), np.concatenate(two)


def _column_match(
    models: tuple[Model, Model], tokens: Sequence[tuple[int, int]] | None, allowance: int | None, seed: int
) -> tuple[ColumnMatch | Text, int]:
    """Return the map of residual dimensions, or why there is none, and the bytes read."""
    if not tokens or len(tokens) < LEAST_TOKENS:
        return Text("fewer than {n} tokens are known to be in both vocabularies", n=LEAST_TOKENS), 0
    if any((model.hidden or 0) > MAX_WIDTH for model in models):
        return Text("wider than {n}, too costly to align", n=MAX_WIDTH), 0
    embedded, spent = shared_embeddings(models, tokens, allowance)
    if embedded is None:
        return Text("embeddings do not fit the budget, or a side has none"), spent
    try:
        return match_columns(*embedded, seed=seed), spent
    except DegenerateInput as error:
        return error.reason, spent


def _aligned(pair: SamplePair, match: ColumnMatch) -> SamplePair:
    moved, kept = match.columns_of_a(pair.b.values)
    return replace(
        pair,
        a=replace(pair.a, stored=pair.a.values[:, kept], offset=0.0),
        b=replace(pair.b, stored=moved, offset=0.0),
    )


def token_rotations(
    models: tuple[Model, Model], tokens: Sequence[tuple[int, int]] | None, allowance: int | None, *, seed: int
) -> list[NDArray[np.float32]]:
    """Return the rotation that shared tokens suggest, as a first guess; none where too few are shared to determine one."""
    width = models[0].hidden or 0
    if not tokens or models[0].hidden != models[1].hidden or not width <= min(len(tokens), BASIS_TOKENS):
        return []
    embedded, _ = shared_embeddings(models, tokens, allowance) if len(tokens) >= LEAST_TOKENS else (None, 0)
    try:
        return [embedding_rotation(*embedded, seed=seed).R.astype(np.float32)] if embedded is not None else []
    except DegenerateInput:
        return []


def shared_embeddings(
    models: tuple[Model, Model],
    tokens: Sequence[tuple[int, int]],
    allowance: int | None,
    role: Role = Role.EMBEDDING,
) -> tuple[tuple[FloatArray, FloatArray] | None, int]:
    """Read the embeddings (or head rows) of up to `BASIS_TOKENS` shared tokens; None where a side has none or they do not fit."""
    parts = [model.parts.get((role, None, None)) for model in models]
    if parts[0] is None or parts[1] is None:
        return None, 0
    usable = [pair for pair in tokens if pair[0] < parts[0].shape[0] and pair[1] < parts[1].shape[0]]
    ids = [np.array(side, dtype=np.intp) for side in zip(*evenly_spaced(usable, BASIS_TOKENS), strict=True)]
    # neighbours are read as one run, and put into the order of the tokens after that
    runs = [tuple(join_runs((number, number + 1) for number in np.unique(side).tolist())) for side in ids]
    wants = [Want(role, rows=side) for side in runs]
    cost = sum(model.cost(want) for model, want in zip(models, wants, strict=False))
    if not usable or (allowance is not None and cost > allowance):
        return None, 0
    plans = [model.plan([want]) for model, want in zip(models, wants, strict=True)]
    read = [sample for (sample,) in read_together(plans)]
    left, right = (x.values[np.unique(side, return_inverse=True)[1]] for x, side in zip(read, ids, strict=True))
    return (left, right) if all(sample.finite for sample in read) else None, cost
