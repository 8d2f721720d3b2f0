"""Tensors whose role nobody knows: compared by name, a p-value along an axis that sizes prove, and never part of a verdict."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import kinprint
from kinprint.comparison.by_name import common_width
from kinprint.render.content.answer import picture_of
from kinprint.results.measurements import TensorComparison
from kinprint.results.report import Report
from support.layouts import write_checkpoint

WIDTH = 48
SHAPES = {
    **{f"zot.{i}.quux.kernel": (40, WIDTH) for i in range(6)},  # columns along the residual stream
    **{f"zot.{i}.blarg.kernel": (WIDTH, 24) for i in range(6)},  # rows
    **{f"zot.{i}.frob.kernel": (WIDTH, WIDTH) for i in range(2)},  # either
    "zot.0.wump.kernel": (7, 9),  # neither
    "zot.0.shift": (WIDTH,),  # a vector of that size may be anything
}
UNKNOWN = {"model_type": "never_heard_of"}
Arrays = dict[str, np.ndarray]


def drawn(seed: int) -> Arrays:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}


def compared(folder: Path, one: Arrays, two: Arrays, **chosen: object) -> Report:
    for name, arrays in (("one", one), ("two", two)):
        write_checkpoint(folder / name, arrays, UNKNOWN)
    return kinprint.compare(folder / "one", folder / "two", **chosen)


def p_values(report: Report) -> dict[str, float | None]:
    def p(item: TensorComparison) -> float | None:
        (found,) = (each for each in item.measurements if each.metric == "pearson")
        return None if found.null is None else found.null.log10_p

    return {item.a.tensor: p(item) for item in report.comparisons}


def test_a_copy_is_seen_along_the_axis_that_sizes_prove_and_accused_of_nothing(tmp_path: Path) -> None:
    one = drawn(1)
    noise = np.random.default_rng(3)
    copy = {name: x + 0.1 * noise.standard_normal(x.shape).astype(np.float32) for name, x in one.items()}
    report = compared(tmp_path, one, copy)
    found = p_values(report)
    assert set(found) == set(SHAPES)
    proven = {name for name, shape in SHAPES.items() if len(shape) == 2 and shape.count(WIDTH) == 1}
    assert {name for name, p in found.items() if p is not None} == proven
    assert max(p for name in proven if (p := found[name]) is not None) < -4
    roles = {line.role: (line.compared, line.null is not None) for line in report.summary}
    assert roles == {
        "unnamed_in": (6, True), "unnamed_out": (6, True), "unnamed": (3, False), "unnamed_vector": (1, False),
    }  # fmt: skip
    assert report.verdict is not None
    assert report.verdict.class_ == "not_testable"
    assert picture_of(report) is None  # a first screen that abstains hints at nothing
    assert f"{len(SHAPES)} tensors without a role are compared by name, and have no part in the verdict" in report.notes


def test_strangers_show_nothing_and_a_name_or_shape_that_one_lacks_is_left(tmp_path: Path) -> None:
    two = drawn(2)
    two["zot.0.quux.kernel"] = two["zot.0.quux.kernel"][:30]
    del two["zot.1.quux.kernel"]
    report = compared(tmp_path, drawn(1), two)
    found = p_values(report)
    assert set(found) == set(SHAPES) - {"zot.0.quux.kernel", "zot.1.quux.kernel"}
    assert min(p for p in found.values() if p is not None) > -4
    assert report.a.unmapped == tuple(sorted(SHAPES))


def test_it_is_read_within_the_budget(tmp_path: Path) -> None:
    report = compared(tmp_path, drawn(1), drawn(2), budget_bytes=30_000)
    assert 0 < len(report.comparisons) < len(SHAPES)
    assert report.bytes_read <= 30_000
    (left,) = (item for item in report.skipped if "budget" in item.reason)
    assert left.count == len(SHAPES) - len(report.comparisons)


def test_hundreds_of_them_are_counted_not_shown(tmp_path: Path) -> None:
    many = {f"zot.{i}.quux.kernel": np.ones((2, 3), np.float32) * i for i in range(300)}
    report = compared(tmp_path, many, many)
    assert len(report.comparisons) == 256
    assert [item.count for item in report.skipped if "compared by name" in item.reason] == [44]


@pytest.mark.parametrize(
    ("shapes", "width"),
    [
        ({str(i): (i + 2, 64) for i in range(9)}, 64),
        ({str(i): (i + 2, 64) for i in range(7)}, None),  # too few to show anything
        ({str(i): (32, 64) for i in range(9)}, None),  # two such sizes: nothing says which
        ({str(i): (i + 2, 64 + i) for i in range(9)}, None),
        ({str(i): (64,) for i in range(9)}, None),
        ({}, None),
    ],
)
def test_the_width_is_a_size_that_nearly_all_matrices_have(
    shapes: dict[str, tuple[int, ...]], width: int | None
) -> None:
    assert common_width(shapes) == width
