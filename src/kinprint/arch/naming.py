"""Define the roles found for the tensors of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from kinprint._util.records import dataclass
from kinprint.arch.roles import Role
from kinprint.text import Text

TensorKey = tuple[Role, int | None, int | None]  # role, layer, expert: no two tensors of a model have the same


class RoleTensor(NamedTuple):  # a tuple: a large model has 18,000 of them, and it is made three times as fast
    """One role, and the stored tensor, or part of a tensor, that has the role."""

    role: Role
    layer: int | None  # the block index as stored
    expert: int | None
    name: str  # stored; ``X[3]`` for the matrix of expert 3 in a stack X, which is looked up like any other tensor
    shape: tuple[int, ...]  # logical shape, out × in, after splitting and transposing
    # half-open index intervals along stored axis ``axis`` that make up this role; None for the whole tensor
    rows: tuple[tuple[int, int], ...] | None
    axis: int  # the stored axis the intervals run along: 0 normally, 1 for transposed weights
    transposed: bool  # stored as in × out
    offset: float  # to add after decoding (Gemma stores a norm's weight minus one)

    @property
    def key(self) -> TensorKey:
        """Role, layer and expert."""
        return self.role, self.layer, self.expert


@dataclass(frozen=True, slots=True)
class Excluded:
    """A stored tensor left out on purpose."""

    name: str
    reason: Text
    optional: bool = False  # holds no weights, and a copy of the model may lack it: a buffer
    residual: tuple[int, ...] = ()  # stored axes that run along the residual stream, as far as is known


@dataclass(frozen=True, slots=True)
class Tower:
    """Where the tensors of a tower are, and the config that speaks of it."""

    kind: str  # "language", "vision" or "audio"
    prefix: str  # of the stored names
    config: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Naming:
    """The roles of a checkpoint's tensors."""

    architecture: str  # name of the data file, or ``"generic"``
    guessed: bool  # true if no data file was selected by the config: the names alone decided
    layers: int  # number of blocks that count (multi-token-prediction layers do not)
    experts: int  # routed experts per mixture layer, 0 if dense
    tensors: tuple[RoleTensor, ...]  # sorted by layer (the whole model's first), order of roles, expert
    unmapped: tuple[str, ...]  # stored names that no template matched
    excluded: tuple[Excluded, ...]  # stored names left out on purpose, with the reason
    notes: tuple[Text, ...]  # guesses, contradictions between config and tensors, splits that were not possible
    kind: str = "language"  # what the model works on: "language", "vision" or "audio"
    towers: tuple[tuple[Tower, Naming], ...] = ()  # beside the main model, each named by itself
    fixed_positions: bool = False  # added to the residual stream by every such model, whose config need not say so

    def under(self, prefix: str) -> Naming:
        """Return the same roles for tensors whose stored names have a prefix."""
        return replace(
            self,
            tensors=tuple(tensor._replace(name=prefix + tensor.name) for tensor in self.tensors),
            unmapped=tuple(prefix + name for name in self.unmapped),
            excluded=tuple(replace(each, name=prefix + each.name) for each in self.excluded),
        )
