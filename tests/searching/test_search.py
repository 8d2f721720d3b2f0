"""Search: relatives are proven, corrected for every entry; disguised copies are proposed and not accused; strangers are neither."""

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace

import numpy as np
import orjson
import pytest
from click.testing import CliRunner

import kinprint
from kinprint.catalog.adding import fingerprint_model
from kinprint.catalog.entry import key_of
from kinprint.catalog.store import open_catalog
from kinprint.cli.judging import Judging
from kinprint.cli.main import main
from kinprint.cli.search import _open
from kinprint.errors import BadSelection
from kinprint.evidence.rules import LOG10_ALPHA
from kinprint.fingerprints.base import Features
from kinprint.fingerprints.compact.first_look import Side, likeness, worth_testing
from kinprint.fingerprints.compact.planting import planted
from kinprint.fingerprints.compact.proof import prove
from kinprint.fingerprints.file import from_bytes, to_bytes, write_fingerprint
from kinprint.render.content.search import answer_lines, headline, needed
from kinprint.render.forms import make
from kinprint.render.texts.words import Words
from kinprint.results.findings import NO_EVIDENCE
from kinprint.results.search import LOOK_ALIKE, NAMED, RELATED, SAME_KEPT, SearchReport
from kinprint.searching.run import search, search_item
from kinprint.searching.verifying import place_of
from support.catalogs import make_item
from support.places import DEMO_MODELS, FAMILY_MODELS

KNOWN = [
    *(DEMO_MODELS / name for name in ("base", "unrelated", "grown")),
    *(FAMILY_MODELS / name for name in ("indep", "twin")),
]


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    with open_catalog(tmp_path_factory.mktemp("catalog") / "known.db") as made:
        for path in KNOWN:
            made.add(*fingerprint_model(path))
        yield made


@pytest.fixture(scope="module")
def child(catalog):
    return search(FAMILY_MODELS / "lora", catalog)


@pytest.fixture(scope="module")
def stranger(catalog):
    return search(FAMILY_MODELS / "distilled_1", catalog)


def test_relatives_come_first_with_what_agrees(child):
    assert child.class_ == RELATED
    assert [item.name for item in child.relatives] == ["base", "grown"]
    assert not child.look_alikes
    base = child.found[0]
    assert base.log10_p < -140
    assert {"dimension_fixed_points", "gram_fixed_points", "fixed_points"} <= {test.test for test in base.tests}
    assert all(test.log10_p_search <= LOG10_ALPHA for test in base.tests)
    assert base.same is None


def test_p_values_are_corrected_for_every_entry(catalog, child):
    proof = prove(*(from_bytes(raw, "x").features["compact"] for raw in _files(catalog, "lora", "base")))
    assert child.found[0].log10_p == pytest.approx(proof.log10_p + np.log10(catalog.count()))


def _files(catalog, query, known):
    return fingerprint_model(FAMILY_MODELS / query).fingerprint, catalog.fingerprint(catalog.find(known).key)


def test_strangers_are_not_relatives_and_the_power_of_that_is_told(stranger):
    """A student of the base's outputs: not one weight in common."""
    assert stranger.class_ == "no_evidence"
    assert not stranger.found
    assert stranger.entries == 5
    assert stranger.power.correlation <= 0.4
    assert str(stranger.sentence) == "No relative of this model's width among the 5 compared."


def test_a_disguised_copy_is_proposed_and_not_accused(catalog):
    report = search(FAMILY_MODELS / "disguised_tuned", catalog)
    assert report.class_ == "no_evidence"
    assert {item.name for item in report.look_alikes} == {"base", "grown"}
    assert all(item.class_ == LOOK_ALIKE and dict(item.likeness)["tokens"] > 0.95 for item in report.found)
    assert report.sentence == (
        "No relative is proven among the 5 compared. Alike in what no change of order or basis alters, and not proven: 2."
    )


def test_a_rotated_child_is_proven_by_its_neurons(catalog):
    report = search(FAMILY_MODELS / "rotated_tuned", catalog)
    assert {item.name for item in report.relatives} == {"base", "grown"}
    assert {test.test for item in report.relatives for test in item.tests} == {"gram_fixed_points"}


def test_the_model_itself_is_said_to_be_there(catalog, tmp_path):
    """A folder's name says nothing: a copy that has the entry's name must not hide behind it."""
    again = search(DEMO_MODELS / "base", catalog)
    assert [(item.name, item.same) for item in again.relatives] == [("base", SAME_KEPT), ("grown", None)]
    assert "does not tell whether it is the same model" in again.notes[0]
    item = fingerprint_model(DEMO_MODELS / "base", name="another name")
    renamed = search_item("x", item, catalog)
    assert (renamed.found[0].name, renamed.found[0].same) == ("base", SAME_KEPT)


def test_entries_that_cannot_be_compared_are_counted_with_the_reason(catalog, tmp_path):
    query = fingerprint_model(FAMILY_MODELS / "lora")
    with open_catalog(tmp_path / "odd.db") as odd:
        odd.add(*make_item(1, vectors={}))
        odd.add(*make_item(2, vectors=query.vectors))
        report = search_item("x", query, odd)
    told = {str(item.reason): (item.count, item.names) for item in report.not_compared}
    assert told["its fingerprint has no compact part"] == (1, ("maker/model-2",))
    assert [found for reason, found in told.items() if "no part" in reason] == [(1, ("maker/model-1",))]
    assert (report.class_, report.compared, report.power) == ("not_testable", 0, None)
    assert "none of the entries of the catalog (2) could be compared" in report.sentence


def test_an_answer_speaks_of_the_entries_that_were_compared(catalog, command, tmp_path):
    """One entry is damaged and one has no vectors: no relative among the three others, and a gate can ask."""
    with open_catalog(tmp_path / "some.db") as some:
        for path in KNOWN[:4]:
            some.add(*fingerprint_model(path))
        some.add(*make_item(1, vectors={}))
        key = some.find("unrelated").key
        some._db.execute(
            "UPDATE fingerprints SET data = zeroblob(100) WHERE id = (SELECT id FROM entries WHERE key = ?)", (key,)
        )
        report = search(FAMILY_MODELS / "distilled_1", some)
    assert (report.entries, report.compared, report.class_) == (5, 3, "no_evidence")
    assert report.sentence == "No relative of this model's width among the 3 compared."
    assert {item.names for item in report.not_compared} == {("unrelated",), ("maker/model-1",)}
    assert report.findings == ("no_evidence", "not_testable")  # what recall proposed could not be read
    done = command(FAMILY_MODELS / "distilled_1", "--catalog", tmp_path / "some.db", "--fail-on", "not-testable")
    assert done.return_value == 7
    assert "among the 3 compared" in done.stdout
    assert command(FAMILY_MODELS / "distilled_1", "--catalog", tmp_path / "some.db", "--exit-code").return_value == 0


def test_hostile_fingerprints_end_as_reasons(catalog, tmp_path):
    item = fingerprint_model(DEMO_MODELS / "base")
    found = from_bytes(item.fingerprint, "x")
    arrays = {**found.features["compact"].arrays, "gram": np.zeros((3, 1), np.int8)}
    spoilt = to_bytes(replace(found, features={"compact": replace(found.features["compact"], arrays=arrays)}))
    with open_catalog(tmp_path / "hostile.db") as hostile:
        hostile.add(replace(item.entry, key=key_of(spoilt)), spoilt, item.vectors)
        report = search_item("x", fingerprint_model(FAMILY_MODELS / "lora"), hostile)
    assert report.class_ == "not_testable"
    assert "do not fit" in report.not_compared[0].reason


def test_an_empty_catalog_and_a_fingerprint_without_parts(catalog, tmp_path):
    query = fingerprint_model(FAMILY_MODELS / "lora")
    with open_catalog(tmp_path / "empty.db") as empty:
        report = search_item("x", query, empty)
    assert (report.entries, report.class_, report.power) == (0, "not_testable", None)
    assert "the catalog has no entries" in report.sentence
    bare = make_item(7, vectors={})
    assert search_item("x", bare, catalog).class_ == "not_testable"


def test_limits(catalog):
    report = search(FAMILY_MODELS / "lora", catalog, limit=1)
    assert len(report.relatives) == 1
    assert report.not_listed == 1
    with pytest.raises(BadSelection, match="limit 0"):
        search(FAMILY_MODELS / "lora", catalog, limit=0)


def test_a_fingerprint_file_can_be_looked_for(catalog, tmp_path):
    write_fingerprint(tmp_path / "m.kfp", kinprint.make_fingerprint(FAMILY_MODELS / "lora"))
    report = search(tmp_path / "m.kfp", catalog, verify=1)
    assert report.relatives[0].name == "base"
    assert "given as a fingerprint" in report.found[0].verified.sentence
    assert report.found[0].verify == ""


def test_what_a_full_verdict_needs_is_said_where_no_command_is_known(catalog, child, tmp_path):
    again = f"kinprint search --catalog {catalog.place} --verify 2 --local FOLDER {FAMILY_MODELS / 'lora'}"
    assert needed(child, Words("en"), 3) == [again]
    tried = search(FAMILY_MODELS / "lora", catalog, verify=1)
    assert needed(tried, Words("en"), 3) == [again]  # tried in vain is open
    write_fingerprint(tmp_path / "m.kfp", kinprint.make_fingerprint(FAMILY_MODELS / "lora"))
    (said,) = needed(search(tmp_path / "m.kfp", catalog), Words("ko"), 3)
    assert "지문만 주어진 이 모델의 가중치" in said


# -- strangers in great numbers -----------------------------------------------------------------------------------------


def drawn_again(features: Features, seed: int) -> Features:
    """A stranger made alike: every value of a model, with all places drawn anew."""
    return planted(features, 0.0, seed)


def test_p_values_of_strangers_are_uniform_or_conservative(catalog):
    """The exact tests hold whatever the values are: of 24 strangers none is near the threshold, few are below a tenth."""
    features = from_bytes(catalog.fingerprint(catalog.find("base").key), "x").features["compact"]
    ps = [prove(features, drawn_again(features, seed)).log10_p for seed in range(24)]
    assert min(ps) > -3
    assert sum(p <= -1 for p in ps) <= 9  # 2.4 expected if uniform; ten or more have a chance of 10⁻⁴


def test_strangers_are_seldom_worth_testing_and_planted_children_always(catalog):
    features = from_bytes(catalog.fingerprint(catalog.find("base").key), "x").features["compact"]
    own = Side(features, "A")
    assert sum(worth_testing(own, Side(drawn_again(features, seed), "B")) for seed in range(20)) <= 2
    assert all(worth_testing(own, Side(planted(features, 0.6, seed), "B")) for seed in range(4))
    assert likeness(features, features) == pytest.approx({"tokens": 1.0, "sorted": 1.0})


# -- forms -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lang", ["en", "ko"])
@pytest.mark.parametrize("form", ["html", "markdown", "csv", "notebook", "json"])
def test_every_form_names_what_was_found(child, stranger, form, lang):
    made = make(child, form, lang=lang).decode()
    assert "base" in made
    assert "grown" in made
    assert make(child, form, lang=lang).decode() == made
    assert make(stranger, form, lang=lang)


def test_names_of_strangers_are_escaped(child):
    evil = replace(child, found=(replace(child.found[0], name="<script>alert(1)</script>|`x`"),))
    page = make(evil, "html").decode()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "\\|" in make(evil, "markdown").decode()


def test_a_report_is_read_back_as_it_was(child, tmp_path):
    path = child.save(tmp_path / "found.json")
    assert kinprint.load(path) == child
    assert SearchReport.from_json(child.to_json()) == child
    assert orjson.loads(child.to_json())["class"] == "related"


@pytest.fixture
def command(monkeypatch, tmp_path, catalog):
    monkeypatch.setenv("KINPRINT_CACHE", str(tmp_path / "ranges"))

    def run(*arguments):
        known = [] if "--catalog" in arguments else ["--catalog", catalog.place]
        given = ["search", *map(str, arguments), *known, "-q"]
        return CliRunner().invoke(main, given, standalone_mode=False)

    return run


def test_the_command_answers_writes_and_tells_by_its_exit_code(command, tmp_path):
    page, table = tmp_path / "r.html", tmp_path / "r.csv"
    done = command(FAMILY_MODELS / "lora", "--html", page, "--csv", table, "--out", tmp_path / "out", "--exit-code")
    assert done.return_value == 14
    assert "Relatives: 2 of the 5 compared" in done.stdout
    assert page.is_file()
    assert table.read_text().count("\n") == 3
    assert kinprint.load(tmp_path / "out" / "report.json").class_ == "related"
    assert command(FAMILY_MODELS / "distilled_1", "--exit-code").return_value == 0


def test_a_gate_fails_on_a_relative_that_could_not_be_verified(command):
    """The entries of this catalog do not say where their weights are: nobody can rule out that the model derives from one."""
    done = command(FAMILY_MODELS / "lora", "--fail-on", "derived")
    assert done.return_value == 14
    assert "does not say where its weights are" in done.stdout
    assert command(FAMILY_MODELS / "distilled_1", "--fail-on", "derived,related").return_value == 0


def test_a_gate_fails_on_what_looks_alike_and_could_not_be_verified(command):
    """It may be the derivation that was asked for, and is not called related."""
    done = command(FAMILY_MODELS / "disguised_tuned", "--fail-on", "derived")
    assert done.return_value == 18
    assert "failed on not-judged" in done.stderr
    assert command(FAMILY_MODELS / "disguised_tuned", "--fail-on", "related").return_value == 0


def test_weights_of_this_machine_are_found_by_name_in_a_folder(command, tmp_path):
    """A catalog keeps no paths; the folder must hold what was entered, as far as sizes tell."""
    done = command(
        FAMILY_MODELS / "lora", "--local", DEMO_MODELS, "--verify", "2", "--out", tmp_path / "out", "--exit-code"
    )
    assert done.return_value == 11
    report = kinprint.load(tmp_path / "out" / "report.json")
    assert [item.verified.class_ for item in report.found] == ["derived", "derived"]
    assert all(str(DEMO_MODELS) in item.verify for item in report.found)
    (tmp_path / "other" / "grown").mkdir(parents=True)
    shutil.copytree(DEMO_MODELS / "unrelated", tmp_path / "other" / "base")
    with (tmp_path / "other" / "base" / "model.safetensors").open("ab") as file:
        file.write(b"x")
    command(FAMILY_MODELS / "lora", "--local", tmp_path / "other", "--verify", "2", "--out", tmp_path / "out")
    said = [item.verified.sentence for item in kinprint.load(tmp_path / "out" / "report.json").found]
    assert "base is not what was entered: model.safetensors has" in said[0]
    assert "has no model.safetensors" in said[1]


def test_an_entry_does_not_lead_out_of_the_folder(tmp_path):
    (tmp_path / "in").mkdir()
    shutil.copytree(DEMO_MODELS / "base", tmp_path / "base")
    entry = fingerprint_model(DEMO_MODELS / "base", name="base").entry
    assert place_of(entry, tmp_path) == str(tmp_path / "base")
    for name in ("../base", "/etc", "..", "in/../../base", str(tmp_path / "base")):
        assert place_of(replace(entry, name=name), tmp_path / "in") is None


def test_what_weights_confirm_is_the_answer(catalog):
    """A disguised copy is only alike by its fingerprint; compared, it is derived, and the first line says so."""
    report = search(FAMILY_MODELS / "disguised_tuned", catalog, verify=1, local=DEMO_MODELS)
    assert (report.class_, report.found[0].class_, report.found[0].verified.class_) == (RELATED, LOOK_ALIKE, "derived")
    assert report.sentence.startswith(
        "Related by their weights, which were compared, and not by fingerprints alone: 1."
    )
    assert headline(report, Words("en")) == "Relatives: 1 of the 5 compared"
    assert report.findings[:2] == ("derived", "related")


def test_what_weights_disprove_is_no_relative(hub, session_for, tmp_path):
    """An entry whose maker gave it the fingerprint of another model: its weights are compared, and answer."""
    hub.add_repo("owner/base", DEMO_MODELS / "unrelated")
    named = fingerprint_model(DEMO_MODELS / "base", name="owner/base")
    with session_for(hub) as session, open_catalog(tmp_path / "forged.db") as known:
        commit = fingerprint_model("owner/base", session=session).entry.revision
        known.add(*named._replace(entry=replace(named.entry, revision=commit)))
        report = search(DEMO_MODELS / "finetune", known, session=session, verify=1)
    assert (report.class_, report.found[0].class_, report.found[0].verified.class_) == (
        NO_EVIDENCE,
        RELATED,
        NO_EVIDENCE,
    )
    assert report.sentence.startswith(
        "No relative is proven among the 1 compared. Related by their fingerprints, which"
    )
    assert [line.text for line in answer_lines(report, Words("en"))][1] == report.sentence
    assert report.power is not None
    assert "related" not in report.findings
    assert headline(report, Words("en")) == "No relative of this width among the 1 compared"


def test_a_folder_of_the_same_name_and_size_is_not_what_was_entered(tmp_path):
    shutil.copytree(DEMO_MODELS / "unrelated", tmp_path / "base")
    with open_catalog(tmp_path / "one.db") as known:
        known.add(*fingerprint_model(DEMO_MODELS / "base"))
        report = search(DEMO_MODELS / "finetune", known, verify=1, local=tmp_path)
        missing = search(DEMO_MODELS / "finetune", known, verify=1, local=DEMO_MODELS.parent)
    assert report.class_ == RELATED
    assert report.found[0].verified.sentence.endswith("/base is not what was entered: its fingerprint is another")
    assert missing.found[0].verified.sentence == f"not verified: {DEMO_MODELS.parent} holds no base"


def test_copies_do_not_hide_relatives_and_are_not_counted_as_all(tmp_path):
    with open_catalog(tmp_path / "copies.db") as known:
        for number in range(12):
            known.add(*fingerprint_model(DEMO_MODELS / "base", name=f"copy-{number}"))
        known.add(*fingerprint_model(DEMO_MODELS / "finetune"))
        few = search(FAMILY_MODELS / "lora", known)
        every = search(FAMILY_MODELS / "lora", known, limit=20)
    assert "finetune" in {item.name for item in every.found}
    assert len(every.relatives) == 13
    assert headline(every, Words("en")) == "Relatives: 13 of the 13 compared"
    assert (len(few.relatives), few.not_listed) == (10, 3)
    assert headline(few, Words("en")) == "Relatives: at least 10 of the 13 compared"
    assert few.sentence.startswith("Related to this model, of the 13 compared: at least 10; not all were tested.")


def test_p_values_at_their_floor_do_not_order_relatives(catalog, tmp_path):
    """A sibling of which fewer tests can run has the smaller p-value, by a smaller correction."""
    with open_catalog(tmp_path / "more.db") as known:
        for name in ("permuted", "base"):
            known.add(*fingerprint_model(DEMO_MODELS / name))
        found = search(FAMILY_MODELS / "lora", known).found
    assert [item.name for item in found] == ["base", "permuted"]
    assert found[0].log10_p > found[1].log10_p


def test_damaged_vectors_are_not_counted_as_compared(tmp_path):
    path = tmp_path / "damaged.db"
    with open_catalog(path) as known:
        for name in ("base", "unrelated"):
            known.add(*fingerprint_model(DEMO_MODELS / name))
    with closing(sqlite3.connect(path)) as database, database:
        spoilt = (
            "UPDATE vectors SET data = zeroblob(length(data)) WHERE id = (SELECT id FROM entries WHERE name = 'base')"
        )
        database.execute(spoilt)
    with open_catalog(path) as known:
        report = search(FAMILY_MODELS / "lora", known)
    assert (report.class_, report.compared, report.not_compared[0].names) == (NO_EVIDENCE, 1, ("base",))


def test_what_only_looks_alike_was_not_compared(catalog, tmp_path):
    """Of a fingerprint without parts in place nothing can be proven: neither as an entry, nor as what is looked for."""
    made = fingerprint_model(DEMO_MODELS / "base", name="tokens")
    whole = from_bytes(made.fingerprint, "x")
    kept = {name: array for name, array in whole.features["compact"].arrays.items() if name.startswith("tokens")}
    features = replace(whole.features["compact"], arrays=kept)
    raw = to_bytes(replace(whole, features={"compact": features}))
    item = made._replace(
        entry=replace(made.entry, key=key_of(raw)), fingerprint=raw, vectors={"tokens": made.vectors["tokens"]}
    )
    with open_catalog(tmp_path / "tokens.db") as known:
        known.add(*item)
        report = search(FAMILY_MODELS / "indep", known)
    assert (report.class_, report.compared, report.not_compared[0].count) == ("not_testable", 0, 1)
    own = search_item("tokens.kfp", item, catalog)
    assert own.class_ == "not_testable"
    assert "not_testable" in own.findings


def test_cards_name_bases_in_any_capitals(tmp_path):
    with open_catalog(tmp_path / "capitals.db") as known:
        known.add(*fingerprint_model(DEMO_MODELS / "base", name="org/base"))
        child = fingerprint_model(FAMILY_MODELS / "lora")
        child = child._replace(entry=replace(child.entry, declared_bases=("ORG/Base",)))
        assert search_item("lora", child, known).found[0].declared


# -- cards -------------------------------------------------------------------------------------------------------------


def with_card(folder, source, base):
    shutil.copytree(source, folder)
    (folder / "README.md").write_text(f"---\nbase_model: {base}\n---\n" if base else "---\nlicense: mit\n---\n")
    return folder


@pytest.mark.parametrize(
    ("model", "base", "finding", "code"),
    [
        ("unrelated", "owner/base", "declared_not_shown", 16),
        ("finetune", None, "undeclared", 15),
        ("finetune", "owner/base", None, 0),
    ],
)
def test_cards_are_held_against_the_weights(hub, session_for, tmp_path, model, base, finding, code):
    """As compare does, of what was found and of the base that the card names."""
    hub.add_repo("owner/base", with_card(tmp_path / "known", DEMO_MODELS / "base", None))
    suspect = with_card(tmp_path / "suspect", DEMO_MODELS / model, base)
    with session_for(hub) as session, open_catalog(tmp_path / "hub.db") as known:
        known.add(*fingerprint_model("owner/base", session=session))
        report = search(suspect, known, session=session, verify=1)
        unverified = search(suspect, known, session=session)
    cards = {"undeclared", "declared_not_shown", "not_judged"}
    assert cards & set(report.findings) == ({finding} if finding else set())
    assert not cards & set(unverified.findings)
    judging = Judging(("undeclared", "declared_not_shown", "not_judged"), exit_code=False)
    assert judging.code(report.findings) == code
    if model == "unrelated":
        (named,) = unverified.found
        assert (named.class_, named.name, named.declared, named.log10_p) == (NAMED, "owner/base", True, None)
        assert "The card of this model names owner/base" in make(unverified, "markdown").decode()
        assert report.class_ == "no_evidence"
        # without weights nobody knows: a gate for cards fails on what it could not look at
        assert _open(Judging(("declared_not_shown",), exit_code=False), unverified) == {"not_judged": ["owner/base"]}
        assert _open(Judging(("derived",), exit_code=False), unverified) == {}


def test_a_repository_at_a_commit_is_itself(hub, session_for, tmp_path):
    hub.add_repo("owner/base", DEMO_MODELS / "base")
    with session_for(hub) as session, open_catalog(tmp_path / "hub.db") as known:
        known.add(*fingerprint_model("owner/base", session=session))
        report = search("owner/base", known, session=session)
        assert (report.found, report.compared, report.class_) == ((), 0, "not_testable")
        assert "not listed, nor counted" in report.notes[0]


def test_a_saved_search_is_shown_in_other_forms(child, tmp_path):
    saved, page = child.save(tmp_path / "s.json"), tmp_path / "s.html"
    done = CliRunner().invoke(main, ["report", str(saved), "--html", str(page)], standalone_mode=False)
    assert "Relatives: 2 of the 5 compared" in done.stdout
    assert page.read_bytes() == make(child, "html")


def test_full_tables_in_korean(command):
    done = command(FAMILY_MODELS / "lora", "--full", "--lang", "ko")
    assert "정확 검정" in done.stdout
    assert "base" in done.stdout


def test_weights_of_entries_of_the_hub_are_compared_on_request(hub, session_for, tmp_path):
    hub.add_repo("owner/base", DEMO_MODELS / "base")
    with session_for(hub) as session, open_catalog(tmp_path / "hub.db") as known:
        known.add(*fingerprint_model("owner/base", session=session))
        report = search(FAMILY_MODELS / "lora", known, session=session, verify=1)
    found = report.found[0]
    assert (found.class_, found.verified.class_) == (RELATED, "derived")
    assert "derived" in report.findings
    assert f"owner/base@{found.revision}" in found.verify
