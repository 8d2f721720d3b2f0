"""The name of the edit that made one model of the other, where the evidence shows one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kinprint.align.neuron_assignment import PERMUTED, SUBSET
from kinprint.evidence.common_start import Origin
from kinprint.evidence.words import word
from kinprint.results.findings import ComponentFinding, EditFinding, ExpertFinding, LayerAlignment, MergeFinding
from kinprint.text import Text, joined, labelled

MERGED_R2, MERGED_GAIN = 0.9, 0.9
"""A merge explains nearly all of B, and nearly all of what the best single parent leaves: a common ancestor does the first."""

LEAST_COEFFICIENT = 0.05
SURE_ERRORS = 5.0
HEAVY = 0.9  # correlation of changed matrices below which retraining was heavy
SHRUNK = 0.85
"""‖B‖²/‖A‖² below which an even slope is read as averaging: a mean of unrelated weights is shorter than either (0.58 at 0.7
and 0.3), while training, and two children of one parent, keep their length."""

EVEN = 0.1  # range of the roles' slopes, as a share of their mean, within which one factor is taken to serve all

NORMS_KEPT, WEIGHTS_KEPT = 0.75, 0.8
"""Norms that correlate less than the first while A's leading directions keep more than the second were reset or replaced."""

DIRECT = frozenset({"cast", "pruned", "scaled"})
"""Edits of which one model's weights follow from the other's. All others are seen between children of a third model too: two
quantisations of one model, two adapters merged into it, a child that was deepened beside one that was trained on."""

_PLAIN = {
    "cast": ("cast", Text("by a change of number format")),
    "quantised": ("quantised", Text("by quantisation")),
    "pruned": ("pruned", Text("by pruning of single weights")),
    "low_rank": ("lora_merged", Text("by a low-rank update, as when a LoRA adapter is merged")),
    "noise": ("noise_added", Text("by added noise")),
    "scaled": ("scaled", Text("by a common factor")),
    "merged_or_reweighted": ("merged", Text("as if averaged with another model, which was not among those given")),
    "changed": ("fine_tuned", Text("by further training")),
    "identical": ("fine_tuned", Text("with only some tensors changed")),
}


REORDERED, NEGATED, ROTATED, RESIZED = "reordered", "negated", "rotated", "resized"
BASES = {
    REORDERED: Text("reordered"),
    NEGATED: Text("negated"),
    ROTATED: Text("rotated"),
    RESIZED: Text("narrowed or widened"),
}
"""How the residual dimensions were changed where that had to be undone first."""


@dataclass(frozen=True)
class Kind:
    """A recognised edit: its name in reports, how it continues the sentence, what shows it, and its variant if it has several."""

    name: str
    phrase: Text | None
    reasons: tuple[Text, ...]
    variant: str | None = None


def name_kind(
    alignment: LayerAlignment,
    components: Sequence[ComponentFinding],
    experts: Sequence[ExpertFinding],
    edits: Sequence[EditFinding],
    merge: MergeFinding | None,
    neuron_kind: str | None,
    basis: str | None,
    origin: Origin | None,
    depths: tuple[int, int],
    unchanged: Text | None = None,
) -> Kind:
    """Return the most specific edit; the others that show become reasons.

    `unchanged` says how much was found to be the same, where nothing that was read differs.
    """
    found: list[Kind] = [
        *_merged(merge),
        *_rebuilt(alignment, experts, neuron_kind, basis, depths),
        # in another basis nothing stands in place: what does not share there was not replaced, but not looked at
        *(_replaced(components, experts=any(item.shared for item in experts)) if basis != ROTATED else ()),
        *_norms_reset(components, origin),
    ]
    if unchanged is not None and not found:
        return Kind(
            "no_difference_found", Text("with no difference in what was read ({what})", what=unchanged), (unchanged,)
        )
    found += _weights(edits)
    if not found:
        return Kind("unknown", None, (Text("the kind of edit could not be told from what was read"),))
    first = found[0]
    others = tuple(reason for item in found[1:] for reason in item.reasons)
    return replace(first, reasons=(*first.reasons, *others))


def merged_parts(merge: MergeFinding | None) -> list[tuple[str, float]]:
    """Return the parents that have a part in B, with their coefficients; none if B is not explained by them."""
    if merge is None or merge.r_squared < MERGED_R2 or merge.gain < MERGED_GAIN:
        return []
    named = zip(merge.parents, merge.coefficients, merge.standard_errors, strict=True)
    return [(name, c) for name, c, error in named if abs(c) >= max(LEAST_COEFFICIENT, SURE_ERRORS * error)]


def is_merge(merge: MergeFinding | None) -> bool:
    """Whether B is a weighted sum of two or more of the given parents."""
    return len(merged_parts(merge)) > 1


def _merged(merge: MergeFinding | None) -> Iterator[Kind]:
    if merge is not None and is_merge(merge):
        text = " + ".join(f"{coefficient:.2f} × {name}" for name, coefficient in merged_parts(merge))
        yield Kind(
            "merged",
            Text("as a weighted merge, {sum}", sum=text),
            (Text("B = {sum} explains {x:.1%} of B", sum=text, x=merge.r_squared),),
        )


def moved_layers(alignment: LayerAlignment, depths: tuple[int, int]) -> bool:
    """Whether layers that match do not stand where they stood, or some of either side are gone."""
    matched = [item for item in alignment.layers if item.shared and item.source is not None]
    if any(item.source != item.layer for item in matched):
        return True
    return bool(matched) and depths[0] != depths[1]


def map_text(alignment: LayerAlignment) -> str:
    """Write a layer map as runs: ``0–2, 1–3`` says that layers 0, 1, 2, 1, 2, 3 of A follow each other in B."""
    runs: list[list[int | None]] = []
    for item in alignment.layers:
        source = item.source if item.shared else None
        last = runs[-1][1] if runs else -2
        if runs and source is not None and last is not None and source == last + 1:
            runs[-1][1] = source
        elif not (runs and source is None and last is None):
            runs.append([source, source])
    return ", ".join("none" if low is None else f"{low}" if low == high else f"{low}–{high}" for low, high in runs)


def _rebuilt(
    alignment: LayerAlignment,
    experts: Sequence[ExpertFinding],
    neuron_kind: str | None,
    basis: str | None,
    depths: tuple[int, int],
) -> Iterator[Kind]:
    upcycled = [item for item in experts if item.shared and item.source is None]
    if upcycled:
        layers = len({item.layer for item in upcycled})
        text = Text("{n} experts in {m} layers come from the dense MLP", n=len(upcycled), m=layers)
        yield Kind("upcycled", Text("by turning its MLPs into experts"), (text,))
    if basis is not None:
        yield Kind(
            "re_based",
            Text("with its residual dimensions {basis}", basis=BASES[basis]),
            (Text("residual dimensions are {basis}", basis=BASES[basis]),),
            variant=basis,
        )
    if moved_layers(alignment, depths):
        text = Text(
            "layers of A in the order of B: {runs} of 0–{last} ({kind})",
            runs=map_text(alignment),
            last=depths[0] - 1,
            kind=word(alignment.kind),
        )
        yield Kind("depth_changed", Text("by dropping, repeating or moving layers"), (text,))
    if neuron_kind == SUBSET:
        yield Kind(
            "width_pruned",
            Text("by removing and reordering MLP neurons"),
            (Text("its MLP neurons are a subset, reordered"),),
        )
    elif neuron_kind == PERMUTED:
        yield Kind("neurons_permuted", Text("with its MLP neurons reordered"), (Text("its MLP neurons are reordered"),))


_REPLACED = {
    "embedding": ("vocabulary_replaced", Text("with its vocabulary and embeddings replaced")),
    "norms": ("norms_replaced", Text("with its norms replaced")),
    "attention": ("attention_changed", Text("with its attention replaced, or its heads reordered")),
    "mlp": ("mlp_changed", Text("with its MLPs replaced, or changed beyond recognition")),
}


def _replaced(components: Sequence[ComponentFinding], *, experts: bool) -> Iterator[Kind]:
    """Name parts that do not share at all in models that otherwise do."""
    for item in components:
        if item.component not in _REPLACED or not item.tested or item.shared:
            continue
        if item.component == "mlp" and experts:  # it went into the experts
            continue
        name, phrase = _REPLACED[item.component]
        yield Kind(name, phrase, (labelled(word(item.component), word(item.state)),))


def _norms_reset(components: Sequence[ComponentFinding], origin: Origin | None) -> Iterator[Kind]:
    """Name norms that were reset and trained again: they have found back to some of what they were."""
    norms = next((item for item in components if item.component == "norms"), None)
    if norms is None or not norms.shared or origin is None:
        return
    r, kept = origin.norm_correlation, origin.learned_slope
    if r is not None and kept is not None and r < NORMS_KEPT and kept > WEIGHTS_KEPT:
        name, phrase = _REPLACED["norms"]
        yield Kind(
            name, phrase, (Text("norms correlate at {x:.2f} only, while weights are kept at {y:.2f}", x=r, y=kept),)
        )


def _looks_averaged(edits: Sequence[EditFinding]) -> bool:
    """Whether one slope serves all roles and B is shorter than A; ‖B‖²/‖A‖² is (slope/correlation)²."""
    known = [(item.slope, item.correlation) for item in edits if item.slope is not None and item.correlation]
    if len(known) < 3:
        return False
    slopes = [slope for slope, _ in known]
    mean = sum(slopes) / len(slopes)
    spread = max(slopes) - min(slopes)
    length = sum((slope / r) ** 2 for slope, r in known) / len(known)
    return 0.0 < mean < HEAVY and spread <= EVEN * mean and length < SHRUNK


def _weights(edits: Sequence[EditFinding]) -> Iterator[Kind]:
    """Name what was done to the numbers: what most tensors show, identical ones aside."""
    counts: Counter[str] = Counter()
    for item in edits:
        counts[item.edit] += item.tensors
    changed = Counter({edit: count for edit, count in counts.items() if edit not in ("identical", "unknown")}) or counts
    if not changed:
        return
    edit, _ = changed.most_common(1)[0]
    if edit == "unknown":
        return
    name, phrase = _PLAIN.get(edit, ("unknown", None))
    shown = [item for item in edits if item.edit == edit]
    reasons = [
        Text(
            "{scope}: {edit}, {reasons}",
            scope=item.scope,
            edit=word(item.edit.replace("_", " ")),
            reasons=joined(item.reasons),
        )
        for item in shown[:2]
    ]
    if edit == "changed":
        low = [item.correlation for item in shown if item.correlation is not None and item.correlation < HEAVY]
        if len(low) * 2 > len(shown):
            name, phrase = "continued_pretraining", Text("by heavy further training")
    averaged = _looks_averaged([item for item in edits if item.edit != "identical"])
    if edit == "merged_or_reweighted" and not averaged:
        name, phrase = "continued_pretraining", Text("by heavy further training")
    elif edit in ("changed", "noise") and averaged:
        name, phrase = _PLAIN["merged_or_reweighted"]
    bits = {item.bits for item in shown if item.bits}
    ranks = {item.rank for item in shown if item.rank}
    if bits:
        phrase = Text("{how} to {n} bits", how=phrase, n=min(bits))
    if ranks:
        phrase = Text("{how} (rank {n})", how=phrase, n=max(ranks))
    yield Kind(name, phrase, tuple(reasons), variant="some" if edit == "identical" else None)
