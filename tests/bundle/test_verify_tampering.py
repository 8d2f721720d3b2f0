"""Every way to change a bundle is found out and named, also if all digests are made to fit."""

import base64
import shutil
import struct
import zipfile
from functools import partial
from pathlib import Path

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kinprint import bundle
from kinprint.bundle.container import open_container
from kinprint.errors import FormatError, SchemaError
from kinprint.results.context import LayerGrid
from kinprint.results.plain_json import build
from kinprint.results.verification import FAILED, IN_PART, NOT_CHECKED, VERIFIED

verify_bundle = partial(bundle.verify_bundle, allow_local=True)  # the models lie outside the current folder


def changed_json(name, change):
    def apply(members):
        data = orjson.loads(members[name])
        change(data)
        members[name] = orjson.dumps(data, option=orjson.OPT_INDENT_2)

    return apply


def edited_line(number, **changes):
    def apply(members):
        lines = [orjson.loads(line) for line in members["ranges.jsonl"].splitlines()]
        lines[number] |= changes
        members["ranges.jsonl"] = b"".join(orjson.dumps(line) + b"\n" for line in lines)

    return apply


@pytest.mark.parametrize("offline", [True, False])
def test_an_untouched_bundle(made, offline):
    found = verify_bundle(made.full, offline=offline)
    assert (found.outcome, found.exit_code, found.problems, found.unchecked) == (VERIFIED, 0, (), ())
    assert [check.state for check in found.checks] == ["ok"] * (4 if offline else 5)
    assert found.figures == found.exact > 100
    assert found.other_values > 100
    assert ("was not checked" in found.sentence) == offline
    assert orjson.loads(found.to_json())["outcome"] == "verified"


def test_no_bytes_and_offline(made):
    found = verify_bundle(made.lean, offline=True)
    assert (found.outcome, found.exit_code) == (NOT_CHECKED, 7)
    assert found.checks[0].state == "ok"
    assert "holds no bytes" in found.sentence


def test_a_repacked_bundle_is_the_same(made, forged):
    assert verify_bundle(forged(made.full, lambda members: None, seal=False), offline=True).outcome == VERIFIED


def test_one_enclosed_byte(made, forged):
    def change(members):
        data = bytearray(members["bytes/0001.bin"])
        data[-1] ^= 1
        members["bytes/0001.bin"] = bytes(data)

    found = verify_bundle(forged(made.full, change), offline=True)
    assert (found.outcome, found.exit_code) == (FAILED, 9)
    assert [problem.kind for problem in found.problems] == ["range"]
    assert "a: model.safetensors, bytes " in found.problems[0].where
    assert found.checks[-1].said == "not computed anew: the bytes are not those that were recorded"
    unsealed = verify_bundle(forged(made.full, change, seal=False), offline=True)
    assert (unsealed.problems[0].kind, unsealed.problems[0].where) == ("member", "bytes/0001.bin")
    assert unsealed.problems[-1].kind == "range"


def test_another_digest_of_a_range(made, forged):
    found = verify_bundle(forged(made.full, edited_line(2, sha256="0" * 64)), offline=True)
    assert found.outcome == FAILED
    ranges = [item for item in found.problems if item.kind == "range"]
    assert [item.recorded for item in ranges] == ["sha256 " + "0" * 64]
    others = {item.where for item in found.problems if item.kind != "read"}
    assert others - {"README.txt"} == {ranges[0].where}  # which may quote the digest
    assert len([item for item in found.problems if item.kind == "read"]) == 1  # the report's digest of all ranges


def test_a_range_left_out(made, forged):
    """The bytes that are left do not fill the member; and if they do, the comparison asks for more than there is."""

    def change(members):
        members["ranges.jsonl"] = b"".join(members["ranges.jsonl"].splitlines(keepends=True)[:-1])

    found = verify_bundle(forged(made.full, change), offline=True)
    assert found.outcome == FAILED
    assert "b: model.safetensors" in found.problems[0].where
    found = verify_bundle(forged(made.lean, change))
    assert found.outcome == FAILED
    assert any(problem.kind == "read" for problem in found.problems)


def test_a_sentence_that_its_data_do_not_say_is_refused(made, forged):
    edited = changed_json("report.json", lambda report: report["verdict"].update(sentence="Nothing to see here."))
    with pytest.raises(FormatError, match=r"Nothing to see here.* disagree"):
        verify_bundle(forged(made.full, edited), offline=True)


def with_z(grid, number):
    """Change one number of a packed grid: layer 0 against layer 1."""
    raw = bytearray(base64.b64decode(grid["cells"]))
    struct.pack_into("<i", raw, 4 * 4 + 3 * 4, round(number * 1000))
    grid["cells"] = base64.b64encode(raw).decode()


def test_grids_from_before_they_were_packed_agree_number_by_number(made, forged):
    def change(report):
        for grid in report["grids"]:
            grid |= build(LayerGrid, grid).grids()
            del grid["cells"]

    found = verify_bundle(forged(made.full, changed_json("report.json", change)), offline=True)
    assert (found.outcome, found.close) == (VERIFIED, 0)


@pytest.mark.parametrize(
    ("where", "change"),
    [
        (
            "verdict.sentence",
            lambda report: report["verdict"].update(sentence="Nothing to see here.", sentence_data=None),
        ),
        ("verdict.class", lambda report: report["verdict"].update({"class": "no_evidence"})),
        ("verdict.log10_p", lambda report: report["verdict"].update(log10_p=report["verdict"]["log10_p"] * 1.001)),
        ("comparisons[3].measurements[1].value", lambda r: r["comparisons"][3]["measurements"][1].update(value=0.0)),
        pytest.param(
            "bytes_read", lambda report: report.update(bytes_read=report["bytes_read"] + 1), marks=pytest.mark.slow
        ),
        pytest.param("a.location", lambda report: report["a"].update(location="elsewhere"), marks=pytest.mark.slow),
        ("summary", lambda report: report["settings"].update(roles=["input_norm"])),
        pytest.param("evidence.controls", lambda report: report["evidence"]["controls"].pop(), marks=pytest.mark.slow),
        ("remark", lambda report: report.update(remark="added by hand")),
        ("grids[0].z[0][1]", lambda report: with_z(report["grids"][0], 9.5)),
        ("grids[0].note", lambda report: report["grids"][0].update(note="added by hand")),
    ],
)
def test_an_edited_report_with_all_digests_made_to_fit(made, forged, where, change):
    found = verify_bundle(forged(made.full, changed_json("report.json", change)), offline=True)
    assert (found.outcome, found.exit_code) == (FAILED, 9)
    assert all(problem.kind == "field" for problem in found.problems)
    assert any(problem.where.startswith(where) for problem in found.problems)
    assert found.problems_in_all == found.differ + found.other_differ


def test_a_figure_changed_by_less_than_rounding_is_still_shown(made, forged):
    def change(report):
        report["verdict"]["log10_p"] *= 1 + 1e-12

    found = verify_bundle(forged(made.full, changed_json("report.json", change)), offline=True)
    assert found.outcome == VERIFIED
    assert found.close == 1
    assert found.close_figures[0].where == "verdict.log10_p"
    assert "within rounding" in found.sentence


def test_another_processor_widens_the_tolerance_and_is_said(made, forged):
    def change(members):
        changed_json("bundle.json", lambda data: data["arithmetic"].update(machine="abacus"))(members)
        changed_json(
            "report.json", lambda data: data["verdict"].update(log10_p=data["verdict"]["log10_p"] * 1.0000001)
        )(members)

    found = verify_bundle(forged(made.full, change), offline=True)
    assert found.outcome == VERIFIED
    assert found.versions == ("another processor",)
    assert found.tolerance == 1e-6
    assert found.close == 1


@pytest.mark.slow
def test_the_run_may_differ(made, forged):
    change = changed_json("report.json", lambda report: report["run"].update(elapsed_s=1e6, started="yesterday"))
    assert verify_bundle(forged(made.full, change), offline=True).outcome == VERIFIED


@pytest.mark.parametrize(
    "field",
    [
        "software",
        "members",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("arithmetic", "evidence", "digest", "report_schema_version", "may_differ")
        ),
    ],
)
def test_a_changed_manifest(made, forged, field):
    def change(members):
        data = orjson.loads(members["bundle.json"])
        data[field] = {
            "software": [{"name": "numpy", "version": "0.1"}],
            "arithmetic": {"machine": "abacus", "simd": []},
            "report_schema_version": 7,
            "may_differ": ["run", "verdict"],
            "members": data["members"][:-1],
        }.get(field, "f" * 64)
        members["bundle.json"] = orjson.dumps(data)

    found = verify_bundle(forged(made.full, change, seal=False), offline=True)
    assert found.outcome == FAILED
    assert found.problems[0].kind in ("manifest", "member")


def test_swapped_members(made, forged):
    def change(members):
        one, two = "bytes/0001.bin", "bytes/0003.bin"
        members[one], members[two] = members[two], members[one]

    found = verify_bundle(forged(made.full, change), offline=True)
    assert found.outcome == FAILED
    assert any("a: model.safetensors" in problem.where for problem in found.problems)


@pytest.mark.slow
def test_another_listing_or_size_changes_the_report(made, forged):
    def change(data):
        for file in data["record"]["sources"][0]["files"]:
            if file["name"] == "model.safetensors":
                file["size"] += 4

    found = verify_bundle(forged(made.full, changed_json("sources.json", change)), offline=True)
    assert found.outcome == FAILED


# -- sources -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def own(small_model, bundler, tmp_path):
    """Models of this test's own, which it may change."""
    a, b = small_model(tmp_path / "a", 1), small_model(tmp_path / "b", 1, 0.02)
    bundler(tmp_path / "full.zip", a, b)
    bundler(tmp_path / "lean.zip", a, b, enclose=False)
    return tmp_path


def spoil(path: Path, at: int = -5) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)


def test_a_source_that_changed(own):
    spoil(own / "b" / "model.safetensors")
    for name in ("lean.zip", "full.zip"):
        found = verify_bundle(own / name)
        assert (found.outcome, found.exit_code) == (FAILED, 9)
        assert found.problems[0].kind == "range"
        assert "b: model.safetensors, bytes" in found.problems[0].where
    assert verify_bundle(own / "full.zip", offline=True).outcome == VERIFIED


@pytest.mark.slow
def test_a_source_of_another_size(own):
    with (own / "a" / "model.safetensors").open("ab") as file:
        file.write(b"more")
    config = own / "b" / "config.json"
    config.write_bytes(config.read_bytes() + b" ")
    found = verify_bundle(own / "lean.zip")
    assert [problem.kind for problem in found.problems] == ["source", "source"]
    assert found.outcome == FAILED


def test_sources_that_are_gone(own):
    shutil.rmtree(own / "a")
    shutil.rmtree(own / "b")
    found = verify_bundle(own / "lean.zip")
    assert (found.outcome, found.exit_code) == (NOT_CHECKED, 5)
    assert len(found.unchecked) == 2
    assert "there is no folder" in found.unchecked[0].reason
    found = verify_bundle(own / "full.zip")
    assert (found.outcome, found.exit_code) == (IN_PART, 5)
    assert found.figures == found.exact > 100
    assert verify_bundle(own / "full.zip", offline=True).exit_code == 0


def test_a_file_that_is_gone(own):
    (own / "b" / "model.safetensors").unlink()
    found = verify_bundle(own / "full.zip")
    assert (found.outcome, [item.found for item in found.problems]) == (FAILED, ["1 files: see model.safetensors"])


def test_offline_in_another_folder(own, tmp_path_factory, monkeypatch):
    there = tmp_path_factory.mktemp("elsewhere")
    shutil.move(own / "full.zip", there / "full.zip")
    shutil.rmtree(own / "a")
    shutil.rmtree(own / "b")
    monkeypatch.chdir(there)
    assert verify_bundle(Path("full.zip"), offline=True).outcome == VERIFIED
    assert [item.name for item in there.iterdir()] == ["full.zip"]


# -- any byte -----------------------------------------------------------------------------------------------------------


def parsed(path: Path) -> dict[str, bytes] | None:
    try:
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    except NotImplementedError:  # the field that says which version it takes to read the archive: ours does not ask
        with open_container(path) as container:
            return {name: container.read(name) for name in container.members}


def flip(made, tmp_path_factory, at: int, bit: int) -> None:
    raw = bytearray(made.full.read_bytes())
    at %= len(raw)
    raw[at] ^= 1 << bit
    target = tmp_path_factory.mktemp("flip") / "x.zip"
    target.write_bytes(raw)
    try:
        found = verify_bundle(target, offline=True)
    except (FormatError, SchemaError):  # anything else would be a crash
        return
    if found.outcome == VERIFIED:
        assert parsed(target) == parsed(made.full)


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(at=st.integers(0, 1 << 30), bit=st.integers(0, 7))
def test_any_flipped_bit(made, tmp_path_factory, at, bit):
    flip(made, tmp_path_factory, at, bit)


@pytest.mark.nightly
@settings(max_examples=600, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(at=st.integers(0, 1 << 30), bit=st.integers(0, 7))
def test_any_flipped_bit_widely(made, tmp_path_factory, at, bit):
    flip(made, tmp_path_factory, at, bit)


@pytest.mark.slow
def test_every_bit_of_the_directory(made, tmp_path_factory):
    """Where a flip leaves an archive that can still be read: headers, names, sizes, the end record."""
    size = made.full.stat().st_size
    with zipfile.ZipFile(made.full) as archive:
        start = archive.start_dir
    for at in range(start, size, 7):
        flip(made, tmp_path_factory, at, at % 8)
