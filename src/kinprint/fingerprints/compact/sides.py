"""Turn the stored parts of a compact fingerprint into what the tests of `kinprint.evidence` take: a probe and Gram profiles.

A file may come from a stranger: every array is checked for its kind and shape before anything is made of it.
"""

from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import NEAR_CONSTANT, FloatArray
from kinprint.arch import Axis, Role, TensorKey
from kinprint.arch.roles import MLPS
from kinprint.errors import DegenerateInput
from kinprint.evidence.neuron_gram import GramSide
from kinprint.evidence.probe import Probe
from kinprint.fingerprints.base import Features
from kinprint.fingerprints.compact.codes import decode
from kinprint.fingerprints.compact.parts import COLUMNS, DIMENSIONS, ENDS, GRAM_ROWS, QUANTILES, RESIDUAL_NORMS, ROWS
from kinprint.model.reader import Sample
from kinprint.text import Text

Real = NDArray[np.float32]
_ROLES: Mapping[str, Role] = {role.value: role for role in Role}
_EXPERTS = {role: mlp.expert for mlp in MLPS for role in (mlp.gate, mlp.up)}
_LARGEST = 1e30  # of a decoded value: its square is still a number


def stored(features: Features, name: str, axes: int, most: tuple[int, ...]) -> Real | None:
    """Return the values of a coded part; None where the fingerprint has none."""
    codes, scales = (features.arrays.get(key) for key in (name, f"{name}.scales"))
    if codes is None or scales is None:
        return None
    fits = codes.dtype == np.int8 and codes.ndim == axes and codes.size > 0
    fits = fits and all(size <= limit for size, limit in zip(codes.shape, most, strict=True))
    if not fits or scales.dtype != np.float32 or scales.shape != (*codes.shape[:-1], 3):
        raise DegenerateInput("{name}: codes of shape {shape} do not fit", name=name, shape=str(codes.shape))
    values = decode(codes, scales)
    if not bool(np.all(np.abs(values) < _LARGEST)):  # false for NaN as well
        raise DegenerateInput("{name}: values beyond {x:g}", name=name, x=_LARGEST)
    return values


def places(features: Features, name: str, count: int) -> list[int]:
    """Return where the items of a part stand: 0, 1, … from the front, 2·ENDS − 1, … from the back, −1 outside the layers."""
    at = features.arrays.get(f"{name}.at", np.empty(0))
    found = [int(place) for place in at.ravel()] if at.dtype == np.int8 else []
    if len(found) != count or len(set(found)) != count or not all(-1 <= place < 2 * ENDS for place in found):
        raise DegenerateInput("{name}: {n} places, expected {m} different ones", name=name, n=len(found), m=count)
    return found


def probe_of(features: Features, label: str) -> Probe:
    """Return the slices as those of a model with 2·ENDS layers: layers counted from both ends stand at the same places."""
    samples: dict[TensorKey, Sample] = {}
    for name, role in _ROLES.items():
        if (norms := stored(features, f"norms.{name}", 2, (2 * ENDS, DIMENSIONS))) is not None:
            for place, values in zip(places(features, f"norms.{name}", len(norms)), norms, strict=True):
                samples[role, None if place < 0 else place, None] = Sample(values, "F32", values.shape)
    for role, expert in _EXPERTS.items():
        if (rows := stored(features, f"rows.{role.value}", 3, (2 * ENDS, ROWS, COLUMNS))) is not None:
            for place, values in zip(places(features, f"rows.{role.value}", len(rows)), rows, strict=True):
                samples[role, place, expert] = Sample(values, "F32", values.shape, rows=(0, len(values)))
    if (table := stored(features, "embeddings", 2, (ROWS, COLUMNS))) is not None:
        samples[Role.EMBEDDING, None, None] = Sample(table, "F32", table.shape, rows=(0, len(table)))
    return Probe(
        label=label,
        layers=2 * ENDS,
        experts=count_of(features, "experts"),
        hidden=count_of(features, "hidden"),
        mean_free=features.facts.get("mean_free") == 1,
        ordered={
            axis: Text.of(str(why)[:400], {}) for axis in Axis if (why := features.facts.get(f"ordered.{axis.value}"))
        },
        samples=samples,
        stored_roles=frozenset(
            _ROLES[name] for name in str(features.facts.get("roles", "")).split(",") if name in _ROLES
        ),
    )


def sorted_norms(features: Features) -> dict[int, FloatArray]:
    """Return sorted norms without what a smooth curve tells of them: that much any two models made alike have in common.

    Keys number kinds of norms and places.
    """
    at = np.array([NormalDist().inv_cdf((i + 0.5) / QUANTILES) for i in range(QUANTILES)])
    smooth = np.linalg.qr(np.vander(at, 6))[0]
    found: dict[int, FloatArray] = {}
    for number, role in enumerate(RESIDUAL_NORMS):
        codes = features.arrays.get(f"sorted.{role.value}")
        if codes is None or codes.dtype != np.int8 or codes.ndim != 2 or codes.shape[1] != QUANTILES:
            continue
        for place, code in zip(places(features, f"norms.{role.value}", len(codes)), codes, strict=True):
            x = code.astype(np.float64)
            rest = x - smooth @ (smooth.T @ x)
            if (length := float(np.linalg.norm(rest))) > NEAR_CONSTANT * float(np.linalg.norm(x)):
                found[number * (2 * ENDS + 1) + place] = rest / length
    return found


def count_of(features: Features, name: str) -> int:
    """Return a fact that counts something; 0 where it does not."""
    value = features.facts.get(name)
    return value if isinstance(value, int) and 0 <= value < 1 << 31 else 0


def gram_of(features: Features) -> GramSide | None:
    """Return the Gram profiles; None where the fingerprint has none."""
    profiles = stored(features, "gram", 3, (2 * ENDS, GRAM_ROWS // 2, 3 * GRAM_ROWS // 2))
    if profiles is None:
        return None
    lengths: NDArray[Any] = features.arrays.get("gram.lengths", np.empty(()))
    rows = lengths.shape[1] if lengths.ndim == 2 else 0
    if lengths.dtype != np.float32 or len(lengths) != len(profiles) or rows // 2 != profiles.shape[1]:
        raise DegenerateInput("gram: the fingerprint's profiles and lengths differ in number")
    at = places(features, "gram", len(profiles))
    return GramSide(tuple(at), list(profiles), list(lengths.astype(np.float64)), rows)
