"""Archives that are no bundles, or mean harm: refused with a message, and nothing is written anywhere."""

import os
import zipfile
import zlib
from functools import partial

import orjson
import pytest

from kinprint import bundle
from kinprint.errors import FormatError, KinprintError, NotFound, SchemaError, SourceError

verify_bundle = partial(bundle.verify_bundle, allow_local=True)  # the models lie outside the current folder


def refused(path, match, kind=FormatError, **more):
    with pytest.raises(kind, match=match) as caught:
        verify_bundle(path, offline=True, **more)
    assert caught.value.hint or kind in (NotFound, SourceError)
    return caught.value


def test_truncated_at_many_lengths(made, tmp_path):
    raw = made.full.read_bytes()
    target = tmp_path / "cut.zip"
    for length in [*range(0, 60, 7), *range(60, len(raw), len(raw) // 40), len(raw) - 1]:
        target.write_bytes(raw[:length])
        assert refused(target, "no evidence bundle").exit_code == 6


def test_bytes_after_the_end(made, tmp_path):
    (tmp_path / "x.zip").write_bytes(made.full.read_bytes() + b"\0")
    refused(tmp_path / "x.zip", "no evidence bundle")


def test_no_such_file_and_no_file(tmp_path):
    assert refused(tmp_path / "none.zip", "no such file", NotFound).exit_code == 3
    refused(tmp_path, "cannot be opened|not a regular file", SourceError)


@pytest.mark.parametrize(("version", "hint"), [(2, "upgrade kinprint"), (0, "version of kinprint that wrote it")])
def test_another_schema(made, forged, version, hint):
    def change(members):
        members["bundle.json"] = members["bundle.json"].replace(
            b'"schema_version": 1', b'"schema_version": %d' % version, 1
        )

    error = refused(forged(made.full, change, seal=False), f"version {version}; this kinprint", SchemaError)
    assert hint in error.hint
    assert error.exit_code == 6


def test_a_report_of_another_schema(made, forged):
    def change(members):
        members["report.json"] = members["report.json"].replace(b'"schema_version": 2', b'"schema_version": 9', 1)

    refused(forged(made.full, change, seal=False), "version 9", SchemaError)


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "bytes\\0000.bin", "bytes/../../x", "C:evil", "notes.txt"])
def test_names_that_do_not_belong(made, forged, name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    refused(forged(made.full, lambda members: members.update({name: b"x"})), "does not belong")
    assert [item.name for item in tmp_path.iterdir()] == ["forged.zip"]


def test_names_of_files_that_lead_outside(made, forged):
    def change(members):
        members["sources.json"] = members["sources.json"].replace(b'"config.json"', b'"../config.json"')
        members["ranges.jsonl"] = members["ranges.jsonl"].replace(b'"config.json"', b'"../config.json"')

    refused(forged(made.full, change), "leads outside")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_of_one_name(made, tmp_path):
    target = tmp_path / "x.zip"
    target.write_bytes(made.full.read_bytes())
    with zipfile.ZipFile(target, "a") as archive:
        archive.writestr("report.json", b"{}")
    refused(target, "two members 'report.json'")


def test_a_missing_member(made, forged):
    refused(forged(made.full, lambda members: members.pop("ranges.jsonl"), seal=False), "has no ranges.jsonl")


def test_a_missing_member_of_bytes(made, forged):
    found = verify_bundle(forged(made.full, lambda members: members.pop("bytes/0001.bin")), offline=True)
    assert found.outcome == "not_checked"
    assert found.unchecked[0].reason == "its bytes are not in the bundle"


def test_a_bomb(made, forged):
    error = refused(
        forged(made.full, lambda members: members.update({"README.txt": b" " * 900_000})), "shrinks so much"
    )
    assert error.exit_code == 6
    refused(
        forged(made.full, lambda members: members.update({"README.txt": os.urandom(1 << 20) * 2})), "at most 1048576"
    )


def test_larger_than_allowed(made):
    error = refused(made.full, "when unpacked, more than the 1.0 kB allowed", max_bytes=1000)
    assert "--max-size" in error.hint


def test_a_size_that_lies(made, tmp_path):
    """The directory says less than what comes out."""
    raw = bytearray(made.full.read_bytes())
    with zipfile.ZipFile(made.full) as archive:
        size = archive.getinfo("report.json").file_size
        start = archive.start_dir
    at = raw.index(size.to_bytes(4, "little"), start)
    raw[at : at + 4] = (size - 1).to_bytes(4, "little")
    (tmp_path / "x.zip").write_bytes(raw)
    refused(tmp_path / "x.zip", "report.json is damaged")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_packing(made, tmp_path, method):
    with zipfile.ZipFile(made.full) as old, zipfile.ZipFile(tmp_path / "x.zip", "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name), method if name == "README.txt" else zipfile.ZIP_STORED)
    refused(tmp_path / "x.zip", "packed by method")


def test_enclosed_bytes_must_lie_open(made, tmp_path):
    with zipfile.ZipFile(made.full) as old, zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    refused(tmp_path / "x.zip", "packed by method 8")


def test_encrypted(made, tmp_path):
    raw = bytearray(made.full.read_bytes())
    with zipfile.ZipFile(made.full) as archive:
        start = archive.start_dir
    raw[start + 8] |= 1
    (tmp_path / "x.zip").write_bytes(raw)
    refused(tmp_path / "x.zip", "encrypted")


def test_a_link_instead_of_a_member(made, forged, tmp_path):
    """What would be a link once unpacked holds the path it leads to: no report, and nothing follows it."""
    path = forged(made.full, lambda members: members.update({"report.json": b"/etc/passwd"}), seal=False)
    refused(path, "report.json is not valid JSON")


@pytest.mark.parametrize(
    ("name", "data", "match"),
    [
        ("bundle.json", b"{", "not valid JSON"),
        ("bundle.json", b"[]", "schema"),
        ("bundle.json", b'{"schema":"kinprint.bundle","schema_version":1}', "does not fit"),
        ("sources.json", b"[" * 5000, "opening brackets"),
        ("sources.json", b"{}", "does not fit"),
        ("ranges.jsonl", b"{}\n", "does not fit"),
        ("ranges.jsonl", b'{"source":0,"file":"x","start":0,"end":1,"sha256":"00"}\n', "no range of a file"),
        (
            "ranges.jsonl",
            b'{"source":0,"file":"config.json","start":5,"end":1,"sha256":"' + b"0" * 64 + b'"}\n',
            "no range",
        ),
        (
            "ranges.jsonl",
            b'{"source":-1,"file":"config.json","start":0,"end":1,"sha256":"' + b"0" * 64 + b'"}\n',
            "no range",
        ),
        ("report.json", b'{"schema":"kinprint.report"}', "cannot read a report"),
    ],
)
def test_members_that_are_not_what_they_should_be(made, forged, name, data, match):
    refused(
        forged(made.full, lambda members: members.update({name: data}), seal=False), match, (FormatError, SchemaError)
    )


@pytest.mark.parametrize("field", ["rows", "seed", "experts", "budget_bytes"])
def test_settings_that_make_no_sense(made, forged, field):
    def change(members):
        data = orjson.loads(members["report.json"])
        data["settings"][field] = -1
        members["report.json"] = orjson.dumps(data)

    refused(forged(made.full, change), f"settings: {field} -1: expected . or more")


def widened(by):
    def change(members):
        lines = [orjson.loads(line) for line in members["ranges.jsonl"].splitlines()]
        lines[-1] |= {"start": by, "end": by + 1000}
        members["ranges.jsonl"] = b"".join(orjson.dumps(line) + b"\n" for line in lines)

    return change


@pytest.mark.parametrize("by", [1 << 20, 1 << 40, 1 << 61])
def test_ranges_beyond_the_end_of_a_file(made, forged, by):
    """Named, and nothing is allocated or planned that is as large as a stranger says."""
    for source in (made.full, made.lean):
        found = verify_bundle(forged(source, widened(by)))
        assert found.outcome == "failed"
        assert any("b: model.safetensors" in problem.where for problem in found.problems)


def test_a_range_longer_than_any(made, forged):
    def change(members):
        lines = [orjson.loads(line) for line in members["ranges.jsonl"].splitlines()]
        lines[-1]["end"] = 1 << 61
        members["ranges.jsonl"] = b"".join(orjson.dumps(line) + b"\n" for line in lines)

    refused(forged(made.lean, change), "is no range")


def test_more_to_fetch_than_allowed(made):
    refused(made.lean, "were read for it, more than the 70.0 kB", max_bytes=70_000)


def test_a_reference_that_looks_at_this_machine(made, forged):
    """The repeated comparison opens what was recorded, and not what a name means here."""

    def change(members):
        data = orjson.loads(members["report.json"])
        data["a"]["reference"] = str(made.b)
        data["settings"]["controls"] = [os.devnull, str(made.a.parent)]
        members["report.json"] = orjson.dumps(data)

    found = verify_bundle(forged(made.full, change), offline=True)
    assert found.outcome == "failed"
    assert any(problem.kind == "read" and problem.where == str(made.a.parent) for problem in found.problems)


def test_random_bytes_with_a_sound_end(made, tmp_path):
    raw = bytearray(made.full.read_bytes())
    with zipfile.ZipFile(made.full) as archive:
        start = archive.start_dir
    raw[:start] = zlib.compress(os.urandom(16)) * (start // 24) + bytes(start - 24 * (start // 24))
    raw = raw[: len(made.full.read_bytes())]
    (tmp_path / "x.zip").write_bytes(raw)
    with pytest.raises(KinprintError):
        verify_bundle(tmp_path / "x.zip", offline=True)


@pytest.mark.parametrize("depth", [300, 900])
def test_what_is_nested_too_deeply(made, forged, depth):
    deep = b'{"extra": ' + b"[" * depth + b"]" * depth + b","

    def change(members):
        members["report.json"] = members["report.json"].replace(b"{", deep, 1)

    refused(forged(made.full, change, seal=False), "report.json")


def test_a_report_that_says_two_things(made, forged):
    """One reader takes the first, another the last: whoever reads the file itself would see a verdict that was not checked."""

    def change(members):
        members["report.json"] = members["report.json"].replace(b"{", b'{"verdict": {"class": "derived"},', 1)

    refused(forged(made.full, change), "says 'verdict' twice")
