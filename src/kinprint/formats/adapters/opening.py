"""Open an adapter: by itself, or merged into the base that it declares or that was given."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kinprint._util.plain import printable
from kinprint.errors import AccessDenied, BadReference, FormatError, NotFound, SourceError
from kinprint.formats.adapters import config
from kinprint.formats.adapters.config import GIVE_BASE, LoraSettings, read_settings
from kinprint.formats.adapters.files import adapter_names
from kinprint.formats.adapters.lora import merge, read_adapter
from kinprint.formats.checkpoint import Checkpoint, WeightFile, open_checkpoint
from kinprint.formats.checks import read_json_of
from kinprint.formats.format import FIRST_READ, load_file
from kinprint.formats.tensors import Tensors
from kinprint.sources.base import CONFIG_CAP, Folder, Source
from kinprint.sources.session import Session
from kinprint.text import Text

_LOCAL = ("folder", "file")


@dataclass(frozen=True)
class AdapterFiles:
    """Config and weight file of an adapter; nothing of the weights has been read yet."""

    folder: Folder
    document: Mapping[str, object]
    name: str
    source: Source

    @property
    def label(self) -> str:
        """The adapter as the user named it."""
        return self.folder.provenance.reference


def find_adapter(folder: Folder, wanted: str | None, run: Session, *, unlisted: bool = False) -> AdapterFiles | None:
    """Return the adapter in a folder, or that the `wanted` file belongs to; `unlisted`: ask for its usual files."""
    names = adapter_names(folder, wanted, unlisted=unlisted)
    if not names:
        return None
    document = read_json_of(run, folder, names[0], cap=CONFIG_CAP)
    return None if document is None else AdapterFiles(folder, document, *_first(folder, names[1:]))


def _first(folder: Folder, names: Sequence[str]) -> tuple[str, Source]:
    for name in names[:-1]:
        source = folder.open(name)
        try:
            source.prefetch()  # where nothing lists the files, only asking tells
        except (NotFound, AccessDenied):
            continue
        return name, source
    return names[-1], folder.open(names[-1])


def open_adapter(found: AdapterFiles, session: Session, *, alone: bool) -> Checkpoint:
    """Open an adapter as the tensors it stores, or as its base with the adapter added: the first base given that it fits."""
    if alone:
        return _open_alone(found, session)
    settings = read_settings(found.document, found.label)
    if not session.bases:
        return _merged(_declared(found, settings, session), "declared", found, settings, session)
    problem: FormatError | None = None
    for given in session.bases:
        try:
            return _merged(open_checkpoint(given, session, alone=True), "given", found, settings, session)
        except FormatError as error:
            problem = error
    assert problem is not None
    raise problem


def _open_alone(found: AdapterFiles, session: Session) -> Checkpoint:
    """Open an adapter without its base: its own tensors, and what is known of it in a note."""
    shard = load_file(session, found.folder, found.name, found.source, 0, FIRST_READ)
    try:
        settings = read_settings(found.document, found.label)
        text = read_adapter(shard.rows, settings, found.label).describe(settings)
    except FormatError as error:  # the adapter cannot be merged, but can be inspected
        text = error.reason
    base = printable(config.declared_base(found.document) or "", 120)
    note = Text("{adapter}; its base, {base} (declared), was not read: see --base", adapter=text, base=base)
    if not base:
        note = Text("{adapter}; it does not name its base: see --base", adapter=text)
    file = WeightFile(found.name, shard.size, found.source.identity, shard.header_bytes)
    tensors, notes, folder = Tensors(shard.rows), (note, *shard.notes), found.folder
    return Checkpoint(folder.provenance, {}, (file,), tensors, notes, session, folder, (found.source,), adapter=True)


def _declared(found: AdapterFiles, settings: LoraSettings, session: Session) -> Checkpoint:
    label, name = found.label, settings.base
    if name is None:
        raise FormatError(f"{label}: the adapter does not name its base", hint=GIVE_BASE)
    here = found.folder.provenance.kind in _LOCAL
    endpoint = session.settings.endpoint
    ref = session.look_up(
        f"base of {label}: {name}",  # which may be a path that is there or not
        lambda: config.base_reference(name, settings.revision, here=here, label=label, endpoint=endpoint),
    )
    try:
        return open_checkpoint(ref, session, alone=True)
    except (SourceError, BadReference, FormatError) as error:
        said = f"{label}: its base {printable(name, 120)!r} (declared) could not be opened: {error.message}"
        raise type(error)(said, hint=GIVE_BASE) from error


def _merged(base: Checkpoint, how: str, found: AdapterFiles, settings: LoraSettings, session: Session) -> Checkpoint:
    """Add an adapter to its base. The adapter's file comes last: tensors made of others know the base's files by number."""
    folder, label = found.folder, found.label
    if base.adapter:
        raise FormatError(f"{label}: its base, {printable(base.label)} ({how}), is an adapter itself", hint=GIVE_BASE)
    shard = load_file(session, folder, found.name, found.source, len(base.sources), FIRST_READ)
    adapter = read_adapter(shard.rows, settings, label)
    tied = base.config.get("tie_word_embeddings") is not False
    rows, notes = merge(base.tensors, adapter, settings, tied=tied, label=label, base_label=base.label)
    adapted, name = adapter.describe(settings), printable(base.label)
    declared = Text("{adapter}; merged into {base} (declared)", adapter=adapted, base=name)
    said = declared if how == "declared" else Text("{adapter}; merged into {base} (given)", adapter=adapted, base=name)
    # a single file's companions are listed whether they are there or not
    own_tokenizer = "tokenizer.json" in (folder.names or ()) and folder.provenance.kind != "url-file"
    return replace(
        base,
        provenance=folder.provenance,
        files=(*base.files, WeightFile(found.name, shard.size, found.source.identity, shard.header_bytes)),
        tensors=Tensors(rows),
        notes=(said, *notes, *shard.notes, *(Text("base: {note}", note=note) for note in base.notes)),
        folder=folder if own_tokenizer else base.folder,
        sources=(*base.sources, found.source),
        documents={} if own_tokenizer else base.documents,
        adapter=True,
        base=base,
    )


def shared_base(a: Checkpoint, b: Checkpoint) -> Text | None:
    """Say that two models are equal by construction but for an adapter; None if they are not."""
    why = Text("all that no adapter changes is equal by construction, and shows nothing about how they were trained")
    if a.base is not None and b.base is not None and _place(a.base) == _place(b.base):
        name = printable(a.base.label)
        return Text("A and B are adapters merged into the same base, {name}: {why}", name=name, why=why)
    for one, other, adapter, base in ((a, b, "B", "A"), (b, a, "A", "B")):
        if other.base is not None and _place(one) == _place(other.base):
            return Text("{one} is an adapter merged into {other} itself: {why}", one=adapter, other=base, why=why)
    return None


def _place(item: Checkpoint) -> tuple[object, ...]:
    """Return what two checkpoints share if their files are the same."""
    where = item.provenance
    place = os.path.realpath(where.location) if where.kind in _LOCAL else where.location
    return where.kind, place, where.commit, [(file.name, file.size, file.identity) for file in item.files]
