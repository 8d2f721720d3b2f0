"""Draw the bias study's figures in three dimensions: mean subtraction (figure 0), surfaces (6), principal components (7)."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.arch import Role
from kinprint.errors import DegenerateInput
from kinprint.metrics import METRICS
from kinprint.studies.bias.shared import ORIGINALS, extent, layer_stack, places
from kinprint.studies.opened import StudyRun, attempt, each, require_same_shape
from kinprint.studies.outcome import Missing, Section, columns
from kinprint.text import Text

TOY = np.array([[0.95, 0.70, 0.72], [0.70, 1.05, 0.72]])
SURFACE_DIMENSIONS = 100
COMPONENTS = 3
ORDERS = 40  # random orders of each model's dimensions that the null of the explained variance is drawn from


def toy(_run: StudyRun, section: Section) -> None:
    """Show two vectors of three positive numbers before and after their means are taken away (figure 0)."""
    measures = ((Text("raw"), METRICS["cosine"](*TOY)), (Text("centred"), METRICS["pearson"](*TOY)))
    rows = [(label, cosine, math.degrees(math.acos(cosine))) for label, cosine in measures]
    a, b = ("(" + ", ".join(f"{value:.2f}" for value in vector) + ")" for vector in TOY)
    title = Text("Two vectors of three positive numbers (made up): {a} and {b}", a=a, b=b)
    section.add_table("toy", title, columns("which; cosine; angle: angle, degrees .1"), rows)
    section.add_picture("toy_raw", "bias.toy_raw", TOY, 0.0)
    section.add_picture("toy_centred", "bias.toy_centred", TOY, 1.0)
    section.add_picture("toy_film", "bias.toy_film", TOY)


def surfaces(run: StudyRun, section: Section, role: Role) -> None:
    """Show the first dimensions of all layers as a surface for each model (figure 6)."""

    def surface(name: str) -> tuple[str, tuple[int, ...], FloatArray]:
        layers, values = layer_stack(run, name, role)
        if len(layers) < 2:
            raise Missing("{model}: a surface needs two layers, and there is one", model=name)
        return name, layers, values[:, :SURFACE_DIMENSIONS]

    shown = each(section.missing, run.names, surface)
    if not shown:
        return
    name = f"surfaces_{role.value}"
    rows = [(name, len(layers), *extent(values)) for name, layers, values in shown]
    named: dict[str, int | str] = {"count": max(values.shape[1] for _, _, values in shown), "role": role.value}
    heads = columns("model; layers; min; max: largest .4")
    section.add_table(name, Text("Range of the first {count} dimensions, {role}", **named), heads, rows)
    section.add_picture(name, "bias.surfaces", shown, role.value, **named)


def paths(run: StudyRun, section: Section, role: Role) -> None:
    """Draw the layers of all models as paths in their joint principal components (figure 7)."""
    section.comparable = set(run.names) == set(ORIGINALS)
    attempt(section.missing, partial(_add_path, run, section, role))


def _add_path(run: StudyRun, section: Section, role: Role) -> None:
    found = joint_path(_comparable_stacks(run, section.missing, role), seed=run.request.seed)
    named: dict[str, int | str] = {"count": len(found.layers), "role": role.value}
    heads = columns(
        "component; explained: variance explained, % .2; "
        "permuted: with each model's dimensions in random order, % .2; permuted_sd: its sd .2; "
        "with_mean: correlation of the score with the layer's mean .3"
    )
    percent = 100 * np.stack([found.explained, found.null, found.null_sd])
    rows = [(k + 1, *percent[:, k].tolist(), level) for k, level in enumerate(found.with_mean)]
    title = Text("Joint principal components of the {count} layers that all have, {role}", **named)
    section.add_table(f"path_variance_{role.value}", title, heads, rows)
    title = Text("Scores of every layer, {role}", role=role.value)
    heads = columns("; ".join(["model; layer", *(f"pc{k + 1}: PC{k + 1} .4" for k in range(found.scores.shape[2]))]))
    places_of = zip(itertools.product(found.names, found.layers), np.concatenate(found.scores), strict=True)
    section.add_table(f"path_{role.value}", title, heads, [(*place, *scores) for place, scores in places_of], shown=5)
    section.add_picture(f"path_{role.value}", "bias.paths", found, places(run), **named)
    section.note(
        "What the first component explains is the level of the layers, which random order leaves alone: a large "
        "share is no sign that models resemble each other."
    )


def _comparable_stacks(run: StudyRun, missing: list[Text], role: Role) -> dict[str, tuple[tuple[int, ...], FloatArray]]:
    """Return the models that have the role and the width of the first that has it."""
    found: dict[str, tuple[tuple[int, ...], FloatArray]] = {}

    def add(name: str) -> None:
        layers, values = layer_stack(run, name, role)
        for first, (_, other) in itertools.islice(found.items(), 1):
            require_same_shape(first, other, name, values)
        found[name] = layers, values

    each(missing, run.names, add)
    return found


@dataclass(frozen=True)
class JointPath:
    """Joint principal components of the layers of several models, and the shares of variance they explain."""

    names: tuple[str, ...]
    layers: tuple[int, ...]
    scores: FloatArray  # models × layers × components
    explained: FloatArray
    null: FloatArray  # mean of the shares when each model's dimensions are put into one random order of their own
    null_sd: FloatArray
    with_mean: tuple[float | None, ...]  # correlation of a component's scores with the mean of each layer's values


def joint_path(stacks: Mapping[str, tuple[tuple[int, ...], FloatArray]], *, seed: int) -> JointPath:
    """Return the joint principal components of the layers that all models have; `Missing` if these are too few."""
    shared = sorted(set.intersection(*(set(layers) for layers, _ in stacks.values()))) if stacks else []
    if (count := len(shared) * len(stacks)) < COMPONENTS + 1:
        raise Missing(
            "principal components need at least {least} layers in all; {count} are there",
            least=COMPONENTS + 1,
            count=count,
        )
    rows = [values[[layers.index(layer) for layer in shared]] for layers, values in stacks.values()]
    stack = np.concatenate(rows)
    shares, vectors, sizes = _components(stack)
    if sizes[0] <= 0.0:
        raise DegenerateInput("principal components: all layers are the same")
    count = min(COMPONENTS, int(np.count_nonzero(sizes > 1e-12 * sizes[0])))
    scores = vectors[:, :count] * sizes[:count]
    scores *= np.where(np.abs(scores).max(axis=0) == scores.max(axis=0), 1.0, -1.0)  # signs are arbitrary: fix them
    rng = np.random.default_rng(seed)
    mixed = ([values[:, rng.permutation(values.shape[1])] for values in rows] for _ in range(ORDERS))
    null = np.array([_components(np.concatenate(one))[0][:count] for one in mixed])
    by_model, level = scores.reshape(len(stacks), len(shared), count), stack.mean(axis=1)
    with_mean = tuple(_correlation(scores[:, k], level) for k in range(count))
    spread = null.mean(axis=0), null.std(axis=0, ddof=1)
    return JointPath(tuple(stacks), tuple(shared), by_model, shares[:count], *spread, with_mean)


def _components(stack: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return shares of variance, unit score vectors and their lengths, from the Gram matrix: rows are few."""
    centred = stack - stack.mean(axis=0)
    values, vectors = np.linalg.eigh(centred @ centred.T)
    values = np.maximum(values[::-1], 0.0)
    total = values.sum()
    return values / total if total > 0.0 else values, vectors[:, ::-1], np.sqrt(values)


def _correlation(x: FloatArray, y: FloatArray) -> float | None:
    try:
        return METRICS["pearson"](x, y)
    except DegenerateInput:
        return None
