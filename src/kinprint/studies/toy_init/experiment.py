"""The toy GPT-2 experiment: what two independent trainings do to norm weights that start at one, or at random.

Four small GPT-2 are trained on simple sequences. Norms that start at 1 hardly move, so any two models have a raw cosine
near 1 whatever they learned; norms that start at N(0, 1) keep their own start, and the cosine is near 0. The cosine
tells of the initialisation, not of descent.

The published experiment reports raw cosines only, and its four data streams are phase shifts of one sequence. Here the
final weights come back whole, so Pearson can be shown beside the cosine, and ``distinct_data=True`` trains each model
on text of its own. The published cosines of the random models are not those that torch's CPU generator gives for the
published seeds, so its figures are matched in range, not digit by digit.

Importing this package needs no torch; `run_toy` does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from kinprint.errors import BadSetting, NeedsExtra

Initialisation = Literal["ones", "random"]
Progress = Callable[[str, int, int], None]

NORMS = ("ln_1", "ln_2")
PLAN: tuple[tuple[str, Initialisation], ...] = (
    ("ones-a", "ones"),
    ("ones-b", "ones"),
    ("random-a", "random"),
    ("random-b", "random"),
)


@dataclass(frozen=True)
class ToySetting:
    """Sizes and seeds of the experiment; the defaults are the published ones.

    ``positions`` counts the tokens of a sequence: all but the last are read, all but the first predicted. ``streams``
    and ``seeds`` have one entry for each of the four models of `PLAN`. ``threads`` is part of the setting because sums
    are split by thread: two runs are equal only with equal threads.
    """

    layers: int = 12
    width: int = 512
    heads: int = 8
    vocabulary: int = 256
    positions: int = 128
    batch: int = 32
    steps: int = 300
    learning_rate: float = 1e-3
    dropout: float = 0.1
    streams: tuple[int, ...] = (1, 2, 3, 4)
    seeds: tuple[int, ...] = (10, 20, 30, 40)
    distinct_data: bool = False
    threads: int = 2

    def __post_init__(self) -> None:
        for name in ("layers", "width", "heads", "batch", "steps", "threads"):
            if getattr(self, name) < 1:
                raise BadSetting(f"toy setting: {name} must be at least 1, got {getattr(self, name)}")
        if self.width % self.heads:
            raise BadSetting(f"toy setting: {self.heads} heads do not divide a width of {self.width}")
        if self.positions < 2:
            raise BadSetting(f"toy setting: positions must be at least 2 to predict a token, got {self.positions}")
        if self.vocabulary < 4:
            raise BadSetting(f"toy setting: vocabulary must be at least 4, got {self.vocabulary}")
        if not 0 <= self.dropout < 1:
            raise BadSetting(f"toy setting: dropout must be in [0, 1), got {self.dropout}")
        if not self.learning_rate > 0:
            raise BadSetting(f"toy setting: learning_rate must be positive, got {self.learning_rate}")
        for name in ("streams", "seeds"):
            values = getattr(self, name)
            # torch's CPU generator ignores the upper half of a seed: two such seeds would be one
            if len(values) != len(PLAN) or not all(0 <= value < 2**32 for value in values):
                raise BadSetting(f"toy setting: {name} must be {len(PLAN)} numbers from 0 to 2³² − 1, got {values}")


@dataclass(frozen=True, eq=False)
class ToyModel:
    """One trained model: its losses at every step and its norm weights, layers × width, before and after."""

    name: str
    initialisation: Initialisation
    stream: int
    seed: int
    losses: tuple[float, ...]
    norms: dict[str, NDArray[np.float64]]
    start: dict[str, NDArray[np.float64]]


FULL = ToySetting()

# For two cores: the published steps, learning rate and dropout, and heads of the published size, in a smaller model on
# shorter sequences. The batch is one sequence repeated, so one row has the same gradient as 32 but for the dropout
# masks, of which 32 are averaged there and one is taken here. (With distinct_data each row is a draw of its own, and a
# smaller batch is less data.) One thread: two gain a third on an idle machine, and wait for each other on a busy one
# until the run takes several times as long.
REDUCED = ToySetting(layers=3, width=192, heads=3, positions=48, batch=1, threads=1)


def run_toy(setting: ToySetting, *, progress: Progress | None = None) -> tuple[ToyModel, ...]:
    """Train the four models, two with norm weights 1 and two with N(0, 1), and return them in the order of `PLAN`.

    Parameters
    ----------
    setting
        `FULL`, `REDUCED`, or any other.
    progress
        Called after every step with the model's name, the steps done and the steps there are.

    Raises
    ------
    NeedsExtra
        If torch is not installed.
    """
    try:
        from kinprint.studies.toy_init.training import train
    except ModuleNotFoundError as missing:
        if missing.name != "torch":
            raise
        raise NeedsExtra("toy-init", extra="torch") from missing
    return tuple(
        train(setting, name, initialisation, stream=stream, seed=seed, progress=progress)
        for (name, initialisation), stream, seed in zip(PLAN, setting.streams, setting.seeds, strict=True)
    )
