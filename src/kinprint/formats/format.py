"""Recognise the files that hold weights by name and first bytes, and choose the best of a model's formats.

To add a format, write one module with a function `load` that turns a file into a `Shard` (its tensors and where their bytes are;
it reads headers only), and describe it as a `Format` in `kinprint.formats.all_formats`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field

from kinprint._util.records import dataclass
from kinprint.errors import FormatError
from kinprint.formats.checks import FOLDERS
from kinprint.formats.tensors import Row, TensorInfo
from kinprint.refs import ByteRange, shard_names
from kinprint.registry import Registry
from kinprint.sources.base import Folder, Source
from kinprint.sources.session import Session
from kinprint.text import Text

_BESIDE = re.compile(r"^(optimizer|scheduler|scaler|rng_state|training_args|trainer_state|global_step)", re.IGNORECASE)
_NUMBER = re.compile(r"-\d{5}(?=-of-\d{5}\.)")
FIRST_READ = 65_536  # without an index to predict from; 512 KB cost five times the bytes for no gain in time
MAGIC_BYTES = 64
MOST_NAMED = 4  # folders, in a note
ORIGIN = "origin"
"""Name of the document in which a file declares its model's origin, as a card would: base_models (a list), licence."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One weight file whose header has been read."""

    source: Source
    size: int
    header_bytes: int  # as far as it was read
    rows: Mapping[str, Row | TensorInfo]  # by name; ``file`` is the number that the file was loaded with
    further: tuple[Source, ...] = ()  # files that hold data of this one (ONNX's external data), numbered from 1 on
    config: Mapping[str, object] | None = None  # what the file says about the model, as a config.json spells it
    # JSON documents in the file, by their name in other models (tokenizer.json), made when asked for
    documents: Mapping[str, Callable[[], dict[str, object]]] = field(default_factory=dict)
    notes: tuple[Text, ...] = ()  # remarks for the report
    part: object = None  # data for the check of all files of the model together
    check: Callable[[Sequence[Shard]], None] | None = None  # given all files, refuses those that do not belong together


Loader = Callable[[Session, Folder, Source, int, int], Shard]
"""``(session, folder, source, number, first_read)``: read and check the header of `source`, the checkpoint's file `number`."""


@dataclass(frozen=True)
class Format:
    """A container of weights."""

    name: str  # what reports call it
    suffixes: tuple[str, ...]  # how its files' names end
    load: Loader  # reads a header
    index_names: tuple[str, ...] = ()  # JSON files that map tensors to shards (``weight_map``)
    single_names: tuple[str, ...] = ()  # names that are taken first where a model has several files
    accepts: Callable[[bytes], object] | None = (
        None  # tells, by the first bytes and its truth, for formats that share a suffix
    )
    rank: Callable[[str], tuple[int, str]] = lambda name: (0, name)  # orders files by name, a less quantised one first
    # all files that hold parts of one model with the one chosen, itself among them
    together: Callable[[str, Collection[str]], tuple[str, ...]] = lambda name, _: (name,)
    split_by_name: bool = False  # whether a part of a split file is useless alone (GGUF): naming one then means all

    def claims(self, name: str) -> bool:
        """Whether a file of this name could hold weights in this format; files that trainers leave beside them do not."""
        return name.lower().endswith(self.suffixes) and not _BESIDE.match(name.rsplit("/", 1)[-1])


FORMATS: Registry[Format] = Registry("format")


def format_of(name: str, first: Callable[[], bytes]) -> Format:
    """Return the format of a file, by its name and, where several share a suffix, by its first bytes."""
    claimed = [item for item in FORMATS.values() if item.claims(name)]
    if len(claimed) == 1 and claimed[0].accepts is None:
        return claimed[0]
    head = first()
    for item in claimed or FORMATS.values():
        if item.accepts is not None and item.accepts(head):
            return item
    if claimed:
        return claimed[0]  # its own reader says best what is wrong
    raise FormatError(f"{name}: no known format of weights (known: {_known_suffixes()})", hint="name a file of weights")


def _known_suffixes() -> str:
    return ", ".join(dict.fromkeys(suffix for item in FORMATS.values() for suffix in item.suffixes))


def load_file(session: Session, folder: Folder, name: str, source: Source, number: int, guess: int) -> Shard:
    """Read the header of a weight file, whatever its format."""
    found = format_of(name, lambda: bytes(session.read_here(source, ByteRange(0, min(MAGIC_BYTES, source.size)))))
    return found.load(session, folder, source, number, guess)


def check_one_format(names: Sequence[str], where: str) -> None:
    """Refuse an index whose shards have different formats: no tool writes one, and their tensors would be of two models."""
    first: dict[str, str] = {}
    for name in names:
        kinds = " or ".join(item.name for item in FORMATS.values() if item.claims(name))
        first.setdefault(kinds or "no known format", name)
    if len(first) > 1:
        shown = ", ".join(f"{name[:100]!r} ({kind})" for kind, name in list(first.items())[:3])
        said = f"{where}: the index names shards of different formats: {shown}"
        raise FormatError(said, hint="fetch the model again; or name one file with --file")


@dataclass(frozen=True)
class Choice:
    """The files of a model that are read, in order, and what was passed over."""

    names: tuple[str, ...]
    index_name: str | None
    passed_over: tuple[str, ...] = ()


def choose_files(listed: Collection[str], wanted: str | None, label: str) -> Choice:
    """Choose among the files of a model: the best format, and of it the best file or all shards that belong together."""
    if wanted is not None:
        split = any(item.claims(wanted) and item.split_by_name for item in FORMATS.values())
        return Choice(_with_siblings(wanted, listed) if split else (wanted,), None)
    folder = _folder_of_weights(listed)
    top = [name for name in listed if name.rpartition("/")[0] == folder]
    for item in FORMATS.values():
        index = next((name for name in _below(folder, item.index_names) if name in top), None)
        files = sorted(name for name in top if item.claims(name))
        if index is None and not files:
            continue
        chosen = () if index else _best(item, files, label)
        return Choice(chosen, index, (*_others(item, top, chosen), *_elsewhere(listed, folder)))
    ends = sorted({name.rsplit(".", 1)[-1] for name in listed if "." in name})
    said = f"{label}: no file of weights (it has: {', '.join(ends)[:200] or 'nothing'})"
    if foreign := next((name for name in sorted(listed) if _FOREIGN.search(name)), None):
        hint = f"{foreign[:100]!r} holds weights of TensorFlow, Keras or Flax: convert them; known formats: {_known_suffixes()}"
        raise FormatError(said, hint=hint)
    raise FormatError(said, hint=f"known formats: {_known_suffixes()}; a file in a folder below is named with --file")


_FOREIGN = re.compile(r"\.(?:ckpt\.index|ckpt\.meta|h5|keras|msgpack|tflite)$|(?:^|/)saved_model\.pb$")


def _folders(listed: Collection[str]) -> Counter[str]:
    """Count the files of weights in each folder, the model's own (empty) and those below."""
    return Counter(name.rpartition("/")[0] for name in listed if any(item.claims(name) for item in FORMATS.values()))


def _folder_of_weights(listed: Collection[str]) -> str:
    """Return the folder to look in: the model's own (empty), or the first known one below if that has no weights."""
    holds = _folders(listed)
    places = {word: at for at, word in enumerate(FOLDERS.pattern.split("|"))}
    known = sorted((places.get(name, 0), name) for name in holds if FOLDERS.fullmatch(name))
    return "" if "" in holds or not known else known[0][1]


def _elsewhere(listed: Collection[str], folder: str) -> list[str]:
    """Describe the other folders that hold weights: parts of a pipeline, other formats, checkpoints of the training."""
    others = sorted((name, count) for name, count in _folders(listed).items() if name != folder)
    told = [f"{count} in {name or '.'}/" for name, count in others[:MOST_NAMED]]
    return [*told, "…"] if len(others) > MOST_NAMED else told


def _below(folder: str, names: Sequence[str]) -> list[str]:
    return [f"{folder}/{name}" if folder else name for name in names]


def _best(item: Format, files: Sequence[str], label: str) -> tuple[str, ...]:
    if single := next((name for name in _below(files[0].rpartition("/")[0], item.single_names) if name in files), None):
        return (single,)
    groups: list[tuple[str, ...]] = []
    known, grouped = frozenset(files), set[str]()
    for name in sorted(files, key=item.rank):
        if name not in grouped:
            groups.append(_with_siblings(name, known))
            grouped.update(groups[-1])
        if len(groups) > 1:  # the best, and whether there is one
            break
    if len(groups) > 1 and item.rank(groups[0][0])[0] == item.rank(groups[1][0])[0]:
        said = f"{label}: {len(files)} {item.name} files and nothing to say which belong together"
        raise FormatError(said, hint="name the file you mean, for example --file " + groups[0][0])
    return item.together(groups[0][0], files) if len(groups[0]) == 1 else groups[0]


def _with_siblings(name: str, listed: Collection[str]) -> tuple[str, ...]:
    """Return all shards of the set that a file belongs to, as its name tells, or the file alone."""
    names = shard_names(name)
    missing = [other for other in names if other not in listed]
    if missing and listed:
        one = len(missing) == 1
        shown = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        said = f"{name} is one of {len(names)} files, but {shown} {'is' if one else 'are'} not there"
        raise FormatError(said, hint="fetch the missing file" + ("" if one else "s"))
    stem, others = _NUMBER.sub("", name), set(listed).difference(names) if len(names) > 1 else ()
    surplus = sorted(other for other in others if len(other) == len(name) and _NUMBER.sub("", other) == stem)
    if surplus:
        said = f"{name} is one of {len(names)} files, but {', '.join(surplus[:3])} is there too"
        raise FormatError(said, hint="remove what is left of another copy, and fetch the model again")
    return names


def _others(chosen: Format, listed: Sequence[str], names: Collection[str]) -> tuple[str, ...]:
    found = []
    for item in FORMATS.values():
        files = [name for name in listed if item.claims(name) and name not in names]
        if files and (item is not chosen or names):
            found.append(f"{len(files)} {item.name} ({', '.join(sorted(files)[:3])}{', …' if len(files) > 3 else ''})")
    return tuple(found)
