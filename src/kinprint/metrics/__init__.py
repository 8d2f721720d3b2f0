"""Metrics of two tensors, registered by name in `METRICS`.

A metric is one number and says nothing alone: each declares the ``null`` kind beside which `kinprint.stats` puts it.
"""

from kinprint.metrics import angular, distance, identity, kernel
from kinprint.metrics.base import METRICS, Metric, register

__all__ = ["METRICS", "Metric", "angular", "distance", "identity", "kernel", "register"]
