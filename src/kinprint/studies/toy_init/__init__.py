"""The toy experiment: norm weights that start at one, or at random, in four small GPT-2 trained apart.

The original reports raw cosines. Beside them stand Pearson and the permutation null, which it lacked, and each model's
Pearson with its own start; and because its four streams are phase shifts of one sequence, the experiment is repeated on
text that really differs.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from kinprint._util.numeric import NEAR_CONSTANT, FloatArray
from kinprint.stats import RowGrid, row_grid
from kinprint.studies.opened import Stage, Want
from kinprint.studies.outcome import Cell, Check, Section, Table, column, picture, table
from kinprint.studies.published import published
from kinprint.studies.recipe import Part, Study
from kinprint.studies.toy_init.experiment import FULL, NORMS, REDUCED, ToyModel, ToySetting, run_toy
from kinprint.text import Text


def _experiment(stage: Stage, *, distinct: bool) -> Section:
    setting = replace(FULL if stage.request.full else REDUCED, distinct_data=distinct)
    models = run_toy(setting, progress=stage.progress)
    section = Section(notes=[_described(setting)])
    if distinct:
        section.notes.append(Text("Here each stream is text of its own: a random walk over its own transition table."))
    else:
        section.notes.append(
            Text("As in the original, the four streams are phase shifts of one sequence: other data in name only.")
        )
    if not stage.request.full:
        section.notes.append(Text("Reduced setting; the published one runs with --full and takes far longer."))
    tag = "distinct" if distinct else "published"
    section.tables.append(_losses(models, tag))
    pairs = [(models[0], models[1]), (models[2], models[3])]
    compared = {norm: [row_grid(a.norms[norm], b.norms[norm]) for a, b in pairs] for norm in NORMS}
    section.tables += [_similarities(norm, models, compared[norm], tag) for norm in NORMS]
    section.pictures.append(
        picture(
            f"toy_losses_{tag}",
            Text("Training loss of the four models by step (log scale)."),
            "toy_init.figures.losses",
            [(model.name, model.losses) for model in models],
        )
    )
    section.pictures.append(
        picture(
            f"toy_similarity_{tag}",
            Text(
                "Raw cosine and Pearson between the two models of each initialisation, by layer. Grey: 95 % of independent pairs."
            ),
            "toy_init.figures.similarities",
            compared,
            setting.width,
        )
    )
    if not distinct:
        section.checks = _checks(models, compared, full=stage.request.full)
    return section


def _described(setting: ToySetting) -> Text:
    return Text(
        "GPT-2 with {layers} layers, width {width}, {heads} heads, {positions} positions; batch {batch}, {steps} steps of "
        "Adam at {rate}; model seeds {seeds}. Trained here, by this run, on synthetic sequences.",
        layers=setting.layers,
        width=setting.width,
        heads=setting.heads,
        positions=setting.positions,
        batch=setting.batch,
        steps=setting.steps,
        rate=setting.learning_rate,
        seeds=", ".join(str(seed) for seed in setting.seeds),
    )


def _losses(models: tuple[ToyModel, ...], tag: str) -> Table:
    columns = (
        column("model", "model"),
        column("start", "norm weights start at"),
        column("seed", "seed"),
        column("stream", "stream"),
        column("first", "first loss", 3),
        column("last", "last loss", 3),
        column("moved", "rms change of norm weights", 4),
        column("kept", "Pearson with own start", 4),
    )
    rows: list[tuple[Cell, ...]] = []
    for model in models:
        start = np.concatenate([model.start[norm].ravel() for norm in NORMS])
        final = np.concatenate([model.norms[norm].ravel() for norm in NORMS])
        random = float(start.std()) > NEAR_CONSTANT  # ones have no pattern to keep
        kept = float(row_grid(start[None], final[None]).pearson[0, 0]) if random else None
        moved = float(np.sqrt(np.mean((final - start) ** 2)))
        started = Text("one") if model.initialisation == "ones" else Text("N(0, 1)")
        rows.append((model.name, started, model.seed, model.stream, model.losses[0], model.losses[-1], moved, kept))
    return table(f"toy_losses_{tag}", Text("The four models"), columns, rows)


def _similarities(norm: str, models: tuple[ToyModel, ...], pairs: list[RowGrid], tag: str) -> Table:
    columns = [column("layer", "layer")]
    for key, heading in (("ones", "ones"), ("random", "random")):
        columns += [
            column(f"{key}_cosine", f"{heading}: cosine", 5),
            column(f"{key}_null", f"{heading}: null of cosine", 5),
            column(f"{key}_pearson", f"{heading}: Pearson", 4),
            column(f"{key}_log10_p", f"{heading}: log10 p", 2),
        ]
    columns.append(column("null_sd", "Pearson's null sd", 4))
    width = models[0].norms[norm].shape[1]
    rows: list[tuple[Cell, ...]] = []
    for layer in range(models[0].norms[norm].shape[0]):
        row: list[Cell] = [layer]
        for found in pairs:
            arrays: tuple[FloatArray, ...] = (found.cosine, found.cosine_null_mean, found.pearson, found.log10_p)
            row += [float(values[layer, layer]) for values in arrays]
        rows.append((*row, float(1 / np.sqrt(width - 1))))
    title = Text("{norm}: the two models that start at one, and the two that start at random", norm=norm)
    return table(f"toy_{norm}_{tag}", title, columns, rows)


def _checks(models: tuple[ToyModel, ...], compared: dict[str, list[RowGrid]], *, full: bool) -> list[Check]:
    """Losses and cosines as published; a smaller model than theirs is shown beside them, without a result."""
    known = published()["hyunwoongko"]["toy_gpt2"]
    found = []

    def check(what: Text, value: float, measured: float, digits: int, within: float) -> None:
        found.append(Check(what, value, measured, digits, "measured", _OTHER, within, comparable=full))

    for model, first, last in zip(models, known["first_loss"], known["last_loss"], strict=True):
        check(Text("first loss of {model}", model=model.name), first, model.losses[0], 3, 0.1)
        check(Text("last loss of {model}", model=model.name), last, model.losses[-1], 3, 0.02)
    for norm in NORMS:
        for kind, pairs, within in (("ones", compared[norm][0], 1e-4), ("rand", compared[norm][1], 0.1)):
            cosines = np.diagonal(pairs.cosine).tolist()
            least = Text("least cosine over layers, {norm}, {kind}", norm=norm, kind=kind)
            largest = Text("largest cosine over layers, {norm}, {kind}", norm=norm, kind=kind)
            check(least, min(known[kind][norm]), min(cosines), 5, within)
            check(largest, max(known[kind][norm]), max(cosines), 5, within)
    return found


_OTHER = Text("another random generator, and a smaller model unless --full: compare sizes, not digits")


def _nothing(_stage: Stage) -> list[Want]:
    return []


STUDY = Study(
    name="toy-init",
    title=Text("Norm weights that start at one, or at random"),
    summary=Text(
        "Four small GPT-2 are trained apart, two with norm weights starting at one and two at random; their raw cosines stand "
        "beside Pearson and the permutation null."
    ),
    source=Text("hyunwoongko/solar-vs-glm-vs-phi, toy experiment"),
    models=(),
    wants=_nothing,
    parts=(
        Part("published", Text("The streams of the original"), partial(_experiment, distinct=False)),
        Part("distinct", Text("Streams that really differ"), partial(_experiment, distinct=True)),
    ),
    replica_parts=(),
)
