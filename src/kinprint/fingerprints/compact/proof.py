"""Run the exact tests of `kinprint.evidence` on two compact fingerprints, under their guards."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kinprint.arch.roles import GATES_AND_UPS
from kinprint.errors import DegenerateInput
from kinprint.evidence.assess import assess
from kinprint.evidence.attempts import attempt
from kinprint.evidence.dimension_test import DIMENSION_POINTS
from kinprint.evidence.facts import order_alone
from kinprint.evidence.neuron_gram import GRAM, MLP_NEURONS, gram_test, hold_gram
from kinprint.evidence.rules import LOG10_ALPHA
from kinprint.fingerprints.base import Features
from kinprint.fingerprints.compact.first_look import Side
from kinprint.fingerprints.compact.parts import COLUMNS
from kinprint.fingerprints.compact.sides import count_of
from kinprint.results.findings import OFF, EvidenceTest
from kinprint.stats.combine import bonferroni
from kinprint.text import Text

_CORRELATION, _LAYER_MAP = "matrix_correlation", "layer_map"
_NEURONS = frozenset(role.value for role in GATES_AND_UPS)
MOST_NEURONS = 1 << 16  # where a fingerprint does not tell
ORDER_ALONE = Text("neurons agree no further than those of strangers that were put in the order of another model's")
CORRELATIONS = ("norm_joint", _CORRELATION, "token_rows")  # tests whose statistic is a correlation of values
COUNTS = (DIMENSION_POINTS, "fixed_points", GRAM)  # tests whose statistic counts units at their places


@dataclass(frozen=True)
class Proof:
    """What exact tests show of two fingerprints; `log10_p` is corrected for the tests, None if none could run."""

    tests: tuple[EvidenceTest, ...]
    log10_p: float | None
    reason: Text | None = None  # why nothing could be tested

    @property
    def tests_run(self) -> int:
        """Number of tests that ran."""
        return sum(test.log10_p is not None for test in self.tests)

    @property
    def standing(self) -> int:
        """Number of tests that reject independence."""
        return len(self._standing)

    @property
    def correlation(self) -> float:
        """How strongly the values correlate: the mean over the tests of correlation that stand, 0 if none does."""
        seen = [test.statistic for test in self._standing if test.name in CORRELATIONS and test.statistic is not None]
        return sum(seen) / len(seen) if seen else 0.0

    @property
    def _standing(self) -> list[EvidenceTest]:
        return [test for test in self.tests if (test.log10_p_claim or 0.0) <= LOG10_ALPHA]

    @property
    def in_place(self) -> float:
        """The largest share of dimensions, rows or neurons that any test found at their own places."""
        shares = [test.statistic / test.n for test in self.tests if test.name in COUNTS and test.statistic and test.n]
        return max(shares, default=0.0)

    @property
    def assumptions(self) -> tuple[Text, ...]:
        """What the tests that ran rest on, each once."""
        return tuple(
            dict.fromkeys(said for test in self.tests if test.log10_p is not None for said in test.assumptions)
        )


def prove(a: Features, b: Features, *, seed: int = 0) -> Proof:
    """Hold two compact fingerprints against each other."""
    return prove_sides(Side(a, "A"), Side(b, "B"), seed=seed)


def prove_sides(a: Side, b: Side, *, seed: int = 0) -> Proof:
    """Run the layer map, the battery and the Gram profiles, corrected for all tests, those that were off included."""
    found = assess(a.probe, b.probe, seed=seed).extended([_gram(a, b)], {})
    ran = [test for test in found.tests if test.log10_p is not None]
    reason = next((test.reason for test in found.tests if test.reason is not None), None)
    if not ran:
        return Proof(found.tests, None, reason)
    tests = _without_order(found.tests, a, b)
    least = min((test.log10_p_claim for test in tests if test.log10_p_claim is not None), default=0.0)
    # which tests are off depends on the data, too: Holm's correction is for those that ran
    return Proof(tests, bonferroni(least, -(-len(tests) // len(ran))))


def _without_order(tests: Sequence[EvidenceTest], a: Side, b: Side) -> tuple[EvidenceTest, ...]:
    """Take their claims from tests of neurons in place that agree no further than an order brings strangers.

    Before models are merged, neurons of one are put in the order of the other's (Git Re-Basin): places and signs agree then at
    any p-value, and no weight is shared.
    """
    alike = [test.statistic or 0.0 for test in tests if test.name == _CORRELATION and str(test.scope) in _NEURONS]
    sides = a.features, b.features
    neurons = max(count_of(side, "neurons") or MOST_NEURONS for side in sides)
    width = min(count_of(side, "hidden") or COLUMNS for side in sides)
    if max(alike, default=0.0) > order_alone(neurons, width):
        return tuple(tests)
    return tuple(
        replace(test, log10_p_holm=0.0, reason=ORDER_ALONE)
        if str(test.scope) in _NEURONS or test.name == _LAYER_MAP
        else test
        for test in tests
    )


def _gram(a: Side, b: Side) -> EvidenceTest:
    def off(why: Text) -> EvidenceTest:
        return EvidenceTest(GRAM, MLP_NEURONS, status=OFF, reason=why)

    if a.gram is None or b.gram is None:
        return off(Text("a fingerprint keeps no Gram profiles"))
    one, two = a.gram, b.gram
    try:
        return attempt(lambda: gram_test(hold_gram(one, two)), off)
    except DegenerateInput as error:
        return off(error.reason)
