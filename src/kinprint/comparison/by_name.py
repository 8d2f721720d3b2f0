"""Compare what has no role in either of two models by name: tensors that both store under one name, with one shape.

Which axis is which is not known of them. A size that nearly every matrix of both models has is that of the residual stream; where
exactly one axis of a matrix has it, that axis is permuted, and else there is no p-value. Sizes can be equal by chance, so nothing
of this reaches the verdict: it is shown, and accuses nobody.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from math import prod

from kinprint.arch import Role, RoleTensor
from kinprint.comparison.measuring import Job
from kinprint.comparison.selection import MAX_ELEMENTS, MIN_PERMUTED_ROWS, Pair
from kinprint.formats.plan import plan_reads
from kinprint.model.model import Model
from kinprint.model.reader import ModelPlan, Want, read_together, want_slices
from kinprint.results.measurements import Skipped
from kinprint.results.options import Options
from kinprint.sources.session import Session
from kinprint.text import Text

EVERYWHERE = (
    0.75  # share of all matrices of both models that have an axis of a size, from which it is the residual stream's
)
LEAST_MATRICES = 8  # of both models: fewer show nothing about sizes
MOST = 256  # tensors: enough to see whether a part was copied, and what a page can show
SHARE = 0.5  # of what the verdict left of the budget
NO_BUDGET = Text("without a role; the budget was spent")
TOO_MANY = Text("without a role; {n} such tensors are compared by name", n=MOST)
Shapes = Mapping[str, tuple[int, ...]]


def jobs_by_name(models: tuple[Model, Model], run: Session, options: Options) -> tuple[list[Job], list[Skipped], int]:
    """Read what both models have under one name and no role for, to be measured; also what was left out, and the bytes."""
    if set(models[0].naming.unmapped).isdisjoint(models[1].naming.unmapped):
        return [], [], 0
    shapes = models[0].checkpoint.tensors.shapes(), models[1].checkpoint.tensors.shapes()
    width = common_width(*shapes)
    pairs = [pair for pair in _pairs(models, shapes, width) if not options.roles or pair.role.value in options.roles]
    left = run.remaining_bytes
    spent, taken, dear = 0, [], []
    for pair in pairs[:MOST]:
        cost = sum(_plan(model, [pair]).nbytes for model in models)
        if left is not None and spent + cost > left * SHARE:
            dear.append(pair)
            continue
        spent += cost
        taken.append(pair)
    skipped = [
        Skipped(Text("tensors"), len(group), why, tuple(pair.a.name for pair in group[:3]))
        for group, why in ((dear, NO_BUDGET), (pairs[MOST:], TOO_MANY))
        if group
    ]
    if not taken:
        return [], skipped, 0
    sides = read_together([_plan(model, taken) for model in models])
    return list(zip(taken, *sides, strict=True)), skipped, spent


def common_width(*shapes: Shapes) -> int | None:
    """Return the size that nearly all matrices have an axis of; None if there is none, or more than one."""
    matrices = [set(shape) for side in shapes for shape in side.values() if len(shape) > 1]
    counts = Counter(size for sizes in matrices for size in sizes if size > 1)
    found = [size for size, count in counts.items() if count >= EVERYWHERE * len(matrices)]
    return found[0] if len(found) == 1 and len(matrices) >= LEAST_MATRICES else None


def _pairs(models: tuple[Model, Model], shapes: tuple[Shapes, Shapes], width: int | None) -> Iterator[Pair]:
    for name in sorted(set(models[0].naming.unmapped) & set(models[1].naming.unmapped)):
        shape = shapes[0][name]
        if shape != shapes[1][name] or not shape or prod(shape) < 2:
            continue
        flat = shape if len(shape) < 3 else (shape[0], prod(shape[1:]))  # as convolutions are read
        role = _role(flat, width)
        part = RoleTensor(role, None, None, name, flat, None, 0, False, 0.0)
        least = flat[0] if role is Role.UNNAMED_OUT else MIN_PERMUTED_ROWS
        rows = min(flat[0], max(least, MAX_ELEMENTS // max(prod(flat[1:]), 1))) if len(flat) > 1 else None
        yield Pair(role, None, None, part, part, None if rows in (None, flat[0]) else (0, rows))


def _role(shape: tuple[int, ...], width: int | None) -> Role:
    if len(shape) == 1:
        return Role.UNNAMED_VECTOR
    if width is None or shape.count(width) != 1:
        return Role.UNNAMED
    return Role.UNNAMED_OUT if shape[0] == width else Role.UNNAMED_IN


def _plan(model: Model, pairs: list[Pair]) -> ModelPlan:
    wants = tuple(Want(pair.role, None, None, pair.rows) for pair in pairs)
    slices = tuple(tuple(want_slices(model.checkpoint, pair.a, want)) for pair, want in zip(pairs, wants, strict=True))
    return ModelPlan(model.checkpoint, wants, slices, plan_reads([item.stored for group in slices for item in group]))
