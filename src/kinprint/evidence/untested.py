"""Say what was not tested, what most readers would miss most first."""

from kinprint._util.plain import ranges
from kinprint.evidence.components import NOT_TESTED
from kinprint.evidence.facts import Facts
from kinprint.evidence.words import word
from kinprint.results import findings
from kinprint.text import Text, labelled

OWN_CONTROLS = ("self", "shuffled self", "rotated self", "rotated shuffled self")
"""What runs unasked: the first two with every verdict, the others where a rotated basis was looked for."""

DISTILLATION = Text(
    "distillation (training on another model's output): weights do not show it, though matched hidden states can leave agreement"
)

_LARGE = ("attention", "mlp", "experts")  # parts that hold most of a model


def untested(facts: Facts) -> tuple[Text, ...]:
    """Return what was not tested: first what the user asked for, then what was not read, then what no weights show."""
    missing = [control for control in facts.controls if control.status == "not run"]
    why = [Text("control {name} was not run: {reason}", name=word(c.name), reason=c.reason) for c in missing]
    named = [(control.name in OWN_CONTROLS, said) for control, said in zip(missing, why, strict=True)]
    asked, own = ([said for mine, said in named if mine == ours] for ours in (False, True))
    of_a, of_b = facts.alignment.unread_a, facts.alignment.unread
    if of_a and of_a == of_b:
        large = [Text("layers {runs} of both models: not read", runs=ranges(of_a))]
    else:
        sides = (("A", of_a), ("B", of_b))
        large = [
            Text("layers {runs} of {side}: not read", runs=ranges(found), side=side) for side, found in sides if found
        ]
    off = [item for item in facts.components if item.state == NOT_TESTED and item.note]
    off.sort(key=lambda item: item.component not in _LARGE)
    parts = [labelled(word(item.component), item.note) for item in off]
    large += parts[: sum(item.component in _LARGE for item in off)]
    return tuple(
        dict.fromkeys([*asked, *facts.limits, *large, DISTILLATION, *facts.untested, *parts, *_off(facts), *own])
    )


def _off(facts: Facts) -> list[Text]:
    off = [
        Text("{test} ({scope}): {reason}", test=word(t.name), scope=t.scope, reason=t.reason)
        for t in facts.tests
        if t.reason
    ]
    if facts.function is not None and facts.function.same is None:
        off.append(labelled(Text("whether both compute the same function"), facts.function.said))
    if facts.alignment.status != findings.TESTED and facts.alignment.reason:
        off.append(labelled(Text("layer map"), facts.alignment.reason))
    return off
