"""Enumerate how p-values are computed, each with its label and whether it is an upper bound."""

from __future__ import annotations

from enum import StrEnum

from kinprint.text import Text


class PMethod(StrEnum):
    """Method of a p-value: JSON and tables hold the value, people read the label."""

    label: Text
    bound: bool  # whether the true p-value may be smaller than the figure given

    def __new__(cls, value: str, label: Text, bound: bool = False) -> PMethod:
        """Make a member of a value that carries its label."""
        made = str.__new__(cls, value)
        made._value_, made.label, made.bound = value, label, bound
        return made

    CHERNOFF = "chernoff_bound", Text("Chernoff bound by negative association (upper bound)"), True
    MOMENT_BOUND = "moment_inequality", Text("moment inequality on exact permutation moments (upper bound)"), True
    NORMAL = "normal_tail", Text("normal tail on exact permutation moments")
    HELD = (
        "normal_tail_held",
        Text(
            "normal tail on exact permutation moments, held at the last z it is trusted at (upper bound, not a theorem)"
        ),
        True,
    )
    MONTE_CARLO = "monte_carlo", Text("Monte-Carlo permutations with +1 correction")
    ORDERINGS = "orderings_counted", Text("exact: orderings that reproduce the other side, over all orderings")
    POISSON = "poisson_tail", Text("Poisson tail on permuted draws (approximation)")
    FACTORIAL = "factorial_moments", Text("factorial-moment bound (1/k! in one layer), exact inequality")
    HOEFFDING = "hoeffding_bound", Text("Hoeffding's inequality for random signs (upper bound)"), True
    BEST_LAYERS = "best_pair_of_layers", Text("1/k! for the best pair of layers, corrected for their number")
    LEAST_LAYER = (
        "least_of_layers",
        Text("least of the layers, corrected for the candidates of each and for the layers"),
    )
    LEAST_EXPERT = (
        "least_of_experts",
        Text("least of the experts' fixed-point bounds, corrected for candidates and experts"),
    )
    INSIDE_NULL = "inside_empirical_null", Text("inside the empirical null")
    POINT = "none_constant", Text("none: every permutation gives the same value")
    BLIND = "none_blind_to_order", Text("none: the metric cannot see order")
    OWN_DRAW = "none_own_draw", Text("none: the value is itself a draw from this null")
