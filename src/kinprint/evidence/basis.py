"""Models whose residual dimensions were reordered, negated or narrowed: aligned by shared tokens, tested on other matrices.

The alignment looks at embeddings alone. The tests that follow count neurons that stand at their places, and under the null the
order of neurons is independent of everything the alignment saw, so their p-values stay exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import FloatArray, evenly_spaced
from kinprint.align.residual_basis import MAX_WIDTH, ColumnMatch, embedding_rotation, match_columns
from kinprint.arch import Axis, Role
from kinprint.errors import DegenerateInput
from kinprint.evidence.battery import SamplePair, row_test, sample_pairs
from kinprint.evidence.common_start import Origin, origin_of
from kinprint.evidence.probe import Probe
from kinprint.evidence.reading import token_wants
from kinprint.model.model import Model
from kinprint.model.reader import Sample, read_together
from kinprint.results.findings import EvidenceTest
from kinprint.text import Text, labelled, verbatim

BASIS_TOKENS = 1024
LEAST_TOKENS = 64
ALIGNED = Text(
    "residual dimensions are paired by the embeddings of shared tokens; the order of neurons was not looked at"
)


@dataclass(frozen=True)
class BasisEvidence:
    """Tests after the alignment, log10 p of each layer of B, and how sure the alignment was of its columns."""

    tests: tuple[EvidenceTest, ...] = ()
    by_layer: Mapping[int, float] | None = None
    match: ColumnMatch | None = None
    origin: Origin | None = None
    spent: int = 0
    untested: Text | None = None


def align_basis(
    models: tuple[Model, Model],
    probes: tuple[Probe, Probe],
    layer_map: Mapping[int, int],
    tokens: Sequence[tuple[int, int]] | None,
    *,
    allowance: int | None,
    seed: int,
) -> BasisEvidence:
    """Pair residual dimensions by tokens that both models have, then count neurons at their places."""
    why = Text("reordered or narrowed residual stream")
    if not tokens or len(tokens) < LEAST_TOKENS:
        few = Text("fewer than {n} tokens are known to be in both vocabularies", n=LEAST_TOKENS)
        return BasisEvidence(untested=labelled(why, few))
    if any((probe.hidden or 0) > MAX_WIDTH for probe in probes):
        return BasisEvidence(untested=labelled(why, Text("wider than {n}, too costly to align", n=MAX_WIDTH)))
    embedded, spent = shared_embeddings(models, tokens, allowance)
    if embedded is None:
        none = Text("embeddings do not fit the budget, or a side has none")
        return BasisEvidence(spent=spent, untested=labelled(why, none))
    try:
        match = match_columns(*embedded, seed=seed)
    except DegenerateInput as error:
        return BasisEvidence(spent=spent, untested=labelled(why, error.reason))
    tests: list[EvidenceTest] = []
    by_layer: dict[int, float] = {}
    by_role: dict[Role, list[SamplePair]] = {}
    for place in sample_pairs(*probes, layer_map):
        if place.role.info.axes == (Axis.NEURON, Axis.RESIDUAL) and place.a.finite and place.b.finite:
            by_role.setdefault(place.role, []).append(_aligned(place, match))
    for role, group in by_role.items():
        try:
            tests.append(_named(row_test(role, group)))
            for place in group:
                found = row_test(role, [place])
                if place.layer is not None and found.log10_p is not None:
                    by_layer[place.layer] = min(by_layer.get(place.layer, 0.0), found.log10_p)
        except DegenerateInput as error:
            tests.append(EvidenceTest("fixed_points_aligned", verbatim(role.value), status="off", reason=error.reason))
    slices = {role.value: [(place.a.values, place.b.values) for place in group] for role, group in by_role.items()}
    norms = [_aligned_norm(place, match) for place in sample_pairs(*probes, layer_map) if _is_norm(place)]
    return BasisEvidence(tuple(tests), by_layer, match, origin_of(slices, norms), spent)


def _is_norm(place: SamplePair) -> bool:
    if place.role.info.kind != "norm" or place.role.info.axes[0] is not Axis.RESIDUAL:
        return False
    return place.a.finite and place.b.finite


def _aligned_norm(place: SamplePair, match: ColumnMatch) -> tuple[FloatArray, FloatArray]:
    kept = np.flatnonzero(match.index >= 0)
    return place.a.values[kept], place.b.values[match.index[kept]]


def _named(test: EvidenceTest) -> EvidenceTest:
    return replace(test, name="fixed_points_aligned", assumptions=(*test.assumptions, ALIGNED))


def _aligned(place: SamplePair, match: ColumnMatch) -> SamplePair:
    moved, kept = match.columns_of_a(place.b.values)
    return replace(place, a=_plain(place.a, place.a.values[:, kept]), b=_plain(place.b, moved))


def _plain(sample: Sample, values: FloatArray) -> Sample:
    return replace(sample, stored=values, offset=0.0)


def token_rotations(
    models: tuple[Model, Model], tokens: Sequence[tuple[int, int]] | None, allowance: int | None, *, seed: int
) -> list[NDArray[np.float32]]:
    """Return the rotation that shared tokens suggest, as a first guess; none where too few are shared to determine one."""
    width = models[0].hidden
    if (
        not tokens
        or width != models[1].hidden
        or len(tokens) < max(LEAST_TOKENS, width or 0)
        or (width or 0) > BASIS_TOKENS
    ):
        return []
    embedded, _ = shared_embeddings(models, tokens, allowance)
    if embedded is None:
        return []
    try:
        return [embedding_rotation(*embedded, seed=seed).R.astype(np.float32)]
    except DegenerateInput:
        return []


def shared_embeddings(
    models: tuple[Model, Model], tokens: Sequence[tuple[int, int]], allowance: int | None
) -> tuple[tuple[FloatArray, FloatArray] | None, int]:
    """Read the embeddings of up to `BASIS_TOKENS` shared tokens; None where a side has none or they do not fit."""
    parts = [model.parts.get((Role.EMBEDDING, None, None)) for model in models]
    if parts[0] is None or parts[1] is None:
        return None, 0
    usable = [pair for pair in tokens if pair[0] < parts[0].shape[0] and pair[1] < parts[1].shape[0]]
    wants = token_wants(evenly_spaced(usable, BASIS_TOKENS))
    cost = sum(model.cost(want) for model, want in zip(models, wants, strict=True))
    if not usable or (allowance is not None and cost > allowance):
        return None, 0
    plans = [model.plan([want]) for model, want in zip(models, wants, strict=True)]
    (left,), (right,) = read_together(plans)
    return (left.values, right.values) if left.finite and right.finite else None, cost
