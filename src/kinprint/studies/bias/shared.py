"""Choose the models, roles and layers that the bias study compares, and summarise values by layer."""

import itertools
import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import FloatArray
from kinprint.arch import Axis, Role
from kinprint.results.measurements import NullResult
from kinprint.studies.layer_pairs import LayerPair, layer_pair
from kinprint.studies.opened import ModelWant, StudyRun, each, sides, vector_wants
from kinprint.studies.outcome import Missing
from kinprint.text import Text

INPUT, POST = Role.INPUT_NORM, Role.POST_ATTENTION_NORM
ORIGINALS = ("Solar", "GLM", "INTELLECT", "Phi")
PUBLISHED_PAIRS = (("Solar", "GLM"), ("GLM", "INTELLECT"), ("Phi", "Solar"), ("GLM", "Phi"))
SAMPLE = (13, 13, 12, 12)
SAMPLE_SEED = 42
RELATED = 0.5  # mean Pearson above which a pair is drawn on a scale of its own: it would flatten all others


def wants(run: StudyRun) -> Iterable[ModelWant]:
    """Return every vector that a part may look at."""
    roles = dict.fromkeys((INPUT, POST, *(role for role in run.request.roles if _is_residual_vector(role))))
    return vector_wants(run, roles, run.request.layers)


def vector_roles(run: StudyRun, default: tuple[Role, ...], missing: list[Text]) -> tuple[Role, ...]:
    """Return the roles asked for that are vectors along the residual stream, else `default`; note the others."""
    kept = tuple(role for role in run.request.roles if _is_residual_vector(role))
    missing += [
        Text("{role} is no vector along the residual stream: this study looks at those only", role=role.value)
        for role in run.request.roles
        if role not in kept
    ]
    return kept if run.request.roles else default


def _is_residual_vector(role: Role) -> bool:
    return role.info.scope == "layer" and role.info.axes == (Axis.RESIDUAL,)


def model_pairs(run: StudyRun) -> tuple[tuple[str, str], ...]:
    """Return all pairs of the models that could be opened; `Missing` if there are fewer than two."""
    if len(run.names) < 2:
        raise Missing("two models are needed for a comparison; {count} could be opened", count=len(run.names))
    return tuple(itertools.combinations(run.names, 2))


def first_pair(run: StudyRun) -> tuple[tuple[str, str], ...]:
    """Return the pair of the first two models."""
    return model_pairs(run)[:1]


def compared_pairs(run: StudyRun, role: Role, missing: list[Text]) -> list[LayerPair]:
    """Return all pairs of models on the layers that they share; note those that cannot be compared."""
    return each(missing, model_pairs(run), lambda names: layer_pair(run, *names, role), lambda names: sides(*names))


def pair_sides(pair: LayerPair) -> Text:
    """Return how an error's “a” and “b” are told apart."""
    return sides(pair.a, pair.b)


def figure_pairs(run: StudyRun) -> tuple[tuple[str, str], ...]:
    """Return the pairs that get a figure of their own: the published four for the published models, else all."""
    if {member.name for member in run.models} == set(ORIGINALS) and run.original(*run.names):
        return PUBLISHED_PAIRS
    return model_pairs(run)


def places(run: StudyRun) -> dict[str, int]:
    """Return each model's place in the run, so that a model without a known look has the same colour in every figure."""
    return {name: place for place, name in enumerate(run.names)}


def layer_stack(run: StudyRun, name: str, role: Role) -> tuple[tuple[int, ...], FloatArray]:
    """Return the layers asked for of one model, and their vectors."""
    return run.stack(name, role, run.request.layers)


def naive_t(values: FloatArray) -> float | None:
    """Return the t statistic of the mean over layers, as if the layers were independent."""
    kept = values[np.isfinite(values)]
    spread = float(kept.std(ddof=1)) if kept.size > 1 else 0.0
    return float(kept.mean()) / (spread / math.sqrt(kept.size)) if spread > 0.0 else None


def lag_one(values: FloatArray) -> float | None:
    """Return the autocorrelation of neighbouring layers, which is 0 for independent ones."""
    kept = values[np.isfinite(values)]
    centred = kept - kept.mean() if kept.size else kept
    square = float(centred @ centred)
    return float(centred[:-1] @ centred[1:]) / square if square > 0.0 else None


def effective_layers(null: NullResult) -> float | None:
    """Return how many independent layers would give the joint null's spread."""
    return None if null.sd == 0.0 else 1.0 / ((null.n - 1) * null.sd**2)


def quartile_sample(a: FloatArray, b: FloatArray, seed: int) -> NDArray[np.int64]:
    """Return dimensions drawn from the quarters of (a + b)/2, 13 + 13 + 12 + 12, in ascending order of that mean."""
    middle = (a + b) / 2.0
    rng = np.random.default_rng(seed)
    quarters = np.array_split(np.argsort(middle, kind="stable"), len(SAMPLE))
    drawn = [rng.choice(q, min(n, q.size), replace=False) for q, n in zip(quarters, SAMPLE, strict=True)]
    chosen = np.concatenate(drawn)
    ordered: NDArray[np.int64] = chosen[np.argsort(middle[chosen], kind="stable")]
    return ordered


def extent(values: FloatArray) -> tuple[float, float]:
    """Return the least and the largest value."""
    return float(values.min()), float(values.max())
