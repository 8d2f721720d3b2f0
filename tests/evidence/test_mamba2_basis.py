"""Mamba 2 in another order of residual dimensions: tokens tell the order, and channels inside heads are tested in it."""

import numpy as np

import kinprint
from support.layouts import write_checkpoint
from support.surveyed import SURVEYED

WIDTH = 64
TOKENIZER = {"version": "1.0", "model": {"type": "WordLevel", "vocab": {f"token{i}": i for i in range(192)}}}


def drawn(seed):
    rng = np.random.default_rng(seed)
    shapes = SURVEYED["mamba2"].shapes
    made = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return {name: 1 + values / 10 if "norm" in name else values for name, values in made.items()}


def in_another_order(tensors):
    order = np.random.default_rng(3).permutation(WIDTH)
    made = {}
    for name, values in tensors.items():
        if name.endswith(("out_proj.weight", "layers.0.norm.weight", "layers.1.norm.weight", "layers.2.norm.weight")):
            made[name] = values[order]
        elif name.endswith(("in_proj.weight", "embeddings.weight", "lm_head.weight", "norm_f.weight")):
            made[name] = values[..., order]
        else:
            made[name] = values
    return made


def test_a_copy_is_found_and_a_stranger_is_not(tmp_path):
    one = drawn(1)
    for name, tensors in {"one": one, "moved": in_another_order(one), "two": drawn(2)}.items():
        write_checkpoint(tmp_path / name, tensors, SURVEYED["mamba2"].config, tokenizer=TOKENIZER)
    verdicts = {}
    for other in ("moved", "two"):
        report = kinprint.compare(tmp_path / "one", tmp_path / other, deep=True)
        verdicts[other] = report.verdict.class_
        aligned = [test for test in report.evidence.tests if test.name == "fixed_points_aligned"]
        assert {test.scope for test in aligned} == {"mixer_value"}
    assert verdicts == {"moved": "shares_components", "two": "no_evidence"}
