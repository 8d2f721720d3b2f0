"""Gram profiles: recognise neurons by their products with each other, in any residual basis. Kinprint's own.

For each of some layers, neurons are split into references and tested ones; the profile of a tested neuron is its cosines with
the references, gate to gate, up to up and gate to up, of rows with the norm's scale folded in. Rotations, permutations and sign
flips of the residual stream leave them as they are; rescaled neurons too. Where neurons kept their order, neuron i of one model
is nearest to neuron i of the other; the number of such fixed points has the exact bound P(F ≥ k) ≤ 1/k! if the models are
unrelated, whatever they were trained on, and no vocabulary is needed. What breaks it is a new order of neurons: see `kin`.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinprint.errors import DegenerateInput
from kinprint.evidence.neuron_gram import GRAM_ROWS, GramSide, gram_side, gram_sides, gram_test, hold_gram
from kinprint.fingerprints.base import Change, Features, PortableMethod, Score, all_but, pair_null, register
from kinprint.model.weights import Weights
from kinprint.text import Text

LAYERS = 4
SEED = 0  # which neurons are references is part of the format


@register
class Gram(PortableMethod):
    """Share of neurons whose Gram profile finds its own place, in the best pair of layers."""

    name = "gram"
    title = Text("Gram profiles")
    invariant_to = all_but(Change.NEURON_PERMUTATION)
    summary = Text("Neurons recognised by their products with other neurons, in any residual basis; exact null.")
    references = ("kinprint, docs/fingerprints.md",)

    def extract(self, model: Weights) -> Features:
        """Return the profiles of up to four layers, at most 256 neurons each, in half precision."""
        side = gram_side(model, seed=SEED, count=LAYERS, rows=GRAM_ROWS)
        arrays: dict[str, NDArray[Any]] = {
            "profiles": np.stack(side.profiles).astype(np.float16),
            "lengths": np.stack(side.lengths).astype(np.float32),
            "layers": np.array(side.layers, dtype=np.int64),
        }
        return Features(self.name, self.version, arrays, {"rows": side.rows})

    def score(self, a: Features, b: Features, *, seed: int = 0) -> Score:
        """Count fixed points in every pair of layers."""
        if a.facts.get("rows") != b.facts.get("rows"):
            raise DegenerateInput(
                "profiles of {a} and {b} neurons: expected equal numbers", a=a.facts.get("rows"), b=b.facts.get("rows")
            )
        return score_of(_side(a), _side(b))

    def score_models(self, a: Weights, b: Weights, *, seed: int = 0) -> Score:
        """Count fixed points of as many neurons as both have, in more layers than a file holds."""
        return score_of(*gram_sides(a, b, seed=seed))


def _side(features: Features) -> GramSide:
    found = [features.arrays.get(key, np.empty(())) for key in ("profiles", "lengths", "layers")]
    if [array.ndim for array in found] != [3, 2, 1]:
        raise DegenerateInput("gram: the fingerprint lacks its profiles")
    profiles, lengths, layers = found
    if not len(profiles) == len(lengths) == len(layers) > 0:
        raise DegenerateInput("gram: the fingerprint's profiles and layers differ in number")
    rows = features.facts.get("rows")
    sides = tuple(map(int, layers)), list(profiles.astype(np.float32)), list(lengths.astype(np.float64))
    return GramSide(*sides, rows if isinstance(rows, int) else 0)


def score_of(a: GramSide, b: GramSide) -> Score:
    """Return the best pair of layers beside its exact bound."""
    table = hold_gram(a, b)
    test, best, expected = gram_test(table), table.counts.max(axis=0), 1.0 / table.tested
    name = Text("a random order of neurons; factorial-moment bound, corrected for the pairs of layers")
    chance = pair_null(name, expected, expected, test.log10_p, table.tested, *test.assumptions, exact=True)
    layers = {
        layer: table.layers_a[int(table.counts[:, j].argmax())]
        for j, layer in enumerate(table.layers_b)
        if table.log10_p[:, j].min() < -6.0
    }
    details = {"fixed points": float(table.counts.max()), "mean over layers": float(best.mean()) / table.tested}
    return Score(float(best.max()) / table.tested, chance, details, layers, (table.reason,) if table.reason else ())
