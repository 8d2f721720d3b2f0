"""Metrics of two tensors, registered by name in `METRICS`.

A metric is one number and says nothing alone: each declares the ``null`` kind beside which `kinprint.stats` puts it.
"""

from kinprint.metrics import angular, distance, identity, kernel
from kinprint.metrics.base import METRICS, Metric, register
from kinprint.metrics.explain import (
    CosineIdentity,
    can_be_explained,
    cosine_identities,
    cosine_identity,
    cosine_if_independent,
)

__all__ = [
    "METRICS", "CosineIdentity", "Metric", "angular", "can_be_explained", "cosine_identities", "cosine_identity",
    "cosine_if_independent", "distance", "identity", "kernel", "register",
]  # fmt: skip
