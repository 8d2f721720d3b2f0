"""Decide the verdict: rules tried in order on the evidence, each recorded with its inputs; the first that fires decides.

No rule looks at configs, names, dates or raw cosines. A failed control forbids any verdict. Abstaining is an answer.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from kinprint.evidence.common_start import CLOSE, INITIALISATION, TRAINING, UNCLEAR
from kinprint.evidence.components import ENDS, shows_nothing
from kinprint.evidence.edit_kinds import MATCHES_NEURONS, Kind, is_merge, name_kind
from kinprint.evidence.facts import Facts, likeness
from kinprint.evidence.untested import OWN_CONTROLS, untested
from kinprint.evidence.words import part_phrase, word
from kinprint.results import findings
from kinprint.text import Text, Value, joined, labelled, within

LOG10_ALPHA = -6.0
"""The shipped threshold: the least p-value of all tests, after Holm's correction over them, must be below this."""

MOST_LAYERS = 0.5  # share of the layers of one of the models that must match for "derived"; fewer are shared components
UNALIGNED = {"fixed_points_aligned": "fixed_points"}
"""Tests after an alignment, and the test that shows, by a planted relation, what they can see."""

TRUNK = ("attention", "mlp", "experts")
COPYING = ("identical", "cast", "scaled", "quantised", "pruned")

MOST_NEURONS = 0.5  # share of a layer's neurons paired, beyond which no matched hidden states explain it (0.13)

BY_ORDER = frozenset({"fixed_points", "fixed_points_aligned", "gram_fixed_points", "expert_map"})
"""Tests that neurons stand in one order: nothing but shared weights or a shared start gives that, matched hidden states do not."""


def decide(facts: Facts) -> findings.Verdict:
    """Return the verdict. The first rule that fires decides."""
    rules: list[findings.Rule] = []
    for rule in _rules(facts):
        rules.append(rule if rule.fired else replace(rule, outcome="go on"))
        if rule.fired:
            return _verdict(facts, rules, None)
    kind = name_kind(facts)
    otherwise = Text("Otherwise: most layers share trained weights.")
    last = findings.Rule("derived", otherwise, kind.reasons, fired=True, outcome=findings.DERIVED)
    return _verdict(facts, [*rules, last], kind)


def _rules(facts: Facts) -> Iterator[findings.Rule]:
    """Yield the rules in order, each with the class that it leads to if it fires."""
    passed = {control.name for control in facts.controls if control.status == "passed"}
    identity, strong = facts.identity, (facts.log10_p or 0.0) <= LOG10_ALPHA
    same = identity.identical == identity.tensors > 0 and identity.same_structure and identity.share_read >= 1.0
    # equal bytes are no statistic: where no tensor has a known role there is nothing to control
    missing = not {"self", "shuffled self"} <= passed and not (same and not (facts.tests or facts.components))
    yield findings.Rule(
        "controls",
        Text("Did a control fail, or could none of those asked for be run?"),
        tuple(_control(control) for control in facts.controls) or (Text("none ran"),),
        bool(_failed(facts)) or _none_ran(facts) or missing,
        findings.NOT_TESTABLE,
    )
    able = [test for test in facts.ran if _has_power(test, facts.able)]
    yield findings.Rule(
        "comparable",
        Text("Was nothing found, and is there no test that sees a strong relation (0.9) planted in these models?"),
        (
            Text("{n} tests ran", n=len(facts.ran)),
            Text("at least {n} of them see it", n=len(able)) if not (same or strong) else Text("something was found"),
        ),
        not (same or able or strong),
        findings.NOT_TESTABLE,
    )
    yield findings.Rule(
        "identical",
        Text("Are all weights known, and byte for byte the same, in files of the same structure?"),
        (
            Text("{n} of {m} tensors identical", n=identity.identical, m=identity.tensors),
            Text("{x:.2%} of all weights are known", x=identity.share_read),
            Text("same structure: {flag}", flag=Text("yes") if identity.same_structure else Text("no")),
        ),
        same,
        findings.IDENTICAL,
    )
    order = facts.log10_p_order
    yield findings.Rule(
        "structure",
        Text("Do places agree (what is zero, which units are alike, how they are sorted), and signs of weights not?"),
        (Text("least log10 p of order {p:.1f}", p=order), Text("with signs {p:.1f}", p=facts.log10_p)),
        not strong and (order or 0.0) <= LOG10_ALPHA,
        findings.NO_EVIDENCE,
    )
    yield findings.Rule(
        "independent",
        Text("Is no test below the threshold after correction?"),
        (Text("least log10 p {p:.1f}", p=facts.log10_p), Text("threshold {p:g}", p=LOG10_ALPHA)),
        not strong,
        findings.NO_EVIDENCE,
    )
    alike, bound = likeness(facts, LOG10_ALPHA)
    yield findings.Rule(
        "likeness",
        Text(
            "Do only neurons or value channels agree, no more than if those of one model had been put in the other's order?"
        ),
        (Text("correlation {x:.2f}; the best order of unrelated neurons gives up to {y:.2f}", x=alike, y=bound),),
        alike is not None and bound is not None and alike <= bound,
        findings.NO_EVIDENCE,
    )
    origin = facts.origin
    parts = _parts_reading(facts)
    # where all matrices follow from the other model's, no training came between, whatever was done to norms
    copied = bool(facts.edits) and all(item.edit in COPYING for item in facts.edits)
    yield findings.Rule(
        "trunk",
        Text(
            "Do only parts outside attention and MLP share (norms, embeddings, router, head), or layers no more than training to "
            "match hidden states can leave?"
        ),
        tuple(labelled(word(item.component), word(item.state)) for item in facts.components),
        parts is not None,
        findings.SHARES_INITIALISATION if parts == INITIALISATION else findings.SHARES_COMPONENTS,
    )
    yield findings.Rule(
        "initialisation",
        Text("Is what they share less than training would leave in common, and the like of a common random start?"),
        origin.reasons if origin else (Text("not examined"),),
        origin is not None
        and origin.reading in (INITIALISATION, UNCLEAR)
        and not (is_merge(facts.merge) or facts.same_function or copied),
        findings.SHARES_INITIALISATION,
    )
    matched, tested = _coverage(facts)
    yield findings.Rule(
        "coverage",
        Text("Do fewer than half of the layers tested match?"),
        (Text("{n} of {m} layers tested match", n=matched, m=tested),),
        matched < MOST_LAYERS * tested and not facts.same_function,
        findings.SHARES_COMPONENTS,
    )


def _parts_reading(facts: Facts) -> str | None:
    """Return where the agreement comes from if it is of parts outside the layers; None if it is of the layers."""
    # Where hidden states were matched, mean rows, products over heads and neurons paired one by one agree a little (measured: 13 %
    # of the neurons of one layer in four, 0.07 of their weights): the same functions were learned in the same basis. Layers that
    # show no order count where most neurons are paired, or what was paired is trained alike.
    origin = facts.origin
    if facts.same_function:
        return None
    if not any(item.shared for item in _trunk(facts)):
        norms, reading = facts.component("norms"), origin.reading if origin is not None else TRAINING
        # norms start as constants: no start gives them anything in common
        return UNCLEAR if reading == INITIALISATION and norms is not None and norms.shared else reading
    in_order = any((test.log10_p_claim or 0.0) <= LOG10_ALPHA and test.name in BY_ORDER for test in facts.tests)
    paired = any(t.name in MATCHES_NEURONS and (t.statistic or 0.0) >= MOST_NEURONS * t.n > 0 for t in facts.ran)
    alike = paired or (origin is not None and origin.reading == TRAINING and (origin.level or 0.0) >= CLOSE)
    if in_order or alike or origin is None or is_merge(facts.merge):
        return None
    # matched hidden states bring one residual basis with them: where its ends and norms do not agree, weights or a start do
    ends = [facts.component(name) for name in (*ENDS, "norms")]
    other_basis = all(map(shows_nothing, ends))
    return None if other_basis and origin.reading != TRAINING else UNCLEAR


def _trunk(facts: Facts) -> list[findings.ComponentFinding]:
    return [item for item in facts.components if item.component in TRUNK]


def _failed(facts: Facts) -> list[findings.ControlFinding]:
    return [control for control in facts.controls if control.status == "failed"]


def _none_ran(facts: Facts) -> bool:
    """Whether controls were asked for, and none could be run."""
    asked = [control for control in facts.controls if control.name not in OWN_CONTROLS]
    return bool(asked) and all(control.status == "not run" for control in asked)


def _control(control: findings.ControlFinding) -> Text:
    said = labelled(word(control.name), word(control.status))
    return said if control.reason is None else Text("{control} ({reason})", control=said, reason=control.reason)


def _why_not_testable(facts: Facts, rule: str) -> Text:
    """Tell a control that failed, which speaks against the instrument, from one that could not be run."""
    if rule == "comparable":
        return joined(_reasons_off(facts) or [Text("no test that could be run would have seen a strong relation")])
    if failed := _failed(facts):
        return Text("{name} did not give the answer known beforehand", name=word(failed[0].name))
    none_ran = _none_ran(facts)
    if not (none_ran or facts.tests or facts.components):
        return Text("the models have no tensor in common whose role is known")
    if not none_ran and not any(test.status == findings.TESTED for test in facts.tests):
        return _because(Text("nothing could be compared"), _reasons_off(facts))
    own = Text("the built-in controls could not be run")
    which = Text("the controls asked for could not be run") if none_ran else own
    asked = [c for c in facts.controls if (c.name in OWN_CONTROLS) != none_ran]
    return _because(which, [c.reason for c in asked if c.status != "passed" and c.reason][:1])


def _reasons_off(facts: Facts) -> list[Text]:
    """Return why tests are off, each reason once, as many as fit a sentence."""
    return within(dict.fromkeys(test.reason for test in facts.tests if test.reason), 400)


def _because(said: Text, reasons: Sequence[Text]) -> Text:
    return labelled(said, joined(reasons)) if reasons else said


def _has_power(test: findings.EvidenceTest, able: frozenset[tuple[str, str]]) -> bool:
    """Whether a test sees a strong relation, as planting shows; matched neurons always do if there are some."""
    if test.name in MATCHES_NEURONS or test.name == "gram_fixed_points":
        return test.n >= 16
    return (UNALIGNED.get(test.name, test.name), test.scope) in able


def _coverage(facts: Facts) -> tuple[int, int]:
    """Return how many layers match, and how many were tested: of B, of A, or of one part, whichever share is the largest."""
    found = facts.alignment.layers
    matched, used = sum(bool(item.sources) for item in found), {source for item in found for source in item.sources}
    counts = [(matched, len(found)), (len(used), facts.layers_a - len(facts.alignment.unread_a))]
    counts += [(item.shared, item.tested) for item in _trunk(facts)]
    return max(((n, m) for n, m in counts if m), key=lambda count: (count[0] / count[1], count[1]), default=(0, 1))


def _verdict(facts: Facts, rules: Sequence[findings.Rule], kind: Kind | None) -> findings.Verdict:
    class_ = rules[-1].outcome
    related = class_ not in (findings.NO_EVIDENCE, findings.NOT_TESTABLE)
    why = _why_not_testable(facts, rules[-1].name) if class_ == findings.NOT_TESTABLE else None
    tested = [test for test in facts.tests if test.status == findings.TESTED]
    return findings.Verdict(
        class_=class_,
        kind=kind.name if kind else None,
        kinds=kind.parts or (kind.name,) if kind else (),
        variant=kind.variant if kind else _variant(facts, rules[-1].name),
        sentence=_same_structure(facts, rules[-1].name) or _sentence(facts, class_, kind, why),
        log10_p=facts.log10_p,
        layer_map=_layer_map(facts) if related else None,
        reasons=_reasons(facts, class_, kind, why),
        against=_against(facts, class_),
        untested=untested(facts),
        assumptions=tuple(dict.fromkeys(text for test in tested for text in test.assumptions)),
        rules=tuple(rules),
        log10_alpha=LOG10_ALPHA,
        tests=sum(test.log10_p is not None for test in facts.tests),
        null=facts.null,
    )


def _variant(facts: Facts, rule: str) -> str | None:
    """Say what a class leaves open: places alone, the start of a part alone, or whether training or the start is shared."""
    if rule in ("structure", "likeness"):
        return findings.SAME_STRUCTURE
    if rule == "trunk":
        return {INITIALISATION: findings.PART, UNCLEAR: findings.UNCLEAR}.get(_parts_reading(facts) or "")
    unclear = rule == "initialisation" and facts.origin is not None and facts.origin.reading == UNCLEAR
    return findings.UNCLEAR if unclear else None


def _layer_map(facts: Facts) -> tuple[int | None, ...] | None:
    if not facts.alignment.layers:
        return None
    found = {item.layer: item.source for item in facts.alignment.layers if item.shared}
    return tuple(found.get(layer) for layer in range(facts.layers_b))


def _sentence(facts: Facts, class_: str, kind: Kind | None, why: Text | None) -> Text:
    if class_ == findings.IDENTICAL:
        return Text("The two models are identical: every weight is the same, byte for byte.")
    if class_ == findings.NO_EVIDENCE:
        return Text("{found} This does not prove training from scratch.", found=_weakest(facts.power))
    if class_ == findings.NOT_TESTABLE:
        return Text("Not testable: {why}.", why=why)
    p = math.ceil(facts.log10_p or 0.0)  # rounded towards zero: what is said must hold
    if class_ == findings.DERIVED:
        assert kind is not None
        return _derived(kind, p, direct=kind.direct)
    if (reading := _parts_reading(facts)) is not None:
        return _shares_parts(facts, p, reading)
    if class_ == findings.SHARES_COMPONENTS:
        return _shares(facts, p)
    if facts.origin is not None and facts.origin.reading == UNCLEAR and facts.origin.learned_slope is None:
        return Text(
            "The two models share weights or their initialisation (if they were unrelated, agreement like this would have a "
            "chance below 10^{p}); what was read shows too little training to tell which.",
            p=p,
        )
    if facts.origin is not None and facts.origin.reading == UNCLEAR:
        return Text(
            "The two models share weights or their initialisation (if they were unrelated, agreement like this would have a "
            "chance below 10^{p}); what they have in common does not tell which.",
            p=p,
        )
    return Text(
        "The two models share weights or their initialisation (if they were unrelated, agreement like this would have a chance "
        "below 10^{p}), but not what training would leave in common: most likely both started from the same random numbers.",
        p=p,
    )


def _same_structure(facts: Facts, rule: str) -> Text | None:
    if rule == "likeness":
        return Text(
            "No evidence that either model derives from the other. Neurons or value channels at the same place are alike (by "
            "chance below 10^{p}), no more than if those of one model had been put in the order of the other's, as before a "
            "merge; queries, keys and norms do not agree, as those of shared weights or a common start would.",
            p=math.ceil(facts.log10_p or 0.0),
        )
    if rule != "structure":
        return None
    return Text(
        "No evidence that either model derives from the other. The two have the same structure: what is zero, or how units are "
        "arranged, agrees (by chance below 10^{p}), as one public recipe makes it; the signs of their weights do not agree, as "
        "those of shared weights would.",
        p=math.ceil(facts.log10_p_order or 0.0),
    )


def _derived(kind: Kind, p: int, *, direct: bool) -> Text:
    said: dict[str, Value] = {"how": kind.phrase, "p": p}
    if kind.phrase is None:
        return Text(
            "One of the two models derives from the other, or both derive from a common ancestor. If they were unrelated, "
            "agreement like this would have a chance below 10^{p}.",
            p=p,
        )
    if direct:
        return Text(
            "One of the two models derives from the other {how}. If they were unrelated, agreement like this would have a "
            "chance below 10^{p}.",
            **said,
        )
    return Text(
        "One of the two models derives from the other {how}; or both derive from a common ancestor. If they were unrelated, "
        "agreement like this would have a chance below 10^{p}.",
        **said,
    )


def _shared_parts(facts: Facts) -> Text:
    scopes = dict.fromkeys(test.scope for test in facts.tests if (test.log10_p_claim or 0.0) <= LOG10_ALPHA)
    return joined([_part(item) for item in facts.components if item.shared] or scopes, "and")


def _shares(facts: Facts, p: int) -> Text:
    if any(item.tested for item in _trunk(facts)) and not facts.broken:
        return Text(
            "The two models share {parts}, and not most of their layers: if they were unrelated, agreement like this would "
            "have a chance below 10^{p}.",
            parts=_shared_parts(facts),
            p=p,
        )
    return Text(
        "The two models share {parts}, and whether their layers do was not tested: if they were unrelated, agreement like "
        "this would have a chance below 10^{p}.",
        parts=_shared_parts(facts),
        p=p,
    )


def _shares_parts(facts: Facts, p: int, reading: str) -> Text:
    """Say that parts agree, and no more of where that comes from than is known."""
    said: dict[str, Value] = {"parts": _shared_parts(facts), "p": p}
    if reading == INITIALISATION:
        return Text(
            "The two models share the initialisation of {parts} (if they were unrelated, agreement like this would have a chance "
            "below 10^{p}), and not what training would leave in common: most likely these parts started from the same random "
            "numbers. Their layers do not agree.",
            **said,
        )
    if reading == UNCLEAR:
        return Text(
            "The two models agree in {parts}: if they were unrelated, agreement like this would have a chance below 10^{p}. "
            "Weights taken over and trained further, the same random start, or training to match hidden states can leave it; what "
            "was read does not tell which.",
            **said,
        )
    if facts.origin is not None and facts.origin.exact:
        return _shares(facts, p)
    return Text("{said} Training to match hidden states can leave agreement like this, too.", said=_shares(facts, p))


def _part(item: findings.ComponentFinding) -> Text:
    part = part_phrase(item.component)
    if item.shared == item.tested:
        return part
    return Text("{part} (in {n} of {m} places)", part=part, n=item.shared, m=item.tested)


def _weakest(power: Sequence[findings.PowerFinding]) -> Text:
    """Say that nothing was found, and how weak a relation would have been seen: one figure for each quantity, at most two."""
    least: dict[Text, float] = {}
    for item in power:
        if item.least is not None:
            least[item.quantity] = min(item.least, least.get(item.quantity, item.least))
    if not least:
        return Text("No evidence that either model derives from the other.")
    (q, x), *more = least.items()
    seen: dict[str, Value] = {"q": q, "x": x}
    if not more:
        return Text(
            "No evidence that either model derives from the other; a {q} of {x:.2g} would have been seen with 95% "
            "probability, dimensions and rows being in place.",
            **seen,
        )
    seen["r"], seen["y"] = more[0]
    return Text(
        "No evidence that either model derives from the other; a {q} of {x:.2g} or a {r} of {y:.2g} would have been seen with "
        "95% probability, dimensions and rows being in place.",
        **seen,
    )


def _reasons(facts: Facts, class_: str, kind: Kind | None, why: Text | None) -> tuple[Text, ...]:
    if class_ == findings.NOT_TESTABLE:
        return (why or findings.NOTHING_SAID,)
    ran = sorted(facts.ran, key=lambda test: (test.log10_p_claim or 0.0, test.log10_p or 0.0))
    if class_ == findings.NO_EVIDENCE:
        strongest = [Text("strongest of {n} tests: {test}", n=len(ran), test=describe(ran[0]))] if ran else []
        return (*strongest, *(labelled(word(c.name), word(c.status)) for c in facts.controls))
    lines = [describe(test) for test in ran[:4]]
    if signs := [test.log10_p_signs for test in ran[:4] if test.log10_p_signs is not None]:
        said = Text(
            "signs of the same weights agree too (log10 p {p:.1f} corrected): claims about weights in place rest on both",
            p=max(signs),
        )
        lines.append(said)
    if facts.origin is not None:
        lines += facts.origin.reasons
    if facts.function is not None and facts.function.same:
        lines.append(facts.function.said)
    return (*lines, *_few_layers(facts), *(kind.reasons if kind else ()))


def _few_layers(facts: Facts) -> list[Text]:
    """Say of how many layers the claim speaks, where not all of them were tested."""
    matched, tested = _coverage(facts)
    total = min(facts.layers_a, facts.layers_b)
    if not matched or tested >= total:
        return []
    return [Text("{n} of {m} layers tested match, of {total} in all", n=matched, m=tested, total=total)]


def describe(test: findings.EvidenceTest) -> Text:
    """Say one test's result in a line."""
    mean = test.null_mean if test.null_mean is None or abs(test.null_mean) >= 1e-9 else 0.0
    found: dict[str, Value] = {"test": word(test.name), "scope": test.scope, "x": test.statistic, "m": mean}
    found |= {"z": test.z, "p": test.log10_p, "h": test.log10_p_holm}
    if test.layer is None:
        return Text(
            "{test} of {scope}: {x:.4g} against {m:.3g} expected (z {z:.1f}, log10 p {p:.1f}, {h:.1f} corrected)",
            **found,
        )
    return Text(
        "{test} of {scope} in layer {n}: {x:.4g} against {m:.3g} expected (z {z:.1f}, log10 p {p:.1f}, {h:.1f} corrected)",
        n=test.layer,
        **found,
    )


def _against(facts: Facts, class_: str) -> tuple[Text, ...]:
    lines: list[Text] = []
    if class_ in (findings.DERIVED, findings.SHARES_COMPONENTS, findings.SHARES_INITIALISATION):
        unlike = [item for item in facts.components if item.shared < item.tested]
        lines += [labelled(word(item.component), word(item.state)) for item in unlike]
        lines.append(Text("the tests are symmetric: they do not say which of the two came first"))
    if class_ == findings.NO_EVIDENCE and facts.log10_p is not None and LOG10_ALPHA < facts.log10_p <= -2.0:
        lines.append(Text("one test stands out, but not enough: log10 p {p:.1f} corrected", p=facts.log10_p))
    return tuple(lines)
