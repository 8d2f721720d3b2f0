"""Match neurons one by one, for MLPs that were reordered or narrowed, and test the matches beside an empirical null."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from kinprint._util.numeric import FloatArray, evenly_spaced
from kinprint._util.sizes import format_size
from kinprint.align import neuron_assignment as assignment
from kinprint.align.assignment import IN_ORDER, NONE, SUBSET, SUBSET_IN_ORDER
from kinprint.align.neuron_assignment import NeuronMatch
from kinprint.align.residual_basis import ColumnMatch
from kinprint.arch import Role
from kinprint.arch.roles import UNIT_SETS
from kinprint.errors import DegenerateInput
from kinprint.evidence.empirical_null import EmpiricalNull
from kinprint.evidence.exact_tests import RESIDUAL_ORDER
from kinprint.evidence.exchangeability import fair_signs
from kinprint.evidence.neuron_gram import MOST_NEURONS
from kinprint.evidence.probe import in_depth
from kinprint.evidence.reading import EVERYTHING, Parts, Scope
from kinprint.evidence.searched import (
    EXPERTS_REMOVED,
    EXPERTS_REORDERED,
    INTO_EXPERTS,
    REORDERED_NEURONS,
    NeuronEvidence,
)
from kinprint.formats.plan import MAX_GAP_BYTES
from kinprint.model.model import Model
from kinprint.model.reader import Want, read_together
from kinprint.results.findings import OFF, EvidenceTest
from kinprint.results.p_values import PMethod
from kinprint.stats.combine import bonferroni
from kinprint.text import Text, joined, labelled

MAX_LAYERS = 4  # looked at first; where they match, all others follow
MAX_ELEMENTS = 1 << 24  # of one matrix held in float64: 128 MB, and a few copies of it
LEAST_COLUMNS = 256
DRAWS, NULL_ROWS = 99, 128  # draws of the null, and how many neurons each of them matches
ORIGIN_ROWS = 256  # neurons of a layer by which it is asked whether training is shared
LIKE_THE_NULL = Text("unrelated models agree no more than those of the empirical null")
WHOLE = 0.9  # share of the neurons matched that stay together with those of their expert
# statistics of the empirical null: as stored, and after residual dimensions were paired by shared tokens
STATISTIC, ALIGNED_STATISTIC = "neuron_agreement", "aligned_neuron_agreement"

Side = tuple[Want, ...]  # the gates of a layer's experts, or of its MLP, and as many ups


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
    """Read whole gate and up matrices of a few layers, as many as the allowance lets, and match their neurons."""
    # Where one of them matches, and layers have `MAX_ASSIGNED` neurons at most, the others are matched too. With `columns` the
    # residual dimensions of B are first brought into A's order.
    a, b = models
    candidates = _candidates(scope.parts(a), scope.parts(b), layer_map)
    chosen = evenly_spaced(candidates, MAX_LAYERS)
    if not chosen:
        return NeuronEvidence(
            untested=labelled(REORDERED_NEURONS, Text("no layer has gate and up matrices on both sides"))
        )
    taken: list[tuple[Side, Side]] = []
    spent = 0
    for sides in chosen:
        cost = sum(model.cost(want) for model, wants in zip(models, sides, strict=True) for want in wants)
        if allowance is not None and spent + cost > allowance:
            if not taken:
                needed = Text(
                    "one layer takes {x} and {y} is left; see --budget",
                    x=format_size(cost),
                    y=format_size(max(0, allowance - spent)),
                )
                return NeuronEvidence(untested=labelled(REORDERED_NEURONS, needed))
            break
        spent += cost
        taken.append(sides)
    tests, kinds = [], Counter[str]()
    slices: dict[str, list[tuple[FloatArray, FloatArray]]] = {}
    first, rest = list(taken), [sides for sides in candidates if sides not in chosen]
    while taken:
        sides = taken.pop(0)
        matrices = moved(_read(models, sides, cut=columns is None), columns)
        draws, tries = (DRAWS, len(first)) if sides in first else (assignment.LEAST_DRAWS, len(candidates))
        test, match = _test(sides[1], matrices, null, tries, seed, draws=draws, aligned=columns is not None)
        kind = None if match is None else _kind(match, [len(side) // 2 for side in sides])
        tests.append(test)
        if kind and match is not None and sides in first:
            for name, pair in _crossed(match, matrices).items():
                slices.setdefault(name, []).append(pair)
        kinds.update([kind] if kind else [])
        if kind and not taken and rest and max(map(len, matrices)) <= assignment.MAX_ASSIGNED:
            cost = sum(model.cost(want) for model, wants in zip(models, rest[0], strict=True) for want in wants)
            if allowance is None or spent + cost <= allowance:
                spent += cost
                taken.append(rest.pop(0))
    by_layer = {test.layer: test.log10_p for test in tests if test.layer is not None and test.log10_p is not None}
    kind = kinds.most_common(1)[0][0] if kinds else None
    return NeuronEvidence(tuple(tests), by_layer, None, spent, kind=kind, slices=slices)


def _crossed(match: NeuronMatch, matrices: Sequence[FloatArray]) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Return up rows of neurons that gate rows pair, and gate rows of those that up rows pair: likeness chose neither."""
    gate_a, up_a, gate_b, up_b = matrices
    found = {}
    for name, index, one, two in (("up", match.gate_index, up_a, up_b), ("gate", match.up_index, gate_a, gate_b)):
        rows = evenly_spaced(np.flatnonzero(index >= 0).tolist(), ORIGIN_ROWS)
        found[name] = one[rows], two[index[rows]]
    return found


def _candidates(a: Parts, b: Parts, layer_map: Mapping[int, int]) -> list[tuple[Side, Side]]:
    """Return gate and up of layers of B, each after those of the layer of A that it matches."""
    found: list[tuple[Side, Side]] = []
    for layer, source in in_depth(layer_map):
        one, two = _sides(a, source), _sides(b, layer)
        same = next(((one[kind], two[kind]) for kind in one if kind in two), None)
        if same is None and one and two:  # an MLP that was split into experts, or the other way round
            same = next(iter(one.values())), next(iter(two.values()))
        if same is not None:
            found.append(same)
    return found


def _sides(parts: Parts, layer: int) -> dict[Role, Side]:
    """Return gate and up of a layer's MLP, its shared expert, and its experts (all, or the first if they are many)."""
    found: dict[Role, Side] = {}
    for mlp in UNIT_SETS:
        gates = {key[2]: part for key, part in parts.items() if key[:2] == (mlp.gate, layer)}
        chosen = sorted((e for e in gates if (mlp.up, layer, e) in parts), key=lambda e: e or 0)
        if sum(gates[e].shape[0] for e in chosen) > MOST_NEURONS:
            chosen = chosen[:1]
        if chosen:
            found[mlp.gate] = tuple(Want(role, layer, e) for role in (mlp.gate, mlp.up) for e in chosen)
    return found


def _read(models: Sequence[Model], sides: tuple[Side, Side], *, cut: bool) -> list[FloatArray]:
    """Return gate and up of A and of B, those of several experts one below the other."""
    plans = [model.plan(wants, max_gap_bytes=MAX_GAP_BYTES) for model, wants in zip(models, sides, strict=True)]
    halves = [half for side in read_together(plans) for half in (side[: len(side) // 2], side[len(side) // 2 :])]
    # a part of the columns tells rows apart as well, and the null permutes just these
    most = max(sum(len(sample.stored) for sample in half) for half in halves)
    width = max(LEAST_COLUMNS, MAX_ELEMENTS // most) if cut else None
    return [
        np.concatenate([sample.stored[:, :width].astype(np.float64) + sample.offset for sample in half])
        for half in halves
    ]


def moved(matrices: Sequence[FloatArray], columns: ColumnMatch | None) -> list[FloatArray]:
    """Bring gate and up of A and of B (in that order) to the residual dimensions they share, in A's order."""
    if columns is None:
        return list(fair_signs(*matrices))
    kept = np.flatnonzero(columns.index >= 0)
    left = [matrix[:, kept] for matrix in matrices[:2]]
    return list(fair_signs(*left, *(columns.columns_of_a(matrix)[0] for matrix in matrices[2:])))


def _test(
    wants: Side,
    matrices: Sequence[FloatArray],
    null: EmpiricalNull,
    tries: int,
    seed: int,
    *,
    draws: int,
    aligned: bool,
) -> tuple[EvidenceTest, NeuronMatch | None]:
    """Return the test of one layer, and the matches if they are beyond the empirical null."""
    scope = joined(dict.fromkeys(want.role.value for want in wants), "and")
    test = EvidenceTest("neuron_match_aligned" if aligned else "neuron_match", scope, wants[0].layer)
    largest = null.largest(ALIGNED_STATISTIC if aligned else STATISTIC)
    try:
        match = assignment.gate_up_agreement(*matrices, draws=draws, seed=seed, null_rows=NULL_ROWS, beyond=largest)
    except DegenerateInput as error:
        return replace(test, status=OFF, reason=error.reason), None
    test = replace(test, expert=wants[0].expert if len(wants) == 2 else None)
    test = agreement_test(test, match, null, largest, tries=tries, assumption=RESIDUAL_ORDER)
    return test, None if test.p_method is PMethod.INSIDE_NULL else match


def _kind(match: NeuronMatch, experts: Sequence[int]) -> str | None:
    """Return what the matches of a layer show: neurons reordered or left out, or whole experts of either side's number."""
    kind, index = assignment.recovered_map(match)
    kept = np.flatnonzero(index >= 0)
    if kind == SUBSET and kept.size > 1 and np.mean(np.diff(index[kept]) > 0) >= IN_ORDER:
        kind = SUBSET_IN_ORDER
    if kind == NONE or max(experts) == 1:
        return None if kind == NONE else kind
    sizes = index.size // experts[0], match.rows_b // experts[1]
    if min(experts) == 1 or sizes[0] != sizes[1]:
        return INTO_EXPERTS  # a dense MLP beside experts, or experts of other sizes
    table = np.zeros(experts)
    np.add.at(table, (kept // sizes[0], index[kept] // sizes[1]), 1.0)
    # the neurons of each expert of B come from one of A, and the other way round; of near-copies they may come from several
    whole = min(table.max(axis=0).sum(), table.max(axis=1).sum()) >= WHOLE * kept.size
    if experts[0] != experts[1]:
        return EXPERTS_REMOVED if whole else INTO_EXPERTS
    in_place = np.array_equal(table.argmax(axis=0), np.arange(experts[1]))
    return EXPERTS_REORDERED if whole and not in_place else kind


def agreement_test(
    test: EvidenceTest, match: NeuronMatch, null: EmpiricalNull, largest: float, *, tries: int, assumption: Text
) -> EvidenceTest:
    """Fill a test with the agreement of gate and up rows; up to the `largest` share of the empirical null p is 1."""
    # Neither the draws nor the tail know what training on like data alone can align: the empirical null does.
    inside = match.agreement / match.n <= largest
    scale = match.n / match.null_rows if match.null_rows else float(np.nan)
    detail = Text("{method}; 1 where the empirical null has as large a share", method=match.p_detail)
    return replace(
        test,
        statistic=float(match.agreement),
        null_mean=match.null_mean * scale,
        null_sd=match.null_sd * scale,
        z=match.z,
        log10_p=0.0 if inside else bonferroni(match.log10_p, tries),
        n=match.n,
        blocks=1,
        null=Text("permuted residual dimensions, {n} draws, and {null}", n=match.n_draws, null=null.title),
        p_method=PMethod.INSIDE_NULL if inside else match.p_method,
        p_detail=None if inside else detail,
        assumptions=(assumption, LIKE_THE_NULL),
    )
