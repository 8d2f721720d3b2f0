"""What was read of one model for the evidence engine: slices of its tensors by role, layer and expert, in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from kinprint._util.numeric import evenly_spaced
from kinprint.arch import Axis, Role, TensorKey
from kinprint.model.reader import Sample
from kinprint.text import Text


@dataclass(frozen=True)
class Probe:
    """Slices of one model.

    Attributes
    ----------
    label
        The model as the user named it.
    layers, experts, hidden
        Counts; ``hidden`` is the width of the residual stream.
    kv_heads
        Number of key/value heads, where the config tells.
    ordered
        Axes that have an order in this model although they have none in general, with the reason.
    samples
        What was read. Row slices of one role start at the same row in all layers and in both models.
    heads
        For attn_k and attn_v, one row of every key/value head: (heads, width).
    tokens
        Rows of the embedding for tokens that both models have, in the same order (one entry, or none).
    stored_roles
        Every role the model has, read or not.
    stored_elements
        Number of weights the model has in all; 0 if not known.
    """

    label: str
    layers: int
    experts: int = 0
    hidden: int | None = None
    kv_heads: int | None = None
    ordered: Mapping[Axis, Text] = field(default_factory=dict)
    samples: dict[TensorKey, Sample] = field(default_factory=dict)
    heads: dict[TensorKey, Sample] = field(default_factory=dict)
    tokens: dict[TensorKey, Sample] = field(default_factory=dict)
    stored_roles: frozenset[Role] = frozenset()
    stored_elements: int = 0

    def of(self, role: Role, *, expert: int | None = None) -> dict[int | None, Sample]:
        """Return a role's slices by layer, for one expert (None: the role has no experts)."""
        return {layer: sample for (r, layer, e), sample in self.samples.items() if r is role and e == expert}

    def has(self, roles: Iterable[Role]) -> bool:
        """Whether the model has any of the roles, as far as is known."""
        return any(role in self.stored_roles or any(key[0] is role for key in self.samples) for role in roles)

    def head_size(self, sample: Sample) -> int | None:
        """Return the rows of one head of a key or value projection, where the config tells and the numbers agree."""
        if not self.kv_heads or sample.shape[0] < self.kv_heads or sample.shape[0] % self.kv_heads:
            return None
        return sample.shape[0] // self.kv_heads

    def thinned(self, count: int) -> Probe:
        """Return the same probe with at most `count` evenly spaced layers."""
        read = sorted({key[1] for key in self.samples if key[1] is not None})
        if len(read) <= count:
            return self
        kept: set[int | None] = {None, *evenly_spaced(read, count)}
        samples = {key: sample for key, sample in self.samples.items() if key[1] in kept}
        heads = {key: sample for key, sample in self.heads.items() if key[1] in kept}
        return replace(self, samples=samples, heads=heads)

    def shuffled(self, seed: int) -> Probe:
        """Return a copy in which every exchangeable order was drawn anew: unrelated by construction, alike in all else.

        One permutation serves the residual stream of the whole model, each layer has its own for its neurons, heads and
        experts' neurons. Along an axis of which only a slice was read, the slice is permuted in itself.
        """
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
                elif role is Role.ATTN_V and (size := self.head_size(sample)) is not None:
                    # values carry no rotary position, so their order inside a head is free
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


def residual_columns(role: Role) -> bool:
    """Whether a row slice of the role holds whole rows along the residual stream."""
    axes = role.info.axes
    return len(axes) == 2 and axes[1] is Axis.RESIDUAL and axes[0] is not Axis.RESIDUAL


def layer_keys(probe: Probe, roles: Iterable[Role]) -> dict[int, list[TensorKey]]:
    """Return for each layer the keys of these roles, in order of role and expert."""
    wanted = list(roles)
    found: dict[int, list[TensorKey]] = {}
    for key in sorted(
        (key for key in probe.samples if key[0] in wanted and key[1] is not None),
        key=lambda key: (key[1], wanted.index(key[0]), -1 if key[2] is None else key[2]),
    ):
        assert key[1] is not None
        found.setdefault(key[1], []).append(key)
    return found
