"""How cost grows with a model: layers, width, experts and tensors, each on its own; `kinprint compare` and `inspect`.

Pairs of sparse models are written, one unrelated and one derived, and compared as a user would, without a budget, so that nothing
but the model decides what is read. Wall and CPU are those of a new command with its forks, peak that of its largest process. A
line fitted to the logarithms of all of it is shown, and flatters: start-up and what is done once are in it. So what is judged is
the exponent at the top, from the largest model but one to one twice as large, where little else is left: one, or less by what is
done once, for every cost that is a straight line; what lies beyond the smallest model is shown too, and noise is in that.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import startup
from bench.common import Cell, Cost, Goal, Report, finish, from_outside, parser
from support.layouts import write_sparse_glm_air

STEEPEST = 1.1  # the most that an exponent may be: one, and what noise adds
TIMES = 2  # all sizes but the largest run so often, and the least counts
FILLED_ROWS = 128
UNRELATED, DERIVED, INSPECT = "compare, unrelated", "compare, derived", "inspect"
EXPECTED = {UNRELATED: ("no_evidence", 0), DERIVED: ("derived", 11)}
MADE: dict[str, dict[str, Any]] = {UNRELATED: {"seed": 2}, DERIVED: {"seed": 1, "perturb": (3, 0.05)}}
SMALL = {"layers": 4, "mtp": 0, "experts": 16, "vocab": 2048, "head_dim": 64, "shards": 1}
TINY = {
    "layers": 24,
    "hidden": 64,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 16,
    "intermediate": 64,
    "moe_intermediate": 16,
}
SIZES = {
    "layers": (8, 32, 128, 256),
    "width": (512, 2048, 8192, 16_384),
    "experts": (1, 8, 128, 256),
    "tensors": (1_000, 10_000, 100_000, 200_000),
}
QUICK_SIZES = {"layers": (1, 2, 4), "tensors": (1_000, 2_000, 4_000)}
WHATS = dict.fromkeys(SIZES, (UNRELATED, DERIVED)) | {"tensors": (UNRELATED, INSPECT)}
QUICK_WHATS = {"layers": (UNRELATED,), "tensors": (INSPECT,)}
_KEPT = ("PATH", "SYSTEMROOT", "LANG", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "TMPDIR", "PYTHONPATH")


@dataclass(frozen=True)
class Point:
    """One command on a model of one size."""

    what: str
    axis: str
    size: int
    tensors: int
    read: int
    cost: Cost
    right: bool

    def row(self) -> dict[str, Cell]:
        """Return the point for a table."""
        where: dict[str, Cell] = {"command": self.what, "axis": self.axis, "size": self.size, "tensors": self.tensors}
        cost = {"wall s": round(self.cost.wall, 2), "CPU s": round(self.cost.cpu, 2)}
        return where | {"MB read": round(self.read / 1e6, 2)} | cost | {"peak MB": round(self.cost.peak / 1e6, 1)}


def shape(axis: str, size: int) -> tuple[dict[str, Any], list[str]]:
    """Return the dimensions of a model that is of such a size along one axis, and what the command is told beside its name."""
    width = size if axis == "width" else 512
    wide = {"hidden": width, "heads": max(2, width // 64), "kv_heads": max(1, width // 256)}
    made = SMALL | wide | {"intermediate": 2 * width, "moe_intermediate": width // 2}
    if axis == "tensors":  # three for each expert, and sixteen for the rest of a layer
        return made | TINY | {"experts": round((size / TINY["layers"] - 16) / 3), "vocab": 256, "shards": 4}, []
    if axis == "experts":  # all of them are read
        return made | {"experts": size}, ["--experts", str(size)]
    return made | ({"layers": size} if axis == "layers" else {}), []


def points(axis: str, size: int, whats: Sequence[str], times: int) -> Iterator[Point]:
    """Write models of one size, and yield what each command costs on them."""
    dimensions, told = shape(axis, size)
    filled: dict[str, Any] = {
        "filled_rows": FILLED_ROWS,
        "filled_experts": dimensions["experts"] if axis == "experts" else 1,
    }
    with tempfile.TemporaryDirectory(prefix="bench-growth-") as name:
        scratch = Path(name)
        made = write_sparse_glm_air(scratch / "a", seed=1, **filled, **dimensions)
        for what in whats:
            line = [INSPECT, str(scratch / "a"), "--no-norms"]
            if what in MADE:
                write_sparse_glm_air(scratch / "b", **MADE[what], **filled, **dimensions)
                line = ["compare", str(scratch / "a"), str(scratch / "b"), "--exit-code", *told]
            line = [*startup.command()[:-1], *line, "--budget", "none", "--format", "json", "--quiet"]
            runs = [from_outside(line, scratch / "out.json", environment(scratch)) for _ in range(times)]
            cost = min(runs, key=lambda run: run.cpu)
            said = json.loads((scratch / "out.json").read_bytes())
            found = said["verdict"]["class"] if what in EXPECTED else ""
            right = (found, cost.status) == EXPECTED.get(what, ("", 0))
            yield Point(what, axis, size, made.tensors, said["bytes_read"], cost, right)


def environment(scratch: Path) -> dict[str, str]:
    """Return an environment in which nothing of the user's settings and caches is left."""
    return {name: os.environ[name] for name in _KEPT if name in os.environ} | {"HOME": str(scratch / "home")}


def exponent(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Return the slope of the line through the logarithms: y grows like x to this power."""
    u, v = [math.log(x) for x in xs], [math.log(y) for y in ys]
    at, to = sum(u) / len(u), sum(v) / len(v)
    return sum((x - at) * (y - to) for x, y in zip(u, v, strict=True)) / sum((x - at) ** 2 for x in u)


def growth_beyond(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Return the exponent of what is beyond the first point, from the last but one to the last; one for any straight line.

    A cost that hardly grows counts as if it had grown by a fiftieth: no noise is an exponent.
    """
    return exponent([x - xs[0] for x in xs[-2:]], [max(y - ys[0], 0.02 * ys[0]) for y in ys[-2:]])


@dataclass(frozen=True)
class Growth:
    """How one command grows along one axis."""

    points: Sequence[Point]

    @property
    def name(self) -> str:
        """Command and axis."""
        return f"{self.points[0].what}, {self.points[0].axis}"

    @property
    def needed(self) -> list[float]:
        """What must be read: bytes; along the axis of tensors their number."""
        return [float(point.tensors if point.axis == "tensors" else point.read) for point in self.points]

    @property
    def cpu(self) -> list[float]:
        """Seconds of CPU."""
        return [point.cost.cpu for point in self.points]

    @property
    def peak(self) -> list[float]:
        """Bytes of memory."""
        return [float(point.cost.peak) for point in self.points]

    def row(self) -> dict[str, Cell]:
        """Return the exponents for a table."""
        sizes, read = [point.size for point in self.points], [point.read for point in self.points]
        fits = {
            "bytes ~ size": exponent(sizes, read),
            "CPU ~ size": exponent(sizes, self.cpu),
            "CPU ~ needed": exponent(self.needed, self.cpu),
            "CPU at the top": exponent(self.needed[-2:], self.cpu[-2:]),
            "beyond the smallest": growth_beyond(self.needed, self.cpu),
            "peak ~ needed": exponent(self.needed, self.peak),
            "peak at the top": exponent(self.needed[-2:], self.peak[-2:]),
            "… beyond the smallest": growth_beyond(self.needed, self.peak),
        }
        return {"command, axis": self.name} | {name: round(fit, 2) for name, fit in fits.items()}


def judge(grown: Sequence[Growth], *, quick: bool) -> list[Report]:
    """Show what was measured, and hold the exponents against the limit; in small sizes they are mostly noise."""
    every = [point for growth in grown for point in growth.points]
    goals = [Goal("right verdicts and exit statuses", sum(point.right for point in every), ">=", len(every), "")]
    for growth in grown:
        for name, costs in (("CPU", growth.cpu), ("peak", growth.peak)):
            fit = exponent(growth.needed[-2:], costs[-2:])
            goals.append(Goal(f"{growth.name}: exponent of {name}", fit, "<=", STEEPEST, "", required=not quick))
    note = (
        "No budget; of experts all are read along their axis, else one of a layer. Needed are the bytes read, along the axis of "
        "tensors their number. Judged is the growth at the top, from the largest model but one to the largest."
    )
    table = Report("growth", "Growth: cost by size", tuple(point.row() for point in every), ())
    return [table, Report("growth", "Growth: exponents", tuple(item.row() for item in grown), tuple(goals), (note,))]


def main(argv: list[str] | None = None) -> int:
    """Measure and judge."""
    options = parser("bench.growth", __doc__)
    options.add_argument("--axis", action="append", choices=sorted(SIZES), help="may be repeated")
    asked = options.parse_args(argv)
    startup.compile_package()
    sizes, whats = (QUICK_SIZES, QUICK_WHATS) if asked.quick else (SIZES, WHATS)
    grown = []
    for axis in asked.axis or sizes:
        last = sizes[axis][-1]
        times = {size: 1 if asked.quick or size == last else TIMES for size in sizes[axis]}
        found = [point for size in sizes[axis] for point in points(axis, size, whats[axis], times[size])]
        grown += [Growth([point for point in found if point.what == what]) for what in whats[axis]]
    return finish(judge(grown, quick=asked.quick), asked.json)


if __name__ == "__main__":
    raise SystemExit(main())
