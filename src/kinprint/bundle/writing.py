"""Writing an evidence bundle: the report, what it was made from, and how anyone can check it."""

from __future__ import annotations

import hashlib
import os
import secrets
import shlex
import zipfile
from collections import Counter
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import orjson

from kinprint._util.plain import printable
from kinprint._util.progress import Progress
from kinprint.bundle.manifest import (
    MANIFEST,
    MAY_DIFFER,
    NULL,
    RANGES,
    README,
    REPORT,
    SCHEMA,
    SCHEMA_VERSION,
    SOURCES,
    BundleMember,
    Enclosed,
    Manifest,
    Sources,
    arithmetic,
    evidence_digest,
    range_lines,
    software,
    without_ranges,
)
from kinprint.comparison.pipeline import compare
from kinprint.errors import BadSelection, StorageError
from kinprint.results.options import Options
from kinprint.results.plain_json import write_json
from kinprint.results.report import Report
from kinprint.sources.ledger import FileRecord, Ledger, RangeRead, ReadingRecord, SourceRecord, digest_of
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings

_TIME = (1980, 1, 1, 0, 0, 0)  # the first that the format can hold: a bundle does not depend on when it was written


def make_bundle(
    path: str | Path,
    a: str | Path,
    b: str | Path,
    options: Options | None = None,
    *,
    enclose: bool = False,
    settings: Settings | None = None,
    session: Session | None = None,
    progress: Progress | None = None,
    **chosen: Any,
) -> Report:
    """Compare two models, write an evidence bundle, and return the report.

    Parameters
    ----------
    path
        The file; written whole or not at all.
    a, b, options, settings, session, progress, chosen
        As for `kinprint.compare`.
    enclose
        Put in the bytes that were read, so that the bundle can be checked without the models.
    """
    with Ledger(keep=enclose) as ledger:
        with nullcontext(session) if session else Session(settings) as run, run.recording(ledger):
            report = compare(a, b, options, session=run, progress=progress, **chosen)
        write_bundle(path, report, ledger, enclose=enclose, null=report.settings.null)
    return report


def write_bundle(
    path: str | Path, report: Report, ledger: Ledger, *, enclose: bool = False, null: str | Path | None = None
) -> Manifest:
    """Write a comparison with all that is needed to check it.

    Parameters
    ----------
    path
        The file; written whole or not at all.
    report, ledger
        Of the same comparison.
    enclose
        Put in the bytes themselves, which the ledger must have kept.
    null
        The empirical null that the user gave, if any.

    Raises
    ------
    StorageError
        If it cannot be written.
    BadSelection
        If two models cannot be told apart once what may be secret is left out.
    """
    if report.reads != ledger.summary():
        raise ValueError("the ledger is not of the comparison that the report is of")
    if enclose and not ledger.keeps:
        raise ValueError("the ledger has not kept the bytes")
    path, record = Path(path), ledger.record()
    _refuse_twins(record)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        null_bytes = Path(null).read_bytes() if null is not None else None
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(temporary, "w") as archive:
            manifest = _fill(archive, report, record, ledger if enclose else None, null_bytes)
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise StorageError(
            f"cannot write {path}: {error.strerror or error}", hint="free some space, or give another name"
        ) from error
    return manifest


def _refuse_twins(record: ReadingRecord) -> None:
    counts = Counter((source.text, source.kind, source.revision) for source in record.sources)
    (text, *_), count = counts.most_common(1)[0] if counts else (("",), 0)
    if count > 1:
        raise BadSelection(
            f"two addresses are both {printable(text)} once what may be secret in them is left out, "
            "so that a bundle could not tell them apart",
            hint="fetch one of the two, and give its path",
        )


def _fill(
    archive: zipfile.ZipFile, report: Report, record: ReadingRecord, ledger: Ledger | None, null: bytes | None
) -> Manifest:
    members: list[BundleMember] = []
    enclosed: list[Enclosed] = []
    if ledger is not None:
        for number, source in enumerate(record.sources):
            for file in source.files:
                if file.ranges:
                    name = f"bytes/{len(enclosed):04d}.bin"
                    members.append(_put(archive, name, ledger.contents(number, file.name), packed=False))
                    enclosed.append(Enclosed(number, file.name, name))
    sources = write_json(Sources(without_ranges(record), tuple(enclosed))) + b"\n"
    ranges = b"".join(range_lines(record))
    text = report.to_json() + b"\n"
    contents = {REPORT: text, SOURCES: sources, RANGES: ranges, README: readme(record, bool(enclosed)).encode()}
    if null is not None:
        contents[NULL] = null
    members += [_put(archive, name, [data], packed=True) for name, data in sorted(contents.items())]
    manifest = Manifest(
        schema=SCHEMA,
        schema_version=SCHEMA_VERSION,
        report_schema=report.schema,
        report_schema_version=report.schema_version,
        software=software(),
        arithmetic=arithmetic(),
        may_differ=MAY_DIFFER,
        members=tuple(sorted(members, key=lambda member: member.name)),
        evidence=evidence_digest(text, sources, ranges),
        digest="",
    ).sealed()
    _put(archive, MANIFEST, [manifest.to_json()], packed=True)
    return manifest


def _put(archive: zipfile.ZipFile, name: str, parts: Iterable[bytes], *, packed: bool) -> BundleMember:
    """Write a member; weights hardly shrink, and lie open so that they can be read in place."""
    info = zipfile.ZipInfo(name, _TIME)
    info.compress_type = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
    info.create_system, info.external_attr = 3, 0o100644 << 16
    size, digest = 0, hashlib.sha256()
    with archive.open(info, "w", force_zip64=not packed) as member:
        for part in parts:
            member.write(part)
            digest.update(part)
            size += len(part)
    return BundleMember(name, size, digest.hexdigest())


# -- in plain words --------------------------------------------------------------------------------------------------------

_README = """\
This is an evidence bundle of kinprint: one comparison of two language models, with what is needed to check it.

  report.json    the result: every measurement beside its null, the evidence, and the verdict, with settings and seed
  sources.json   the models: where they are, at which commit, which files they have, and how large these are
  ranges.jsonl   every range of bytes that was read, one on a line, with its SHA-256
  bundle.json    versions of the software, and the SHA-256 of every other file in here
{further}
To check everything, with kinprint:

  kinprint verify FILE             reads all ranges again where they came from, checks every SHA-256, computes every figure anew
{offline}
To check it without kinprint:

  1. The files in here: unpack them, and compare "sha256sum FILE" with bundle.json.
  2. A range: take a line of ranges.jsonl. "source" is the number of the model in sources.json, counted from 0; "start" is
     the first byte and "end" the one after the last.{example}
  3. All ranges of a file, "sha256" under "reads" in report.json: the SHA-256 of one line "START END SHA256" for each of its lines
     in ranges.jsonl, in their order, which is that of the offsets; numbers are decimal, and a line feed ends every
     line.{digest}
  4. "digest" in bundle.json, which stands for the whole bundle: the SHA-256 of bundle.json with "" as its digest, without spaces
     and line ends, fields in the order they have:

       {whole}

     must print it.
  5. "evidence" in bundle.json, which two runs of the same comparison share: the SHA-256 of three SHA-256 written in hexadecimal,
     one after the other without anything between them: of report.json without "run", its keys sorted on every level, without
     spaces and line ends, numbers as they stand there; of sources.json; of ranges.jsonl.

What may differ between two runs of the same comparison is "run" in report.json: time, traffic, versions. Nothing else may.
"""
_FURTHER = "  bytes/         the bytes themselves: of each file all intervals that were read, end to end\n"
_OFFLINE = "  kinprint verify --offline FILE   does the same from the bytes in here, and asks nobody\n"


_LINE = r"""sed -E 's/.*"start":([0-9]+),"end":([0-9]+),"sha256":"([0-9a-f]+)".*/\1 \2 \3/'"""
_WHOLE = (
    'python3 -c \'import hashlib, json; made = json.load(open("bundle.json")); made["digest"] = ""; '
    'print(hashlib.sha256(json.dumps(made, separators=(",", ":"), ensure_ascii=False).encode()).hexdigest())\''
)


def readme(record: ReadingRecord, enclosed: bool) -> str:
    """Return README.txt, which is the same whenever it is written: verification holds it against this."""
    return _README.format(
        further=_FURTHER if enclosed else "",
        offline=_OFFLINE if enclosed else "",
        example=_example(record),
        digest=_digest_example(record),
        whole=_WHOLE,
    )


def _digest_example(record: ReadingRecord) -> str:
    """Return the commands that make the digest of one file's ranges: of the one with most, as it says most."""
    candidates = [
        (len(file.ranges), number, file)
        for number, source in enumerate(record.sources)
        for file in source.files
        if file.ranges and file.name.isprintable()
    ]
    if not candidates:
        return ""
    _, number, file = max(candidates, key=lambda found: found[0])
    start = f'"source":{number},"file":{orjson.dumps(file.name).decode()},'
    return (
        f" For one of {len(file.ranges)} ranges:\n\n"
        f"       grep -F {shlex.quote(start)} ranges.jsonl | {_LINE} | sha256sum\n\n"
        f"     must print {digest_of(file.ranges)}"
    )


def _example(record: ReadingRecord) -> str:
    """Return the commands that check one range: the longest, as it says most."""
    candidates = [
        (item.end - item.start, source, file, item)
        for source in record.sources
        for file in source.files
        for item in file.ranges
        if source.provenance is not None and not source.signed and file.name.isprintable()
    ]
    if not candidates:
        return ""
    _, source, file, item = max(candidates, key=lambda found: found[0])
    return (
        f" For one of {item.end - item.start} bytes:\n\n       {_command(source, file, item)} | sha256sum\n\n"
        f"     must print {item.sha256}"
    )


def _command(source: SourceRecord, file: FileRecord, item: RangeRead) -> str:
    where = source.provenance
    assert where is not None
    if where.kind in ("folder", "file"):
        path = Path(where.location) if where.kind == "folder" else Path(where.location).parent
        return f"tail -c +{item.start + 1} {shlex.quote(str(path / file.name))} | head -c {item.end - item.start}"
    base = where.location.rstrip("/")
    if where.kind == "hub":
        base += f"/resolve/{where.commit}"
    elif where.kind == "url-file":
        base = base.rpartition("/")[0]
    return f"curl -sL -r {item.start}-{item.end - 1} {shlex.quote(f'{base}/{file.name}')}"
