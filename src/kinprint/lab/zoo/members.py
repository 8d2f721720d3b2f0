"""Describe a member of the zoo: its name, its parents and what it has of them, and how it is made; as JSON and back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from kinprint.errors import SchemaError
from kinprint.lab.zoo.derive import Config, State, TokenizerJson

# Halves of the stack stand apart, because two models may each have another half of a third and share nothing.
COMPONENTS = ("embeddings", "lower", "upper", "lower_norms", "upper_norms")
NORM_PARTS = ("lower_norms", "upper_norms")
BODY = frozenset({"lower", "upper"})
RELATIONS = ("base", "derived", "merged", "distilled", "same_init", "transplant")
# Part of every key: raise it when training or an edit comes to give other weights for the same entry.
FORMAT = 1


class Loaded(NamedTuple):
    """A model in memory."""

    state: State
    config: Config
    tokenizer: TokenizerJson | None


@dataclass(frozen=True, slots=True)
class Link:
    """Inheritance from another member: weights of the named components, initial weights, or outputs alone."""

    parent: str
    kind: str = "weights"
    shares: tuple[str, ...] = COMPONENTS
    weight: float = 1.0  # the parent's share in a merge

    def __post_init__(self) -> None:
        if self.kind not in ("weights", "init", "outputs"):
            raise SchemaError(f"zoo: a link of kind {self.kind!r}, expected weights, init or outputs")
        unknown = sorted(set(self.shares) - set(COMPONENTS))
        if unknown:
            raise SchemaError(f"zoo: a link shares {', '.join(unknown)}, expected some of {', '.join(COMPONENTS)}")


@dataclass(frozen=True, slots=True)
class Bundled:
    """The member lies in a folder that came with the zoo."""

    folder: str


@dataclass(frozen=True, slots=True)
class Edit:
    """The member is made from its parents by a function of `kinprint.lab.zoo.edits`."""

    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Training:
    """The member is trained: from its first parent's weights, or from ``init_seed`` if it has no parent.

    ``tokenizer`` names the corpora of a tokenizer of its own; without it the parent's is kept. ``lora_rank`` above zero
    trains adapters and merges them. ``shape`` holds sizes other than `kinprint.lab.zoo.tinylm.TinyShape`'s defaults.
    """

    corpora: tuple[str, ...]
    steps: int
    learning_rate: float
    data_seed: int
    init_seed: int | None = None
    tokenizer: tuple[str, ...] | None = None
    lora_rank: int = 0
    shape: Mapping[str, int] = field(default_factory=dict)
    batch: int = 8
    sequence: int = 64


How = Bundled | Edit | Training
_KINDS: dict[str, type[How]] = {"bundled": Bundled, "edit": Edit, "training": Training}


@dataclass(frozen=True, slots=True)
class ZooMember:
    """One model of the zoo.

    ``attack`` is a short stable name of what was done to the parent, ``strength`` how much of it where that is a number
    (for training, steps times peak learning rate). ``preserves_function`` says that the member computes what its first
    parent does, but for rounding to ``dtype``.
    """

    name: str
    relation: str
    attack: str
    how: How
    links: tuple[Link, ...] = ()
    strength: float | None = None
    preserves_function: bool = False
    seed: int | None = None
    dtype: str = "BF16"

    def __post_init__(self) -> None:
        if self.relation not in RELATIONS:
            expected = ", ".join(RELATIONS)
            raise SchemaError(f"zoo: {self.name} has relation {self.relation!r}, expected one of {expected}")

    @property
    def parents(self) -> tuple[str, ...]:
        """Return the names of the models whose weights the member has, the main one first."""
        return tuple(link.parent for link in self.links if link.kind == "weights")

    @property
    def teacher(self) -> str | None:
        """Return the name of the model whose outputs the member learnt, if any."""
        return next((link.parent for link in self.links if link.kind == "outputs"), None)

    @property
    def needs(self) -> tuple[str, ...]:
        """Return the names of the models that must be there to make the member."""
        return (*self.parents, *([self.teacher] if self.teacher else []))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {**asdict(self), "how": _how_dict(self.how)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ZooMember:
        """Read what `to_dict` gave, lists for tuples. Raise SchemaError if something is missing, unknown or of a wrong type."""
        try:
            links = tuple(Link(**{**link, "shares": tuple(link["shares"])}) for link in data["links"])
            made = dict(data["how"])
            maker: Callable[..., How] = _KINDS[made.pop("kind")]
            how = maker(**{k: tuple(v) if isinstance(v, list) else v for k, v in made.items()})
            return cls(**{**data, "links": links, "how": how})
        except (KeyError, TypeError) as error:
            raise SchemaError(f"zoo: an entry is not a member: {error}", hint="build the zoo anew") from error


def _how_dict(how: How) -> dict[str, Any]:
    kind = next(kind for kind, made in _KINDS.items() if isinstance(how, made))
    return {"kind": kind, **asdict(how)}


def key_of(member: ZooMember, keys: Mapping[str, str]) -> str:
    """Return the hash of all that decides a member's weights, given the keys of those it is made from."""
    content = {
        "format": FORMAT,
        "how": _how_dict(member.how),
        "seed": member.seed,
        "dtype": member.dtype,
        "parents": [keys[name] for name in member.parents],
        "teacher": keys[member.teacher] if member.teacher else None,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def keys_of(members: Mapping[str, ZooMember]) -> dict[str, str]:
    """Return every member's key. Raise SchemaError if one is made from another that does not come before it (or of a cycle)."""
    keys: dict[str, str] = {}
    for member in members.values():
        for link in member.links:
            if link.parent not in keys:
                raise SchemaError(f"zoo: {member.name} comes from {link.parent}, which does not come before it")
        keys[member.name] = key_of(member, keys)
    return keys
