"""Apply an architecture file to the tensors of a checkpoint."""

import math
import re
from collections import Counter
from collections.abc import Iterable, KeysView, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from itertools import compress, repeat
from typing import NamedTuple

from kinprint.arch.configs import Dims
from kinprint.arch.naming import Excluded, RoleTensor
from kinprint.arch.roles import Axis, Role, RoleInfo
from kinprint.arch.splits import MOST_EXPERTS, MOST_MATRICES, Intervals, is_transposed, plan_split, plan_stack
from kinprint.arch.templates import ROLE_ORDER, Architecture, Exclusion, NameForm, NameForms, NameRule
from kinprint.text import Text

NUMBERED = re.compile(r"\.\d+\.")  # of a pattern that names one of several modules of a layer
LAYERS = 10_000  # no index is larger, see templates
LAYER_STRIDE = LAYERS * len(Role)
_RESIDUAL_NORM = (RoleInfo("norm", "layer", (Axis.RESIDUAL,)), RoleInfo("norm", "model", (Axis.RESIDUAL,)))


def short(name: str) -> str:
    """Shorten a stored name for use in a message."""
    return name if len(name) <= 80 else f"{name[:60]}… ({len(name)} characters)"


def _same_role(name: str) -> Text:
    return Text("same role as {name}", name=short(name))


def width_of(tensors: Iterable[RoleTensor]) -> int | None:
    """Return the width of the residual stream that most norms, or else the embeddings, agree on."""
    norms: Counter[int] = Counter()  # of layers
    ends: Counter[int] = Counter()  # other norms, which narrow embeddings may have
    wide: Counter[int] = Counter()
    embeddings: Counter[int] = Counter()
    outputs: Counter[int] = Counter()  # of attention: norms may have no weights at all
    for tensor in [tensor for tensor in tensors if tensor.expert is None]:  # experts have neither, and are most
        if tensor.role is Role.EMBEDDING:
            embeddings[tensor.shape[1]] += 1
        elif tensor.role is Role.EMBEDDING_PROJECTION:  # from narrow embeddings, if the model has no norms
            wide[tensor.shape[0]] += 1
        elif tensor.role is Role.ATTN_O:
            outputs[tensor.shape[0]] += 1
        elif len(tensor.shape) == 1 and tensor.role.info == _RESIDUAL_NORM[tensor.layer is None]:
            (ends if tensor.layer is None else norms)[tensor.shape[0]] += 1
    votes = norms or wide or ends or embeddings or outputs
    return min(votes, key=lambda width: (-votes[width], width)) if votes else None


# Past NamedTuple's own constructors, which are Python: a large model has 18,000 tensors.
_new_role_tensor: partial[RoleTensor] = partial(tuple.__new__, RoleTensor)


def _role_tensors(
    rule: NameRule, expert: int | None, names: Sequence[str], firsts: Sequence[int], shapes: Sequence[tuple[int, ...]]
) -> list[RoleTensor]:
    """Make tensors of one form: either all of them have a first index, or none."""
    layers: Iterable[int | None] = firsts if firsts[0] >= 0 else repeat(None)
    if rule.transposed:
        shapes = [shape[::-1] for shape in shapes]
    rest = repeat(None), repeat(int(rule.transposed)), repeat(rule.transposed), repeat(rule.offset)
    fields = zip(repeat(rule.role), layers, repeat(expert), names, shapes, *rest, strict=False)
    return list(map(_new_role_tensor, fields))


class _FormFacts(NamedTuple):
    """Rule, exclusion and slot shared by all names of one form."""

    rule: NameRule | None
    exclusion: Exclusion | None
    in_block: bool  # whether the first index counts blocks
    base: int  # slot of the role in layer 0
    expert: int | None
    axes: int


_Aside = dict[str, tuple[_FormFacts, int]]  # names with their entry and first index


def _named(form: NameForm) -> Iterable[tuple[str, int]]:
    return zip(form.names, form.firsts, strict=True)


class Draft:
    """The naming of a list of tensors while it is made: each stored name ends as ``found``, ``unmapped`` or ``excluded``."""

    def __init__(self, architecture: Architecture, config: Mapping[str, object]) -> None:
        self.architecture = architecture
        self.found: dict[int, RoleTensor] = {}  # by slot
        self.unmapped: list[str] = []
        self.excluded: list[Excluded] = []
        self.dims = Dims(architecture.dims, config)
        self._config = config
        self.encoder_layers = 0  # of a model that has a decoder too, whose layers are counted after them
        self._known: dict[str, tuple[NameRule | None, Exclusion | None]] = {}  # by key
        self._numbered = [each for each in architecture.exclusions if NUMBERED.search(each.pattern)]
        self._priorities: dict[int, int] = {}
        self._fused: list[tuple[int, str, NameRule, _FormFacts, int, tuple[int, ...]]] = []
        self._problems: dict[Text, list[str]] = {}
        self._stored: KeysView[str] = {}.keys()
        self._matrices = 0  # in stacks
        self._swapped = False  # whether stacks are stored in × out where the file says out × in, or the reverse

    def fill(self, forms: NameForms, shapes: Mapping[str, tuple[int, ...]], *, in_order: bool = False) -> None:
        """Give every stored tensor its place."""
        # Plain tensors, all but a few of a large model's, are taken form by form. The others, and all `in_order` or if two
        # claim one slot, are taken one by one in the order stored, as notes and reasons depend on it.
        self._stored = shapes.keys()
        entries = [self._entry(form) for form in forms.forms]
        self._count_stacks(forms, entries)
        packed = self._packed(forms, entries)
        mtp, layers = self.dims.values.get("mtp"), self.dims.values.get("layers")
        last = layers + self.encoder_layers if mtp and layers else 2 * LAYERS
        mtp_reason = Text("multi-token-prediction layer (num_nextn_predict_layers = {n})", n=mtp)
        aside = None if in_order or packed else self._take_plain(forms, entries, last)
        if aside is None:
            self.found.clear()
            aside = {n: (e, i) for f, e in zip(forms.forms, entries, strict=True) for n, i in _named(f)}
        for name in filter(aside.__contains__, shapes) if aside else ():
            entry, first = aside[name]
            if entry.exclusion is not None:
                known = entry.exclusion
                self.excluded.append(Excluded(name, known.reason, known.optional, known.residual))
            elif name in packed:
                self.excluded.append(Excluded(name, Text("packed by a quantiser")))
            elif entry.in_block and first >= last:
                self.excluded.append(Excluded(name, mtp_reason))
            else:
                self._place(name, entry, first, shapes[name])
        self._split_fused()

    def notes(self) -> list[Text]:
        """Describe the problems met, one line for each kind."""
        lines = list(self.dims.notes)
        for why, names in self._problems.items():
            name, n = short(names[0]), len(names)
            one = Text("1 tensor unmapped, e.g. {name}: {why}", name=name, why=why)
            lines.append(one if n == 1 else Text("{n} tensors unmapped, e.g. {name}: {why}", n=n, name=name, why=why))
        return lines

    def reject(self, problem: Text, name: str) -> None:
        """Leave a name unmapped, for a reason that the notes will give."""
        self.unmapped.append(name)
        self._problems.setdefault(problem, []).append(name)

    def _entry(self, form: NameForm) -> _FormFacts:
        if form.key not in self._known:  # the experts of a layer share one
            self._known[form.key] = self.architecture.rule(form.key), self.architecture.exclusion(form.key)
        rule, exclusion = self._known[form.key]
        if exclusion is None and self._numbered:
            exclusion = next((each for each in self._numbered if fnmatchcase(form.literal, each.pattern)), None)
        rule = rule or self.architecture.rules.get(form.literal)
        if rule is None or rule.indices != form.indices:
            in_block = form.indices > 0 and form.key.partition(".#")[0] in self.architecture.block_heads
            return _FormFacts(None, exclusion, in_block, 0, None, 0)
        role = rule.roles[0]
        expert = form.later[rule.indices - 2] if rule.has_expert else None
        axes = len(role.info.axes) + rule.stacked
        return _FormFacts(rule, exclusion, rule.has_layer, _slot(role, expert), expert, axes)

    def _count_stacks(self, forms: NameForms, entries: Sequence[_FormFacts]) -> None:
        """Count the layers of a decoder on from those of its encoder, so that no two layers have one number."""
        ruled = [(form, entry.rule) for form, entry in zip(forms.forms, entries, strict=True) if entry.rule]
        decoder = [form for form, rule in ruled if rule.has_layer and not rule.encoder]
        encoder = [max(form.firsts) + 1 for form, rule in ruled if rule.has_layer and rule.encoder]
        if decoder and encoder:
            self.encoder_layers = max(encoder)
            for form in decoder:
                form.firsts = [first + self.encoder_layers for first in form.firsts]

    def _take_plain(self, forms: NameForms, entries: Sequence[_FormFacts], last: int) -> _Aside | None:
        """Find the tensors that a template names whole; return the others, or None if two claim one slot."""
        aside: _Aside = {}
        taken = 0
        for form, entry in zip(forms.forms, entries, strict=True):
            rule, names, firsts, shapes = entry.rule, form.names, form.firsts, form.shapes
            if rule is None or rule.role is None or rule.stacked or entry.exclusion is not None:
                aside.update((name, (entry, first)) for name, first in _named(form))
                continue
            end = last if entry.in_block else 2 * LAYERS
            if max(firsts) >= end or set(map(len, shapes)) != {entry.axes}:
                fits = [i < end and len(shape) == entry.axes for i, shape in zip(firsts, shapes, strict=True)]
                aside.update((name, (entry, i)) for (name, i), fit in zip(_named(form), fits, strict=True) if not fit)
                names, firsts = list(compress(names, fits)), list(compress(firsts, fits))
                shapes = list(compress(shapes, fits))
            if names:
                slots = [entry.base + first * LAYER_STRIDE for first in firsts]
                self.found.update(zip(slots, _role_tensors(rule, entry.expert, names, firsts, shapes), strict=True))
                taken += len(names)
        return aside if taken == len(self.found) else None

    def _packed(self, forms: NameForms, entries: Sequence[_FormFacts]) -> set[str]:
        """Names of tensors whose quantiser state is stored next to them."""
        pairs = [(form, entry.exclusion) for form, entry in zip(forms.forms, entries, strict=True)]
        packing = [(form.names, each.pattern[1:], each.packs) for form, each in pairs if each and each.packs]
        return {name.removesuffix(suffix) + packed for names, suffix, packed in packing for name in names}

    def _place(self, name: str, entry: _FormFacts, first: int, shape: tuple[int, ...]) -> None:
        rule, _, _, base, expert, axes = entry
        if rule is not None and len(shape) > axes and rule.roles[0].info.axes[-1] is Axis.KERNEL:
            shape = shape[0], math.prod(shape[1:])  # a convolution's taps and input channels are one axis
        elif rule is not None and not rule.stacked and len(shape) > axes == 2 and set(shape[2:]) == {1}:
            shape = shape[:axes]  # a convolution of one tap is a matrix
        if rule is None:
            self.reject(Text("no template of {name} matches", name=self.architecture.name), name)
        elif len(shape) != axes:
            self.reject(Text("{n} axes stored, {m} expected", n=len(shape), m=axes), name)
        elif rule.role is None or rule.stacked:
            self._fused.append((rule.priority, name, rule, entry, first, shape))
        else:
            slot = base + first * LAYER_STRIDE
            (tensor,) = _role_tensors(rule, expert, [name], [first], [shape])
            rival = self.found.get(slot)
            if rival is not None:
                if (self._priorities[slot], rival.name) < (rule.priority, name):
                    self.excluded.append(Excluded(name, _same_role(rival.name)))
                    return
                self.excluded.append(Excluded(rival.name, _same_role(name)))
            self.found[slot] = tensor
            self._priorities[slot] = rule.priority

    def _split_fused(self) -> None:
        dims = self._dims_with_shapes() if self._fused else {}
        plans: dict[tuple[int, int], tuple[Intervals, ...] | Text] = {}
        for priority, name, rule, entry, first, shape in sorted(self._fused, key=lambda item: item[:2]):
            if rule.stacked:
                self._unstack(name, rule, first, shape, dims)
                continue
            split, axis = rule.split, 1 if rule.transposed else 0
            assert split is not None
            at = (priority, shape[axis])
            if at not in plans:
                plans[at] = plan_split(split, shape[axis], dims)
            plan = plans[at]
            if isinstance(plan, Text):
                self.reject(Text("fused tensor left whole, {why}", why=plan), name)
                continue
            layer, others = None if first < 0 else first, shape[:axis] + shape[axis + 1 :]
            rest = axis, rule.transposed, rule.offset
            shapes = [(sum(stop - start for start, stop in rows), *others) for rows in plan]
            parts = zip(rule.roles, shapes, plan, strict=True)
            self._claim(name, [RoleTensor(r, layer, entry.expert, name, logical, i, *rest) for r, logical, i in parts])

    def _unstack(self, name: str, rule: NameRule, layer: int, shape: tuple[int, ...], dims: Mapping[str, int]) -> None:
        count, sides = shape[0], shape[1:]
        names = [f"{name}[{number}]" for number in range(min(count, MOST_EXPERTS))]  # as formats.tensors knows them
        self._matrices += count
        crowded = count > MOST_EXPERTS or self._matrices > MOST_MATRICES
        if crowded or not self._stored.isdisjoint(names):
            named = Text("one of its matrices has the name of a stored tensor")
            self.reject(Text("more experts than any model has") if crowded else named, name)
            return
        if len(sides) == 1:  # biases
            transposed: bool | Text = False
        else:
            transposed = is_transposed(rule, (sides[0], sides[1]), dims.get("hidden"), self._swapped)
        plan = transposed if isinstance(transposed, Text) else plan_stack(rule, sides, int(transposed), dims)
        if isinstance(plan, Text):
            self.reject(Text("stack of experts left whole, {why}", why=plan), name)
            return
        assert isinstance(transposed, bool)
        self._swapped = self._swapped if len(sides) == 1 else transposed != rule.transposed
        rest = int(transposed), transposed, rule.offset
        every = ((*part, number) for part in plan for number in range(count))
        self._claim(name, [RoleTensor(r, layer, n, names[n], logical, rows, *rest) for r, rows, logical, n in every])

    def _claim(self, name: str, tensors: Sequence[RoleTensor]) -> None:
        """Take the parts of a stored tensor as found, unless one of their roles is taken, or there are none."""
        firsts = [-1 if tensor.layer is None else tensor.layer for tensor in tensors]
        slots = [_slot(one.role, one.expert) + at * LAYER_STRIDE for one, at in zip(tensors, firsts, strict=True)]
        rival = next((self.found[slot].name for slot in slots if slot in self.found), None)
        if rival is not None or not slots:
            self.excluded.append(Excluded(name, _same_role(rival) if rival else Text("no experts in it")))
            return
        self.found.update(zip(slots, tensors, strict=True))

    def _dims_with_shapes(self) -> dict[str, int]:
        """Sizes by config, completed by what the tensors that are stored whole show."""
        whole = self.found.values()
        width = width_of(whole)
        measured = {} if width is None else {"hidden": width}
        q_sizes = {tensor.shape[1] for tensor in whole if tensor.role is Role.ATTN_O}
        if len(q_sizes) == 1:  # what attention hands to its output projection is as wide as the queries
            measured["q_size"] = q_sizes.pop()
        return Dims(self.architecture.dims, self._config, measured).values


def _slot(role: Role, expert: int | None) -> int:
    """Return the slot of a role in layer 0. Slots sort as tensors do: by layer (none first), role, expert."""
    return ROLE_ORDER[role] * LAYERS + (0 if expert is None else expert)
