"""Enumerate how p-values are computed, each with its label and whether it is an upper bound."""

from __future__ import annotations

from enum import StrEnum

from kinprint.text import Text


class PMethod(StrEnum):
    """Method of a p-value. JSON and tables hold the value, people read the label."""

    CHERNOFF = "chernoff_bound"
    MOMENT_BOUND = "moment_inequality"
    NORMAL = "normal_tail"
    HELD = "normal_tail_held"
    MONTE_CARLO = "monte_carlo"
    ORDERINGS = "orderings_counted"
    POISSON = "poisson_tail"
    FACTORIAL = "factorial_moments"
    HOEFFDING = "hoeffding_bound"
    BEST_LAYERS = "best_pair_of_layers"
    LEAST_LAYER = "least_of_layers"
    LEAST_EXPERT = "least_of_experts"
    INSIDE_NULL = "inside_empirical_null"
    POINT = "none_constant"
    BLIND = "none_blind_to_order"
    OWN_DRAW = "none_own_draw"

    @property
    def label(self) -> Text:
        """The method in words."""
        return _LABELS[self]

    @property
    def bound(self) -> bool:
        """Whether the true p-value may be smaller than the figure given."""
        return self in (PMethod.CHERNOFF, PMethod.MOMENT_BOUND, PMethod.HELD, PMethod.HOEFFDING)


_LABELS = {
    PMethod.CHERNOFF: Text("Chernoff bound by negative association (upper bound)"),
    PMethod.MOMENT_BOUND: Text("moment inequality on exact permutation moments (upper bound)"),
    PMethod.NORMAL: Text("normal tail on exact permutation moments"),
    PMethod.HELD: Text(
        "normal tail on exact permutation moments, held at the last z it is trusted at (upper bound, not a theorem)"
    ),
    PMethod.MONTE_CARLO: Text("Monte-Carlo permutations with +1 correction"),
    PMethod.ORDERINGS: Text("exact: orderings that reproduce the other side, over all orderings"),
    PMethod.POISSON: Text("Poisson tail on permuted draws (approximation)"),
    PMethod.HOEFFDING: Text("Hoeffding's inequality for random signs (upper bound)"),
    PMethod.FACTORIAL: Text("factorial-moment bound (1/k! in one layer), exact inequality"),
    PMethod.BEST_LAYERS: Text("1/k! for the best pair of layers, corrected for their number"),
    PMethod.LEAST_LAYER: Text("least of the layers, corrected for the candidates of each and for the layers"),
    PMethod.LEAST_EXPERT: Text("least of the experts' fixed-point bounds, corrected for candidates and experts"),
    PMethod.INSIDE_NULL: Text("inside the empirical null"),
    PMethod.POINT: Text("none: every permutation gives the same value"),
    PMethod.BLIND: Text("none: the metric cannot see order"),
    PMethod.OWN_DRAW: Text("none: the value is itself a draw from this null"),
}
