"""Which entries an answer may speak of: those that this model's parts could be held against, each counted once."""

import shutil
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest

from kinprint.catalog.adding import fingerprint_model
from kinprint.catalog.entry import key_of
from kinprint.catalog.store import open_catalog
from kinprint.fingerprints.file import from_bytes, to_bytes
from kinprint.searching.candidates import OTHER_SHAPE
from kinprint.searching.run import search, search_item
from kinprint.searching.verifying import place_of
from support.catalogs import make_item
from support.places import DEMO_MODELS, FAMILY_MODELS


def kept(item, name, chosen, width=None, *, cut=True):
    """An item with some parts of its fingerprint, of another width, to which its norms are cut; recall vectors stay."""
    whole = from_bytes(item.fingerprint, "x")
    compact = whole.features["compact"]
    arrays = {part: array for part, array in compact.arrays.items() if part.startswith(chosen)}
    for part in arrays if width and cut else ():
        if part.startswith("norms.") and not part.endswith((".at", ".scales")):
            arrays[part] = np.ascontiguousarray(arrays[part][:, :width])
    hidden = width or item.entry.hidden
    (method,) = (one for one in whole.description.methods if one.method == "compact")
    method = replace(method, facts=tuple((dict(method.facts) | {"hidden": str(hidden)}).items()))
    told = replace(whole.description, hidden=hidden, model=name, methods=(method,))
    raw = to_bytes(replace(whole, description=told, features={"compact": replace(compact, arrays=arrays)}))
    return item._replace(entry=replace(item.entry, name=name, hidden=hidden, key=key_of(raw)), fingerprint=raw)


def halfway(vector, seed):
    """A vector whose cosine with another is about 0.6."""
    other = np.random.default_rng(seed).standard_normal(vector.size)
    mixed = 0.6 * vector + 0.8 * other / np.linalg.norm(other)
    return (mixed / np.linalg.norm(mixed)).astype(np.float32)


@pytest.fixture(scope="module")
def base():
    return fingerprint_model(DEMO_MODELS / "base")


@pytest.fixture(scope="module")
def unrelated():
    return fingerprint_model(DEMO_MODELS / "unrelated")


def test_entries_of_another_shape_were_not_compared(base, tmp_path):
    """Nothing could have been proven of them, whatever power a child of the model's own shape has."""
    query = kept(base, "query", "norms")
    with open_catalog(tmp_path / "narrow.db") as known:
        for name in ("narrow", "narrow-2"):
            known.add(*kept(base, name, "norms", width=80))
        report = search_item("query", query, known)
        assert (report.class_, report.compared, report.power) == ("not_testable", 0, None)
        assert report.findings == ("not_testable",)
        assert [(one.reason, one.count, one.near) for one in report.not_compared] == [(OTHER_SHAPE, 2, False)]
        known.add(*fingerprint_model(FAMILY_MODELS / "indep"))
        mixed = search_item("query", query, known)
    assert (mixed.class_, mixed.compared, mixed.findings) == ("no_evidence", 1, ("no_evidence",))


def test_models_whose_first_dimensions_alone_are_kept_are_told_apart_by_their_width(base, unrelated, tmp_path):
    """Of widths beyond 1,024 all norms that are kept have one shape."""
    with open_catalog(tmp_path / "wide.db") as known:
        known.add(*kept(unrelated, "wide", "norms", width=112, cut=False))
        report = search_item("query", kept(base, "query", "norms"), known)
    assert (report.class_, report.compared) == ("not_testable", 0)


def test_entries_that_were_not_looked_at_count_where_one_has_the_width(base, unrelated, tmp_path):
    """Ten candidates of another width hide whether any of the others could be held against the model."""
    query = kept(base, "query", "norms")._replace(vectors={"norms": base.vectors["norms"]})
    with open_catalog(tmp_path / "many.db") as known:
        for number in range(12):
            narrow = kept(base, f"narrow-{number}", "norms", width=80)
            known.add(*narrow._replace(vectors={"norms": halfway(base.vectors["norms"], number)}))
        none = search_item("query", query, known)
        known.add(*unrelated._replace(vectors={"norms": unrelated.vectors["norms"]}))
        one = search_item("query", query, known)
    assert (none.class_, none.compared, sum(item.count for item in none.not_compared)) == ("not_testable", 0, 12)
    assert (one.class_, one.compared) == ("no_evidence", 3)
    assert one.sentence == "No relative of this model's width among the 3 compared."


def test_what_weights_show_is_the_answer_where_fingerprints_show_nothing(base, tmp_path):
    """A model with embeddings and attention alone has no part that recall knows the null of."""
    raw = (DEMO_MODELS / "base" / "model.safetensors").read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    header, body = orjson.loads(raw[8 : 8 + size]), b""
    for name in [name for name in header if not any(part in name for part in ("embed", "attn", "lm_head"))]:
        del header[name]
    for told in header.values():
        start, end = told["data_offsets"]
        told["data_offsets"] = [len(body), len(body) + end - start]
        body += raw[8 + size + start : 8 + size + end]
    shutil.copytree(DEMO_MODELS / "base", tmp_path / "part")
    head = orjson.dumps(header)
    (tmp_path / "part" / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + body)
    with open_catalog(tmp_path / "known.db") as known:
        known.add(*base)
        known.add_all([make_item(seed, vectors={}) for seed in range(4)])  # entries that p-values are corrected for
        unverified = search(tmp_path / "part", known)
        report = search(tmp_path / "part", known, verify=1, local=DEMO_MODELS)
    assert unverified.class_ == "not_testable"
    assert report.found[0].verified.class_ == "derived"
    assert (report.class_, report.compared) == ("related", 1)
    assert report.sentence == "Related by their weights, which were compared, and not by fingerprints alone: 1."
    assert {"derived", "related"} <= set(report.findings)


def test_entries_of_different_families_are_each_counted_once(base, unrelated, tmp_path):
    """One has norms and one Gram profiles: neither lacks what the other has. A base that a card names is looked at anyway."""
    with open_catalog(tmp_path / "known.db") as known:
        known.add(*kept(unrelated, "norms", "norms")._replace(vectors={"norms": unrelated.vectors["norms"]}))
        known.add(*kept(unrelated, "gram", "gram")._replace(vectors={"gram": unrelated.vectors["gram"]}))
        two = search_item("base", base, known)
        known.add(*make_item(1, vectors={}))
        query = base._replace(entry=replace(base.entry, declared_bases=("maker/model-1",)))
        named = search_item("base", query, known)
    assert (two.class_, two.compared, two.not_compared) == ("no_evidence", 2, ())
    assert (named.compared, [(one.count, one.names) for one in named.not_compared]) == (2, [(1, ("maker/model-1",))])


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("own/mod", "hf://own/mod@abc"),
        ("own/mod/sub/other.safetensors", "hf://own/mod@abc/sub/other.safetensors"),
        ("mod", "hf://mod@abc"),
        ("http://127.0.0.1:9/latest/meta-data", None),
        ("--html=x", None),
        ("-/x", None),
        ("models/x", None),
        ("/etc/passwd", None),
        ("../x", None),
        ("own/mod/../x", None),
        ("own/mod@main", None),
        ("own/mod/a b", None),
    ],
)
def test_only_repositories_of_the_hub_have_a_commit(base, tmp_path, name, place):
    """An export may be a stranger's: it must not choose which host is asked, nor what the printed command does."""
    entry = replace(base.entry, name=name, revision="abc")
    assert place_of(entry, None) == place_of(entry, tmp_path) == place
    assert place_of(replace(entry, revision="a b/../c"), None) is None


def test_entries_of_no_repository_are_not_verified(base, tmp_path):
    forged = base._replace(entry=replace(base.entry, name="http://127.0.0.1:9/x", revision="abc"))
    with open_catalog(tmp_path / "forged.db") as known:
        known.add(*forged)
        (found,) = search(DEMO_MODELS / "finetune", known, verify=1).found
    assert found.verify == ""
    said = "not verified: http://127.0.0.1:9/x is the name of no repository of the hub, nor of a file in one"
    assert found.verified.sentence == said


def test_an_entry_that_is_removed_meanwhile_ends_no_search(base, unrelated, tmp_path, monkeypatch):
    with open_catalog(tmp_path / "known.db") as known, open_catalog(tmp_path / "known.db") as other:
        known.add_all([base, unrelated])
        nearest, fingerprint = known.nearest, known.fingerprint

        def then_gone(*arguments, **how):
            found = nearest(*arguments, **how)
            if other.find("unrelated"):
                other.remove(unrelated.entry.key)
            return found

        def read_once(key):
            found = fingerprint(key)
            if other.find("base"):
                other.remove(key)
            return found

        monkeypatch.setattr(known, "nearest", then_gone)
        monkeypatch.setattr(known, "fingerprint", read_once)
        report = search(DEMO_MODELS / "finetune", known, verify=1, local=DEMO_MODELS)
    assert report.class_ == "related"
    assert [(item.reason, item.names) for item in report.not_compared] == [
        ("it was removed while the search ran", (unrelated.entry.key[:12],))
    ]
    assert "no entry with the key" in report.found[0].verified.sentence


def test_a_folder_whose_name_begins_like_an_option_is_no_option(base, tmp_path, monkeypatch):
    shutil.copytree(DEMO_MODELS / "base", tmp_path / "--html=x")
    monkeypatch.chdir(tmp_path)
    assert place_of(replace(base.entry, name="--html=x"), Path()) == "./--html=x"


def test_an_entry_of_one_file_is_verified(hub, session_for, tmp_path):
    shutil.copytree(DEMO_MODELS / "base", tmp_path / "two")
    shutil.copy(tmp_path / "two" / "model.safetensors", tmp_path / "two" / "other.safetensors")
    hub.add_repo("own/mod", tmp_path / "two")
    with session_for(hub) as session, open_catalog(tmp_path / "hub.db") as known:
        known.add(*fingerprint_model("hf://own/mod@main/other.safetensors", session=session))
        (found,) = search(DEMO_MODELS / "finetune", known, session=session, verify=1).found
    assert found.name == "own/mod/other.safetensors"
    assert found.verified.class_ == "derived"


def test_a_model_of_another_width_and_kind_is_not_testable(tmp_path):
    """Gram profiles do not depend on the width; one of gate and up is no profile of up alone."""
    with open_catalog(tmp_path / "known.db") as known:
        known.add(*kept(fingerprint_model(DEMO_MODELS / "base"), "gated", ("gram", "norms")))
        other = kept(fingerprint_model(DEMO_MODELS / "unrelated"), "other", ("gram", "norms"), width=80)
        found = from_bytes(other.fingerprint, "x")
        compact = found.features["compact"]
        short = {
            name: compact.arrays[name][:, :, :-8] if name == "gram" else array for name, array in compact.arrays.items()
        }
        features = {
            "compact": replace(compact, arrays={name: np.ascontiguousarray(array) for name, array in short.items()})
        }
        raw = to_bytes(replace(found, features=features))
        report = search_item("x", other._replace(entry=replace(other.entry, key=key_of(raw)), fingerprint=raw), known)
    assert report.class_ == "not_testable"
