"""Where the bytes for a check come from: read again at their sources, or enclosed in the bundle."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from kinprint.bundle.container import Container
from kinprint.bundle.manifest import Sources
from kinprint.errors import FormatError, KinprintError, SourceError
from kinprint.plain import printable
from kinprint.refs import ByteRange, ModelRef
from kinprint.sources.base import Folder
from kinprint.sources.ledger import FileRecord, Record, SourceRecord, merged
from kinprint.sources.recorded import Kept, SharedFile
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from kinprint.verification import Problem, Unchecked

_BLOCK = 8 << 20  # bytes asked for at once
_BATCH = 64 << 20  # and held in memory
Place = tuple[int, str]


@dataclass
class Found:
    """Bytes at hand, by source and file, with what is wrong with them and what could not be had."""

    kept: dict[Place, Kept] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    unchecked: list[Unchecked] = field(default_factory=list)
    ranges: int = 0  # looked at
    equal: int = 0


def places_of(record: Record) -> Iterator[tuple[int, SourceRecord, FileRecord]]:
    """Yield every file of which something was read."""
    for number, source in enumerate(record.sources):
        for file in source.files:
            if file.ranges:
                yield number, source, file


def enclosed_bytes(container: Container, sources: Sources) -> Found:
    """Take the bytes from the bundle, and check every range."""
    found = Found()
    members = {(item.source, item.file): item.member for item in sources.enclosed}
    for number, source, file in places_of(sources.record):
        member = members.get((number, file.name))
        if member is None or member not in container.names:
            found.unchecked.append(Unchecked(_name(source, file), "its bytes are not in the bundle"))
            continue
        spans = merged([(item.start, item.end) for item in file.ranges])
        kept = Kept(container.file, container.start(member), spans)
        if kept.length != container.size(member):
            said = f"{container.size(member)} bytes in {member}"
            found.problems.append(Problem("member", _name(source, file), f"{kept.length} bytes", said))
            continue
        _check_ranges(found, source, file, kept)
        found.kept[number, file.name] = kept
    return found


def reread(record: Record, settings: Settings, spool: SharedFile) -> Found:
    """Read every range again where it came from, into `spool`, and check it."""
    found, at = Found(), 0
    with ExitStack() as stack:
        sessions: dict[Settings, Session] = {}
        for number, source in enumerate(record.sources):
            files = [file for file in source.files if file.ranges]
            if not files or source.provenance is None:
                continue
            own = _settings_for(source, settings)
            if own not in sessions:
                sessions[own] = stack.enter_context(Session(own))
            try:
                folder = _open(sessions[own], source)
            except KinprintError as error:
                found.unchecked.append(Unchecked(printable(source.text), error.message))
                continue
            _check_listing(found, source, folder, settings)
            for file in files:
                spans = merged([(item.start, item.end) for item in file.ranges])
                kept = Kept(spool, at, spans)
                try:
                    problem = _fetch(sessions[own], folder, file, kept, spans, spool)
                except KinprintError as error:
                    found.unchecked.append(Unchecked(_name(source, file), error.message))
                    continue
                if problem is not None:
                    found.problems.append(replace(problem, where=_name(source, file)))
                    continue
                at += kept.length
                _check_ranges(found, source, file, kept)
                found.kept[number, file.name] = kept
    return found


def _settings_for(source: SourceRecord, settings: Settings) -> Settings:
    """Return the settings for a model's own hub: a token is for the user's, not for one that a bundle names."""
    where = source.provenance
    if where is None or where.kind != "hub" or source.repo is None:
        return settings
    endpoint = where.location.removesuffix(f"/{source.repo}")
    if endpoint == settings.endpoint:
        return settings
    return replace(settings, endpoint=endpoint, token=None)


def _open(session: Session, source: SourceRecord) -> Folder:
    where = source.provenance
    assert where is not None
    if where.kind == "hub":
        return session.open_folder(ModelRef(source.text, "hub", repo=source.repo, revision=where.commit))
    if where.kind in ("url-file", "url-folder"):
        return session.open_folder(ModelRef(source.text, "url", url=where.location))
    path = Path(where.location)
    if not (path.is_dir() if where.kind == "folder" else path.is_file()):
        raise SourceError(f"there is no {where.kind} {printable(where.location)} here")
    return session.open_folder(ModelRef(source.text, where.kind, path=path))


def _check_listing(found: Found, source: SourceRecord, folder: Folder, settings: Settings) -> None:
    """Compare the listing where a commit fixes it; a folder may have been given further files since."""
    if folder.provenance.kind != "hub" or settings.offline or source.names is None:
        return
    recorded, now = frozenset(source.names), folder.names or frozenset()
    if recorded != now:
        odd = sorted(recorded ^ now)
        shown = ", ".join(printable(name, 60) for name in odd[:5])
        found.problems.append(
            Problem("source", printable(source.text), f"{len(recorded)} files", f"{len(now)} files: see {shown}")
        )


def _fetch(
    session: Session, folder: Folder, file: FileRecord, kept: Kept, spans: Sequence[tuple[int, int]], spool: SharedFile
) -> Problem | None:
    """Copy what was read of a file into the spool; return what is wrong with the file as such."""
    if file.identity is None and tuple(spans) == ((0, file.size),):  # it was read as a whole, as small files are
        data = folder.read_small(file.name)
        if data is None:
            raise SourceError("the file is no longer there")
        if len(data) != file.size:
            return Problem("source", "", f"{file.size} bytes", f"{len(data)} bytes")
        spool.write(kept.place(ByteRange(*spans[0])) or 0, memoryview(data))
        return None
    source = folder.open(file.name)
    if file.size is not None and source.size != file.size:
        return Problem("source", "", f"{file.size} bytes", f"{source.size} bytes")
    kind, identity = (file.identity or "").split(":")[0], source.identity
    # one of another kind says nothing: the file was found in another cache
    if file.identity is not None and identity.startswith(f"{kind}:") and identity != file.identity:
        return Problem("source", "", printable(file.identity, 100), printable(identity, 100))
    last = spans[-1][1]
    if last > source.size:  # before anything is planned that is as large as a stranger says
        return Problem("source", "", f"bytes up to {last}", f"{source.size} bytes")
    blocks = [ByteRange(at, min(end, at + _BLOCK)) for start, end in spans for at in range(start, end, _BLOCK)]
    batch: list[ByteRange] = []
    for number, block in enumerate(blocks):
        batch.append(block)
        if number + 1 == len(blocks) or sum(map(len, batch)) >= _BATCH:
            for span, block_data in zip(batch, session.read([(source, item) for item in batch]), strict=True):
                place = kept.place(span)
                assert place is not None
                spool.write(place, block_data)
            batch = []
    return None


def _check_ranges(found: Found, source: SourceRecord, file: FileRecord, kept: Kept) -> None:
    room = memoryview(bytearray(max(item.end - item.start for item in file.ranges)))
    for item in file.ranges:
        piece = room[: item.end - item.start]
        if not kept.read_into(ByteRange(item.start, item.end), piece):
            raise FormatError(f"{_name(source, file)}: a range lies outside itself")
        digest = hashlib.sha256(piece).hexdigest()
        found.ranges += 1
        if digest == item.sha256:
            found.equal += 1
        else:
            where = f"{_name(source, file)}, bytes {item.start} to {item.end}"
            found.problems.append(Problem("range", where, f"sha256 {item.sha256}", f"sha256 {digest}"))


def _name(source: SourceRecord, file: FileRecord) -> str:
    return f"{printable(source.text)}: {printable(file.name)}"
