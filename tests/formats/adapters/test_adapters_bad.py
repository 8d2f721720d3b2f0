"""Adapters that are refused, and spoilt ones."""

import time
import tracemalloc
import warnings

import numpy as np
import pytest

from kinprint.errors import FormatError, KinprintError, UnsupportedDtype
from kinprint.formats.checkpoint import open_checkpoint
from kinprint.formats.plan import rows, whole
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from kinprint.testing.adapter_files import (
    HIDDEN,
    Q,
    drawn,
    factors,
    lora_names,
)


def read(checkpoint, name):
    return checkpoint.read([whole(checkpoint.tensors[name])])[0]


def close(got, want):
    """Equal but for the order of a sum in float64."""
    return got.dtype == want.dtype and got.shape == want.shape and np.allclose(got, want, rtol=3e-7, atol=1e-7)


# -- what is refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"peft_type": "LOHA"}, "adapter type 'LOHA' is not known"),
        ({"peft_type": "IA3"}, "adapter type 'IA3' is not known"),
        ({"peft_type": "PROMPT_TUNING"}, "adapter type 'PROMPT_TUNING' is not known"),
        ({"peft_type": "ADALORA"}, "adapter type 'ADALORA' is not known"),
        ({"peft_type": None}, "does not say its type"),
        ({"peft_type": ["LORA"]}, "is not known"),
        ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights is 'pissa_niter_4'"),
        ({"init_lora_weights": {}}, "init_lora_weights"),
        ({"layer_replication": [[0, 2]]}, "layer_replication is set"),
        ({"alora_invocation_tokens": [1]}, "alora_invocation_tokens is set"),
        ({"lora_bias": True}, "lora_bias is set"),
        ({"target_parameters": ["mlp.experts"]}, "target_parameters is set"),
        ({"r": 0}, "r is 0"),
        ({"r": 8.5}, "expected an integer"),
        ({"r": True}, "r is True"),
        ({"r": 10**15}, "r is 1000000000000000"),
        ({"r": 4}, "has rank 8, the config says 4"),
        ({"lora_alpha": None}, "lora_alpha is None"),
        ({"lora_alpha": "16"}, "lora_alpha is '16'"),
        ({"lora_alpha": 1e300}, "lora_alpha is 1e\\+300"),
        ({"alpha_pattern": [1]}, "alpha_pattern"),
        ({"alpha_pattern": {"q_proj": "x"}}, "alpha_pattern: 'q_proj' is 'x'"),
        ({"use_dora": True}, "no lora_magnitude_vector, and the config says use_dora"),
    ],
)
def test_configs_that_are_refused(settings, said, adapter, opened):
    with pytest.raises(FormatError, match=said):
        opened(adapter(GOOD, **settings))


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 5000, '{"r": ' + "9" * 400 + "}", "\xff"])
def test_configs_that_are_no_json(text, adapter, opened):
    folder = adapter()
    (folder / "adapter_config.json").write_text(text)
    with pytest.raises(FormatError):
        opened(folder)


def named(part, values):
    return {f"base_model.model.{Q.format(0)}.{part}": values}


GOOD = lora_names(Q.format(0), drawn(1, 8, HIDDEN), drawn(2, HIDDEN, 8))


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        (named("lora_A.weight", drawn(1, 8, HIDDEN)), "has no lora_B"),
        (named("lora_embedding_B", drawn(1, HIDDEN, 8)), "has no lora_embedding_A"),
        (named("lora_magnitude_vector", drawn(1, HIDDEN)), "has the parts lora_magnitude_vector"),
        (GOOD | named("lora_embedding_A", drawn(1, 8, 4)), "expected one A and one B"),
        (GOOD | named("lora_A.default.weight", drawn(1, 8, HIDDEN)), "stored twice"),
        (GOOD | named("lora_magnitude_vector", drawn(1, HIDDEN)), "config does not say use_dora"),
        (GOOD | named("lora_B.bias", drawn(1, HIDDEN)), "lora_B.bias' is of a kind that is not known"),
        (GOOD | named("lora_E", drawn(1, 8, 1)), "lora_E' is of a kind that is not known"),
        (GOOD | named("trainable_tokens_delta", drawn(1, 8)), "of a kind that is not known"),
        (GOOD | {"base_model.model.extra.weight": drawn(1, 8)}, "modules_to_save does not name"),
        (GOOD | {"base_model.model.lm_head.weight": drawn(1, 8, 3)}, "as \\[8, 3\\], its base as \\[60, 48\\]"),
        ({"base_model.model.lm_head.weight": drawn(1, 60, HIDDEN)}, "holds no lora_A"),
        (lora_names(Q.format(0), drawn(1, 8, HIDDEN), drawn(2, HIDDEN, 7)), "expected rank × in and out × rank"),
        (lora_names(Q.format(0), drawn(1, 8), drawn(2, HIDDEN, 8)), "expected rank × in and out × rank"),
        (lora_names(Q.format(0), drawn(1, 8, 0), drawn(2, HIDDEN, 8)), "expected rank × in and out × rank"),
        (lora_names(Q.format(0), drawn(1, 8, HIDDEN + 1), drawn(2, HIDDEN, 8)), "which fit a matrix \\[48, 49\\]"),
        (lora_names(Q.format(7), drawn(1, 8, HIDDEN), drawn(2, HIDDEN, 8)), "1 of 1 targets are not there"),
        (GOOD | named("lora_A.x.y.weight", drawn(1, 8, HIDDEN)), "of a kind that is not known"),
    ],
)
def test_tensors_that_are_refused(tensors, said, adapter, opened):
    with pytest.raises(FormatError, match=said):
        opened(adapter(tensors))


def test_lengths_of_the_wrong_number(adapter, opened):
    with pytest.raises(FormatError, match="lora_magnitude_vector is \\[5\\]"):
        opened(adapter(GOOD | named("lora_magnitude_vector", drawn(1, 5)), use_dora=True))


def test_integers_in_an_adapter(adapter, opened):
    with pytest.raises(UnsupportedDtype, match="stored as I32"):
        opened(adapter(lora_names(Q.format(0), np.ones((8, HIDDEN), np.int32), drawn(1, HIDDEN, 8))))


def test_values_that_are_not_finite_stay_where_they_are(adapter, opened):
    down, up = factors(Q.format(0), HIDDEN, HIDDEN)
    up[4, 1], up[9, 2] = np.nan, 3e38
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = read(opened(adapter(lora_names(Q.format(0), down, up))), f"{Q.format(0)}.weight")
    assert np.isnan(got[4]).all()
    assert not np.isfinite(got[9]).all()
    assert np.isfinite(np.delete(got, [4, 9], axis=0)).all()


def test_truncated_files_are_refused(adapter, opened):
    folder = adapter()
    file = folder / "adapter_model.safetensors"
    data = file.read_bytes()
    for length in (0, 1, 7, 8, 20, 500, len(data) // 2, len(data) - 1):
        file.write_bytes(data[:length])
        with pytest.raises(KinprintError):
            opened(folder)


def mutate(rng, data):
    """Flip, cut, double or replace some bytes."""
    data = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        at, size = int(rng.integers(0, max(1, len(data)))), int(rng.integers(1, 9))
        kind = rng.integers(0, 4)
        if kind == 0:
            data[at : at + 1] = bytes([int(rng.integers(0, 256))])
        elif kind == 1:
            del data[at : at + size]
        elif kind == 2:
            data[at:at] = data[at : at + size]
        else:
            data[at : at + size] = rng.choice([b"null", b"-1", b"1e99", b'""', b"[]", b"0", b"lora_B", b"."])
    return bytes(data)


def fuzz(folder, cases, seed):
    """Spoil the config and the header in turn: only errors of our own, no hang, no memory beyond a constant."""
    rng = np.random.default_rng(seed)
    config, weights = folder / "adapter_config.json", folder / "adapter_model.safetensors"
    good, data = config.read_bytes(), weights.read_bytes()
    header = 8 + int.from_bytes(data[:8], "little")
    refused, slowest = 0, 0.0
    tracemalloc.start()
    for case in range(cases):
        if case % 2:
            config.write_bytes(mutate(rng, good))
        else:
            weights.write_bytes(mutate(rng, data[:header]) + data[header:])
        started = time.monotonic()
        try:
            with Session(Settings(range_cache=None, hub_cache=None, offline=True)) as session:
                found = open_checkpoint(str(folder), session)
                for name in found.tensors:
                    found.read([rows(found.tensors[name], [(0, 1)])])
        except KinprintError:
            refused += 1
        slowest = max(slowest, time.monotonic() - started)
        config.write_bytes(good)
        weights.write_bytes(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert slowest < 5.0
    assert peak < 64 << 20
    assert cases * 0.3 < refused < cases
    return refused


def test_spoilt_adapters(adapter):
    assert fuzz(adapter(modules_to_save=["x"], alpha_pattern={"q_proj": 4}), 300, seed=1) > 0


@pytest.mark.slow
def test_many_spoilt_adapters(adapter):
    assert fuzz(adapter(modules_to_save=["x"], alpha_pattern={"q_proj": 4}), 8000, seed=2) > 0
