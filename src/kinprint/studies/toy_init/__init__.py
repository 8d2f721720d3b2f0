"""Train four small GPT-2 apart, whose norm weights start at one or at random, and compare the norms (toy experiment).

The original reports raw cosines. Beside them stand Pearson and the permutation null, and each model's Pearson with its own start;
because the original's four streams are phase shifts of one sequence, the experiment is repeated on text that really differs.
"""

from dataclasses import replace
from functools import partial

import numpy as np

from kinprint._util.numeric import NEAR_CONSTANT
from kinprint.studies.opened import StudyRun
from kinprint.studies.outcome import Cell, Section, columns
from kinprint.studies.published import claims, published_checks
from kinprint.studies.recipe import Part, Study
from kinprint.studies.row_grid import row_grid
from kinprint.studies.toy_init.experiment import FULL, NORMS, REDUCED, ToyModel, ToySetting, run_toy
from kinprint.text import Text

COLUMNS = columns(
    "layer; ones_cosine: ones: cosine .5; ones_null: ones: null of cosine .5; ones_pearson: ones: Pearson .4; "
    "ones_log10_p: ones: log10 p .2; random_cosine: random: cosine .5; random_null: random: null of cosine .5; "
    "random_pearson: random: Pearson .4; random_log10_p: random: log10 p .2; null_sd: Pearson's null sd .4"
)
TOLERANCES = {"tolerance ones": 1e-4, "tolerance rand": 0.1}


def _experiment(run: StudyRun, *, distinct: bool) -> Section:
    published = FULL if run.request.full else REDUCED
    setting = published.distinct() if distinct else published
    streams = Text("As in the original, the four streams are phase shifts of one sequence: other data in name only.")
    if distinct:
        streams = Text("Here each stream is text of its own: a random walk over its own transition table.")
    section = Section(notes=[_described(setting), streams])
    if not run.request.full:
        section.note("Reduced setting; the published one runs with --full and takes far longer.")
    elif distinct:
        said = "This part is not the original's: to save time its batch is {batch} instead of {published}."
        section.note(said, batch=setting.batch, published=published.batch)
    folder = run.folder / "training" if run.folder and run.request.full else None
    models = run_toy(setting, folder=folder, progress=run.progress)
    section.notes += [model.note for model in models if model.note]
    tag = "distinct" if distinct else "published"
    _add_losses(section, models, tag)
    pairs = [(models[0], models[1]), (models[2], models[3])]
    compared = {norm: [row_grid(a.norms[norm], b.norms[norm]) for a, b in pairs] for norm in NORMS}
    for norm, found in compared.items():
        values = [x for pair in found for x in (pair.cosine, pair.cosine_null_mean, pair.pearson, pair.log10_p)]
        by_layer = zip(*map(np.diagonal, values), strict=True)
        rows = [(layer, *cells, 1 / np.sqrt(setting.width - 1)) for layer, cells in enumerate(by_layer)]
        title = Text("{norm}: the two models that start at one, and the two that start at random", norm=norm)
        section.add_table(f"toy_{norm}_{tag}", title, COLUMNS, rows)
    losses = [(model.name, model.losses) for model in models]
    section.add_picture(f"toy_losses_{tag}", "toy_init.losses", losses)
    section.add_picture(f"toy_similarity_{tag}", "toy_init.similarities", compared, setting.width)
    if not distinct:  # a smaller model than the published one is shown beside its figures, without a result
        checks = published_checks(run, section, claims("toy-init")["published"], TOLERANCES)
        section.checks = [replace(check, comparable=run.request.full) for check in checks]
    return section


def _described(setting: ToySetting) -> Text:
    sizes = {name: getattr(setting, name) for name in ("layers", "width", "heads", "positions", "batch", "steps")}
    return Text(
        "GPT-2 with {layers} layers, width {width}, {heads} heads, {positions} positions; batch {batch}, {steps} steps of "
        "Adam at {rate}; model seeds {seeds}. Trained here, by this run, on synthetic sequences.",
        **sizes,
        rate=setting.learning_rate,
        seeds=", ".join(map(str, setting.seeds)),
    )


def _add_losses(section: Section, models: tuple[ToyModel, ...], tag: str) -> None:
    head = columns(
        "model; start: norm weights start at; seed; stream; first: first loss .3; last: last loss .3; "
        "moved: rms change of norm weights .4; kept: Pearson with own start .4"
    )
    rows: list[tuple[Cell, ...]] = []
    for model in models:
        start, final = (np.concatenate([x[norm].ravel() for norm in NORMS]) for x in (model.start, model.norms))
        random = float(start.std()) > NEAR_CONSTANT  # ones have no pattern to keep
        kept = float(row_grid(start[None], final[None]).pearson[0, 0]) if random else None
        moved = float(np.sqrt(np.mean((final - start) ** 2)))
        started = Text("one") if model.initialisation == "ones" else Text("N(0, 1)")
        rows.append((model.name, started, model.seed, model.stream, model.losses[0], model.losses[-1], moved, kept))
    section.add_table(f"toy_losses_{tag}", Text("The four models"), head, rows)


STUDY = Study(
    name="toy-init",
    title=Text("Norm weights that start at one, or at random"),
    summary=Text(
        "Four small GPT-2 are trained apart, two with norm weights starting at one and two at random; their raw cosines stand "
        "beside Pearson and the permutation null."
    ),
    source=Text("hyunwoongko/solar-vs-glm-vs-phi, toy experiment"),
    models=(),
    wants=lambda _: (),
    parts=(
        Part("published", Text("The streams of the original"), partial(_experiment, distinct=False)),
        Part("distinct", Text("Streams that really differ"), partial(_experiment, distinct=True)),
    ),
    replica_parts=(),
)
