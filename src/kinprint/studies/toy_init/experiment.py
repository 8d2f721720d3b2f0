"""Set up and run the toy GPT-2 experiment: what two independent trainings do to norm weights that start at 1, or at N(0, 1).

Norms that start at 1 hardly move, so any two models have a raw cosine near 1 whatever they learned; norms that start at random
keep their own start, and the cosine is near 0. The cosine tells of the initialisation, not of descent. The published cosines
of the random models are not those that torch's CPU generator gives for the published seeds, so they are matched in range, not
digit by digit. Importing this module needs no torch; `run_toy` does.
"""

from __future__ import annotations

import os
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from kinprint._util.progress import Progress, quiet
from kinprint.errors import BadSetting, NeedsExtra
from kinprint.text import Text

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

    def distinct(self) -> ToySetting:
        """Return the same on text that differs; this is not the original's, so to save time its batch need not be either."""
        return replace(self, distinct_data=True, batch=min(self.batch, 2))

    def __post_init__(self) -> None:
        least = {"positions": 2, "vocabulary": 4}  # one token is read, one predicted; a token has three successors
        for name in ("layers", "width", "heads", "batch", "steps", *least):
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
    note: Text | None = None  # on what an earlier run has kept of it


FULL = ToySetting()

# For two cores: the published steps, learning rate and dropout, and heads of the published size, in a smaller model on shorter
# sequences. The batch is one sequence repeated, so one row has the same gradient as 32 but for the dropout masks, of which 32
# are averaged there and one is taken here. (With distinct_data each row is a draw of its own, and a smaller batch is less data.)
REDUCED = ToySetting(layers=3, width=192, heads=3, positions=48, batch=1)


def run_toy(setting: ToySetting, *, folder: Path | None = None, progress: Progress = quiet) -> tuple[ToyModel, ...]:
    """Train the four models of `PLAN`, one on each core; `NeedsExtra` if torch is not installed.

    What is kept in `folder` is not done again (see `training.train`). `progress` gets each step's model and number.
    """
    try:
        from kinprint.studies.toy_init.training import one_thread, train
    except ModuleNotFoundError as missing:
        if missing.name != "torch":
            raise
        raise NeedsExtra("toy-init", extra="torch") from missing
    ended = Event()

    def told(name: str, done: int, total: int) -> None:
        if ended.is_set():  # another model failed, or the user has had enough
            raise CancelledError
        progress(name, done, total)

    def trained(model: tuple[str, Initialisation], stream: int, seed: int) -> ToyModel:
        return train(setting, *model, stream=stream, seed=seed, folder=folder, progress=told)

    with one_thread(), ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            return tuple(pool.map(trained, PLAN, setting.streams, setting.seeds))
        finally:
            ended.set()
