"""Split experts stored as one tensor with three axes: find the orientation of its matrices, and cap their number."""

from collections.abc import Mapping

from kinprint.arch.roles import Axis, Role
from kinprint.arch.splits import Intervals, plan_split
from kinprint.arch.templates import NameRule
from kinprint.text import Text

MOST_EXPERTS = 9_999  # more have no place in a name
MOST_MATRICES = 1 << 18  # of a model; the largest have 70,000


def is_transposed(rule: NameRule, sides: tuple[int, int], width: int | None, swapped: bool) -> bool | Text:
    """Return whether matrices are stored in × out, or why that cannot be told."""
    # One side is the width of the residual stream. If it is where the architecture file does not expect it, the stack was
    # written the other way round: newer versions of transformers transposed the experts of some families. If both sides are so
    # wide, the model's other stacks decide (`swapped`: they are not as the file says).
    at = rule.roles[0].info.axes.index(Axis.RESIDUAL)
    expected = 1 - at if rule.transposed else at
    if width is None or sides[0] == sides[1] == width:
        return rule.transposed != swapped
    if width not in sides:
        return Text("matrices of {a} × {b} do not fit a width of {n}", a=sides[0], b=sides[1], n=width)
    return rule.transposed if sides[expected] == width else not rule.transposed


def plan_stack(
    rule: NameRule, sides: tuple[int, int], axis: int, dims: Mapping[str, int]
) -> tuple[tuple[Role, Intervals | None, tuple[int, int]], ...] | Text:
    """Return the roles in one matrix with their intervals along stored axis `axis` and logical shapes, or why there are none."""
    if rule.split is None:
        assert rule.role is not None
        return ((rule.role, None, (sides[axis], sides[1 - axis])),)
    plan = plan_split(rule.split, sides[axis], dims)
    if isinstance(plan, Text):
        return plan
    shapes = [(sum(stop - start for start, stop in rows), sides[1 - axis]) for rows in plan]
    return tuple(zip(rule.roles, plan, shapes, strict=True))
