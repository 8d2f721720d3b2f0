"""Search: a model is not its own relative, equal sizes are no equal files, and neither a copy nor a gap slips past a gate."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from kinprint.catalog.adding import fingerprint_model
from kinprint.catalog.store import open_catalog
from kinprint.cli.judging import Judging
from kinprint.cli.main import main
from kinprint.cli.search import _open
from kinprint.render.content.search import found_as, headline
from kinprint.render.forms import make
from kinprint.render.repeat_command import search_command
from kinprint.render.texts.words import Words
from kinprint.results.options import Options
from kinprint.results.search import NAMED, RELATED, SAME_KEPT, SearchReport, Verified
from kinprint.searching.run import search, search_item
from kinprint.searching.verifying import command_of
from kinprint.text import Text
from support.adapter_files import lora_names, write_adapter
from support.places import DEMO_MODELS, FAMILY_MODELS


@pytest.fixture
def downloaded(hub, session_for, tmp_path):
    """Two repositories, of which the official client has whole copies on this machine; with and without them."""
    for name in ("base", "finetune"):
        hub.add_repo(f"owner/{name}", DEMO_MODELS / name)
    plain = session_for(hub)
    for name in ("base", "finetune"):
        commit = plain.open_folder(f"owner/{name}").provenance.commit
        shutil.copytree(DEMO_MODELS / name, tmp_path / "hub" / f"models--owner--{name}" / "snapshots" / commit)
    return plain, session_for(hub, hub_cache=tmp_path / "hub")


def test_files_of_one_size_are_not_the_same_files(downloaded, tmp_path):
    """Of a copy in the hub's own cache only the size is known."""
    with open_catalog(tmp_path / "c.db") as known:
        known.add(*fingerprint_model("owner/base", session=downloaded[1]))
        (found,) = search("owner/finetune", known, session=downloaded[1]).found
    assert (found.class_, found.same) == (RELATED, None)


def test_a_repository_is_itself_however_it_was_read(downloaded, tmp_path):
    """Its fingerprint file names other identities of the same weights."""
    with open_catalog(tmp_path / "c.db") as known:
        known.add(*fingerprint_model("owner/base", session=downloaded[0]))
        report = search("owner/base", known, session=downloaded[1])
    assert (report.found, report.compared, report.class_) == ((), 0, "not_testable")
    assert "not listed, nor counted" in report.notes[0]


def test_commits_of_one_repository_are_told_apart(tmp_path):
    one, other = (fingerprint_model(DEMO_MODELS / name, name="owner/base") for name in ("base", "finetune"))
    at = [one._replace(entry=replace(one.entry, revision="a" * 40)), other]
    at[1] = other._replace(entry=replace(other.entry, revision="b" * 40))
    with open_catalog(tmp_path / "c.db") as known:
        for item in at:
            known.add(*item)
        found = make(search(FAMILY_MODELS / "lora", known), "markdown").decode()
    assert all(f"`owner/base@{commit * 8}`" in found for commit in "ab")


def test_a_copy_is_not_the_one_beyond_the_limit(tmp_path):
    """An adapter leaves norms as they are: the base is as near as a copy in that, and in nothing else."""
    with open_catalog(tmp_path / "c.db") as known:
        for path in (DEMO_MODELS / "base", FAMILY_MODELS / "lora"):
            known.add(*fingerprint_model(path))
        report = search(FAMILY_MODELS / "lora", known, limit=1)
    assert [(one.name, one.same) for one in report.found] == [("lora", SAME_KEPT)]
    # what is beyond the limit may be what a gate asks for
    seen = replace(report, found=(replace(report.found[0], verified=_told("shares_components")),))
    assert _open(Judging(("derived",), exit_code=False), seen) == {"not_judged": ["1 not listed"]}
    assert _open(Judging(("related",), exit_code=False), seen) == {}


def _told(class_):
    return Verified(class_, None, None, Text("nothing could be compared"))


def test_weights_that_told_nothing_rule_nothing_out(tmp_path):
    with open_catalog(tmp_path / "c.db") as known:
        known.add(*fingerprint_model(DEMO_MODELS / "base"))
        report = search(FAMILY_MODELS / "lora", known)
    silent = replace(report, found=(replace(report.found[0], verified=_told("not_testable")),))
    assert _open(Judging(("derived",), exit_code=False), silent) == {"related": ["base"]}
    assert silent.findings == ("related", "not_testable")
    assert found_as(silent.found[0], Words("en")) == "related"


def test_the_base_that_a_card_names_is_tested_however_many_others_agree(tmp_path):
    """Else it was said of it that no exact test shows it, and none had run."""
    with open_catalog(tmp_path / "c.db") as known:
        for number in range(3):
            known.add(*fingerprint_model(FAMILY_MODELS / "lora", name=f"copy-{number}"))
        known.add(*fingerprint_model(DEMO_MODELS / "finetune", name="org/base"))
        child = fingerprint_model(FAMILY_MODELS / "lora")
        declared = child._replace(entry=replace(child.entry, declared_bases=("org/base",)))
        report = search_item("lora", declared, known, limit=1)
        disguised = fingerprint_model(FAMILY_MODELS / "disguised_tuned")
        for path in (DEMO_MODELS / "grown", DEMO_MODELS / "base"):
            known.add(*fingerprint_model(path))
        hidden = search_item(
            "x", disguised._replace(entry=replace(disguised.entry, declared_bases=("grown",))), known, limit=1
        )
    assert "org/base" in {one.name for one in report.relatives}
    assert "grown" in {one.name for one in hidden.look_alikes}


def test_all_tables_of_a_saved_search_are_shown_on_request(tmp_path):
    with open_catalog(tmp_path / "c.db") as known:
        known.add(*fingerprint_model(DEMO_MODELS / "base"))
        saved = search(FAMILY_MODELS / "lora", known).save(tmp_path / "s.json")
    short, full = (
        CliRunner().invoke(main, ["report", str(saved), *more], standalone_mode=False).stdout
        for more in ([], ["--full"])
    )
    assert ("Exact tests that stand" in short, "Exact tests that stand" in full) == (False, True)


def test_a_search_by_lists_says_that_some_may_be_missed(tmp_path, monkeypatch):
    with open_catalog(tmp_path / "c.db") as known:
        known.add(*fingerprint_model(DEMO_MODELS / "base"))
        monkeypatch.setattr(type(known), "recall_is_exact", False)
        report = search(FAMILY_MODELS / "lora", known)
    assert "of the nearest some may be missed" in report.notes[0]


def test_a_command_is_told_that_can_be_typed():
    assert command_of("-odd", "./place", Options(deep=True)) == "kinprint compare --deep -- -odd ./place"


def test_look_alikes_beyond_the_limit_make_no_relative_of_those_that_were_tested(tmp_path):
    with open_catalog(tmp_path / "c.db") as known:
        for path in (*(DEMO_MODELS / name for name in ("base", "grown")), FAMILY_MODELS / "disguised_tuned"):
            known.add(*fingerprint_model(path))
        report = search(FAMILY_MODELS / "disguised_tuned", known, limit=1, verify=1, local=FAMILY_MODELS)
    assert (len(report.relatives), len(report.look_alikes), report.not_listed) == (1, 1, 1)
    assert headline(report, Words("en")) == "Relatives: 1 of the 3 compared"
    assert report.sentence.startswith("Related to this model, of the 3 compared: 1.")


def test_an_adapter_of_this_machine_is_verified_by_its_own_files(tmp_path):
    """Its entry names the files of its base too, which lie elsewhere."""
    rng = np.random.default_rng(3)
    down, up = (0.1 * rng.standard_normal(shape).astype(np.float32) for shape in ((4, 96), (256, 4)))
    adapter = write_adapter(tmp_path / "adapter", lora_names("model.layers.1.mlp.up_proj", down, up), r=4)
    with open_catalog(tmp_path / "c.db") as known:
        known.add(*fingerprint_model(adapter, bases=DEMO_MODELS / "base"))
        asked = {"verify": 1, "local": tmp_path, "bases": DEMO_MODELS / "base"}
        (found,) = search(DEMO_MODELS / "base", known, **asked).found
    assert found.verified.class_ == "derived", found.verified


def test_a_file_that_was_chosen_in_a_folder_is_the_one_that_is_verified(tmp_path):
    folder = tmp_path / "both"
    shutil.copytree(DEMO_MODELS / "base", folder)
    shutil.copy(DEMO_MODELS / "unrelated" / "model.safetensors", folder / "other.safetensors")
    with open_catalog(tmp_path / "c.db") as known:
        known.add(*fingerprint_model(folder, files="other.safetensors"))
        (found,) = search(DEMO_MODELS / "unrelated", known, verify=1, local=tmp_path).found
        report = search(folder, known, verify=1, local=tmp_path, files="other.safetensors", limit=3)
    (same,) = report.found
    # the commands that go on from there read what was read
    again = f"kinprint search --catalog {known.place} --verify 1 --local {tmp_path} --limit 3 --file other.safetensors {folder}"
    assert search_command(report) == again
    assert same.verify == f"kinprint compare --file other.safetensors {folder} {folder}"
    assert SearchReport.from_json(report.to_json()) == report
    assert [one.verified.class_ for one in (found, same)] == ["identical", "identical"]


def test_a_base_is_listed_once_and_one_that_is_not_here_is_noted(tmp_path):
    with open_catalog(tmp_path / "c.db") as known:
        known.add(*fingerprint_model(DEMO_MODELS / "unrelated", name="org/base"))
        child = fingerprint_model(FAMILY_MODELS / "lora")
        named = replace(child.entry, declared_bases=("org/base", "ORG/Base", "org/elsewhere"))
        report = search_item("lora", child._replace(entry=named), known)
    assert [(one.name, one.class_) for one in report.found] == [("org/base", NAMED)]
    assert list(map(str, report.notes)) == [
        "the card names org/elsewhere as its base, which the catalog does not have: not compared"
    ]
