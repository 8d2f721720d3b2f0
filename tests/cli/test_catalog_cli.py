"""`kinprint catalog`: adding, listing, showing, removing, exchanging, checking; in both languages and as JSON."""

import io
import json
import shutil
import sqlite3

import pytest

from kinprint.catalog.store import open_catalog
from support.catalogs import make_item
from support.places import DEMO_MODELS

BASE, OTHER = str(DEMO_MODELS / "base"), str(DEMO_MODELS / "unrelated")


@pytest.fixture
def known(tmp_path):
    return ["--catalog", str(tmp_path / "models.db")]


@pytest.fixture
def filled(known):
    with open_catalog(known[1]) as catalog:
        catalog.add_all([make_item(seed, vectors={}, declared_bases=("a/b",)) for seed in range(4)])
    return known


def test_adding_models_from_arguments_and_standard_input(inside, known, monkeypatch):
    done = inside("catalog", "add", BASE, *known, "--format", "json")
    assert done.code == 0
    told = json.loads(done.out)
    assert [entry["name"] for entry in told["added"]] == ["base"]
    text = f"# models\n\n{OTHER}   # a stranger\n{BASE}\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    done = inside("catalog", "add", "-", *known, "--format", "json")
    told = json.loads(done.out)
    assert [entry["name"] for entry in told["added"]] == ["unrelated"]
    assert [entry["name"] for entry in told["already"]] == ["base"]
    listed = json.loads(inside("catalog", "list", *known, "--format", "json").out)
    assert [entry["name"] for entry in listed] == ["base", "unrelated"]


@pytest.mark.parametrize(
    ("raw", "code", "said"),
    [
        (f"\ufeff{BASE}\r\n\r\n{OTHER}\r\n".encode(), 0, "Added"),
        (f"{BASE}\n\xff\n".encode("latin-1"), 3, "standard input, after line 0: not UTF-8"),
    ],
)
def test_a_list_of_any_editor_is_read_or_refused(inside, known, monkeypatch, raw, code, said):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(raw), encoding="utf-8"))
    done = inside("catalog", "add", "-", *known)
    assert (done.code, said in done.out + done.err) == (code, True)


def test_one_that_fails_does_not_stop_the_others(inside, known):
    done = inside("catalog", "add", "./nowhere", BASE, *known)
    assert done.code == 3
    assert "could not be read" in done.out
    assert "no such file or folder: ./nowhere" in " ".join(done.out.split())
    assert [e["name"] for e in json.loads(inside("catalog", "list", *known, "--format", "json").out)] == ["base"]
    assert inside("catalog", "add", "./nowhere", *known).err.startswith("error: no such file or folder")


def test_another_model_of_the_same_name_is_told(inside, known, tmp_path):
    shutil.copytree(OTHER, tmp_path / "x" / "base")
    named = tmp_path / "y"
    done = inside("catalog", "add", BASE, tmp_path / "x" / "base", "--replace", *known, "--format", "json")
    told = json.loads(done.out)  # one of a list does not take the place of another
    assert (done.code, [item["name"] for item in told["added"]], len(told["failed"])) == (2, ["base"], 1)
    assert inside("catalog", "add", BASE, *known).code == 0
    assert inside("catalog", "add", OTHER, *known, "--name", "base").code == 2
    assert inside("catalog", "add", OTHER, *known, "--name", "base", "--replace").code == 0
    shown = json.loads(inside("catalog", "show", "base", *known, "--format", "json", "-o", f"{named}.kfp").out)
    assert shown["name"] == "base"
    assert inside("compare", f"{named}.kfp", OTHER).code == 0


def test_a_list_and_an_entry_in_both_languages(inside, filled):
    shown = inside("catalog", "list", *filled).out
    assert "4 entries" in shown
    assert "maker/model-3" in shown
    assert "항목 4개" in inside("catalog", "list", *filled, "--lang", "ko").out
    assert "and 2 more" in inside("catalog", "list", *filled, "--most", "2").out
    assert "maker/model-1" not in inside("catalog", "list", *filled, "--contains", "MODEL-2").out
    entry = inside("catalog", "show", "maker/model-2", *filled).out
    assert make_item(2).entry.revision in entry
    assert "etag:2" in entry
    assert "모델 카드에 기재된 기반 모델" in inside("catalog", "show", "maker/model-2", *filled, "--lang", "ko").out
    assert inside("catalog", "show", "maker/none", *filled).code == 3


def test_removing(inside, filled):
    assert inside("catalog", "remove", "maker/model-1", "maker/none", *filled).code == 3
    assert "4 entries" in inside("catalog", "list", *filled).out
    key = make_item(2).entry.key[:10]
    assert inside("catalog", "remove", "maker/model-1", key, *filled).code == 0
    assert "2 entries" in inside("catalog", "list", *filled).out


def test_exchange(inside, filled, tmp_path):
    file, other = tmp_path / "models.kcat", ["--catalog", str(tmp_path / "other.db")]
    shown = inside("catalog", "export", str(file), *filled).out
    assert "Not signed" in shown
    done = json.loads(inside("catalog", "import", str(file), *other, "--format", "json").out)
    assert (done["entries"], done["added"], done["signature"]) == (4, 4, "none")
    assert "서명 없음" in inside("catalog", "import", str(file), *other, "--lang", "ko").out
    file.write_bytes(file.read_bytes()[:-9])
    assert inside("catalog", "import", str(file), *other).code == 6
    assert "4 entries" in inside("catalog", "list", *other).out


def test_stats(inside, filled):
    shown = inside("catalog", "stats", *filled).out
    assert "llama" in shown
    assert json.loads(inside("catalog", "stats", *filled, "--format", "json").out)["entries"] == 4
    assert "카탈로그 통계" in inside("catalog", "stats", *filled, "--lang", "ko").out


def test_check_names_what_is_damaged_and_fails(inside, filled):
    assert "nothing is damaged" in inside("catalog", "check", *filled).out
    with sqlite3.connect(filled[1]) as db:
        db.execute("UPDATE fingerprints SET data = x'00' WHERE id = 3")
    db.close()
    done = inside("catalog", "check", *filled)
    assert done.code == 6
    assert "maker/model-2" in done.out
    assert "지문이 손상됨" in inside("catalog", "check", *filled, "--lang", "ko").out
    told = json.loads(inside("catalog", "check", *filled, "--format", "json").out)
    assert [problem["name"] for problem in told["problems"]] == ["maker/model-2"]


def test_reindexing_and_failures(inside, filled):
    assert "entries have recall vectors" in inside("catalog", "reindex", *filled).err
    assert "0 models" in inside("catalog", "list", "--failures", *filled).out


def test_reindexing_names_what_is_damaged_and_goes_on(inside, known):
    assert inside("catalog", "add", BASE, OTHER, *known).code == 0
    with sqlite3.connect(known[1]) as db:
        db.execute("UPDATE fingerprints SET data = zeroblob(length(data)) WHERE id = 1")
    db.close()
    done = inside("catalog", "reindex", *known)
    assert done.code == 6
    assert "base" in done.err
    assert "the SHA-256 is not its key; remove it and add the model again" in done.err
    assert "1 entries have recall vectors" in done.err
    with open_catalog(known[1], read_only=True) as catalog:
        assert {name: count for name, count in catalog.families() if count != 1} == {}
    assert inside("catalog", "add", BASE, "--replace", *known).code == 0
    assert inside("catalog", "reindex", *known).code == 0


def test_a_catalog_that_is_not_there(inside, known, tmp_path):
    done = inside("catalog", "list", *known)
    assert done.code == 3
    assert "kinprint catalog add" in done.err
    assert "env.db" in inside("catalog", "list", env={"KINPRINT_CATALOG": str(tmp_path / "env.db")}).err
    assert inside("catalog", "add", "--catalog", str(tmp_path / "x.db")).code == 2
    assert "secret" not in inside("catalog", "list", "--catalog", "mysql://me:secret@host/db").err
