"""Mixtures of experts in disguise: experts reordered, left out, and MLPs that were split into experts, in any residual basis."""

import numpy as np
import pytest

from kinprint.comparison.pipeline import compare
from kinprint.lab.zoo import derive
from kinprint.results.options import Options
from kinprint.sources.settings import Settings
from support.places import DEMO_MODELS, FAMILY_MODELS

NAMES = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}


def loaded(name):
    return derive.load_state(DEMO_MODELS / name if (DEMO_MODELS / name).exists() else FAMILY_MODELS / name)


def mixture(*names):
    """Make a mixture whose experts are the MLPs of several models; all else is the first one's."""
    members = [loaded(name) for name in names]
    state, config, tokenizer = members[0]
    return as_mixture(state, config, [[member[0] for member in members]] * 4, len(names)), tokenizer


def as_mixture(state, config, sources, experts, rows=None):
    rng = np.random.default_rng(int(1e4 * float(sources[0][0]["model.norm.weight"].sum())))
    result = {name: value for name, value in state.items() if ".mlp." not in name}
    for layer, members in enumerate(sources):
        stem = f"model.layers.{layer}."
        router = 0.1 * rng.standard_normal((experts, config["hidden_size"]))
        result[f"{stem}block_sparse_moe.gate.weight"] = router.astype(np.float32)
        for expert, member in enumerate(members):
            for old, new in NAMES.items():
                value = member[f"{stem}mlp.{old}.weight"]
                if rows is not None:
                    own = slice(expert * rows, (expert + 1) * rows)
                    value = value[:, own] if old == "down_proj" else value[own]
                result[f"{stem}block_sparse_moe.experts.{expert}.{new}.weight"] = np.ascontiguousarray(value)
    kind = {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_experts_per_tok": 2}
    sizes = {"num_local_experts": experts, "intermediate_size": rows or config["intermediate_size"]}
    return result, {**config, **kind, **sizes}


def split(state, config, experts):
    """Deal the neurons of each MLP out to experts, after they were shuffled."""
    state = derive.permute_neurons(state, config, 3)
    return as_mixture(state, config, [[state] * experts] * 4, experts, config["intermediate_size"] // experts)


def reordered(state, config, keep=None):
    """Put experts and router rows in another order, in each layer its own; keep some of them."""
    rng = np.random.default_rng(5)
    orders = [rng.permutation(config["num_local_experts"])[:keep] for _ in range(config["num_hidden_layers"])]
    result = {}
    for name, value in state.items():
        parts = name.split(".")
        if ".experts." in name:
            for new in np.flatnonzero(orders[int(parts[2])] == int(parts[5])):
                result[".".join([*parts[:5], str(new), *parts[6:]])] = value
        else:
            result[name] = value[orders[int(parts[2])]] if name.endswith("moe.gate.weight") else value
    return result, {**config, "num_local_experts": len(orders[0])}


def judged(tmp_path, one, two, *, deep):
    for name, model in (("a", one), ("b", two)):
        derive.save_state(tmp_path / name, *model)
    return compare(tmp_path / "a", tmp_path / "b", Options(metrics=("pearson",), deep=deep), settings=Settings())


def marked(case, in_ci):
    return pytest.param(*case, marks=pytest.mark.slow if in_ci else pytest.mark.nightly)


BASES = {
    "in place": lambda s, c: (s, c),
    "reordered": lambda s, c: (derive.random_symmetry(s, c, 3), c),
    "rotated": lambda s, c: derive.rotate_residual(s, c, 3),
    "all": lambda s, c: derive.all_symmetries(s, c, 3),
}
KINDS = {None: "experts_reordered", 2: "experts_removed"}


@pytest.mark.parametrize(
    ("basis", "keep"),
    [marked((basis, keep), (basis, keep) in {("in place", 2), ("all", None)}) for basis in BASES for keep in KINDS],
)
def test_experts_in_another_order_are_found(basis, keep, tmp_path):
    (state, config), tokenizer = mixture("base", "unrelated", "twin")
    child = BASES[basis](*reordered(state, config, keep))
    report = judged(tmp_path, (state, config, tokenizer), (*child, tokenizer), deep=basis != "in place")
    assert (report.verdict.class_, report.verdict.kind) == (
        "derived",
        KINDS[keep] if basis == "in place" else "re_based",
    )
    parts = {item.component: item for item in report.evidence.components}
    assert parts["mlp"].state == parts["attention"].state == "shared"
    assert "not shared" not in {item.state for item in parts.values()}


@pytest.mark.parametrize("basis", [marked((basis,), basis == "all") for basis in BASES])
@pytest.mark.parametrize("experts", [4, pytest.param(8, marks=pytest.mark.nightly)])
def test_mlps_split_into_experts_are_found(basis, experts, tmp_path):
    state, config, tokenizer = loaded("base")
    child = BASES[basis](*split(state, config, experts))
    report = judged(tmp_path, (state, config, tokenizer), (*child, tokenizer), deep=basis != "in place")
    assert (report.verdict.class_, report.verdict.kind) == (
        "derived",
        "mlp_split" if basis == "in place" else "re_based",
    )
    assert "not shared" not in {item.state for item in report.evidence.components}


@pytest.mark.parametrize("basis", [marked((basis,), basis == "all") for basis in BASES])
@pytest.mark.parametrize("cut", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_independent_mixtures_stay_unaccused(basis, cut, tmp_path):
    (state, config), tokenizer = mixture("base", "unrelated", "twin")
    if cut:
        other = loaded("indep")
        child = BASES[basis](*split(*other[:2], 4))
    else:
        (other, settings), _ = mixture("indep", "distilled_1", "distilled_2")
        child = BASES[basis](other, settings)
    report = judged(tmp_path, (state, config, tokenizer), (*child, tokenizer), deep=True)
    assert report.verdict.class_ == "no_evidence"
    assert report.verdict.log10_p > -4.0
