"""Search: relatives are proven, corrected for every entry; disguised copies are proposed and not accused; strangers are neither."""

from dataclasses import replace

import numpy as np
import orjson
import pytest
from click.testing import CliRunner

import kinprint
from kinprint.catalog.adding import fingerprint_model
from kinprint.catalog.entry import key_of
from kinprint.catalog.store import open_catalog
from kinprint.cli.main import main
from kinprint.errors import BadSelection
from kinprint.evidence.verdict import LOG10_ALPHA
from kinprint.fingerprints.base import Features
from kinprint.fingerprints.compact.first_look import Side, likeness, worth_testing
from kinprint.fingerprints.compact.planting import planted
from kinprint.fingerprints.compact.proof import prove
from kinprint.fingerprints.file import from_bytes, to_bytes, write_fingerprint
from kinprint.render.content.search import needed
from kinprint.render.forms import make
from kinprint.render.texts.words import Words
from kinprint.results.search import LOOK_ALIKE, RELATED, SAME_KEPT, SearchReport
from kinprint.searching.run import search, search_item
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
    assert str(stranger.sentence) == "No relative among 5 models."


def test_a_disguised_copy_is_proposed_and_not_accused(catalog):
    report = search(FAMILY_MODELS / "disguised_tuned", catalog)
    assert report.class_ == "no_evidence"
    assert {item.name for item in report.look_alikes} == {"base", "grown"}
    assert all(item.class_ == LOOK_ALIKE and dict(item.likeness)["tokens"] > 0.95 for item in report.found)
    assert "--verify" in report.sentence


def test_a_rotated_child_is_proven_by_its_neurons(catalog):
    report = search(FAMILY_MODELS / "rotated_tuned", catalog)
    assert {item.name for item in report.relatives} == {"base", "grown"}
    assert {test.test for item in report.relatives for test in item.tests} == {"gram_fixed_points"}


def test_the_model_itself_is_said_to_be_there(catalog, tmp_path):
    again = search(DEMO_MODELS / "base", catalog)
    assert [item.name for item in again.relatives] == ["grown"]
    assert "in the catalog" in again.notes[0]
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
    assert [count for reason, (count, _) in told.items() if "no vector" in reason] == [1]
    assert report.class_ == "no_evidence"


def test_hostile_fingerprints_end_as_reasons(catalog, tmp_path):
    item = fingerprint_model(DEMO_MODELS / "base")
    found = from_bytes(item.fingerprint, "x")
    arrays = {**found.features["compact"].arrays, "gram": np.zeros((3, 1), np.int8)}
    spoilt = to_bytes(replace(found, features={"compact": replace(found.features["compact"], arrays=arrays)}))
    with open_catalog(tmp_path / "hostile.db") as hostile:
        hostile.add(replace(item.entry, key=key_of(spoilt)), spoilt, item.vectors)
        report = search_item("x", fingerprint_model(FAMILY_MODELS / "lora"), hostile)
    assert report.class_ == "no_evidence"
    assert "do not fit" in report.not_compared[0].reason


def test_an_empty_catalog_and_a_fingerprint_without_parts(catalog, tmp_path):
    query = fingerprint_model(FAMILY_MODELS / "lora")
    with open_catalog(tmp_path / "empty.db") as empty:
        report = search_item("x", query, empty)
    assert (report.entries, report.class_, report.power) == (0, "no_evidence", None)
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
    assert needed(child, Words("en"), 3)[-1].endswith("(a catalog keeps no paths): base, grown")
    write_fingerprint(tmp_path / "m.kfp", kinprint.make_fingerprint(FAMILY_MODELS / "lora"))
    (said,) = needed(search(tmp_path / "m.kfp", catalog), Words("ko"), 3)
    assert "핑거프린트만 주어진 이 모델의 가중치" in said


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
        given = ["search", *map(str, arguments), "--catalog", catalog.place, "-q"]
        return CliRunner().invoke(main, given, standalone_mode=False)

    return run


def test_the_command_answers_writes_and_tells_by_its_exit_code(command, tmp_path):
    page, table = tmp_path / "r.html", tmp_path / "r.csv"
    done = command(FAMILY_MODELS / "lora", "--html", page, "--csv", table, "--out", tmp_path / "out", "--exit-code")
    assert done.return_value == 14
    assert "Related to 2 of 5 models" in done.stdout
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


def test_a_saved_search_is_shown_in_other_forms(child, tmp_path):
    saved, page = child.save(tmp_path / "s.json"), tmp_path / "s.html"
    done = CliRunner().invoke(main, ["report", str(saved), "--html", str(page)], standalone_mode=False)
    assert "Related to 2 of 5 models" in done.stdout
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
