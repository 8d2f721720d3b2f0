"""Units whose signs were changed, which changes nothing that a model computes: found as derived, and named for what they are."""

import numpy as np
import pytest

from kinprint.results.findings import DERIVED


def negated(state, config, *, neurons=False, values=False, residual=False):
    """Draw signs for the units asked for and put them on everything that reads or writes them."""
    rng, made = np.random.default_rng(3), dict(state)
    kv, heads = config["num_key_value_heads"], config["num_attention_heads"]

    def signs(count):
        return rng.choice([-1.0, 1.0], size=count).astype(np.float32)

    for name in state:
        if neurons and "up_proj" in name:
            flips, down = signs(len(state[name])), name.replace("up_proj", "down_proj")
            made[name], made[down] = made[name] * flips[:, None], made[down] * flips
        if values and "v_proj" in name:
            flips, out = signs(len(state[name])), name.replace("v_proj", "o_proj")
            made[name] = made[name] * flips[:, None]
            made[out] = made[out] * np.repeat(flips.reshape(kv, -1), heads // kv, axis=0).reshape(-1)
    if residual:
        flips = signs(config["hidden_size"])
        for name, value in made.items():
            writes = "o_proj" in name or "down_proj" in name
            made[name] = value if value.ndim == 1 else value * (flips[:, None] if writes else flips)
    return made


CASES = {
    "neurons": {"neurons": True},
    "values": {"values": True},
    "both": {"neurons": True, "values": True},
    "residual": {"residual": True},
    "all": {"neurons": True, "values": True, "residual": True},
}


@pytest.fixture(scope="module")
def report(demo, folder, judge):
    state, config, tokenizer = demo("base")

    def made(case):
        changed = negated(state, config, **CASES[case])
        return judge(folder("base"), folder(f"negated {case}", changed, config, tokenizer, "F32"))

    return made


@pytest.mark.parametrize("case", CASES)
def test_negated_units_are_found(case, report):
    verdict = report(case).verdict
    assert verdict.class_ == DERIVED, verdict.sentence
    if "residual" in CASES[case]:
        assert (verdict.kind, verdict.variant) == ("re_based", "negated")
