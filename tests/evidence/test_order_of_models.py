"""compare(A, B) and compare(B, A) give the same class, kind, p-value, and the same map read from the other side."""

from itertools import combinations

import pytest

from kinprint.lab.zoo.derive import drop_layers, noise, permute_neurons, prune, prune_neurons, quantise, stack_layers
from support.places import DEMO_MODELS, FAMILY_MODELS

NAMES = sorted(path.name for root in (DEMO_MODELS, FAMILY_MODELS) for path in root.iterdir() if path.is_dir())
ORIGIN = frozenset({"continued", "norms_reset"})  # slopes along the directions of A differ from those along B's


def place(name):
    return str(next(root / name for root in (DEMO_MODELS, FAMILY_MODELS) if (root / name / "config.json").exists()))


def said(report, *, back=False):
    verdict = report.verdict
    places = [(source, item.layer) for item in report.evidence.alignment.layers for source in item.sources]
    places = sorted((layer, source) for source, layer in places) if back else sorted(places)
    p = None if verdict.log10_p is None else round(verdict.log10_p, 6)
    return verdict.class_, verdict.kind, verdict.kinds, verdict.variant, p, places


@pytest.mark.parametrize(("one", "two"), [("base", "grown"), ("base", "unrelated"), ("sibling", "permuted")])
def test_the_order_of_trained_models_does_not_matter(judge, one, two):
    assert said(judge(place(one), place(two))) == said(judge(place(two), place(one)), back=True)


@pytest.mark.slow
@pytest.mark.parametrize(("one", "two"), [pair for pair in combinations(NAMES, 2) if set(pair) != ORIGIN])
def test_the_order_of_all_bundled_models_does_not_matter(judge, one, two):
    assert said(judge(place(one), place(two))) == said(judge(place(two), place(one)), back=True)


EDITS = {
    "grown": lambda s, c: stack_layers(noise(s, 0.3, 1), c, (0, 1, 1, 2, 3, 3)),
    "moved": lambda s, c: stack_layers(noise(s, 0.3, 2), c, (2, 0, 3, 1)),
    "dropped": lambda s, c: drop_layers(s, c, (0, 2, 3)),
    "pruned": lambda s, c: (prune(s, 0.4), c),
    "quantised": lambda s, c: (quantise(s, 4), c),
    "noisy": lambda s, c: (noise(s, 1.0, 3), c),
    "permuted": lambda s, c: (permute_neurons(s, c, 4), c),
    "narrowed": lambda s, c: prune_neurons(s, c, 200, 5),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EDITS)
def test_the_order_of_a_model_and_its_edit_does_not_matter(judge, demo, folder, name):
    state, config, tokenizer = demo("base")
    child = folder(f"order_{name}", *EDITS[name](state, config), tokenizer)
    for other in ("base", "finetune"):
        assert said(judge(place(other), child)) == said(judge(child, place(other)), back=True)
