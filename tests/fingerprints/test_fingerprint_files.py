"""Fingerprint files: written, read back, compared; damaged, truncated, of another version, hostile."""

from dataclasses import replace
from itertools import islice

import numpy as np
import orjson
import pytest

from kinprint.errors import DegenerateInput, FormatError, NotFound, SchemaError
from kinprint.fingerprints.base import Features
from kinprint.fingerprints.file import (
    FILE_CAP,
    SCHEMA,
    MethodEntry,
    describe,
    extract_features,
    from_bytes,
    read_fingerprint,
    to_bytes,
    write_fingerprint,
)
from kinprint.fingerprints.methods import METHODS
from kinprint.fingerprints.report import RELATED, compare_fingerprints, conclude, make_fingerprint
from kinprint.fingerprints.run import run_on_features
from kinprint.results.findings import BEYOND, INSIDE, NO_EVIDENCE, NOT_TESTABLE, OFF
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from support.counting import calls_of
from support.places import DEMO_MODELS

DEMO = DEMO_MODELS


@pytest.fixture(scope="module")
def session():
    with Session(Settings()) as run:
        yield run


PORTABLE = [method.name for method in METHODS.values() if method.portable and "forward pass" not in method.needs]


@pytest.fixture(scope="module")
def prints(session):
    names = ("base", "finetune", "unrelated")
    return {name: make_fingerprint(DEMO / name, session=session, methods=PORTABLE) for name in names}


def test_a_fingerprint_is_small_and_says_what_it_is(prints):
    found = prints["base"].description
    assert (found.schema, found.model, found.layers, found.hidden) == (SCHEMA, "base", 4, 96)
    assert {item.method for item in found.methods} == set(PORTABLE)
    assert len(to_bytes(prints["base"])) < 2_000_000
    assert "/" not in found.model  # no path of the maker's disk


def test_bytes_come_back_as_they_went_and_are_the_same_each_time(prints, session):
    raw = to_bytes(prints["base"])
    assert raw == to_bytes(make_fingerprint(DEMO / "base", session=session, methods=PORTABLE))
    again = from_bytes(raw, "x.kfp")
    assert again.description.digest.startswith("sha256:")
    for name, features in prints["base"].features.items():
        assert dict(again.features[name].facts) == dict(features.facts)
        for key, array in features.arrays.items():
            np.testing.assert_array_equal(again.features[name].arrays[key], array)
    assert to_bytes(again) == raw


def test_files_compare_as_models_do(prints, session, tmp_path):
    files = {name: tmp_path / f"{name}.kfp" for name in prints}
    for name, path in files.items():
        write_fingerprint(path, prints[name])
    related = compare_fingerprints(files["base"], files["finetune"], session=session)
    assert related.class_ == RELATED
    assert related.log10_p < -100
    exact = {item.method: item.reading for item in related.methods if item.chance is not None and item.chance.exact}
    assert set(exact) >= {"gram", "fixed_points", "norms"}
    assert exact["gram"] == exact["fixed_points"] == BEYOND
    mixed = compare_fingerprints(files["base"], DEMO / "unrelated", session=session)
    assert mixed.class_ == NO_EVIDENCE
    assert {item.reading for item in mixed.methods if item.chance is not None and item.chance.exact} == {INSIDE}
    assert (mixed.a.kind, mixed.b.kind) == ("fingerprint", "model")
    data = orjson.loads(mixed.to_json())
    assert data["class"] == NO_EVIDENCE
    assert data["methods"]


def test_methods_that_need_both_models_are_off_with_the_reason(prints):
    (row,) = run_on_features(prints["base"].features, prints["base"].features, [METHODS["kin"]])
    assert row.status == OFF
    assert "weights of both models" in row.reason


def test_other_versions_of_a_method_are_not_compared(prints):
    old = {"gram": replace(prints["base"].features["gram"], version=99)}
    (row,) = run_on_features(old, prints["base"].features, [METHODS["gram"]])
    assert "version 99, expected 1" in row.reason
    (row,) = run_on_features({}, prints["base"].features, [METHODS["gram"]])
    assert "nothing for it" in row.reason


def test_conclude_abstains_without_an_exact_method():
    assert conclude([])[0] == NOT_TESTABLE


@pytest.mark.parametrize("cut", [0, 4, 8, 100, -1, -1000])
def test_truncated_files_are_refused(prints, cut):
    raw = to_bytes(prints["base"])
    with pytest.raises(FormatError):
        from_bytes(raw[:cut], "x.kfp")


def test_a_changed_byte_anywhere_is_noticed(prints):
    raw = to_bytes(prints["base"])
    rng = np.random.default_rng(1)
    for place in rng.integers(8, len(raw), 60):
        spoilt = bytearray(raw)
        spoilt[place] ^= 1 << int(rng.integers(8))
        with pytest.raises((FormatError, SchemaError)):
            from_bytes(bytes(spoilt), "x.kfp")


def many_methods(found, count):
    entry = MethodEntry("norms", 1, ())
    methods = tuple(replace(entry, method=str(number)) for number in range(count))
    arrays = {"norms": Features("norms", 1, {str(number): np.zeros(1, np.float32) for number in range(count)})}
    return to_bytes(replace(found, description=replace(found.description, methods=methods), features=arrays))


def test_tensors_are_not_looked_through_for_each_method(prints):
    few, many = (many_methods(prints["base"], count) for count in (100, 400))
    assert calls_of(lambda: from_bytes(many, "x.kfp")) < 5 * calls_of(lambda: from_bytes(few, "x.kfp"))


def test_a_method_that_stands_twice_is_refused(prints):
    description = _only(prints["base"], "norms")
    twice = replace(description, methods=2 * description.methods)
    with pytest.raises(FormatError, match="the method 'norms' stands there twice"):
        from_bytes(to_bytes(replace(prints["base"], description=twice)), "x.kfp")


@pytest.mark.slow
@pytest.mark.parametrize("cases", [1000, pytest.param(20_000, marks=pytest.mark.nightly)])
def test_mutated_files_never_crash(prints, cases):
    raw = to_bytes(replace(prints["base"], features={"norms": prints["base"].features["norms"]}))
    length = 8 + int.from_bytes(raw[:8], "little")
    rng = np.random.default_rng(2)
    for _ in range(cases):
        spoilt = bytearray(raw)
        for _ in range(int(rng.integers(1, 4))):
            spoilt[int(rng.integers(0, length))] = int(rng.integers(256))
        with pytest.raises((FormatError, SchemaError)):
            from_bytes(bytes(spoilt) if spoilt != raw else b"", "x.kfp")


def test_another_schema_version_is_named(prints):
    newer = replace(prints["base"], description=replace(prints["base"].description, schema_version=2))
    with pytest.raises(SchemaError, match=r"x.kfp.* version 2; expected .*, 1"):
        from_bytes(to_bytes(newer), "x.kfp")


def test_what_is_no_fingerprint_is_told_apart(tmp_path):
    with pytest.raises(FormatError, match="without a fingerprint's description"):
        read_fingerprint(DEMO / "base" / "model.safetensors")
    with pytest.raises(NotFound, match=r"kinprint fingerprint"):
        read_fingerprint(tmp_path / "none.kfp")
    huge = tmp_path / "huge.kfp"
    with huge.open("wb") as stream:
        stream.truncate(FILE_CAP + 1)
    with pytest.raises(FormatError, match="expected at most"):
        read_fingerprint(huge)


def test_values_that_are_not_finite_are_refused(prints):
    spoilt = {"norms": Features("norms", 1, {"x": np.array([1.0, np.nan], dtype=np.float32)})}
    with pytest.raises(FormatError, match="not finite"):
        from_bytes(
            to_bytes(replace(prints["base"], features=spoilt, description=_only(prints["base"], "norms"))), "x.kfp"
        )


def _only(found, name):
    return replace(found.description, methods=tuple(item for item in found.description.methods if item.method == name))


def test_a_fingerprint_whose_arrays_make_no_sense_is_off_not_a_crash(prints):
    good = prints["base"].features["gram"]
    for arrays in (
        {},
        {**good.arrays, "profiles": np.zeros((2, 3), dtype=np.float16)},
        {**good.arrays, "layers": np.zeros(9, dtype=np.int64)},
    ):
        with pytest.raises(DegenerateInput, match="gram"):
            METHODS["gram"].score(replace(good, arrays=arrays), good)


def test_models_without_a_tokenizer_leave_out_what_needs_one(session, tmp_path):
    for file in ("model.safetensors", "config.json"):
        (tmp_path / file).write_bytes((DEMO / "base" / file).read_bytes())
    found = make_fingerprint(tmp_path, session=session, methods=PORTABLE)
    reasons = {item.method: item.reason for item in found.description.methods}
    assert "needs a tokenizer.json" in reasons["huref"]
    assert reasons["gram"] is None
    assert "gram" in found.features


def test_extract_says_why_a_method_has_nothing(session):
    from kinprint.model.model import open_model
    from kinprint.model.weights import StoredWeights

    model = StoredWeights(open_model(str(DEMO / "base"), session))
    features, reasons = extract_features(model, [METHODS["kin"], METHODS["pdf"]])
    assert list(features) == ["pdf"]
    assert "both models" in reasons["kin"]
    assert describe(model, features, reasons).description.methods[1].reason == reasons["kin"]


def _mutants(features, rng):
    """Yield what a stranger could have written: arrays missing, of other shapes, types, sizes and values, and other facts."""
    yield replace(features, arrays={})
    yield replace(features, facts={})
    for key, value in features.facts.items():
        for other in ("x", -1, 0, 1.5, 10**12):
            yield replace(features, facts={**features.facts, key: other})
        yield replace(features, facts={k: v for k, v in features.facts.items() if k != key} | {"other": value})
    for key, array in features.arrays.items():
        spoilt = [
            array[:0],
            array.reshape(-1),
            array[None],
            array[:1],
            np.zeros_like(array),
            np.full_like(array, -1 if array.dtype.kind != "u" else 1),
            array.astype(np.int32) if array.dtype.kind == "f" else array.astype(np.float32),
            np.zeros((2000, 3), dtype=array.dtype),
            np.zeros((1, 1, 1, 1, 1), dtype=array.dtype),
            np.array(1.0).astype(array.dtype),
        ]
        if array.dtype.kind == "f":
            spoilt += [np.full_like(array, 6e4), rng.standard_normal(array.shape).astype(array.dtype)]
            spoilt.append(np.full(array.shape, 1e30, dtype=np.float64))
        for other in spoilt:
            yield replace(features, arrays={**features.arrays, key: other})
        yield replace(features, arrays={k: v for k, v in features.arrays.items() if k != key})


@pytest.mark.slow
@pytest.mark.parametrize("every", [10, pytest.param(1, marks=pytest.mark.nightly)])
def test_no_fingerprint_of_a_stranger_can_break_a_method(prints, every):
    rng = np.random.default_rng(5)
    cases = (
        (name, *sides)
        for name, good in prints["base"].features.items()
        for bad in _mutants(good, rng)
        for sides in ((bad, good), (good, bad), (bad, bad))
    )
    tried = 0
    for name, a, b in islice(cases, 0, None, every):
        (row,) = run_on_features({name: a}, {name: b}, [METHODS[name]])
        assert row.status == OFF or np.isfinite(row.value), (name, row)
        tried += 1
    assert tried > 500 / every
