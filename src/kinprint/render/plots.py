"""Draw figures of a report with matplotlib: each shows the null beside the value."""

import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kinprint._util.plain import printable
from kinprint.errors import BadSelection, imported
from kinprint.results.context import LayerGrid
from kinprint.results.measurements import OK, Measurement, TensorComparison
from kinprint.results.report import Report

NULL_COLOUR, VALUE_COLOUR = "#bbbbbb", "#0b5fa5"
NULL_SD = 1.96
"""Half-width of the null in standard deviations: 95 % of independent pairs, point by point."""
NULL_LABEL = "95 % of independent pairs"
SIMILARITY_MAP, SIGNED_MAP = "cividis", "RdBu_r"  # readable without colour vision

Found = list[tuple[TensorComparison, Measurement]]


@dataclass(frozen=True)
class Plots:
    """Figures of one report. Every method returns a new matplotlib figure, and shows or saves none."""

    report: Report

    def null(self, metric: str = "pearson") -> Any:
        """Draw a metric of every tensor, by role, beside its null under permutation."""
        found = self._measured(metric)
        roles = list(dict.fromkeys(item.role for item, _ in found))
        figure = _figure(7.5, 1.4 + 0.32 * len(roles))
        axes = figure.subplots()
        for place, role in enumerate(roles):
            mine = [value for item, value in found if item.role == role]
            for value in mine:
                _null_bar(axes, value, place)
            values = [value.value for value in mine]
            axes.plot(values, [place] * len(mine), "o", color=VALUE_COLOUR, markersize=4, zorder=3)
        axes.set_yticks(range(len(roles)), roles)
        axes.invert_yaxis()
        axes.set_xlabel(metric)
        return self._finished(figure, axes, f"{metric} of every tensor, and its null")

    def layers(self, metric: str = "pearson", roles: Iterable[str] | None = None) -> Any:
        """Draw a metric layer by layer, a panel for each of `roles`, by default all that have layers, with the null as a band."""
        found = [(item, value) for item, value in self._measured(metric) if item.layer is not None]
        there = list(dict.fromkeys(item.role for item, _ in found))
        wanted = there if roles is None else list(roles)
        if missing := [role for role in wanted if role not in there]:
            raise BadSelection(f"no layer of {missing[0]!r} was measured", hint=f"roles: {', '.join(there)}")
        if not wanted:
            raise BadSelection("no role of this report has layers")
        columns = min(3, len(wanted))
        rows = -(-len(wanted) // columns)
        figure = _figure(3.6 * columns, 0.8 + 2.3 * rows)
        panels = figure.subplots(rows, columns, squeeze=False, sharex=True).ravel()
        for panel in panels[len(wanted) :]:
            panel.set_axis_off()
        for panel, role in zip(panels, wanted, strict=False):
            mine = sorted(
                ((item.layer or 0, value) for item, value in found if item.role == role), key=lambda at: at[0]
            )
            for layer, value in mine:
                _null_bar(panel, value, layer, upright=True)
            values = [value.value for _, value in mine]
            panel.plot([layer for layer, _ in mine], values, "o-", color=VALUE_COLOUR, ms=4)
            panel.set_title(role, fontsize=9)
            panel.xaxis.set_major_locator(importlib.import_module("matplotlib.ticker").MaxNLocator(integer=True))
        figure.supxlabel("layer", fontsize=10)
        return self._finished(figure, panels[0], f"{metric} by layer, and its null")

    def map(self, role: str | None = None) -> Any:
        """Draw every layer of A against every layer of B, of `role` or the first: cosine, its null, z; with the layer map."""
        grid, figure = self._grid(role), _figure(10.5, 3.6)
        cosine, by_chance, _, z = grid.grids().values()
        cosines = [value for row in (*cosine, *by_chance) for value in row if value is not None]
        limits = min(cosines, default=0.0), max(cosines, default=1.0)
        reach = max((abs(value) for row in z for value in row if value is not None), default=1.0)
        parts = (
            ("cosine", cosine, SIMILARITY_MAP, *limits),
            ("cosine by chance (null)", by_chance, SIMILARITY_MAP, *limits),
            ("z: distance from the null", z, SIGNED_MAP, -reach, reach),
        )
        for axes, (title, values, colours, low, high) in zip(figure.subplots(1, 3), parts, strict=True):
            cells = [[float("nan") if value is None else value for value in row] for row in values]
            image = axes.imshow(cells, cmap=colours, vmin=low, vmax=high, aspect="auto", origin="lower")
            axes.set_title(title, fontsize=9)
            axes.set_xlabel("layer of B")
            axes.set_xticks(*_ticks(grid.layers_b))
            axes.set_yticks(*_ticks(grid.layers_a))
            figure.colorbar(image, ax=axes, shrink=0.85)
            self._mark_map(axes, grid)
        figure.axes[0].set_ylabel("layer of A")
        figure.suptitle(f"{grid.role}: {self._names()}; circles: the verdict's layer map", fontsize=10)
        return figure

    def _mark_map(self, axes: Any, grid: LayerGrid) -> None:
        evidence = self.report.evidence
        places = [
            (grid.layers_b.index(b), grid.layers_a.index(a))
            for a, b in (evidence.alignment.matches if evidence else ())
            if a in grid.layers_a and b in grid.layers_b
        ]
        if places:
            axes.plot(*zip(*places, strict=True), "o", mfc="none", mec="#ee3377", ms=8)

    def _grid(self, role: str | None) -> LayerGrid:
        usable = {grid.role: grid for grid in self.report.grids if grid.status == OK and grid.cells}
        if not usable:
            raise BadSelection(
                "this report has no layer grid: no role of both models has layers that could be compared"
            )
        wanted = next(iter(usable)) if role is None else role
        if wanted not in usable:
            raise BadSelection(f"no layer grid of {wanted!r}", hint=f"roles: {', '.join(usable)}")
        return usable[wanted]

    def _measured(self, metric: str) -> Found:
        """Return the tensors with the metric, where it has a value."""
        every = [(item, value) for item in self.report.comparisons for value in item.measurements]
        found = [(item, value) for item, value in every if value.metric == metric and value.value is not None]
        if not found:
            known = ", ".join(dict.fromkeys(value.metric for _, value in every)) or "none"
            raise BadSelection(f"no tensor has a value of {metric!r}", hint=f"metrics of this report: {known}")
        return found

    def _names(self) -> str:
        return " and ".join(_short(model.reference) for model in (self.report.a, self.report.b))

    def _finished(self, figure: Any, axes: Any, title: str) -> Any:
        axes.plot([], [], color=NULL_COLOUR, lw=6, label=f"null: {NULL_LABEL}")
        axes.plot([], [], "o", color=VALUE_COLOUR, ms=4, label="measured")
        axes.legend(fontsize=8)
        figure.suptitle(f"{title}: {self._names()}", fontsize=10)
        return figure


def _figure(width: float, height: float) -> Any:
    made = imported("matplotlib.figure", "a figure", extra="plot")
    return made.Figure(figsize=(width, height), layout="constrained")


def _null_bar(axes: Any, value: Measurement, place: float, *, upright: bool = False) -> None:
    """Draw the null of one measurement: its mean and the range of most independent pairs."""
    null = value.null
    if null is None or null.sd is None:
        return
    span, across = [null.mean - NULL_SD * null.sd, null.mean + NULL_SD * null.sd], [place, place]
    ends = (across, span) if upright else (span, across)
    axes.plot(*ends, color=NULL_COLOUR, lw=6, solid_capstyle="butt", zorder=1)


def _ticks(layers: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """Return places and numbers of about ten layers."""
    places = list(range(0, len(layers), -(-len(layers) // 10)))
    return places, [layers[place] for place in places]


def _short(reference: str) -> str:
    return printable(reference.rstrip("/").rsplit("/", 1)[-1], 40).replace("$", r"\$")
