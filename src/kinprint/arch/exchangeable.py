"""Find the axis of a role whose order has no meaning, so that permuting it makes a valid null."""

from collections.abc import Mapping

from kinprint.arch.roles import Axis, Role
from kinprint.text import Text, joined

AXES = {
    Axis.RESIDUAL: Text("residual"),
    Axis.NEURON: Text("neuron"),
    Axis.EXPERT: Text("expert"),
    Axis.LATENT: Text("latent"),
    Axis.HEAD: Text("head row"),
    Axis.HEAD_DIM: Text("head dimension"),
    Axis.TOKEN: Text("token"),
    Axis.POSITION: Text("position"),
    Axis.TYPE: Text("segment type"),
    Axis.CHANNEL: Text("mixer channel"),
    Axis.STATE: Text("state"),
    Axis.KERNEL: Text("kernel tap"),
}
"""How reports name the axes."""

ORDERED = {
    Axis.HEAD: Text("rows of a head may have an order (rotary frequencies give them one)"),
    Axis.HEAD_DIM: Text("dimensions of a head may have an order (rotary frequencies give them one)"),
    Axis.TOKEN: Text("tokens are named by the vocabulary"),
    Axis.POSITION: Text("positions have an order"),
    Axis.TYPE: Text("segment types have names"),
    Axis.CHANNEL: Text("channels of a mixer go by heads and groups, so single ones have no free order"),
    Axis.STATE: Text("states of a recurrence start in an order"),
    Axis.KERNEL: Text("taps of a convolution have an order"),
}


def permuted_axis(role: Role, ordered: Mapping[Axis, Text]) -> tuple[int | None, Text]:
    """Return which axis (0 rows, 1 columns) has no order of its own, with its name, or (None, the reason)."""
    # Columns first: every row slice holds all of them, while rows are a sample. `ordered` names axes that have an order in
    # these models although they have none in general. A square matrix from the residual stream to itself has one order for
    # rows and columns: permuting either alone would destroy a diagonal that is there from the start.
    axes = role.info.axes
    if axes[0] is Axis.POSITION:
        return None, Text("a table of positions may be a fixed pattern, which every model shares")
    if axes.count(Axis.RESIDUAL) > 1:
        return None, Text("rows and columns are one axis, so neither may be permuted alone")
    for position in range(len(axes) - 1, -1, -1):
        if axes[position].exchangeable and axes[position] not in ordered:
            return position, AXES[axes[position]]
    reasons = {**ORDERED, **ordered}
    return None, joined(reasons[axis] for axis in axes if axis in reasons)
