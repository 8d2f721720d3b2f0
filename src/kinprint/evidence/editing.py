"""Describe how one model was made of the other: role by role, from larger slices; and as a merge of given parents."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import get_args

import numpy as np

from kinprint._util.arenas import give_back
from kinprint._util.cores import aside
from kinprint._util.numeric import FloatArray, evenly_spaced
from kinprint.arch import Role
from kinprint.edits.edit_names import PRUNED, Name, NamedEdit, explain_edit
from kinprint.edits.merging import MixtureSums
from kinprint.edits.pair import PairEdit, describe
from kinprint.edits.quantisation_grids import find_grid
from kinprint.edits.rounding import is_float, steps, stored_bits, used_dtype
from kinprint.edits.truncation import Truncation, truncation_of
from kinprint.errors import DegenerateInput, KinprintError
from kinprint.evidence.assess import Assessment
from kinprint.evidence.common_start import Pairs, origin_of
from kinprint.evidence.controls import read_alike
from kinprint.evidence.expert_split import find_split
from kinprint.evidence.layer_map import LAYER_ALPHA
from kinprint.evidence.norm_edits import FoldedPair, norm_edit, unfold
from kinprint.evidence.probe import LayerMap, Probe, SamplePair, in_depth, norm_pairs, pairs_by_role
from kinprint.evidence.reading import EVERYTHING, ProbeRead, Scope, fill_probes, new_probe
from kinprint.evidence.searched import SINGLE_WEIGHTS, EditEvidence
from kinprint.evidence.sign_tests import signs_undone
from kinprint.model.model import Model, open_model
from kinprint.model.reader import Sample, Want
from kinprint.refs import public
from kinprint.results.findings import BACKWARD, FORWARD, EditFinding, MergeFinding
from kinprint.results.plain_json import between_forks
from kinprint.sources.session import Session
from kinprint.text import Text, joined, labelled

EDIT_LAYERS = 3
SLICE_BYTES = 1_000_000  # of one matrix of one side: 122 rows at width 4096 in two bytes
EDIT_ROLES = (
    Role.ATTN_Q, Role.ATTN_V, Role.ATTN_O, Role.MLP_GATE, Role.MLP_UP, Role.MLP_DOWN,
    Role.EXPERT_UP, Role.EXPERT_DOWN, Role.SHARED_UP, Role.ATTN_Q_A, Role.ATTN_KV_A,
)  # fmt: skip


UNEXPLAINED = 10.0
"""Energy that a merge of the models given may leave, over that of rounding: parents are rounded, too, and sums in between."""

CODED_LEFT = 1.5
"""The same of rounding to a grid, which leaves its own energy and nothing else: measured 1.0 at four and at eight bits."""

NO_LAYER = Text("no layer could be tested for attention or MLP matrices at their places")
UNPLACED = Text("no attention or MLP matrix is known to stand at its place in both models, in one shape")
NO_ROOM = Text("the budget left no room for matrices of both models; see --budget")
UNUSABLE = Text("the matrices that were read differ in shape, or hold numbers that are not finite")


def examine_edits(
    models: tuple[Model, Model],
    assessment: Assessment,
    allowance: int | None,
    scope: Scope = EVERYTHING,
    paired: Mapping[str, Pairs] | None = None,
) -> EditEvidence:
    """Read more rows of a few matrices in layers that match, and describe what was done to them."""
    # `paired` are rows of neurons that a search has paired; they count for the origin beside rows that stand in their places.
    layer_map = assessment.layers.layer_map or assessment.layer_map
    sides = new_probe(models[0]), new_probe(models[1])
    planned = _plan(models, assessment, layer_map, scope)
    spent = fill_probes(models, sides, planned, allowance)
    give_back()
    matrices: dict[Role, list[SamplePair]] = {}
    for role, pairs in pairs_by_role(*sides, layer_map).items():
        if usable := [pair for pair in pairs if pair.a.stored.shape == pair.b.stored.shape and pair.finite]:
            matrices[role] = [signs_undone(pair, assessment.tests) for pair in usable]
    changed = norm_edit(assessment.probes, layer_map)
    folded, changed = unfold(matrices, assessment.probes, layer_map, changed)
    named = [(role.value, pairs) for role, pairs in folded.items()]
    here = 2 * len(named) // 5  # three fifths take as long as the rest and the origin
    others = aside(partial(_findings, named[here:]), *between_forks(tuple[EditFinding, ...]))
    findings = _findings(named[:here])
    norms = [(pair.a.values, pair.b.values) for pair in norm_pairs(*assessment.probes, layer_map)]
    if changed.is_folded:  # norms were taken for equal: the other side's matrices have what is left of them
        readers = [item for items in folded.values() for item in items]
        norms = [(item.factors, item.column_slopes) for item in readers if item.factors is not None]
    slices: dict[str, Iterable[tuple[FloatArray, FloatArray]]] = {
        role.value: _values(pairs) for role, pairs in folded.items()
    }
    slices |= paired or {}
    split, further = find_split(models, layer_map, None if allowance is None else allowance - spent, scope)
    unplaced = None if matrices else labelled(SINGLE_WEIGHTS, _why_none(assessment, planned, sides))
    origin = origin_of(slices, norms)
    return EditEvidence(findings + others(), origin, spent + further, unplaced, changed, split)


def _why_none(assessment: Assessment, planned: Sequence[ProbeRead], sides: tuple[Probe, Probe]) -> Text:
    """Return why there is no pair of matrices of which to say what was done to their weights."""
    if not planned:
        return UNPLACED if assessment.layers.looked_at else NO_LAYER
    return UNUSABLE if all(side.samples for side in sides) else NO_ROOM


def _values(pairs: Iterable[FoldedPair]) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Yield both sides in float64, made as they are asked for: all of them together would be the most that a comparison holds."""
    return ((item.forward.a.values, item.pair.b.values) for item in pairs)


def _plan(models: tuple[Model, Model], assessment: Assessment, layer_map: LayerMap, scope: Scope) -> list[ProbeRead]:
    """Ask for the same leading rows of a few roles, in up to three layers whose attention or MLP shares in its place."""
    reads = []
    a, b = (scope.parts(model) for model in models)
    for layer, source in evenly_spaced(in_depth(layer_map), EDIT_LAYERS, at="ends"):
        for role in EDIT_ROLES:
            tested = assessment.layers.attention if role.value.startswith("attn") else assessment.layers.mlp
            expert = 0 if role.info.scope == "expert" else None
            one, two = a.get((role, source, expert)), b.get((role, layer, expert))
            if tested.get(layer, 0.0) > LAYER_ALPHA or one is None or two is None or one.shape != two.shape:
                continue
            tensors = [model.checkpoint.tensors[part.name] for model, part in zip(models, (one, two), strict=True)]
            row_bytes = max(tensor.nbytes // max(1, tensor.shape[0]) for tensor in tensors)
            rows = min(one.shape[0], max(8, SLICE_BYTES // max(1, row_bytes)))
            run = None if rows == one.shape[0] else (0, rows)
            reads += [ProbeRead(side, "sample", Want(*part.key, run)) for side, part in enumerate((one, two))]
    return reads


BACKWARDS = Text("as if A had been made from B")
FOLDED = Text("the parent's with its norm's scales folded alike, up to rounding")
FOLLOWS = 0.999
"""Share of a child's numbers that follow from the parent's, from which it was made of these: of a model rounded to BF16 and the
same rounded to four bits, the one gives 99.5 % of the other."""
_ONE_WAY = ("quantised", "pruned", "truncated", "merged_or_reweighted")
_SPECIAL: tuple[Name, ...] = get_args(Name)
"""Names of edits, the most special first: of the two directions, the one that has more to say is taken."""


def _named(item: FoldedPair) -> tuple[PairEdit, NamedEdit, str | None] | None:
    """Describe B as made from A, and A as made from B: the edit as made from A, the name that says more, and its direction."""
    a, b = item.forward.a, item.forward.b
    a_as_child, b_as_parent = item.back.a, item.back.b
    try:
        edit = describe(a.stored, b.stored, dtype_a=a.dtype, dtype_b=b.dtype)
        if item.is_rounding:
            return edit, NamedEdit("rescaled", (FOLDED,)), None
        found = explain_edit(edit)
        if _SPECIAL.index(found.name) < _SPECIAL.index("scaled"):
            return edit, found, None
        dtypes = {"dtype_a": b_as_parent.dtype, "dtype_b": a_as_child.dtype}
        other = describe(b_as_parent.stored, a_as_child.stored, **dtypes, spectrum=False)
        cut = _cut(edit, other, b_as_parent, a_as_child)
        back = explain_edit(replace(other, low_rank=edit.low_rank, truncation=cut))
    except DegenerateInput:
        return None
    ranks = [(_SPECIAL.index(item.name), item.bits is None) for item in (found, back)]
    # what rounding leaves has no rank: an update smaller than the steps of its parent's grid is no rounding
    if ranks[1] < ranks[0] and not (found.name == "low_rank" and back.name == "quantised"):
        said = replace(back, reasons=(BACKWARDS, *back.reasons))
        return edit, said, BACKWARD if _one_way(back, other, found) else None
    return edit, found, FORWARD if _one_way(found, edit, back) else None


def _one_way(found: NamedEdit, edit: PairEdit, back: NamedEdit) -> bool:
    """Whether the child follows from this very parent: two copies of an unseen model, both changed, have no direction."""
    # The parent may be neither on a grid nor pruned itself, and the child must follow from it to the last number.
    zeros, grid = edit.sparsity, edit.grid
    marked = back.bits is not None or (zeros is not None and zeros.parent_zeros >= PRUNED)
    exact = {
        "quantised": grid is not None and (grid.rounded_share or 0.0) >= FOLLOWS,
        "pruned": zeros is not None and (zeros.survivors_equal or 0.0) >= FOLLOWS,
    }
    return found.name in _ONE_WAY and not (found.symmetric or marked) and exact.get(found.name, True)


def _cut(edit: PairEdit, other: PairEdit, parent: Sample, child: Sample) -> Truncation | None:
    """Return how the rank of the child was cut, where nothing that needs no spectrum explains the difference."""
    quantised = other.grid is not None and other.grid.is_quantised
    if (edit.low_rank is None and not quantised) or not (is_float(parent.dtype) and is_float(child.dtype)):
        return None
    return truncation_of(
        parent.stored.astype(np.float64),
        child.stored.astype(np.float64),
        dtype_a=parent.dtype,
        dtype_b=child.dtype,
        rounding=other.grid.rounding if quantised and other.grid is not None else None,
    )


def _findings(named: Sequence[tuple[str, Sequence[FoldedPair]]]) -> tuple[EditFinding, ...]:
    return tuple(_finding(scope, pairs) for scope, pairs in named)


def _finding(scope: str, pairs: Sequence[FoldedPair]) -> EditFinding:
    """Describe all slices of one role; the edit that most of them show is the role's."""
    found = [named for pair in pairs if (named := _named(pair)) is not None]
    if not found:
        return EditFinding(scope, "unknown", len(pairs), 0, None, None, None, None, None, None, None)
    common, _ = Counter(named.name for _, named, _ in found).most_common(1)[0]
    shown = [(edit, named.bits) for edit, named, _ in found if named.name == common]
    first, direction = next((named, direction) for _, named, direction in found if named.name == common)

    def mean(read: Callable[[PairEdit], float | None]) -> float | None:
        values = [value for edit, _, _ in found if (value := read(edit)) is not None]
        return float(np.mean(values)) if values else None

    ranks = {
        "low_rank": [edit.low_rank.rank for edit, _ in shown if edit.low_rank is not None],
        "truncated": [edit.truncation.rank for edit, _ in shown if edit.truncation is not None],
    }.get(common)
    bits = [n for edit, known in shown if (n := known or (_bits(edit) if common == "quantised" else None))]
    return EditFinding(
        scope=scope,
        edit=common,
        tensors=len(found),
        identical=sum(edit.identity.byte_identical for edit, _, _ in found),
        changed_share=mean(lambda edit: edit.identity.changed_share),
        mean_ulps=mean(lambda edit: edit.identity.mean_ulps),
        slope=mean(lambda edit: edit.slope.slope if edit.slope else None),
        correlation=mean(lambda edit: edit.slope.correlation if edit.slope else None),
        relative_difference=mean(lambda edit: edit.slope.relative_residual if edit.slope else None),
        zeros_a=mean(lambda edit: edit.sparsity.parent_zeros if edit.sparsity else None),
        zeros_b=mean(lambda edit: edit.sparsity.child_zeros if edit.sparsity else None),
        bits=max(bits) if 2 * len(bits) > len(shown) else None,
        rank=max(ranks) if ranks else None,
        noise=mean(lambda edit: edit.residual.level if edit.residual else None) if common == "noise" else None,
        reasons=first.reasons,
        direction=direction,
    )


def _bits(edit: PairEdit) -> int | None:
    """Return the bits of a code: those that the values show, else those that the format of either side names."""
    if edit.grid is not None and edit.grid.bits:
        return edit.grid.bits
    return stored_bits(edit.identity.dtype_child) or stored_bits(edit.identity.dtype_parent)


def merge_of(
    label: str, assessment: Assessment, parents: Sequence[str], session: Session, allowance: int | None
) -> MergeFinding:
    """Explain B as a weighted sum of A and the given parents, over every slice that all of them have in one shape."""
    # Layers that were moved are held against the layer they come from: parents have theirs where A has its own.
    (a, b), layer_map = assessment.probes, assessment.layer_map
    try:
        every = [a, *(read_alike(open_model(reference, session), a, allowance) for reference in parents)]
    except KinprintError as error:
        raise DegenerateInput("a parent could not be read: {why}", why=error.reason) from error
    names = [label, *map(public, parents)]
    # a model that was given twice, or is A itself, has no share of its own
    kept = [n for n, probe in enumerate(every) if not any(_same_model(probe, other) for other in every[:n])]
    every, names = [every[n] for n in kept], [names[n] for n in kept]
    if len(every) == 1:
        raise DegenerateInput("the models given are A itself")
    sums, alone = MixtureSums(len(every)), [MixtureSums(1) for _ in every]
    rounding, coded = 0.0, 0.0
    for (role, layer, expert), child in b.samples.items():
        source = None if layer is None else layer_map.get(layer)
        if role.info.kind != "matrix" or not child.finite or (layer is not None and source is None):
            continue
        found = [probe.samples.get((role, source, expert)) for probe in every]
        slices = [item.values for item in found if item is not None and item.finite]
        if len(slices) == len(found) and all(item.shape == child.stored.shape for item in slices):
            sums.add(slices, child.values, group=role.value)
            rounding += _rounding(child)
            coded += _coding(child, slices[0])
            for single, item in zip(alone, slices, strict=True):
                single.add([item], child.values)
    mixture = sums.solve(rounding)
    best = max(single.solve().r_squared for single in alone)
    unexplained = 1.0 - mixture.r_squared
    alternative = None
    if unexplained > (UNEXPLAINED * rounding + CODED_LEFT * coded) / sums.square:
        alternative = Text(
            "{x:.2%} of B is left, which rounding does not explain: a relative of a model given may have been the true parent, "
            "B was changed after, or stands in another order or basis; then coefficients are those of what all have in common in "
            "place",
            x=unexplained,
        )
    return MergeFinding(
        parents=tuple(names),
        coefficients=mixture.coefficients,
        standard_errors=mixture.standard_errors,
        r_squared=mixture.r_squared,
        gain=(mixture.r_squared - best) / (1.0 - best) if best < 1.0 else 0.0,
        elements=mixture.elements,
        note=joined(mixture.notes) if mixture.notes else None,
        alternative=alternative,
    )


def _same_model(one: Probe, other: Probe) -> bool:
    """Whether all that was read of two models is the same."""
    pairs = [(sample, other.samples.get(key)) for key, sample in one.samples.items()]
    return all(b is not None and np.array_equal(a.stored, b.stored) for a, b in pairs)


def _rounding(sample: Sample) -> float:
    """Return the energy of the error that storing a slice makes."""
    values = sample.values
    step = steps(values, used_dtype(values, sample.dtype)) if is_float(sample.dtype) else np.zeros(1)
    return float(np.mean(np.square(step))) / 12.0 * values.size


def _coding(sample: Sample, parent: FloatArray) -> float:
    """Return the energy of the error that rounding to a grid made, if the slice is on one and its parent is not."""
    if sample.values.ndim != 2 or not is_float(sample.dtype):
        return 0.0
    grid = find_grid(parent, sample.values, dtype_a="F32", dtype_b=sample.dtype)
    return grid.rounding**2 * sample.values.size if grid.is_quantised and grid.rounding else 0.0
