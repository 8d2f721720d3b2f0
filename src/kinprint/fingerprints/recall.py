"""Make short vectors of a fingerprint, by which a search finds candidates among a million models.

Each family looks at one kind of part, at places counted from both ends of a model, and projects it with fixed random signs on a few
dozen numbers. For unrelated models the cosine of two such vectors of n numbers scatters about 0 by 1/√n, except for what no order
or basis alters (`tokens`, `sorted`), where models that were made alike resemble each other: these propose and prove nothing. The
vectors follow from the stored fingerprint alone, so that a catalog can be indexed anew without reading models.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import NEAR_CONSTANT, FloatArray
from kinprint.arch.roles import MLPS
from kinprint.errors import DegenerateInput
from kinprint.evidence.exchangeability import unit_ranks
from kinprint.fingerprints.base import Features
from kinprint.fingerprints.compact.parts import ENDS, QUANTILES, RESIDUAL_NORMS
from kinprint.fingerprints.compact.sides import places, sorted_norms, stored
from kinprint.fingerprints.file import Fingerprint

RECALL_VERSION = 1
FAMILIES: Mapping[str, int] = MappingProxyType({"norms": 64, "rows": 48, "gram": 48, "tokens": 48, "sorted": 48})
"""Families and the length of their vectors: parts in place (norms, rows), in any basis (gram), in any order or basis (others)."""

IN_PLACE = ("norms", "rows", "gram")  # families whose null is known
METHOD = "compact"
_ENTRIES = 4096  # of a block that are projected: more make the projection no better than its length allows

_LENGTHS = {
    "sorted": QUANTILES
}  # of blocks that are shorter: a model has 64 of them, whose whole projections take 50 MB

Block = tuple[int, FloatArray]  # a number that names the place, and the values there


def recall_vectors(fingerprint: Fingerprint) -> dict[str, NDArray[np.float32]]:
    """Return the vectors of a fingerprint, at unit length; a family that it holds nothing for is absent."""
    features = fingerprint.features.get(METHOD)
    return {} if features is None else features_vectors(features)


def features_vectors(features: Features) -> dict[str, NDArray[np.float32]]:
    """Return the vectors of the compact part of a fingerprint."""
    found: dict[str, NDArray[np.float32]] = {}
    for name, blocks in _BLOCKS.items():
        total, count = np.zeros(FAMILIES[name]), 0
        try:
            for place, values in blocks(features):
                flat = values.ravel()[:_ENTRIES]
                length = float(np.linalg.norm(flat))
                if length > 0.0:
                    total += _signs(name, place, FAMILIES[name])[:, : flat.size] @ (flat / length)
                    count += 1
        except DegenerateInput:
            continue
        length = float(np.linalg.norm(total))
        if count and length > 0.0:
            found[name] = (total / length).astype(np.float32)
    return found


@cache
def _signs(name: str, place: int, count: int) -> NDArray[np.float32]:
    """Return the projection of one block: signs that are the same for all models."""
    rng = np.random.default_rng([RECALL_VERSION, place + 1, *name.encode()])
    bits = np.unpackbits(rng.integers(0, 256, (count, _ENTRIES // 8), dtype=np.uint8), axis=1)
    used = bits[:, : _LENGTHS.get(name, _ENTRIES)]
    return used.astype(np.float32) * 2.0 - 1.0


def _norms(features: Features) -> Iterator[Block]:
    """Yield for each kind of norm the mean ranks over the layers of each end: means change little with depth."""
    for number, role in enumerate(RESIDUAL_NORMS):
        values = stored(features, name := f"norms.{role.value}", 2, (2 * ENDS, _ENTRIES))
        if values is None:
            continue
        at = np.array(places(features, name, len(values)))
        for end, chosen in enumerate((at < ENDS, at >= ENDS)):
            varying = [x for x in values[chosen].astype(np.float64) if np.ptp(x) > NEAR_CONSTANT * np.abs(x).max()]
            if varying:
                yield 2 * number + end, unit_ranks(np.array(varying)).mean(axis=0)


def _rows(features: Features) -> Iterator[Block]:
    """Yield rows of up, each at unit length."""
    for mlp in MLPS:  # a layer has one of them, and an expert stands where its dense parent stood
        values = stored(features, name := f"rows.{mlp.up.value}", 3, (2 * ENDS, 64, _ENTRIES))
        for place, rows in () if values is None else zip(places(features, name, len(values)), values, strict=True):
            x = rows.astype(np.float64)
            lengths = np.linalg.norm(x, axis=1, keepdims=True)
            yield place, np.divide(x, lengths, out=np.zeros_like(x), where=lengths > 0.0)


def _gram(features: Features) -> Iterator[Block]:
    values = stored(features, "gram", 3, (2 * ENDS, 512, _ENTRIES))
    for place, profiles in () if values is None else zip(places(features, "gram", len(values)), values, strict=True):
        x = profiles.astype(np.float64)
        yield place, x - x.mean(axis=1, keepdims=True)


def _tokens(features: Features) -> Iterator[Block]:
    if (values := stored(features, "tokens", 1, (_ENTRIES,))) is not None:
        x = values.astype(np.float64)
        yield 0, x - x.mean()


def _sorted(features: Features) -> Iterator[Block]:
    yield from sorted_norms(features).items()


_BLOCKS: Mapping[str, Callable[[Features], Iterator[Block]]] = {
    "norms": _norms, "rows": _rows, "gram": _gram, "tokens": _tokens, "sorted": _sorted,
}  # fmt: skip
