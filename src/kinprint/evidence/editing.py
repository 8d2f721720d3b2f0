"""How one model was made of the other: larger slices of a few matrices, described role by role, and merges of given parents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from kinprint._util.numeric import evenly_spaced
from kinprint.arch import Axis, Role, RoleTensor
from kinprint.edits import MixtureSums, PairEdit, describe, explain_edit
from kinprint.edits.rounding import stored_bits
from kinprint.errors import DegenerateInput, KinprintError
from kinprint.evidence.assess import Assessment
from kinprint.evidence.battery import sample_pairs
from kinprint.evidence.common_start import Origin, origin_of
from kinprint.evidence.controls import read_alike
from kinprint.evidence.layer_map import LAYER_ALPHA
from kinprint.evidence.probe import Probe
from kinprint.evidence.reading import EVERYTHING, Parts, ProbeRead, Scope, fill_probes, new_probe
from kinprint.model.model import Model, open_model
from kinprint.model.reader import Sample, Want
from kinprint.refs import public
from kinprint.results.findings import BACKWARD, FORWARD, EditFinding, MergeFinding
from kinprint.sources.session import Session
from kinprint.text import Text, joined, labelled

EDIT_LAYERS = 3
SLICE_BYTES = 1_000_000  # of one matrix of one side: 122 rows at width 4096 in two bytes
EDIT_ROLES = (
    Role.ATTN_Q, Role.ATTN_V, Role.ATTN_O, Role.MLP_GATE, Role.MLP_UP, Role.MLP_DOWN,
    Role.EXPERT_UP, Role.EXPERT_DOWN, Role.SHARED_UP, Role.ATTN_Q_A, Role.ATTN_KV_A,
)  # fmt: skip


@dataclass(frozen=True)
class EditEvidence:
    """What was found about the edit."""

    findings: tuple[EditFinding, ...] = ()
    origin: Origin | None = None
    spent: int = 0
    untested: Text | None = None


UNPLACED = labelled(Text("what was done to single weights"), Text("no matrix stands at its place in both models"))

Matrices = dict[str, list[tuple[Sample, Sample]]]


def examine_edits(
    models: tuple[Model, Model],
    probes: tuple[Probe, Probe],
    assessment: Assessment,
    allowance: int | None,
    scope: Scope = EVERYTHING,
) -> EditEvidence:
    """Read more rows of a few matrices in layers that match, and describe what was done to them."""
    a, b = probes
    layer_map = assessment.layers.layer_map or dict(assessment.layer_map)
    reads = _plan((scope.parts(models[0]), scope.parts(models[1])), models[0], layer_map, _in_place(assessment))
    sides = new_probe(models[0]), new_probe(models[1])
    spent = fill_probes(models, sides, reads, allowance)
    matrices: Matrices = {}
    for place in sample_pairs(*sides, layer_map):
        if place.a.stored.shape == place.b.stored.shape and place.a.finite and place.b.finite:
            matrices.setdefault(place.role.value, []).append((place.a, place.b))
    findings = [_finding(scope, pairs) for scope, pairs in matrices.items()]
    norms = [
        (place.a.values, place.b.values)
        for place in sample_pairs(a, b, layer_map)
        if place.role.info.kind == "norm" and place.role.info.axes[0] is Axis.RESIDUAL and _varies(place.a, place.b)
    ]
    slices = {scope: [(x.values, y.values) for x, y in pairs] for scope, pairs in matrices.items()}
    untested = None if matrices else UNPLACED
    return EditEvidence(tuple(findings), origin_of(slices, norms), spent, untested)


def _in_place(assessment: Assessment) -> dict[str, set[int]]:
    """Return the layers whose attention, and whose MLP, share without any reordering: only there can weights be compared."""
    layers = assessment.layers
    return {
        "attn": {layer for layer, p in layers.attention.items() if p <= LAYER_ALPHA},
        "mlp": {layer for layer, p in layers.mlp.items() if p <= LAYER_ALPHA},
    }


def _plan(
    parts: tuple[Parts, Parts], model: Model, layer_map: dict[int, int], in_place: dict[str, set[int]]
) -> list[ProbeRead]:
    """Ask for the same leading rows of a few roles, in up to three matching layers, on both sides."""
    reads = []
    for layer in evenly_spaced(sorted(layer_map), EDIT_LAYERS, at="ends"):
        for role in EDIT_ROLES:
            if layer not in in_place["attn" if role.value.startswith("attn") else "mlp"]:
                continue
            expert = 0 if role.info.scope == "expert" else None
            one, two = parts[0].get((role, layer_map[layer], expert)), parts[1].get((role, layer, expert))
            if one is None or two is None or one.shape != two.shape:
                continue
            rows = min(one.shape[0], max(8, SLICE_BYTES // max(1, _row_bytes(model, one))))
            run = None if rows == one.shape[0] else (0, rows)
            reads += [ProbeRead(side, "sample", Want(*part.key, run)) for side, part in enumerate((one, two))]
    return reads


def _row_bytes(model: Model, part: RoleTensor) -> int:
    tensor = model.checkpoint.tensors[part.name]
    return tensor.nbytes // max(1, tensor.shape[0])


def _varies(a: Sample, b: Sample) -> bool:
    if a.stored.shape != b.stored.shape or not (a.finite and b.finite):
        return False
    return bool(np.ptp(a.stored) > 0) and bool(np.ptp(b.stored) > 0)


BACKWARDS = Text("as if A had been made from B")
_ONE_WAY = ("quantised", "pruned", "merged_or_reweighted")
_DIRECTED = (*_ONE_WAY, "cast")  # edits that look different from the other end


@dataclass(frozen=True)
class _Named:
    """One slice's edit, with its name, the reasons for it, and its direction."""

    edit: PairEdit
    name: str
    reasons: tuple[Text, ...]
    direction: str | None


def _named(a: Sample, b: Sample) -> _Named | None:
    """Describe B as made from A, and where that shows nothing special, A as made from B."""
    try:
        edit = describe(a.stored, b.stored, dtype_a=a.dtype, dtype_b=b.dtype)
        found = explain_edit(edit)
        if found.name != "changed":
            direction = FORWARD if found.name in _ONE_WAY and not found.symmetric else None
            return _Named(edit, found.name, found.reasons, direction)
        back = explain_edit(describe(b.stored, a.stored, dtype_a=b.dtype, dtype_b=a.dtype, spectrum=False))
    except DegenerateInput:
        return None
    if back.name in _DIRECTED:
        direction = BACKWARD if back.name in _ONE_WAY and not back.symmetric else None
        return _Named(edit, back.name, (BACKWARDS, *back.reasons), direction)
    return _Named(edit, found.name, found.reasons, None)


def _finding(scope: str, pairs: Sequence[tuple[Sample, Sample]]) -> EditFinding:
    """Describe all slices of one role; the edit that most of them show is the role's."""
    found = [named for a, b in pairs if (named := _named(a, b)) is not None]
    if not found:
        return EditFinding(scope, "unknown", len(pairs), 0, None, None, None, None, None, None, None)
    common, _ = Counter(item.name for item in found).most_common(1)[0]
    shown = [item for item in found if item.name == common]

    def mean(read: Callable[[PairEdit], float | None]) -> float | None:
        values = [value for item in found if (value := read(item.edit)) is not None]
        return float(np.mean(values)) if values else None

    ranks = [item.edit.low_rank.rank for item in shown if item.edit.low_rank is not None]
    bits = [bits for item in shown if (bits := _bits(item.edit))]
    return EditFinding(
        scope=scope,
        edit=common,
        tensors=len(found),
        identical=sum(item.edit.identity.byte_identical for item in found),
        changed_share=mean(lambda edit: edit.identity.changed_share),
        mean_ulps=mean(lambda edit: edit.identity.mean_ulps),
        slope=mean(lambda edit: edit.slope.slope if edit.slope else None),
        correlation=mean(lambda edit: edit.slope.correlation if edit.slope else None),
        relative_difference=mean(lambda edit: edit.slope.relative_residual if edit.slope else None),
        zeros_a=mean(lambda edit: edit.sparsity.parent_zeros if edit.sparsity else None),
        zeros_b=mean(lambda edit: edit.sparsity.child_zeros if edit.sparsity else None),
        bits=max(bits) if bits and common == "quantised" else None,
        rank=max(ranks) if ranks and common == "low_rank" else None,
        noise=mean(lambda edit: edit.residual.level if edit.residual else None) if common == "noise" else None,
        reasons=shown[0].reasons,
        direction=shown[0].direction,
    )


def _bits(edit: PairEdit) -> int | None:
    """Return the bits of a code: those that the values show, else those that the format of either side names."""
    if edit.grid is not None and edit.grid.bits:
        return edit.grid.bits
    return stored_bits(edit.identity.dtype_child) or stored_bits(edit.identity.dtype_parent)


def merge_of(
    models: tuple[Model, Model],
    probes: tuple[Probe, Probe],
    parents: Sequence[str],
    session: Session,
    allowance: int | None,
) -> tuple[MergeFinding | None, int, Text | None]:
    """Explain B as a weighted sum of A and the given parents, over every slice that all of them have in one shape."""
    a, b = probes
    others: list[Probe] = []
    before = session.bytes_delivered
    try:
        others = [read_alike(open_model(reference, session), a, allowance) for reference in parents]
    except KinprintError as error:
        return None, session.bytes_delivered - before, Text("a parent could not be read: {why}", why=error.reason)
    sums = MixtureSums(1 + len(others))
    alone = [MixtureSums(1) for _ in range(1 + len(others))]
    for key, child in b.samples.items():
        found = [probe.samples.get(key) for probe in (a, *others)]
        if key[0].info.kind != "matrix" or not child.finite:
            continue
        slices = [item.values for item in found if item is not None and item.finite]
        if len(slices) == len(found) and all(item.shape == child.stored.shape for item in slices):
            sums.add(slices, child.values)
            for single, item in zip(alone, slices, strict=True):
                single.add([item], child.values)
    try:
        mixture = sums.solve()
        best = max(single.solve().r_squared for single in alone)
    except DegenerateInput as error:
        return None, session.bytes_delivered - before, error.reason
    labels = (models[0].label, *map(public, parents))
    note = joined(mixture.notes) if mixture.notes else None
    finding = MergeFinding(
        parents=labels,
        coefficients=mixture.coefficients,
        standard_errors=mixture.standard_errors,
        r_squared=mixture.r_squared,
        gain=(mixture.r_squared - best) / (1.0 - best) if best < 1.0 else 0.0,
        elements=mixture.elements,
        note=note,
    )
    return finding, session.bytes_delivered - before, None
