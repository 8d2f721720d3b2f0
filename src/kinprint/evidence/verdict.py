"""From evidence to a position in the lattice: a short list of rules, tried in order, each recorded with its inputs.

No rule looks at configs, names, dates or raw cosines. A failed control forbids any verdict. Abstaining is an answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from kinprint.evidence.common_start import INITIALISATION, UNCLEAR, Origin
from kinprint.evidence.components import NOT_TESTED
from kinprint.evidence.edit_kinds import DIRECT, ROTATED, Kind, is_merge, name_kind
from kinprint.results.findings import (
    DERIVED,
    IDENTICAL,
    NO_EVIDENCE,
    NOT_TESTABLE,
    SHARES_COMPONENTS,
    SHARES_INITIALISATION,
    TESTED,
    ComponentFinding,
    ControlFinding,
    EditFinding,
    EvidenceTest,
    ExpertFinding,
    LayerAlignment,
    MergeFinding,
    PowerFinding,
    Rule,
    Verdict,
)

LOG10_ALPHA = -6.0
"""The shipped threshold: the least p-value of all tests, after Holm's correction over them, must be below this."""

MOST_LAYERS = 0.5
"""Share of the layers of one of the models that must match for "derived"; fewer are shared components."""

TRUNK = ("attention", "mlp", "experts")


@dataclass(frozen=True)
class Identity:
    """How much of what was read is byte for byte the same, and whether the two files could be the same at all."""

    tensors: int
    identical: int
    same_structure: bool
    share_read: float  # of all stored bytes of the smaller model


@dataclass(frozen=True)
class Facts:
    """All that the rules look at."""

    tests: Sequence[EvidenceTest]
    alignment: LayerAlignment
    components: Sequence[ComponentFinding]
    identity: Identity
    layers_a: int
    layers_b: int
    experts: Sequence[ExpertFinding] = ()
    origin: Origin | None = None
    edits: Sequence[EditFinding] = ()
    merge: MergeFinding | None = None
    controls: Sequence[ControlFinding] = ()
    power: Sequence[PowerFinding] = ()
    neuron_kind: str | None = None  # "permuted", "subset", … where neurons were matched one by one
    basis: str | None = None  # "reordered" where the residual stream had to be aligned first
    able: frozenset[tuple[str, str]] = frozenset()  # tests, by name and scope, that reach the threshold on a copy
    untested: Sequence[str] = ()
    null: str | None = None

    @property
    def log10_p(self) -> float | None:
        """The least corrected p-value of all tests that ran."""
        found = [test.log10_p_holm for test in self.tests if test.status == TESTED and test.log10_p_holm is not None]
        return min(found, default=None)

    def component(self, name: str) -> ComponentFinding | None:
        """Return one part's finding."""
        return next((item for item in self.components if item.component == name), None)


@dataclass
class _Course:
    """The rules tried so far."""

    rules: list[Rule] = field(default_factory=list)

    def ask(self, name: str, question: str, inputs: Sequence[str], *, fired: bool, outcome: str) -> bool:
        self.rules.append(Rule(name, question, tuple(inputs), fired, outcome if fired else "go on"))
        return fired


def decide(facts: Facts) -> Verdict:
    """Return the verdict. The first rule that fires decides."""
    course = _Course()
    if (verdict := _forbidden(facts, course)) is not None:
        return verdict
    kind: Kind | None = None
    strong = (facts.log10_p or 0.0) <= LOG10_ALPHA
    identity = facts.identity
    same = identity.same_structure and identity.tensors > 0 and identity.identical == identity.tensors
    if course.ask(
        "identical",
        "Are all weights known, and byte for byte the same, in files of the same structure?",
        [
            f"{identity.identical} of {identity.tensors} tensors identical",
            f"{identity.share_read:.2%} of all weights are known",
            f"same structure: {_yes(identity.same_structure)}",
        ],
        fired=same and identity.share_read >= 1.0,
        outcome=IDENTICAL,
    ):
        return _verdict(facts, course, IDENTICAL, None)
    if course.ask(
        "independent",
        "Is no test below the threshold after correction?",
        [f"least log10 p {_number(facts.log10_p)}", f"threshold {LOG10_ALPHA:g}"],
        fired=not strong,
        outcome=NO_EVIDENCE,
    ):
        return _verdict(facts, course, NO_EVIDENCE, None)
    trunk = [item for name in TRUNK if (item := facts.component(name)) is not None and item.shared]
    if course.ask(
        "trunk",
        "Do only parts outside attention and MLP share (norms, embeddings, router, head)?",
        [f"{item.component}: {item.state}" for item in facts.components],
        fired=not trunk,
        outcome=SHARES_COMPONENTS,
    ):
        return _verdict(facts, course, SHARES_COMPONENTS, None)
    origin = facts.origin
    if course.ask(
        "initialisation",
        "Is what they share less than training would leave in common, and the like of a common random start?",
        origin.reasons if origin else ("not examined",),
        fired=origin is not None and origin.reading in (INITIALISATION, UNCLEAR) and not is_merge(facts.merge),
        outcome=SHARES_INITIALISATION,
    ):
        return _verdict(facts, course, SHARES_INITIALISATION, None)
    covered = _coverage(facts)
    if course.ask(
        "coverage",
        "Do fewer than half of the layers of either model match?",
        [f"{covered:.0%} of layers match"],
        fired=covered < MOST_LAYERS,
        outcome=SHARES_COMPONENTS,
    ):
        return _verdict(facts, course, SHARES_COMPONENTS, None)
    kind = name_kind(
        facts.alignment,
        facts.components,
        facts.experts,
        facts.edits,
        facts.merge,
        facts.neuron_kind,
        facts.basis,
        origin,
        (facts.layers_a, facts.layers_b),
        _unchanged(identity),
    )
    course.ask("derived", "Otherwise: most layers share trained weights.", kind.reasons, fired=True, outcome=DERIVED)
    return _verdict(facts, course, DERIVED, kind)


def _unchanged(identity: Identity) -> str | None:
    """Say how much is known to be the same, if all that was read is."""
    if not identity.tensors or identity.identical < identity.tensors:
        return None
    structure = "" if identity.same_structure else "; tensors were added or are missing"
    return f"{identity.share_read:.2%} of the weights, in {identity.tensors} tensors{structure}"


OWN_CONTROLS = ("self", "shuffled self", "rotated self", "rotated shuffled self")
"""What runs unasked: the first two with every verdict, the others where a rotated basis was looked for."""


def _forbidden(facts: Facts, course: _Course) -> Verdict | None:
    """Abstain if a control failed or too little could be compared."""
    failed = [control for control in facts.controls if control.status == "failed"]
    asked = [control for control in facts.controls if control.name not in OWN_CONTROLS]
    none_ran = bool(asked) and all(control.status == "not run" for control in asked)
    shown = [f"{c.name}: {c.status}" + (f" ({c.reason})" if c.reason else "") for c in facts.controls] or ["none ran"]
    own = {control.name for control in facts.controls if control.status == "passed"}
    missing = not {"self", "shuffled self"} <= own
    if course.ask(
        "controls",
        "Did a control fail, or could none of those asked for be run?",
        shown,
        fired=bool(failed) or none_ran or missing,
        outcome=NOT_TESTABLE,
    ):
        return _verdict(facts, course, NOT_TESTABLE, None, _why_forbidden(facts, failed, none_ran=none_ran))
    ran = [test for test in facts.tests if test.status == TESTED and test.log10_p is not None]
    able = [test for test in ran if _could(test, facts.able)]
    identical = facts.identity.identical == facts.identity.tensors > 0
    enough = identical or bool(able) or (facts.log10_p or 0.0) <= LOG10_ALPHA
    if course.ask(
        "comparable",
        "Is there no test that could have seen even a copy?",
        [f"{len(ran)} tests ran", f"{len(able)} of them reach the threshold on a copy of A"],
        fired=not enough,
        outcome=NOT_TESTABLE,
    ):
        reasons = list(dict.fromkeys(test.reason for test in facts.tests if test.reason)) or [
            "too little is comparable"
        ]
        return _verdict(facts, course, NOT_TESTABLE, None, "; ".join(reasons)[:400])
    return None


def _why_forbidden(facts: Facts, failed: Sequence[ControlFinding], *, none_ran: bool) -> str:
    """Tell a control that failed from one that could not be run: the first speaks against the instrument."""
    if failed:
        return f"{failed[0].name} did not give the answer known beforehand"
    if not any(test.status == TESTED for test in facts.tests) and not none_ran:
        reasons = dict.fromkeys(test.reason for test in facts.tests if test.reason)
        return "nothing could be compared" + (f": {'; '.join(reasons)}"[:400] if reasons else "")
    which = "the controls asked for" if none_ran else "the built-in controls"
    asked = [c for c in facts.controls if (c.name in OWN_CONTROLS) != none_ran]
    reason = next((c.reason for c in asked if c.status != "passed" and c.reason), None)
    return f"{which} could not be run" + (f": {reason}" if reason else "")


def _could(test: EvidenceTest, able: frozenset[tuple[str, str]]) -> bool:
    """Whether a test reaches the threshold on a copy, as the self control shows; matched neurons always do if there are some."""
    if test.name.startswith(("neuron_match", "gram_")):
        return test.n >= 16
    return (test.name.removesuffix("_aligned"), test.scope) in able


def _coverage(facts: Facts) -> float:
    """Return the larger of the shares of B's layers that match and of A's layers that occur."""
    found = facts.alignment.layers
    matched = [item for item in found if item.shared and item.source is not None]
    by_layer = max(len(matched) / max(len(found), 1), len({item.source for item in matched}) / max(facts.layers_a, 1))
    parts = [c.shared / c.tested for name in TRUNK if (c := facts.component(name)) is not None and c.tested]
    return max([by_layer, *parts])


# -- words ---------------------------------------------------------------------------------------------------------------


def _verdict(facts: Facts, course: _Course, class_: str, kind: Kind | None, why: str | None = None) -> Verdict:
    related = class_ in (DERIVED, SHARES_COMPONENTS, SHARES_INITIALISATION, IDENTICAL)
    return Verdict(
        class_=class_,
        kind=kind.name if kind else None,
        sentence=_sentence(facts, class_, kind, why),
        log10_p=facts.log10_p,
        layer_map=_layer_map(facts) if related else None,
        reasons=_reasons(facts, class_, kind, why),
        against=_against(facts, class_),
        untested=tuple(dict.fromkeys([*facts.untested, *_off(facts), DISTILLATION])),
        assumptions=tuple(
            dict.fromkeys(text for test in facts.tests for text in test.assumptions if test.status == TESTED)
        ),
        rules=tuple(course.rules),
        log10_alpha=LOG10_ALPHA,
        tests=sum(test.log10_p is not None for test in facts.tests),
        null=facts.null,
    )


DISTILLATION = "distillation and training on another model's output: they leave no trace in weights"


def _layer_map(facts: Facts) -> tuple[int | None, ...] | None:
    if not facts.alignment.layers:
        return None
    found = {item.layer: item.source for item in facts.alignment.layers if item.shared}
    return tuple(found.get(layer) for layer in range(facts.layers_b))


def _sentence(facts: Facts, class_: str, kind: Kind | None, why: str | None) -> str:
    p = _odds(facts.log10_p)
    if class_ == IDENTICAL:
        return "The two models are identical: every weight is the same, byte for byte."
    if class_ == DERIVED:
        assert kind is not None
        merged = kind.name == "merged" and is_merge(facts.merge)
        ancestor = "" if kind.name in DIRECT or merged else ", or both derive from a common ancestor"
        return f"One of the two models derives from the other{kind.phrase}{ancestor}: {p}."
    if class_ == SHARES_COMPONENTS:
        scopes = [test.scope for test in facts.tests if (test.log10_p_holm or 0.0) <= LOG10_ALPHA]
        parts = _listed([_part(item) for item in facts.components if item.shared] or list(dict.fromkeys(scopes)))
        trunk = [item for name in TRUNK if (item := facts.component(name)) is not None and item.tested]
        rest = "and not most of their layers" if trunk else "and whether their layers do was not tested"
        return f"The two models share {parts}, {rest}: {p}."
    if class_ == SHARES_INITIALISATION and facts.origin is not None and facts.origin.reading == UNCLEAR:
        return f"The two models share weights or their initialisation ({p}); too little was read to tell which."
    if class_ == SHARES_INITIALISATION:
        return (
            f"The two models share weights or their initialisation ({p}), but not what training would leave in common: "
            "most likely both started from the same random numbers."
        )
    if class_ == NO_EVIDENCE:
        seen = _weakest(facts.power)
        return f"No evidence that either model derives from the other{seen}. This does not prove training from scratch."
    return f"Not testable: {why}."


def _part(item: ComponentFinding) -> str:
    return (
        item.component if item.shared == item.tested else f"{item.component} (in {item.shared} of {item.tested} places)"
    )


def _odds(log10_p: float | None) -> str:
    if log10_p is None:
        return "no test applied"
    # rounded towards zero: what is said must hold
    return f"if they were unrelated, agreement like this would have a chance below 10^{math.ceil(log10_p)}"


def _weakest(power: Sequence[PowerFinding]) -> str:
    known = [item for item in power if item.least is not None]
    if not known:
        return ""
    parts = []
    for quantity in dict.fromkeys(item.quantity for item in known):
        least = min(item.least for item in known if item.quantity == quantity and item.least is not None)
        parts.append(f"a {quantity} of {least:.2g}")
    return f"; {' or '.join(parts)} would have been seen with 95 % probability, dimensions and rows being in place"


def _reasons(facts: Facts, class_: str, kind: Kind | None, why: str | None) -> tuple[str, ...]:
    if class_ == NOT_TESTABLE:
        return (why or "",)
    ran = [test for test in facts.tests if test.status == TESTED and test.log10_p_holm is not None]
    ran.sort(key=lambda test: (test.log10_p_holm or 0.0, test.log10_p or 0.0))
    if class_ == NO_EVIDENCE:
        strongest = [f"strongest of {len(ran)} tests: {describe(ran[0])}"] if ran else []
        return (*strongest, *(f"{c.name}: {c.status}" for c in facts.controls))
    lines = [describe(test) for test in ran[:4]]
    if facts.origin is not None:
        lines += facts.origin.reasons
    return (*lines, *(kind.reasons if kind else ()))


def describe(test: EvidenceTest) -> str:
    """Say one test's result in a line."""
    where = f" in layer {test.layer}" if test.layer is not None else ""
    mean = "–" if test.null_mean is None else "0" if abs(test.null_mean) < 1e-9 else f"{test.null_mean:.3g}"
    statistic = "–" if test.statistic is None else f"{test.statistic:.4g}"
    return (
        f"{test.name} of {test.scope}{where}: {statistic} against {mean} expected"
        f" (z {_number(test.z)}, log10 p {_number(test.log10_p)}, {_number(test.log10_p_holm)} corrected)"
    )


def _against(facts: Facts, class_: str) -> tuple[str, ...]:
    lines = []
    if class_ in (DERIVED, SHARES_COMPONENTS, SHARES_INITIALISATION):
        rotated = facts.basis == ROTATED
        lines += [
            f"{item.component}: {'not in place, and not compared in the other basis' if rotated else item.state}"
            for item in facts.components
            if item.tested and item.shared < item.tested
        ]
        lines.append("the tests are symmetric: they do not say which of the two came first")
    if class_ == NO_EVIDENCE and facts.log10_p is not None and facts.log10_p <= -2.0:
        lines.append(f"one test stands out, but not enough: log10 p {facts.log10_p:.1f} corrected")
    lines += [f"control {c.name} was not run: {c.reason}" for c in facts.controls if c.status == "not run"]
    return tuple(lines)


def _off(facts: Facts) -> list[str]:
    off = [f"{test.name} of {test.scope}: {test.reason}" for test in facts.tests if test.reason]
    off += [f"{item.component}: {item.note}" for item in facts.components if item.state == NOT_TESTED and item.note]
    if facts.alignment.status != TESTED and facts.alignment.reason:
        off.append(f"layer map: {facts.alignment.reason}")
    return off


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"


def _listed(items: Sequence[str]) -> str:
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"
