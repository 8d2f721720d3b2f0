"""List the members of the full zoo, trained and made by `kinprint.lab.zoo.build`; `kinprint.lab.zoo.tiny` lists the bundled ones.

A name is the parent's name, a point, and what was done to the parent. Seeds are fixed here, so that two builds with the same
versions give the same weights.
"""

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from kinprint.lab.zoo.members import COMPONENTS, NORM_PARTS, Edit, Link, Training, ZooMember

Texts = tuple[str, ...]
SHAPE: Mapping[str, int] = {"layers": 6}
WIDE: Mapping[str, int] = {"layers": 6, "hidden": 128, "heads": 8, "ffn": 344}
TEXT_A = ("manual-even", "docstrings-am")
TEXT_B = ("manual-odd", "docstrings-nz")
TEXT_C = ("source-nz",)
STEPS, RATE = 800, 4e-3

NOT_EMBEDDINGS = tuple(part for part in COMPONENTS if part != "embeddings")
NOT_NORMS = tuple(part for part in COMPONENTS if part not in NORM_PARTS)

# Training after a change, by level: steps and peak learning rate.
LEVELS = {"light": (80, 5e-4), "medium": (200, 1e-3), "heavy": (400, 2e-3)}


def _seed(name: str) -> int:
    """Give each member a seed of its own that does not depend on what else is planned."""
    return zlib.crc32(name.encode()) % 1_000_000


def base(
    name: str, init_seed: int, corpora: Texts, tokenizer: Texts, *links: Link, shape: Mapping[str, int] = SHAPE
) -> ZooMember:
    """Return a member trained from random weights, perhaps those of another (``init``) or towards its outputs."""
    relation = {"init": "same_init", "outputs": "distilled"}[links[0].kind] if links else "base"
    how = Training(corpora, STEPS, RATE, _seed(name), init_seed=init_seed, tokenizer=tokenizer, shape=dict(shape))
    return ZooMember(name, relation, relation, how, links, seed=init_seed)


BASES = (
    base("a0", 5101, TEXT_A, TEXT_A),
    base("a1", 5102, TEXT_A, TEXT_A),
    base("a2", 5103, TEXT_A, TEXT_A),
    base("b0", 5104, TEXT_B, TEXT_B),
    base("b1", 5105, ("source-am",), ("source-am",)),
    base("c0", 5106, TEXT_C, TEXT_A),
    base("s0", 5101, TEXT_B, TEXT_A, Link("a0", kind="init")),
    base("d0", 5107, TEXT_A, TEXT_A, Link("a0", kind="outputs")),
    base("w0", 5108, TEXT_A, TEXT_A, shape=WIDE),
)
# Texts of a fine-tune, of continued pretraining, of a child's child.
TUNED: dict[str, tuple[Texts, Texts, Texts]] = {
    "a0": (("source-am",), ("source-am-second", "docstrings-nz"), ("manual-odd",)),
    "b0": (("source-am",), ("manual-even", "source-nz"), ("docstrings-am",)),
    "c0": (("manual-even",), ("manual-odd", "docstrings-am"), ("source-am",)),
}
# Whom each is merged with and gives its embeddings and norms to. The wide one fits no other.
PARTNERS = {"a0": "a1", "a1": "a2", "a2": "a0", "b0": "b1", "b1": "c0", "c0": "b0", "s0": "a1", "d0": "a2"}
# Changes that leave the function alone: name of the attack, edit.
SYMMETRIES = {
    "sign_flips": "flip_signs", "rotation": "rotate_residual", "neuron_scaling": "rescale_neurons",
    "value_scaling": "rescale_values", "value_mixing": "mix_values", "rotary_turns": "turn_rotary",
    "neuron_permutation": "permute_neurons", "head_permutation": "permute_heads",
    "residual_permutation": "permute_residual", "permutation": "permute_and_flip", "all_symmetries": "all_symmetries",
}  # fmt: skip
# Changes of values at several strengths: attack, edit, argument that is the strength, percent (or not), strengths, the rest.
DAMAGES: tuple[tuple[str, str, str, int, tuple[float, ...], Mapping[str, Any]], ...] = (
    ("noise", "noise", "relative_sigma", 100, (0.05, 0.2, 0.5, 1.0), {}),
    ("quantised", "quantise", "bits", 1, (8, 4, 3), {}),
    ("pruned", "prune", "share", 100, (0.3, 0.5, 0.7), {}),
    ("low_rank", "low_rank", "relative", 100, (0.1, 0.3), {"rank": 8}),
)


def edited(
    parents: str | tuple[Link, ...],
    what: str,
    function: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    attack: str | None = None,
    strength: float | None = None,
    relation: str = "derived",
    keeps: bool = False,
    dtype: str = "BF16",
) -> ZooMember:
    """Return a member made by an edit of `kinprint.lab.zoo.edits`, with a seed of its own."""
    links = (Link(parents),) if isinstance(parents, str) else parents
    name = f"{links[0].parent}.{what}"
    how = Edit(function, dict(arguments or {}))
    return ZooMember(name, relation, attack or what, how, links, strength, keeps, _seed(name), dtype)


def merged(
    parents: tuple[Link, ...], attack: str, function: str, arguments: Mapping[str, Any], strength: float
) -> ZooMember:
    """Return a merge, its strength in percent at the end of its name."""
    what = f"{attack}-{round(100 * strength)}"
    return edited(parents, what, function, arguments, attack=attack, strength=strength, relation="merged")


def symmetries(parent: str) -> list[ZooMember]:
    """Return the changes that leave the function alone."""
    return [edited(parent, what, function, keeps=True) for what, function in SYMMETRIES.items()]


def damages(parent: str) -> list[ZooMember]:
    """Return the changes of values that leave the shape alone."""
    return [
        *(
            edited(parent, f"{attack}-{round(unit * x)}", edit, {**rest, argument: x}, attack=attack, strength=x)
            for attack, edit, argument, unit, strengths, rest in DAMAGES
            for x in strengths
        ),
        edited(parent, "cast", "copy", dtype="F16", keeps=True),
        edited((Link(parent, shares=NOT_EMBEDDINGS),), "embeddings_drawn", "replace_embeddings"),
    ]


def reshapings(parent: str, layers: int, ffn: int, vocabulary: int = 512) -> list[ZooMember]:
    """Return the changes of depth, width and vocabulary."""
    third = max(1, layers // 3)
    deeper = [*range(layers - third), *range(third, layers)]
    fewer = [layer for layer in range(layers) if layer not in (layers // 2, layers // 2 - 2)]
    cut, grown = round(0.8 * vocabulary), round(0.1 * vocabulary)
    rows: tuple[tuple[str, str, Mapping[str, Any], float], ...] = (
        ("depth_up", "stack_layers", {"source_layers": deeper}, len(deeper) / layers),
        ("layer_drop", "drop_layers", {"keep": fewer}, len(fewer) / layers),
        ("width_pruned-75", "prune_neurons", {"keep": round(0.75 * ffn)}, 0.75),
        ("width_pruned-50", "prune_neurons", {"keep": round(0.5 * ffn)}, 0.5),
        ("vocabulary_pruned", "prune_vocabulary", {"keep": cut}, 0.8),
        ("vocabulary_extended", "extend_vocabulary", {"extra": grown}, 1.1),
        ("upcycled", "upcycle", {"experts": 4, "noise": 0.05}, 0.05),
    )
    return [edited(parent, what, edit, given, attack=what.split("-")[0], strength=x) for what, edit, given, x in rows]


def blends(parent: str, other: str, layers: int) -> list[ZooMember]:
    """Return merges of two models, and the second with the first's embeddings or norms."""
    found = []
    for attack, function, share in (
        *(("linear", "merge", x) for x in (0.9, 0.7, 0.5)),
        *(("slerp", "slerp", x) for x in (0.7, 0.5)),
    ):
        rest = round(1 - share, 2)
        arguments: dict[str, Any] = {"coefficients": [share, rest]} if function == "merge" else {"share": rest}
        links = (Link(parent, weight=share), Link(other, weight=rest))
        found.append(merged(links, attack, function, arguments, share))
    half, third = layers // 2, max(1, layers // 3)
    # The last norm stays with the first parent too; it alone is no half of the norms.
    lower = Link(parent, shares=("embeddings", "lower", "lower_norms"))
    upper = Link(other, shares=("upper", "upper_norms"))
    halves = [[0, layer] for layer in range(half)] + [[1, layer] for layer in range(half, layers)]
    longer = [[0, layer] for layer in range(layers - third)] + [[1, layer] for layer in range(third, layers)]
    both = (Link(parent), Link(other, shares=NOT_EMBEDDINGS))
    given = {
        "embeddings": (Link(other, shares=NOT_EMBEDDINGS), Link(parent, shares=("embeddings",))),
        "norms": (Link(other, shares=NOT_NORMS), Link(parent, shares=NORM_PARTS)),
    }
    return [
        *found,
        edited((lower, upper), "frankenmerge", "frankenmerge", {"layers": halves}, strength=0.5, relation="merged"),
        edited(both, "passthrough", "frankenmerge", {"layers": longer}, relation="merged"),
        *(
            edited(links, f"{p}_of_{parent}", f"transplant_{p}", attack=f"{p}_transplant", relation="transplant")
            for p, links in given.items()
        ),
    ]


def tuned(parent: str, what: str, corpora: Texts, steps: int, rate: float, attack: str) -> ZooMember:
    """Return a member trained on from its parent."""
    name = f"{parent}.{what}"
    how = Training(corpora, steps, rate, data_seed=_seed(name))
    return ZooMember(name, "derived", attack, how, (Link(parent),), round(steps * rate, 6), seed=_seed(name))


def trained(parent: str) -> list[ZooMember]:
    """Return the children that are trained, and what is made of these in turn."""
    text, other, last = TUNED[parent]
    lora = tuned(parent, "lora", text, 150, 2e-3, "lora")
    assert isinstance(lora.how, Training)
    child = f"{parent}.finetune-heavy"
    twice = "finetune+finetune"
    children = (Link(parent), Link(child), Link(f"{parent}.continued"))
    changes: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("quantised", "quantise", {"bits": 4}),
        ("pruned", "prune", {"share": 0.5}),
        ("rotation", "rotate_residual", {}),
        ("permutation", "permute_and_flip", {}),
    )
    return [
        tuned(parent, "finetune-light", text, 120, 5e-4, "finetune"),
        tuned(parent, "finetune-heavy", text, 400, 2e-3, "finetune"),
        tuned(parent, "continued", other, 500, RATE, "continued"),
        replace(lora, how=replace(lora.how, lora_rank=4, init_seed=_seed(lora.name))),
        *(
            tuned(f"{parent}.{change}", f"finetune-{level}", text, *LEVELS[level], f"{change}+finetune")
            for change in ("rotation", "permutation")
            for level in LEVELS
        ),
        tuned(f"{parent}.all_symmetries", "finetune", text, *LEVELS["medium"], "all_symmetries+finetune"),
        tuned(f"{parent}.depth_up", "trained", other, 120, 1e-3, "depth_up+train"),
        tuned(child, "finetune", last, 150, 1e-3, twice),
        *(edited(child, what, edit, x, attack=f"finetune+{what}", keeps=not x) for what, edit, x in changes),
        edited(f"{child}.finetune", "all_symmetries", "all_symmetries", attack=f"{twice}+all_symmetries", keeps=True),
        *(merged(children, "ties", "ties", {"density": density}, density) for density in (0.2, 0.5)),
        *(merged(children[:2], "dare", "dare", {"drop": drop}, drop) for drop in (0.5, 0.9)),
    ]


def ordered(members: Iterable[ZooMember], bases: Iterable[ZooMember]) -> tuple[ZooMember, ...]:
    """Return the bases and then every other member after all that it comes from."""
    known = {member.name: member for member in bases}
    waiting = list(members)
    while waiting:
        ready = [member for member in waiting if all(link.parent in known for link in member.links)]
        if not ready:
            raise ValueError(f"nothing to make {waiting[0].name} from: {', '.join(waiting[0].parents)}")
        known |= {member.name: member for member in ready}
        waiting = [member for member in waiting if member.name not in known]
    return tuple(known.values())


def _full() -> tuple[ZooMember, ...]:
    found: list[ZooMember] = []
    for member in BASES:
        assert isinstance(member.how, Training)
        ffn = member.how.shape.get("ffn", 256)
        found += [*symmetries(member.name), *damages(member.name), *reshapings(member.name, SHAPE["layers"], ffn)]
        if member.name in TUNED:
            found += trained(member.name)
    for parent, other in PARTNERS.items():
        found += blends(parent, other, SHAPE["layers"])
    return ordered(found, BASES)


def _quick() -> tuple[ZooMember, ...]:
    """Return three bases, the changes made of them without training, and the light fine-tunes."""
    kept: dict[str, ZooMember] = {}
    for member in FULL:
        made = isinstance(member.how, Edit) or member.name.endswith("finetune-light")
        if member.name in ("a0", "a1", "b0") or (made and all(link.parent in kept for link in member.links)):
            kept[member.name] = member
    return tuple(kept.values())


FULL = _full()
QUICK = _quick()
