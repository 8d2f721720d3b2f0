"""What the full zoo holds, made by `kinprint.lab.zoo.build`; what ships with the project is in `kinprint.lab.zoo.tiny`.

A name is the parent's name, a point, and what was done to it. Seeds are fixed here, so that two builds with the same
versions give the same weights.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from kinprint.lab.zoo.members import COMPONENTS, NORM_PARTS, Edit, Link, Training, ZooMember

SHAPE: Mapping[str, int] = {"layers": 6}
WIDE: Mapping[str, int] = {"layers": 6, "hidden": 128, "heads": 8, "ffn": 344}
TEXT_A = ("manual-even", "docstrings-am")
TEXT_B = ("manual-odd", "docstrings-nz")
TEXT_C = ("source-nz",)
STEPS, RATE = 800, 4e-3

NOT_EMBEDDINGS = tuple(part for part in COMPONENTS if part != "embeddings")
NOT_NORMS = tuple(part for part in COMPONENTS if part not in NORM_PARTS)

# How hard a model is trained on after it was changed: steps and peak learning rate.
LEVELS = {"light": (80, 5e-4), "medium": (200, 1e-3), "heavy": (400, 2e-3)}


def _seed(name: str) -> int:
    """Give each member a seed of its own that does not depend on what else is planned."""
    return zlib.crc32(name.encode()) % 1_000_000


def base(
    name: str,
    init_seed: int,
    corpora: tuple[str, ...],
    tokenizer: tuple[str, ...],
    *,
    shape: Mapping[str, int] = SHAPE,
    relation: str = "base",
    links: tuple[Link, ...] = (),
) -> ZooMember:
    """Return a member trained from random weights."""
    how = Training(
        corpora, STEPS, RATE, data_seed=_seed(name), init_seed=init_seed, tokenizer=tokenizer, shape=dict(shape)
    )
    return ZooMember(name, relation, relation, how, links, seed=init_seed)


BASES = (
    base("a0", 5101, TEXT_A, TEXT_A),
    base("a1", 5102, TEXT_A, TEXT_A),
    base("a2", 5103, TEXT_A, TEXT_A),
    base("b0", 5104, TEXT_B, TEXT_B),
    base("b1", 5105, ("source-am",), ("source-am",)),
    base("c0", 5106, TEXT_C, TEXT_A),
    base("s0", 5101, TEXT_B, TEXT_A, relation="same_init", links=(Link("a0", kind="init"),)),
    base("d0", 5107, TEXT_A, TEXT_A, relation="distilled", links=(Link("a0", kind="outputs"),)),
    base("w0", 5108, TEXT_A, TEXT_A, shape=WIDE),
)
# The texts for training on: of a fine-tune, of pretraining continued, of a child's child.
TUNED: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "a0": (("source-am",), ("source-am-second", "docstrings-nz"), ("manual-odd",)),
    "b0": (("source-am",), ("manual-even", "source-nz"), ("docstrings-am",)),
    "c0": (("manual-even",), ("manual-odd", "docstrings-am"), ("source-am",)),
}
# Whom each is merged with and gives its embeddings and norms to. The wide one fits no other.
PARTNERS = {"a0": "a1", "a1": "a2", "a2": "a0", "b0": "b1", "b1": "c0", "c0": "b0", "s0": "a1", "d0": "a2"}


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
    """Return a member made in numpy, with a seed of its own."""
    links = (Link(parents),) if isinstance(parents, str) else parents
    name = f"{links[0].parent}.{what}"
    how = Edit(function, dict(arguments or {}))
    return ZooMember(name, relation, attack or what, how, links, strength, keeps, _seed(name), dtype)


def symmetries(parent: str) -> list[ZooMember]:
    """Return the changes that leave the function alone."""
    named = {
        "sign_flips": "flip_signs",
        "rotation": "rotate_residual",
        "neuron_scaling": "rescale_neurons",
        "value_scaling": "rescale_values",
        "value_mixing": "mix_values",
        "rotary_turns": "turn_rotary",
        "neuron_permutation": "permute_neurons",
        "head_permutation": "permute_heads",
        "residual_permutation": "permute_residual",
        "permutation": "permute_and_flip",
        "all_symmetries": "all_symmetries",
    }
    return [edited(parent, what, function, keeps=True) for what, function in named.items()]


def damages(parent: str) -> list[ZooMember]:
    """Return the changes of weights that leave the shape alone."""

    def at(attack: str, value: float, function: str, arguments: Mapping[str, Any], unit: float = 1) -> ZooMember:
        return edited(parent, f"{attack}-{round(value * unit)}", function, arguments, attack=attack, strength=value)

    found = [at("noise", sigma, "noise", {"relative_sigma": sigma}, 100) for sigma in (0.05, 0.2, 0.5, 1.0)]
    found += [at("quantised", bits, "quantise", {"bits": bits}) for bits in (8, 4, 3)]
    found += [at("pruned", share, "prune", {"share": share}, 100) for share in (0.3, 0.5, 0.7)]
    found += [at("low_rank", size, "low_rank", {"rank": 8, "relative": size}, 100) for size in (0.1, 0.3)]
    drawn = (Link(parent, shares=NOT_EMBEDDINGS),)
    return [
        *found,
        edited(parent, "cast", "copy", dtype="F16", keeps=True),
        edited(drawn, "embeddings_drawn", "replace_embeddings"),
    ]


def reshapings(parent: str, layers: int, ffn: int, vocabulary: int = 512) -> list[ZooMember]:
    """Return the changes of depth, width and vocabulary."""
    third = max(1, layers // 3)
    deeper = [*range(layers - third), *range(third, layers)]
    fewer = [layer for layer in range(layers) if layer not in (layers // 2, layers // 2 - 2)]
    found = [
        edited(parent, "depth_up", "stack_layers", {"source_layers": deeper}, strength=len(deeper) / layers),
        edited(parent, "layer_drop", "drop_layers", {"keep": fewer}, strength=len(fewer) / layers),
    ]
    for share in (0.75, 0.5):
        what, keep = f"width_pruned-{round(100 * share)}", round(share * ffn)
        found.append(edited(parent, what, "prune_neurons", {"keep": keep}, attack="width_pruned", strength=share))
    cut, grown = round(0.8 * vocabulary), round(0.1 * vocabulary)
    return [
        *found,
        edited(parent, "vocabulary_pruned", "prune_vocabulary", {"keep": cut}, strength=0.8),
        edited(parent, "vocabulary_extended", "extend_vocabulary", {"extra": grown}, strength=1.1),
        edited(parent, "upcycled", "upcycle", {"experts": 4, "noise": 0.05}, strength=0.05),
    ]


def blends(parent: str, other: str, layers: int) -> list[ZooMember]:
    """Return merges of two models, and the second with the first's embeddings or norms."""
    found = []
    for share in (0.9, 0.7, 0.5):
        links = (Link(parent, weight=share), Link(other, weight=round(1 - share, 2)))
        what, weights = f"linear-{round(100 * share)}", {"coefficients": [share, round(1 - share, 2)]}
        found.append(edited(links, what, "merge", weights, attack="linear", strength=share, relation="merged"))
    for share in (0.7, 0.5):
        links = (Link(parent, weight=share), Link(other, weight=round(1 - share, 2)))
        what, way = f"slerp-{round(100 * share)}", {"share": round(1 - share, 2)}
        found.append(edited(links, what, "slerp", way, attack="slerp", strength=share, relation="merged"))
    half, third = layers // 2, max(1, layers // 3)
    # The last norm stays with the first parent too; it alone is no half of the norms.
    lower = (Link(parent, shares=("embeddings", "lower", "lower_norms")),)
    upper = (Link(other, shares=("upper", "upper_norms")),)
    halves = [[0, layer] for layer in range(half)] + [[1, layer] for layer in range(half, layers)]
    longer = [[0, layer] for layer in range(layers - third)] + [[1, layer] for layer in range(third, layers)]
    both = (Link(parent), Link(other, shares=NOT_EMBEDDINGS))
    host = Link(other, shares=NOT_EMBEDDINGS), Link(parent, shares=("embeddings",))
    normed = Link(other, shares=NOT_NORMS), Link(parent, shares=NORM_PARTS)
    return [
        *found,
        edited(lower + upper, "frankenmerge", "frankenmerge", {"layers": halves}, strength=0.5, relation="merged"),
        edited(both, "passthrough", "frankenmerge", {"layers": longer}, attack="passthrough", relation="merged"),
        edited(
            host,
            f"embeddings_of_{parent}",
            "transplant_embeddings",
            attack="embeddings_transplant",
            relation="transplant",
        ),
        edited(normed, f"norms_of_{parent}", "transplant_norms", attack="norms_transplant", relation="transplant"),
    ]


def tuned(parent: str, what: str, corpora: tuple[str, ...], steps: int, rate: float, attack: str) -> ZooMember:
    """Return a member trained on from its parent."""
    name = f"{parent}.{what}"
    how = Training(corpora, steps, rate, data_seed=_seed(name))
    return ZooMember(name, "derived", attack, how, (Link(parent),), round(steps * rate, 6), seed=_seed(name))


def trained(parent: str) -> list[ZooMember]:
    """Return the children that are trained, and what is made of these in turn."""
    text, other, last = TUNED[parent]
    lora = tuned(parent, "lora", text, 150, 2e-3, "lora")
    assert isinstance(lora.how, Training)
    found = [
        tuned(parent, "finetune-light", text, 120, 5e-4, "finetune"),
        tuned(parent, "finetune-heavy", text, 400, 2e-3, "finetune"),
        tuned(parent, "continued", other, 500, RATE, "continued"),
        replace(lora, how=replace(lora.how, lora_rank=4, init_seed=_seed(lora.name))),
    ]
    for change in ("rotation", "permutation"):
        found += [
            tuned(f"{parent}.{change}", f"finetune-{level}", text, *LEVELS[level], f"{change}+finetune")
            for level in LEVELS
        ]
    child = f"{parent}.finetune-heavy"
    found += [
        tuned(f"{parent}.all_symmetries", "finetune", text, *LEVELS["medium"], "all_symmetries+finetune"),
        tuned(f"{parent}.depth_up", "trained", other, 120, 1e-3, "depth_up+train"),
        tuned(child, "finetune", last, 150, 1e-3, "finetune+finetune"),
    ]
    for what, function, arguments in (
        ("quantised", "quantise", {"bits": 4}),
        ("pruned", "prune", {"share": 0.5}),
        ("rotation", "rotate_residual", {}),
        ("permutation", "permute_and_flip", {}),
    ):
        keeps = not arguments
        found.append(edited(child, what, function, arguments, attack=f"finetune+{what}", keeps=keeps))
    grandchild = f"{child}.finetune"
    found.append(
        edited(grandchild, "all_symmetries", "all_symmetries", attack="finetune+finetune+all_symmetries", keeps=True)
    )
    for density in (0.2, 0.5):
        links: tuple[Link, ...] = (Link(parent), Link(child), Link(f"{parent}.continued"))
        what = f"ties-{round(100 * density)}"
        found.append(
            edited(links, what, "ties", {"density": density}, attack="ties", strength=density, relation="merged")
        )
    for drop in (0.5, 0.9):
        links = (Link(parent), Link(child))
        what = f"dare-{round(100 * drop)}"
        found.append(edited(links, what, "dare", {"drop": drop}, attack="dare", strength=drop, relation="merged"))
    return found


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


FULL = _full()
