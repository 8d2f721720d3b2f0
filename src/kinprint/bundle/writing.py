"""Write an evidence bundle: the report, what it was made from, and how anyone can check it."""

import hashlib
import shlex
import zipfile
from collections import Counter
from collections.abc import Iterable
from contextlib import nullcontext
from importlib.resources import files
from pathlib import Path
from typing import Any

import orjson

from kinprint._util.files import replacing
from kinprint._util.plain import printable
from kinprint._util.progress import Progress
from kinprint.bundle import members
from kinprint.bundle.container import open_container
from kinprint.bundle.members import BundleMember, Enclosed, Manifest, Sources
from kinprint.comparison.pipeline import compare
from kinprint.errors import BadSelection, FormatError
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

    The file is written whole or not at all. `enclose` puts in the bytes that were read, so that the bundle can be checked without
    the models; all else is as for `kinprint.compare`.
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

    The file is written whole or not at all, else StorageError. `enclose` puts in the bytes themselves, which the ledger must have
    kept; `null` is the empirical null that the user gave. BadSelection if two models can be told apart by secrets alone, or the
    bundle could not be opened again.
    """
    if report.reads != ledger.summary():
        raise ValueError("the ledger is not of the comparison that the report is of")
    if enclose and not ledger.keeps:
        raise ValueError("the ledger has not kept the bytes")
    record = ledger.record()
    for key, count in Counter(source.key for source in record.sources).items():
        if count > 1:
            said = f"two addresses are both {printable(key[0])} once what may be secret in them is left out"
            said += ", so that a bundle could not tell them apart"
            raise BadSelection(said, hint="fetch one of the two, and give its path")
    with replacing(Path(path)) as temporary:
        null_bytes = Path(null).read_bytes() if null is not None else None
        with zipfile.ZipFile(temporary, "w") as archive:
            manifest = _fill(archive, report, record, ledger if enclose else None, null_bytes)
        try:
            with open_container(temporary, None):
                return manifest
        except FormatError as error:
            said = f"the bundle could not be opened again: {error.message.partition(f'{temporary.name}: ')[2]}"
            raise BadSelection(said, hint="choose fewer metrics, roles, layers or experts") from error


def _fill(
    archive: zipfile.ZipFile, report: Report, record: ReadingRecord, ledger: Ledger | None, null: bytes | None
) -> Manifest:
    written: list[BundleMember] = []
    enclosed: list[Enclosed] = []
    if ledger is not None:
        for number, _, file in record.files():
            if file.ranges:
                name = f"bytes/{len(enclosed):04d}.bin"
                written.append(_put(archive, name, ledger.contents(number, file.name), packed=False))
                enclosed.append(Enclosed(number, file.name, name))
    sources = write_json(Sources(members.with_ranges(record, {}), tuple(enclosed))) + b"\n"
    ranges = b"".join(members.range_lines(record))
    text = report.to_json() + b"\n"
    contents = {members.REPORT: text, members.SOURCES: sources, members.RANGES: ranges}
    contents[members.README] = readme(record, bool(enclosed)).encode()
    if null is not None:
        contents[members.NULL] = null
    written += [_put(archive, name, [data], packed=True) for name, data in sorted(contents.items())]
    manifest = Manifest(
        schema=members.SCHEMA,
        schema_version=members.SCHEMA_VERSION,
        report_schema=report.schema,
        report_schema_version=report.schema_version,
        software=members.software(),
        arithmetic=members.arithmetic(),
        may_differ=members.MAY_DIFFER,
        members=tuple(sorted(written, key=lambda member: member.name)),
        evidence=members.evidence_digest(text, sources, ranges),
        digest="",
    ).sealed()
    _put(archive, members.MANIFEST, [manifest.to_json()], packed=True)
    return manifest


def _put(archive: zipfile.ZipFile, name: str, parts: Iterable[bytes], *, packed: bool) -> BundleMember:
    """Write a member; weights hardly shrink, and are stored unpacked so that they can be read in place."""
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


_FURTHER = "  bytes/         the bytes themselves: of each file all intervals that were read, end to end\n"
_OFFLINE = "  kinprint verify --offline FILE   does the same from the bytes in here, and asks nobody\n"


_LINE = r"""sed -E 's/.*"start":([0-9]+),"end":([0-9]+),"sha256":"([0-9a-f]+)".*/\1 \2 \3/'"""
_WHOLE = (
    'python3 -c \'import hashlib, json; made = json.load(open("bundle.json")); made["digest"] = ""; '
    'print(hashlib.sha256(json.dumps(made, separators=(",", ":"), ensure_ascii=False).encode()).hexdigest())\''
)


def readme(record: ReadingRecord, enclosed: bool) -> str:
    """Return README.txt, which is the same whenever it is written, as verification compares it."""
    text = files("kinprint.bundle").joinpath("readme.txt").read_text(encoding="utf-8")
    return text.format(
        further=_FURTHER if enclosed else "",
        offline=_OFFLINE if enclosed else "",
        example=_example(record),
        digest=_digest_example(record),
        whole=_WHOLE,
    )


def _digest_example(record: ReadingRecord) -> str:
    """Return the commands that make the digest of the ranges of one file: the one with most ranges."""
    candidates = [(number, file) for number, _, file in record.files() if file.ranges and file.name.isprintable()]
    if not candidates:
        return ""
    number, file = max(candidates, key=lambda found: len(found[1].ranges))
    start = f'"source":{number},"file":{orjson.dumps(file.name).decode()},'
    return (
        f" For one of {len(file.ranges)} ranges:\n\n"
        f"       grep -F {shlex.quote(start)} ranges.jsonl | {_LINE} | sha256sum\n\n"
        f"     must print {digest_of(file.ranges)}"
    )


def _example(record: ReadingRecord) -> str:
    """Return the commands that check one range: the longest."""
    candidates = [
        (source, file, item)
        for _, source, file in record.files()
        for item in file.ranges
        if source.provenance is not None and not source.signed and file.name.isprintable()
    ]
    if not candidates:
        return ""
    longest = max(candidates, key=lambda found: len(found[2]))
    size, digest = len(longest[2]), longest[2].sha256
    return f" For one of {size} bytes:\n\n       {_command(*longest)} | sha256sum\n\n     must print {digest}"


def _command(source: SourceRecord, file: FileRecord, item: RangeRead) -> str:
    where = source.provenance
    assert where is not None
    if where.kind in ("folder", "file"):
        path = Path(where.location) if where.kind == "folder" else Path(where.location).parent
        return f"tail -c +{item.start + 1} {shlex.quote(str(path / file.name))} | head -c {len(item)}"
    base = where.location.rstrip("/")
    if where.kind == "hub":
        base += f"/resolve/{where.commit}"
    elif where.kind == "url-file":
        base = base.rpartition("/")[0]
    return f"curl -sL -r {item.start}-{item.end - 1} {shlex.quote(f'{base}/{file.name}')}"
