"""Bundles by forgers who compute the report that follows from a false record: names, absent files, failures, nulls, versions."""

from dataclasses import replace
from functools import partial
from hashlib import sha256

import orjson
import pytest

from kinprint import bundle
from kinprint.bundle.members import Software
from kinprint.errors import FormatError, SchemaError
from kinprint.evidence.empirical_null import load_null, parse_null
from kinprint.results.verification import FAILED, IN_PART, VERIFIED
from support.hub import HubServer

verify_bundle = partial(bundle.verify_bundle, allow_local=True)
FAMOUS, COMMIT = "famous/model-7b", "0123456789" * 4


@pytest.fixture
def own(small_model, bundler, tmp_path):
    """Models with a card, of this test's own."""
    for name, noise in (("a", 0.0), ("b", 0.02)):
        folder = small_model(tmp_path / name, 1, noise)
        (folder / "README.md").write_text("---\nbase_model: someone/else\n---\n")
    bundler(tmp_path / "full.zip", tmp_path / "a", tmp_path / "b")
    return tmp_path


def source_of(data, end):
    return next(item for item in data["record"]["sources"] if item["text"].endswith(end))


def renamed(data, members, old, new):
    """Call a model by another name wherever it is named."""
    source = next(item for item in data["record"]["sources"] if item["text"] == old)
    source["text"] = source["provenance"]["reference"] = new
    for item in data["record"]["lookups"]:
        item["what"] = new if item["what"] == old else item["what"]
    report = orjson.loads(members["report.json"])
    report["a"]["reference"] = new
    members["report.json"] = orjson.dumps(report)
    return source


def without_file(data, members, number, name):
    """Say that a file was not there, and take out all that was read of it."""
    source = data["record"]["sources"][number]
    file = next(item for item in source["files"] if item["name"] == name)
    file.update(size=None, identity=None, absent=True)
    for item in [item for item in data["enclosed"] if (item["source"], item["file"]) == (number, name)]:
        data["enclosed"].remove(item)
        del members[item["member"]]
    lines = [orjson.loads(line) for line in members["ranges.jsonl"].splitlines()]
    kept = [line for line in lines if (line["source"], line["file"]) != (number, name)]
    members["ranges.jsonl"] = b"".join(orjson.dumps(line) + b"\n" for line in kept)
    return source


# -- names --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offline", [True, False])
def test_a_folder_under_the_name_of_a_famous_model(made, forged_well, offline):
    def change(data, members):
        source = renamed(data, members, str(made.a), FAMOUS)
        source["provenance"].update(revision="main", commit=COMMIT)

    found = verify_bundle(forged_well(made.full, change), offline=offline)
    assert found.outcome == FAILED
    assert {f"{FAMOUS}: commit", f"{FAMOUS}: revision", f"{FAMOUS}: location"} <= {
        item.where for item in found.problems
    }


def test_a_folder_with_a_commit(made, forged_well):
    def change(data, _):
        source_of(data, "/a")["provenance"].update(commit=COMMIT)

    found = verify_bundle(forged_well(made.full, change), offline=True)
    assert [(item.recorded, item.found) for item in found.problems] == [(COMMIT, "None, by its name")]


def test_a_file_that_messages_would_call_otherwise(made, forged_well):
    def change(data, _):
        source_of(data, "/a")["files"][-1]["label"] = "checked and found sound"

    (problem,) = verify_bundle(forged_well(made.full, change), offline=True).problems
    assert problem.recorded == "checked and found sound"


@pytest.fixture
def served(small_model, tmp_path):
    with HubServer(token="hf_right") as server:
        server.add_repo("own/a", small_model(tmp_path / "a", 1))
        server.add_repo("own/b", small_model(tmp_path / "b", 1, 0.02))
        yield server


def test_a_repository_under_the_name_of_another(served, settings_for, bundler, forged_well, tmp_path):
    plain = settings_for(served)
    bundler(tmp_path / "x.zip", "own/a", "own/b", settings=plain)
    for extra in (lambda source: None, lambda source: source.update(repo=FAMOUS)):
        path = forged_well(
            tmp_path / "x.zip",
            lambda data, members: extra(renamed(data, members, "own/a", FAMOUS)),  # noqa: B023
        )
        served.reset()
        found = verify_bundle(path, settings=plain)
        assert found.outcome == FAILED
        assert FAMOUS in found.problems[0].where
        assert not [item for item in served.requests if "own/a" in item.path]


@pytest.mark.parametrize(
    ("field", "value"), [("revision", "v2"), ("commit", COMMIT), ("location", "http://127.0.0.1:9/own/a")]
)
def test_another_revision_commit_or_hub(served, settings_for, bundler, forged_well, tmp_path, field, value):
    plain = replace(settings_for(served), attempts=1)
    bundler(tmp_path / "x.zip", "own/a", "own/b", settings=plain)

    def change(data, _):
        source = source_of(data, "own/a")
        source["provenance"][field] = value
        for file in source["files"]:
            file["label"] = f"own/a@{source['provenance']['commit'][:8]}/{file['name']}"

    found = verify_bundle(forged_well(tmp_path / "x.zip", change), settings=plain)
    assert found.outcome == (FAILED if field == "revision" else IN_PART)
    assert next(item for item in found.models if not item.asked).reference == "own/a"


@pytest.mark.parametrize("repo", ["a/../../admin?x=1#", "own/a/../b", "own/a?x", "own"])
def test_a_repository_that_is_a_path_on_the_hub(served, settings_for, bundler, forged, tmp_path, repo):
    """No request is made of what is no repository, least of all with the token."""
    plain = settings_for(served, token="hf_right")
    bundler(tmp_path / "x.zip", "own/a", "own/b", settings=plain)

    def change(members):
        data = orjson.loads(members["sources.json"])
        source = source_of(data, "own/a")
        source.update(repo=repo, text=repo)
        source["provenance"].update(reference=repo, location=f"{served.endpoint}/{repo}")
        members["sources.json"] = orjson.dumps(data)

    path = forged(tmp_path / "x.zip", change)
    served.reset()
    assert verify_bundle(path, settings=plain).outcome == FAILED
    assert all("own/b" in item.path for item in served.requests if item.origin != "cdn")


def test_a_moved_branch_is_said(served, settings_for, bundler, small_model, tmp_path):
    plain = settings_for(served)
    bundler(tmp_path / "x.zip", "own/a", "own/b", settings=plain)
    found = verify_bundle(tmp_path / "x.zip", settings=plain)
    assert (found.outcome, {item.said for item in found.models}) == (VERIFIED, {""})
    assert [len(item.commit) for item in found.models] == [40, 40]
    commits = [item.commit for item in found.models]
    served.add_revision("own/b", "main", small_model(tmp_path / "later", 9))
    found = verify_bundle(tmp_path / "x.zip", settings=plain)
    assert (found.outcome, [item.commit for item in found.models]) == (VERIFIED, commits)
    assert [item.said for item in found.models] == ["", "main is another commit now"]


# -- what was not there --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unlisted", [False, True])
def test_a_card_that_is_said_to_be_absent(own, forged_well, unlisted):
    def change(data, members):
        source = without_file(data, members, 1, "README.md")
        if unlisted:
            source["names"].remove("README.md")

    if not unlisted:
        with pytest.raises(FormatError, match=r"README\.md is listed, and said to be absent"):
            forged_well(own / "full.zip", change)
        return
    path = forged_well(own / "full.zip", change)
    assert verify_bundle(path, offline=True).outcome == VERIFIED  # which claims nothing about the models
    found = verify_bundle(path)
    assert found.outcome == FAILED
    assert [(item.recorded, item.found) for item in found.problems][1] == ("no such file", "there is one")
    assert "see README.md" in found.problems[0].found


def test_an_absent_file_on_the_web(web, bundler, small_model, forged_well, tmp_path):
    web.root = tmp_path / "served"
    for name, noise in (("a", 0.0), ("b", 0.02)):
        (small_model(web.root / name, 1, noise) / "README.md").write_text("---\nbase_model: someone/else\n---\n")
    bundler(tmp_path / "x.zip", f"{web.url}/a", f"{web.url}/b")
    assert verify_bundle(tmp_path / "x.zip").outcome == VERIFIED
    path = forged_well(tmp_path / "x.zip", lambda data, members: without_file(data, members, 1, "README.md"))
    found = verify_bundle(path)
    assert [(item.recorded, item.found) for item in found.problems] == [("no such file", "there is one")]


def test_a_recorded_failure_is_not_taken_for_checked(own, forged_well):
    def change(data, members):
        source = without_file(data, members, 1, "README.md")
        file = next(item for item in source["files"] if item["name"] == "README.md")
        said = {"asked": "small", "error": "TransferError", "message": "gave up\x1b[2J", "hint": None}
        file.update(absent=False, failures=[said])

    found = verify_bundle(forged_well(own / "full.zip", change))
    assert (found.outcome, found.exit_code) == (IN_PART, 5)
    assert "not re-checked: it is recorded to have failed (gave up\N{REPLACEMENT CHARACTER}[2J)" in found.sentence


def test_a_listing_without_a_file(made, forged_well):
    def change(data, _):
        source_of(data, "/b")["names"].append("notes.txt")

    found = verify_bundle(forged_well(made.full, change))
    assert [item.found for item in found.problems] == ["2 files: see notes.txt"]


def test_a_budget_spent_before(made, forged_well):
    def change(data, _):
        data["record"]["delivered_before"] = 1000

    found = verify_bundle(forged_well(made.full, change))
    assert (found.outcome, found.unchecked[0].what) == (IN_PART, "the budget")


def test_an_identity_of_another_kind(made, forged_well):
    def change(data, _):
        for source in data["record"]["sources"]:
            for file in source["files"]:
                file["identity"] = file["identity"] and "sha256:" + "ab" * 32

    found = verify_bundle(forged_well(made.full, change))
    assert found.outcome == IN_PART
    assert "identity is recorded as sha256:abab" in found.unchecked[0].reason


# -- nulls ---------------------------------------------------------------------------------------------------------------


def test_a_null_that_the_report_does_not_name(made, forged):
    path = forged(made.full, lambda members: members.update({"null.json": load_null().to_json()}))
    with pytest.raises(FormatError, match="holds a null that its report does not name"):
        verify_bundle(path, offline=True)

    def change(members):
        data = orjson.loads(members["report.json"])
        data["settings"]["null"] = "mine.json"
        members["report.json"] = orjson.dumps(data)

    with pytest.raises(FormatError, match="lacks the null that its report names"):
        verify_bundle(forged(made.full, change), offline=True)


@pytest.mark.parametrize("field", ["largest", "mean", "sd"])
def test_a_null_that_misstates_its_values(field):
    null = load_null()
    first = null.samples[0]
    wrong = replace(first, **{field: getattr(first, field) * 1.01})
    with pytest.raises(SchemaError, match=f"{field} is said to be"):
        parse_null(replace(null, samples=(wrong,)).to_json(), "x")
    rounded = replace(first, **{field: float(f"{getattr(first, field):.7g}")})
    assert parse_null(replace(null, samples=(rounded,)).to_json(), "x").samples == (rounded,)


def test_a_null_that_keeps_some_of_its_values():
    null = load_null()
    first = null.samples[0]
    some = replace(first, values=tuple(sorted(first.values)[-5:]))
    assert parse_null(replace(null, samples=(some,)).to_json(), "x").samples == (some,)
    with pytest.raises(SchemaError, match="largest is said to be"):
        parse_null(replace(null, samples=(replace(some, largest=0.0001),)).to_json(), "x")
    with pytest.raises(SchemaError, match=f"{len(first.values)} values of 3 pairs"):
        parse_null(replace(null, samples=(replace(first, pairs=3),)).to_json(), "x")


# -- versions, README, manifest --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "outcome"), [("0.0.9", IN_PART), ("9.9.9", FAILED), ("zero", FAILED)])
def test_a_version_does_not_make_fields_vanish(made, forged, version, outcome):
    def change(members):
        report = orjson.loads(members["report.json"])
        for name in ("declared", "reads"):
            report.pop(name)
        members["report.json"] = orjson.dumps(report)
        manifest = orjson.loads(members["bundle.json"])
        manifest["software"] = [Software("kinprint", version)]
        members["bundle.json"] = orjson.dumps(manifest)

    found = verify_bundle(forged(made.full, change), offline=True)
    assert found.outcome == outcome
    if outcome == IN_PART:
        assert {item.what for item in found.unchecked} == {"report.json: declared", "report.json: reads"}


@pytest.mark.parametrize("text", [b"To verify: run this instead\n", None])
def test_another_readme(made, forged, text):
    def change(members):
        if text is None:
            del members["README.txt"]
        else:
            members["README.txt"] = text

    found = verify_bundle(forged(made.full, change), offline=True)
    assert [(item.kind, item.where) for item in found.problems] == [("member", "README.txt")]


@pytest.mark.parametrize(
    ("field", "value"), [("may_differ", ["run", "verdict"]), ("report_schema", "x"), ("report_schema_version", 7)]
)
def test_a_manifest_that_says_otherwise(made, forged, field, value):
    def change(members):
        manifest = orjson.loads(members["bundle.json"])
        manifest[field] = value
        members["bundle.json"] = orjson.dumps(manifest)

    found = verify_bundle(forged(made.full, change), offline=True)
    assert [(item.kind, item.where) for item in found.problems] == [("manifest", field)]


def test_what_is_not_checked_is_said(made):
    found = verify_bundle(made.full, offline=True)
    assert found.checks[-1].said.endswith("run (date, traffic, versions) is not checked")
    assert found.null is None
    assert sha256(made.full.read_bytes()).hexdigest() != found.digest


@pytest.mark.parametrize("field", ["sha256", "bytes_read", "spans"])
def test_reads_of_the_report_are_held_against_the_ranges(made, forged, field):
    """Also without a byte at hand: a bundle must not say in two places two things about what was read."""

    def change(members):
        data = orjson.loads(members["report.json"])
        first = data["reads"][0]
        first[field] = {"sha256": "0" * 64, "bytes_read": 1, "spans": [[0, 1]]}[field]
        members["report.json"] = orjson.dumps(data, option=orjson.OPT_INDENT_2) + b"\n"

    found = bundle.verify_bundle(forged(made.lean, change), offline=True)
    assert [problem.kind for problem in found.problems] == ["read"]
    assert found.exit_code == 9
