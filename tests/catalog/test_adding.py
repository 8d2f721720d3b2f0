"""Entries made from models: on this machine, on a hub, from fingerprint files; and what is noted of those that fail."""

import shutil

import pytest

from kinprint.catalog.adding import add_model, failure_of, fingerprint_model
from kinprint.catalog.entry import check_item, key_of
from kinprint.catalog.sqlite import SqliteCatalog
from kinprint.errors import FormatError, NotFound, TransferError
from kinprint.fingerprints.file import from_bytes, write_fingerprint
from kinprint.fingerprints.report import make_fingerprint
from support.places import DEMO_MODELS


@pytest.fixture(scope="module")
def base():
    return fingerprint_model(DEMO_MODELS / "base")


def test_a_folder(base, tmp_path):
    entry = base.entry
    assert (entry.name, entry.revision, entry.layers, entry.hidden) == ("base", None, 4, 96)
    assert entry.key == key_of(base.fingerprint)
    assert entry.files[0][0] == "model.safetensors"
    assert base.vectors
    told = from_bytes(base.fingerprint, "base").description
    assert (told.model, told.parameters, told.files) == (entry.name, entry.parameters, entry.files)
    check_item(base, "base")
    with SqliteCatalog(tmp_path / "c.db") as catalog:
        assert catalog.add(*base)
        assert list(catalog.check()) == []


def test_the_same_model_makes_the_same_key(base):
    assert fingerprint_model(DEMO_MODELS / "base").entry.key == base.entry.key


def test_a_name_of_ones_own(base):
    named = fingerprint_model(DEMO_MODELS / "base", name="the/base")
    assert named.entry.name == "the/base"
    assert named.entry.key != base.entry.key
    assert from_bytes(named.fingerprint, "x").description.model == "the/base"


def test_a_fingerprint_file(base, tmp_path):
    file = tmp_path / "base.kfp"
    write_fingerprint(file, make_fingerprint(DEMO_MODELS / "base"))
    found = fingerprint_model(file)
    assert found.entry.key == key_of(file.read_bytes()) == base.entry.key
    assert found.entry.licence is None
    assert fingerprint_model(file, name="other").entry.name == "other"
    file.write_bytes(file.read_bytes()[:-1] + b"\1")
    with pytest.raises(FormatError, match="digest"):
        fingerprint_model(file)
    with pytest.raises(NotFound, match="cannot read the fingerprint"):
        fingerprint_model(tmp_path / "none.kfp")


def test_a_hub_repository_has_its_commit_and_what_its_card_declares(hub, session_for, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(DEMO_MODELS / "base", folder)
    (folder / "README.md").write_text("---\nlicense: mit\nbase_model: maker/parent\n---\n", encoding="utf-8")
    commit = hub.add_repo("owner/name", folder)
    found = fingerprint_model("owner/name@main", session=session_for(hub))
    entry = found.entry
    assert (entry.name, entry.revision, entry.licence) == ("owner/name", commit, "mit")
    assert entry.declared_bases == ("maker/parent",)
    check_item(found, "owner/name")
    one = fingerprint_model("hf://owner/name/model.safetensors", session=session_for(hub))
    assert one.entry.name == "owner/name/model.safetensors"


def test_a_model_that_is_entered_is_no_failure_under_the_name_that_was_asked_for(tmp_path):
    with SqliteCatalog(tmp_path / "c.db") as catalog:
        for _ in range(2):  # entered, and there already
            catalog.fail(failure_of(str(DEMO_MODELS / "base"), FormatError("half a file")))
            assert add_model(catalog, DEMO_MODELS / "base")[0].name == "base"
            assert catalog.failures() == []


def test_a_failure_tells_class_and_message_and_no_secret():
    noted = failure_of("https://user:word@host/model?key=abc", TransferError("gave up\x1b[2J"))
    assert noted.name == "https://host/model"
    assert noted.error == "TransferError: gave up\N{REPLACEMENT CHARACTER}[2J"
    assert "word" not in repr(noted)
    assert "abc" not in repr(noted)
    assert len(failure_of("a/b", ValueError("x" * 5000)).error) == 1000
