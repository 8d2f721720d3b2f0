"""Plant relations of a stated strength in the values of a pair, and run the test that ships on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.arch import Role
from kinprint.errors import DegenerateInput
from kinprint.evidence.assess import Assessment, assess
from kinprint.evidence.dimension_test import DIMENSION_POINTS, dimension_test
from kinprint.evidence.exact_tests import norm_test, row_test
from kinprint.evidence.power import SCALES
from kinprint.evidence.probe import SamplePair, is_residual_norm, pairs_by_role
from kinprint.evidence.rules import LOG10_ALPHA
from kinprint.results.findings import PowerFinding

FRESH = 10_000  # seeds from here on: the estimate of power uses the first few


def planted(here: FloatArray, rest: FloatArray, strength: float, rng: np.random.Generator) -> FloatArray:
    """Return values that keep so much of `here`, row by row; the rest is another's, its rows in a random order."""
    one, two = (_unit(values) for values in (here, rest))
    found: FloatArray = strength * one + math.sqrt(1.0 - strength**2) * two[rng.permutation(len(two))]
    return found


def _unit(values: FloatArray) -> FloatArray:
    lengths = np.linalg.norm(values, axis=1, keepdims=True)
    found: FloatArray = values / np.where(lengths > 0.0, lengths, 1.0)
    return found


def planted_norms(
    group: Sequence[SamplePair], strength: float, rng: np.random.Generator, *, turned: bool
) -> list[SamplePair]:
    """Return pairs of norms of which B's keep so much of A's: one random order of the dimensions serves all of them."""
    order = None
    found = []
    for pair in group:
        here, rest = (pair.b, pair.a) if turned else (pair.a, pair.b)
        if here.shape != rest.shape or not pair.finite:
            continue
        one, two = (sample.values - sample.values.mean() for sample in (here, rest))
        scale = one.std() or 1.0
        order = rng.permutation(len(two)) if order is None else order
        mixed = strength * one / scale + math.sqrt(1.0 - strength**2) * (two / (two.std() or 1.0))[order]
        child = replace(rest, stored=here.values.mean() + scale * mixed, dtype="F64", offset=0.0)
        found.append(replace(pair, a=here, b=child))
    return found


def planted_rows(
    group: Sequence[SamplePair], strength: float, rng: np.random.Generator, *, turned: bool, rows: int | None = None
) -> list[SamplePair]:
    """Return pairs of matrices of which B's rows keep so much of A's at the same place."""
    found = []
    for pair in group:
        here, rest = (pair.b, pair.a) if turned else (pair.a, pair.b)
        count = min(len(here.stored), len(rest.stored), rows or len(here.stored))
        child = planted(here.values[:count], rest.values[:count], strength, rng)
        parent = replace(here, stored=here.values[:count], dtype="F64", offset=0.0)
        found.append(replace(pair, a=parent, b=replace(rest, stored=child, dtype="F64", offset=0.0)))
    return found


def share_seen(found: Assessment, item: PowerFinding, strength: float, trials: int) -> float:
    """Return how often the test that a power was stated for reaches its level on relations of a strength, freshly planted."""
    pairs = pairs_by_role(*found.probes, found.layer_map)
    seen = 0
    for trial in range(trials):
        rng, turned = np.random.default_rng(FRESH + trial), bool(trial % 2)
        if item.name == DIMENSION_POINTS:
            norms = [pair for role, group in pairs.items() if is_residual_norm(role) for pair in group]
            test = dimension_test(planted_norms(norms, strength, rng, turned=turned), {})
        elif item.name == "norm_joint":
            role = Role(item.scope)
            try:
                test = norm_test(role, planted_norms(pairs[role], strength, rng, turned=turned), {}, 0)
            except DegenerateInput:  # a copy of every norm: nothing is left to test
                continue
        else:
            role, probe = Role(item.scope), found.probes[1]
            size = probe.head_size(pairs[role][0].b) if role is Role.ATTN_V else None
            test = row_test(role, planted_rows(pairs[role], strength, rng, turned=turned, rows=size))
        seen += (test.log10_p or 0.0) <= item.log10_alpha
    return seen / trials


def share_claimed(found: Assessment, item: PowerFinding, strength: float, trials: int) -> float:
    """Return how often models that share nothing but what is planted in one role, or in the norms, end in a claim of a relation.

    The claim needs the correction over all tests, and signs beside order where the role has a sign symmetry.
    """
    claimed = 0
    for trial in range(trials):
        rng, turned = np.random.default_rng(FRESH + trial), bool(trial % 2)
        a, b = found.probes[::-1] if turned else found.probes
        b = b.shuffled(FRESH + trial)
        layer_map = {source: layer for layer, source in found.layer_map.items()} if turned else found.layer_map
        pairs = pairs_by_role(a, b, layer_map)
        if item.quantity == SCALES:
            roles = [
                role
                for role in pairs
                if is_residual_norm(role) and (item.name == DIMENSION_POINTS or item.scope == role.value)
            ]
            group = planted_norms([pair for role in roles for pair in pairs[role]], strength, rng, turned=False)
        else:
            group = planted_rows(pairs[Role(item.scope)], strength, rng, turned=False)
        kept = {(pair.role, pair.layer, pair.expert): pair.b for pair in group}
        claimed += assess(a, replace(b, samples=b.samples | kept)).log10_p <= LOG10_ALPHA
    return claimed / trials
