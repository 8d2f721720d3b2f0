"""Tell how any two members of a zoo are related, and read and write zoo.json, which records a whole zoo.

Relations follow from the links of each member (`kinprint.lab.zoo.members.Link`) and from nothing else:

- ``same``: one member twice
- ``derived``: one is an ancestor of the other, matrices of its layers among what was handed down
- ``siblings``: both have such matrices of a common ancestor
- ``partial``: what they share of an ancestor is embeddings or norms alone, or the initial weights of embeddings
- ``same_init``: the same initial weights, trained apart
- ``distilled``: one learnt the outputs of the other (or of its kin), or both of one teacher; the weights are independent
- ``independent``: nothing of the above
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kinprint.errors import BadReference, SchemaError
from kinprint.lab.zoo.members import BODY, COMPONENTS, ZooMember, keys_of

SCHEMA_VERSION = 1
EMBEDDINGS = frozenset({"embeddings"})
KINDS = ("same", "derived", "siblings", "partial", "same_init", "distilled", "independent")


class Relations:
    """The relations between the members of one zoo."""

    def __init__(self, members: Mapping[str, ZooMember]) -> None:
        self._members = members
        self._ancestors: dict[str, dict[str, frozenset[str]]] = {}
        for member in members.values():
            self._ancestors[member.name] = self._inherited(member)

    def _inherited(self, member: ZooMember) -> dict[str, frozenset[str]]:
        """Return which components a member has of each ancestor, itself included."""
        found: dict[str, frozenset[str]] = {member.name: frozenset(COMPONENTS)}
        for link in member.links:
            if link.kind != "weights":
                continue
            for ancestor, parts in self._ancestors[link.parent].items():
                passed = parts.intersection(link.shares)
                if passed:
                    found[ancestor] = found.get(ancestor, frozenset()) | passed
        return found

    def _of(self, name: str) -> dict[str, frozenset[str]]:
        if name not in self._ancestors:
            raise BadReference(f"the zoo has no member {name!r}", hint=f"it has {len(self._members)}: see Zoo.members")
        return self._ancestors[name]

    def shared(self, a: str, b: str) -> frozenset[str]:
        """Return the components that two members both have of one ancestor, be it one of them."""
        first, second = self._of(a), self._of(b)
        parts = [first[name] & second[name] for name in first.keys() & second.keys()]
        return frozenset().union(*parts)

    def relation(self, a: str, b: str) -> str:
        """Return the closest of `KINDS` that holds, whatever the order of the two. Raise BadReference if one is no member."""
        first, second = self._of(a), self._of(b)
        if a == b:
            return "same"
        if BODY & (first.get(b, frozenset()) | second.get(a, frozenset())):
            return "derived"
        shared = self.shared(a, b)
        if BODY & shared:
            return "siblings"
        if shared:
            return "partial"
        if self._linked(a, b, "init"):
            return "same_init"
        if self._linked(a, b, "init", EMBEDDINGS):
            return "partial"
        return "distilled" if self._linked(a, b, "outputs") else "independent"

    def _linked(self, a: str, b: str, kind: str, parts: frozenset[str] = BODY) -> bool:
        """Return whether layers (or other parts) of the two go back to one initialisation, or one model's outputs, by a link."""
        (first, first_ends), (second, second_ends) = self._sources(a, kind, parts), self._sources(b, kind, parts)
        return bool(first_ends & (second | second_ends) or second_ends & first)

    def _sources(self, name: str, kind: str, wanted: frozenset[str]) -> tuple[set[str], set[str]]:
        """Return the ancestors of which a member has these parts, and the models those were initialised like or taught by."""
        holders = {ancestor for ancestor, parts in self._of(name).items() if wanted & parts}
        links = [link for ancestor in holders for link in self._members[ancestor].links if link.kind == kind]
        return holders, {link.parent for link in links}


@dataclass(frozen=True)
class Record:
    """Content of zoo.json: the members, the folders of the stored ones, and the versions that made them.

    ``stored`` gives for each stored member its folder, relative to the file, and the sha256 of its files; ``measured`` what
    was measured when it was trained, losses among it.
    """

    tier: str
    command: str
    versions: Mapping[str, str]
    members: Mapping[str, ZooMember]
    stored: Mapping[str, tuple[str, Mapping[str, str]]]
    measured: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """Return the file's content, the same for the same record."""
        keys = keys_of(self.members)
        entries = []
        for name, member in self.members.items():
            entry: dict[str, Any] = {**member.to_dict(), "key": keys[name]}
            if name in self.stored:
                folder, hashes = self.stored[name]
                entry["stored"] = {"folder": folder, "sha256": dict(hashes)}
            if name in self.measured:
                entry["measured"] = dict(self.measured[name])
            entries.append(entry)
        content = {
            "schema_version": SCHEMA_VERSION,
            "note": "Small models whose relations are known by construction; see kinprint.lab.zoo.relations.",
            "tier": self.tier,
            "command": self.command,
            "versions": dict(self.versions),
            "members": entries,
        }
        return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()

    @classmethod
    def from_json(cls, data: bytes) -> Record:
        """Read what `to_json` gave. Raise SchemaError if malformed, of another version, or with a key not of its entry."""
        try:
            content = json.loads(data)
            version = content["schema_version"]
        except (ValueError, KeyError, TypeError) as error:
            raise SchemaError(f"zoo.json cannot be read: {error}", hint="build the zoo anew") from error
        if version != SCHEMA_VERSION:
            said = f"zoo.json is of schema version {version}, this program knows {SCHEMA_VERSION}"
            raise SchemaError(said, hint="build the zoo anew")
        try:
            record = cls._from_entries(content)
        except (KeyError, TypeError, AttributeError) as error:
            raise SchemaError(f"zoo.json lacks something: {error}", hint="build the zoo anew") from error
        keys = keys_of(record.members)
        for entry in content["members"]:
            if entry.get("key") != keys[entry["name"]]:
                raise SchemaError(
                    f"zoo.json: the key of {entry['name']} is not that of its entry", hint="build it anew"
                )
        return record

    @classmethod
    def _from_entries(cls, content: Mapping[str, Any]) -> Record:
        members: dict[str, ZooMember] = {}
        stored: dict[str, tuple[str, Mapping[str, str]]] = {}
        measured: dict[str, Mapping[str, Any]] = {}
        for entry in content["members"]:
            plain = {key: value for key, value in entry.items() if key not in ("key", "stored", "measured")}
            member = ZooMember.from_dict(plain)
            if member.name in members:
                raise SchemaError(f"zoo.json has two members called {member.name}")
            members[member.name] = member
            if "stored" in entry:
                stored[member.name] = entry["stored"]["folder"], dict(entry["stored"]["sha256"])
            if "measured" in entry:
                measured[member.name] = dict(entry["measured"])
        return cls(content["tier"], content["command"], dict(content["versions"]), members, stored, measured)
