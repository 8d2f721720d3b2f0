"""A moving picture: a figure and how to draw its frames."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from matplotlib.figure import Figure


@dataclass(frozen=True)
class Film:
    """Frames of one figure; ``update`` draws frame number n on it."""

    figure: Figure
    frames: int
    frames_per_second: int
    update: Callable[[int], None]
