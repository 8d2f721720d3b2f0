"""Fingerprint files made by strangers, whose digests fit: each is compared, or refused with a message, within memory and time."""

import math
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from functools import cache

import numpy as np
import orjson
import pytest

from kinprint.catalog.adding import fingerprint_model
from kinprint.catalog.sqlite import SqliteCatalog
from kinprint.fingerprints.file import from_bytes, to_bytes
from kinprint.fingerprints.methods import METHODS
from kinprint.fingerprints.recall import FAMILIES, recall_vectors
from kinprint.fingerprints.report import FingerprintReport, compare_fingerprints, make_fingerprint
from kinprint.results.search import SearchReport
from kinprint.searching.run import search
from support.fuzzing import MemorySession, fuzz, spoil
from support.places import DEMO_MODELS

PART, SEARCHED = "spoilt fingerprints through compare", "spoilt fingerprints through search"
KEPT = ("compact", "norms", "gram", "fixed_points", "pdf", "spectral", "huref")
ROOM = 1 << 28  # that a comparison may take beyond the file: nulls of a sound pair take 70 MB
ODD_FACTS = ("", "x", "{x}", "{", "é\n", "a" * 5000, -1, 0, 1, 1.5, 1e308, 10**12, 2**63 - 1)
ODD_NAMES = ("", "x", "{x}", "<b>", "\x1b[31m", "é\n", "../../x", "a" * 5000)
ODD_COUNTS = (-1, 0, 1, 10**9, 2**63 - 1)


@cache
def sound(name):
    return make_fingerprint(DEMO_MODELS / name, methods=KEPT)


def odd_array(rng, array):
    """Return an array of another shape, type or content."""
    match rng.randrange(9):
        case 0:
            return array[: rng.choice((0, 1, max(0, len(array) - 1)))] if array.ndim else array.reshape(1)
        case 1:
            shapes = ((-1,), (1, *array.shape), (*array.shape, 1), array.shape[::-1])
            return array.reshape(rng.choice(shapes))
        case 2:
            return array.astype(rng.choice((np.int8, np.uint8, np.int64, np.float16, np.float32, np.float64)))
        case 3:
            return np.zeros_like(array)
        case 4:
            return np.full_like(array, rng.choice((1, 2, 100)))
        case 5:
            kind = np.finfo(array.dtype) if array.dtype.kind == "f" else np.iinfo(array.dtype)
            odd = array.copy()
            odd.reshape(-1)[rng.randrange(array.size or 1) :: rng.choice((1, 2, 7))] = rng.choice((kind.max, kind.min))
            return odd
        case 6:
            return np.concatenate([array] * 9) if array.ndim else array
        case 7:
            return np.zeros((rng.choice((1, 2000)), 3), array.dtype)
        case _:
            return np.random.default_rng(rng.randrange(99)).standard_normal(array.shape).astype(array.dtype)


def odd_features(rng, features):
    """Return features with one array or one fact changed, added or left out."""
    arrays, facts = dict(features.arrays), dict(features.facts)
    if arrays and rng.random() < 0.7:
        key = rng.choice(sorted(arrays))
        if rng.random() < 0.15:
            arrays[rng.choice((*sorted(arrays), *ODD_NAMES))] = arrays.pop(key)
        else:
            arrays[key] = odd_array(rng, arrays[key])
    else:
        key = rng.choice([*sorted(facts), "ordered.residual", "ordered.neuron", "hidden", "roles", *ODD_NAMES])
        facts[key] = rng.choice(ODD_FACTS)
    return replace(features, arrays=arrays, facts=facts)


def odd_description(rng, text):
    """Return a description that says something odd."""
    match rng.randrange(4):
        case 0:
            return replace(text, **{rng.choice(("layers", "hidden", "parameters")): rng.choice(ODD_COUNTS)})
        case 1:
            return replace(text, **{rng.choice(("model", "architecture", "made_by", "commit")): rng.choice(ODD_NAMES)})
        case 2:
            return replace(text, files=tuple((rng.choice(ODD_NAMES), rng.choice(ODD_NAMES)) for _ in range(9)))
        case _:
            at, entries = rng.randrange(len(text.methods)), list(text.methods)
            changes = (
                {"version": rng.choice(ODD_COUNTS)},
                {"method": rng.choice((*METHODS, *ODD_NAMES))},
                {"reason": "x"},
            )
            entries[at] = replace(entries[at], **rng.choice(changes))
            return replace(text, methods=tuple(entries))


def stranger(rng, methods=KEPT):
    """Return a fingerprint file: changed inside and sealed again, or in a fifth of cases with spoilt bytes."""
    found = sound(rng.choice(("base", "unrelated")))
    if rng.random() < 0.2:
        raw = to_bytes(found)
        return spoil(raw, rng, words=(b"[]", b"{}", b"null", b'"', b"-1"), stop=8 + int.from_bytes(raw[:8], "little"))
    for _ in range(rng.randint(1, 3)):
        if rng.random() < 0.8:
            method = rng.choice([name for name in methods if name in found.features])
            found = replace(found, features={**found.features, method: odd_features(rng, found.features[method])})
            # facts are told in the description
            told = make_entries(found)
            found = replace(found, description=replace(found.description, methods=told))
        else:
            found = replace(found, description=odd_description(rng, found.description))
    return to_bytes(found)


def make_entries(found):
    """Return the entries of a description as its features have them."""
    entries = []
    for entry in found.description.methods:
        features = found.features.get(entry.method)
        facts = (
            entry.facts
            if features is None
            else [(k, orjson.dumps(v).decode()) for k, v in sorted(features.facts.items())]
        )
        entries.append(replace(entry, facts=tuple(facts)))
    return tuple(entries)


def campaign(folder, first, cases):
    """Compare strangers' fingerprints with a sound one; return how many were refused."""
    one, other = folder / "one.kfp", folder / "other.kfp"
    one.write_bytes(to_bytes(sound("base")))
    chosen = []

    def mutant(rng):
        chosen[:] = [rng.choice(KEPT), rng.random() < 0.5]
        with np.errstate(all="ignore"):
            return stranger(rng)

    def attempt(raw):
        vectors = recall_vectors(from_bytes(raw, "other.kfp"))
        assert all(v.shape == (FAMILIES[n],) and np.isfinite(v).all() for n, v in vectors.items())
        other.write_bytes(raw)
        method, swapped = chosen
        with MemorySession() as session, np.errstate(all="ignore"):
            pair = (other, one) if swapped else (one, other)
            report = compare_fingerprints(*pair, session=session, methods=(method,))
        assert FingerprintReport.from_json(report.to_json()) == report
        for item in report.methods:
            assert item.value is None or math.isfinite(item.value)
            assert item.chance is None or item.chance.log10_p is None or item.chance.log10_p <= 0.0

    for method in KEPT:  # what is loaded once is not counted as a file's
        chosen[:] = [method, False]
        attempt(to_bytes(sound("base")))
    return fuzz(attempt, mutant, seed=11, first=first, cases=cases, room=ROOM, part=PART)


def search_campaign(folder, first, cases):
    """Search a catalog that holds a stranger's fingerprint, and search by it; return how many were refused."""
    one, other, known = folder / "one.kfp", folder / "other.kfp", folder / "catalog.db"
    one.write_bytes(to_bytes(sound("base")))
    with SqliteCatalog(folder / "sound.db") as catalog:
        catalog.add(*fingerprint_model(one))

    def attempt(raw):
        other.write_bytes(raw)
        shutil.copyfile(folder / "sound.db", known)
        item = fingerprint_model(other)
        with SqliteCatalog(known) as catalog, MemorySession() as session, np.errstate(all="ignore"):
            catalog.add(*item)
            for query in (one, other):
                report = search(query, catalog, session=session)
                assert SearchReport.from_json(report.to_json()) == report
                assert all(-1.001 <= cosine <= 1.001 for item in report.found for _, cosine in item.recalled)
                assert all(item.log10_p is None or item.log10_p <= 0.0 for item in report.found)

    def mutant(rng):
        with np.errstate(all="ignore"):
            return stranger(rng, ("compact",))

    attempt(to_bytes(sound("unrelated")))
    return fuzz(attempt, mutant, seed=14, first=first, cases=cases, room=ROOM, part=SEARCHED)


@pytest.mark.slow
def test_a_sample_of_spoilt_fingerprints(tmp_path):
    assert 2 < campaign(tmp_path, 10**6, 40) < 38
    assert 2 < search_campaign(tmp_path, 10**6, 20) < 19


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(20))
def test_spoilt_fingerprints(tmp_path, part):
    assert 25 < campaign(tmp_path, 500 * part, 500) < 475
    assert 25 < search_campaign(tmp_path, 500 * part, 500) < 475


def test_what_is_spoilt_is_sound():
    found = sound("base")
    assert set(found.features) == set(KEPT)
    assert from_bytes(to_bytes(found), "x").description.methods == make_entries(found)


def test_a_damaged_fingerprint_does_not_end_a_search(tmp_path):
    for name in ("base", "unrelated"):
        (tmp_path / f"{name}.kfp").write_bytes(to_bytes(sound(name)))
    with SqliteCatalog(tmp_path / "c.db") as catalog:
        catalog.add_all([fingerprint_model(tmp_path / f"{name}.kfp") for name in ("base", "unrelated")])
    with closing(sqlite3.connect(tmp_path / "c.db")) as db, db:
        db.execute("UPDATE fingerprints SET data = x'00' WHERE id = 2")
    with SqliteCatalog(tmp_path / "c.db", read_only=True) as catalog, MemorySession() as session:
        report = search(tmp_path / "base.kfp", catalog, session=session)
    assert [item.count for item in report.not_compared if "it is damaged" in item.reason] == [1]
