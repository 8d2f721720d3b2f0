"""Look at two compact fingerprints for a moment: whether the exact tests are worth their time, and what is alike in any basis.

Neither proves anything. A search has dozens of candidates, nearly all strangers, and the exact tests take a quarter of a second.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import NEAR_CONSTANT, FloatArray
from kinprint.arch import Role, TensorKey
from kinprint.evidence.neuron_gram import GramSide
from kinprint.evidence.probe import Probe
from kinprint.fingerprints.base import Features
from kinprint.fingerprints.compact.sides import gram_of, probe_of, sorted_norms, stored

Real = NDArray[np.float32]

WORTH_Z = (
    4.0  # standard deviations of a correlation in place from which tests are run: one stranger of 30,000, if normal
)
WORTH_COUNT = 7  # neurons that find their places in a pair of layers: one stranger of 140 with 36 pairs


@dataclass(frozen=True)
class Side:
    """A fingerprint made ready for looks and tests, decoded once however many it is held against."""

    features: Features
    label: str

    @cached_property
    def probe(self) -> Probe:
        """The slices in place."""
        return probe_of(self.features, self.label)

    @cached_property
    def gram(self) -> GramSide | None:
        """The Gram profiles."""
        return gram_of(self.features)

    @cached_property
    def standardised(self) -> dict[TensorKey, Real]:
        """Slices in place with mean 0 and length 1; those that do not vary are left out."""
        found = {}
        for key, sample in self.probe.samples.items():
            x = sample.stored - sample.stored.mean()
            if (length := float(np.linalg.norm(x))) > NEAR_CONSTANT * float(np.linalg.norm(sample.stored)):
                found[key] = x / np.float32(length)
        return found

    @cached_property
    def profiles(self) -> Real | None:
        """Gram profiles (layers, neurons, entries), each with mean 0 and length 1."""
        if self.gram is None:
            return None
        x = np.stack(self.gram.profiles)
        x -= x.mean(axis=2, keepdims=True)
        lengths = np.linalg.norm(x, axis=2, keepdims=True)
        unit: Real = np.divide(x, lengths, out=np.zeros_like(x), where=lengths > 0.0)
        return unit


def worth_testing(a: Side, b: Side) -> bool:
    """Whether anything of two fingerprints agrees more than strangers usually do."""
    return any(z >= WORTH_Z for z in _in_place(a, b)) or _most_found(a.profiles, b.profiles) >= WORTH_COUNT


def comparable(a: Side, b: Side) -> bool:
    """Whether two fingerprints have anything that a test could hold against each other: parts of one kind and shape.

    Of wide models only the first dimensions are kept, so that shapes alone do not tell the width.
    """
    one, two = ({(key[0], x.shape) for key, x in side.standardised.items()} for side in (a, b))
    widths = {a.probe.hidden, b.probe.hidden} - {None, 0}  # 0: not told
    if len(widths) < 2 and not one.isdisjoint(two):
        return True
    return a.profiles is not None and b.profiles is not None and a.profiles.shape[1:] == b.profiles.shape[1:]


def _in_place(a: Side, b: Side) -> Iterator[float]:
    """Yield how far the slices of each role correlate, in standard deviations."""
    by_role: dict[Role, list[tuple[float, int]]] = {}
    for key, one in a.standardised.items():
        two = b.standardised.get(key)
        if two is not None and one.shape == two.shape:
            by_role.setdefault(key[0], []).append((float(np.vdot(one, two)), one.size))
    for role, found in by_role.items():
        mean = float(np.mean([r for r, _ in found]))
        # norms of all layers have one order between them
        layers = len(found) if role.info.kind == "matrix" else 1
        yield abs(mean) * float(np.sqrt(found[0][1] * layers))


def _most_found(one: Real | None, two: Real | None) -> int:
    """Return the most neurons of any pair of layers whose profiles are nearest to those at their own places."""
    if one is None or two is None or one.shape[1:] != two.shape[1:]:
        return 0
    (layers, neurons, width), others = one.shape, len(two)
    scores = (one.reshape(-1, width) @ two.reshape(-1, width).T).reshape(layers, neurons, others, neurons)
    nearest = scores.argmax(axis=3)  # (layers, neurons, others)
    return int((nearest == np.arange(neurons)[None, :, None]).sum(axis=1).max())


def likeness(a: Features, b: Features) -> dict[str, float]:
    """Return the correlations of what no order or basis alters: products of token embeddings, and sorted norms."""
    found = {}
    tables = [stored(side, "tokens", 1, (4096,)) for side in (a, b)]
    curves = [sorted_norms(side) for side in (a, b)]
    if tables[0] is not None and tables[1] is not None and tables[0].shape == tables[1].shape:
        found["tokens"] = _correlation(tables[0], tables[1])
    common = sorted(curves[0].keys() & curves[1].keys())
    if common:
        found["sorted"] = _correlation(*(np.stack([side[key] for key in common]) for side in curves))
    return found


def _correlation(one: Real | FloatArray, two: Real | FloatArray) -> float:
    x, y = (values.astype(np.float64).ravel() - float(values.mean()) for values in (one, two))
    length = float(np.linalg.norm(x) * np.linalg.norm(y))
    return float(np.vdot(x, y)) / length if length > 0.0 else 0.0
