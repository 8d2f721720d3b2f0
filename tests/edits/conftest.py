"""Edits by construction: each returns the child of a parent matrix, before it is stored."""

import json
import struct
from types import SimpleNamespace

import numpy as np
import pytest

from kinprint.formats.dtypes import decode
from kinprint.metrics.identity import on_grid
from support.places import DEMO_MODELS

DEMO = DEMO_MODELS


def gaussian(rng, m, n):
    return 0.02 * rng.standard_normal((m, n))


def heavy(rng, m, n):
    """Student's t with four degrees of freedom, and rows and columns of unequal size."""
    sizes = np.exp(0.4 * rng.standard_normal((m, 1)) + 0.3 * rng.standard_normal((1, n)))
    return 0.02 * rng.standard_t(4, (m, n)) * sizes


def adapter(rng, A, rank, size):
    D = rng.standard_normal((A.shape[0], rank)) @ rng.standard_normal((rank, A.shape[1]))
    return A + D * size * A.std() / D.std()


def trained(rng, A, exponent, size):
    """Add a full-rank change whose singular values decay as a power; slices are rows of a taller matrix."""
    m, n = max(A.shape[0], 64), A.shape[1]
    k = min(m, n)
    U, V = (np.linalg.qr(rng.standard_normal((side, k)))[0] for side in (m, n))
    D = (U * np.arange(1.0, k + 1.0) ** -exponent) @ V.T
    return A + (D * size * A.std() / D.std())[: A.shape[0]]


def quantised(A, bits, group=None, *, zero="none"):
    """Round to nearest and back; `zero` is none (symmetric), whole (an integer zero point) or free (the group's least)."""
    G = A.reshape(-1, group or A.shape[1])
    low, high = G.min(axis=1, keepdims=True), G.max(axis=1, keepdims=True)
    top = 2**bits - 1
    if zero == "none":
        most = 2 ** (bits - 1) - 1
        step = np.abs(G).max(axis=1, keepdims=True) / most
        levels = np.clip(np.rint(G / step), -most - 1, most) * step
    elif zero == "whole":
        step = (high - low) / top
        point = np.rint(-low / step)
        levels = (np.clip(np.rint(G / step) + point, 0, top) - point) * step
    else:
        step = (high - low) / top
        levels = np.rint((G - low) / step) * step + low
    return levels.reshape(A.shape)


def two_of_four(A):
    groups = A.reshape(-1, 4).copy()
    np.put_along_axis(groups, np.argsort(np.abs(groups), axis=1)[:, :2], 0.0, axis=1)
    return groups.reshape(A.shape)


def halved(A):
    return np.where(np.abs(A) < np.median(np.abs(A)), 0.0, A)


@pytest.fixture(scope="session")
def make():
    return SimpleNamespace(
        weights={"gaussian": gaussian, "heavy": heavy},
        stored=on_grid,
        adapter=adapter,
        trained=trained,
        quantised=quantised,
        two_of_four=two_of_four,
        halved=halved,
    )


def _matrices(name):
    raw = (DEMO / name / "model.safetensors").read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + size])
    matrices = {}
    for tensor, entry in header.items():
        if tensor != "__metadata__" and len(entry["shape"]) == 2:
            start, end = (8 + size + offset for offset in entry["data_offsets"])
            matrices[tensor] = decode(memoryview(raw)[start:end], entry["dtype"]).reshape(entry["shape"])
    return matrices


@pytest.fixture(scope="session")
def demo():
    return {name: _matrices(name) for name in ("base", "finetune", "unrelated")}
