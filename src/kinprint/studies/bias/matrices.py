"""Compare all layers with all layers in the bias study: of one pair of models (figure 2), and of all pairs (figure 5)."""

import math
from dataclasses import dataclass

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.arch import Role
from kinprint.studies.bias.pairs import BY_LAYER
from kinprint.studies.bias.shared import RELATED, compared_pairs, effective_layers, layer_stack, pair_sides
from kinprint.studies.layer_pairs import LayerPair, finite_mean, finite_median, layer_pair
from kinprint.studies.opened import StudyRun, each, require_same_shape
from kinprint.studies.outcome import Cell, Section, columns
from kinprint.studies.row_grid import RowGrid, row_grid
from kinprint.text import Text

SUMMARY = columns(
    "which: which pairs of layers; count; cosine_mean: mean cosine .4; cosine_median: median cosine .4; "
    "cosine_sd: sd of cosine .4; null_mean: mean cosine if independent .4; pearson_mean: mean Pearson .4; "
    "pearson_median: median Pearson .4; pearson_sd: sd of Pearson .4"
)
JOINT = columns(
    "joint_sd: null sd of the mean .4; effective: independent layers it is worth .1; z: z of the mean .2; log10_p"
)


@dataclass(frozen=True)
class LayerGrid:
    """Every layer of one model (rows) against every layer of another (columns)."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    found: RowGrid
    null_sd: float

    @property
    def shared(self) -> list[int]:
        """The layers that both models have."""
        return sorted(set(self.rows) & set(self.columns))

    def at(self, p: int, q: int, *names: str) -> list[float]:
        """Return the measures called `names` of layer p of the one model and layer q of the other."""
        place = self.rows.index(p), self.columns.index(q)
        return [float(getattr(self.found, name)[place]) for name in names]

    def split(self, name: str) -> tuple[FloatArray, FloatArray]:
        """Return the values of the same layer and those of different layers, both over the layers that both models have."""
        at = np.ix_(*([side.index(layer) for layer in self.shared] for side in (self.rows, self.columns)))
        square, same = getattr(self.found, name)[at], np.eye(len(self.shared), dtype=bool)
        return square[same], square[~same]

    def summary(self) -> list[tuple[Cell, ...]]:
        """Return mean, median and spread of the same layer, and of different layers; see `SUMMARY`."""
        cosine, null, pearson = (self.split(name) for name in ("cosine", "cosine_null_mean", "pearson"))
        return [
            (label, int(cosine[k].size), *_spread(cosine[k]), finite_mean(null[k]), *_spread(pearson[k]))
            for k, label in enumerate((Text("same layer"), Text("different layers")))
        ]


def _spread(values: FloatArray) -> tuple[float, float, float]:
    kept = values[np.isfinite(values)]
    return finite_mean(kept), finite_median(kept), float(kept.std()) if kept.size else math.nan


def layer_grid(run: StudyRun, a: str, b: str, role: Role) -> LayerGrid:
    """Compare all layers of two models; `Missing` if their widths differ."""
    (rows, left), (others, right) = layer_stack(run, a, role), layer_stack(run, b, role)
    require_same_shape(a, left, b, right)
    return LayerGrid(rows, others, row_grid(left, right), 1.0 / math.sqrt(left.shape[1] - 1))


def all_layers(run: StudyRun, section: Section, role: Role, a: str, b: str) -> None:
    """Compare every layer of one model with every layer of another (figure 2)."""
    grid = layer_grid(run, a, b, role)
    named = {"a": a, "b": b, "role": role.value}
    name = f"layers_{role.value}_{a}_{b}"
    title = Text("Same layer and different layers of {a} and {b}, {role}", **named)
    section.add_table(f"{name}_summary", title, SUMMARY, grid.summary())
    title = Text("Every layer of {a} against every layer of {b}, {role}", **named)
    heads = (*columns("layer_a; layer_b"), *BY_LAYER[1:5], *BY_LAYER[6:])
    shown = ("cosine", "cosine_null_mean", "cosine_null_sd", "pearson", "z", "log10_p")
    rows = [(p, q, *grid.at(p, q, *shown)) for p in grid.rows for q in grid.columns]
    section.add_table(name, title, heads, rows, shown=5)
    section.add_picture(name, "bias.layer_matrices", grid, layer_pair(run, a, b, role), sd=grid.null_sd, **named)
    section.note(
        "{a} has {p} layers and {b} has {q}; a layer that only predicts further tokens is not one of them. Means, "
        "medians and spreads of the same and of different layers are over the {count} layers that both have.",
        a=a,
        b=b,
        p=run.depth(a),
        q=run.depth(b),
        count=len(grid.shared),
    )


def joint_cells(run: StudyRun, pair: LayerPair) -> tuple[Cell, ...]:
    """Return the test of a pair's mean over layers, as the columns `JOINT` say."""
    null = pair.joint(run.request.seed)
    return null.sd, effective_layers(null), null.z, null.log10_p


def note_joint(run: StudyRun, section: Section) -> None:
    """Add notes on the test of a mean over layers."""
    section.note(
        "The mean over layers is tested under one permutation of the residual stream that serves all layers: layers of one "
        "model resemble each other, and as independent trials they would be counted several times over. The column of "
        "independent layers says how many such trials have the spread that was found."
    )
    if run.request.replicas:
        section.note(
            "How layers of one model correlate is published for three layers of three models and assumed for the others in "
            "replicas; the null sd of the mean, and so its z, rest on it."
        )


def gallery(run: StudyRun, section: Section, role: Role) -> None:
    """Show the Pearson matrices of all pairs of models, and test each pair's diagonal as a whole (figure 5)."""
    note_joint(run, section)

    def measure(pair: LayerPair) -> tuple[tuple[Cell, ...], tuple[tuple[str, str], LayerGrid, float]]:
        row = (pair.a, pair.b, len(pair.layers), pair.mean_pearson, finite_median(pair.pearson), pair.pearson_sd)
        panel = (pair.a, pair.b), layer_grid(run, pair.a, pair.b, role), pair.mean_pearson
        return (*row, *joint_cells(run, pair)), panel

    found = each(section.missing, compared_pairs(run, role, section.missing), measure, pair_sides)
    if not found:
        return
    rows, panels = zip(*found, strict=True)
    title = Text("Pearson of the same layer, all pairs of models, {role}: one test for all layers", role=role.value)
    heads = columns("a; b; layers; mean: mean Pearson .4; median: median Pearson .4; null_sd: null sd of one layer .4")
    section.add_table(f"diagonals_{role.value}", title, (*heads, *JOINT), rows)
    spreads = dict.fromkeys(f"{grid.null_sd:.4f}" for _, grid, _ in panels)
    section.add_picture(
        f"gallery_{role.value}", "bias.pearson_gallery", panels, role=role.value, sd=", ".join(spreads), limit=RELATED
    )
