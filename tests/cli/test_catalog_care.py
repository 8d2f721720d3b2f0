"""What `kinprint catalog` and its kin must not do: write over what is in use, repeat passwords, make catalogs of nothing."""

import json
import shutil
import sqlite3
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric import ed25519

from kinprint.catalog.store import open_catalog
from support.catalogs import make_item
from support.places import DEMO_MODELS

BASE, OTHER = str(DEMO_MODELS / "base"), str(DEMO_MODELS / "unrelated")
LONG = "a" * 300


@pytest.fixture
def known(tmp_path):
    return ["--catalog", str(tmp_path / "models.db")]


@pytest.fixture
def filled(known):
    with open_catalog(known[1]) as catalog:
        catalog.add_all([make_item(seed, vectors={}) for seed in range(4)])
    return known


@pytest.fixture
def signing_key(tmp_path):
    how = (forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    (tmp_path / "key").write_bytes(ed25519.Ed25519PrivateKey.generate().private_bytes(*how))
    return tmp_path / "key"


def names_of(place):
    with open_catalog(place, read_only=True) as catalog:
        return [entry.name for entry in catalog.entries()]


def noted(inside, known):
    told = json.loads(inside("catalog", "list", "--failures", *known, "--format", "json").out)
    return {item["name"]: (item["revision"], item["error"]) for item in told}


@pytest.mark.parametrize("beside", ["", "-journal", ".recall"])
@pytest.mark.parametrize(
    "command",
    [
        ["catalog", "export", "TARGET"],
        ["catalog", "show", "maker/model-1", "-o", "TARGET"],
        ["catalog", "tree", "--json", "TARGET"],
        ["catalog", "tree", "--graphml", "TARGET"],
        ["search", BASE, "--html", "TARGET"],
    ],
)
def test_nothing_is_written_over_the_catalog_in_use(inside, filled, command, beside):
    before = Path(filled[1]).read_bytes()
    done = inside(*(filled[1] + beside if word == "TARGET" else word for word in command), *filled)
    assert done.code == 8
    assert "part of the catalog" in done.err
    assert "next: name another file" in done.err
    assert Path(filled[1]).read_bytes() == before
    assert not beside or not Path(filled[1] + beside).exists()


def test_nor_through_a_link_or_by_another_name_of_it(inside, filled, tmp_path):
    before = Path(filled[1]).read_bytes()
    link = tmp_path / "link.kcat"
    link.symlink_to(filled[1])
    assert inside("catalog", "export", link, *filled).code == 8
    assert inside("catalog", "export", filled[1], "--catalog", link).code == 8
    assert inside("catalog", "export", tmp_path / "home" / ".." / "models.db", *filled).code == 8
    assert inside("catalog", "export", filled[1], env={"KINPRINT_CATALOG": filled[1]}).code == 8
    assert Path(filled[1]).read_bytes() == before


def test_nothing_is_written_over_the_key_in_use(inside, filled, signing_key, tmp_path):
    before = signing_key.read_bytes()
    done = inside("catalog", "export", signing_key, "--sign", signing_key, *filled)
    assert done.code == 8
    assert "it is a key in use" in done.err
    assert signing_key.read_bytes() == before
    assert inside("catalog", "export", tmp_path / "x.kcat", "--sign", signing_key, *filled).code == 0


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://bob:12/34hunter2@127.0.0.1:9/db",
        "postgresql://bob:/hunter2@127.0.0.1:9/db",
        "postgresql://bob:12?hunter2@127.0.0.1:9/db",
        "postgresql://bob:12#hunter2@127.0.0.1:9/db",
        "postgresql://127.0.0.1:9/db?password=a@hunter2",
        "postgresql://bob:a@hunter2@127.0.0.1:9/db",
        "POSTGRESQL://bob:hunter2@127.0.0.1:9/db",
        "postgresql:/bob:hunter2@127.0.0.1:9/db",
        "Postgres:bob:hunter2@127.0.0.1:9/db",
        " postgresql://bob:hunter2@127.0.0.1:9/db",
        "host=127.0.0.1 password=hunter2",
        "host=127.0.0.1 user=bob PASSWORD = 'hunter2'",
        "bob:hunter2@://127.0.0.1",
    ],
)
def test_an_address_that_cannot_be_read_is_refused_and_not_repeated(inside, address, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.rglob("*"))
    for command in (["catalog", "list"], ["catalog", "add", BASE], ["search", BASE], ["scan", BASE]):
        done = inside(*command, "--catalog", address)
        assert done.code == 3
        assert "postgresql://" in done.err
        assert not any(part in done.out + done.err for part in ("hunter2", "bob"))
    assert inside("catalog", "list", env={"KINPRINT_CATALOG": address}).code == 3
    assert set(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "model", [LONG, f"./{LONG}", f"/{LONG}/x", f"o/{LONG}", "~nobody-of-this-name/x", f"{LONG}.kfp"]
)
def test_a_name_that_no_file_can_have_is_refused_like_any_other(inside, known, model):
    for command in (
        ["catalog", "add"],
        ["inspect"],
        ["fingerprint", "-o", "x.kfp"],
        ["compare", BASE],
        ["tree", BASE, OTHER],
    ):
        if model.endswith(".kfp") and command[0] != "catalog":
            continue
        done = inside(*command, model)
        assert done.code == 3, (command, done.err)
        assert done.err.startswith(("error: ", "no such file"))
    assert inside("catalog", "list", "--catalog", model).code == 3
    assert inside("catalog", "import", model, *known).code == 3


def test_such_a_name_in_a_list_stops_nobody(inside, known, monkeypatch, tmp_path):
    (tmp_path / "list").write_text(f"{LONG}\n{BASE}\n", encoding="utf-8")
    with (tmp_path / "list").open(encoding="utf-8") as stream:
        monkeypatch.setattr("sys.stdin", stream)
        done = inside("catalog", "add", "-", *known, "--format", "json")
    assert done.code == 3
    told = json.loads(done.out)
    assert [item["name"] for item in told["failed"]] == [LONG]
    assert [item["name"] for item in told["added"]] == ["base"]
    assert inside("search", LONG, *known).code == 3


def test_a_listing_that_fails_stops_no_other_model(inside, known, demo_hub):
    env = {"HF_ENDPOINT": demo_hub.endpoint}
    asked = ["catalog", "add", BASE, "--org", "nobody", "--org", "demo", *known, "--format", "json"]
    done = inside(*asked, env=env)
    assert done.code == 3
    told = json.loads(done.out)
    assert [item["name"] for item in told["added"]] == ["base", "demo/base", "demo/finetune"]
    assert {item["name"].partition("@")[0] for item in told["failed"]} == {"nobody", "demo/gated"}
    assert "nobody" not in noted(inside, known)
    alone = inside("catalog", "add", "--org", "nobody", "--catalog", known[1] + "2", env=env)
    assert alone.code == 3
    assert "lists no models of nobody" in alone.err
    assert not Path(known[1] + "2").exists()


def test_what_could_not_be_added_is_noted_until_it_is(inside, known, demo_hub, demo, tmp_path):
    env = {"HF_ENDPOINT": demo_hub.endpoint}
    bad = tmp_path / "mine"
    shutil.copytree(BASE, bad)
    whole = (bad / "model.safetensors").read_bytes()
    (bad / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    commit = "0" * 40
    done = inside("catalog", "add", bad, "demo/gated", f"demo/base@{commit}", "demo/none", BASE, *known, env=env)
    assert done.code == 6
    found = noted(inside, known)
    assert {name: (revision, error.partition(":")[0]) for name, (revision, error) in found.items()} == {
        "mine": (None, "FormatError"),
        "demo/gated": (None, "AccessDenied"),
        "demo/base": (commit, "NotFound"),
        "demo/none": (None, "NotFound"),
    }
    (bad / "model.safetensors").write_bytes(whole)
    demo_hub.add_repo("demo/none", demo / "finetune")
    assert inside("catalog", "add", bad, *known, env=env).code == 0
    assert inside("catalog", "add", "demo/none", *known, env=env).code == 0
    assert set(noted(inside, known)) == {"demo/gated", "demo/base"}
    said = inside("catalog", "list", "--failures", "--most", "1", *known).out
    assert ("2 models" in said, "and 1 more" in said, "demo/gated" in said) == (True, True, False)


def test_one_model_that_fails_alone_is_noted_where_there_is_a_catalog(inside, filled, demo_hub):
    env = {"HF_ENDPOINT": demo_hub.endpoint}
    assert inside("catalog", "add", "demo/gated", *filled, env=env).code == 4
    assert noted(inside, filled)["demo/gated"][1].startswith("AccessDenied: ")


def test_what_is_no_fault_of_the_model_is_not_noted(inside, filled, demo_hub):
    env = {"HF_ENDPOINT": demo_hub.endpoint}
    assert inside("catalog", "add", "demo/base", "--offline", *filled, env=env).code == 5
    assert inside("catalog", "add", BASE, "--name", "", *filled).code == 2
    assert inside("catalog", "add", BASE, "--file", "none.safetensors", *filled).code == 2
    assert inside("catalog", "add", BASE, *filled, "--name", "mine").code == 0
    assert inside("catalog", "add", OTHER, *filled, "--name", "mine").code == 2
    assert inside("catalog", "add", "", *filled).code == 3
    assert noted(inside, filled) == {}


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["catalog", "remove", "x"], 3),
        (["catalog", "index"], 3),
        (["catalog", "reindex"], 3),
        (["catalog", "import", "missing"], 3),
        (["catalog", "import", "."], 2),
        (["catalog", "import", "damaged"], 6),
        (["catalog", "import", "whole", "--digest", "0" * 64], 6),
        (["catalog", "add", "./nowhere"], 3),
        (["catalog", "add", "./nowhere", "./neither"], 3),
        (["catalog", "add", BASE, "--name", ""], 2),
    ],
)
def test_a_command_that_fails_makes_no_catalog(inside, filled, tmp_path, monkeypatch, command, code):
    monkeypatch.chdir(tmp_path)
    assert inside("catalog", "export", "whole", *filled).code == 0
    (tmp_path / "damaged").write_bytes((tmp_path / "whole").read_bytes()[:-9])
    done = inside(*command, "--catalog", "made/new.db")
    assert done.code == code
    assert not (tmp_path / "made").exists()


def test_an_import_makes_a_catalog(inside, filled, tmp_path):
    assert inside("catalog", "export", tmp_path / "whole", *filled).code == 0
    assert inside("catalog", "import", tmp_path / "whole", "--catalog", tmp_path / "made" / "new.db").code == 0
    assert names_of(tmp_path / "made" / "new.db") == names_of(filled[1])


def test_a_place_that_cannot_have_a_catalog_is_refused_before_a_model_is_read(inside, tmp_path):
    (tmp_path / "file").write_text("text")
    for place in (tmp_path / "file" / "c.db", "/proc/nowhere/c.db", tmp_path / f"{LONG}.db"):
        done = inside("catalog", "add", "./nowhere", BASE, "--catalog", place)
        assert done.code == 8
        assert "cannot write" in done.err


def test_what_is_no_catalog_is_told_for_what_it_is(inside, tmp_path):
    (tmp_path / "text").write_text("some text\n" * 1000)
    for command in (["list"], ["add", BASE], ["check"]):
        done = inside("catalog", *command, "--catalog", tmp_path)
        assert done.code == 3
        assert f"{tmp_path} is a folder; a catalog is one file" in done.err
        assert f"{tmp_path}/catalog.db" in done.err
        done = inside("catalog", *command, "--catalog", tmp_path / "text")
        assert done.code == 6
        assert "text is not a catalog of kinprint" in done.err
        assert "next: name another file with --catalog" in done.err


@pytest.mark.parametrize("name", ["", "  ", "n" * 301, "bell\a"])
def test_a_name_that_no_entry_may_have_is_refused(inside, filled, name, tmp_path):
    assert inside("fingerprint", BASE, "-o", tmp_path / "base.kfp").code == 0
    for model in (BASE, tmp_path / "base.kfp", "owner/name"):
        done = inside("catalog", "add", model, "--name", name, *filled, "--offline")
        assert done.code == 2
        assert "expected 1 to 300 letters that can be shown" in done.err
    assert len(names_of(filled[1])) == 4
    assert inside("catalog", "add", BASE, "--name", "n" * 300, *filled).code == 0


@pytest.fixture
def torn(inside, known):
    """A catalog of which a page is damaged: the second that one fingerprint is stored on."""
    assert inside("catalog", "add", BASE, OTHER, *known).code == 0
    with sqlite3.connect(known[1]) as db:
        (data,) = db.execute("SELECT data FROM fingerprints WHERE id = 1").fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
    db.close()
    with open(known[1], "r+b") as file:
        page = file.read().index(data[len(data) // 2 :][:64]) // size
        file.seek(page * size)
        file.write(b"\x7f\xff\xff\xff")  # where the fingerprint goes on
    return known


def test_the_advice_on_a_damaged_page_can_be_followed(inside, torn, tmp_path):
    done = inside("catalog", "check", *torn, "--format", "json")
    assert done.code == 6
    problems = json.loads(done.out)["problems"]
    assert "base" in [item["name"] for item in problems]
    assert any(item["file"] for item in problems)
    assert not any("\N{REPLACEMENT CHARACTER}" in item["what"] or "***" in item["what"] for item in problems)
    shown = " ".join(inside("catalog", "check", *torn).out.split())
    assert "or export it" in shown
    assert "Remove a damaged entry" not in shown
    assert "새 카탈로그로 가져오고" in " ".join(inside("catalog", "check", *torn, "--lang", "ko").out.split())
    removed = inside("catalog", "remove", "base", *torn)
    assert removed.code == 6
    assert "make a new catalog" in removed.err
    done = inside("catalog", "export", tmp_path / "rest.kcat", *torn, "--format", "json")
    assert done.code == 6
    told = json.loads(done.out)
    assert (told["entries"], [item["name"] for item in told["skipped"]]) == (1, ["base"])
    assert "Left out of the export" in inside("catalog", "export", tmp_path / "rest.kcat", *torn).out
    assert "제외된 항목: 1개" in inside("catalog", "export", tmp_path / "rest.kcat", *torn, "--lang", "ko").out
    new = ["--catalog", str(tmp_path / "new.db")]
    assert inside("catalog", "import", tmp_path / "rest.kcat", *new).code == 0
    assert inside("catalog", "add", BASE, *new).code == 0
    assert names_of(new[1]) == ["unrelated", "base"]
    assert inside("catalog", "check", *new).code == 0


def test_check_of_a_file_that_was_cut_short_does_not_name_itself(inside, filled):
    with open(filled[1], "r+b") as file:
        file.truncate(Path(filled[1]).stat().st_size // 2)
    done = inside("catalog", "check", *filled)
    assert done.code == 6
    assert "catalog check" not in done.err
    assert "make a new catalog" in done.err


@pytest.mark.parametrize(
    "damage",
    ["record = x'7b'", "name = CAST(x'61ff' AS TEXT)", "record = (SELECT record FROM entries WHERE id = 3)"],
)
def test_a_damaged_record_stops_no_other_entry_and_can_be_removed(inside, filled, damage, tmp_path):
    key = make_item(1, vectors={}).entry.key
    with sqlite3.connect(filled[1]) as database:
        database.execute(f"UPDATE entries SET {damage} WHERE id = 2")
    database.close()
    others = [f"maker/model-{seed}" for seed in (0, 2, 3)]
    for command in (
        ["list"],
        ["export", tmp_path / "whole.kcat"],
        ["tree", "--json", tmp_path / "tree.json", "--workers", "1"],
        ["check"],
    ):
        done = inside("catalog", *command, *filled)
        assert done.code == 6, (command, done.err)
        assert key[:12] in done.out + done.err
    assert inside("catalog", "stats", *filled).code == 0
    assert names_of(filled[1]) == others
    assert len(json.loads((tmp_path / "tree.json").read_text())["nodes"]) == 3
    assert inside("search", BASE, *filled, "-q").code == 7  # none of these has vectors
    name = "maker/model-1" if damage.startswith("record") else key
    done = inside("catalog", "show", name, *filled)
    assert done.code == 6
    assert f"next: kinprint catalog remove {key}" in done.err
    assert inside("catalog", "remove", name, *filled).code == 0
    assert inside("catalog", "check", *filled).code == 0
    assert names_of(filled[1]) == others


def test_a_search_for_a_model_whose_entry_is_damaged(inside, known):
    assert inside("catalog", "add", BASE, OTHER, *known).code == 0
    with sqlite3.connect(known[1]) as database:
        database.execute("UPDATE entries SET record = x'7b' WHERE name = 'base'")
    database.close()
    done = inside("search", BASE, *known, "--full")
    assert done.code == 0
    assert "an entry has the name base, and its record cannot be read" in done.out.replace("\n", " ")


def test_names_with_bytes_that_are_no_text(inside, known, tmp_path, monkeypatch):
    """Systems hand over such bytes as lone surrogates, which neither JSON nor a database takes."""
    monkeypatch.chdir(tmp_path)
    odd = "a\udcff"
    shutil.copytree(BASE, tmp_path / "folder" / odd)
    shutil.copytree(OTHER, tmp_path / "folder" / "whole")
    one, place = f"folder/{odd}", f"{odd}.db"
    assert inside("catalog", "add", one, "--catalog", place, "--format", "json").code == 0
    (tmp_path / "list").write_bytes(b"a\xff\n")
    with (tmp_path / "list").open(errors="surrogateescape") as stream:
        monkeypatch.setattr("sys.stdin", stream)
        assert inside("scan", "-", *known, "--workers", "1").code == 3
    done = inside("scan", "folder", odd, *known, "--workers", "1", "--format", "json")
    told = json.loads(done.out)
    assert (done.code, told["added"], [item["name"] for item in told["failed"]]) == (3, 1, ["folder/a�", "a�"])
    assert set(noted(inside, known)) == {"folder/a�", "a�"}
    for command in (["show", odd], ["remove", odd], ["remove", f"x@{odd}"]):
        assert inside("catalog", *command, *known).code == 3
    assert inside("catalog", "add", odd, one, *known, "--format", "json").code == 3
    assert inside("catalog", "list", "--contains", odd, *known).code == 0
    exported = inside("catalog", "export", f"{odd}.kcat", "--catalog", place, "--format", "json")
    assert json.loads(exported.out)["file"] == "a�.kcat"
    assert inside("catalog", "import", f"{odd}.kcat", *known, "--format", "json").code == 0
    assert inside("catalog", "stats", "--catalog", place, "--format", "json").code == 0
    assert inside("catalog", "tree", "--catalog", place, "--json", "t.json", "--workers", "1").code == 0
    found = inside("search", one, *known, "--format", "json", "--html", "x.html", "--verify", "1", "--local", "folder")
    assert found.code == 0
    assert json.loads(found.out)["query"]["reference"] == "folder/a�"
