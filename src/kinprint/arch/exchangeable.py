"""Which axis of a role has no order of its own, so that permuting it makes a valid null."""

from __future__ import annotations

from collections.abc import Mapping

from kinprint.arch.roles import Axis, Role

ORDERED = {
    Axis.HEAD: "rows of a head may have an order (rotary frequencies give them one)",
    Axis.HEAD_DIM: "dimensions of a head may have an order (rotary frequencies give them one)",
    Axis.TOKEN: "tokens are named by the vocabulary",
    Axis.POSITION: "positions have an order",
    Axis.TYPE: "segment types have names",
}


def permuted_axis(role: Role, ordered: Mapping[Axis, str]) -> tuple[int | None, str]:
    """Return which axis (0 rows, 1 columns) has no order of its own, with its name, or (None, the reason).

    Columns first: every row slice holds all of them, while rows are a sample. `ordered` names axes that have an order in
    these models although they have none in general. A square matrix from the residual stream to itself has one order for
    rows and columns: permuting either alone would destroy a diagonal that is there from the start.
    """
    axes = role.info.axes
    if role is Role.POSITION_EMBEDDING:
        return None, "a table of positions may be a fixed pattern, which every model shares"
    if axes.count(Axis.RESIDUAL) > 1:
        return None, "rows and columns are one axis, so neither may be permuted alone"
    for position in range(len(axes) - 1, -1, -1):
        if axes[position].exchangeable and axes[position] not in ordered:
            return position, axes[position].value
    reasons = [
        ordered[axis] if axis in ordered else ORDERED[axis] for axis in axes if axis in ordered or axis in ORDERED
    ]
    return None, "; ".join(reasons)
