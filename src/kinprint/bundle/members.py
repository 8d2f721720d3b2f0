"""Define the members of an evidence bundle, and read them: versioned, checked, of bounded size."""

from __future__ import annotations

import hashlib
import platform
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from typing import TypeVar

import numpy as np
import orjson

from kinprint._util.plain import printable
from kinprint._util.strange_json import parse_json, repeated_key
from kinprint._version import __version__
from kinprint.errors import FormatError, SchemaError
from kinprint.evidence.empirical_null import EmpiricalNull, parse_null
from kinprint.refs import check_member_name
from kinprint.results.older_reports import upgrade
from kinprint.results.plain_json import build
from kinprint.results.report import Report
from kinprint.results.result import MOST_BYTES as MOST_REPORT
from kinprint.sources.ledger import CHUNK_BYTES, RangeRead, ReadingRecord

T = TypeVar("T")
Place = tuple[int, str]  # number of a source, and name of a file in it

SCHEMA = "kinprint.bundle"
SCHEMA_VERSION = 1

MANIFEST, REPORT, SOURCES, RANGES = "bundle.json", "report.json", "sources.json", "ranges.jsonl"
README, NULL = "README.txt", "null.json"
BYTES = re.compile(r"^bytes/[0-9]{4,6}\.bin\Z")
NEEDED = (MANIFEST, REPORT, SOURCES, RANGES)
CAPS = dict.fromkeys((SOURCES, RANGES, NULL), 64 << 20) | {REPORT: MOST_REPORT, MANIFEST: 4 << 20, README: 1 << 20}
"""How large a member may be, unpacked; enclosed bytes are bounded by the whole alone."""

MOST_BYTES = 1 << 42
"""How large a model may be: reads are planned before they are carried out, and a plan takes memory in proportion."""

MAY_DIFFER = ("run",)  # fields of the report that two runs of the same comparison need not share
_SHA256 = re.compile(r"^[0-9a-f]{64}\Z")
_OPTIONAL = ("scipy", "torch", "gguf")  # in so far as they were in use
_AGAIN = "the bundle is damaged, or was not made by kinprint; ask for it again"
DISTRUST = "no sound bundle does this; do not trust it"


@dataclass(frozen=True)
class BundleMember:
    """A file in the bundle."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Arithmetic:
    """What decides the last digits of a sum, beside the versions: the processor."""

    machine: str
    simd: tuple[str, ...]


@dataclass(frozen=True)
class Software:
    """A program or library, and its version."""

    name: str
    version: str


@dataclass(frozen=True)
class Manifest:
    """bundle.json: what the bundle is, what it was made with, and the digest of every other member."""

    # ``digest`` stands for all the rest of the manifest, and so for everything in the bundle. ``evidence`` leaves out what
    # may differ between runs: two runs of the same comparison have the same.
    schema: str
    schema_version: int
    report_schema: str
    report_schema_version: int
    software: tuple[Software, ...]
    arithmetic: Arithmetic
    may_differ: tuple[str, ...]
    members: tuple[BundleMember, ...]
    evidence: str
    digest: str

    def sealed(self) -> Manifest:
        """Return the manifest with its own digest."""
        return replace(self, digest=hashlib.sha256(orjson.dumps(replace(self, digest=""))).hexdigest())

    def to_json(self) -> bytes:
        """Return the manifest as JSON (UTF-8)."""
        return orjson.dumps(self, option=orjson.OPT_INDENT_2) + b"\n"


@dataclass(frozen=True)
class Enclosed:
    """Which member holds the bytes of a file: all intervals that were read of it, end to end."""

    source: int
    file: str
    member: str


@dataclass(frozen=True)
class Sources:
    """sources.json: what was opened, listed and answered; the ranges are in ranges.jsonl."""

    record: ReadingRecord
    enclosed: tuple[Enclosed, ...]


@dataclass(frozen=True)
class _Line:
    source: int
    file: str
    start: int
    end: int
    sha256: str


def software() -> tuple[Software, ...]:
    """Return what decides the figures: this program, Python, numpy, and what else was used."""
    found = {"kinprint": __version__, "python": platform.python_version(), "numpy": np.__version__}
    found |= {name: metadata.version(name) for name in _OPTIONAL if name in sys.modules}
    return tuple(Software(name, version) for name, version in found.items())


def arithmetic() -> Arithmetic:
    """Return what numpy found of this processor."""
    simd = np.show_config(mode="dicts").get("SIMD Extensions", {})
    return Arithmetic(platform.machine().lower(), tuple(sorted({*simd.get("baseline", ()), *simd.get("found", ())})))


def evidence_digest(report: bytes | Mapping[str, object], sources: bytes, ranges: bytes) -> str:
    """Return the digest of what two runs share; a report that is parsed already is not parsed again."""
    data = orjson.loads(report) if isinstance(report, bytes) else report
    shared = {name: value for name, value in data.items() if name not in MAY_DIFFER}
    parts = [orjson.dumps(shared, option=orjson.OPT_SORT_KEYS), sources, ranges]
    return hashlib.sha256("".join(hashlib.sha256(part).hexdigest() for part in parts).encode()).hexdigest()


def range_lines(record: ReadingRecord) -> Iterator[bytes]:
    """Yield the lines of ranges.jsonl."""
    for number, _, file in record.files():
        for item in file.ranges:
            yield orjson.dumps(_Line(number, file.name, item.start, item.end, item.sha256)) + b"\n"


def with_ranges(record: ReadingRecord, found: Mapping[Place, Sequence[RangeRead]]) -> ReadingRecord:
    """Return a record with these ranges, by source and file, instead of its own; sources.json has none."""
    full = tuple(
        replace(one, files=tuple(replace(file, ranges=tuple(found.get((n, file.name), ()))) for file in one.files))
        for n, one in enumerate(record.sources)
    )
    return replace(record, sources=full)


def read_manifest(raw: bytes) -> Manifest:
    """Read bundle.json; SchemaError for a version that this program does not know, FormatError for no manifest at all."""
    data, schema, version = _parse_versioned(raw, MANIFEST)
    if schema != SCHEMA:
        raise FormatError(f"{MANIFEST} is of schema {printable(str(schema), 80)!r}, expected {SCHEMA!r}", hint=_AGAIN)
    if version != SCHEMA_VERSION:
        newer = isinstance(version, int) and version > SCHEMA_VERSION
        raise SchemaError(
            f"the bundle is of version {printable(str(version), 20)}; "
            f"this kinprint ({__version__}) reads version {SCHEMA_VERSION}",
            hint="upgrade kinprint" if newer else "use the version of kinprint that wrote it",
        )
    manifest = _built(Manifest, data, MANIFEST)
    digests = manifest.digest, manifest.evidence, *(member.sha256 for member in manifest.members)
    if not all(map(_SHA256.match, digests)):
        raise FormatError(f"{MANIFEST} states a digest that is no SHA-256", hint=_AGAIN)
    return manifest


def read_report(raw: bytes) -> tuple[Report, dict[str, object]]:
    """Read report.json, and return it with the JSON that it was made from."""
    data, schema, version = _parse_versioned(raw, REPORT)
    if schema != Report.SCHEMA or version not in Report.VERSIONS:
        raise SchemaError(
            f"cannot read a report of schema {printable(str(schema), 80)!r}, version {printable(str(version), 20)}; "
            f"expected {Report.SCHEMA!r}, {Report.VERSIONS[-1]}",
            hint="use the version of kinprint that wrote it, or run the comparison again",
        )
    if version != Report.VERSIONS[-1]:
        upgrade(data)
    report = _built(Report, data, REPORT)
    if (wrong := report.settings.impossible) is not None:
        raise FormatError(f"{REPORT}: settings: {wrong}", hint=_AGAIN)
    return report, data


def read_null(raw: bytes) -> EmpiricalNull:
    """Read null.json; see `parse_null`, which does not refuse repeated keys."""
    _parse(raw, NULL)
    return parse_null(raw, NULL)


def read_sources(raw: bytes, ranges: bytes) -> Sources:
    """Read sources.json and ranges.jsonl, and put them together."""
    sources = _built(Sources, _parse(raw, SOURCES), SOURCES)
    _check_sources(sources)
    found: dict[Place, list[RangeRead]] = {(number, file.name): [] for number, _, file in sources.record.files()}
    for number, line in enumerate(ranges.split(b"\n")[:-1]):
        item = _built(_Line, _parse(line, RANGES), RANGES)
        _check_range(item, found, number)
        found[item.source, item.file].append(RangeRead(item.start, item.end, item.sha256))
    if ranges and not ranges.endswith(b"\n"):
        raise FormatError(f"{RANGES} does not end with a line's end", hint=_AGAIN)
    return replace(sources, record=with_ranges(sources.record, found))


def _check_sources(sources: Sources) -> None:
    record = sources.record
    files = [(number, file.name) for number, _, file in record.files()]
    places = [(item.source, item.file) for item in sources.enclosed]
    members = [item.member for item in sources.enclosed]
    numbers = [item.source for item in record.lookups if item.source is not None]
    sizes = [[file.size for file in source.files if file.size is not None] for source in record.sources]
    fine = (
        all(len(set(several)) == len(several) for several in (files, places, members))
        and set(files) >= set(places)
        and all(BYTES.match(member) for member in members)
        and all(0 <= number < len(record.sources) for number in numbers)
        and all(size >= 0 for model in sizes for size in model)
        and 0 <= record.delivered_before < 1 << 62
    )
    if not fine:
        raise FormatError(f"{SOURCES} contradicts itself", hint=_AGAIN)
    if any(sum(model) > MOST_BYTES for model in sizes):
        raise FormatError(f"{SOURCES} names a model of more than {MOST_BYTES} bytes", hint=DISTRUST)
    for source in record.sources:
        # nothing lists what is on the web: the names are those that are asked for
        listed = frozenset(source.names or ()) if source.kind != "url" else frozenset[str]()
        both = next((file.name for file in source.files if file.absent and file.name in listed), None)
        if both is not None:
            said = f"{SOURCES} contradicts itself: {printable(both)} is listed, and said to be absent"
            raise FormatError(said, hint=DISTRUST)
    for _, name in files:
        check_member_name(name, where=SOURCES, error=FormatError, hint=DISTRUST)


def _check_range(item: _Line, found: Mapping[Place, list[RangeRead]], number: int) -> None:
    known = found.get((item.source, item.file))
    before = (known[-1].start, known[-1].end) if known else (-1, -1)
    fine = 0 <= item.start < item.end < 1 << 62 and item.end - item.start <= CHUNK_BYTES
    if known is None or not fine or not _SHA256.match(item.sha256):
        raise FormatError(f"{RANGES}: line {number + 1} is no range of a file in {SOURCES}", hint=_AGAIN)
    if before >= (item.start, item.end):
        raise FormatError(f"{RANGES}: line {number + 1} is not in order", hint=_AGAIN)


def _parse_versioned(raw: bytes, name: str) -> tuple[dict[str, object], object, object]:
    """Parse an object, and return it with its schema and version; an empty one for other JSON."""
    data = _parse(raw, name)
    found = data if isinstance(data, dict) else {}
    return found, found.get("schema"), found.get("schema_version")


def _parse(raw: bytes, name: str) -> object:
    try:
        value: object = parse_json(raw)
    except ValueError as error:
        raise FormatError(f"{name} is not valid JSON: {error}", hint=_AGAIN) from error
    try:
        same = orjson.dumps(value, option=orjson.OPT_INDENT_2 if b"\n" in raw.strip() else None) == raw.strip()
    except TypeError as error:  # what cannot be written is nested more deeply than anything that kinprint writes
        raise FormatError(f"{name} is nested too deeply", hint=_AGAIN) from error
    # JSON that is written as it was read has no key twice; otherwise each key has to be looked at
    if not same and (twice := repeated_key(raw)) is not None:
        said = f"{name} says {printable(twice, 80)!r} twice in one place, so that two readers may read two things"
        raise FormatError(said, hint=DISTRUST)
    return value


def _built(kind: type[T], data: object, name: str) -> T:
    try:
        return build(kind, data)
    except (KeyError, TypeError, ValueError) as error:
        said = printable(str(error), 200)
        raise FormatError(f"{name} does not fit schema version {SCHEMA_VERSION}: {said}", hint=_AGAIN) from error
