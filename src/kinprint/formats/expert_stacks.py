"""One matrix of several that are stored as one tensor with three axes: the experts of a layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kinprint.formats.dtypes import Array, block_of
from kinprint.formats.plan import TensorSlice
from kinprint.formats.tensors import TensorInfo


def one_of(stack: TensorInfo, index: int) -> TensorInfo:
    """Return the matrix at `index` along the first axis: a piece of the stack's bytes if that has bytes of its own."""
    size = stack.width
    name, shape = f"{stack.name}[{index}]", stack.shape[1:]
    if stack.made is None and size % block_of(stack.dtype, tensor=stack.name)[0] == 0:
        span = stack.span(index * size, (index + 1) * size)
        return TensorInfo(name, stack.dtype, shape, stack.file, span.start, span.end)
    return TensorInfo(name, stack.dtype, shape, stack.file, 0, stack.nbytes // stack.shape[0], OneOf(stack, index))


@dataclass(frozen=True, slots=True)
class OneOf:
    """A matrix of a stack that is itself made of other tensors, or whose blocks run across its matrices."""

    stack: TensorInfo
    index: int

    def parts(self, start: int, stop: int) -> Sequence[TensorSlice]:
        """Return the rows within the stack."""
        count, *rest = self.stack.shape[1:]
        width = self.stack.width // max(1, count)
        first = self.index * self.stack.width
        return [TensorSlice(self.stack, ((first + start * width, first + stop * width),), (stop - start, *rest))]

    def build(self, start: int, stop: int, parts: Sequence[Array]) -> Array:  # noqa: ARG002 - the part is the answer
        """Return the rows as they come."""
        return parts[0]
