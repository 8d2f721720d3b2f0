"""kin: recognise neurons in any residual basis and any order. Kinprint's own robust test.

First Gram profiles, exactly (see `gram`). If neurons are reordered, a rotation is fitted on some layers, from labels that neither
a rotation nor an order can change, and the neurons of OTHER layers are matched under it by gate and by up rows separately: the
share on which both agree is the value. Mathematics: `kinprint.align.rotation`; the two stages, as in `compare --deep`:
`kinprint.evidence.rotation`.
"""

from kinprint.align.residual_basis import embedding_rotation
from kinprint.align.rotation import Rows
from kinprint.errors import DegenerateInput
from kinprint.evidence.empirical_null import load_null
from kinprint.evidence.neuron_gram import GRAM
from kinprint.evidence.rotation import examine_rotation
from kinprint.fingerprints.base import CHANGES, Method, Score, pair_null, register
from kinprint.model.tokens import common_rows
from kinprint.model.weights import Weights
from kinprint.stats.combine import bonferroni
from kinprint.text import Text, joined

MOST_TOKENS = 4096
MOST_WIDTH = 1024  # beyond, a first guess from tokens costs more than it helps


@register
class Kin(Method):
    """Share of neurons recognised in layers that no fit has seen."""

    name = "kin"
    title = Text("kinprint: neurons in any basis")
    invariant_to = CHANGES
    summary = Text("Gram profiles, then a rotation fitted on some layers and neurons matched in others.")
    references = ("kinprint, docs/fingerprints.md", "Zhu et al. 2025, arXiv:2502.12292 (agreement of gate and up)")

    def score_models(self, a: Weights, b: Weights, *, seed: int = 0) -> Score:
        """Run both stages; the second only where the first finds nothing."""
        found = examine_rotation(a, b, null=load_null(), seed=seed, starts=_starts(a, b))
        tests = [test for test in found.tests if test.log10_p is not None]
        if found.share is None or not tests:
            raise DegenerateInput(found.untested or Text("nothing could be tested"))
        best = min(tests, key=lambda test: test.log10_p or 0.0)
        name = joined(part for part in (best.null, best.p_method and best.p_method.label) if part)
        mean, sd = ((figure or 0.0) / max(1, best.n) for figure in (best.null_mean, best.null_sd))
        log10_p = bonferroni(best.log10_p or 0.0, len(tests))
        chance = pair_null(name, mean, sd, log10_p, best.n, *best.assumptions, exact=best.name == GRAM)
        details = {"neurons in order": float(found.in_order)}
        gram = next((test for test in tests if test.name == GRAM), None)
        if gram is not None:
            details["gram fixed points"] = gram.statistic or 0.0
        if found.fitted is not None:
            details["agreement where fitted"] = found.fitted.rotation.agreement
        notes = tuple(text for text in (found.untested, *(test.reason for test in found.tests)) if text)
        return Score(found.share, chance, details, dict(found.layers) if (best.log10_p or 0.0) < -6.0 else {}, notes)


def _starts(a: Weights, b: Weights) -> list[Rows]:
    """Return the rotation that the embeddings of shared tokens suggest, where there are enough of them."""
    if a.hidden != b.hidden or not 0 < a.hidden <= MOST_WIDTH:
        return []
    try:
        one, two = a.tokens(MOST_TOKENS), b.tokens(MOST_TOKENS)
        first, second = common_rows(one.keys, two.keys)
        if len(first) < a.hidden:
            return []
        found = embedding_rotation(a.embedding(one.ids[first]), b.embedding(two.ids[second]))
    except DegenerateInput:
        return []
    return [found.astype("float32")]
