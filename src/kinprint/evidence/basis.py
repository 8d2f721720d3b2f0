"""Align reordered, negated or narrowed residual dimensions by shared tokens, or by norms, and test that on other matrices.

Where only embeddings, head or norms share, their origin is judged here too, by more rows of shared tokens.

The alignment looks at embeddings, or norms, alone. The tests that follow count neurons that stand at their places, and under the
null the order of neurons is independent of everything the alignment saw, so their p-values stay exact.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import FloatArray, evenly_spaced
from kinprint.align.residual_basis import MAX_WIDTH, ColumnMatch, embedding_rotation, match_columns
from kinprint.arch import Role
from kinprint.errors import DegenerateInput
from kinprint.evidence.assess import Assessment
from kinprint.evidence.common_start import Origin, Pairs, origin_of, origin_of_parts
from kinprint.evidence.dimension_test import norm_profiles, without_outstanding
from kinprint.evidence.exact_tests import row_test
from kinprint.evidence.layer_map import LAYER_ALPHA
from kinprint.evidence.probe import SamplePair, has_neuron_rows, is_residual_norm, norm_pairs, sample_pairs
from kinprint.evidence.searched import BasisEvidence
from kinprint.model.model import Model
from kinprint.model.reader import Sample, Want, read_together
from kinprint.refs import join_runs
from kinprint.results.findings import OFF, EvidenceTest
from kinprint.text import Text, labelled, verbatim

BASIS_TOKENS = 1024
LEAST_TOKENS = 64
NAME = "fixed_points_aligned"
TABLES = {"embedding": Role.EMBEDDING, "head": Role.HEAD}
ALIGNED = Text(
    "residual dimensions are paired by the embeddings of shared tokens; the order of neurons was not looked at"
)
BY_NORMS = Text("residual dimensions are paired by their scales in all norms; the order of neurons was not looked at")
MOST_IN_PLACE = 0.5  # share of dimensions that norms pair with their own place, beyond which they propose no order
SAME_COLUMN = 0.3  # cosine of the columns of one dimension in rows that match: independent ones of 64 rows stay below


def align_basis(
    models: tuple[Model, Model],
    assessment: Assessment,
    tokens: Sequence[tuple[int, int]] | None,
    *,
    allowance: int | None,
    seed: int,
) -> BasisEvidence:
    """Pair residual dimensions by tokens that both models have, or else by norms, then count neurons at their places."""
    match, spent = _column_match(models, tokens, allowance, seed)
    found = BasisEvidence(spent=spent)
    if isinstance(match, Text):
        found = replace(found, untested=labelled(Text("reordered or narrowed residual stream"), match))
    else:
        found = replace(_tested(assessment, match, ALIGNED), spent=spent, norms=_norms(_all_norms(assessment), match))
        found = replace(found, origin=origin_of(found.slices, found.norms))
    norms = _all_norms(assessment)
    if found.rejects(LAYER_ALPHA) or (by_norms := _profile_match(norms, seed)) is None:
        return found
    other = _tested(assessment, by_norms, BY_NORMS, signed=False)
    every = (*found.tests, *other.tests)
    if not other.rejects(LAYER_ALPHA):
        return replace(found, tests=every)
    # parts that do not stand in place were not taken over; norms were fitted: one half speaks under the order of the other
    alike = {str(test.scope) for test in other.tests if (test.log10_p or 0.0) <= LAYER_ALPHA}
    slices = {name: pairs for name, pairs in other.slices.items() if name in alike}
    orders = [_profile_match(half, seed) for half in (norms[1::2], norms[::2])]
    fair = [pair for n, order in enumerate(orders) if order is not None for pair in _norms(norms[n::2], order)]
    return replace(other, tests=every, origin=origin_of(slices, fair), spent=spent)


def _all_norms(assessment: Assessment) -> list[SamplePair]:
    pairs = [pair for pair in sample_pairs(*assessment.probes, assessment.layer_map) if is_residual_norm(pair.role)]
    widths = tuple(probe.hidden for probe in assessment.probes)
    return [pair for pair in pairs if pair.finite and (pair.a.stored.size, pair.b.stored.size) == widths]


def _profile_match(norms: Sequence[SamplePair], seed: int) -> ColumnMatch | None:
    """Pair residual dimensions by their scales in all norms; None where few vary, or dimensions stand in their places."""
    try:
        match = match_columns(*(without_outstanding(side).T for side in norm_profiles(norms)), signs=False, seed=seed)
    except (DegenerateInput, IndexError):
        return None
    # dimensions in their places are tested as such, with signs beside order: a recipe may have given places a meaning
    in_place = float(np.mean(match.index == np.arange(match.index.size)))
    return match if in_place <= MOST_IN_PLACE else None


def _norms(norms: Sequence[SamplePair], match: ColumnMatch) -> Pairs:
    kept = np.flatnonzero(match.index >= 0)
    return [(pair.a.values[kept], pair.b.values[match.index[kept]]) for pair in norms]


def _tested(assessment: Assessment, match: ColumnMatch, how: Text, *, signed: bool = True) -> BasisEvidence:
    """Count neurons, channels in a head of Mamba 2, and values of a head where signs are not known, at their places."""
    by_role: dict[Role, list[SamplePair]] = {}
    widths = tuple(probe.hidden for probe in assessment.probes)
    for pair in sample_pairs(*assessment.probes, assessment.layer_map):
        if (pair.a.stored.shape[-1], pair.b.stored.shape[-1]) != widths:
            continue  # of a stage with a width of its own
        channels = pair.role is Role.MIXER_VALUE or (pair.role is Role.ATTN_V and not signed)
        if pair.finite and (has_neuron_rows(pair.role) or channels):
            moved, kept = match.columns_of_a(pair.b.values)
            a = replace(pair.a, stored=pair.a.values[:, kept], offset=0.0)
            by_role.setdefault(pair.role, []).append(replace(pair, a=a, b=replace(pair.b, stored=moved, offset=0.0)))
    tests: list[EvidenceTest] = []
    by_layer: dict[int, float] = {}
    for role, group in by_role.items():
        free = {probe.free_rows(role, group[0].b) for probe in assessment.probes}
        rows = None if has_neuron_rows(role) or len(free) > 1 else free.pop()
        if not has_neuron_rows(role) and rows is None:
            continue
        shown = group if signed else [_sizes(pair) for pair in group]
        try:
            test = row_test(role, shown, rows)
            tests.append(replace(test, name=NAME, assumptions=(*test.assumptions, how)))
            for pair in () if role is Role.ATTN_V else shown:
                log10_p = row_test(role, [pair], rows).log10_p
                if pair.layer is not None and log10_p is not None:
                    by_layer[pair.layer] = min(by_layer.get(pair.layer, 0.0), log10_p)
        except DegenerateInput as error:
            tests.append(EvidenceTest(NAME, verbatim(role.value), status=OFF, reason=error.reason))
    # rows of all layers together: a few rows of one layer would hide what was learned behind the random edge
    slices = {role.value: [_stacked(group)] for role, group in by_role.items()}
    found = BasisEvidence(tuple(tests), by_layer, match=match, slices=slices)
    return found if signed else _with_signs(found)


def _sizes(pair: SamplePair) -> SamplePair:
    """Return absolute values, rows at one length, without means of rows and columns: no sign of a dimension changes them."""
    # What is left takes a row and a dimension: the length or the zeros of a row, which a recipe may give it by place, do not show.

    def sizes(sample: Sample) -> Sample:
        found = np.abs(sample.stored) / np.maximum(np.linalg.norm(sample.stored, axis=1, keepdims=True), 1e-300)
        found = found - found.mean(axis=0)
        return replace(sample, stored=found - found.mean(axis=1, keepdims=True))

    return replace(pair, a=sizes(pair.a), b=sizes(pair.b))


def _with_signs(found: BasisEvidence) -> BasisEvidence:
    """Return the same with the sign of each dimension, as rows that were tested have it, and the share of dimensions that agree."""
    assert found.match is not None
    best = min(found.tests, key=lambda test: test.log10_p or 0.0, default=None)
    rows = [pair for name, pairs in found.slices.items() if best is not None and name == best.scope for pair in pairs]
    if not rows:
        return found
    one, two = rows[0]
    products = np.sum(one * two, axis=0) / np.maximum(np.linalg.norm(one, axis=0) * np.linalg.norm(two, axis=0), 1e-300)
    signs = np.where(products < 0.0, -1, 1).astype(np.int8)
    sign = found.match.sign.copy()
    sign[found.match.index >= 0] = signs
    match = replace(found.match, sign=sign, share=float(np.mean(np.abs(products) > SAME_COLUMN)))
    slices = {name: [(left, right * signs) for left, right in pairs] for name, pairs in found.slices.items()}
    return replace(found, match=match, slices=slices)


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


def token_rotations(
    models: tuple[Model, Model], tokens: Sequence[tuple[int, int]] | None, allowance: int | None
) -> list[NDArray[np.float32]]:
    """Return the rotation that shared tokens suggest, as a first guess; none where too few are shared to determine one."""
    width = models[0].hidden or 0
    if not tokens or models[0].hidden != models[1].hidden or not width <= min(len(tokens), BASIS_TOKENS):
        return []
    embedded, _ = shared_embeddings(models, tokens, allowance) if len(tokens) >= LEAST_TOKENS else (None, 0)
    try:
        return [embedding_rotation(*embedded).astype(np.float32)] if embedded is not None else []
    except DegenerateInput:
        return []


def shared_embeddings(
    models: tuple[Model, Model], tokens: Sequence[tuple[int, int]], allowance: int | None, role: Role = Role.EMBEDDING
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


def part_origin(
    models: tuple[Model, Model], assessment: Assessment, tokens: Sequence[tuple[int, int]] | None, allowance: int | None
) -> tuple[Origin, int]:
    """Read more token rows of the tables that share, and return what they and the norms say, and the bytes read."""
    shared = {item.component for item in assessment.components if item.shared}
    tables, spent = {}, 0
    for name in TABLES.keys() & shared:
        left = None if allowance is None else allowance - spent
        found, cost = shared_embeddings(models, tokens or (), left, TABLES[name])
        spent += cost
        tables[name] = found
    pairs = norm_pairs(*assessment.probes, assessment.layer_map)
    norms: Pairs = [(pair.a.values, pair.b.values) for pair in pairs]
    return origin_of_parts(tables, norms if "norms" in shared else (), len(shared - TABLES.keys() - {"norms"})), spent
