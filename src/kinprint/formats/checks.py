"""Check untrusted weight files for impossible shapes, Git LFS pointers and damage, the same for all formats."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kinprint.errors import FormatError

MAX_SIDES = 64  # numpy's limit
MAX_COUNT = 1 << 59  # numpy counts bytes in 63 bits, whichever sides are zero
DAMAGED = "the file is truncated or damaged; fetch it again"
_LFS_POINTER = b"version https://git-lfs"


def damaged(message: str) -> FormatError:
    """Return the error for a file that contradicts itself or ends too early."""
    return FormatError(message, hint=DAMAGED)


def too_large(shape: Sequence[int]) -> bool:
    """Whether a shape has more axes or elements than an array can have."""
    return len(shape) > MAX_SIDES or math.prod(max(side, 1) for side in shape) > MAX_COUNT


def refuse_lfs_pointer(head: bytes | memoryview, label: str) -> None:
    """Refuse the short text that Git LFS leaves in place of a file that it has not fetched."""
    if bytes(head[: len(_LFS_POINTER)]) == _LFS_POINTER:
        said = f"{label}: a Git LFS pointer instead of the weights"
        raise FormatError(said, hint="fetch the weights themselves: git lfs pull")
