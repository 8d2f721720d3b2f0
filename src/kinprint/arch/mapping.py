"""Find the roles of tensors from a config and the stored names and shapes.

The config selects an architecture file. If that names fewer than half of the tensors, the one that names most is taken, and if that
is fewer than half too, roles are guessed from the words in names (lists in ``data/_generic.json``); what looks fused is left alone
then, as only the config of a known architecture says how to take it apart. Names and configs are hostile input: nothing here
raises on them.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import takewhile
from operator import attrgetter

from kinprint._util.records import dataclass
from kinprint.arch import nested_blocks
from kinprint.arch.configs import Dims, flattened, selecting_names
from kinprint.arch.draft import NUMBERED, Draft, short, width_of
from kinprint.arch.loading import load, load_all, read_packaged, selectors
from kinprint.arch.naming import Excluded, Naming, RoleTensor, Tower
from kinprint.arch.roles import BIASES, Axis, Role
from kinprint.arch.templates import LANGUAGE, Architecture, NameForms, NameKey, NameRule, numbered_prefix
from kinprint.arch.towers import WORDS, find_towers
from kinprint.text import Text

_ENOUGH = 0.5  # fraction of names that an architecture file must cover to be believed
_WEIGHTS = ("weight", "gamma", "scale", "kernel")
_BIAS_NAMES = ("bias", "beta")
_LONGEST_NAME = 500  # no module path is longer; searching for words in what an attacker made up is a waste
_CROSS = {Role.ATTN_Q: Role.CROSS_Q, Role.ATTN_K: Role.CROSS_K, Role.ATTN_V: Role.CROSS_V, Role.ATTN_O: Role.CROSS_O}
_words = cache(read_packaged)


def name_tensors(config: Mapping[str, object], shapes: Mapping[str, tuple[int, ...]]) -> Naming:
    """Find the role of every tensor of a checkpoint: each stored name is among the tensors, the unmapped or the excluded."""
    # Towers beside the main model are named each by itself; what the main model says of their tensors is that they are theirs.
    towers, spare = find_towers(config, shapes)
    if not towers:
        return _name_one(config, shapes)
    own = towers.pop(LANGUAGE, None)
    left = {name: shape for name, shape in shapes.items() if name not in spare}
    named = []
    outside: list[Excluded] = [Excluded(name, why) for name, why in spare.items()]
    for tower in towers.values():
        inside = {name: shape for name, shape in left.items() if name.startswith(tower.prefix)}
        left = {name: shape for name, shape in left.items() if name not in inside}
        stripped = {name.removeprefix(tower.prefix): shape for name, shape in inside.items()}
        named.append((tower, _name_one(tower.config, stripped).under(tower.prefix)))
        why = Text("part of the {kind} tower, which is compared by itself", kind=WORDS[tower.kind])
        outside += [Excluded(name, why) for name in inside]
    main = _name_one(config, left) if own is None else _beside_encoder(own, left)
    excluded = sorted((*main.excluded, *outside), key=lambda each: each.name)
    return replace(main, excluded=tuple(excluded), towers=tuple(named))


def _beside_encoder(own: Tower, shapes: Mapping[str, tuple[int, ...]]) -> Naming:
    """Name the language model of a pair of encoder and decoder, which may have a projection of their own between them."""
    inside = {name.removeprefix(own.prefix): shape for name, shape in shapes.items() if name.startswith(own.prefix)}
    named = _name_one(own.config, inside).under(own.prefix)
    between = Text("projection between encoder and decoder")
    return replace(
        named, excluded=named.excluded + tuple(Excluded(n, between) for n in shapes if not n.startswith(own.prefix))
    )


def _name_one(config: Mapping[str, object], shapes: Mapping[str, tuple[int, ...]]) -> Naming:
    """Name the tensors of one model, towers aside."""
    flat = flattened(config)
    forms = _forms(shapes)
    architecture, reasons = _choose(config, forms.counts())
    draft = Draft(architecture, flat)
    by_pattern = architecture is generic()
    if by_pattern and (wrapper := numbered_prefix(shapes)):
        forms = NameForms(shapes, wrapper)
    draft.fill(forms, shapes, in_order=by_pattern)
    width = width_of(draft.found.values())
    for slot, tensor in list(draft.found.items()) if by_pattern else ():  # guesses that contradict the residual width
        sizes = zip(tensor.role.info.axes, tensor.shape, strict=True)
        if any(axis is Axis.RESIDUAL and size != width for axis, size in sizes):
            del draft.found[slot]
            why = Text("guessed {role}, but the shape does not fit a width of {n}", role=tensor.role.value, n=width)
            draft.reject(why, tensor.name)
    tensors = tuple(map(draft.found.__getitem__, sorted(draft.found)))
    layers, layer_notes = _layers(draft, tensors)
    experts, expert_notes = _experts(draft.dims, tensors)
    notes = [*reasons, *draft.notes(), *layer_notes, *expert_notes, *_width_notes(draft.dims, tensors)]
    notes += _head_notes(flat, tensors)
    if n := sum(each.reason == "quantiser state" for each in draft.excluded):
        notes.append(Text("{n} tensors of quantiser state excluded: stored weights are not to scale", n=n))
    return Naming(
        architecture=architecture.name,
        guessed=bool(reasons),
        layers=layers,
        experts=experts,
        tensors=tensors,
        unmapped=tuple(sorted(draft.unmapped)),
        excluded=tuple(sorted(draft.excluded, key=lambda each: each.name)),
        notes=tuple(notes),
        kind=architecture.tower,
        fixed_positions=architecture.fixed_positions,
    )


def _forms(shapes: Mapping[str, tuple[int, ...]]) -> NameForms:
    """Gather names by form; blocks in nested lists are counted first."""
    new = nested_blocks.renamed(shapes)
    if not new:
        return NameForms(shapes)
    plain = {new.get(name, name): name for name in shapes}
    if len(plain) < len(shapes):  # a name that is there already: no model of that kind
        return NameForms(shapes)
    forms = NameForms({name: shapes[stored] for name, stored in plain.items()})
    for form in forms.forms:
        form.names = [plain[name] for name in form.names]
    return forms


def residual_width(naming: Naming, config: Mapping[str, object] | None = None) -> int | None:
    """Width of the residual stream (hidden size): what the stored tensors show, else what the config says."""
    width = width_of(naming.tensors)
    if width is not None or config is None:
        return width
    return Dims(generic().dims, flattened(config)).values.get("hidden")


def _choose(config: Mapping[str, object], keys: Counter[NameKey]) -> tuple[Architecture, list[Text]]:
    """Select the architecture file that the config names, or failing that guess the one that fits and say why."""
    names = selecting_names(config)
    claims = list(dict.fromkeys(selectors()[name] for name in names if name in selectors()))
    for claim in claims:
        if _fraction(load(claim), keys) >= _ENOUGH:
            return load(claim), []
    if claims:
        name, x = claims[0], _fraction(load(claims[0]), keys)
        cause = Text("config selects {name}, but its templates name only {x:.0%} of the tensors", name=name, x=x)
    elif names:
        cause = Text("no architecture file for {name}", name=repr(short(names[0])))
    else:
        cause = Text("no config that says which architecture this is")
    best = max(load_all(), key=lambda each: (sum(keys[key] for key in _known(each, keys)), -each.special))
    fraction = _fraction(best, keys) if _known(best, keys) else 0.0
    if fraction >= _ENOUGH:
        guess = Text("guessed {name}, whose templates name {x:.0%} of the tensors", name=best.name, x=fraction)
    else:
        best, guess = generic(), Text("roles guessed by pattern")
    return best, [Text("{cause}: {guess}", cause=cause, guess=guess)]


def _known(architecture: Architecture, keys: Counter[NameKey]) -> set[NameKey]:
    """Return the keys with a template. By sets: a hundred files are tried on whatever names a stranger made up."""
    general, literal = ({key[at] for key in keys} & architecture.rules.keys() for at in (0, 1))
    return {key for key in keys if key[0] in general or key[1] in literal} if general or literal else set()


def _fraction(architecture: Architecture, keys: Counter[NameKey]) -> float:
    """Fraction of names with a template, among those that are not excluded on purpose."""
    known = _known(architecture, keys)
    covered = sum(keys[key] for key in known)
    rest = keys.keys() - known
    counted = {key: architecture.exclusion(key) is None for key in {key[0] for key in rest}}
    if any(NUMBERED.search(each.pattern) for each in architecture.exclusions):  # these name one of several modules
        rest = {key for key in rest if architecture.exclusion(key[1]) is None}
    total = covered + sum(keys[key] for key in rest if counted[key[0]])
    return covered / total if total else 1.0


def _layers(draft: Draft, tensors: tuple[RoleTensor, ...]) -> tuple[int, list[Text]]:
    last = tensors[-1].layer if tensors else None  # sorted by layer
    stored = 0 if last is None else last + 1
    if n := draft.encoder_layers:
        return stored, [Text("the encoder's {n} layers are counted first: layer {n} is the decoder's first", n=n)]
    declared = draft.dims.values.get("layers", stored)
    if declared == stored or not tensors:
        return declared, []
    return declared, [Text("config says {a} layers, the tensors' last block index means {b}", a=declared, b=stored)]


def _experts(dims: Dims, tensors: tuple[RoleTensor, ...]) -> tuple[int, list[Text]]:
    numbers = set(map(attrgetter("expert"), tensors)) - {None}
    stored = max(numbers) + 1 if numbers else 0
    declared = dims.values.get("experts", stored)
    if stored in (0, declared):
        return stored, []
    return declared, [Text("config says {a} experts, the tensors' last expert index means {b}", a=declared, b=stored)]


def _width_notes(dims: Dims, tensors: tuple[RoleTensor, ...]) -> list[Text]:
    declared, stored = dims.values.get("hidden"), width_of(tensors)
    if declared is None or stored is None or declared == stored:
        return []
    return [Text("config says hidden size {a}, the tensors are {b} wide", a=declared, b=stored)]


def _head_notes(config: Mapping[str, object], tensors: tuple[RoleTensor, ...]) -> list[Text]:
    roles = {tensor.role for tensor in takewhile(lambda tensor: tensor.layer is None, tensors)}
    if Role.HEAD in roles or Role.EMBEDDING not in roles:
        return []
    tied = config.get("tie_word_embeddings")
    if tied is True:
        return [Text("tied embeddings: no head is stored, the embedding serves as head")]
    told = Text("config says the head is not tied to the embedding, yet no head is stored")
    return [told if tied is False else Text("no head is stored")]


def guess_rule(key: str) -> NameRule | None:
    """Guess what a tensor is from its key, or give up."""
    module, _, kind = key.lower().rpartition(".")
    if len(key) > _LONGEST_NAME or (kind not in _WEIGHTS and kind not in _BIAS_NAMES):
        return None
    # The first index is the block's, whatever the list of blocks is called; only what follows it describes the part.
    head, block, tail = module.partition(".#.")
    text = f".{tail if block else head}."
    words = _words("_generic")
    if any(word in text for word in words["fused"]):
        return None
    expert = block != "" and "expert" in text and ".#." in text
    section = "model" if not block else "expert" if expert else "shared" if "shared_expert" in text else "layer"
    named = next((entry["role"] for entry in words[section] if any(word in text for word in entry["any"])), None)
    role = None if named is None else Role(named)
    if role is not None and any(word in text for word in words["cross"]):
        role = _CROSS.get(role)
    if role is not None and kind in _BIAS_NAMES:
        role = BIASES.get(role)
    if role is None:
        return None
    encoder = "encoder" in head and "decoder" not in head
    return NameRule(role, indices=key.count(".#"), has_layer=block != "", has_expert=expert, encoder=encoder)


@dataclass(frozen=True, slots=True)
class GenericArchitecture(Architecture):
    """An architecture whose rules are guessed."""

    def rule(self, key: str) -> NameRule | None:
        """Guess instead of looking up."""
        return guess_rule(key)


@cache
def generic() -> Architecture:
    """Return the fallback, with the dims and exclusions that all architectures share."""
    llama = load("llama")
    names = "generic", "guessed by pattern", (), ()
    return GenericArchitecture(*names, llama.dims, {}, frozenset(), llama.exclusions, llama.tower, special=0)
