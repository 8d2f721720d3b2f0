"""What several parts of the bias study use: two models on shared layers, their null, all layers in one test."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import FloatArray
from kinprint.arch import Axis, Role
from kinprint.results.measurements import NullResult
from kinprint.stats import all_pairs, joint_tail
from kinprint.studies.opened import Stage, Want
from kinprint.studies.outcome import Missing
from kinprint.text import Text

INPUT, POST = Role.INPUT_NORM, Role.POST_ATTENTION_NORM
ORIGINALS = ("Solar", "GLM", "INTELLECT", "Phi")
PUBLISHED_PAIRS = (("Solar", "GLM"), ("GLM", "INTELLECT"), ("Phi", "Solar"), ("GLM", "Phi"))
SAMPLE = (13, 13, 12, 12)
SAMPLE_SEED = 42
RELATED = 0.5
"""Mean Pearson above which a pair is drawn on a scale of its own: it would flatten all others."""

_BY_LAYER = ("cosine", "cosine_null_mean", "cosine_null_sd", "pearson", "z", "log10_p")


def wants(stage: Stage) -> Iterable[Want]:
    """Every vector that a part may look at."""
    roles = dict.fromkeys((INPUT, POST, *(role for role in stage.request.roles if _is_residual_vector(role))))
    for name, role in itertools.product(stage.names, roles):
        for layer in stage.layers(name, role):
            if stage.request.layers is None or layer in stage.request.layers:
                yield Want(name, role, layer)


def vector_roles(stage: Stage, default: tuple[Role, ...], missing: list[Text]) -> tuple[Role, ...]:
    """Return the roles asked for that are vectors along the residual stream, else `default`; note the others."""
    kept = tuple(role for role in stage.request.roles if _is_residual_vector(role))
    missing += [
        Text("{role} is no vector along the residual stream: this study looks at those only", role=role.value)
        for role in stage.request.roles
        if role not in kept
    ]
    return kept if stage.request.roles else default


def _is_residual_vector(role: Role) -> bool:
    return role.info.scope == "layer" and role.info.axes == (Axis.RESIDUAL,)


def model_pairs(stage: Stage) -> tuple[tuple[str, str], ...]:
    """Return all pairs of the models that could be opened.

    Raises
    ------
    Missing
        If there are fewer than two.
    """
    if len(stage.names) < 2:
        raise Missing(Text("two models are needed for a comparison; {count} could be opened", count=len(stage.names)))
    return tuple(itertools.combinations(stage.names, 2))


def figure_pairs(stage: Stage) -> tuple[tuple[str, str], ...]:
    """Return the pairs that get a figure of their own: the published four for the published models, else all."""
    if {member.name for member in stage.members} == set(ORIGINALS) and stage.original(*stage.names):
        return PUBLISHED_PAIRS
    return model_pairs(stage)


def places(stage: Stage) -> dict[str, int]:
    """Return each model's place in the run, so that a model without a known look has the same colour in every figure."""
    return {name: place for place, name in enumerate(stage.names)}


def published_case(stage: Stage, role: Role, *names: str) -> bool:
    """Whether published figures apply: the published models, their input norm, and all layers."""
    return role is INPUT and stage.request.layers is None and stage.original(*names)


def layer_stack(stage: Stage, name: str, role: Role) -> tuple[tuple[int, ...], FloatArray]:
    """Return the layers asked for of one model, and their vectors."""
    return stage.stack(name, role, stage.request.layers)


@dataclass(frozen=True)
class PairFacts:
    """Two models on the layers that both have, same layer against same layer.

    ``pearson``, ``z`` and ``log10_p`` are NaN where a side is constant, ``cosine`` and its null where one is zero.
    """

    a: str
    b: str
    role: Role
    layers: tuple[int, ...]
    left: FloatArray
    right: FloatArray
    cosine: FloatArray
    cosine_null_mean: FloatArray
    cosine_null_sd: FloatArray
    pearson: FloatArray
    z: FloatArray
    log10_p: FloatArray

    @property
    def title(self) -> str:
        """The pair as figures name it."""
        return f"{self.a} and {self.b}, {self.role.value}"

    @property
    def null_sd(self) -> float:
        """Standard deviation of one layer's Pearson over all orders: exact, and the same for all layers."""
        return 1.0 / math.sqrt(self.left.shape[1] - 1)

    @property
    def best(self) -> int:
        """Position of the layer with the largest raw cosine.

        Raises
        ------
        Missing
            If no layer has a cosine.
        """
        if not np.isfinite(self.cosine).any():
            raise Missing(Text("{a} and {b} have no layer with a cosine: all are zero", a=self.a, b=self.b))
        return int(np.nanargmax(self.cosine))

    @property
    def mean_pearson(self) -> float:
        """Mean over the layers that have a Pearson; NaN if none has."""
        return finite_mean(self.pearson)

    def joint(self, seed: int) -> NullResult:
        """Test the mean of all layers' Pearson under ONE permutation of the residual stream.

        The layers of a model resemble each other, so they are not so many independent trials; the spread of the mean over
        permutations that serve all layers holds their correlations exactly.

        Raises
        ------
        Missing
            If no layer has a Pearson correlation.
        """
        usable = np.flatnonzero(np.isfinite(self.pearson))
        if not usable.size:
            raise Missing(
                Text(
                    "{a} and {b}: no layer of {role} to test, as one side or the other is constant in each",
                    a=self.a,
                    b=self.b,
                    role=self.role.value,
                )
            )
        return joint_tail([(self.left[i : i + 1], self.right[i : i + 1]) for i in usable], seed=seed)


def pair_facts(stage: Stage, a: str, b: str, role: Role, layers: Sequence[int] | None = None) -> PairFacts:
    """Return two models' shared layers (only `layers`, if given), compared.

    Raises
    ------
    Missing
        If they share no such layer, or their widths differ.
    """
    shared, left, right = stage.stacks(a, b, role)
    if layers is not None:
        keep = [i for i, layer in enumerate(shared) if layer in set(layers)]
        if not keep:
            raise Missing(Text("{a} and {b} share no layer with the role {role}", a=a, b=b, role=role.value))
        shared, left, right = tuple(shared[i] for i in keep), left[keep], right[keep]
    found = [all_pairs(left[i : i + 1], right[i : i + 1]) for i in range(len(shared))]
    by_layer = {name: np.array([getattr(one, name)[0, 0] for one in found]) for name in _BY_LAYER}
    return PairFacts(a, b, role, shared, left, right, **by_layer)


def add_facts(stage: Stage, found: list[PairFacts], a: str, b: str, role: Role) -> None:
    """Add a pair's facts to `found`; for `attempt`, which runs an action."""
    found.append(pair_facts(stage, a, b, role))


def finite_mean(values: FloatArray) -> float:
    """Return the mean of the numbers among `values`; NaN if there are none."""
    kept = values[np.isfinite(values)]
    return float(kept.mean()) if kept.size else math.nan


def finite_median(values: FloatArray) -> float:
    """Return the median of the numbers among `values`; NaN if there are none."""
    kept = values[np.isfinite(values)]
    return float(np.median(kept)) if kept.size else math.nan


def finite_sd(values: FloatArray) -> float:
    """Return the population standard deviation of the numbers among `values`; NaN if there are none."""
    kept = values[np.isfinite(values)]
    return float(kept.std()) if kept.size else math.nan


def naive_t(values: FloatArray) -> float | None:
    """Return the t that a mean would have if the layers were independent; they are not."""
    kept = values[np.isfinite(values)]
    spread = float(kept.std(ddof=1)) if kept.size > 1 else 0.0
    return float(kept.mean()) / (spread / math.sqrt(kept.size)) if spread > 0.0 else None


def lag_one(values: FloatArray) -> float | None:
    """Return the autocorrelation of neighbouring layers: 0 if they were independent."""
    kept = values[np.isfinite(values)]
    centred = kept - kept.mean() if kept.size else kept
    square = float(centred @ centred)
    return float(centred[:-1] @ centred[1:]) / square if square > 0.0 else None


def effective_layers(null: NullResult) -> float | None:
    """Return how many independent layers would give the joint null's spread."""
    return None if null.sd == 0.0 else 1.0 / ((null.n - 1) * null.sd**2)


def quartile_sample(a: FloatArray, b: FloatArray, seed: int) -> NDArray[np.int64]:
    """Return dimensions drawn from the quarters of (a + b)/2, 13 + 13 + 12 + 12, in ascending order of it."""
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
