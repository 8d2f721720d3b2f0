"""Hold the slices that were read of one model, by role, layer and expert, and pair them with those of another model."""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from hashlib import sha256
from typing import Self

import numpy as np

from kinprint._util.numeric import evenly_spaced
from kinprint._util.records import dataclass
from kinprint.arch import Axis, Role, TensorKey
from kinprint.model.reader import Sample
from kinprint.text import Text

WIDE_LAYER = 1 << 18  # elements read of one layer from which a model is wide: its time is spent in arrays


@dataclass(frozen=True)
class Probe:
    """Slices of one model; those of one role start at the same row in all layers and in both models."""

    label: str  # the model as the user named it
    layers: int
    experts: int = 0
    hidden: int | None = None  # width of the residual stream
    kv_heads: int | None = None  # where the config tells
    mixer_head: int | None = None  # channels of one head of Mamba 2, where the config tells
    mean_free: bool = False  # whether norms take no mean off (RMSNorm): residual dimensions may change their signs
    # axes that have an order in this model although they have none in general, with the reason
    ordered: Mapping[Axis, Text] = field(default_factory=dict)
    samples: dict[TensorKey, Sample] = field(default_factory=dict)
    heads: dict[TensorKey, Sample] = field(default_factory=dict)  # attn_k, attn_v: one row of every key/value head
    tokens: dict[TensorKey, Sample] = field(default_factory=dict)  # embeddings of tokens that both models have
    stored_roles: frozenset[Role] = frozenset()  # every role the model has, read or not
    stored_elements: int = 0  # number of weights in all; 0 if not known
    unmapped: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # shapes of tensors of unknown role, by name

    def of(self, role: Role, *, expert: int | None = None) -> dict[int | None, Sample]:
        """Return a role's slices by layer, for one expert (None: the role has no experts)."""
        return {layer: sample for (r, layer, e), sample in self.samples.items() if r is role and e == expert}

    @property
    def value_channels(self) -> int | None:
        """Rows of the value projection, as far as it was read."""
        return next((sample.shape[0] for (role, _, _), sample in self.samples.items() if role is Role.ATTN_V), None)

    def has(self, roles: Iterable[Role]) -> bool:
        """Whether the model has any of the roles, as far as is known."""
        return any(role in self.stored_roles or any(key[0] is role for key in self.samples) for role in roles)

    def head_size(self, sample: Sample) -> int | None:
        """Return the rows of one head of a key or value projection, where the config tells and the numbers agree."""
        if not self.kv_heads or sample.shape[0] < self.kv_heads or sample.shape[0] % self.kv_heads:
            return None
        return sample.shape[0] // self.kv_heads

    def free_rows(self, role: Role, sample: Sample) -> int | None:
        """Return the rows of one head inside which their order is free: values carry no rotary position."""
        if role is Role.MIXER_VALUE:
            return self.mixer_head
        return self.head_size(sample) if role is Role.ATTN_V else None

    def layer_elements(self) -> int:
        """Return how many elements were read of a layer, on average."""
        sizes = [(key[1], sample.stored.size) for key, sample in self.samples.items() if key[1] is not None]
        return sum(size for _, size in sizes) // max(len({layer for layer, _ in sizes}), 1)

    @property
    def is_wide(self) -> bool:
        """Whether most time is spent in arrays, so that a fork pays for a part of the tests."""
        return self.layer_elements() > WIDE_LAYER

    def thinned(self, count: int, rows: int | None = None) -> Self:
        """Return the same probe with at most `count` evenly spaced layers, and the first rows of matrices."""
        read = sorted({key[1] for key in self.samples if key[1] is not None})
        if len(read) <= count and rows is None:
            return self
        kept: set[int | None] = {None, *evenly_spaced(read, count)}
        samples = {key: sample.first_rows(rows) for key, sample in self.samples.items() if key[1] in kept}
        heads = {key: sample for key, sample in self.heads.items() if key[1] in kept}
        return replace(self, samples=samples, heads=heads)

    def rank(self) -> tuple[object, ...]:
        """Return what puts any two models into one order, by their size and what was read of them."""
        read = sorted(sha256(sample.stored.tobytes()).digest() for sample in self.samples.values())
        return self.layers, self.hidden or 0, self.experts, read

    def contents(self) -> Hashable:
        """Return all that tests can see of this probe, as something to look up by: its name is no part of that."""
        rest = repr(replace(self, label="", samples={}, heads={}, tokens={}))
        held: list[Hashable] = []
        for part in (self.samples, self.heads, self.tokens):
            for key, each in part.items():
                read = (
                    each.dtype,
                    each.shape,
                    each.offset,
                    each.rows,
                    each.columns,
                    each.stored.dtype.str,
                    each.stored.shape,
                )
                # Python hashes bytes five times as fast as hashlib, with a secret of this process
                held.append((key, read, hash(each.stored.tobytes())))
            held.append(())
        return rest, tuple(held)

    def shuffled(self, seed: int) -> Self:
        """Return a copy in which every exchangeable order was drawn anew: unrelated by construction, alike in all else."""
        # One permutation serves the residual stream of the whole model, each layer has its own for its neurons, heads and
        # experts' neurons. Along an axis of which only a slice was read, the slice is permuted in itself.
        rng = np.random.default_rng(seed)
        order: dict[object, np.ndarray] = {}

        def drawn(name: object, count: int) -> np.ndarray:
            if (name, count) not in order:
                order[name, count] = rng.permutation(count)
            return order[name, count]

        def shuffle(key: TensorKey, sample: Sample) -> Sample:
            role, layer, expert = key
            stored = sample.stored
            for position, axis in enumerate(role.info.axes):
                count = stored.shape[position]
                if axis is Axis.RESIDUAL:
                    chosen = drawn(("residual", position if count != self.hidden else None), count)
                elif axis in (Axis.NEURON, Axis.LATENT, Axis.EXPERT):
                    chosen = drawn((axis, layer, expert, role.info.scope, position), count)
                elif position == 0 and (size := self.free_rows(role, sample)) is not None:
                    cuts = range(0, count, size)
                    chosen = np.concatenate([at + rng.permutation(min(size, count - at)) for at in cuts])
                else:
                    continue
                stored = np.take(stored, chosen, axis=position)
            return replace(sample, stored=stored)

        def along_residual(sample: Sample) -> Sample:
            return replace(sample, stored=sample.stored[:, drawn(("residual", None), sample.stored.shape[1])])

        heads = {}
        for key, sample in self.heads.items():
            rows = drawn(("heads", key[1]), sample.stored.shape[0])
            heads[key] = along_residual(replace(sample, stored=sample.stored[rows]))
        tokens = {key: along_residual(sample) for key, sample in self.tokens.items()}
        samples = {key: shuffle(key, sample) for key, sample in self.samples.items()}
        return replace(self, label=f"{self.label}, shuffled", samples=samples, heads=heads, tokens=tokens)


@dataclass(frozen=True)
class SamplePair:
    """Slices of both models that are compared, and where the slice stands in B."""

    role: Role
    layer: int | None
    expert: int | None
    a: Sample
    b: Sample

    @property
    def finite(self) -> bool:
        """Whether neither slice holds NaN or infinity."""
        return self.a.finite and self.b.finite


LayerMap = Mapping[int, int]  # layer of B to layer of A


def in_depth(layer_map: LayerMap) -> list[tuple[int, int]]:
    """Return layers of B with those of A in an order that does not depend on which of the models is called A."""
    return sorted(layer_map.items(), key=lambda at: (sum(at), min(at)))


def sample_pairs(a: Probe, b: Probe, layer_map: LayerMap) -> Iterator[SamplePair]:
    """Pair the slices of B with those of A under a layer map; slices without a partner are left out."""
    for (role, layer, expert), sample in b.samples.items():
        source = None if layer is None else layer_map.get(layer)
        partner = a.samples.get((role, source, expert))
        if partner is not None and (layer is None or source is not None):
            yield SamplePair(role, layer, expert, partner, sample)


def pairs_by_role(a: Probe, b: Probe, layer_map: LayerMap) -> dict[Role, list[SamplePair]]:
    """Return the pairs of slices of each role."""
    found: dict[Role, list[SamplePair]] = {}
    for pair in sample_pairs(a, b, layer_map):
        found.setdefault(pair.role, []).append(pair)
    return found


def norm_pairs(a: Probe, b: Probe, layer_map: LayerMap) -> list[SamplePair]:
    """Return the pairs of norms over the residual stream that are of one shape and finite."""
    norms = [pair for pair in sample_pairs(a, b, layer_map) if is_residual_norm(pair.role) and pair.finite]
    return [pair for pair in norms if pair.a.stored.shape == pair.b.stored.shape]


def is_residual_norm(role: Role) -> bool:
    """Whether the role is a norm over the residual stream."""
    return role.info.kind == "norm" and role.info.axes[0] is Axis.RESIDUAL


def has_neuron_rows(role: Role) -> bool:
    """Whether the role has a row for each neuron, along the residual stream: gate and up matrices."""
    return role.info.axes == (Axis.NEURON, Axis.RESIDUAL)


def residual_columns(role: Role) -> bool:
    """Whether a row slice of the role holds whole rows along the residual stream."""
    axes = role.info.axes
    return len(axes) == 2 and axes[1] is Axis.RESIDUAL and axes[0] is not Axis.RESIDUAL
