"""Name the edit that made one model of the other, where the evidence shows one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kinprint._util.records import dataclass
from kinprint.align.assignment import PERMUTED, SUBSET, SUBSET_IN_ORDER
from kinprint.align.layer_alignment import BLOCKS, REPEATS, SHUFFLED, SUBSEQUENCE
from kinprint.arch import Axis
from kinprint.edits.rounding import ZERO_LEVEL
from kinprint.evidence.components import BY_PRODUCTS, HEADS_MAY_DIFFER, PART_ROLES, would_show_copy
from kinprint.evidence.facts import Facts, Identity
from kinprint.evidence.searched import EXPERTS_REMOVED, EXPERTS_REORDERED, MOVED_NEURONS
from kinprint.evidence.sign_tests import negated_units
from kinprint.evidence.words import word
from kinprint.results.findings import EditFinding, LayerAlignment, MergeFinding
from kinprint.text import Text, joined, labelled

if TYPE_CHECKING:
    from kinprint.evidence.norm_edits import NormEdit

MERGED_R2, MERGED_GAIN = 0.9, 0.9
"""A merge explains nearly all of B, and nearly all of what the best single parent leaves: a common ancestor does the first."""

LEAST_COEFFICIENT = 0.05
SURE_ERRORS = 5.0
PLACED = 0.1  # correlation below which a matrix is not compared in place: rows in another order leave 0.04
HEAVY = 0.9  # correlation of changed matrices below which retraining was heavy
SHRUNK = 0.85
"""‖B‖²/‖A‖² below which an even slope is read as averaging: a mean of unrelated weights is shorter than either (0.58 at 0.7
and 0.3), while training, and two children of one parent, keep their length."""

EVEN = 0.1  # range of the roles' slopes, as a share of their mean, within which one factor is taken to serve all

NORMS_KEPT, WEIGHTS_KEPT = 0.75, 0.8
"""Norms that correlate less than the first while A's leading directions and every matrix in place keep more than the second were
reset or replaced: training that rescales a tenth of its changes by ten (DARE) leaves matrices no nearer than norms."""

CORRELATIONS = ("norm_joint", "matrix_correlation", "token_rows")
LESS, SURE_SD = 0.5, 3.0
"""A part was replaced if it keeps less than half of what matrices in place keep, sure by three standard deviations of the null:
where a tenth of a model was mixed in, what is left of a part may not show."""

LIKE_ANOTHER = (0.5, 2.0)
"""Size of what an average adds, over what a model as large as A would add at that share: 1 for models of one make. Training that
keeps the length of A and ends at slope 0.8 adds 0.6 instead of 0.2."""

NORM_SLACK = 0.15  # relative distance of the norms' slope from that of matrices; or three standard errors, if more
NEW_ZEROS = 0.05  # share of zeros beyond A's from which weights were pruned, training making none

DIRECT = frozenset({"cast", "scaled"})
"""Edits of which one model's weights follow from the other's. All others are seen between children of a third model too: two
quantisations of one model, two adapters merged into it, a child that was deepened beside one that was trained on. Pruning is direct
where its direction is known: the one has no zeros of its own, and all that the other kept."""

KEEPING = frozenset({"identical", "cast", "scaled", "rescaled", "unknown"})
"""Edits of a matrix in place that may leave the function as it is."""

MATCHES_NEURONS = frozenset({"neuron_match", "neuron_match_aligned", "neuron_match_rotated"})
"""Tests that match neurons one by one, beside an empirical null."""

_SIGNED = {Axis.NEURON: Text("neurons"), Axis.HEAD: Text("value channels")}

_PLAIN = {
    "cast": ("cast", Text("by a change of number format")),
    "quantised": ("quantised", Text("by quantisation")),
    "pruned": ("pruned", Text("by pruning of single weights")),
    "low_rank": ("lora_merged", Text("by a low-rank update, as when a LoRA adapter is merged")),
    "noise": ("noise_added", Text("by added noise")),
    "scaled": ("scaled", Text("by a common factor")),
    "rescaled": ("rescaled", Text("by factors for rows and columns of its matrices")),
    "truncated": ("rank_truncated", Text("by cutting the rank of its matrices")),
    "merged_or_reweighted": ("merged", Text("as if averaged with another model")),
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

LEANING = -2.0  # log10 p, corrected, of a test that stands out: a part in which one does is not called replaced


@dataclass(frozen=True)
class Kind:
    """A recognised edit: its name in reports, how it continues the sentence, what shows it, and its variant if it has several."""

    # Of several edits, ``parts`` has the names one by one, and ``phrase`` and ``reasons`` are those of all. ``direct`` says
    # that one model's weights follow from the other's.
    name: str
    phrase: Text | None
    reasons: tuple[Text, ...]
    variant: str | None = None
    parts: tuple[str, ...] = ()
    direct: bool = False


def name_kind(facts: Facts) -> Kind:
    """Return all edits that show as one: named by the most specific, or by "trained_and_quantised" where those are the two."""
    if facts.broken:
        return Kind("unknown", None, (Text("the kind of edit could not be told from what was read"), *facts.broken[:2]))
    same = facts.same_function
    found: list[Kind] = [*([] if same else _merged(facts.merge)), *_rebuilt(facts), *_negated(facts), *_folded(facts)]
    if not same:
        found += _replaced(facts)
        found += () if _looks_averaged(facts.edits, facts.norms) else _norms_reset(facts)
    unchanged = _unchanged(facts.identity)
    if unchanged is not None and not found:
        phrase = Text("with no difference in what was read ({what})", what=unchanged)
        return Kind("no_difference_found", phrase, (unchanged,))
    kept = KEEPING if facts.identity.same_structure else KEEPING - {"cast"}
    found += [item for item in _weights(facts, found) if not same or item.name in kept]
    how = facts.function.same_how if same and facts.function else None
    if how is not None and not found:
        return Kind("same_function", Text("by changes after which it computes {how}", how=how), ())
    if not found:
        return Kind("unknown", None, (Text("the kind of edit could not be told from what was read"),))
    named = list({item.name: item for item in found}.values())
    names, first = tuple(item.name for item in named), named[0]
    phrase = joined([item.phrase for item in named if item.phrase], "and")
    trained = names in (("fine_tuned", "quantised"), ("continued_pretraining", "quantised"))
    return Kind(
        "trained_and_quantised" if trained else first.name,
        phrase if how is None else Text("{edits} (computing {how})", edits=phrase, how=how),
        tuple(reason for item in found for reason in item.reasons),
        first.variant,
        names,
        direct=all(item.direct or item.name in DIRECT for item in named),
    )


def _unchanged(identity: Identity) -> Text | None:
    """Say how much is known to be the same, if all that was read is."""
    if not identity.tensors or identity.identical < identity.tensors:
        return None
    x, n = identity.share_read, identity.tensors
    if identity.same_structure:
        return Text("{x:.2%} of the weights, in {n} tensors", x=x, n=n)
    return Text("{x:.2%} of the weights, in {n} tensors; tensors were added or are missing", x=x, n=n)


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
        errors = dict(zip(merge.parents, merge.standard_errors, strict=True))
        parts = merged_parts(merge)
        text = " + ".join(f"({c:.2f} ± {max(2.0 * errors[name], 0.005):.2f}) × {name}" for name, c in parts)
        phrase = Text("as a weighted merge, {sum}", sum=text)
        if merge.alternative is not None:
            phrase = Text("as a weighted merge of models given or of relatives of theirs, {sum}", sum=text)
        said = Text("B = {sum} explains {x:.1%} of B", sum=text, x=merge.r_squared)
        reasons = (said,) if merge.alternative is None else (said, merge.alternative)
        yield Kind("merged", phrase, reasons, direct=merge.alternative is None)


def _lost_layers(facts: Facts) -> str:
    """Name the layers that match none although the others are near-copies, in models of one depth: training does not do that."""
    layers = facts.alignment.layers
    near = all(item.correlation is None or item.correlation >= HEAVY for item in facts.edits)
    lost = [str(item.layer) for item in layers if not item.sources]
    seen = ("layer_map", "layers") in facts.able and facts.layers_a == facts.layers_b and facts.basis is None
    return ", ".join(lost) if facts.edits and near and seen and len(lost) < len(layers) else ""


def _map_text(alignment: LayerAlignment) -> str:
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


def _depth_change(facts: Facts) -> tuple[str | None, Text]:
    """Say whether layers repeat, or one model has more of them, where every layer of the map bears it out; else what it may be."""
    found, counts = facts.alignment, {"a": facts.layers_a, "b": facts.layers_b}
    matched = [item for item in found.layers if item.sources]
    used = [source for item in matched for source in item.sources]
    # copies of a layer are near-copies; halves of a layer, or the mean of two, match it less
    near = all((item.correlation or 0.0) >= HEAVY for item in matched)
    known = near and not (found.unread or found.unread_a)
    every = len(matched) == facts.layers_b and len(set(used)) == facts.layers_a
    if known and every and found.kind in (REPEATS, BLOCKS):
        return "repeated", Text("with layers repeated (A has {a} layers, B has {b})", **counts)
    if known and found.kind == SUBSEQUENCE and len(matched) == len(used) == min(counts.values()) < max(counts.values()):
        return "more_or_fewer", Text("by leaving out or adding layers (A has {a} layers, B has {b})", **counts)
    return None, Text("by dropping, repeating or moving layers")


_NEURONS = {
    SUBSET: (
        "width_pruned",
        Text("by removing and reordering MLP neurons"),
        Text("its MLP neurons are a subset, reordered"),
    ),
    SUBSET_IN_ORDER: (
        "width_pruned",
        Text("by removing or adding MLP neurons"),
        Text("the MLP neurons of one model are some of the other's, in their order"),
    ),
    PERMUTED: ("neurons_permuted", Text("with its MLP neurons reordered"), Text("its MLP neurons are reordered")),
    EXPERTS_REORDERED: ("experts_reordered", Text("with its experts reordered"), Text("its experts are reordered")),
    EXPERTS_REMOVED: (
        "experts_removed",
        Text("by leaving out or adding experts"),
        Text("the experts of one model are some of the other's"),
    ),
}


def _rebuilt(facts: Facts) -> Iterator[Kind]:
    """Name changes of the model's structure: experts, basis, layers, neurons."""
    upcycled = [item for item in facts.experts if item.shared and item.source is None]
    if facts.split is not None and facts.split.is_split:
        n, m = facts.split.found, facts.split.looked_for
        text = Text("{n} of {m} neurons of two experts are neurons of the dense MLP, and not the same", n=n, m=m)
        yield Kind("mlp_split", Text("by splitting its MLPs into experts"), (text,))
    elif upcycled:
        layers = len({item.layer for item in upcycled})
        text = Text("{n} experts in {m} layers come from the dense MLP", n=len(upcycled), m=layers)
        yield Kind("upcycled", Text("by turning its MLPs into experts"), (text,))
    if facts.basis is not None:
        basis = BASES[facts.basis]
        phrase = Text("with its residual dimensions {basis}", basis=basis)
        yield Kind("re_based", phrase, (Text("residual dimensions are {basis}", basis=basis),), variant=facts.basis)
    matched = [item for item in facts.alignment.layers if item.shared and item.source is not None]
    # layers that match do not stand where they stood, or some of either side are gone, or stand for several of the other's
    pairs = facts.alignment.matches
    moved = any(item.source != item.layer or facts.layers_a != facts.layers_b for item in matched)
    if moved or {(layer, source) for source, layer in pairs} != set(pairs):
        text = Text(
            "layers of A in the order of B: {runs} of 0–{last} ({kind})",
            runs=_map_text(facts.alignment),
            last=facts.layers_a - 1,
            kind=word(facts.alignment.kind),
        )
        sources = {item.source for item in facts.alignment.layers if item.shared}
        if facts.alignment.kind == SHUFFLED and facts.layers_a == facts.layers_b == len(sources):
            yield Kind("layers_reordered", Text("by putting its layers in another order"), (text,))
        else:
            variant, phrase = _depth_change(facts)
            yield Kind("depth_changed", phrase, (text,), variant)
    elif lost := _lost_layers(facts):
        text = Text("layers {runs} match none of the other model, and the others hardly changed", runs=lost)
        yield Kind("layers_replaced", Text("with some of its layers replaced"), (text,))
    if facts.neuron_kind in _NEURONS:
        name, phrase, reason = _NEURONS[facts.neuron_kind]
        yield Kind(name, phrase, (reason,))
    attention = facts.component("attention")
    by_products = attention is not None and attention.shared and attention.note is BY_PRODUCTS
    if facts.basis is None and attention is not None and by_products and facts.heads_moved:
        n, m = attention.shared, attention.tested
        reason = Text("attention agrees in {n} of {m} layers once its heads are summed up, and not in place", n=n, m=m)
        yield Kind("heads_reordered", Text("with its attention heads reordered or turned"), (reason,))


def _negated(facts: Facts) -> Iterator[Kind]:
    """Name neurons and value channels whose signs were changed, which is no change of what they do."""
    units = [said for axis, said in _SIGNED.items() if facts.basis is None and negated_units(facts.tests, axis)]
    if units:
        said = joined(units, "and")
        reason = Text("{units} agree up to sign", units=said)
        yield Kind("units_negated", Text("with the signs of some {units} changed", units=said), (reason,))


_REPLACED = {
    "embedding": ("vocabulary_replaced", Text("with its token embeddings replaced")),
    "norms": ("norms_replaced", Text("with its norms replaced")),
    "attention": ("attention_changed", Text("with its attention replaced, or its heads reordered")),
    "mlp": ("mlp_changed", Text("with its MLPs replaced, or changed beyond recognition")),
}
UNNUMBERED = Text(
    "with its token embeddings replaced, or its tokens renumbered"
)  # rows were paired by their numbers alone
RESET = Text("with its norms reset and trained again (or trained far more than the rest)")


def _replaced(facts: Facts) -> Iterator[Kind]:
    """Name parts that do not share at all in models that otherwise do."""
    into_experts = any(item.shared for item in facts.experts)
    for item in facts.components:
        unlike = item.tested and not item.shared and _would_show(facts, item.component)
        replaced = item.component in _REPLACED and (unlike or (item.note is HEADS_MAY_DIFFER and facts.basis is None))
        if replaced and not (item.component == "mlp" and into_experts):
            name, phrase = _REPLACED[item.component]
            by_number = item.component == "embedding" and not any(test.name == "token_rows" for test in facts.ran)
            phrase, variant = (UNNUMBERED, "or_renumbered") if by_number else (phrase, None)
            yield Kind(name, phrase, (labelled(word(item.component), word(item.state)),), variant)


def _would_show(facts: Facts, component: str) -> bool:
    """Whether a test of the part ran that reaches the threshold on a copy, and nothing else explains that it saw none."""
    if too_weak(facts, component):
        return False
    if component == "norms" and facts.norms is not None and (facts.norms.is_folded or facts.norms.agree):
        return False
    # MLPs whose neurons were reordered share nothing in place: only where that was looked for, they were replaced
    looked_for = any(test.name in MATCHES_NEURONS for test in facts.ran)
    return would_show_copy(component, facts.ran, facts.able) and (component != "mlp" or looked_for)


def too_weak(facts: Facts, component: str) -> bool:
    """Whether a part that is not shown to share may keep half as much of the other model, or more, as matrices in place do."""
    scopes = {role.value for role in PART_ROLES.get(component, ())}
    leaning = any((t.log10_p_claim or 0.0) <= LEANING for t in facts.ran if str(t.scope) in scopes)
    kept = [1.0 if item.edit == "identical" else abs(item.correlation or 0.0) for item in facts.edits]
    return leaning or _most_kept(facts, component) >= LESS * (max(kept, default=0.0) or 1.0)


def _kept_in_place(facts: Facts) -> list[float]:
    """Return what the matrices in place keep, as correlations."""
    return [abs(item.correlation) for item in facts.edits if item.correlation is not None]


def _most_kept(facts: Facts, component: str) -> float:
    """Return the largest correlation of a part that what was seen allows."""
    scopes = {role.value for role in PART_ROLES.get(component, ())}
    tests = [test for test in facts.ran if test.name in CORRELATIONS and str(test.scope) in scopes]
    return max(((t.statistic or 0.0) - (t.null_mean or 0.0) + SURE_SD * (t.null_sd or 0.0) for t in tests), default=0.0)


def _folded(facts: Facts) -> Iterator[Kind]:
    norms = facts.norms
    if norms is not None and norms.is_folded:
        n, m = norms.folded, norms.readers
        text = Text("{n} of {m} matrices are the other model's times the ratio of the norms' scales", n=n, m=m)
        yield Kind("norms_folded", Text("with its norms folded into the matrices behind them"), (text,))


def _norms_reset(facts: Facts) -> Iterator[Kind]:
    """Name norms that share, and are further from what they were than all else: of those reset, training brings a part back."""
    norms, origin = facts.component("norms"), facts.origin
    if norms is None or not norms.shared or origin is None or (facts.norms is not None and facts.norms.is_folded):
        return
    r, kept = origin.norm_correlation, min(origin.learned_slope or 0.0, *_kept_in_place(facts), 1.0)
    if r is not None and r < NORMS_KEPT and kept > WEIGHTS_KEPT:
        reason = Text("norms correlate at {x:.2f} only, while weights are kept at {y:.2f}", x=r, y=kept)
        yield Kind(_REPLACED["norms"][0], RESET, (reason,), variant="reset")


def _looks_averaged(edits: Sequence[EditFinding], norms: NormEdit | None) -> bool:
    """Whether one model is the other averaged with a third: one slope for all roles and norms, and what a model would add."""
    # No part of an average is its parent's, bit for bit. Either model may be the average.
    known = [(item.slope, item.correlation) for item in edits if item.slope and item.correlation]
    if len(known) < 3 or any(item.identical for item in edits) or (norms is not None and norms.identical):
        return False
    zeros = sum((item.zeros_b or 0.0) - (item.zeros_a or 0.0) for item in edits) / len(edits)
    # slope and relative length ‖B‖/‖A‖; what was pruned is not what an average was made of
    forward = [(slope, slope / r) for slope, r in known] if zeros > -NEW_ZEROS else []
    back = [(r * r / slope, r / slope) for slope, r in known] if zeros < NEW_ZEROS else []
    if norms is None or not norms.slope:
        return _one_factor(forward, None) or _one_factor(back, None)
    slope, r, error = norms.slope, norms.correlation or 0.0, norms.error or 0.0
    return _one_factor(forward, (slope, error)) or _one_factor(back, (r * r / slope, error * (r / slope) ** 2))


def _one_factor(known: Sequence[tuple[float, float]], norms: tuple[float, float] | None) -> bool:
    if not known:
        return False
    slopes = [slope for slope, _ in known]
    mean = sum(slopes) / len(slopes)
    length = sum(size * size for _, size in known) / len(known)
    if not (mean > 0.0 and max(slopes) - min(slopes) <= EVEN * mean and length < SHRUNK):
        return False
    added = math.sqrt(max(0.0, length - mean * mean)) / (1.0 - mean)
    if not LIKE_ANOTHER[0] < added < LIKE_ANOTHER[1]:
        return False
    return norms is None or abs(norms[0] - mean) <= max(NORM_SLACK * mean, 3.0 * norms[1])


def _weights(facts: Facts, found: Sequence[Kind]) -> Iterator[Kind]:
    """Name what was done to the numbers: what most tensors show, identical ones aside; and rounding or pruning after it."""
    names = {item.name for item in found}
    skipped = {"identical", "unknown", *(("rescaled",) if "norms_folded" in names else ())}
    edits = [item for item in _in_place(facts) if not facts.same_function or item.edit in KEEPING]
    counts: Counter[str] = Counter()
    for item in edits:
        counts[item.edit] += item.tensors
    changed = Counter({edit: count for edit, count in counts.items() if edit not in skipped})
    if not changed and names:
        return
    changed = changed or counts
    more_than_cast = Counter({edit: count for edit, count in changed.items() if edit != "cast"}) or changed
    edit = more_than_cast.most_common(1)[0][0] if changed else "unknown"
    if edit == "unknown":
        return
    shown = [item for item in edits if item.edit == edit]
    said = word(edit.replace("_", " "))
    reasons = tuple(
        Text(
            "{scope}: {edit}; in one of its tensors: {reasons}",
            scope=item.scope,
            edit=said,
            reasons=joined(item.reasons),
        )
        for item in shown[:2]
    )
    if edit == "cast" and not names and facts.function is not None and facts.function.same is False:
        edit = "identical"  # whatever else was changed was not among what was read
    moved = facts.norms is not None and facts.norms.agree is False
    if edit != "quantised" and not ("merged" in names and edit in ("changed", "merged_or_reweighted")):
        yield replace(_plain(edit, facts, shown), reasons=reasons)
        reasons = ()
    elif edit == "quantised" and moved and not names & {"norms_folded", "norms_replaced", "merged"}:
        yield Kind(*_PLAIN["changed"], (Text("norms, which rounding leaves alone, differ"),))
    bits = {item.bits for item in edits if item.bits}
    coded = sum(item.tensors for item in edits if item.bits)
    least = NEW_ZEROS if not bits else ZERO_LEVEL if min(bits) >= 4 else 1.0  # zero is one of the levels of a code
    if edit in ("changed", "merged_or_reweighted") and (zeros := _new_zeros(shown)) > least:
        yield Kind(*_PLAIN["pruned"], (Text("{x:.1%} of elements became zero", x=zeros),))
    if bits and 2 * coded > sum(changed.values()):
        yield Kind("quantised", Text("{how} to {n} bits", how=_PLAIN["quantised"][1], n=min(bits)), reasons)
    elif edit == "quantised":
        yield Kind(*_PLAIN["quantised"], reasons)


def _in_place(facts: Facts) -> list[EditFinding]:
    """Return what is known of matrices that stand in their places: where neurons were reordered, MLPs do not; others may not."""
    moved = facts.neuron_kind in MOVED_NEURONS
    if facts.basis is not None:  # of dimensions that moved, what is left in place is no measure of training
        return [item for item in facts.edits if item.edit not in ("changed", "merged_or_reweighted")]
    placed = [item for item in facts.edits if item.edit != "changed" or abs(item.correlation or 0.0) >= PLACED]
    return [item for item in placed or facts.edits if not (moved and item.scope.startswith(("mlp", "expert")))]


def _new_zeros(shown: Sequence[EditFinding]) -> float:
    both = [(x.zeros_a, x.zeros_b) for x in shown]
    known = [abs(b - a) for a, b in both if a is not None and b is not None]
    return sum(known) / len(known) if known else 0.0


def _plain(edit: str, facts: Facts, shown: Sequence[EditFinding]) -> Kind:
    """Return the kind that most tensors show, as far as all of them together bear it out."""
    name, phrase = _PLAIN.get(edit, ("unknown", None))
    averaged = _looks_averaged([item for item in facts.edits if item.edit != "identical"], facts.norms)
    heavy = 2 * sum(item.correlation is not None and item.correlation < HEAVY for item in shown) > len(shown)
    if edit in ("changed", "merged_or_reweighted") and averaged:
        name, phrase = _PLAIN["merged_or_reweighted"]
        if facts.merge is not None:  # models given do not explain B, but a relative of theirs may
            phrase = Text("as if averaged with another model, which may be a relative of one given")
    elif (edit == "changed" and heavy) or edit == "merged_or_reweighted":
        name, phrase = (
            "continued_pretraining",
            Text("by heavy further training, mixing in another model, or another large change"),
        )
    if ranks := {item.rank for item in shown if item.rank}:
        phrase = Text("{how} (rank {n})", how=phrase, n=max(ranks))
    direct = edit == "pruned" and all(item.direction for item in shown)
    return Kind(name, phrase, (), variant="some" if edit == "identical" else None, direct=direct)
