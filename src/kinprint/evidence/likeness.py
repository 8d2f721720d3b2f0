"""Tell neurons that were put in the order of another model's from neurons that share weights or a start.

Before models are merged, the units of one are put in the order in which they are most like the other's (Ainsworth et al. 2022, Git
Re-Basin). Their places and signs agree then, at any p-value, and no weight is shared. The rows of q and k have an order of their
own that nobody may change: a common start shows there too, an order does not.
"""

import math

from kinprint.evidence.common_start import TRAINING
from kinprint.evidence.components import HEADS_MAY_DIFFER
from kinprint.evidence.facts import Facts

ALLOWED = 1.5
"""Times √(2 ln n / d), which the best of n independent rows of width d comes to: trained rows lie in fewer directions. Measured on
strangers of width 96 put in order: 0.16 to 0.2, where 0.51 is allowed."""


def likeness(facts: Facts, log10_alpha: float) -> tuple[float | None, float | None]:
    """Return how far weights correlate where MLPs agree, attention and norms do not, and how far an order may bring strangers."""
    mlp, *others = (facts.component(name) for name in ("mlp", "attention", "norms"))
    found = {str(t.scope): t for t in facts.ran if t.name == "matrix_correlation" and t.statistic is not None}
    trained = facts.same_function or (facts.origin is not None and facts.origin.reading == TRAINING)
    if mlp is None or not mlp.shared or facts.neuron_kind is not None or trained:
        return None, None
    looked_at = [x is not None and not x.shared and (x.tested or x.note is HEADS_MAY_DIFFER) for x in others]
    if not {"mlp_up", "mlp_down"} <= set(found) or not all(looked_at):
        return None, None
    claimed = [t.statistic or 0.0 for t in found.values() if (t.log10_p_claim or 0.0) <= log10_alpha]
    neurons, width = found["mlp_down"].n, found["mlp_up"].n
    return max(claimed, default=0.0), ALLOWED * math.sqrt(2.0 * math.log(neurons) / width)
