"""Set up and run the toy GPT-2 experiment: what two independent trainings do to norm weights that start at 1, or at N(0, 1).

Norms that start at 1 hardly move, so any two models have a raw cosine near 1 whatever they learned; norms that start at random
keep their own start, and the cosine is near 0. The cosine tells of the initialisation, not of descent. The published cosines
of the random models are not those that torch's CPU generator gives for the published seeds, so they are matched in range, not
digit by digit. Importing this module needs no torch; `run_toy` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from kinprint._util.progress import Progress, quiet
from kinprint.errors import BadSetting, NeedsExtra

Initialisation = Literal["ones", "random"]

NORMS = ("ln_1", "ln_2")
_STARTS: tuple[Initialisation, ...] = ("ones", "random")
PLAN = tuple((f"{start}-{twin}", start) for start in _STARTS for twin in "ab")


@dataclass(frozen=True)
class ToySetting:
    """Sizes and seeds of the experiment; the defaults are the published ones."""

    layers: int = 12
    width: int = 512
    heads: int = 8
    vocabulary: int = 256
    positions: int = 128  # tokens of a sequence: all but the last are read, all but the first predicted
    batch: int = 32
    steps: int = 300
    learning_rate: float = 1e-3
    dropout: float = 0.1
    streams: tuple[int, ...] = (1, 2, 3, 4)  # as the seeds, one for each model of `PLAN`
    seeds: tuple[int, ...] = (10, 20, 30, 40)
    distinct_data: bool = False
    threads: int = 2  # sums are split by thread: two runs are equal only with equal threads

    def __post_init__(self) -> None:
        least = {"positions": 2, "vocabulary": 4}  # one token is read, one predicted; a token has three successors
        for name in ("layers", "width", "heads", "batch", "steps", "threads", *least):
            if getattr(self, name) < least.get(name, 1):
                got = getattr(self, name)
                raise BadSetting(f"toy setting: {name} must be at least {least.get(name, 1)}, got {got}")
        if self.width % self.heads:
            raise BadSetting(f"toy setting: {self.heads} heads do not divide a width of {self.width}")
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

# For two cores: the published steps, learning rate and dropout, and heads of the published size, in a smaller model on shorter
# sequences. The batch is one sequence repeated, so one row has the same gradient as 32 but for the dropout masks, of which 32
# are averaged there and one is taken here. (With distinct_data each row is a draw of its own, and a smaller batch is less data.)
# One thread: two gain a third on an idle machine, and wait for each other, several times as long, on a busy one.
REDUCED = ToySetting(layers=3, width=192, heads=3, positions=48, batch=1, threads=1)


def run_toy(setting: ToySetting, *, progress: Progress = quiet) -> tuple[ToyModel, ...]:
    """Train the four models of `PLAN`; `progress` gets each step's model and number. `NeedsExtra` if torch is not installed."""
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
