"""Where the bytes for a check come from: read again at their sources, or enclosed in the bundle."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from kinprint._util.plain import printable
from kinprint.bundle.access import Access
from kinprint.bundle.container import Container
from kinprint.bundle.manifest import Sources
from kinprint.bundle.references import WEB
from kinprint.errors import AccessDenied, FormatError, KinprintError, NotFound, SourceError
from kinprint.refs import ByteRange, ModelRef
from kinprint.results.verification import Problem, Unchecked
from kinprint.sources.base import Folder, Source
from kinprint.sources.ledger import Failure, FileRecord, RangeRead, ReadingRecord, SourceRecord, merged
from kinprint.sources.replay import KeptBytes, SharedFile
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from kinprint.text import Text, joined, verbatim

_BLOCK = 8 << 20  # bytes asked for at once
_BATCH = 64 << 20  # and held in memory
SHORTEST = 64
"""Bytes that a range read again must have to be compared at once: the digest of a shorter one is as good as its content."""
Place = tuple[int, str]


@dataclass
class BytesAtHand:
    """Bytes at hand, by source and file, with what is wrong with them and what could not be had."""

    kept: dict[Place, KeptBytes] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    unchecked: list[Unchecked] = field(default_factory=list)
    ranges: int = 0  # looked at
    equal: int = 0
    answers: int = 0  # that a file is not there, asked for again
    stored: int = 0  # bytes in the spool
    short: list[tuple[int, str, RangeRead]] = field(default_factory=list)  # not compared yet
    seen: dict[int, tuple[Text, bool]] = field(
        default_factory=dict
    )  # sources that were asked, what is to be said of them, and whether on a foreign hub


def places_of(record: ReadingRecord) -> Iterator[tuple[int, SourceRecord, FileRecord]]:
    """Yield every file of which something was read."""
    for number, source in enumerate(record.sources):
        for file in source.files:
            if file.ranges:
                yield number, source, file


def enclosed_bytes(container: Container, sources: Sources) -> BytesAtHand:
    """Take the bytes from the bundle, and check every range."""
    found = BytesAtHand()
    members = {(item.source, item.file): item.member for item in sources.enclosed}
    for number, source, file in places_of(sources.record):
        member = members.get((number, file.name))
        if member is None or member not in container.names:
            found.unchecked.append(Unchecked(_title(source, file), Text("its bytes are not in the bundle")))
            continue
        spans = merged([(item.start, item.end) for item in file.ranges])
        kept = KeptBytes(container.file, container.start(member), spans)
        if kept.length != container.size(member):
            said = Text("{n} bytes in {member}", n=container.size(member), member=member)
            found.problems.append(Problem("member", _name(source, file), _bytes(kept.length), said))
            continue
        _check_ranges(found, number, source, file, kept)
        found.kept[number, file.name] = kept
    return found


def reread(record: ReadingRecord, access: Access, spool: SharedFile, doubtful: Collection[int]) -> BytesAtHand:
    """Ask every question again where it was answered, and read every range again, into `spool`.

    Sources that are `doubtful`, as their names contradict what was opened, are not asked at all.
    """
    found = BytesAtHand()
    with ExitStack() as stack:
        sessions: dict[Settings, Session] = {}
        for number, source in enumerate(record.sources):
            if source.provenance is None or number in doubtful:
                continue
            try:
                own = access.settings_for(source)
                if own not in sessions:
                    sessions[own] = stack.enter_context(Session(own))
                folder = _open(sessions[own], source)
                _check_place(found, source, folder)
                _check_listing(found, source, folder, own)
            except (KinprintError, OSError) as error:
                found.unchecked.append(Unchecked(verbatim(source.text), _reason(error)))
                continue
            found.seen[number] = _seen(sessions[own], source, access)
            for file in source.files:
                try:
                    _check_file(found, sessions[own], folder, number, source, file, spool)
                except (KinprintError, OSError) as error:
                    found.unchecked.append(Unchecked(_title(source, file), _reason(error)))
    return found


def _reason(error: Exception) -> Text:
    return (
        error.reason if isinstance(error, KinprintError) else verbatim(getattr(error, "strerror", None) or str(error))
    )


def _open(session: Session, source: SourceRecord) -> Folder:
    where = source.provenance
    assert where is not None
    if where.kind == "hub":
        return session.open_folder(ModelRef(source.text, "hub", repo=source.repo, revision=where.commit))
    if where.kind in WEB:
        return session.open_folder(ModelRef(source.text, "url", url=where.location))
    path = Path(where.location)
    if not (path.is_dir() if where.kind == "folder" else path.is_file()):
        place = printable(where.location)
        if where.kind == "folder":
            raise SourceError(Text("there is no folder {place} here", place=place))
        raise SourceError(Text("there is no file {place} here", place=place))
    return session.open_folder(ModelRef(source.text, where.kind, path=path))


def _check_place(found: BytesAtHand, source: SourceRecord, folder: Folder) -> None:
    """Hold what was opened against what is said to have been opened; the revision is that of the name, checked before."""
    where, now = source.provenance, folder.provenance
    assert where is not None
    for what in ("reference", "kind", "location", "commit"):
        recorded, opened = getattr(where, what), getattr(now, what)
        if recorded != opened:
            found.problems.append(
                Problem("source", f"{source.text}: {what}", verbatim(str(recorded)), verbatim(str(opened)))
            )


def _seen(session: Session, source: SourceRecord, access: Access) -> tuple[Text, bool]:
    """Say what a reader of the result should know about where a model was read, and whether that is a foreign hub."""
    where = source.provenance
    assert where is not None
    if where.kind != "hub":
        return Text(""), False
    notes = []
    foreign = session.settings.endpoint != access.settings.endpoint
    if foreign:
        notes.append(Text("not on your hub, {hub}", hub=access.settings.endpoint))
    if where.revision != where.commit and not access.use_cache:  # a cache does not know what is the case now
        try:
            now = session.open_folder(ModelRef(source.text, "hub", repo=source.repo, revision=where.revision))
        except KinprintError:
            notes.append(Text("{revision} cannot be found now", revision=where.revision))
        else:
            if now.provenance.commit != where.commit:
                notes.append(Text("{revision} is another commit now", revision=where.revision))
    return joined(notes) if notes else Text(""), foreign


def _check_listing(found: BytesAtHand, source: SourceRecord, folder: Folder, settings: Settings) -> None:
    """Compare the list of files, which decides what is read of a model."""
    if source.signed:
        reason = Text("the address had a part that the bundle does not hold; which files lie beside it was not checked")
        found.unchecked.append(Unchecked(verbatim(source.text), reason))
        return
    if settings.offline and folder.provenance.kind == "hub":
        found.unchecked.append(Unchecked(verbatim(source.text), Text("offline, the list of its files is not known")))
        return
    names = folder.names
    if names is None and source.names is None:
        return
    if source.names is None:
        if source.files:
            found.problems.append(Problem("source", source.text, Text("no list of files"), Text("there is one")))
        return
    recorded, now = frozenset(source.names), names or frozenset()
    if recorded != now:
        odd = sorted(recorded ^ now)
        shown = ", ".join(printable(name, 60) for name in odd[:5])
        found.problems.append(
            Problem(
                "source",
                source.text,
                Text("{n} files", n=len(recorded)),
                Text("{n} files: see {names}", n=len(now), names=shown),
            )
        )


def _check_file(
    found: BytesAtHand,
    session: Session,
    folder: Folder,
    number: int,
    source: SourceRecord,
    file: FileRecord,
    spool: SharedFile,
) -> None:
    """Ask again what was asked of one file."""
    missing = file.absent or any(failure.error == "NotFound" for failure in file.failures)
    if missing and not source.signed:
        found.answers += 1
        if _is_there(folder, file.name):
            found.problems.append(Problem("source", _name(source, file), Text("no such file"), Text("there is one")))
            return
    for failure in file.failures:
        if failure.error != "NotFound":
            found.unchecked.append(Unchecked(_title(source, file), recorded_failure(failure)))
    if missing or (file.size is None and file.identity is None and not file.ranges):
        return
    spans = merged([(item.start, item.end) for item in file.ranges])
    kept = KeptBytes(spool, found.stored, spans)
    problem = _fetch(found, session, folder, source, file, kept, spans, spool)
    if problem is not None:
        found.problems.append(replace(problem, where=_name(source, file)))
    elif spans:
        found.stored += kept.length
        _check_ranges(found, number, source, file, kept, live=True)
        found.kept[number, file.name] = kept


def _is_there(folder: Folder, name: str) -> bool:
    """Whether a model has a file; of a web folder only an attempt can tell, and of a file on the web its neighbours too."""
    if folder.provenance.kind not in WEB:
        return name in (folder.names or ())
    try:
        _ = folder.open(name).size
    except (NotFound, AccessDenied):  # as in the folder itself, which takes both for an absent file
        return False
    return True


def _fetch(
    found: BytesAtHand,
    session: Session,
    folder: Folder,
    source: SourceRecord,
    file: FileRecord,
    kept: KeptBytes,
    spans: Sequence[tuple[int, int]],
    spool: SharedFile,
) -> Problem | None:
    """Copy what was read of a file into the spool; return what is wrong with the file as such."""
    if file.identity is None and spans and tuple(spans) == ((0, file.size),):  # read as a whole, as small files are
        data = folder.read_small(file.name)
        if data is None:
            raise SourceError(Text("the file is no longer there"))
        if len(data) != file.size:
            return Problem("source", "", _bytes(file.size), _bytes(len(data)))
        spool.write(kept.place(ByteRange(*spans[0])) or 0, memoryview(data))
        return None
    opened = folder.open(file.name)
    if file.size is not None and opened.size != file.size:
        return Problem("source", "", _bytes(file.size), _bytes(opened.size))
    problem = _check_identity(found, source, file, opened)
    if problem is not None or not spans:
        return problem
    last = spans[-1][1]
    if last > opened.size:  # before anything is planned that is as large as a stranger says
        return Problem("source", "", Text("bytes up to {n}", n=last), _bytes(opened.size))
    blocks = [ByteRange(at, min(end, at + _BLOCK)) for start, end in spans for at in range(start, end, _BLOCK)]
    batch: list[ByteRange] = []
    for number, block in enumerate(blocks):
        batch.append(block)
        if number + 1 == len(blocks) or sum(map(len, batch)) >= _BATCH:
            for span, block_data in zip(batch, session.read([(opened, item) for item in batch]), strict=True):
                place = kept.place(span)
                assert place is not None
                spool.write(place, block_data)
            batch = []
    return None


def _check_identity(found: BytesAtHand, source: SourceRecord, file: FileRecord, opened: Source) -> Problem | None:
    if file.identity is None:
        return None
    kind, _, said = file.identity.partition(":")
    if kind == "size":  # of a file that was on a disk then, and says no more than that
        if said == str(opened.size):
            return None
        return Problem("source", "", verbatim(file.identity), Text("size:{n}", n=opened.size))
    identity = opened.identity
    if not identity.startswith(f"{kind}:"):
        reason = Text(
            "not re-checked: its identity is recorded as {identity}, and none of that kind is known here",
            identity=printable(file.identity, 100),
        )
        found.unchecked.append(Unchecked(_title(source, file), reason))
        return None
    # what it is instead may be a digest of what a stranger wants to know
    if identity == file.identity:
        return None
    return Problem("source", "", verbatim(file.identity), Text("another identity"))


def _check_ranges(
    found: BytesAtHand, number: int, source: SourceRecord, file: FileRecord, kept: KeptBytes, *, live: bool = False
) -> None:
    room = memoryview(bytearray(max(item.end - item.start for item in file.ranges)))
    for item in file.ranges:
        piece = room[: item.end - item.start]
        if not kept.read_into(ByteRange(item.start, item.end), piece):
            raise FormatError(f"{_name(source, file)}: a range lies outside itself")
        if live and len(piece) < SHORTEST and len(piece) != file.size:
            found.short.append((number, file.name, item))
            continue
        digest = hashlib.sha256(piece).hexdigest()
        found.ranges += 1
        if digest == item.sha256:
            found.equal += 1
        else:
            where = f"{_name(source, file)}, bytes {item.start} to {item.end}"
            # what was found in a file of this machine is nobody's business
            said = Text("other bytes") if live else sha256_text(digest)
            found.problems.append(Problem("range", where, sha256_text(item.sha256), said))


def check_short(found: BytesAtHand, record: ReadingRecord, replayed: ReadingRecord) -> tuple[int, list[Problem]]:
    """Compare ranges so short that their digest gives away what they hold: those only that the comparison itself asks for.

    Returns how many agree, and the problems.
    """
    asked = {
        ((source.text, source.kind, source.revision), file.name, item.start, item.end): item.sha256
        for source in replayed.sources
        for file in source.files
        for item in file.ranges
    }
    equal, problems = 0, []
    for number, name, item in found.short:
        source = record.sources[number]
        digest = asked.get(((source.text, source.kind, source.revision), name, item.start, item.end))
        if digest == item.sha256:
            equal += 1
            continue
        where = f"{printable(source.text)}: {printable(name)}, bytes {item.start} to {item.end}"
        if digest:
            said = Text("other bytes")
        else:
            said = Text("fewer than {n} bytes, which the comparison does not ask for", n=SHORTEST)
        problems.append(Problem("range", where, sha256_text(item.sha256), said))
    return equal, problems


def recorded_failure(failure: Failure) -> Text:
    """Say that something is recorded to have failed, and was not tried again."""
    return Text("not re-checked: it is recorded to have failed ({why})", why=failure.message)


def sha256_text(digest: str) -> Text:
    """Return a digest as results show it."""
    return Text("sha256 {digest}", digest=digest)


def _bytes(count: int | None) -> Text:
    return Text("{n} bytes", n=count)


def _title(source: SourceRecord, file: FileRecord) -> Text:
    return verbatim(_name(source, file))


def _name(source: SourceRecord, file: FileRecord) -> str:
    return f"{printable(source.text)}: {printable(file.name)}"
