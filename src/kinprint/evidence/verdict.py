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
from kinprint.evidence.words import word
from kinprint.results.findings import (
    DERIVED,
    IDENTICAL,
    NO_EVIDENCE,
    NOT_TESTABLE,
    NOTHING_SAID,
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
from kinprint.text import Text, Value, joined, labelled, within

LOG10_ALPHA = -6.0
"""The shipped threshold: the least p-value of all tests, after Holm's correction over them, must be below this."""

MOST_LAYERS = 0.5
"""Share of the layers of one of the models that must match for "derived"; fewer are shared components."""

MATCHES_NEURONS = frozenset({"neuron_match", "neuron_match_aligned", "neuron_match_rotated"})
"""Tests that match neurons one by one, beside an empirical null."""

UNALIGNED = {"fixed_points_aligned": "fixed_points"}
"""Tests after an alignment, and the test whose self control shows what they can see."""

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
    untested: Sequence[Text] = ()
    null: Text | None = None

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

    def ask(self, name: str, question: Text, inputs: Sequence[Text], *, fired: bool, outcome: str) -> bool:
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
        Text("Are all weights known, and byte for byte the same, in files of the same structure?"),
        [
            Text("{n} of {m} tensors identical", n=identity.identical, m=identity.tensors),
            Text("{x:.2%} of all weights are known", x=identity.share_read),
            Text("same structure: {flag}", flag=Text("yes") if identity.same_structure else Text("no")),
        ],
        fired=same and identity.share_read >= 1.0,
        outcome=IDENTICAL,
    ):
        return _verdict(facts, course, IDENTICAL, None)
    if course.ask(
        "independent",
        Text("Is no test below the threshold after correction?"),
        [Text("least log10 p {p:.1f}", p=facts.log10_p), Text("threshold {p:g}", p=LOG10_ALPHA)],
        fired=not strong,
        outcome=NO_EVIDENCE,
    ):
        return _verdict(facts, course, NO_EVIDENCE, None)
    trunk = [item for name in TRUNK if (item := facts.component(name)) is not None and item.shared]
    if course.ask(
        "trunk",
        Text("Do only parts outside attention and MLP share (norms, embeddings, router, head)?"),
        [labelled(word(item.component), word(item.state)) for item in facts.components],
        fired=not trunk,
        outcome=SHARES_COMPONENTS,
    ):
        return _verdict(facts, course, SHARES_COMPONENTS, None)
    origin = facts.origin
    if course.ask(
        "initialisation",
        Text("Is what they share less than training would leave in common, and the like of a common random start?"),
        origin.reasons if origin else (Text("not examined"),),
        fired=origin is not None and origin.reading in (INITIALISATION, UNCLEAR) and not is_merge(facts.merge),
        outcome=SHARES_INITIALISATION,
    ):
        return _verdict(facts, course, SHARES_INITIALISATION, None)
    covered = _coverage(facts)
    if course.ask(
        "coverage",
        Text("Do fewer than half of the layers of either model match?"),
        [Text("{x:.0%} of layers match", x=covered)],
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
    course.ask(
        "derived", Text("Otherwise: most layers share trained weights."), kind.reasons, fired=True, outcome=DERIVED
    )
    return _verdict(facts, course, DERIVED, kind)


def _unchanged(identity: Identity) -> Text | None:
    """Say how much is known to be the same, if all that was read is."""
    if not identity.tensors or identity.identical < identity.tensors:
        return None
    x, n = identity.share_read, identity.tensors
    if identity.same_structure:
        return Text("{x:.2%} of the weights, in {n} tensors", x=x, n=n)
    return Text("{x:.2%} of the weights, in {n} tensors; tensors were added or are missing", x=x, n=n)


OWN_CONTROLS = ("self", "shuffled self", "rotated self", "rotated shuffled self")
"""What runs unasked: the first two with every verdict, the others where a rotated basis was looked for."""


def _forbidden(facts: Facts, course: _Course) -> Verdict | None:
    """Abstain if a control failed or too little could be compared."""
    failed = [control for control in facts.controls if control.status == "failed"]
    asked = [control for control in facts.controls if control.name not in OWN_CONTROLS]
    none_ran = bool(asked) and all(control.status == "not run" for control in asked)
    shown = [_control(control) for control in facts.controls] or [Text("none ran")]
    own = {control.name for control in facts.controls if control.status == "passed"}
    missing = not {"self", "shuffled self"} <= own
    if course.ask(
        "controls",
        Text("Did a control fail, or could none of those asked for be run?"),
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
        Text("Is there no test that could have seen even a copy?"),
        [Text("{n} tests ran", n=len(ran)), Text("{n} of them reach the threshold on a copy of A", n=len(able))],
        fired=not enough,
        outcome=NOT_TESTABLE,
    ):
        reasons = _reasons_off(facts) or [Text("too little is comparable")]
        return _verdict(facts, course, NOT_TESTABLE, None, joined(reasons))
    return None


def _control(control: ControlFinding) -> Text:
    said = labelled(word(control.name), word(control.status))
    return said if control.reason is None else Text("{control} ({reason})", control=said, reason=control.reason)


def _why_forbidden(facts: Facts, failed: Sequence[ControlFinding], *, none_ran: bool) -> Text:
    """Tell a control that failed from one that could not be run: the first speaks against the instrument."""
    if failed:
        return Text("{name} did not give the answer known beforehand", name=word(failed[0].name))
    if not any(test.status == TESTED for test in facts.tests) and not none_ran:
        return _because(Text("nothing could be compared"), _reasons_off(facts))
    which = (
        Text("the controls asked for could not be run") if none_ran else Text("the built-in controls could not be run")
    )
    asked = [c for c in facts.controls if (c.name in OWN_CONTROLS) != none_ran]
    return _because(which, [c.reason for c in asked if c.status != "passed" and c.reason][:1])


def _reasons_off(facts: Facts) -> list[Text]:
    """Return why tests are off, each reason once, as many as fit a sentence."""
    return within(dict.fromkeys(test.reason for test in facts.tests if test.reason), 400)


def _because(said: Text, reasons: Sequence[Text]) -> Text:
    return labelled(said, joined(reasons)) if reasons else said


def _could(test: EvidenceTest, able: frozenset[tuple[str, str]]) -> bool:
    """Whether a test reaches the threshold on a copy, as the self control shows; matched neurons always do if there are some."""
    if test.name in MATCHES_NEURONS or test.name == "gram_fixed_points":
        return test.n >= 16
    return (UNALIGNED.get(test.name, test.name), test.scope) in able


def _coverage(facts: Facts) -> float:
    """Return the larger of the shares of B's layers that match and of A's layers that occur."""
    found = facts.alignment.layers
    matched = [item for item in found if item.shared and item.source is not None]
    by_layer = max(len(matched) / max(len(found), 1), len({item.source for item in matched}) / max(facts.layers_a, 1))
    parts = [c.shared / c.tested for name in TRUNK if (c := facts.component(name)) is not None and c.tested]
    return max([by_layer, *parts])


# -- words ---------------------------------------------------------------------------------------------------------------


def _verdict(facts: Facts, course: _Course, class_: str, kind: Kind | None, why: Text | None = None) -> Verdict:
    related = class_ in (DERIVED, SHARES_COMPONENTS, SHARES_INITIALISATION, IDENTICAL)
    return Verdict(
        class_=class_,
        kind=kind.name if kind else None,
        variant=kind.variant if kind else None,
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


DISTILLATION = Text("distillation and training on another model's output: they leave no trace in weights")


def _layer_map(facts: Facts) -> tuple[int | None, ...] | None:
    if not facts.alignment.layers:
        return None
    found = {item.layer: item.source for item in facts.alignment.layers if item.shared}
    return tuple(found.get(layer) for layer in range(facts.layers_b))


def _sentence(facts: Facts, class_: str, kind: Kind | None, why: Text | None) -> Text:
    if class_ == IDENTICAL:
        return Text("The two models are identical: every weight is the same, byte for byte.")
    if class_ == NO_EVIDENCE:
        return Text("{found} This does not prove training from scratch.", found=_weakest(facts.power))
    if class_ == NOT_TESTABLE:
        return Text("Not testable: {why}.", why=why)
    p = math.ceil(facts.log10_p or 0.0)  # rounded towards zero: what is said must hold
    if class_ == DERIVED:
        assert kind is not None
        return _derived(kind, p, direct=kind.name in DIRECT or (kind.name == "merged" and is_merge(facts.merge)))
    if class_ == SHARES_COMPONENTS:
        return _shares(facts, p)
    if facts.origin is not None and facts.origin.reading == UNCLEAR:
        return Text(
            "The two models share weights or their initialisation (if they were unrelated, agreement like this would have a "
            "chance below 10^{p}); too little was read to tell which.",
            p=p,
        )
    return Text(
        "The two models share weights or their initialisation (if they were unrelated, agreement like this would have a chance "
        "below 10^{p}), but not what training would leave in common: most likely both started from the same random numbers.",
        p=p,
    )


def _derived(kind: Kind, p: int, *, direct: bool) -> Text:
    if kind.phrase is None:
        return Text(
            "One of the two models derives from the other, or both derive from a common ancestor: if they were unrelated, "
            "agreement like this would have a chance below 10^{p}.",
            p=p,
        )
    if direct:
        return Text(
            "One of the two models derives from the other {how}: if they were unrelated, agreement like this would have a "
            "chance below 10^{p}.",
            how=kind.phrase,
            p=p,
        )
    return Text(
        "One of the two models derives from the other {how}, or both derive from a common ancestor: if they were unrelated, "
        "agreement like this would have a chance below 10^{p}.",
        how=kind.phrase,
        p=p,
    )


def _shares(facts: Facts, p: int) -> Text:
    scopes = dict.fromkeys(test.scope for test in facts.tests if (test.log10_p_holm or 0.0) <= LOG10_ALPHA)
    parts = joined([_part(item) for item in facts.components if item.shared] or scopes, "and")
    if any(item.tested for name in TRUNK if (item := facts.component(name)) is not None):
        return Text(
            "The two models share {parts}, and not most of their layers: if they were unrelated, agreement like this would "
            "have a chance below 10^{p}.",
            parts=parts,
            p=p,
        )
    return Text(
        "The two models share {parts}, and whether their layers do was not tested: if they were unrelated, agreement like "
        "this would have a chance below 10^{p}.",
        parts=parts,
        p=p,
    )


def _part(item: ComponentFinding) -> Text:
    part = word(item.component)
    if item.shared == item.tested:
        return part
    return Text("{part} (in {n} of {m} places)", part=part, n=item.shared, m=item.tested)


def _weakest(power: Sequence[PowerFinding]) -> Text:
    """Say that nothing was found, and how weak a relation would have been seen: one figure for each quantity, at most two."""
    least: dict[Text, float] = {}
    for item in power:
        if item.least is not None:
            least[item.quantity] = min(item.least, least.get(item.quantity, item.least))
    if not least:
        return Text("No evidence that either model derives from the other.")
    (q, x), *more = least.items()
    if not more:
        return Text(
            "No evidence that either model derives from the other; a {q} of {x:.2g} would have been seen with 95 % "
            "probability, dimensions and rows being in place.",
            q=q,
            x=x,
        )
    r, y = more[0]
    return Text(
        "No evidence that either model derives from the other; a {q} of {x:.2g} or a {r} of {y:.2g} would have been seen with "
        "95 % probability, dimensions and rows being in place.",
        q=q,
        x=x,
        r=r,
        y=y,
    )


def _reasons(facts: Facts, class_: str, kind: Kind | None, why: Text | None) -> tuple[Text, ...]:
    if class_ == NOT_TESTABLE:
        return (why or NOTHING_SAID,)
    ran = [test for test in facts.tests if test.status == TESTED and test.log10_p_holm is not None]
    ran.sort(key=lambda test: (test.log10_p_holm or 0.0, test.log10_p or 0.0))
    if class_ == NO_EVIDENCE:
        strongest = [Text("strongest of {n} tests: {test}", n=len(ran), test=describe(ran[0]))] if ran else []
        return (*strongest, *(labelled(word(c.name), word(c.status)) for c in facts.controls))
    lines = [describe(test) for test in ran[:4]]
    if facts.origin is not None:
        lines += facts.origin.reasons
    return (*lines, *(kind.reasons if kind else ()))


def describe(test: EvidenceTest) -> Text:
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
    if class_ in (DERIVED, SHARES_COMPONENTS, SHARES_INITIALISATION):
        elsewhere = Text("not in place, and not compared in the other basis") if facts.basis == ROTATED else None
        lines += [
            labelled(word(item.component), elsewhere or word(item.state))
            for item in facts.components
            if item.tested and item.shared < item.tested
        ]
        lines.append(Text("the tests are symmetric: they do not say which of the two came first"))
    if class_ == NO_EVIDENCE and facts.log10_p is not None and facts.log10_p <= -2.0:
        lines.append(Text("one test stands out, but not enough: log10 p {p:.1f} corrected", p=facts.log10_p))
    lines += [
        Text("control {name} was not run: {reason}", name=word(c.name), reason=c.reason)
        for c in facts.controls
        if c.status == "not run"
    ]
    return tuple(lines)


def _off(facts: Facts) -> list[Text]:
    off = [
        Text("{test} of {scope}: {reason}", test=word(test.name), scope=test.scope, reason=test.reason)
        for test in facts.tests
        if test.reason
    ]
    off += [labelled(word(c.component), c.note) for c in facts.components if c.state == NOT_TESTED and c.note]
    if facts.alignment.status != TESTED and facts.alignment.reason:
        off.append(labelled(Text("layer map"), facts.alignment.reason))
    return off
