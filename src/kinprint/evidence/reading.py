"""Plan and read what the exact tests need beyond the slices of the comparison, within an allowance of bytes."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from kinprint._util.numeric import evenly_spaced
from kinprint._util.records import dataclass
from kinprint.arch import Role, RoleTensor, TensorKey, ordered_axes
from kinprint.arch.configs import flattened, kv_heads_of, mixer_head_of
from kinprint.arch.roles import DENSE_ROLES, GATES_AND_UPS, MLPS
from kinprint.evidence.probe import Probe, has_neuron_rows, residual_columns
from kinprint.model.model import Model
from kinprint.model.reader import Sample, Want, read_together
from kinprint.text import Text

NEURON_ROWS = 32  # rows of gate and up matrices for fixed points: 1/32! = 4e-36 in a single layer
FIRST_ROWS = 16  # where norms agree: 1/16! = 5e-14
UPS = tuple(mlp.up for mlp in MLPS)
HEAD_LAYERS = 12  # layers whose heads are sampled: every row is a request of its own
TOKEN_ROWS = 64
UPCYCLED_EXPERTS = 8  # experts of each layer held against a dense MLP

Parts = Mapping[TensorKey, RoleTensor]


@dataclass(frozen=True)
class ProbeRead:
    """What is wanted of one side (0: A, 1: B), and what for: "sample", "append", "heads" or "tokens"."""

    side: int
    purpose: str
    want: Want


def new_probe(model: Model) -> Probe:
    """Return an empty probe with what the headers and the config tell."""
    config, roles = flattened(model.config), frozenset(part.role for part in model.naming.tensors)
    return Probe(
        label=model.label,
        layers=model.naming.layers,
        experts=model.naming.experts,
        hidden=model.hidden,
        kv_heads=kv_heads_of(config),
        mixer_head=mixer_head_of(config),
        mean_free=is_mean_free(config, roles),
        ordered=ordered_axes(model.config),
        stored_roles=roles,
        stored_elements=model.checkpoint.tensors.elements(),
        unmapped={name: model.checkpoint.tensors[name].shape for name in model.naming.unmapped},
    )


def is_mean_free(config: Mapping[str, object], roles: Iterable[Role]) -> bool:
    """Whether norms take no mean off (RMSNorm), as a config and the tensors tell."""
    return "rms_norm_eps" in config and not any(role.value.endswith("norm_bias") for role in roles)


@dataclass(frozen=True)
class Scope:
    """What the user wants looked at; None for everything."""

    layers: frozenset[int] | None = None
    roles: frozenset[Role] | None = None

    def allows(self, role: Role, layer: int | None) -> bool:
        """Whether a tensor may be read."""
        role_allowed = self.roles is None or role in self.roles
        return role_allowed and (self.layers is None or layer is None or layer in self.layers)

    def parts(self, model: Model) -> Parts:
        """Return a model's tensors, as far as they may be read."""
        if self.layers is None and self.roles is None:
            return model.parts
        return {key: part for key, part in model.parts.items() if self.allows(part.role, part.layer)}

    @property
    def limits(self) -> list[Text]:
        """What was left out on request, in words."""
        layers = Text("layers other than those asked for (--layers)")
        roles = Text("roles other than those asked for (--roles)")
        return [said for said, limit in ((layers, self.layers), (roles, self.roles)) if limit is not None]


EVERYTHING = Scope()


def read_probe(model: Model, wants: Iterable[Want], allowance: int | None) -> Probe:
    """Return a probe with as many of the wants, in order, as the allowance lets."""
    probe = new_probe(model)
    fill_probes([model], [probe], [ProbeRead(0, "sample", want) for want in wants], allowance)
    return probe


def fill_probes(
    models: Sequence[Model], probes: Sequence[Probe], reads: Sequence[ProbeRead], allowance: int | None
) -> int:
    """Read as much of what is wanted, in order, as the allowance lets, into the probes. Return the bytes read."""
    # What is wanted of A and of B for one comparison is read on both sides or on neither.
    taken: list[ProbeRead] = []
    spent = 0
    for group in _in_pairs(reads):
        cost = sum(models[read.side].cost(read.want) for read in group)
        if allowance is not None and spent + cost > allowance:
            continue
        spent += cost
        taken += group
    plans = [model.plan([read.want for read in taken if read.side == side]) for side, model in enumerate(models)]
    samples = [deque(found) for found in read_together(plans)]  # let go one by one: many are joined to others
    for read in taken:
        _put(probes[read.side], read, samples[read.side].popleft())
    return spent


def _in_pairs(reads: Sequence[ProbeRead]) -> Iterator[list[ProbeRead]]:
    """Group what is wanted of A with what follows it of B for the same purpose."""
    position = 0
    while position < len(reads):
        group = list(reads[position : position + 2])
        first, last = group[0], group[-1]
        same = (first.side, last.side) == (0, 1) and first.purpose == last.purpose
        if not (same and first.want.role is last.want.role and first.want.expert == last.want.expert):
            group = [first]
        yield group
        position += len(group)


def _put(probe: Probe, read: ProbeRead, sample: Sample) -> None:
    key = read.want.key
    if read.purpose == "append":
        before = probe.samples[key]
        rows = (before.rows[0], sample.rows[1]) if before.rows and sample.rows else None
        sample = replace(before, stored=np.concatenate([before.stored, sample.stored]), rows=rows)
    {"heads": probe.heads, "tokens": probe.tokens}.get(read.purpose, probe.samples)[key] = sample


def plan_extras(
    models: Sequence[Model],
    probes: Sequence[Probe],
    tokens: Sequence[tuple[int, int]] | None,
    scope: Scope,
    *,
    first: bool = False,
) -> list[ProbeRead]:
    """List what the exact tests and the layer map need beyond the comparison's slices, most useful first."""
    # `first` is for a first look at models that are related: fewer neurons, by one matrix of each MLP, and no heads.
    parts = [scope.parts(model) for model in models]
    rows, roles = (FIRST_ROWS, UPS) if first else (NEURON_ROWS, GATES_AND_UPS)
    return [
        *_both("append", _more_neurons(probes, rows, roles), parts),
        *_unpaired_layers(probes, parts),
        *_both("sample", _other_widths(parts), parts),
        *_upcycled(probes, parts),
        *_tokens(parts, tokens or ()),
        *(() if first else _both("heads", _heads(probes, parts), parts)),
    ]


def _both(purpose: str, wants: Iterable[Want], parts: Sequence[Parts]) -> Iterator[ProbeRead]:
    return (ProbeRead(side, purpose, want) for want in wants for side in (0, 1) if want.key in parts[side])


def _more_neurons(probes: Sequence[Probe], most: int, roles: Sequence[Role]) -> Iterator[Want]:
    """Ask for rows of the same neurons' gate and up matrices beyond those that the comparison measures."""
    for key, sample in probes[0].samples.items():
        other = probes[1].samples.get(key)
        if other is None or sample.rows is None or key[0] not in roles:
            continue
        stop = min(most, sample.shape[0], other.shape[0])
        if sample.rows == other.rows and sample.rows[1] < stop:
            yield Want(*key, (sample.rows[1], stop))


def _unpaired_layers(probes: Sequence[Probe], parts: Sequence[Parts]) -> Iterator[ProbeRead]:
    """Ask for layers that only one side has: norms and row slices along the residual stream, as in the layers both have."""
    read_alike = {key[0]: (sample.rows, sample.columns) for key, sample in probes[0].samples.items()}
    for side in (0, 1):
        experts = {None, *(key[2] for key in probes[side].samples)}
        for key, part in parts[side].items():
            role, layer, expert = key
            if key in parts[1 - side] or layer is None or role not in read_alike or key in probes[side].samples:
                continue
            rows, columns = read_alike[role]
            fits = 0 not in part.shape and (rows is None or rows[1] <= part.shape[0])
            if fits and expert in experts and (role.info.kind == "norm" or residual_columns(role)):
                yield ProbeRead(side, "sample", Want(*key, rows, columns))


def _other_widths(parts: Sequence[Parts]) -> Iterator[Want]:
    """Ask for neuron rows of models whose residual widths differ, for the tests after an alignment by tokens."""
    for key, part in parts[0].items():
        if key[2] not in (None, 0) or (other := parts[1].get(key)) is None:
            continue
        if has_neuron_rows(key[0]) and part.shape[1] != other.shape[1]:
            yield Want(*key, (0, min(NEURON_ROWS, part.shape[0], other.shape[0])))


def _upcycled(probes: Sequence[Probe], parts: Sequence[Parts]) -> Iterator[ProbeRead]:
    """Ask for experts of one side beside the dense MLP of the other: the first rows of either."""
    for moe, dense in ((0, 1), (1, 0)):
        if not probes[moe].experts or probes[dense].experts:
            continue
        for (role, layer, expert), part in parts[moe].items():
            partner = parts[dense].get((DENSE_ROLES[role], layer, None)) if role in DENSE_ROLES else None
            if partner is None or expert is None or expert >= UPCYCLED_EXPERTS or partner.shape[1] != part.shape[1]:
                continue
            rows = (0, min(NEURON_ROWS, part.shape[0], partner.shape[0]))
            yield ProbeRead(moe, "sample", Want(role, layer, expert, rows))
            if expert == 0 and partner.key not in probes[dense].samples:
                yield ProbeRead(dense, "sample", Want(*partner.key, rows))


def _tokens(parts: Sequence[Parts], shared: Sequence[tuple[int, int]]) -> Iterator[ProbeRead]:
    """Ask for the embeddings of shared tokens, evenly spaced from a quarter on: the first are special tokens and bytes."""
    tokens = evenly_spaced(shared[len(shared) // 4 :], TOKEN_ROWS)
    tables = [side.get((Role.EMBEDDING, None, None)) for side in parts]
    rows = [0 if table is None else table.shape[0] for table in tables]
    if tokens and all(max(pair[side] for pair in tokens) < rows[side] for side in (0, 1)):
        for side in (0, 1):
            runs = tuple((pair[side], pair[side] + 1) for pair in tokens)
            yield ProbeRead(side, "tokens", Want(Role.EMBEDDING, rows=runs))


def _heads(probes: Sequence[Probe], parts: Sequence[Parts]) -> Iterator[Want]:
    """Ask for the first row of every key/value head, in some layers."""
    a, b = probes
    if not a.kv_heads or a.kv_heads != b.kv_heads or a.kv_heads < 2:
        return
    for role in (Role.ATTN_K, Role.ATTN_V):
        for layer in evenly_spaced(range(min(a.layers, b.layers)), HEAD_LAYERS):
            shapes = [part.shape if (part := side.get((role, layer, None))) is not None else (0,) for side in parts]
            size, rest = divmod(shapes[0][0], a.kv_heads)
            if size and not rest and shapes[0] == shapes[1]:
                yield Want(role, layer, rows=tuple((head * size, head * size + 1) for head in range(a.kv_heads)))
