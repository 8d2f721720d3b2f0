"""Hold what a store gives back of an entry against its digests and against itself."""

from collections.abc import Callable, Iterator, Sequence

from kinprint._util.plain import printable
from kinprint.catalog.entry import Entry, Problem, Vectors, as_bytes, from_record, key_of, seal, unpacked
from kinprint.errors import FormatError, KinprintError
from kinprint.fingerprints.file import Fingerprint, from_bytes
from kinprint.fingerprints.recall import recall_vectors
from kinprint.text import Text

Row = Sequence[object]
_NOT_ITS_KEY = Text("its fingerprint is damaged: the SHA-256 is not its key")


def fresh_vectors(key: object, name: object, stored: object, problems: list[Problem]) -> Vectors:
    """Return the recall vectors of a stored fingerprint; none of a damaged one, and what is wrong with it joins `problems`."""
    data, shown = as_bytes(stored), printable(str(name))
    try:
        if key_of(data) != key:
            problems.append(Problem(str(key), shown, _NOT_ITS_KEY))
            return {}
        return recall_vectors(from_bytes(data, shown))
    except KinprintError as error:
        problems.append(Problem(str(key), shown, Text("its fingerprint cannot be read: {why}", why=_why(error))))
        return {}


def check_stored(
    head: Callable[[], Row], fingerprint: Callable[[], Row], vectors: Callable[[], Sequence[Row]], number: int
) -> Iterator[Problem]:
    """Yield what is wrong with one entry, given how to read its row (key, name, revision, record, seal), file and vectors."""
    key = name = None
    try:
        row = head()
        key, name = str(row[0]), printable(str(row[1]))
        entry = from_record(as_bytes(row[3]), name)
    except (KinprintError, IndexError) as error:
        yield Problem(key, name or f"#{number}", Text("its record cannot be read: {why}", why=_why(error)))
        return
    if (entry.key, entry.name, entry.revision or "") != (row[0], row[1], row[2]):
        yield Problem(key, name, Text("its record belongs to another entry, {other}", other=entry.name))
    yield from _check_vectors(entry, as_bytes(row[3]), str(row[4]), vectors)
    try:
        stored = fingerprint()
        data = as_bytes(stored[0]) if stored else b""
        if key_of(data) != entry.key:
            yield Problem(key, name, _NOT_ITS_KEY)
            return
        yield from disagreements(entry, from_bytes(data, name))
    except KinprintError as error:
        yield Problem(key, name, Text("its fingerprint cannot be read: {why}", why=_why(error)))


def _check_vectors(entry: Entry, record: bytes, sealed: str, read: Callable[[], Sequence[Row]]) -> Iterator[Problem]:
    try:
        vectors = {str(family): unpacked(as_bytes(data), str(family)) for family, data in read()}
    except FormatError as error:
        yield Problem(entry.key, entry.name, Text("its recall vectors cannot be read: {why}", why=_why(error)))
        return
    if seal(record, vectors) != sealed:
        yield Problem(entry.key, entry.name, Text("its record or its recall vectors changed in storage"))


def disagreements(entry: Entry, fingerprint: Fingerprint) -> Iterator[Problem]:
    """Yield what an entry says of a model and its fingerprint does not."""
    told = fingerprint.description
    pairs = (
        ("name", entry.name, told.model),
        ("revision", entry.revision, told.commit),
        ("architecture", entry.architecture, told.architecture),
        ("layers", entry.layers, told.layers),
        ("hidden", entry.hidden, told.hidden),
        ("parameters", entry.parameters, told.parameters),
        ("files", entry.files, told.files),
    )
    for field, said, found in pairs:
        if said != found:
            yield Problem(
                entry.key,
                entry.name,
                Text(
                    "{field} is {a} in its record and {b} in its fingerprint",
                    field=field,
                    a=printable(str(said), 80),
                    b=printable(str(found), 80),
                ),
            )


def _why(error: Exception) -> str:
    return error.message if isinstance(error, KinprintError) else "it is not there"
