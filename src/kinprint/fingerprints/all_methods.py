"""Every method, in the order of the tables. Importing this registers them."""

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
