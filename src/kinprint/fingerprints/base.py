"""What a method is: a number that is larger the more alike two models are, with its needs, invariances and null declared.

To add a method, write one file in `kinprint.fingerprints.methods` with one class, and name it in `catalogue`. Where the number
can be had from what each model shows alone, `extract` and `score` are written apart, and the method works on fingerprint files;
where one model must be held against the other (an assignment, say), only `score_models` is written.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from numpy.typing import NDArray

from kinprint.errors import DegenerateInput
from kinprint.model.weights import Weights
from kinprint.registry import Registry
from kinprint.text import Text

WEIGHTS, TOKENIZER, FORWARD = "weights", "tokenizer", "forward pass"
NEEDS = (WEIGHTS, TOKENIZER, FORWARD)

# Changes of a model that leave its function as it is.
RESIDUAL_PERMUTATION = "residual permutation"
SIGN_FLIPS = "sign flips"
ROTATION = "rotation"
NEURON_PERMUTATION = "neuron permutation"
HEAD_PERMUTATION = "head permutation"
RESCALING = "rescaling"  # of a neuron's up row against its down column, of values against outputs
CHANGES = (RESIDUAL_PERMUTATION, SIGN_FLIPS, ROTATION, NEURON_PERMUTATION, HEAD_PERMUTATION, RESCALING)


@dataclass(frozen=True)
class Features:
    """What a method keeps of one model: small arrays, and numbers that say how to read them."""

    method: str
    version: int
    arrays: Mapping[str, NDArray[Any]]
    facts: Mapping[str, int | float | str] = field(default_factory=dict)


@dataclass(frozen=True)
class Chance:
    """A null that the pair itself provides.

    Parameters
    ----------
    name : what is permuted or drawn.
    mean, sd : of the score under it.
    log10_p : one-sided, towards "more alike".
    n : exchangeable units, or draws.
    exact : whether unrelated models follow it whatever they were trained on. A permutation of tokens is not exact: tokens have a
        meaning that any two models share.
    assumptions : what has to hold.
    """

    name: Text
    mean: float | None
    sd: float | None
    log10_p: float | None
    n: int
    exact: bool
    assumptions: tuple[Text, ...] = ()


@dataclass(frozen=True)
class Score:
    """How alike two models are to one method; larger is more alike.

    Parameters
    ----------
    value : the method's number, as its authors define it.
    chance : the null of the pair itself, where there is one.
    details : further figures by name (the biased estimator, the best pair of layers), for the reader.
    layers : for methods that localise, layer of B to layer of A.
    notes : what a reader must know of this pair.
    """

    value: float
    chance: Chance | None = None
    details: Mapping[str, float] = field(default_factory=dict)
    layers: Mapping[int, int] = field(default_factory=dict)
    notes: tuple[Text, ...] = ()


class Method(ABC):
    """One fingerprint method. Class attributes declare it; instances hold no state."""

    name: ClassVar[str]
    title: ClassVar[Text]
    version: ClassVar[int] = 1
    needs: ClassVar[tuple[str, ...]] = (WEIGHTS,)
    invariant_to: ClassVar[tuple[str, ...]] = ()
    """Out of `CHANGES`: these leave the score of a model with itself at its largest. What is not named does not."""
    portable: ClassVar[bool] = False
    bounds: ClassVar[tuple[float, float]] = (-1.0, 1.0)
    summary: ClassVar[Text] = Text("")
    """One sentence for the table of methods."""
    references: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def score_models(self, a: Weights, b: Weights, *, seed: int = 0) -> Score:
        """Hold two models against each other.

        Raises
        ------
        DegenerateInput
            If the method cannot be applied to these; the message says why, and becomes the status of its row.
        """


class PortableMethod(Method):
    """A method whose score is had from features of each model alone."""

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
    if TOKENIZER in method.needs:
        for model in models:
            if not model.vocabulary():
                raise DegenerateInput(
                    "it needs a tokenizer.json to know which tokens are the same; {name} has none", name=model.label
                )


METHODS: Registry[Method] = Registry("method")


def register(method: type[Method]) -> type[Method]:
    """Add a method to `METHODS`."""
    unknown = [*set(method.needs) - set(NEEDS), *set(method.invariant_to) - set(CHANGES)]
    if unknown:
        raise ValueError(f"method {method.name!r} declares what is not known: {', '.join(unknown)}")
    METHODS.add(method.name, method())
    return method
