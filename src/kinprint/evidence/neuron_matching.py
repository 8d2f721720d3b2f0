"""Neurons matched one by one: for MLPs that were reordered or narrowed, where rows no longer stand at their places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kinprint.align.neuron_assignment import NeuronMatch, gate_up_agreement, recovered_map
from kinprint.align.residual_basis import ColumnMatch
from kinprint.arch import Role, RoleTensor
from kinprint.errors import DegenerateInput
from kinprint.evidence.empirical_null import EmpiricalNull
from kinprint.evidence.probe import Key
from kinprint.evidence.reading import EVERYTHING, Scope, parts_of
from kinprint.formats.checkpoint import execute_together
from kinprint.formats.plan import plan_reads
from kinprint.model.model import FloatArray, Model, RoleSlice, slice_role
from kinprint.results.findings import OFF, EvidenceTest
from kinprint.stats.combine import bonferroni

MAX_LAYERS = 4
MAX_ELEMENTS = 1 << 24  # of one matrix held in float64: 128 MB, and a few copies of it
LEAST_COLUMNS = 256
DRAWS, NULL_ROWS = 99, 128  # draws of the null, and how many neurons each of them matches
STATISTIC = "neuron_agreement"
ALIGNED_STATISTIC = "aligned_neuron_agreement"  # after residual dimensions were paired by shared tokens
_PAIRS = (
    (Role.MLP_GATE, Role.MLP_UP, None),
    (Role.SHARED_GATE, Role.SHARED_UP, None),
    (Role.EXPERT_GATE, Role.EXPERT_UP, 0),
)


@dataclass(frozen=True)
class NeuronEvidence:
    """Matches by layer of B, the tests they make, the kind of reordering, and what could not be done."""

    tests: tuple[EvidenceTest, ...] = ()
    by_layer: Mapping[int, float] | None = None
    kind: str | None = None
    spent: int = 0
    untested: str | None = None


def match_neurons(
    models: Sequence[Model],
    layer_map: Mapping[int, int],
    *,
    allowance: int | None,
    null: EmpiricalNull,
    seed: int,
    columns: ColumnMatch | None = None,
    scope: Scope = EVERYTHING,
) -> NeuronEvidence:
    """Read whole gate and up matrices of a few layers, as many as the allowance lets, and match their neurons.

    With `columns` the residual dimensions of B are first brought into A's order.
    """
    a, b = models
    parts = parts_of(a, scope), parts_of(b, scope)
    chosen = _chosen(parts, layer_map)
    if not chosen:
        return NeuronEvidence(untested="reordered neurons: no layer has gate and up matrices on both sides")
    taken: list[tuple[int, tuple[Key, ...], list[RoleSlice]]] = []
    spent = 0
    for layer, keys in chosen:
        slices = [
            slice_role(models[side], parts[side][key]) for side in (0, 1) for key in keys[2 * side : 2 * side + 2]
        ]
        cost = sum(item.stored.nbytes for item in slices)
        if allowance is not None and spent + cost > allowance:
            needed = f"one layer takes {cost / 1e6:.0f} MB and {max(0, allowance - spent) / 1e6:.0f} MB are left"
            if not taken:
                return NeuronEvidence(untested=f"reordered neurons: {needed}; see --budget")
            break
        spent += cost
        taken.append((layer, keys, slices))
    tests, by_layer, kinds = [], {}, Counter[str]()
    for layer, keys, slices in taken:
        test, kind = _test(
            layer,
            keys,
            moved(_read(models, slices, cut=columns is None), columns),
            _Null(null, columns),
            len(taken),
            seed,
        )
        tests.append(test)
        if test.log10_p is not None:
            by_layer[layer] = test.log10_p
        if kind is not None:
            kinds[kind] += 1
    common = kinds.most_common(1)
    return NeuronEvidence(tuple(tests), by_layer, common[0][0] if common else None, spent)


def _chosen(
    parts: tuple[dict[Key, RoleTensor], dict[Key, RoleTensor]], layer_map: Mapping[int, int]
) -> list[tuple[int, tuple[Key, ...]]]:
    """Return layers of B, evenly spaced, each with the keys of gate and up in A and in B."""
    found: list[tuple[int, tuple[Key, ...]]] = []
    for layer, source in sorted(layer_map.items()):
        for gate, up, expert in _PAIRS:
            keys = (gate, source, expert), (up, source, expert), (gate, layer, expert), (up, layer, expert)
            if all(key in parts[side] for side in (0, 1) for key in keys[2 * side : 2 * side + 2]):
                found.append((layer, keys))
                break
    if len(found) <= MAX_LAYERS:
        return found
    return [found[index * len(found) // MAX_LAYERS] for index in range(MAX_LAYERS)]


def _read(models: Sequence[Model], slices: Sequence[RoleSlice], *, cut: bool) -> list[FloatArray]:
    plans = [
        (model.checkpoint, plan_reads([item.stored for item in slices[2 * side : 2 * side + 2]]))
        for side, model in enumerate(models)
    ]
    raw = [array for side in execute_together(plans) for array in side]
    oriented = [item.oriented(array) for item, array in zip(slices, raw, strict=True)]
    # a part of the columns tells rows apart as well, and the null permutes just these
    width = max(LEAST_COLUMNS, MAX_ELEMENTS // max(len(array) for array in oriented)) if cut else None
    return [
        matrix[:, :width].astype(np.float64) + item.part.offset for item, matrix in zip(slices, oriented, strict=True)
    ]


def moved(matrices: Sequence[FloatArray], columns: ColumnMatch | None) -> list[FloatArray]:
    """Bring gate and up of A and of B (in that order) to the residual dimensions they share, in A's order."""
    if columns is None:
        return list(matrices)
    kept = np.flatnonzero(columns.index >= 0)
    return [
        *(matrix[:, kept] for matrix in matrices[:2]),
        *(columns.columns_of_a(matrix)[0] for matrix in matrices[2:]),
    ]


@dataclass(frozen=True)
class _Null:
    """The empirical null, and whether it is to be asked about aligned models."""

    null: EmpiricalNull
    columns: ColumnMatch | None

    @property
    def name(self) -> str:
        return self.null.name

    @property
    def largest(self) -> float:
        return self.null.largest(STATISTIC if self.columns is None else ALIGNED_STATISTIC)


def _test(
    layer: int, keys: tuple[Key, ...], matrices: Sequence[FloatArray], null: _Null, layers: int, seed: int
) -> tuple[EvidenceTest, str | None]:
    scope = f"{keys[2][0].value} and {keys[3][0].value}"
    name = "neuron_match" if null.columns is None else "neuron_match_aligned"
    try:
        match = gate_up_agreement(*matrices, draws=DRAWS, seed=seed, null_rows=NULL_ROWS, beyond=null.largest)
    except DegenerateInput as error:
        return EvidenceTest(name, scope, layer, status=OFF, reason=error.message), None
    inside = match.agreement / match.n <= null.largest
    # neither the draws nor the tail know what training on like data alone can align: the empirical null does
    log10_p = 0.0 if inside else bonferroni(match.log10_p, layers)
    test = EvidenceTest(
        name,
        scope,
        layer,
        expert=keys[2][2],
        statistic=float(match.agreement),
        null_mean=match.null_mean * _scale(match),
        null_sd=match.null_sd * _scale(match),
        z=match.z,
        log10_p=log10_p,
        n=match.n,
        blocks=1,
        null=f"permuted residual dimensions, {match.n_draws} draws, and {null.name}",
        p_method=f"{match.p_method}; 1 where the empirical null has as large a share"
        if not inside
        else "inside the empirical null",
        assumptions=(
            "residual dimensions have no order of their own",
            "unrelated models agree no more than those of the empirical null",
        ),
    )
    found = recovered_map(match)
    return test, None if inside or found.kind == "none" else found.kind


def _scale(match: NeuronMatch) -> float:
    return len(match.gate_index) / match.null_rows if match.null_rows else float(np.nan)
