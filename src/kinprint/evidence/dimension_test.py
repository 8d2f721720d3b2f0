"""Test by norms alone whether residual dimensions stand at the same places.

The profile of a residual dimension is its standardised scale in every norm of a model. For independent models the order of B's
dimensions is uniformly random, so the number F of dimensions whose nearest profile in B is that of the same place obeys
P(F ≥ k) ≤ 1/k! whatever the scales' distributions, trends over depth and correlations between layers are (`stats.fixedpoints`).

Exchangeability of dimensions is what the bound rests on. A recipe can break it: fixed positions added to the residual stream,
dimensions sorted or dealt by importance, bit patterns, every n-th pruned, a few dimensions set apart by place. Two checks keep such
models out: dimensions that stand out on either side have no profile, and no lag may show the profiles of both models to repeat.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from kinprint._util.numeric import FloatArray, evenly_spaced, median
from kinprint.arch import Axis
from kinprint.errors import DegenerateInput
from kinprint.evidence.exact_tests import RESIDUAL_ORDER, counted, is_constant
from kinprint.evidence.exchangeability import both_repeat, unit_ranks
from kinprint.evidence.probe import Probe, SamplePair, is_residual_norm, sample_pairs
from kinprint.results.findings import EvidenceTest
from kinprint.stats.fixedpoints import fixed_points
from kinprint.stats.joint import of_usual_width
from kinprint.stats.moments import check_range
from kinprint.stats.tails import DECISIVE
from kinprint.text import Text

DIMENSION_POINTS = "dimension_fixed_points"
LEAST_NORMS = 3  # with one or two scales a profile is a point among hundreds on a line
FEW_NORMS = 32  # at a correlation of 0.9 so many scales leave 2,879 of 4,096 dimensions in place; 30 are proof enough
OUTSTANDING = 4.0  # times the median length at which a profile stands out: 0 to 2 % of the dimensions of trained models


def dimension_test(pairs: Sequence[SamplePair], ordered: Mapping[Axis, Text]) -> EvidenceTest:
    """Count residual dimensions whose scales in all norms are nearest to those of the same dimension of the other model."""
    if Axis.RESIDUAL in ordered:
        raise DegenerateInput(ordered[Axis.RESIDUAL])
    one, two = norm_profiles(pairs)
    if (order := both_repeat(unit_ranks(one.T), unit_ranks(two.T))) is not None:
        raise DegenerateInput(order)
    found = fixed_points(without_outstanding(one), without_outstanding(two))
    test = counted(DIMENSION_POINTS, Text("norms"), [found], RESIDUAL_ORDER)
    null = Text("one random order of residual dimensions")
    return replace(test, log10_p=found.log10_p, blocks=one.shape[1], null=null)


def norms_agree(a: Probe, b: Probe) -> bool:
    """Whether the norms of two models with as many layers leave no doubt that they are related: a cheap first look, no test."""
    if a.layers != b.layers:
        return False
    places = {layer: layer for layer in range(a.layers)}
    norms = [pair for pair in sample_pairs(a, b, places) if is_residual_norm(pair.role)]
    try:
        return (dimension_test(evenly_spaced(norms, FEW_NORMS, at="ends"), {}).log10_p or 0.0) <= DECISIVE
    except DegenerateInput:
        return False


def norm_profiles(pairs: Sequence[SamplePair]) -> tuple[FloatArray, FloatArray]:
    """Return the profiles of the dimensions of both models, in the norms that vary on both sides."""
    norms = [(pair.a.values, pair.b.values) for pair in pairs if pair.finite and pair.a.shape == pair.b.shape]
    for one, two in norms:
        check_range(one, "A")
        check_range(two, "B")
    varying = of_usual_width([(a, b) for a, b in norms if not (is_constant(a) or is_constant(b))])
    if len(varying) < LEAST_NORMS:
        raise DegenerateInput("{n} norms vary on both sides; expected at least {m}", n=len(varying), m=LEAST_NORMS)
    one, two = (_profiles(side) for side in zip(*varying, strict=True))
    return one, two


def _profiles(norms: Sequence[FloatArray]) -> FloatArray:
    """Return (dimensions, norms), each norm with mean 0 and spread 1."""
    scales = np.array(norms)
    centred = scales - scales.mean(axis=1, keepdims=True)
    found: FloatArray = (centred / centred.std(axis=1, keepdims=True)).T
    return found


def without_outstanding(profiles: FloatArray) -> FloatArray:
    """Take their profiles from dimensions that stand out: which those are, a recipe may have fixed by place."""
    lengths = np.linalg.norm(profiles, axis=1)
    kept = lengths <= OUTSTANDING * median(lengths)
    found: FloatArray = profiles * kept[:, None]
    return found
