"""Declare a fingerprint method: a score that rises with likeness, with its needs, invariances and null.

To add a method, write one file in `kinprint.fingerprints.methods` with one class, and name it in its `__init__`. Where a score
follows from features of each model alone, write `extract` and `score` (it then works on fingerprint files), else `score_models`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import NEAR_CONSTANT, FloatArray
from kinprint.errors import DegenerateInput
from kinprint.model.weights import Matrix, Weights
from kinprint.registry import Registry
from kinprint.results.findings import MethodNull
from kinprint.stats.kernels import unbiased_cka_moments
from kinprint.stats.tails import least_log10_p, log10_p_normal
from kinprint.text import Text


class Need(StrEnum):
    """What a method needs of a model."""

    WEIGHTS = "weights"
    TOKENIZER = "tokenizer"
    FORWARD = "forward pass"


class Change(StrEnum):
    """A change of a model that leaves its function as it is."""

    RESIDUAL_PERMUTATION = "residual permutation"
    SIGN_FLIPS = "sign flips"
    ROTATION = "rotation"
    NEURON_PERMUTATION = "neuron permutation"
    HEAD_PERMUTATION = "head permutation"
    RESCALING = "rescaling"  # of a neuron's up row against its down column, of values against outputs


CHANGES = tuple(Change)


def all_but(*changes: Change) -> tuple[Change, ...]:
    """Return the changes that a method withstands, given those that defeat it."""
    return tuple(change for change in CHANGES if change not in changes)


@dataclass(frozen=True)
class Features:
    """Small arrays that a method keeps of one model, and scalars that say how to read them."""

    method: str
    version: int
    arrays: Mapping[str, NDArray[Any]]
    facts: Mapping[str, int | float | str] = field(default_factory=dict)


def pair_null(
    name: Text, mean: float | None, sd: float | None, log10_p: float | None, n: int, *assumptions: Text, exact: bool
) -> MethodNull:
    """Return a null that the pair itself provides; `exact` says that unrelated models follow it whatever they were trained on."""
    return MethodNull(name, exact, mean, sd, None, log10_p, None, n, assumptions)


def cka_chance(value: float, n: int, name: Text, *assumptions: Text) -> MethodNull:
    """Return the null of one unbiased CKA over `n` samples, not exact: mean 0, exact variance, normal tail, not below 1/n!."""
    sd = math.sqrt(unbiased_cka_moments(n).variance)
    log10_p = max(log10_p_normal(value / sd), least_log10_p(n))
    return pair_null(name, 0.0, sd, log10_p, n, *assumptions, exact=False)


def unit_rows(X: Matrix) -> Matrix:
    """Return the rows at unit length, zeros where a row is zero; float32, lengths summed in float64."""
    lengths = np.sqrt(np.einsum("ij,ij->i", X, X, dtype=np.float64))[:, None].astype(np.float32)
    unit: Matrix = np.divide(X, lengths, out=np.zeros_like(X), where=lengths > 0.0)
    return unit


def standardised(M: NDArray[Any], constant: DegenerateInput) -> FloatArray:
    """Return values of mean 0 and variance 1, in float64; raise `constant` where they are all the same."""
    values = M.astype(np.float64)
    mean = float(values.mean())
    values -= mean
    spread = float(np.sqrt(np.mean(np.square(values))))
    if spread <= NEAR_CONSTANT * abs(mean):
        raise constant
    return values / spread


def correlation(A: NDArray[Any], B: NDArray[Any], constant: DegenerateInput) -> float:
    """Return Pearson's r over all elements; raise `constant` where it is not defined."""
    return float(np.clip(np.mean(standardised(A, constant) * standardised(B, constant)), -1.0, 1.0))


@dataclass(frozen=True)
class Score:
    """Likeness of two models by one method, as its authors define the value; larger is more alike."""

    value: float
    chance: MethodNull | None = None  # the null of the pair itself, where there is one; z is filled in beside the value
    details: Mapping[str, float] = field(default_factory=dict)  # further figures: a biased estimator, the best layers
    layers: Mapping[int, int] = field(default_factory=dict)  # of methods that localise: layer of B to layer of A
    notes: tuple[Text, ...] = ()  # what a reader must know of this pair


class Method(ABC):
    """Fingerprint method. Class attributes declare needs and invariances; instances hold no state."""

    name: ClassVar[str]
    title: ClassVar[Text]
    version: ClassVar[int] = 1
    needs: ClassVar[tuple[Need, ...]] = (Need.WEIGHTS,)
    invariant_to: ClassVar[tuple[Change, ...]] = ()
    """These leave the score of a model with itself at its largest. What is not named does not."""
    portable: ClassVar[bool] = False
    summary: ClassVar[Text] = Text("")
    """One sentence for the table of methods."""
    references: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def score_models(self, a: Weights, b: Weights, *, seed: int = 0) -> Score:
        """Compare two models; raise `DegenerateInput` where the method does not apply, with the reason for its row."""


class PortableMethod(Method):
    """A method whose score follows from features of each model alone."""

    portable: ClassVar[bool] = True

    @abstractmethod
    def extract(self, model: Weights) -> Features:
        """Return what the score needs of one model; raises `DegenerateInput` where the method does not apply."""

    @abstractmethod
    def score(self, a: Features, b: Features, *, seed: int = 0) -> Score:
        """Compare two models by their features."""

    def score_models(self, a: Weights, b: Weights, *, seed: int = 0) -> Score:
        """Extract, then compare."""
        return self.score(self.extract(a), self.extract(b), seed=seed)


def check_needs(method: Method, *models: Weights) -> None:
    """Refuse a method that needs a tokenizer where a model has none: pairing tokens by number would be a guess."""
    lacking = [model.label for model in models if Need.TOKENIZER in method.needs and not model.vocabulary()]
    if lacking:
        raise DegenerateInput(
            "it needs a tokenizer.json to know which tokens are the same; {name} has none", name=lacking[0]
        )


METHODS: Registry[Method] = Registry("method")


def register(method: type[Method]) -> type[Method]:
    """Add a method to `METHODS`."""
    METHODS.add(method.name, method())
    return method
