"""Check that the names in a bundle mean what was opened: a report is about named models, not about bytes alone."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from kinprint._util.plain import printable
from kinprint.errors import BadReference, BadSetting
from kinprint.refs import ModelRef, is_weights, parse_ref, shown
from kinprint.results.verification import Problem
from kinprint.sources.base import Provenance
from kinprint.sources.ledger import Lookup, ReadingRecord, SourceRecord
from kinprint.sources.settings import Settings
from kinprint.text import Text, verbatim

COMMIT = re.compile(r"[0-9a-f]{40}\Z")
LOCAL = ("folder", "file")
WEB = ("url-file", "url-folder")
_HUB, _ADDRESS = "hf://", ("http://", "https://")
_CUT = "\N{HORIZONTAL ELLIPSIS}"  # where a secret part of an address was left out
_BASE = "base of "  # how the look-up of a base that an adapter declares begins


def endpoint_of(source: SourceRecord) -> str:
    """Return the hub that a repository was read from; BadReference if the location is not on any hub."""
    end = f"/{source.repo}"
    if source.provenance is None or source.repo is None or not source.location.endswith(end):
        raise BadReference("the location is not that of the repository")
    endpoint = source.location.removesuffix(end)
    try:
        Settings(endpoint=endpoint)
    except BadSetting as error:
        raise BadReference("the location is on no hub") from error
    return endpoint


def check_names(record: ReadingRecord) -> dict[int, list[Problem]]:
    """Return, by the number of the source, where a model's name, kind, location, revision and commit contradict each other."""
    free = _of_bases(record)
    found = {
        number: list(_contradictions(source, free_revision=number in free))
        for number, source in enumerate(record.sources)
    }
    for item in record.lookups:
        if item.source is not None and not _means(item, record.sources[item.source]):
            stands_for = Text("stands for {name}", name=record.sources[item.source].text)
            found[item.source].append(Problem("source", item.what, Text("a name"), stands_for))
    return {number: problems for number, problems in found.items() if problems}


def declared_revisions(record: ReadingRecord) -> list[SourceRecord]:
    """Return the bases of which an adapter is said to declare the revision: their own names do not have it."""
    bases = [record.sources[number] for number in sorted(_of_bases(record)) if record.sources[number].kind == "hub"]
    return [base for base in bases if base.revision is not None and not base.text.endswith(f"@{base.revision}")]


def _of_bases(record: ReadingRecord) -> set[int]:
    named = {item.source for item in record.lookups if not item.what.startswith(_BASE)}
    return {item.source for item in record.lookups if item.source is not None and item.source not in named}


def _contradictions(source: SourceRecord, *, free_revision: bool) -> Iterator[Problem]:
    try:
        parsed = _parse(source)
    except (BadReference, ValueError):
        yield Problem("source", source.text, Text("a {kind}", kind=source.kind), Text("no name of one"))
        return
    revision = source.revision if free_revision and parsed.revision is None else parsed.revision
    pairs = [
        ("kind", source.kind, parsed.kind),
        ("repository", source.repo, parsed.repo),
        ("revision", source.revision, revision),
        ("file", source.file, parsed.file),
    ]
    where = source.provenance
    pairs += [] if where is None else _places(source, where)
    for what, recorded, meant in pairs:
        if recorded != meant:
            yield Problem("source", f"{source.text}: {what}", verbatim(str(recorded)), _by_name(meant))
    for file in source.files:  # what a file is called in messages, which a report may quote
        label = _label(source, where, file.name) if where is not None else file.name
        if file.label not in (label, file.name) or (source.kind == "hub" and file.label != label):
            yield Problem("source", f"{source.text}: label of {file.name}", verbatim(file.label), _by_name(label))


def _by_name(meant: str | None) -> Text:
    return Text("{what}, by its name", what=str(meant))


def _label(source: SourceRecord, where: Provenance, name: str) -> str:
    if source.kind == "hub":
        return f"{source.repo}@{(where.commit or '')[:8]}/{printable(name)}"
    if source.kind in LOCAL:
        folder = Path(where.location)
        return str((folder if source.kind == "folder" else folder.parent) / name)
    folder_url, _, last = where.location.rpartition("/")
    if where.kind == "url-file":
        return where.location if name == last else f"{folder_url}/{quote(name)}"
    return f"{where.location.rstrip('/')}/{quote(name)}"


def _parse(source: SourceRecord) -> ModelRef:
    """Read the name as `parse_ref` does, without a look at what is on this machine."""
    text = source.text
    if source.kind in LOCAL:
        if not text or text.startswith((_HUB, *_ADDRESS)):
            raise BadReference("no path")
        return ModelRef(text, source.kind)
    if source.kind == "url":
        if not text.startswith(_ADDRESS) or shown(text) != text:
            raise BadReference("no address")
        return ModelRef(text, "url")
    if source.kind != "hub":
        raise BadReference("no kind of model")
    if text.startswith((_HUB, *_ADDRESS)):
        return parse_ref(text, endpoint=endpoint_of(source) if source.provenance is not None else Settings().endpoint)
    name, _, revision = text.partition("@")
    ref = parse_ref(f"hf://models/{name}", endpoint=Settings().endpoint)
    if "/" not in name or ref.file is not None:
        raise BadReference("no repository")
    return ModelRef(text, "hub", repo=ref.repo, revision=revision or None)


def _places(source: SourceRecord, where: Provenance) -> list[tuple[str, str | None, str | None]]:
    """Return what the provenance says beside what the name makes of it."""
    kind, location = source.kind, source.text
    revision = commit = None
    if source.kind == "hub":
        try:
            location = shown(f"{endpoint_of(source)}/{source.repo}")
        except (BadReference, ValueError):
            location = "no hub's"
        revision = source.revision or "main"
        fits = COMMIT.match(where.commit or "") and (not COMMIT.match(revision) or revision == where.commit)
        commit = where.commit if fits else "no such commit"
    elif source.kind == "url":
        kind = "url-file" if is_weights(source.text) else "url-folder"
    else:
        location = str(Path(source.text))
        rest = location.partition("/")[2]
        # whose home a path begins at is not known here
        if source.text.startswith("~") and Path(where.location).is_absolute() and where.location.endswith(rest):
            location = where.location
    meant = Provenance(source.text, kind, location, revision, commit)
    names = ("reference", "kind", "location", "revision", "commit")
    return [(name, getattr(where, name), getattr(meant, name)) for name in names]


def _means(item: Lookup, source: SourceRecord) -> bool:
    what, text = item.what, source.text
    if what.startswith(_BASE):
        return what.endswith((f": {text}", f": {text.removeprefix('hf://')}"))
    if what == text:
        return True
    if not what.startswith(_ADDRESS):
        return False
    try:  # of an address that may be secret in part, less was noted than what names it
        return what.endswith(f"://{_CUT}") or shown(what.removesuffix(_CUT)) == text
    except ValueError:
        return False
