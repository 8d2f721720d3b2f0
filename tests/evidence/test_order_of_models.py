"""compare(A, B) and compare(B, A) give the same class, kinds, p-value, and the same map read from the other side."""

from itertools import combinations

import pytest

from kinprint.lab.zoo import derive
from support.orders import said
from support.places import DEMO_MODELS, FAMILY_MODELS

NAMES = sorted(
    path.name for root in (DEMO_MODELS, FAMILY_MODELS) for path in root.iterdir() if (path / "config.json").exists()
)
PAIRS = list(combinations(NAMES, 2))
SAMPLE = {("grown", "sibling"), ("continued", "norms_reset")}
DEEP = {("base", "rotated_tuned")}


def place(name):
    return str(next(root / name for root in (DEMO_MODELS, FAMILY_MODELS) if (root / name / "config.json").exists()))


def assert_same(judge, one, two, **chosen):
    assert said(judge(one, two, **chosen)) == said(judge(two, one, **chosen), back=True)


@pytest.mark.parametrize(("one", "two"), [("base", "grown"), ("base", "unrelated"), ("sibling", "permuted")])
def test_the_order_of_trained_models_does_not_matter(judge, one, two):
    assert_same(judge, place(one), place(two))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("one", "two"), [pytest.param(*pair, marks=() if pair in SAMPLE else pytest.mark.nightly) for pair in PAIRS]
)
def test_the_order_of_all_bundled_models_does_not_matter(judge, one, two):
    assert_same(judge, place(one), place(two))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("one", "two"), [pytest.param(*pair, marks=() if pair in DEEP else pytest.mark.nightly) for pair in PAIRS]
)
def test_the_order_of_all_bundled_models_does_not_matter_to_a_deeper_look(judge, one, two):
    assert_same(judge, place(one), place(two), deep=True)


def unrelated():
    return derive.load_state(DEMO_MODELS / "unrelated")[0]


EDITS = {
    "grown": lambda s, c: derive.stack_layers(derive.noise(s, 0.3, 1), c, (0, 1, 1, 2, 3, 3)),
    "moved": lambda s, c: derive.stack_layers(derive.noise(s, 0.3, 2), c, (2, 0, 3, 1)),
    "dropped": lambda s, c: derive.drop_layers(s, c, (0, 2, 3)),
    "pruned": lambda s, c: (derive.prune(s, 0.4), c),
    "quantised": lambda s, c: (derive.quantise(s, 4), c),
    "noisy": lambda s, c: (derive.noise(s, 1.0, 3), c),
    "permuted": lambda s, c: (derive.permute_neurons(s, c, 4), c),
    "narrowed": lambda s, c: derive.prune_neurons(s, c, 200, 5),
}
MORE_EDITS = {
    "heads": lambda s, c: (derive.permute_heads(s, c, 2), c),
    "folded": derive.fold_norms,
    "scaled": lambda s, c: (derive.scale(s, 1.3), c),
    "adapter": lambda s, c: (derive.low_rank(s, 4, 0.05, 7), c),
    "averaged": lambda s, c: (derive.merge([s, unrelated()], [0.7, 0.3]), c),
    "spherical": lambda s, c: (derive.slerp(s, unrelated(), 0.3), c),
    "strange norms": lambda s, c: (derive.replace_norms(s, unrelated()), c),
    "new words": lambda s, c: (derive.replace_embeddings(s, 9), c),
    "upcycled": lambda s, c: derive.upcycle(s, c, 4, 0.02, 6),
    "rescaled": lambda s, c: (derive.rescale_neurons(s, c, 4), c),
    "dropped, int4": lambda s, c: derive.drop_layers(derive.quantise(s, 4), c, (0, 2, 3)),
    "folded, pruned": lambda s, c: derive.fold_norms(derive.prune(s, 0.5), c),
    "permuted, int8": lambda s, c: (derive.quantise(derive.permute_neurons(s, c, 4), 8), c),
    "everything": lambda s, c: derive.all_symmetries(s, c, 3),
}


FEW_EDITS = ("narrowed",)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *FEW_EDITS,
        *(pytest.param(name, marks=pytest.mark.nightly) for name in EDITS | MORE_EDITS if name not in FEW_EDITS),
    ],
)
def test_the_order_of_a_model_and_its_edit_does_not_matter(judge, demo, folder, name):
    state, config, tokenizer = demo("base")
    child = folder(f"order_{name}", *(EDITS | MORE_EDITS)[name](state, config), tokenizer)
    for other in ("base", "finetune"):
        assert_same(judge, place(other), child)
