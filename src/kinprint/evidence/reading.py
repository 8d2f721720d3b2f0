"""What the evidence engine reads beyond the slices of the comparison: planned purely, read together, within an allowance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kinprint.arch import Axis, Role, RoleTensor, ordered_axes
from kinprint.arch.configs import flattened, kv_heads_of
from kinprint.evidence.probe import Key, Probe, Sample, residual_columns
from kinprint.formats.checkpoint import execute_together
from kinprint.formats.plan import Run, plan_reads
from kinprint.model.model import Model, RoleSlice, slice_role

NEURON_ROWS = 32  # rows of gate and up matrices for fixed points: 1/32! = 4e-36 in a single layer
HEAD_LAYERS = 12  # layers whose heads are sampled: every row is a request of its own
TOKEN_ROWS = 64
UPCYCLED_EXPERTS = 8  # experts of each layer held against a dense MLP


@dataclass(frozen=True)
class Want:
    """Rows of one tensor of one side (0: A, 1: B), and what they are for: "sample", "append", "heads" or "tokens"."""

    side: int
    purpose: str
    key: Key
    part: RoleTensor
    runs: tuple[Run | None, ...]
    columns: Run | None = None


def new_probe(model: Model) -> Probe:
    """Return an empty probe with what the headers and the config tell."""
    config = model.checkpoint.config
    return Probe(
        label=model.label,
        layers=model.naming.layers,
        experts=model.naming.experts,
        hidden=model.hidden,
        kv_heads=kv_heads_of(flattened(config)),
        ordered=ordered_axes(config),
        stored_roles=frozenset(part.role for part in model.naming.tensors),
        stored_elements=sum(tensor.elements for tensor in model.checkpoint.tensors.values()),
    )


@dataclass(frozen=True)
class Scope:
    """What the user wants looked at; None for everything."""

    layers: frozenset[int] | None = None
    roles: frozenset[Role] | None = None

    def allows(self, role: Role, layer: int | None) -> bool:
        """Whether a tensor may be read."""
        if self.roles is not None and role not in self.roles:
            return False
        return self.layers is None or layer is None or layer in self.layers

    @property
    def limits(self) -> list[str]:
        """What was left out on request, in words."""
        named = []
        if self.layers is not None:
            named.append("layers other than those asked for (--layers)")
        if self.roles is not None:
            named.append("roles other than those asked for (--roles)")
        return named


EVERYTHING = Scope()


def parts_of(model: Model, scope: Scope = EVERYTHING) -> dict[Key, RoleTensor]:
    """Return a model's tensors by role, layer and expert, as far as they may be read."""
    return {
        (part.role, part.layer, part.expert): part
        for part in model.naming.tensors
        if scope.allows(part.role, part.layer)
    }


def read_wants(models: Sequence[Model], probes: Sequence[Probe], wants: Sequence[Want], allowance: int | None) -> int:
    """Read as many of the wants, in order, as the allowance lets, into the probes. Returns the bytes they cost.

    What is wanted of A and of B for one comparison is read on both sides or on neither.
    """
    taken: list[tuple[Want, list[RoleSlice]]] = []
    spent = 0
    for mates in _mates(wants):
        planned = [
            (want, [slice_role(models[want.side], want.part, run, want.columns) for run in want.runs]) for want in mates
        ]
        cost = sum(item.stored.nbytes for _, slices in planned for item in slices)
        if allowance is not None and spent + cost > allowance:
            continue
        spent += cost
        taken += planned
    plans = []
    for side, model in enumerate(models):
        wanted = [item.stored for want, slices in taken if want.side == side for item in slices]
        plans.append((model.checkpoint, plan_reads(wanted, max_gap_bytes=0)))
    arrays = [iter(found) for found in execute_together(plans)]
    for want, slices in taken:
        pieces = [item.oriented(next(arrays[want.side])) for item in slices]
        stored = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        _put(
            probes[want.side], want, Sample(stored, _dtype(models[want.side], want), want.part.shape, want.part.offset)
        )
    return spent


def _mates(wants: Sequence[Want]) -> Iterator[list[Want]]:
    """Group each want of A with the want of B that follows it for the same purpose."""
    position = 0
    while position < len(wants):
        first = wants[position]
        second = wants[position + 1] if position + 1 < len(wants) else None
        same = second is not None and (first.side, second.side) == (0, 1) and first.purpose == second.purpose
        if second is not None and same and first.key[0] is second.key[0] and first.key[2] == second.key[2]:
            yield [first, second]
            position += 2
        else:
            yield [first]
            position += 1


def _dtype(model: Model, want: Want) -> str:
    return model.checkpoint.tensors[want.part.name].dtype


def _put(probe: Probe, want: Want, sample: Sample) -> None:
    first, last = want.runs[0], want.runs[-1]
    if want.purpose == "heads":
        probe.heads[want.key] = sample
    elif want.purpose == "tokens":
        probe.tokens[want.key] = sample
    elif want.purpose == "append":
        before = probe.samples[want.key]
        assert before.rows is not None
        assert last is not None
        stored = np.concatenate([before.stored, sample.stored])
        probe.samples[want.key] = replace(before, stored=stored, rows=(before.rows[0], last[1]))
    else:
        probe.samples[want.key] = replace(sample, rows=first, columns=want.columns)


# -- what to ask for -----------------------------------------------------------------------------------------------------


def plan_extras(
    models: Sequence[Model],
    probes: Sequence[Probe],
    tokens: Sequence[tuple[int, int]] | None,
    scope: Scope = EVERYTHING,
) -> list[Want]:
    """List what the exact tests and the layer map need beyond the comparison's slices, most useful first."""
    parts = [parts_of(model, scope) for model in models]
    return [
        *_more_neurons(probes, parts),
        *_lonely_layers(probes, parts),
        *_other_widths(parts),
        *_upcycled(probes, parts),
        *_tokens(parts, tokens),
        *_heads(probes, parts),
    ]


def _both(
    wants: Iterable[tuple[str, Key, tuple[Run | None, ...]]], parts: Sequence[dict[Key, RoleTensor]]
) -> list[Want]:
    return [
        Want(side, purpose, key, parts[side][key], runs)
        for purpose, key, runs in wants
        for side in (0, 1)
        if key in parts[side]
    ]


def _more_neurons(probes: Sequence[Probe], parts: Sequence[dict[Key, RoleTensor]]) -> list[Want]:
    """Rows of the same neurons' gate and up matrices beyond those that the comparison measures."""
    wanted = []
    for key, sample in probes[0].samples.items():
        other = probes[1].samples.get(key)
        if other is None or key[0].info.axes != (Axis.NEURON, Axis.RESIDUAL) or sample.rows is None:
            continue
        stop = min(NEURON_ROWS, sample.shape[0], other.shape[0])
        if sample.rows == other.rows and sample.rows[1] < stop:
            wanted.append(("append", key, ((sample.rows[1], stop),)))
    return _both(wanted, parts)


def _template(probes: Sequence[Probe]) -> dict[Role, tuple[Run | None, Run | None]]:
    """Return which rows and columns of each role were read, so that further layers are read alike."""
    return {key[0]: (sample.rows, sample.columns) for key, sample in probes[0].samples.items()}


def _lonely_layers(probes: Sequence[Probe], parts: Sequence[dict[Key, RoleTensor]]) -> list[Want]:
    """Layers that only one side has: norms and row slices along the residual stream, as in the layers both have."""
    template = _template(probes)
    wanted = []
    for side in (0, 1):
        for key, part in parts[side].items():
            role, layer, expert = key
            if layer is None or key in probes[side].samples or role not in template or key in parts[1 - side]:
                continue
            if 0 in part.shape:
                continue
            if expert is not None and not any(k[2] == expert for k in probes[side].samples):
                continue
            if role.info.kind == "norm" or residual_columns(role):
                rows, columns = template[role]
                if rows is None or rows[1] <= part.shape[0]:
                    wanted.append(Want(side, "sample", key, part, (rows,), columns))
    return wanted


def _other_widths(parts: Sequence[dict[Key, RoleTensor]]) -> list[Want]:
    """Neuron rows of models whose residual widths differ, for the tests after an alignment by tokens."""
    wanted: list[tuple[str, Key, tuple[Run | None, ...]]] = []
    for key, part in parts[0].items():
        other = parts[1].get(key)
        if other is None or key[0].info.axes != (Axis.NEURON, Axis.RESIDUAL) or part.shape[1] == other.shape[1]:
            continue
        if key[2] in (None, 0):
            wanted.append(("sample", key, ((0, min(NEURON_ROWS, part.shape[0], other.shape[0])),)))
    return _both(wanted, parts)


_DENSE = {Role.EXPERT_GATE: Role.MLP_GATE, Role.EXPERT_UP: Role.MLP_UP}


def _upcycled(probes: Sequence[Probe], parts: Sequence[dict[Key, RoleTensor]]) -> list[Want]:
    """Experts of one side beside the dense MLP of the other: the first rows of either."""
    wanted = []
    for moe, dense in ((0, 1), (1, 0)):
        if not probes[moe].experts or probes[dense].experts:
            continue
        for key, part in parts[moe].items():
            role, layer, expert = key
            partner = parts[dense].get((_DENSE.get(role, role), layer, None)) if role in _DENSE else None
            if partner is None or expert is None or expert >= UPCYCLED_EXPERTS or partner.shape[1] != part.shape[1]:
                continue
            rows = (0, min(NEURON_ROWS, part.shape[0], partner.shape[0]))
            wanted.append(Want(moe, "sample", key, part, (rows,)))
            partner_key = (partner.role, partner.layer, None)
            if expert == 0 and partner_key not in probes[dense].samples:
                wanted.append(Want(dense, "sample", partner_key, partner, (rows,)))
    return wanted


def _tokens(parts: Sequence[dict[Key, RoleTensor]], tokens: Sequence[tuple[int, int]] | None) -> list[Want]:
    key: Key = (Role.EMBEDDING, None, None)
    if not tokens or any(key not in side for side in parts):
        return []
    wanted = []
    for side in (0, 1):
        part = parts[side][key]
        numbers = [pair[side] for pair in tokens]
        if max(numbers) >= part.shape[0]:
            return []
        wanted.append(Want(side, "tokens", key, part, tuple((number, number + 1) for number in numbers)))
    return wanted


def _heads(probes: Sequence[Probe], parts: Sequence[dict[Key, RoleTensor]]) -> list[Want]:
    """Ask for the first row of every key/value head, in some layers."""
    a, b = probes
    if not a.kv_heads or a.kv_heads != b.kv_heads or a.kv_heads < 2:
        return []
    count = a.kv_heads
    shared = min(a.layers, b.layers)
    chosen = (
        {index * shared // HEAD_LAYERS for index in range(HEAD_LAYERS)} if shared > HEAD_LAYERS else set(range(shared))
    )
    wanted = []
    for role in (Role.ATTN_K, Role.ATTN_V):
        for layer in sorted(chosen):
            key: Key = (role, layer, None)
            shapes = {side[key].shape for side in parts if key in side}
            if len(shapes) != 1 or any(key not in side for side in parts):
                continue
            rows = next(iter(shapes))[0]
            if rows and rows % count == 0:
                size = rows // count
                wanted.append(("heads", key, tuple((head * size, head * size + 1) for head in range(count))))
    return _both(wanted, parts)
