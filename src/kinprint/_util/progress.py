"""How long work tells how far it is."""

from collections.abc import Callable

Progress = Callable[[str, int, int], None]  # called with the stage, how much of it is done, and how much there is


def quiet(_stage: str, _done: int, _total: int) -> None:
    """Tell nobody."""
