"""Pair the towers of two models, each with its own kind, and compare those that stand beside the main one.

A language model is compared with the language model inside a multimodal one, an encoder of pictures or sound with the tower of its
kind. The verdict is that of the main pair; each further pair of towers has its own.
"""

from collections.abc import Sequence

from kinprint._util.progress import Progress
from kinprint.arch.templates import LANGUAGE
from kinprint.arch.towers import WORDS
from kinprint.comparison.tensors import compare_tensors
from kinprint.errors import BudgetExceeded
from kinprint.evidence.empirical_null import EmpiricalNull
from kinprint.metrics import Metric
from kinprint.model.model import Model
from kinprint.results.findings import TowerFinding
from kinprint.results.measurements import OK
from kinprint.results.options import Options
from kinprint.sources.session import Session
from kinprint.text import Text

Towers = dict[str, tuple[Model, Model]]


def pair_towers(a: Model, b: Model) -> tuple[tuple[Model, Model], Towers, list[Text]]:
    """Return the main pair, the pairs of further towers by kind, and what to say about the choice."""
    both = {kind: (one, b.towers[kind]) for kind, one in a.towers.items() if kind in b.towers}
    if a.naming.kind == b.naming.kind or not both:
        both.pop(a.naming.kind, None)
        return (a, b), both, []
    kind = LANGUAGE if LANGUAGE in both else min(both)
    main = both.pop(kind)
    told = [
        Text(
            "model {side} is compared by its {kind} tower: model {other} is no more than that",
            side=side,
            kind=WORDS[kind],
            other=other,
        )
        for side, other, whole, taken in (("A", "B", a, main[0]), ("B", "A", b, main[1]))
        if taken is not whole
    ]
    return main, both, told


def compare_towers(
    towers: Towers, run: Session, options: Options, metrics: Sequence[Metric], null: EmpiricalNull, tell: Progress
) -> list[TowerFinding]:
    """Compare each pair of towers, with what is left of the budget."""
    found = []
    for kind, (one, two) in sorted(towers.items()):
        layers = one.naming.layers, two.naming.layers
        try:
            compared = compare_tensors((one, two), run, options, metrics, null, None, tell)
        except BudgetExceeded:
            why = Text("the byte budget does not allow it; see --budget")
            found.append(TowerFinding(kind, *layers, 0, None, None, why))
            continue
        count = sum(item.status == OK for item in compared.comparisons)
        verdict = compared.verdict
        found.append(
            TowerFinding(kind, *layers, count, verdict.class_, verdict.log10_p, verdict.sentence, verdict.kind)
        )
    return found
