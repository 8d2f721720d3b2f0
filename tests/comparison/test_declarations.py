"""What cards declare, beside what the weights say."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from kinprint.comparison.declarations import judge_declarations, read_declaration
from kinprint.comparison.pipeline import compare
from kinprint.model.model import open_model
from kinprint.results.context import (
    DECLARED,
    NOT_JUDGED,
    NOT_SHOWN,
    NOTHING_DECLARED,
    OTHER_DECLARED,
    UNDECLARED,
    Declaration,
)
from kinprint.results.options import Options
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from support.gguf_files import write_gguf
from support.places import DEMO_MODELS

MODELS = DEMO_MODELS
SILENT = Declaration((), None, None, ())
NO_CARD = Declaration((), None, None, (), "there is no README.md", known=False)


def model(reference, kind="hub"):
    where = SimpleNamespace(kind=kind, reference=reference, location=reference)
    return SimpleNamespace(checkpoint=SimpleNamespace(provenance=where, adapter=False, base=None))


def says(*bases, licence=None):
    return Declaration(bases, None, licence, ("README.md",))


def judged(a, b, class_, names=("one/a", "two/b"), kind="hub"):
    models = tuple(model(name, kind) for name in names)
    return judge_declarations(models, a, b, SimpleNamespace(class_=class_) if class_ else None)


@pytest.mark.parametrize(
    ("a", "b", "class_", "state"),
    [
        (SILENT, says("one/a"), "derived", DECLARED),
        (SILENT, says("ONE/A"), "identical", DECLARED),
        (says("two/b"), SILENT, "shares_components", DECLARED),
        (says("x/root"), says("x/root"), "derived", DECLARED),
        (SILENT, SILENT, "derived", UNDECLARED),
        (says(licence="mit"), says(licence="mit"), "identical", UNDECLARED),
        (SILENT, says("else/thing"), "derived", OTHER_DECLARED),
        (SILENT, says("other/a"), "derived", OTHER_DECLARED),
        (SILENT, says("one/a"), "no_evidence", NOT_SHOWN),
        (SILENT, says("one/a"), "shares_initialisation", NOT_SHOWN),
        (SILENT, SILENT, "no_evidence", NOTHING_DECLARED),
        (says("x/root"), says("x/root"), "no_evidence", NOTHING_DECLARED),
        (SILENT, says("one/a"), "not_testable", NOT_JUDGED),
        (SILENT, says("one/a"), None, NOT_JUDGED),
    ],
)
def test_states(a, b, class_, state):
    found = judged(a, b, class_)
    assert found.state == state
    assert found.sentence.endswith(".")


def test_which_card_names_the_other():
    assert judged(SILENT, says("hf://One/A@main"), "derived").named_by == ("B",)
    assert judged(says("two/b"), says("one/a"), "no_evidence").named_by == ("A", "B")
    assert judged(says("x/root"), says("someone/a"), "derived").named_by == ()


def test_a_local_copy_is_known_by_the_last_part_of_its_path():
    found = judged(SILENT, says("owner/Base"), "derived", names=("models/base", "models/child"), kind="folder")
    assert found.state == DECLARED


def test_a_folder_of_the_same_name_is_no_ground_for_an_accusation():
    found = judged(SILENT, says("x/base"), "no_evidence", names=("models/base", "models/child"), kind="folder")
    assert found.state == NOT_JUDGED
    assert "cannot be told from a name" in found.sentence


@pytest.mark.parametrize(
    "name",
    [
        "One/A",
        "hf://one/a@main",
        "https://hub.example/one/a",
        "https://hub.example/one/a/tree/main",
        "https://hub.example/one/a.git",
        "https://hub.example/one/a/blob/main/README.md#x",
        "one/a@refs/pr/1",
    ],
)
def test_spellings_of_one_name(name):
    assert judged(SILENT, says(name), "no_evidence").state == NOT_SHOWN


def test_two_pages_of_different_repositories_are_two_names():
    pages = says("https://hub.example/x/y/tree/main"), says("https://hub.example/z/w/tree/main")
    assert judged(*pages, "derived").state == OTHER_DECLARED


def test_local_models_without_cards_are_not_accused_of_silence():
    assert judged(NO_CARD, NO_CARD, "derived", names=("a", "b"), kind="folder").state == NOT_JUDGED
    assert judged(NO_CARD, SILENT, "derived", names=("a", "b"), kind="folder").state == NOT_JUDGED
    assert judged(SILENT, SILENT, "derived", names=("a", "b"), kind="folder").state == UNDECLARED


def test_licences_are_shown_where_weights_are_related_and_they_differ():
    assert (
        "A declares mit, B declares llama3" in judged(says(licence="mit"), says(licence="llama3"), "derived").licences
    )
    assert judged(says(licence="mit"), says(licence="MIT"), "derived").licences is None
    assert judged(says(licence="mit"), says(licence="llama3"), "no_evidence").licences is None


def with_card(name, folder, card):
    target = folder / name
    shutil.copytree(MODELS / name, target, ignore=shutil.ignore_patterns("README.md"))
    (target / "README.md").write_text(card, encoding="utf-8")
    return str(target)


def test_a_comparison_reads_the_cards(tmp_path):
    base = with_card("base", tmp_path, "---\nlicense: apache-2.0\n---\n")
    child = with_card("finetune", tmp_path, "---\nbase_model: someone/base\nlicense: cc-by-nc-4.0\n---\n")
    other = with_card("unrelated", tmp_path, "---\nbase_model: someone/base\n---\n")
    quick = Options(metrics=("pearson",))
    related = compare(base, child, quick).declared
    assert (related.state, related.a.licence, related.b.base_models) == (DECLARED, "apache-2.0", ("someone/base",))
    assert "cc-by-nc-4.0" in related.licences
    assert compare(base, other, quick).declared.state == NOT_JUDGED  # only the last part of the name is the same
    (Path(child) / "README.md").unlink()
    without = compare(base, child, quick).declared
    assert (without.state, without.b.known, without.b.reason) == (NOT_JUDGED, False, "there is no README.md")
    (Path(child) / "README.md").write_text("# a model\n", encoding="utf-8")
    assert compare(base, child, quick).declared.state == UNDECLARED


def test_a_gguf_declares_its_origin_in_its_metadata(tmp_path):
    values = np.random.default_rng(0).standard_normal((8, 32)).astype(np.float32)
    metadata = {
        "general.architecture": "llama",
        "general.license": "other",
        "general.license.name": "llama3",
        "general.base_model.count": 2,
        "general.base_model.0.name": "Base",
        "general.base_model.0.organization": "Owner",
        "general.base_model.1.repo_url": "https://hub.example/one/other",
    }
    write_gguf(tmp_path / "x.gguf", metadata, {"token_embd.weight": ("F32", values)})
    with Session(Settings(range_cache=None)) as session:
        found = read_declaration(open_model(str(tmp_path / "x.gguf"), session))
    assert (found.base_models, found.licence) == (("Owner/Base", "one/other"), "llama3")
    assert found.where == ("metadata of the file",)
    assert found.reason is None
