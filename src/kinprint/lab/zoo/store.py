"""Open a zoo and load its members by name: from their folders, or made in memory from those that have one."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

from kinprint.errors import BadReference, FormatError, NotFound
from kinprint.lab.zoo.derive import load_state, save_state
from kinprint.lab.zoo.edits import apply_edit
from kinprint.lab.zoo.members import Edit, Loaded, ZooMember
from kinprint.lab.zoo.relations import Record, Relations

FILE = "zoo.json"
# Each takes 3 MB in memory; children are asked for parent by parent, so few are needed at a time.
KEPT = 24


class Zoo:
    """Models with known relations: trained ones in folders, all others made when asked for, rounded as if stored."""

    def __init__(self, folder: Path, record: Record) -> None:
        self.folder = folder
        self.record = record
        self.members: Mapping[str, ZooMember] = record.members
        self._relations = Relations(record.members)
        self._kept: OrderedDict[str, Loaded] = OrderedDict()

    @classmethod
    def open(cls, folder: Path | str) -> Zoo:
        """Open the zoo of a folder. Raise NotFound without a zoo.json, SchemaError if malformed or of another version."""
        file = Path(folder) / FILE
        if not file.is_file():
            raise NotFound(f"{file} does not exist", hint="build the zoo first")
        return cls(Path(folder), Record.from_json(file.read_bytes()))

    def relation(self, a: str, b: str) -> str:
        """Return how two members are related: one of `kinprint.lab.zoo.relations.KINDS`."""
        return self._relations.relation(a, b)

    def shared(self, a: str, b: str) -> frozenset[str]:
        """Return the components (`kinprint.lab.zoo.members.COMPONENTS`) that two members have of a common ancestor."""
        return self._relations.shared(a, b)

    def load(self, name: str) -> Loaded:
        """Return a member's tensors in float32 (kept, and not writable), its config and its tokenizer.json.

        Raise BadReference if there is no such member, NotFound if its folder, or that of an ancestor, is not there.
        """
        if name in self._kept:
            self._kept.move_to_end(name)
            return self._kept[name]
        member = self._member(name)
        if name in self.record.stored:
            loaded = Loaded(*load_state(self._stored(name)))
        elif isinstance(member.how, Edit):
            loaded = apply_edit(member, [self.load(parent) for parent in member.parents])
        else:
            raise NotFound(f"{name} is trained and not stored in {self.folder}", hint="build the zoo first")
        for value in loaded.state.values():
            value.setflags(write=False)
        self._kept[name] = loaded
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return loaded

    def write(self, name: str, folder: Path) -> None:
        """Write a member as a model folder, in the type it is stored in."""
        state, config, tokenizer = self.load(name)
        save_state(folder, state, config, tokenizer, self._member(name).dtype)

    def verify(self) -> None:
        """Check every stored file against its hash. Raise NotFound if one is missing, FormatError if one is changed."""
        for name, (_, hashes) in self.record.stored.items():
            if hashes != hashes_of(self._stored(name), list(hashes)):
                raise FormatError(f"the files of {name} are not those that were recorded", hint="build the zoo anew")

    def _member(self, name: str) -> ZooMember:
        if name not in self.members:
            raise BadReference(f"the zoo has no member {name!r}", hint=f"it has {len(self.members)}: see Zoo.members")
        return self.members[name]

    def _stored(self, name: str) -> Path:
        folder = self.folder / self.record.stored[name][0]
        if not (folder / "model.safetensors").is_file():
            raise NotFound(f"{name} is not in {folder}", hint="build the zoo anew")
        return folder


def hashes_of(folder: Path, files: list[str]) -> dict[str, str]:
    """Return the sha256 of each of these files. Raise NotFound if one is missing."""
    try:
        return {file: hashlib.sha256((folder / file).read_bytes()).hexdigest() for file in files}
    except FileNotFoundError as error:
        raise NotFound(f"{error.filename} does not exist", hint="build the zoo anew") from error
