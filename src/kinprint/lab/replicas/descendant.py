"""Make INTELLECT's norms: GLM's, with the published share of elements moved by whole BF16 steps.

Published (sionic, figure 3-1, read off the plot): the share changed at sixteen layers, an upper limit beyond, and the mean
absolute change of the input norms at six. Assumed: shares in between, one step per element where no mean change
is known (at those shares one step each is already as much as the plot shows), and the same shares for the other norm.
"""

import numpy as np
from numpy.typing import NDArray

from kinprint.lab.replicas.published_figures import INPUT, published

LAYERS = 46
ONE_STEP = 2.0**-8 / 4096
# The published layer of the largest raw cosine. With one element by one step it beats layers 44 and 45, as its norm is larger.
CLOSEST = 41


def shares() -> NDArray[np.float64]:
    """Return the share of changed elements by layer; 1/4096 stands for a single element."""
    plot = published()["sionic_tables"]["fig3_1_read_from_png"]
    known = {int(layer): percent / 100 for layer, percent in plot["changed_pct_approx"].items()}
    late = {layer: count / 4096 for layer, count in enumerate((5, 1, 2, 2, 1, 1), 40)}
    points = known | {16: plot["layers16plus_pct_max"] / 100} | late
    at = sorted(points)
    return np.exp(np.interp(np.arange(LAYERS), at, np.log([points[i] for i in at])))


def mean_changes() -> dict[int, float]:
    """Return the mean absolute change of the input norms at the layers where one is known."""
    plot = published()["sionic_tables"]["fig3_1_read_from_png"]["mean_abs_diff_approx"]
    known = {int(layer): value for layer, value in plot.items()}
    return known | {1: float(np.sqrt(known[0] * known[2])), CLOSEST: ONE_STEP}


def descend(parent: NDArray[np.float32], kind: str, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return the descendant's norms for a parent's, without what follows the shared layers."""
    changes = mean_changes() if kind == INPUT else {}
    counts = [max(1, round(share * parent[0].size)) for share in shares()]
    return np.array([_moved(parent[at], count, changes.get(at), rng) for at, count in enumerate(counts)])


def _moved(row: NDArray[np.float32], count: int, change: float | None, rng: np.random.Generator) -> NDArray[np.float32]:
    order = rng.permutation(row.size)
    signs = rng.choice(np.array([-1, 1]), size=count)
    if change is None:
        return _shifted(row, order[:count], signs)
    total = 1.01 * change * row.size
    steps = np.abs(_shifted(row, np.arange(row.size), np.ones(row.size, dtype=np.int64)) - row)
    chosen = order[:count]
    if steps[chosen].sum() > total:
        # Small steps belong to small values: the last run of `count` in order of step that is not too much.
        order = order[np.argsort(steps[order], kind="stable")]
        runs = np.convolve(steps[order], np.ones(count), mode="valid")
        begin = max(0, int(np.searchsorted(runs, total)) - 1)
        return _shifted(row, order[begin : begin + count], signs)
    spread = rng.exponential(size=count)
    low, high = 0.0, 1000.0
    for _ in range(40):
        middle = (low + high) / 2
        moved = _shifted(row, chosen, signs * (1 + np.floor(middle * spread).astype(np.int64)))
        low, high = (middle, high) if np.abs(moved - row).sum() < change * row.size else (low, middle)
    return _shifted(row, chosen, signs * (1 + np.floor(low * spread).astype(np.int64)))


def _shifted(row: NDArray[np.float32], at: NDArray[np.int64], steps: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the row with elements moved along the BF16 grid, through zero if need be."""
    bits = row.view(np.uint32) >> np.uint32(16)
    ordinals = np.where(bits & 0x8000, -(bits & 0x7FFF).astype(np.int64), bits.astype(np.int64))
    ordinals[at] += steps
    magnitude = np.abs(ordinals).astype(np.uint32) | np.where(ordinals < 0, 0x8000, 0).astype(np.uint32)
    return (magnitude << np.uint32(16)).view(np.float32)
