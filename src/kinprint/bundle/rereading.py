"""Obtain the bytes for a verification: read them again at their sources, or take them from the bundle; and check them."""

import hashlib
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from kinprint._util.files import is_file, is_folder
from kinprint._util.plain import printable
from kinprint.bundle.access import Access
from kinprint.bundle.container import Container
from kinprint.bundle.members import Place, Sources
from kinprint.bundle.references import WEB
from kinprint.errors import AccessDenied, FormatError, KinprintError, NotFound, SourceError
from kinprint.refs import ByteRange, ModelRef
from kinprint.results.verification import Problem, Unchecked
from kinprint.sources.base import Folder, Source
from kinprint.sources.ledger import Failure, FileRecord, RangeRead, ReadingRecord, SourceRecord
from kinprint.sources.replay import KeptBytes, SharedFile
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from kinprint.text import Text, joined, verbatim

_COMPARED = ("reference", "kind", "location", "commit")  # the revision is that of the name, checked before
_BLOCK = 8 << 20  # bytes asked for at once
_BATCH = 64 << 20  # and held in memory
SHORTEST = 64
"""Bytes that a range read again must have to be compared at once: the digest of a shorter one is as good as its content."""


@dataclass
class Noted:
    """What does not agree with the record, and what could not be checked."""

    problems: list[Problem] = field(default_factory=list)
    unchecked: list[Unchecked] = field(default_factory=list)

    def differs(self, where: str, recorded: Text, found: Text, kind: str = "source") -> None:
        """Note what does not agree with the record."""
        self.problems.append(Problem(kind, where, recorded, found))

    def skip(self, what: str, reason: Text) -> None:
        """Note what could not be checked, and why."""
        self.unchecked.append(Unchecked(what if isinstance(what, Text) else verbatim(what), reason))


@dataclass
class BytesAtHand(Noted):
    """Bytes at hand, by source and file, with what is wrong with them and what could not be had."""

    spool: SharedFile = field(kw_only=True)  # the file that holds them
    kept: dict[Place, KeptBytes] = field(default_factory=dict)
    ranges: int = 0  # looked at
    equal: int = 0
    answers: int = 0  # that a file is not there, asked for again
    stored: int = 0  # bytes in the spool
    short: list[tuple[int, str, RangeRead]] = field(default_factory=list)  # not compared yet
    # sources that were asked, what is to be said of them, and whether on a foreign hub
    seen: dict[int, tuple[Text, bool]] = field(default_factory=dict)


def enclosed_bytes(container: Container, sources: Sources) -> BytesAtHand:
    """Take the bytes from the bundle, and check every range."""
    found = BytesAtHand(spool=container.file)
    enclosed = {(item.source, item.file): item.member for item in sources.enclosed}
    for number, source, file in sources.record.files():
        member = enclosed.get((number, file.name), "")
        if not file.ranges:
            continue
        if member not in container.members:
            found.skip(_name(source, file), Text("its bytes are not in the bundle"))
            continue
        kept, size = KeptBytes(found.spool, container.starts[member], file.spans), container.members[member].size
        if kept.length == size:
            _check_ranges(found, number, source, file, kept)
            found.kept[number, file.name] = kept
        else:
            said = Text("{n} bytes in {member}", n=size, member=member)
            found.differs(_name(source, file), _bytes(kept.length), said, "member")
    return found


def reread(record: ReadingRecord, access: Access, spool: SharedFile, doubtful: Collection[int]) -> BytesAtHand:
    """Ask every question again, and read every range again into `spool`; sources whose names are `doubtful` are not asked."""
    found = BytesAtHand(spool=spool)
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
                for what in _COMPARED:
                    recorded, opened = getattr(source.provenance, what), getattr(folder.provenance, what)
                    if recorded != opened:
                        found.differs(f"{source.text}: {what}", verbatim(str(recorded)), verbatim(str(opened)))
                _check_listing(found, source, folder, own)
            except (KinprintError, OSError) as error:
                found.skip(source.text, _reason(error))
                continue
            found.seen[number] = _seen(sessions[own], source, access)
            for file in source.files:
                try:
                    _check_file(found, sessions[own], folder, number, source, file)
                except (KinprintError, OSError) as error:
                    found.skip(_name(source, file), _reason(error))
    return found


def _reason(error: Exception) -> Text:
    return error.reason if isinstance(error, KinprintError) else verbatim(getattr(error, "strerror", "") or str(error))


def _open(session: Session, source: SourceRecord) -> Folder:
    where = source.provenance
    assert where is not None
    if where.kind == "hub":
        return session.open_folder(ModelRef(source.text, "hub", repo=source.repo, revision=where.commit))
    if where.kind in WEB:
        return session.open_folder(ModelRef(source.text, "url", url=where.location))
    path, shown = Path(where.location), printable(where.location)
    if where.kind == "folder" and not is_folder(path):
        raise SourceError(Text("there is no folder {place} here", place=shown))
    if where.kind != "folder" and not is_file(path):
        raise SourceError(Text("there is no file {place} here", place=shown))
    return session.open_folder(ModelRef(source.text, where.kind, path=path))


def _seen(session: Session, source: SourceRecord, access: Access) -> tuple[Text, bool]:
    """Say what a reader of the result should know about where a model was read, and whether that is a foreign hub."""
    where = source.provenance
    assert where is not None
    if where.kind != "hub":
        return Text(""), False
    own = access.settings.endpoint
    foreign = session.settings.endpoint != own
    notes = [Text("not on your hub, {hub}", hub=own)] if foreign else []
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
        found.skip(source.text, reason)
        return
    if settings.offline and folder.provenance.kind == "hub":
        found.skip(source.text, Text("offline, the list of its files is not known"))
        return
    names = folder.names
    if source.names is None:
        if names is not None and source.files:
            found.differs(source.text, Text("no list of files"), Text("there is one"))
        return
    recorded, now = frozenset(source.names), names or frozenset()
    if recorded != now:
        shown = ", ".join(printable(name, 60) for name in sorted(recorded ^ now)[:5])
        said = Text("{n} files: see {names}", n=len(now), names=shown)
        found.differs(source.text, Text("{n} files", n=len(recorded)), said)


def _check_file(
    found: BytesAtHand, session: Session, folder: Folder, number: int, source: SourceRecord, file: FileRecord
) -> None:
    """Ask again what was asked of one file."""
    missing = file.absent or any(failure.error == "NotFound" for failure in file.failures)
    if missing and not source.signed:
        found.answers += 1
        if _is_there(folder, file.name):
            found.differs(_name(source, file), Text("no such file"), Text("there is one"))
            return
    for failure in file.failures:
        if failure.error != "NotFound":
            found.skip(_name(source, file), recorded_failure(failure))
    if missing or (file.size is None and file.identity is None and not file.ranges):
        return
    kept = KeptBytes(found.spool, found.stored, file.spans)
    problem = _fetch(found, session, folder, source, file, kept)
    if problem is not None:
        found.problems.append(replace(problem, where=_name(source, file)))
    elif file.ranges:
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
    found: BytesAtHand, session: Session, folder: Folder, source: SourceRecord, file: FileRecord, kept: KeptBytes
) -> Problem | None:
    """Copy what was read of a file into the spool; return what is wrong with the file as such."""
    spans = file.spans
    if file.identity is None and spans and spans == ((0, file.size),):  # read as a whole, as small files are
        data = folder.read_small(file.name)
        if data is None:
            raise SourceError(Text("the file is no longer there"))
        if len(data) != file.size:
            return Problem("source", "", _bytes(file.size), _bytes(len(data)))
        kept.write(ByteRange(*spans[0]), memoryview(data))
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
    batch: list[ByteRange] = []
    for block in (ByteRange(at, min(end, at + _BLOCK)) for start, end in spans for at in range(start, end, _BLOCK)):
        batch.append(block)
        if block.end == last or sum(map(len, batch)) >= _BATCH:
            for span, block_data in zip(batch, session.read([(opened, item) for item in batch]), strict=True):
                kept.write(span, block_data)
            batch = []
    return None


def _check_identity(found: BytesAtHand, source: SourceRecord, file: FileRecord, opened: Source) -> Problem | None:
    if file.identity is None:
        return None
    kind, _, said = file.identity.partition(":")
    if kind == "size":  # of a file that was on a disk then, and says no more than that
        now, same = Text("size:{n}", n=opened.size), said == str(opened.size)
    else:
        # the identity found instead may be a digest, which would tell a stranger what is in the file
        now, same = Text("another identity"), opened.identity == file.identity
        if not opened.identity.startswith(f"{kind}:"):
            reason = Text(
                "not re-checked: its identity is recorded as {identity}, and none of that kind is known here",
                identity=printable(file.identity, 100),
            )
            found.skip(_name(source, file), reason)
            return None
    return None if same else Problem("source", "", verbatim(file.identity), now)


def _check_ranges(
    found: BytesAtHand, number: int, source: SourceRecord, file: FileRecord, kept: KeptBytes, *, live: bool = False
) -> None:
    room = memoryview(bytearray(max(map(len, file.ranges))))
    for item in file.ranges:
        piece = room[: len(item)]
        if not kept.read_into(item, piece):
            raise FormatError(f"{_name(source, file)}: a range lies outside itself")
        if live and len(piece) < SHORTEST and len(piece) != file.size:
            found.short.append((number, file.name, item))
            continue
        digest = hashlib.sha256(piece).hexdigest()
        found.ranges += 1
        if digest == item.sha256:
            found.equal += 1
        else:
            # the digest of a file of this machine would tell a stranger what is in it
            said = Text("other bytes") if live else sha256_text(digest)
            found.differs(_range_name(source, file.name, item), sha256_text(item.sha256), said, "range")


def check_short(found: BytesAtHand, record: ReadingRecord, replayed: ReadingRecord) -> list[Problem]:
    """Compare ranges too short for a digest to hide them, if the comparison asks for them; return those that do not agree."""
    reads = [(src.key, file.name, item) for _, src, file in replayed.files() for item in file.ranges]
    asked = {(key, name, item.start, item.end): item for key, name, item in reads}
    problems = []
    for number, name, item in found.short:
        source = record.sources[number]
        again = asked.get((source.key, name, item.start, item.end))
        if again == item:
            continue
        said = Text("other bytes")
        if again is None:
            said = Text("fewer than {n} bytes, which the comparison does not ask for", n=SHORTEST)
        problems.append(Problem("range", _range_name(source, name, item), sha256_text(item.sha256), said))
    return problems


def recorded_failure(failure: Failure) -> Text:
    """Say that something is recorded to have failed, and was not tried again."""
    return Text("not re-checked: it is recorded to have failed ({why})", why=failure.message)


def sha256_text(digest: str) -> Text:
    """Return a digest as results show it."""
    return Text("sha256 {digest}", digest=digest)


def _bytes(count: int | None) -> Text:
    return Text("{n} bytes", n=count)


def _name(source: SourceRecord, file: FileRecord) -> str:
    return f"{printable(source.text)}: {printable(file.name)}"


def _range_name(source: SourceRecord, name: str, item: RangeRead) -> str:
    return f"{printable(source.text)}: {printable(name)}, bytes {item.start} to {item.end}"
