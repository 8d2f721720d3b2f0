"""Open a checkpoint: read the headers of all its shards and its config, and slices of its tensors on demand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import field, replace
from typing import TYPE_CHECKING

from kinprint._util.records import dataclass
from kinprint.errors import AccessDenied, FormatError, NotFound
from kinprint.formats.adapters.files import adapter_names, without_adapter
from kinprint.formats.all_formats import SAFETENSORS
from kinprint.formats.checks import CONFIG_NAME, read_above, read_json_of
from kinprint.formats.dtypes import PLAIN, Array
from kinprint.formats.execution import carry_out
from kinprint.formats.format import FIRST_READ, Shard, check_one_format, choose_files, load_file
from kinprint.formats.plan import ReadPlan, TensorSlice, plan_reads
from kinprint.formats.safetensors.parser import expected_header_bytes
from kinprint.formats.tensors import Row, TensorInfo, Tensors
from kinprint.refs import ModelRef, check_member_name
from kinprint.sources.base import CONFIG_CAP, SMALL_FILE_CAP, Folder, Provenance, Source
from kinprint.sources.session import Session
from kinprint.text import Text, joined

if TYPE_CHECKING:
    from kinprint.formats.adapters.opening import AdapterFiles


@dataclass(frozen=True, slots=True)
class WeightFile:
    """One file of weights, as recorded in the report."""

    name: str
    size: int
    identity: str
    header_bytes: int


@dataclass(frozen=True)
class Checkpoint:
    """A model whose headers have been read and whose tensors have not."""

    provenance: Provenance
    config: Mapping[str, object]
    files: tuple[WeightFile, ...]
    tensors: Tensors
    notes: tuple[Text, ...]
    session: Session = field(repr=False)
    folder: Folder = field(repr=False)
    sources: tuple[Source, ...] = field(repr=False)
    documents: Mapping[str, Callable[[], dict[str, object]]] = field(default_factory=dict, repr=False)
    adapter: bool = False  # an adapter's own tensors, or with a base the base's with the adapter added
    base: Checkpoint | None = field(default=None, repr=False)
    place: str = ""  # folder of the weights below the model's own, with its slash

    @property
    def label(self) -> str:
        """The model as the user named it."""
        return self.provenance.reference

    def read(self, slices: Sequence[TensorSlice]) -> list[Array]:
        """Plan and read slices of this checkpoint's tensors; arrays come back in the order asked for."""
        return execute_together([(self, plan_reads(slices))])[0]

    def read_json(self, name: str, *, cap: int = SMALL_FILE_CAP) -> dict[str, object] | None:
        """Return a small JSON file of the model (a tokenizer, say) within the budget, or None if it has none."""
        if name in self.documents:
            return self.documents[name]()
        return read_beside(self.session, self.folder, self.place, name, cap)


def read_beside(session: Session, folder: Folder, place: str, name: str, cap: int) -> dict[str, object] | None:
    """Return a small JSON file that lies beside the weights, or else in the model's own folder above them."""
    found = read_json_of(session, folder, place + name, cap=cap) if place else None
    found = read_json_of(session, folder, name, cap=cap) if found is None else found
    return read_above(session, folder, name, cap) if found is None and not place else found


def execute_together(plans: Sequence[tuple[Checkpoint, ReadPlan]]) -> list[list[Array]]:
    """Read the plans of several checkpoints of one session in one go: one wait for all of them."""
    if not plans:
        return []
    return carry_out(plans[0][0].session, [(checkpoint.sources, plan) for checkpoint, plan in plans])


def open_checkpoint(reference: str | ModelRef, session: Session, *, alone: bool = False) -> Checkpoint:
    """Open a model: pin it and read every header, no tensor. An adapter opens merged into its base, or `alone`."""
    ref = session.find(reference)
    folder = session.open_folder(ref)
    wanted = _wanted_file(ref, folder, session)
    found = _find_adapter(folder, wanted, session)
    if found is None:
        try:
            return _open_weights(folder, wanted, session)
        except (NotFound, AccessDenied):  # a web folder has no listing: only this shows that there is no whole model
            found = _find_adapter(folder, wanted, session, unlisted=True)
            if found is None:
                raise
    from kinprint.formats.adapters.opening import open_adapter  # which opens its base in turn

    return open_adapter(found, session, alone=alone)


def _find_adapter(
    folder: Folder, wanted: str | None, session: Session, *, unlisted: bool = False
) -> AdapterFiles | None:
    if not adapter_names(folder, wanted, unlisted=unlisted):
        return None
    from kinprint.formats.adapters.opening import find_adapter

    return find_adapter(folder, wanted, session, unlisted=unlisted)


def _open_weights(folder: Folder, wanted: str | None, session: Session) -> Checkpoint:
    """Open a whole model in three waves of requests, however many shards there are."""
    # The description; index, config and look-ups of all shards; headers, to which each shard goes on by itself.
    listed, label = folder.names, folder.provenance.reference
    listed = without_adapter(listed) if listed is not None and wanted is None else listed
    choice = None if listed is None and wanted is None else choose_files(listed or (), wanted, label)
    # The index goes first: the longest of the second wave, on the connection that is already warm. The
    # config is the last to be needed.
    candidates = SAFETENSORS.index_names if choice is None else (choice.index_name,) if choice.index_name else ()
    index_job = session.start(lambda: _weight_map(session, folder, candidates)) if candidates else None
    opened: dict[str, Source] = {}
    lookups = _look_up_ahead(session, folder, opened) if choice is not None and choice.index_name else {}
    place = "".join(((choice.index_name or choice.names[0]) if choice else "").rpartition("/")[:2])
    config_job = session.start(lambda: read_beside(session, folder, place, CONFIG_NAME, CONFIG_CAP))
    index = index_job.result() if index_job else {}
    index = {tensor: place + file for tensor, file in index.items()} if place else index
    names = sorted(set(index.values())) or list(choice.names if choice else SAFETENSORS.single_names[:1])
    check_one_format(names, label)
    sources = _open_all(folder, names, opened, from_index=bool(index))
    predicted = expected_header_bytes(index)

    def load(number: int) -> Shard:
        if names[number] in lookups:
            lookups[names[number]].result()  # queued before this job, so already done or under way
        guess = predicted.get(names[number], FIRST_READ)
        return load_file(session, folder, names[number], sources[number], number, guess)

    shards = session.map(load, range(len(names)))
    for check in dict.fromkeys(shard.check for shard in shards if shard.check):
        check(shards)
    tensors, files, notes = _gather(names, shards, index)
    if place and wanted is None:
        notes.append(Text("the model's own folder holds no weights: read from {name}", name=place))
    if choice is not None and choice.passed_over and wanted is None:
        chosen = choice.index_name or ", ".join(names[:3])
        also = joined(choice.passed_over)
        notes.append(Text("read from {name}; the model also has {other}: see --file", name=chosen, other=also))
    config = config_job.result()
    stated = next((shard.config for shard in shards if shard.config is not None), None)
    if config is None and stated is None:
        notes.append(Text("no config.json: architecture and head counts have to be guessed from names and shapes"))
    checkpoint = Checkpoint(
        folder.provenance,
        stated or config or {},
        tuple(files),
        tensors,
        tuple(notes),
        session,
        folder,
        (*sources, *(further for shard in shards for further in shard.further)),
        {name: make for shard in shards for name, make in shard.documents.items()},
        place=place,
    )
    if checkpoint.tensors.dtypes() <= PLAIN:  # every form of quantisation stores integers or 8-bit floats
        return checkpoint
    from kinprint.formats.quantised import assemble

    rows, quantised = assemble(checkpoint.tensors, checkpoint.config, checkpoint.read)
    return replace(checkpoint, tensors=Tensors(rows), notes=(*notes, *quantised)) if quantised else checkpoint


def _wanted_file(ref: ModelRef, folder: Folder, session: Session) -> str | None:
    """Return the file that the reference or the user names; a file named for all models counts where it exists."""
    if ref.file:
        return ref.file
    if ref.path is not None and ref.kind == "file":
        return ref.path.name
    if folder.provenance.kind == "url-file":
        return folder.provenance.location.rsplit("/", 1)[-1]
    listed = folder.names
    found = next((name for name in session.files if listed is None or name in listed), None)
    if found is not None:
        session.files_found.add(found)
    return found


def _look_up_ahead(session: Session, folder: Folder, opened: dict[str, Source]) -> dict[str, Future[None]]:
    """Begin to resolve the shards that a listing shows while the index is being read."""
    listed = folder.names or ()
    shards = sorted(n for n in listed if n.startswith("model-") and n.endswith(".safetensors") and "/" not in n)
    opened |= {name: folder.open(name) for name in shards}
    return {name: session.start(opened[name].prefetch) for name in shards}


def _weight_map(session: Session, folder: Folder, names: Sequence[str]) -> dict[str, str]:
    """Return tensor name to file name from the first index there is, or {} if the model has none."""
    for name in names:
        index = read_json_of(session, folder, name)
        if index is None:
            continue
        mapping = index.get("weight_map")
        where = f"{folder.provenance.reference}: {name}"
        if not isinstance(mapping, dict) or not mapping or not all(isinstance(v, str) for v in mapping.values()):
            said = f"{where} has no usable weight_map; expected tensor names with file names"
            raise FormatError(said, hint=f"fetch {name} again")
        hint = "no sound index does this; fetch the model again, from a source you trust"
        for file in set(mapping.values()):
            check_member_name(file, where=where, error=FormatError, hint=hint)
        return mapping
    return {}


def _open_all(folder: Folder, names: Sequence[str], opened: dict[str, Source], *, from_index: bool) -> list[Source]:
    sources = []
    for name in names:
        try:
            sources.append(opened.get(name) or folder.open(name))
        except NotFound as error:
            if not from_index:
                raise
            said = f"{folder.provenance.reference}: the index names {name!r}, which is not there"
            raise FormatError(said, hint="the model is incomplete; fetch the missing file") from error
    return sources


def _gather(
    names: Sequence[str], shards: Sequence[Shard], index: Mapping[str, str]
) -> tuple[Tensors, list[WeightFile], list[Text]]:
    rows: dict[str, Row | TensorInfo] = {}
    files: list[WeightFile] = []
    agreed = 0
    for name, shard in zip(names, shards, strict=True):
        twice = rows.keys() & shard.rows.keys()
        if twice and not name.endswith(".onnx"):  # exported encoders and decoders each have what they share
            first = next(names[at] for at, one in enumerate(shards) if min(twice) in one.rows)
            said = f"{shard.source.label}: tensor {min(twice)[:200]!r} is also stored in {first!r}"
            raise FormatError(said, hint="the shards do not belong together; fetch the model again")
        rows |= {key: row for key, row in shard.rows.items() if key not in twice} if twice else shard.rows
        agreed += list(map(index.get, shard.rows)).count(name)
        files.append(WeightFile(name, shard.size, shard.source.identity, shard.header_bytes))
    further = [source for shard in shards for source in shard.further]
    files += [WeightFile(source.label.rsplit("/", 1)[-1], source.size, source.identity, 0) for source in further]
    tensors = Tensors(rows)
    if agreed != len(index):
        stored = {name: names[tensor.file] for name, tensor in tensors.items()}
        for name, file in index.items():
            if (where := stored.get(name, "nowhere")) != file:
                said = f"the index puts tensor {name[:200]!r} in {file!r}, but it is stored in {where}"
                raise FormatError(said, hint="index and shards do not belong together; fetch the model again")
    extra = len(rows) - len(index) if index else 0
    notes = [Text("{n} stored tensors are not in the index; they are read all the same", n=extra)] if extra else []
    notes += dict.fromkeys(note for shard in shards for note in shard.notes)
    return tensors, files, notes
