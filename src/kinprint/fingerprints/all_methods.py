"""Register all fingerprint methods on import, in the order of the tables."""

from __future__ import annotations

from kinprint.fingerprints.base import METHODS
from kinprint.fingerprints.methods import (  # noqa: F401
    awm,
    fixed_points,
    huref,
    kin,
    match,
    match_activations,
    mdir,
    neuron_gram,
    norms,
    pdf,
    reef,
    spectral,
)

__all__ = ["METHODS"]
