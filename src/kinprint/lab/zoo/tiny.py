"""List the members of the tiny zoo: the bundled models, and what numpy makes of them when asked.

The bundled ones lie in demo/models and tests/family, whose MANIFEST.json say how each was trained. ``Bundled.folder`` is
relative to tests/family, where the zoo.json of this plan lies.
"""

from kinprint.lab.zoo.members import NORM_PARTS, Bundled, Link, ZooMember
from kinprint.lab.zoo.plan import (
    NOT_EMBEDDINGS,
    NOT_NORMS,
    blends,
    damages,
    edited,
    merged,
    ordered,
    reshapings,
    symmetries,
)

LAYERS, FFN = 4, 256
DEMO = "../../demo/models/"
PERMUTATION = "neuron_and_head_permutation"  # the only bundled change that keeps the function


def _bundled(
    name: str, attack: str, *links: Link, relation: str = "derived", place: str = "", strength: float | None = None
) -> ZooMember:
    return ZooMember(name, relation, attack, Bundled(f"{place}{name}"), links, strength, attack == PERMUTATION)


_BASE = Link("base")

# Strength of what was trained is steps times peak learning rate, as in the full zoo.
BUNDLED = (
    _bundled("base", "base", relation="base", place=DEMO),
    _bundled("unrelated", "base", relation="base", place=DEMO),
    _bundled("twin", "base", relation="base"),
    _bundled("indep", "base", relation="base"),
    _bundled("sibling", "same_init", Link("base", kind="init"), relation="same_init"),
    _bundled("distilled_1", "distilled", Link("base", kind="outputs"), relation="distilled"),
    _bundled("distilled_2", "distilled", Link("base", kind="outputs"), relation="distilled"),
    _bundled("hidden_matched", "distilled", Link("base", kind="outputs"), relation="distilled"),
    _bundled("norms_copied", "norms_transplant+train", Link("base", shares=NORM_PARTS), relation="transplant"),
    _bundled("draft", "embeddings_transplant+train", Link("base", shares=("embeddings",)), relation="transplant"),
    _bundled("finetune", "finetune", _BASE, place=DEMO, strength=0.6),
    _bundled("permuted", PERMUTATION, _BASE, place=DEMO),
    _bundled("grown", "depth_up+train", _BASE, place=DEMO, strength=0.2),
    _bundled("continued", "continued", _BASE, strength=4.0),
    _bundled("lora", "lora", _BASE, strength=0.5),
    _bundled("norms_reset", "norms_reset+train", Link("base", shares=NOT_NORMS), strength=0.6),
    _bundled("revocab", "embeddings_drawn+train", Link("base", shares=NOT_EMBEDDINGS), strength=0.8),
    _bundled("upcycled", "upcycled+train", _BASE, strength=0.15),
    _bundled("rotated_tuned", "rotation+finetune", _BASE, strength=0.3),
    _bundled("permuted_tuned", "permutation+finetune", _BASE, strength=0.3),
    _bundled("disguised_tuned", "all_symmetries+finetune", _BASE, strength=0.3),
    _bundled("child_of_child", "finetune+finetune", Link("finetune"), strength=0.3),
)
EDITED = ("base", "unrelated", "twin", "indep")
PARTNERS = {"base": "indep", "indep": "twin", "unrelated": "base"}


def _tiny() -> tuple[ZooMember, ...]:
    found: list[ZooMember] = []
    for name in EDITED:
        found += [*symmetries(name), *damages(name), *reshapings(name, LAYERS, FFN)]
    for parent, other in PARTNERS.items():
        found += blends(parent, other, LAYERS)
    children = (Link("base"), Link("finetune"), Link("continued"))
    return ordered(
        [
            *found,
            merged(children, "ties", "ties", {"density": 0.5}, 0.5),
            merged(children[:2], "dare", "dare", {"drop": 0.5}, 0.5),
            edited("finetune", "quantised", "quantise", {"bits": 4}, attack="finetune+quantised"),
            edited("finetune", "rotation", "rotate_residual", attack="finetune+rotation", keeps=True),
            edited("rotated_tuned", "pruned", "prune", {"share": 0.5}, attack="rotation+finetune+pruned"),
        ],
        BUNDLED,
    )


TINY = _tiny()
