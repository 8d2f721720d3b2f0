"""The side file of a catalog: what rounding leaves open always holds the nearest."""

import numpy as np
import pytest

from kinprint.catalog import side_file
from kinprint.catalog.arrays import Part, nearest_rows
from kinprint.catalog.side_file import BASE, COARSE, Block, ids_near
from kinprint.fingerprints.recall import FAMILIES

NOBODY = np.empty(0, np.int64)


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def vectors(kind, count, width, rng):
    """Return vectors at unit length as catalogs hold them: strangers, lineages, copies of one model, few values."""
    rows = rng.standard_normal((count, width))
    if kind == "lineage":
        rows = rows * rng.uniform(0.05, 1, (count, 1)) + 6 * rng.standard_normal(width)
    elif kind == "copies":
        rows = np.repeat(rows[:1], count, axis=0)
    elif kind == "one number":
        rows = np.eye(width)[rng.integers(0, width, count)] * rng.choice([-1.0, 1.0], (count, 1))
    elif kind == "steps":  # numbers that lie half way between two steps, or nearly
        rows = np.round(unit(rows) * COARSE) + 0.5 + rng.choice([-1e-6, 0, 1e-6], (count, width))
    return unit(rows)


def blocks_of(part, size):
    return [Block.of(Part(part.ids[at : at + size], part.rows[at : at + size])) for at in range(0, part.ids.size, size)]


@pytest.mark.parametrize("kind", ["strangers", "lineage", "copies", "one number", "steps"])
@pytest.mark.parametrize("count", [1, 10, 11, 401])
@pytest.mark.parametrize("width", sorted(set(FAMILIES.values())))
def test_the_nearest_are_always_among_those_left(kind, count, width):
    rng = np.random.default_rng([count, width, *kind.encode()])
    part = Part(np.cumsum(rng.integers(1, 4, count)), vectors(kind, count, width, rng))
    hidden = rng.choice(part.ids, count // 5, replace=False)
    queries = [
        *part.rows[:1],
        *vectors("strangers", 2, width, rng),
        *unit(part.rows[:1] + 0.05 * rng.standard_normal(width)),
    ]
    for query in queries:
        for size in (64, 4096):
            for skipped in (NOBODY, hidden):
                left = ids_near(blocks_of(part, size), query, 10, skipped).tolist()
                assert len(set(left)) == len(left)
                assert not {*left} & {*skipped.tolist()}
                assert {number for _, number in nearest_rows(part, query, 10, skipped)} <= {*left}


def test_a_family_without_vectors_has_no_nearest():
    assert ids_near([], np.ones(48, np.float32), 10, NOBODY).tolist() == []


def test_few_are_left():
    """Of strangers hardly more than were asked for: each of them is looked up in the database."""
    rng = np.random.default_rng(0)
    part = Part(np.arange(1, 20_001), vectors("strangers", 20_000, 48, rng))
    left = [ids_near(blocks_of(part, 4096), query, 10, NOBODY).size for query in vectors("strangers", 20, 48, rng)]
    assert max(left) <= 12


@pytest.mark.parametrize("width", sorted(set(FAMILIES.values())))
def test_two_scores_in_one_number_are_exact(width):
    """Also of vectors as long as a catalog admits, that lie along the query."""
    rng = np.random.default_rng(width)
    rows = np.concatenate([vectors(kind, 50, width, rng) for kind in ("strangers", "one number", "steps")])
    rows = np.concatenate([rows, -rows, np.full((2, width), 1 / np.sqrt(width), np.float32)]) * np.float32(1.001)
    steps = np.rint(COARSE * rows).astype(np.int64)
    pairs = Block.of(Part(np.arange(len(rows)), rows)).pairs
    for row in rows:
        asked = np.rint(COARSE * unit(row))
        both = pairs @ asked
        first = np.rint(both / BASE)
        assert np.array_equal(first, steps[0::2] @ asked.astype(np.int64))
        assert np.array_equal(both - BASE * first, steps[1::2] @ asked.astype(np.int64))
        assert np.abs(both).max() < 2**23


def test_a_side_file_of_version_1_is_not_used(tmp_path):
    path = tmp_path / "catalog.db.recall"
    part = Part(np.arange(1, 8), vectors("strangers", 7, 48, np.random.default_rng(1)))
    token = side_file.write_side_file(path, 7, {"rows": iter([part])})
    made = side_file.read_side_file(path, token)
    assert made is not None
    assert made.sound()
    assert made.count("rows", np.array([3, 9])) == 6
    path.write_bytes(path.read_bytes().replace(b"kinrcl02", b"kinrcl01", 1))
    assert side_file.read_side_file(path, token) is None
