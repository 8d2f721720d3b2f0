"""The decay matrix of the first accusation: every layer of A against every layer of B, and what its diagonal means."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.arch import Role
from kinprint.studies.opened import Stage
from kinprint.studies.origin.shared import COSINE, PEARSON, NormPair, accused, both_norms, is_published, origin
from kinprint.studies.outcome import Cell, Check, Missing, Section, Table, column, picture, table
from kinprint.text import Text

DRAWS = 199
FULL_DRAWS = 1_999
SWAPS = 1_999
THRESHOLD = 0.01
"""Dominance above which the published script speaks of shared origin."""


@dataclass(frozen=True)
class Decay:
    """The matrix of mean cosines of both norms, and draws of its null.

    ``null_diagonal`` and ``null_dominance`` come from permutations of the residual dimensions of B (one for all layers);
    ``swapped`` from permutations of B's layers.
    """

    a: str
    b: str
    layers: tuple[int, ...]
    matrix: FloatArray
    null_matrix: FloatArray
    null_diagonal: FloatArray
    null_dominance: FloatArray
    swapped: FloatArray
    pearson: FloatArray
    pearson_sd: float

    @property
    def diagonal(self) -> FloatArray:
        """Mean cosine of the same layer."""
        return np.diagonal(self.matrix)

    @property
    def off_mean(self) -> float:
        """Mean over pairs of different layers."""
        return off_diagonal_mean(self.matrix)

    @property
    def dominance(self) -> float:
        """Diagonal mean minus off-diagonal mean."""
        return float(self.diagonal.mean()) - self.off_mean

    @property
    def halves(self) -> tuple[float, float]:
        """Mean of the diagonal's first and second half."""
        middle = len(self.layers) // 2
        return float(self.diagonal[:middle].mean()), float(self.diagonal[middle:].mean())


def off_diagonal_mean(matrix: FloatArray) -> float:
    """Return the mean of what is not on the diagonal."""
    size = matrix.shape[0]
    return float((matrix.sum() - np.trace(matrix)) / (size * (size - 1)))


def compute(norms: dict[Role, NormPair], *, draws: int, seed: int) -> Decay:
    """Return the matrix and its nulls; the norms have the same layers, at least two.

    Raises
    ------
    Missing
        If there is only one layer: nothing is off the diagonal.
    """
    first = next(iter(norms.values()))
    if len(first.layers) < 2:
        raise Missing(Text("a matrix of layers needs at least two; {a} and {b} share one", a=first.a, b=first.b))
    matrix = np.mean([pair.pairs.cosine for pair in norms.values()], axis=0)
    rng = np.random.default_rng(seed)
    units = [
        tuple(side / np.linalg.norm(side, axis=1, keepdims=True) for side in (p.left, p.right)) for p in norms.values()
    ]
    diagonals, dominances = np.empty((draws, len(first.layers))), np.empty(draws)
    for number in range(draws):
        order = rng.permutation(first.left.shape[1])
        drawn = np.mean([left @ right[:, order].T for left, right in units], axis=0)
        diagonals[number] = np.diagonal(drawn)
        dominances[number] = diagonals[number].mean() - off_diagonal_mean(drawn)
    size = len(first.layers)
    total = float(matrix.sum())
    swapped = np.empty(SWAPS)
    for number in range(SWAPS):
        traced = float(matrix[np.arange(size), rng.permutation(size)].sum())
        swapped[number] = traced / size - (total - traced) / (size * (size - 1))
    return Decay(
        first.a,
        first.b,
        first.layers,
        matrix,
        np.mean([pair.pairs.cosine_null_mean for pair in norms.values()], axis=0),
        diagonals,
        dominances,
        swapped,
        np.mean([pair.pearson for pair in norms.values()], axis=0),
        first.pearson_sd,
    )


def decay(stage: Stage) -> Section:
    """Part F."""
    section = Section()
    a, b = accused(stage)
    norms = both_norms(stage, a, b, section.missing)
    found = compute(norms, draws=FULL_DRAWS if stage.request.full else DRAWS, seed=stage.request.seed)
    section.tables += [_table(found), _alignment_table(norms)]
    section.notes.append(
        Text(
            "Under a permutation of B’s residual dimensions nothing is shared but each vector’s mean and spread: a dominance "
            "inside that null says nothing about descent. Same-depth layers of any two models have similar means and "
            "spreads, which alone can put the diagonal above the rest. The published script’s own threshold is {threshold}.",
            threshold=THRESHOLD,
        )
    )
    caption = Text(
        "Mean cosine of both norms, every layer of {a} against every layer of {b} (top left), what remains after "
        "subtracting the value that means and spreads predict (top right), the diagonal with the band of independent "
        "pairs, and the dominance beside its null.",
        a=a,
        b=b,
    )
    section.pictures.append(picture("decay", caption, "origin.figures.decay", found))
    if is_published(stage, a, b) and len(norms) == 2 and all(pair.complete for pair in norms.values()):
        section.checks += _checks(found)
    return section


def _table(found: Decay) -> Table:
    early, late = found.halves
    null = found.null_dominance
    rows: list[list[Cell]] = [
        [Text("diagonal: same layer"), float(found.diagonal.mean()), float(found.null_diagonal.mean())],
        [Text("off the diagonal"), found.off_mean, off_diagonal_mean(found.null_matrix)],
        [Text("dominance: diagonal minus the rest"), found.dominance, float(null.mean())],
        [Text("sd of the dominance under permuted dimensions"), None, float(null.std(ddof=1))],
        [
            Text("share of permuted dominances that reach it"),
            (1 + int((null >= found.dominance).sum())) / (1 + null.size),
            None,
        ],
        [Text("share of dominances that reach it with B’s layers in random order"), _reached(found), None],
        [Text("first half of the layers"), early, None],
        [Text("second half of the layers"), late, None],
        [Text("“decay”: first half minus second"), early - late, None],
        [Text("mean Pearson, both norms"), float(found.pearson.mean()), 0.0],
    ]
    columns = (
        column("what", "what"),
        column("value", "value", 4),
        column("independent", "if independent", 4),
    )
    return table("decay", Text("Diagonal and rest, {a} against {b}", a=found.a, b=found.b), columns, rows)


def _reached(found: Decay) -> float:
    return (1 + int((found.swapped >= found.dominance).sum())) / (1 + found.swapped.size)


def _alignment_table(norms: dict[Role, NormPair]) -> Table:
    """How many layers the best one-to-one assignment leaves where they are; one is expected by chance."""
    from scipy.optimize import linear_sum_assignment  # here, because it is slow to load

    rows: list[list[Cell]] = []
    for role, pair in norms.items():
        for measure, matrix in ((COSINE, pair.pairs.cosine), (PEARSON, pair.pairs.pearson)):
            one, two = linear_sum_assignment(matrix, maximize=True)
            matched = matrix[one, two]
            rows.append([role.value, measure, len(pair.layers), int((one == two).sum()), 1.0, float(matched.mean())])
    columns = (
        column("role", "role"),
        column("measure", "measure"),
        column("n", "layers"),
        column("in_place", "assigned to the same layer"),
        column("chance", "expected by chance", 1),
        column("mean", "mean of the assigned pairs", 4),
    )
    return table("layer_alignment", Text("The best one-to-one assignment of layers"), columns, rows)


def _checks(found: Decay) -> list[Check]:
    known = origin()["decay"]
    early, late = found.halves
    checks = [
        Check(Text("diagonal mean"), known["diagonal_mean"], float(found.diagonal.mean())),
        Check(Text("off-diagonal mean"), known["off_diagonal_mean"], found.off_mean),
        Check(Text("diagonal dominance"), known["diagonal_dominance"], found.dominance),
        Check(Text("first half of the layers"), known["early_layers_sim"], early),
        Check(Text("second half of the layers"), known["late_layers_sim"], late),
        Check(Text("“decay”: first half minus second"), known["decay"], early - late),
        Check(Text("mean Pearson, both norms"), known["pearson_mean"], float(found.pearson.mean())),
    ]
    for layer, published, measured in zip(found.layers, known["layerwise_mean_pre_post"], found.diagonal, strict=True):
        checks.append(Check(Text("mean cosine of both norms, layer {layer}", layer=layer), published, float(measured)))
    return checks
