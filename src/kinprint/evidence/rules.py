"""The rules of the verdict, tried in order on the evidence. The first that fires decides; where none does, a model is derived.

No rule looks at configs, names, dates or raw cosines. A failed control forbids any verdict. Abstaining is an answer.
"""

from collections.abc import Callable

from kinprint.evidence.common_start import CLOSE, INITIALISATION, TRAINING, UNCLEAR
from kinprint.evidence.components import ENDS, shows_nothing
from kinprint.evidence.edit_kinds import MATCHES_NEURONS, is_merge
from kinprint.evidence.facts import Facts, likeness
from kinprint.evidence.untested import OWN_CONTROLS
from kinprint.evidence.words import word
from kinprint.results import findings
from kinprint.text import Text, labelled

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


def _controls(facts: Facts) -> findings.Rule:
    passed = {control.name for control in facts.controls if control.status == "passed"}
    # equal bytes are no statistic: where no tensor has a known role there is nothing to control
    missing = not {"self", "shuffled self"} <= passed and not (_same(facts) and not (facts.tests or facts.components))
    return findings.Rule(
        "controls",
        Text("Did a control fail, or could none of those asked for be run?"),
        tuple(_control_line(control) for control in facts.controls) or (Text("none ran"),),
        bool(failed_controls(facts)) or no_control_ran(facts) or missing,
        findings.NOT_TESTABLE,
    )


def _comparable(facts: Facts) -> findings.Rule:
    able = [test for test in facts.ran if _has_power(test, facts.able)]
    found = _same(facts) or _strong(facts)
    return findings.Rule(
        "comparable",
        Text("Was nothing found, and is there no test that sees a strong relation (0.9) planted in these models?"),
        (
            Text("{n} tests ran", n=len(facts.ran)),
            Text("something was found") if found else Text("at least {n} of them see it", n=len(able)),
        ),
        not (found or able),
        findings.NOT_TESTABLE,
    )


def _identical(facts: Facts) -> findings.Rule:
    identity = facts.identity
    return findings.Rule(
        "identical",
        Text("Are all weights known, and byte for byte the same, in files of the same structure?"),
        (
            Text("{n} of {m} tensors identical", n=identity.identical, m=identity.tensors),
            Text("{x:.2%} of all weights are known", x=identity.share_read),
            Text("same structure: {flag}", flag=Text("yes") if identity.same_structure else Text("no")),
        ),
        _same(facts),
        findings.IDENTICAL,
    )


def _structure(facts: Facts) -> findings.Rule:
    order = facts.log10_p_order
    return findings.Rule(
        "structure",
        Text("Do places agree (what is zero, which units are alike, how they are sorted), and signs of weights not?"),
        (Text("least log10 p of order {p:.1f}", p=order), Text("with signs {p:.1f}", p=facts.log10_p)),
        not _strong(facts) and (order or 0.0) <= LOG10_ALPHA,
        findings.NO_EVIDENCE,
    )


def _independent(facts: Facts) -> findings.Rule:
    return findings.Rule(
        "independent",
        Text("Is no test below the threshold after correction?"),
        (Text("least log10 p {p:.1f}", p=facts.log10_p), Text("threshold {p:g}", p=LOG10_ALPHA)),
        not _strong(facts),
        findings.NO_EVIDENCE,
    )


def _likeness(facts: Facts) -> findings.Rule:
    alike, bound = likeness(facts, LOG10_ALPHA)
    return findings.Rule(
        "likeness",
        Text(
            "Do only neurons or value channels agree, no more than if those of one model had been put in the other's order?"
        ),
        (Text("correlation {x:.2f}; the best order of unrelated neurons gives up to {y:.2f}", x=alike, y=bound),),
        alike is not None and bound is not None and alike <= bound,
        findings.NO_EVIDENCE,
    )


def _only_parts(facts: Facts) -> findings.Rule:
    parts = parts_reading(facts)
    return findings.Rule(
        "trunk",
        Text(
            "Do only parts outside attention and MLP share (norms, embeddings, router, head), or single experts, or layers no more "
            "than training to match hidden states can leave?"
        ),
        tuple(labelled(word(item.component), word(item.state)) for item in facts.components),
        parts is not None,
        findings.SHARES_INITIALISATION if parts == INITIALISATION else findings.SHARES_COMPONENTS,
    )


def _initialisation(facts: Facts) -> findings.Rule:
    origin = facts.origin
    # where all matrices follow from the other model's, no training came between, whatever was done to norms
    copied = bool(facts.edits) and all(item.edit in COPYING for item in facts.edits)
    return findings.Rule(
        "initialisation",
        Text("Is what they share less than training would leave in common, and the like of a common random start?"),
        origin.reasons if origin else (Text("not examined"),),
        origin is not None
        and origin.reading in (INITIALISATION, UNCLEAR)
        and not (is_merge(facts.merge) or facts.same_function or copied),
        findings.SHARES_INITIALISATION,
    )


def _few_match(facts: Facts) -> findings.Rule:
    matched, tested = coverage(facts)
    return findings.Rule(
        "coverage",
        Text("Do fewer than half of the layers tested match?"),
        (Text("{n} of {m} layers tested match", n=matched, m=tested),),
        matched < MOST_LAYERS * tested and not facts.same_function,
        findings.SHARES_COMPONENTS,
    )


RULES: tuple[Callable[[Facts], findings.Rule], ...] = (
    _controls, _comparable, _identical, _structure, _independent, _likeness, _only_parts, _initialisation, _few_match
)  # fmt: skip
"""In order. Each makes the rule of one answer: whether it fires, on what, and the class that it leads to then."""


def _strong(facts: Facts) -> bool:
    return (facts.log10_p or 0.0) <= LOG10_ALPHA


def _same(facts: Facts) -> bool:
    """Whether all weights are known, and equal byte for byte."""
    identity = facts.identity
    whole = identity.same_structure and identity.share_read >= 1.0
    return identity.identical == identity.tensors > 0 and whole


def parts_reading(facts: Facts) -> str | None:
    """Return where the agreement comes from if it is of parts outside the layers, or of single experts; None if of the layers."""
    # Where hidden states were matched, mean rows, products over heads and neurons paired one by one agree a little (measured: 13 %
    # of the neurons of one layer in four, 0.07 of their weights): the same functions were learned in the same basis. Layers that
    # show no order count where most neurons are paired, or what was paired is trained alike.
    origin = facts.origin
    if facts.same_function:
        return None
    if not any(item.shared for item in trunk(facts)):
        norms, reading = facts.component("norms"), origin.reading if origin is not None else TRAINING
        # norms start as constants: no start gives them anything in common
        return UNCLEAR if reading == INITIALISATION and norms is not None and norms.shared else reading
    if some_experts(facts):
        return UNCLEAR
    in_order = any((test.log10_p_claim or 0.0) <= LOG10_ALPHA and test.name in BY_ORDER for test in facts.tests)
    paired = any(t.name in MATCHES_NEURONS and (t.statistic or 0.0) >= MOST_NEURONS * t.n > 0 for t in facts.ran)
    alike = paired or (origin is not None and origin.reading == TRAINING and (origin.level or 0.0) >= CLOSE)
    if in_order or alike or origin is None or is_merge(facts.merge):
        return None
    # matched hidden states bring one residual basis with them: where its ends and norms do not agree, weights or a start do
    ends = [facts.component(name) for name in (*ENDS, "norms")]
    other_basis = all(map(shows_nothing, ends))
    return None if other_basis and origin.reading != TRAINING else UNCLEAR


def some_experts(facts: Facts) -> bool:
    """Whether some experts agree, and neither the others nor attention: a common start would show in all of them."""
    experts = facts.component("experts")
    return experts is not None and 0 < experts.shared < experts.tested and shows_nothing(facts.component("attention"))


def trunk(facts: Facts) -> list[findings.ComponentFinding]:
    """Return what was found of attention, MLPs and experts."""
    return [item for item in facts.components if item.component in TRUNK]


def failed_controls(facts: Facts) -> list[findings.ControlFinding]:
    """Return the controls that did not give the answer known beforehand."""
    return [control for control in facts.controls if control.status == "failed"]


def no_control_ran(facts: Facts) -> bool:
    """Whether controls were asked for, and none could be run."""
    asked = [control for control in facts.controls if control.name not in OWN_CONTROLS]
    return bool(asked) and all(control.status == "not run" for control in asked)


def _control_line(control: findings.ControlFinding) -> Text:
    said = labelled(word(control.name), word(control.status))
    return said if control.reason is None else Text("{control} ({reason})", control=said, reason=control.reason)


def _has_power(test: findings.EvidenceTest, able: frozenset[tuple[str, str]]) -> bool:
    """Whether a test sees a strong relation, as planting shows; matched neurons always do if there are some."""
    if test.name in MATCHES_NEURONS or test.name == "gram_fixed_points":
        return test.n >= 16
    return (UNALIGNED.get(test.name, test.name), test.scope) in able


def coverage(facts: Facts) -> tuple[int, int]:
    """Return how many layers match, and how many were tested: of B, of A, or of one part, whichever share is the largest."""
    found = facts.alignment.layers
    matched, used = sum(bool(item.sources) for item in found), {source for item in found for source in item.sources}
    counts = [(matched, len(found)), (len(used), facts.layers_a - len(facts.alignment.unread_a))]
    counts += [(item.shared, item.tested) for item in trunk(facts)]
    return max(((n, m) for n, m in counts if m), key=lambda count: (count[0] / count[1], count[1]), default=(0, 1))
