"""Figures in three dimensions of the bias study: mean subtraction (0), surfaces (6), paths (7)."""

from __future__ import annotations

import itertools
import math
from functools import partial

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.arch import Role
from kinprint.metrics import METRICS
from kinprint.studies.bias.facts import INPUT, ORIGINALS, add_checks, extent, layer_stack, places, vector_roles
from kinprint.studies.bias.path import joint_path
from kinprint.studies.opened import StudyRun, attempt, each, require_same_shape
from kinprint.studies.outcome import Missing, Section, column, columns
from kinprint.text import Text

TOY = np.array([[0.95, 0.70, 0.72], [0.70, 1.05, 0.72]])
SURFACE_DIMENSIONS = 100


def toy(run: StudyRun) -> Section:
    """Show two vectors of three positive numbers before and after their means are taken away (figure 0)."""
    section, rows = Section(), []
    for label, measure in ((Text("raw"), "cosine"), (Text("centred"), "pearson")):
        cosine = METRICS[measure](*TOY)
        rows.append((label, cosine, math.degrees(math.acos(cosine))))
    a, b = ("(" + ", ".join(f"{value:.2f}" for value in vector) + ")" for vector in TOY)
    title = Text("Two vectors of three positive numbers (made up): {a} and {b}", a=a, b=b)
    section.add_table("toy", title, columns("which; cosine .4; angle: angle, degrees .1"), rows)
    still = Text("Two made-up vectors, raw: both lean towards the direction (1, 1, 1), which is their mean.")
    section.add_picture("toy_raw", still, "bias.space_figures.toy_still", TOY, 0.0)
    still = Text("The same vectors minus their means: both lie in the plane x + y + z = 0.")
    section.add_picture("toy_centred", still, "bias.space_figures.toy_still", TOY, 1.0)
    film = Text(
        "The means are taken away step by step; the camera then looks along (1, 1, 1), onto the plane x + y + z = 0."
    )
    section.add_picture("toy_film", film, "bias.space_figures.toy_film", TOY)
    add_checks(run, section, "fig0")
    return section


def surfaces(run: StudyRun) -> Section:
    """Show the first dimensions of all layers as a surface for each model (figure 6)."""
    section = Section()
    for role in vector_roles(run, (INPUT,), section.missing):
        shown = each(section.missing, run.names, partial(_surface, run, role))
        if not shown:
            continue
        rows = [(name, len(layers), *extent(values)) for name, layers, values in shown]
        named: dict[str, int | str] = {"count": max(values.shape[1] for _, _, values in shown), "role": role.value}
        title = Text("Range of the first {count} dimensions, {role}", **named)
        section.add_table(
            f"surfaces_{role.value}", title, columns("model; layers; min: least .4; max: largest .4"), rows
        )
        caption = Text(
            "First {count} dimensions of every layer, {role}. One height scale for all models; nothing is cut off.",
            **named,
        )
        section.add_picture(f"surfaces_{role.value}", caption, "bias.space_figures.surfaces", shown, role.value)
    add_checks(run, section, "fig6")
    return section


def _surface(run: StudyRun, role: Role, name: str) -> tuple[str, tuple[int, ...], FloatArray]:
    layers, values = layer_stack(run, name, role)
    if len(layers) < 2:
        raise Missing(Text("{model}: a surface needs two layers, and there is one", model=name))
    return name, layers, values[:, :SURFACE_DIMENSIONS]


def paths(run: StudyRun) -> Section:
    """Draw the layers of all models as paths in their joint principal components (figure 7)."""
    section = Section()
    for role in vector_roles(run, (INPUT,), section.missing):
        attempt(section.missing, partial(_one_path, run, section, role))
    if set(run.names) == set(ORIGINALS):
        add_checks(run, section, "fig7")
    return section


def _one_path(run: StudyRun, section: Section, role: Role) -> None:
    found = joint_path(_comparable_stacks(run, section.missing, role), seed=run.request.seed)
    named: dict[str, int | str] = {"count": len(found.layers), "role": role.value}
    percent = [100 * np.array(shares) for shares in (found.explained, found.null, found.null_sd)]
    section.add_table(
        f"path_variance_{role.value}",
        Text("Joint principal components of the {count} layers that all have, {role}", **named),
        columns(
            "component; explained: variance explained, % .2; "
            "permuted: with each model's dimensions in random order, % .2; permuted_sd: its sd .2; "
            "with_mean: correlation of the score with the layer's mean .3"
        ),
        [(k + 1, *(float(one[k]) for one in percent), level) for k, level in enumerate(found.with_mean)],
    )
    section.add_table(
        f"path_{role.value}",
        Text("Scores of every layer, {role}", role=role.value),
        (*columns("model; layer"), *(column(f"pc{k + 1}", f"PC{k + 1}", 4) for k in range(found.scores.shape[2]))),
        [
            (name, layer, *map(float, found.scores[m, i]))
            for m, name in enumerate(found.names)
            for i, layer in enumerate(found.layers)
        ],
        shown=5,
    )
    caption = Text(
        "Joint principal components of the {count} layers that all models have, {role}: paths in three dimensions and "
        "in two projections (circle: first layer, star: last), and the variance explained beside that of the same "
        "vectors with each model's dimensions in random order (bars: 95 % of such orders).",
        **named,
    )
    section.add_picture(f"path_{role.value}", caption, "bias.space_figures.paths", found, places(run))
    section.notes.append(
        Text(
            "What the first component explains is the level of the layers, which random order leaves alone: a large "
            "share is no sign that models resemble each other."
        )
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
