"""Fit a child as a weighted sum of parents: least squares over many tensors, with errors that allow for clustering."""

import math
from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import FloatArray
from kinprint._util.records import dataclass
from kinprint.errors import DegenerateInput
from kinprint.text import Text

RELATED = 10.0  # variance inflation above which parents are called related: a cosine of 0.95 between two of them
INSEPARABLE = 1e10  # condition of the parents' cosines beyond which a solution would be rounding
_CLUSTERS = 8  # slices from which their own scatter is a usable estimate of the error


@dataclass(frozen=True)
class Mixture:
    """child ≈ Σ coefficient·parent, without intercept."""

    # `r_squared` is 1 − ‖residual‖²/‖child‖², uncentred as there is no intercept.
    coefficients: tuple[float, ...]
    standard_errors: tuple[float, ...]
    r_squared: float
    elements: int
    notes: tuple[Text, ...]


@dataclass
class MixtureSums:
    """Normal equations, accumulated slice by slice in float64; memory does not grow with the tensors."""

    parents: int
    _grams: list[FloatArray] = field(default_factory=list, repr=False)
    _products: list[FloatArray] = field(default_factory=list, repr=False)
    _groups: list[str] = field(default_factory=list, repr=False)
    square: float = field(default=0.0, repr=False)  # the child's energy
    _elements: int = field(default=0, repr=False)

    def add(self, parent_slices: Sequence[NDArray[Any]], child_slice: NDArray[Any], group: str = "") -> None:
        """Add one tensor, or the same rows of each model's tensor; `group` names what errs alike, such as a role."""
        if len(parent_slices) != self.parents:
            raise DegenerateInput(f"mixture: {len(parent_slices)} parents: expected {self.parents}")
        shapes = {np.shape(x) for x in (*parent_slices, child_slice)}
        if len(shapes) != 1 or np.size(child_slice) == 0:
            raise DegenerateInput(f"mixture: shapes {sorted(shapes)}: expected one shape, not empty")
        child = np.asarray(child_slice, dtype=np.float64).ravel()
        columns = [np.asarray(x, dtype=np.float64).ravel() for x in parent_slices]
        gram = np.array([[float(x @ y) for y in columns] for x in columns])
        product = np.array([float(x @ child) for x in columns])
        square = float(child @ child)
        if not (np.isfinite(gram).all() and np.isfinite(product).all() and math.isfinite(square)):
            raise DegenerateInput(
                "mixture: values that are not finite, or whose squares are not: expected finite weights"
            )
        self._grams.append(gram)
        self._products.append(product)
        self._groups.append(group)
        self.square += square
        self._elements += child.size

    def solve(self, rounding: float = 0.0) -> Mixture:
        """Return the coefficients; parents that cannot be told apart are refused."""
        # `rounding` is the energy of the child's rounding. Of parents that differ by a few steps it is no noise: a mean of two
        # neighbouring numbers becomes one of them. Twice the error is at least what it can move a coefficient, all of it together.
        if self._elements <= self.parents or self.square == 0.0:
            raise DegenerateInput(f"mixture: {self._elements} elements, child norm {self.square:g}: expected more")
        gram, product = np.sum(self._grams, axis=0), np.sum(self._products, axis=0)
        norms = np.sqrt(np.diag(gram))
        if np.any(norms == 0.0):
            raise DegenerateInput("mixture: parent {x} is zero: expected weights", x=int(np.argmin(norms)))
        cosines = gram / np.outer(norms, norms)
        spectrum = np.linalg.eigvalsh(cosines)
        condition = float(spectrum[-1] / max(float(spectrum[0]), 1e-300))
        if condition > INSEPARABLE:
            raise DegenerateInput(
                "mixture: parents are collinear (condition {condition:.1e}): expected distinct models",
                condition=condition,
            )
        inverse = np.linalg.inv(cosines)
        scaled = inverse @ (product / norms)
        residual = max(self.square - float(scaled @ (product / norms)), 1e-15 * self.square)
        variance = residual / (self._elements - self.parents)
        plain = np.sqrt(variance * np.diag(inverse)) / norms
        errors = np.maximum(plain, self._clustered(scaled / norms, norms, inverse))
        errors = np.maximum(errors, self._jackknife(gram, product))
        errors = np.maximum(errors, 0.5 * np.sqrt(rounding * np.diag(inverse)) / norms)
        return Mixture(
            coefficients=tuple((scaled / norms).tolist()),
            standard_errors=tuple(errors.tolist()),
            r_squared=1.0 - residual / self.square,
            elements=self._elements,
            notes=self._notes(float(np.diag(inverse).max())),
        )

    @property
    def _few(self) -> bool:
        """Whether there are too few slices to take errors from their scatter."""
        return len(self._grams) < max(_CLUSTERS, 2 * self.parents)

    def _clustered(self, coefficients: FloatArray, norms: FloatArray, inverse: FloatArray) -> FloatArray:
        """Return errors from the scatter of the slices' scores (Liang & Zeger 1986): elements of one tensor err alike."""
        if self._few:
            return np.zeros(self.parents)
        pairs = zip(self._products, self._grams, strict=True)
        scores = np.array([(product - gram @ coefficients) / norms for product, gram in pairs])
        middle = scores.T @ scores * len(scores) / (len(scores) - self.parents)
        return np.asarray(np.sqrt(np.maximum(np.diag(inverse @ middle @ inverse), 0.0)) / norms)

    def _jackknife(self, gram: FloatArray, product: FloatArray) -> FloatArray:
        """Return errors from leaving out one group at a time (Tukey 1958): a merge has one coefficient for all roles."""
        names = sorted(set(self._groups))
        if len(names) < 3:
            return np.zeros(self.parents)
        left_out = []
        for name in names:
            chosen = [i for i, group in enumerate(self._groups) if group == name]
            rest = gram - np.sum([self._grams[i] for i in chosen], axis=0)
            right = product - np.sum([self._products[i] for i in chosen], axis=0)
            left_out.append(np.linalg.lstsq(rest, right, rcond=None)[0])
        spread = np.var(np.array(left_out), axis=0)
        return np.asarray(np.sqrt((len(names) - 1) * spread))

    def _notes(self, x: float) -> tuple[Text, ...]:
        """Say what limits the errors, given by how much the variance is inflated."""
        alike = Text("the parents are much alike (variance inflated {x:.3g} times): coefficients trade off", x=x)
        few = Text("{n} slices: errors assume independent elements", n=len(self._grams))
        return (*((alike,) if x > RELATED else ()), *((few,) if self._few else ()))
