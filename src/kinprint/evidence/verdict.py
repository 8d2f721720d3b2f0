"""Decide the verdict by the rules, each recorded with its inputs, and say it in sentences that claim no more than was found."""

import math
from collections.abc import Sequence
from dataclasses import replace

from kinprint.evidence.common_start import INITIALISATION, UNCLEAR
from kinprint.evidence.edit_kinds import Kind, name_kind
from kinprint.evidence.facts import Facts
from kinprint.evidence.rules import (
    LOG10_ALPHA,
    RULES,
    coverage,
    failed_controls,
    no_control_ran,
    parts_reading,
    some_experts,
    trunk,
)
from kinprint.evidence.untested import OWN_CONTROLS, untested
from kinprint.evidence.words import part_phrase, word
from kinprint.results import findings
from kinprint.text import Text, Value, joined, labelled, within


def decide(facts: Facts) -> findings.Verdict:
    """Return the verdict. The first rule that fires decides."""
    rules: list[findings.Rule] = []
    for ask in RULES:
        rule = ask(facts)
        rules.append(rule if rule.fired else replace(rule, outcome="go on"))
        if rule.fired:
            return _verdict(facts, rules, None)
    kind = name_kind(facts)
    otherwise = Text("Otherwise: most layers share trained weights.")
    last = findings.Rule("derived", otherwise, kind.reasons, fired=True, outcome=findings.DERIVED)
    return _verdict(facts, [*rules, last], kind)


def _why_not_testable(facts: Facts, rule: str) -> Text:
    """Tell a control that failed, which speaks against the instrument, from one that could not be run."""
    if rule == "comparable":
        return joined(_reasons_off(facts) or [Text("no test that could be run would have seen a strong relation")])
    if failed := failed_controls(facts):
        return Text("{name} did not give the answer known beforehand", name=word(failed[0].name))
    none_ran = no_control_ran(facts)
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
        return {INITIALISATION: findings.PART, UNCLEAR: findings.UNCLEAR}.get(parts_reading(facts) or "")
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
    if (reading := parts_reading(facts)) is not None:
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
    inside = ("mlp", "mlp output") if some_experts(facts) else ()  # what these show is of the same experts
    shared = [_part(item) for item in facts.components if item.shared and item.component not in inside]
    return joined(shared or scopes, "and")


def _shares(facts: Facts, p: int) -> Text:
    if any(item.tested for item in trunk(facts)) and not facts.broken:
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
    if some_experts(facts):
        return Text(
            "The two models agree in {parts}: if they were unrelated, agreement like this would have a chance below 10^{p}. The "
            "other experts and attention do not show it, as they would if the whole models had one start; what was read does not "
            "tell whether these experts were taken over or are alike from their start.",
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
    matched, tested = coverage(facts)
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
