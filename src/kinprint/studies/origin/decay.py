"""Compare every layer of A with every layer of B, and test whether the same layer stands out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.studies.layer_pairs import LayerPair
from kinprint.studies.opened import StudyRun
from kinprint.studies.origin.shared import COSINE, PEARSON, both_norms, is_complete
from kinprint.studies.outcome import Missing, Section, columns
from kinprint.text import Text

DRAWS = 199
FULL_DRAWS = 1_999
SWAPS = 1_999
THRESHOLD = 0.01  # dominance above which the published script speaks of shared origin


@dataclass(frozen=True, eq=False)
class Decay:
    """The matrix of mean cosines of both norms, and draws of its null."""

    a: str
    b: str
    layers: tuple[int, ...]
    matrix: FloatArray
    diagonal: FloatArray  # mean cosine of the same layer
    off_mean: float  # mean over pairs of different layers
    dominance: float  # mean of the diagonal minus that of the rest
    null_matrix: FloatArray
    null_diagonal: FloatArray  # from permutations of the residual dimensions of B, one for all layers
    null_dominance: FloatArray  # likewise
    swapped: FloatArray  # dominance under permutations of B's layers
    pearson: FloatArray


def off_diagonal_mean(matrix: FloatArray) -> float:
    """Return the mean of what is not on the diagonal."""
    size = matrix.shape[0]
    return float((matrix.sum() - np.trace(matrix)) / (size * (size - 1)))


def compute(pairs: Sequence[LayerPair], *, draws: int, seed: int) -> Decay:
    """Return the matrix and its nulls, for norms on the same layers; `Missing` if there is only one layer."""
    first, size = pairs[0], len(pairs[0].layers)
    if size < 2:
        raise Missing("a matrix of layers needs at least two; {a} and {b} share one", a=first.a, b=first.b)
    matrix = np.mean([pair.grid.cosine for pair in pairs], axis=0)
    rng = np.random.default_rng(seed)
    units = [tuple(side / np.linalg.norm(side, axis=1, keepdims=True) for side in (p.left, p.right)) for p in pairs]
    diagonals, dominances, swapped = np.empty((draws, size)), np.empty(draws), np.empty(SWAPS)
    for number in range(draws):
        order = rng.permutation(first.left.shape[1])
        drawn = np.mean([left @ right[:, order].T for left, right in units], axis=0)
        diagonals[number] = np.diagonal(drawn)
        dominances[number] = diagonals[number].mean() - off_diagonal_mean(drawn)
    total = float(matrix.sum())
    for number in range(SWAPS):
        traced = float(matrix[np.arange(size), rng.permutation(size)].sum())
        swapped[number] = traced / size - (total - traced) / (size * (size - 1))
    diagonal, off_mean = np.diagonal(matrix), off_diagonal_mean(matrix)
    found = matrix, diagonal, off_mean, float(diagonal.mean()) - off_mean
    null = np.mean([pair.grid.cosine_null_mean for pair in pairs], axis=0)
    pearson = np.mean([pair.pearson for pair in pairs], axis=0)
    return Decay(first.a, first.b, first.layers, *found, null, diagonals, dominances, swapped, pearson)


def decay(run: StudyRun, section: Section, a: str, b: str) -> None:
    """Compare all layers with all layers, and the diagonal with the rest."""
    pairs = list(both_norms(run, a, b, section.missing).values())
    found = compute(pairs, draws=FULL_DRAWS if run.request.full else DRAWS, seed=run.request.seed)
    middle, null = len(found.layers) // 2, found.null_dominance
    early, late = float(found.diagonal[:middle].mean()), float(found.diagonal[middle:].mean())
    reached, reached_swapped = (
        (1 + int((drawn >= found.dominance).sum())) / (1 + drawn.size) for drawn in (null, found.swapped)
    )
    rows = [
        (Text("diagonal: same layer"), float(found.diagonal.mean()), float(found.null_diagonal.mean())),
        (Text("off the diagonal"), found.off_mean, off_diagonal_mean(found.null_matrix)),
        (Text("dominance: diagonal minus the rest"), found.dominance, float(null.mean())),
        (Text("sd of the dominance under permuted dimensions"), None, float(null.std(ddof=1))),
        (Text("share of permuted dominances that reach it"), reached, None),
        (Text("share of dominances that reach it with B’s layers in random order"), reached_swapped, None),
        (Text("first half of the layers"), early, None),
        (Text("second half of the layers"), late, None),
        (Text("“decay”: first half minus second"), early - late, None),
        (Text("mean Pearson, both norms"), float(found.pearson.mean()), 0.0),
    ]
    heads = columns("what; value .4; independent: if independent .4")
    section.add_table("decay", Text("Diagonal and rest, {a} against {b}", a=a, b=b), heads, rows)
    _add_alignment(section, pairs)
    section.note(
        "Under a permutation of B’s residual dimensions nothing is shared but each vector’s mean and spread: a dominance "
        "inside that null says nothing about descent. Same-depth layers of any two models have similar means and "
        "spreads, which alone can put the diagonal above the rest. The published script’s own threshold is {threshold}.",
        threshold=THRESHOLD,
    )
    section.add_picture("decay", "origin.decay", found, a=a, b=b)
    section.comparable = len(pairs) == 2 and all(map(is_complete, pairs))
    section.values |= {f"layer {layer}": float(x) for layer, x in zip(found.layers, found.diagonal, strict=True)}


def _add_alignment(section: Section, pairs: Sequence[LayerPair]) -> None:
    """Add how many layers the best one-to-one assignment leaves where they are; one is expected by chance."""
    from scipy.optimize import linear_sum_assignment  # here, because it is slow to load

    rows = []
    for pair in pairs:
        for measure, matrix in ((COSINE, pair.grid.cosine), (PEARSON, pair.grid.pearson)):
            one, two = linear_sum_assignment(matrix, maximize=True)
            in_place, mean = int((one == two).sum()), float(matrix[one, two].mean())
            rows.append((pair.role.value, measure, len(pair.layers), in_place, 1.0, mean))
    heads = columns(
        "role; measure; n: layers; in_place: assigned to the same layer; chance: expected by chance .1; "
        "mean: mean of the assigned pairs .4"
    )
    section.add_table("layer_alignment", Text("The best one-to-one assignment of layers"), heads, rows)
