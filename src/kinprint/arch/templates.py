"""Define compiled architecture files, and the normal form of tensor names by which their templates are looked up.

A large mixture of experts holds some 18,000 names. Names and templates alike are reduced to a key in which block and expert
indices are replaced by a placeholder, so that a name is recognised by one look-up in a dict.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase

from kinprint._util.records import dataclass
from kinprint.arch.roles import Role
from kinprint.text import Text

# Canonical decimal segments of at most four digits. Longer ones are no plausible index; as they are not replaced, their
# names match no template and end up unmapped, which is what a hostile name deserves.
_INDEX = re.compile(r"\.(0|[1-9][0-9]{0,3})(?=\.)")
_PLACEHOLDER = ".#"
_EXPERTS = re.compile(r"\.experts\.[0-9]{1,4}\.")
_EXPERT = ".experts.expert_"  # how Switch and NLLB write the number of an expert
# What training scripts and libraries put before a model's names. A number in it (sentence-transformers: `0.auto_model.`,
# `encoder.0.model.`) counts modules of a pipeline, not layers: no layer has a part that is called a model.
_WRAPPER = re.compile(
    r"(?:(?:[A-Za-z_]\w{0,40}\.){0,3}?\d{1,2}\.(?:auto_model\.|(?=(?:model|bert|roberta|encoder|transformer)\.)))"
    r"|(?:(?:module|_orig_mod|auto_model)\.)+"
)
_WRAPPED = 0.9  # share of names that must have it
NameKey = tuple[str, str]  # with a placeholder for every index, and for the first alone
LANGUAGE = "language"
ROLE_ORDER = {role: order for order, role in enumerate(Role)}


def name_key(name: str) -> tuple[str, tuple[int, ...]]:
    """Reduce a stored name to its key and the indices it contains."""
    parts = _INDEX.split(name)
    return _PLACEHOLDER.join(parts[::2]), tuple(map(int, parts[1::2]))


def wrapper_of(names: Iterable[str]) -> str:
    """Return what stands before nearly all names and is no part of the model: a wrapper's own name; empty without one."""
    found = Counter(match[0] if (match := _WRAPPER.match(name)) else "" for name in names)
    return next((each for each, count in found.items() if each and count >= _WRAPPED * found.total()), "")


def numbered_prefix(names: Collection[str]) -> str:
    """Return what stands before nearly all names and ends in a number that is no layer's, as layers are counted after it."""
    heads = [name[: match.end() + 1] if (match := _INDEX.search(name)) else "" for name in names]
    head, count = Counter(heads).most_common(1)[0] if heads else ("", 0)
    inner = {match[1] for name in names if name.startswith(head) and (match := _INDEX.search(name, len(head) - 1))}
    return head if count >= _WRAPPED * len(heads) and len(inner) > 1 and "expert" not in "".join(names) else ""


class NameForm:
    """Name without its first index, and the stored tensors that share that form and differ in the layer."""

    __slots__ = ("firsts", "indices", "key", "later", "literal", "names", "shapes")

    def __init__(self, name: str) -> None:
        self.key, indices = name_key(name)
        # later indices as they are: a template may name the second of three sublayers
        self.literal = _INDEX.sub(_PLACEHOLDER, name, 1) if len(indices) > 1 else self.key
        if len(indices) > 2:  # a sublayer's and an expert's (Switch)
            self.literal = _EXPERTS.sub(".experts.#.", self.literal)
        self.later = indices[1:]  # indices after the first
        self.indices = len(indices)
        self.names: list[str] = []
        self.firsts: list[int] = []  # the first index of each name, -1 if it has none
        self.shapes: list[tuple[int, ...]] = []


class NameForms:
    """The tensors of a checkpoint, gathered by form: what is found out about a form holds for all its names."""

    def __init__(self, stored: Mapping[str, tuple[int, ...]], wrapper: str | None = None) -> None:
        self.forms: list[NameForm] = []
        # by what stands before the first index, then by what follows it
        known: dict[str | None, dict[str, NameForm]] = {}
        tails: dict[str, NameForm] = {}
        head, length, first = "", 0, -1
        wrapper = wrapper_of(stored) if wrapper is None else wrapper
        for name, shape in stored.items():
            # Names mostly come by layer: then the head, up to and with the first index, is that of the name before.
            if first < 0 or not name.startswith(head):
                found = _INDEX.search(name, max(len(wrapper) - 1, 0) if name.startswith(wrapper) else 0)
                if found is None:
                    head, first, before = "", -1, None
                else:
                    head, first, before = name[: found.end() + 1], int(found[1]), name[: found.start()]
                length = len(head)
                tails = known.setdefault(before, {})
            form = tails.get(name[length:])
            if form is None:
                form = tails[name[length:]] = NameForm(name.removeprefix(wrapper).replace(_EXPERT, ".experts."))
                self.forms.append(form)
            form.names.append(name)
            form.firsts.append(first)
            form.shapes.append(shape)

    def counts(self) -> Counter[NameKey]:
        """Count the names of each key."""
        counts: Counter[NameKey] = Counter()
        for form in self.forms:
            counts[form.key, form.literal] += len(form.names)
        return counts


@dataclass(frozen=True, slots=True)
class Split:
    """Composition of a fused tensor: ``repeat`` groups (None: one) of ``parts`` in this order; sizes are names of dims."""

    repeat: str | None
    parts: tuple[tuple[Role, str], ...]


@dataclass(frozen=True, slots=True)
class NameRule:
    """Role and form of the tensors that match a template."""

    role: Role | None
    split: Split | None = None
    transposed: bool = False
    indices: int = 0  # that a name must have: the layer's comes first, the expert's second if it has one
    encoder: bool = False  # of the stack of layers that comes before the main one
    has_layer: bool = False
    has_expert: bool = False
    priority: int = 0  # of two names of one role the lower is taken
    offset: float = 0.0
    stacked: bool = False  # holds the matrices of all experts, along an axis before theirs

    @property
    def roles(self) -> tuple[Role, ...]:
        """The role, or those of the parts."""
        if self.split is not None:
            return tuple(role for role, _ in self.split.parts)
        return () if self.role is None else (self.role,)


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Names to leave out: a pattern with ``*`` at either end or both, and the reason."""

    pattern: str
    reason: Text
    packs: str | None  # of a quantiser's state: the suffix of the tensor beside it that then holds packed numbers
    optional: bool = False  # a buffer without weights, which a copy of the model may lack
    residual: tuple[int, ...] = ()  # stored axes that run along the residual stream, as far as is known


@dataclass(frozen=True, slots=True)
class Condition:
    """A rule for a dim that applies only if a flag of the config is set."""

    flag: str
    default: bool
    then: tuple[DimRule, ...]


@dataclass(frozen=True, slots=True)
class Formula:
    """A product or quotient of other dims, evaluated from the left; a quotient must be exact."""

    terms: tuple[tuple[str, str], ...]  # operator, dim


DimRule = str | int | Formula | Condition


@dataclass(frozen=True, slots=True)
class Architecture:
    """An architecture file, validated and compiled."""

    name: str
    summary: str
    model_types: tuple[str, ...]
    class_names: tuple[str, ...]
    dims: Mapping[str, tuple[DimRule, ...]]
    rules: Mapping[str, NameRule]
    block_heads: frozenset[str]  # what stands before the block index, with every prefix
    exclusions: tuple[Exclusion, ...]
    tower: str  # what the model works on: language, vision, audio
    special: int  # how much the file says; of two files that fit equally well the plainer one is taken
    fixed_positions: bool = False  # sinusoids, added to the residual stream: its dimensions have an order

    def rule(self, key: str) -> NameRule | None:
        """Look a key up."""
        return self.rules.get(key)

    def exclusion(self, key: str) -> Exclusion | None:
        """Return the first exclusion that a name or key falls under."""
        return next((each for each in self.exclusions if fnmatchcase(key, each.pattern)), None)
