"""Plant a relation of known strength: a fingerprint as a child would have, to say what a search would have found."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinprint.fingerprints.base import Features
from kinprint.fingerprints.compact.codes import ZERO, encode
from kinprint.fingerprints.compact.sides import stored

_AXES = {"norms": 2, "rows": 3, "embeddings": 2, "gram": 3, "tokens": 1}


def planted(features: Features, correlation: float, seed: int = 0) -> Features:
    """Return a fingerprint whose every value correlates so much with the one given, and is else like a stranger's.

    The rest is the fingerprint's own with places drawn anew: the same spread, the same outliers. Sorted norms are left out.
    """
    rng = np.random.default_rng(seed)
    arrays: dict[str, NDArray[Any]] = {}
    for name, array in features.arrays.items():
        axes = _AXES.get(name.partition(".")[0])
        if name.startswith("sorted"):
            continue
        values = None if axes is None else stored(features, name, axes, (1 << 16,) * axes)
        if values is None:
            arrays.setdefault(name, array)
            continue
        own = values.astype(np.float64)
        shuffled = own
        for axis in range(max(0, own.ndim - 2), own.ndim):
            shuffled = rng.permuted(shuffled, axis=axis)
        centre = own.mean(axis=-1, keepdims=True)
        mixed = centre + correlation * (own - centre) + np.sqrt(1.0 - correlation**2) * (shuffled - centre)
        mixed[array == ZERO] = 0.0
        arrays[name], arrays[f"{name}.scales"] = encode(mixed, centred=name.startswith("norms"))
    return replace(features, arrays=arrays)
