"""Store vectors in eight bits a value, on a scale that gives way to outliers.

Exact tests hold for any function of the values, so that rounding costs power and never validity. Scales of norms have a few giant
entries among thousands that differ by a percent: steps are even in asinh((x − centre)/spread), as fine as 1/30 of the median
deviation beside an entry that stands out a hundredfold. An entry of exactly zero (a pruned dimension) stays zero.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.int8]
Scales = NDArray[np.float32]

MOST = 127
ZERO = -128  # the code of an entry that is exactly zero


def encode(vectors: NDArray[np.floating[Any]], *, centred: bool) -> tuple[Codes, Scales]:
    """Return the codes of vectors (…, n), and centre, spread and step of each; `centred` where zero is no natural centre."""
    x = vectors.astype(np.float64)
    centre = np.median(x, axis=-1) if centred else np.zeros(x.shape[:-1])
    # in float32, as it is stored
    centre = centre.astype(np.float32).astype(np.float64)
    off = x - centre[..., None]
    spread = np.median(np.abs(off), axis=-1)
    spread = np.where(spread > 0.0, spread, np.abs(off).mean(axis=-1)).astype(np.float32).astype(np.float64)
    safe = np.where(spread > 0.0, spread, 1.0)
    bent = np.arcsinh(off / safe[..., None])
    step = (np.abs(bent).max(axis=-1, initial=0.0) / MOST).astype(np.float32).astype(np.float64)
    codes = np.rint(bent / np.where(step > 0.0, step, 1.0)[..., None])
    codes = np.where(x == 0.0, ZERO, np.clip(codes, -MOST, MOST))
    return codes.astype(np.int8), np.stack([centre, spread, step], axis=-1).astype(np.float32)


def decode(codes: Codes, scales: Scales) -> NDArray[np.float32]:
    """Return the values, as far as the codes tell."""
    centre, spread, step = (scales[..., at, None] for at in range(3))
    with np.errstate(over="ignore", invalid="ignore"):
        values: NDArray[np.float32] = codes * step  # float32: finer than the codes by far
        np.sinh(values, out=values)
        values *= spread
        values += centre
    values[codes == ZERO] = 0.0
    return values
