"""Norm scales: correlate them over all layers, against one permutation of residual dimensions.

Scales of all norms that act on the residual stream, in all layers. The score is the mean of the Pearson correlations of the pairs;
its null permutes the residual dimensions of one model, ONE permutation for all layers and norms, because layers are strongly
correlated. Mean and variance of that are known exactly (`kinprint.stats.joint`), and unrelated models follow it whatever they
were trained on: the order of residual dimensions is arbitrary. Raw cosines of norms are near 1 for any two models and are not used.

Pairs are the norms of the same number, so the test involves no search; where depths differ the surplus is left out. A model whose
norms were folded away (any rotated one) has nothing to compare, and a permuted one reads as unrelated.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinprint.arch import Axis, Role, ordered_axes
from kinprint.errors import DegenerateInput
from kinprint.evidence.exact_tests import norm_test
from kinprint.evidence.probe import SamplePair
from kinprint.fingerprints.base import Change, Features, PortableMethod, Score, all_but, pair_null, register
from kinprint.formats.safetensors.writer import from_bf16, to_bf16
from kinprint.model.reader import Sample
from kinprint.model.weights import Matrix, Weights
from kinprint.text import Text

ROLES = tuple(role for role in Role if role.info.kind == "norm" and role.info.axes == (Axis.RESIDUAL,))

_ORDER = "residual_order"


@register
class Norms(PortableMethod):
    """Joint test of the norm scales."""

    name = "norms"
    title = Text("Norm scales, jointly")
    invariant_to = all_but(Change.RESIDUAL_PERMUTATION, Change.ROTATION)
    summary = Text("Mean correlation of norm scales, against one permutation of residual dimensions: exact.")
    references = ("kinprint, METHODS 1a: joint permutation test of norm scales",)

    def extract(self, model: Weights) -> Features:
        """Keep all scales without loss: as BF16 where they are, else as float32."""
        arrays: dict[str, NDArray[Any]] = {}
        for role in ROLES:
            places = [None] if model.has(role) else model.layers_with(role)
            if places:
                arrays[role.value] = pack(np.stack([model.matrix(role, place) for place in places]))
                arrays[f"{role.value}.layers"] = np.array([-1 if p is None else p for p in places], dtype=np.int32)
        if not arrays:
            raise DegenerateInput("{name} has no norm scales on the residual stream", name=model.label)
        order = ordered_axes(model.config).get(Axis.RESIDUAL, "")
        return Features(self.name, self.version, arrays, {"layers": model.layers, _ORDER: order})

    def score(self, a: Features, b: Features, *, seed: int = 0) -> Score:
        """Run the joint test over all norms both have."""
        roles = [role for role in ROLES if role.value in a.arrays and role.value in b.arrays]
        group = [place for role in roles for place in _pairs(role, a, b)]
        if not group:
            raise DegenerateInput("no norm stands at the same place in both models")
        reason = str(a.facts.get(_ORDER) or b.facts.get(_ORDER) or "")
        ordered = {Axis.RESIDUAL: Text.of(reason, {})} if reason else {}
        test = norm_test(group[0].role, group, ordered, seed)
        if test.statistic is None or test.n is None:
            raise DegenerateInput("every permutation gives the same value: there is no order to compare")
        name = Text("one permutation of residual dimensions")
        chance = pair_null(name, test.null_mean, test.null_sd, test.log10_p, test.n, *test.assumptions, exact=True)
        notes = [test.reason] if test.reason else []
        if a.facts["layers"] != b.facts["layers"]:
            notes.append(Text("depths differ: layers are paired by their number"))
        details = {"z": test.z or 0.0, "norms": float(test.blocks or 0)}
        return Score(min(1.0, test.statistic), chance=chance, details=details, notes=tuple(notes))


def _pairs(role: Role, a: Features, b: Features) -> list[SamplePair]:
    one, two = _by_layer(role, a.arrays), _by_layer(role, b.arrays)
    common = sorted(one.keys() & two.keys())
    return [SamplePair(role, None if layer < 0 else layer, None, one[layer], two[layer]) for layer in common]


def _by_layer(role: Role, arrays: Mapping[str, NDArray[Any]]) -> dict[int, Sample]:
    rows = zip(arrays[f"{role.value}.layers"], unpack(arrays[role.value]), strict=True)
    return {int(layer): Sample(values, "F32", values.shape) for layer, values in rows}


def pack(values: Matrix) -> NDArray[Any]:
    """Return BF16 bits if that loses nothing, else the values themselves."""
    bits = to_bf16(values)
    return bits if np.array_equal(from_bf16(bits), values) else values


def unpack(stored: NDArray[Any]) -> Matrix:
    """Return the values `pack` was given."""
    return from_bf16(stored) if stored.dtype == np.uint16 else stored.astype(np.float32)
