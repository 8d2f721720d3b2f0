"""Neurons matched one by one: for MLPs that were reordered or narrowed, where rows no longer stand at their places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kinprint._util.numeric import FloatArray, evenly_spaced
from kinprint.align.neuron_assignment import NeuronMatch, gate_up_agreement, recovered_map
from kinprint.align.residual_basis import ColumnMatch
from kinprint.arch.roles import MLPS
from kinprint.errors import DegenerateInput
from kinprint.evidence.battery import RESIDUAL_ORDER
from kinprint.evidence.empirical_null import EmpiricalNull
from kinprint.evidence.reading import EVERYTHING, Parts, Scope
from kinprint.formats.plan import MAX_GAP_BYTES
from kinprint.model.model import Model
from kinprint.model.reader import Want, read_together
from kinprint.results.findings import OFF, EvidenceTest
from kinprint.results.p_values import PMethod
from kinprint.stats.combine import bonferroni
from kinprint.text import Text, joined, labelled

MAX_LAYERS = 4
MAX_ELEMENTS = 1 << 24  # of one matrix held in float64: 128 MB, and a few copies of it
LEAST_COLUMNS = 256
DRAWS, NULL_ROWS = 99, 128  # draws of the null, and how many neurons each of them matches
STATISTIC = "neuron_agreement"
REORDERED = Text("reordered neurons")
LIKE_THE_NULL = Text("unrelated models agree no more than those of the empirical null")
ALIGNED_STATISTIC = "aligned_neuron_agreement"  # after residual dimensions were paired by shared tokens

GateUp = tuple[Want, Want]


@dataclass(frozen=True)
class NeuronEvidence:
    """Matches by layer of B, the tests they make, the kind of reordering, and what could not be done."""

    tests: tuple[EvidenceTest, ...] = ()
    by_layer: Mapping[int, float] | None = None
    kind: str | None = None
    spent: int = 0
    untested: Text | None = None


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
    chosen = _chosen(scope.parts(a), scope.parts(b), layer_map)
    if not chosen:
        return NeuronEvidence(untested=labelled(REORDERED, Text("no layer has gate and up matrices on both sides")))
    taken: list[tuple[GateUp, GateUp]] = []
    spent = 0
    for sides in chosen:
        cost = sum(model.cost(want) for model, wants in zip(models, sides, strict=True) for want in wants)
        if allowance is not None and spent + cost > allowance:
            if not taken:
                needed = Text(
                    "one layer takes {x:.0f} MB and {y:.0f} MB are left; see --budget",
                    x=cost / 1e6,
                    y=max(0, allowance - spent) / 1e6,
                )
                return NeuronEvidence(untested=labelled(REORDERED, needed))
            break
        spent += cost
        taken.append(sides)
    tests, by_layer, kinds = [], {}, Counter[str]()
    for sides in taken:
        matrices = moved(_read(models, sides, cut=columns is None), columns)
        test, kind = _test(sides[1], matrices, _Null(null, columns), len(taken), seed)
        tests.append(test)
        if test.log10_p is not None and test.layer is not None:
            by_layer[test.layer] = test.log10_p
        if kind is not None:
            kinds[kind] += 1
    common = kinds.most_common(1)
    return NeuronEvidence(tuple(tests), by_layer, common[0][0] if common else None, spent)


def _chosen(a: Parts, b: Parts, layer_map: Mapping[int, int]) -> list[tuple[GateUp, GateUp]]:
    """Return gate and up of evenly spaced layers of B, each after those of the layer of A that it matches."""
    found: list[tuple[GateUp, GateUp]] = []
    for layer, source in sorted(layer_map.items()):
        for mlp in MLPS:
            one, two = ((Want(mlp.gate, at, mlp.expert), Want(mlp.up, at, mlp.expert)) for at in (source, layer))
            if all(want.key in parts for wants, parts in ((one, a), (two, b)) for want in wants):
                found.append((one, two))
                break
    return evenly_spaced(found, MAX_LAYERS)


def _read(models: Sequence[Model], sides: tuple[GateUp, GateUp], *, cut: bool) -> list[FloatArray]:
    plans = [model.plan(wants, max_gap_bytes=MAX_GAP_BYTES) for model, wants in zip(models, sides, strict=True)]
    samples = [sample for side in read_together(plans) for sample in side]
    # a part of the columns tells rows apart as well, and the null permutes just these
    width = max(LEAST_COLUMNS, MAX_ELEMENTS // max(len(sample.stored) for sample in samples)) if cut else None
    return [sample.stored[:, :width].astype(np.float64) + sample.offset for sample in samples]


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
    def title(self) -> Text:
        return self.null.title

    @property
    def largest(self) -> float:
        return self.null.largest(STATISTIC if self.columns is None else ALIGNED_STATISTIC)


def _test(
    wants: GateUp, matrices: Sequence[FloatArray], null: _Null, layers: int, seed: int
) -> tuple[EvidenceTest, str | None]:
    layer, scope = wants[0].layer, joined((want.role.value for want in wants), "and")
    name = "neuron_match" if null.columns is None else "neuron_match_aligned"
    try:
        match = gate_up_agreement(*matrices, draws=DRAWS, seed=seed, null_rows=NULL_ROWS, beyond=null.largest)
    except DegenerateInput as error:
        return EvidenceTest(name, scope, layer, status=OFF, reason=error.reason), None
    inside = match.agreement / match.n <= null.largest
    # neither the draws nor the tail know what training on like data alone can align: the empirical null does
    log10_p = 0.0 if inside else bonferroni(match.log10_p, layers)
    test = EvidenceTest(
        name,
        scope,
        layer,
        expert=wants[0].expert,
        statistic=float(match.agreement),
        null_mean=match.null_mean * _scale(match),
        null_sd=match.null_sd * _scale(match),
        z=match.z,
        log10_p=log10_p,
        n=match.n,
        blocks=1,
        null=Text("permuted residual dimensions, {n} draws, and {null}", n=match.n_draws, null=null.title),
        p_method=PMethod.INSIDE_NULL if inside else match.p_method,
        p_detail=None if inside else beyond_null(match),
        assumptions=(
            RESIDUAL_ORDER,
            LIKE_THE_NULL,
        ),
    )
    found = recovered_map(match)
    return test, None if inside or found.kind == "none" else found.kind


def beyond_null(match: NeuronMatch) -> Text:
    """Say how the p-value of a match was had that lies outside the empirical null."""
    return Text("{method}; 1 where the empirical null has as large a share", method=match.p_detail)


def _scale(match: NeuronMatch) -> float:
    return len(match.gate_index) / match.null_rows if match.null_rows else float(np.nan)
