"""Define what a report holds beside measurements and verdict: layer grids, bytes read, declarations of model cards."""

import struct
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from kinprint._util.records import dataclass
from kinprint.text import Text

Grid = list[list[float | None]]
UNITS = {"cosine": 10**6, "cosine_null": 10**6, "pearson": 10**6, "z": 10**3}  # grids, and in which parts of one
_MOST, _NO_NUMBER = (1 << 31) - 1, -(1 << 31)


def packed(*grids: Iterable[Iterable[float | None]]) -> str:
    """Return the four grids of a role, each in rows, as the cells of a `LayerGrid`."""
    import numpy as np  # here: `kinprint --help` must not wait for it

    whole = np.array([[x for row in grid for x in row] for grid in grids], dtype=np.float64)  # None becomes NaN
    scaled = np.rint(np.clip(whole * np.array([[unit] for unit in UNITS.values()]), -_MOST, _MOST))
    return b64encode(np.where(np.isnan(scaled), _NO_NUMBER, scaled).T.astype("<i4").tobytes()).decode()


@dataclass(frozen=True)
class LayerGrid:
    """One role, every layer of A against every layer of B. Rows of the grids are layers of A, columns layers of B.

    Attributes
    ----------
    role, kind : Which role, and "vector" or "matrix".
    layers_a, layers_b : Numbers of the layers, in the order of rows and columns.
    cells : Base64 of four signed little-endian integers of four bytes for each pair of layers, row by row: the raw cosine, its
        mean over all permutations (what the spreads alone make of unrelated layers) and the Pearson correlation in millionths;
        z, the distance from the null in thousandths of a standard deviation, which cosine and Pearson share, as both are
        linear in the same dot product. -2**31 where a layer is constant.
    n : Exchangeable units permuted.
    null, assumptions : What is permuted, and what must hold.
    rows : Rows of a matrix that entered, from its first (half-open); None for all, and for vectors.
    status, reason : "ok", or "not_comparable" with the reason and no grids.
    """

    role: str
    kind: str
    layers_a: tuple[int, ...]
    layers_b: tuple[int, ...]
    cells: str
    n: int
    null: Text
    assumptions: tuple[Text, ...] = ()
    rows: tuple[int, int] | None = None
    status: str = "ok"
    reason: Text | None = None

    def __post_init__(self) -> None:
        if len(b64decode(self.cells, validate=True)) != 16 * len(self.layers_a) * len(self.layers_b):
            raise ValueError(f"the grids of {self.role!r:.80} do not have a row and a column for each layer")

    def grids(self) -> dict[str, Grid]:
        """Return cosine, cosine_null, pearson and z, each as one row for each layer of A; None where there is no number."""
        fours, width = list(struct.iter_unpack("<4i", b64decode(self.cells))), len(self.layers_b)
        rows = [fours[start : start + width] for start in range(0, len(fours), max(1, width))]
        units = enumerate(UNITS.items())
        return {
            name: [[None if x[k] == _NO_NUMBER else x[k] / unit for x in row] for row in rows]
            for k, (name, unit) in units
        }

    def every(self, step: int) -> "LayerGrid":
        """Return the grid with one layer in `step` of either model."""
        if step == 1:
            return self
        cells, width, height = b64decode(self.cells), len(self.layers_b), len(self.layers_a)
        starts = (16 * (i * width + j) for i in range(0, height, step) for j in range(0, width, step))
        kept = b64encode(b"".join(cells[start : start + 16] for start in starts)).decode()
        return replace(self, layers_a=self.layers_a[::step], layers_b=self.layers_b[::step], cells=kept)

    @staticmethod
    def older(data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return parsed JSON with its grids packed, which reports held as lists before."""
        return {**data, "cells": packed(*(data[name] for name in UNITS))} if "cells" not in data else data


@dataclass(frozen=True)
class FileReads:
    """Bytes read of one file.

    Attributes
    ----------
    model, file : The model as the user named it, and the file's name in it.
    size, identity : Of the whole file; None where nothing but its contents is known.
    spans : Intervals read (half-open, merged, in order).
    bytes_read : Their length in all.
    sha256 : Digest of the list of all ranges with their own digests, in the order of offsets; an evidence bundle holds that
        list. Two runs that read the same bytes have the same digest.
    """

    model: str
    file: str
    size: int | None
    identity: str | None
    spans: tuple[tuple[int, int], ...]
    bytes_read: int
    sha256: str


@dataclass(frozen=True)
class Declaration:
    """Origin of a model as its card and configs declare. None and empty mean that nothing is declared."""

    base_models: tuple[str, ...]
    relation: str | None  # "finetune", "adapter", "merge", "quantized", as the hub spells it
    licence: str | None
    where: tuple[str, ...]  # files that say so
    reason: Text | None = None  # why nothing could be read, if that is so
    known: bool = True  # whether silence means something: all that the model could say was read and understood


UNDECLARED = "undeclared"  # the weights show a derivation that no card declares
DECLARED = "declared"  # the weights show a derivation, and a card declares it
OTHER_DECLARED = "other_declared"  # likewise, and cards name a base that is not recognisably the other model
NOT_SHOWN = "declared_not_shown"  # a card declares a derivation that the weights do not show
NOTHING_DECLARED = "nothing_declared"  # neither
NOT_JUDGED = "not_judged"  # no card could be read, or the weights could not be tested
STATES = (UNDECLARED, DECLARED, OTHER_DECLARED, NOT_SHOWN, NOTHING_DECLARED, NOT_JUDGED)


@dataclass(frozen=True)
class DeclaredFinding:
    """Declarations of both models' cards, beside what the weights show."""

    state: str
    sentence: Text
    a: Declaration
    b: Declaration
    named_by: tuple[str, ...] = ()  # "A", "B": the sides that name the other model as their base
    licences: Text | None = None  # a sentence, where the licences differ and the weights are related
