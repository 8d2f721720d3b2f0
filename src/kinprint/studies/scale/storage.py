"""Store norm weights in narrow formats and list what is left of their pattern (a part of the scale study)."""

import itertools
import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.arch import Role
from kinprint.metrics.identity import GRIDS
from kinprint.studies.opened import StudyRun, attempt
from kinprint.studies.outcome import Cell, Missing, Section, columns
from kinprint.studies.scale.rounding import FORMATS, SCHEMES, KeptPattern, before_rounding, needs_simulation, store
from kinprint.text import Text

ROLES = (Role.INPUT_NORM, Role.POST_ATTENTION_NORM)


def norm_stack(run: StudyRun, name: str, role: Role) -> tuple[tuple[int, ...], FloatArray]:
    """Return the layers of a norm role and its weights as rows; `Missing` if the role is no norm, or the model lacks it."""
    if role.info.kind != "norm":
        raise Missing("{role} is no norm weight: this study looks at norms only", role=role.value)
    return run.stack(name, role, run.request.layers)


@dataclass(frozen=True)
class StoredPattern:
    """What a format keeps of one layer's pattern, for every way to store it."""

    model: str
    role: str
    layer: int
    dtype: str
    simulated: bool
    predicted: float  # bits, from the step of the format at the common scale
    kept: dict[str, KeptPattern | None]  # None: the weight is constant, or a value lies beyond the format

    @property
    def truth(self) -> Text:
        """What the stored pattern is compared with."""
        return Text("simulated") if self.simulated else Text("stored")

    def bits(self, scheme: str) -> float:
        """Return the effective bits; NaN if it could not be stored."""
        found = self.kept[scheme]
        return math.nan if found is None else found.bits

    def correlation(self, scheme: str) -> float | None:
        """Return the correlation with the original pattern; None if it could not be stored, or nothing is left."""
        found = self.kept[scheme]
        return None if found is None else found.correlation


def storage(run: StudyRun) -> Section:
    """Store every norm weight in every format, in three ways."""
    section = Section(notes=[*_NOTES, *([_REPLICAS] if run.request.replicas else [])])
    found: list[StoredPattern] = []
    for role, name in itertools.product(run.request.roles or ROLES, run.names):
        run.progress(f"storing {role.value}", 0, 1)
        found += attempt(section.missing, partial(_one_model, run, name, role)) or []
    if not found:
        return section
    _add_summary(section, found)
    _add_layers(section, found)
    for name in dict.fromkeys(item.role for item in found):
        chosen = [item for item in found if item.role == name]
        section.add_picture(f"bits_{name}", "scale.bits", chosen, name, role=name)
        widths = [run.width(model) or 0 for model in {item.model for item in chosen}]
        null_sd = 1.0 / math.sqrt(min((width for width in widths if width > 1), default=2) - 1)
        section.add_picture(f"correlation_{name}", "scale.correlations", chosen, name, null_sd, role=name)
    return section


_NOTES = (
    Text(
        "The common scale takes up the leading bits of every stored number, and what is left has to hold the pattern: small "
        "differences are swamped by a large common term when the number is rounded. That is not catastrophic cancellation: "
        "subtracting the mean afterwards is harmless and cannot bring back what rounding dropped."
    ),
    Text(
        "Error: root mean square of the change of the pattern (mean removed) over that of the pattern. Effective bits: −log2 of "
        "the error, the logarithm of the signal-to-noise ratio. Predicted: from the distance of neighbouring numbers at the "
        "mean, step/√12 over the pattern's standard deviation."
    ),
    Text(
        "Truth. For formats with fewer significant bits than the file's, the stored values are taken as the truth. For the "
        "file's own format and finer ones that would show no loss, because what was lost was lost before the file was written "
        "and cannot be measured; there the truth is simulated: each value is drawn evenly (seeded) from the numbers that round "
        "to the stored one. That shows what rounding of this size costs, not what these weights were."
    ),
    Text(
        "Ways to store: γ as it is; γ − 1 (zero-centred); scale and pattern apart, γ = s·(1 + p) with the mean s in float32 and "
        "p in the format."
    ),
)


_REPLICAS = Text(
    "In replicas means, standard deviations and correlations are the published ones, but not the single values: what follows "
    "describes rounding at these scales, not these models."
)


def _one_model(run: StudyRun, name: str, role: Role) -> list[StoredPattern]:
    layers, _ = norm_stack(run, name, role)
    rng, found = np.random.default_rng(run.request.seed), []
    for layer in layers:
        offset, dtype = run.part(name, role, layer).offset, run.stored(name, role, layer)
        raw = run.raw(name, role, layer).astype(np.float64).ravel()
        simulated = before_rounding(raw, dtype, rng) + offset if dtype in GRIDS else raw + offset
        for target in FORMATS:
            drawn = needs_simulation(dtype, target)
            truth = simulated if drawn else raw + offset
            kept = {scheme: attempt([], partial(store, truth, target, scheme)) for scheme in SCHEMES}
            found.append(StoredPattern(name, role.value, layer, target, drawn, _predicted(truth, target), kept))
    return found


def _predicted(truth: FloatArray, dtype: str) -> float:
    """Return the bits that swamping alone predicts: those of a rounding error of one step at the mean."""
    grid, mean, sd = GRIDS[dtype], abs(float(truth.mean())), float(truth.std())
    if sd == 0.0:
        return math.nan
    step = math.ldexp(1.0, max(math.frexp(mean)[1] - grid.precision, grid.least))
    return -math.log2(step / math.sqrt(12.0) / sd)


def _shown(bits: float) -> Cell:
    return None if math.isnan(bits) else Text("exact") if math.isinf(bits) else bits


def _add_layers(section: Section, found: list[StoredPattern]) -> None:
    head = columns(
        "model; role; layer; format; truth; error: relative error of the pattern .4; correlation .5; bits: effective bits, γ .2; "
        "predicted: predicted bits, γ .2; bits_minus_one: effective bits, γ − 1 .2; bits_apart: effective bits, apart .2; "
        "correlation_apart: correlation, apart .5"
    )
    rows: list[tuple[Cell, ...]] = []
    for item in found:
        plain, (as_is, *others) = item.kept["as_is"], [_shown(item.bits(scheme)) for scheme in SCHEMES]
        kept = (None if plain is None else plain.error, item.correlation("as_is"), as_is, item.predicted, *others)
        rows.append((item.model, item.role, item.layer, item.dtype, item.truth, *kept, item.correlation("apart")))
    title = Text("What each format keeps of the pattern, by layer")
    section.add_table("storage", title, head, rows, shown=16)


def _add_summary(section: Section, found: list[StoredPattern]) -> None:
    head = columns(
        "model; role; format; truth; median: median bits, γ .2; least: least bits, γ .2; at: at layer; "
        "correlation: correlation there .5; median_minus_one: median bits, γ − 1 .2; least_minus_one: least bits, γ − 1 .2; "
        "median_apart: median bits, apart .2; least_apart: least bits, apart .2"
    )
    rows: list[tuple[Cell, ...]] = []
    for key in dict.fromkeys((item.model, item.role, item.dtype) for item in found):
        chosen = [item for item in found if (item.model, item.role, item.dtype) == key]
        held = [item for item in chosen if item.kept["as_is"] is not None]
        worst = min(held, key=lambda item: item.bits("as_is"), default=None)
        cells: list[Cell] = []
        for scheme in SCHEMES:
            bits = [item.bits(scheme) for item in chosen if item.kept[scheme] is not None]
            cells += [_shown(float(np.median(bits))), _shown(min(bits))] if bits else [None, None]
        at: tuple[Cell, Cell] = (None, None) if worst is None else (worst.layer, worst.correlation("as_is"))
        rows.append((*key, chosen[0].truth, *cells[:2], *at, *cells[2:]))
    title = Text("What each format keeps of the pattern: median and worst layer")
    section.add_table("storage_summary", title, head, rows)
