"""Adapters that are refused, and spoilt ones."""

import warnings

import numpy as np
import pytest

from kinprint.errors import FormatError, KinprintError, UnsupportedDtype
from kinprint.formats.plan import rows
from support.adapter_files import HIDDEN, Q, drawn, factors, lora_names, read
from support.fuzzing import MemorySession, fuzz, spoil

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


@pytest.mark.parametrize("cases", [100, pytest.param(20_000, marks=pytest.mark.nightly)])
def test_spoilt_adapters(adapter, cases):
    """Config and header are spoilt in turn; the base is sound."""
    folder = adapter(modules_to_save=["x"], alpha_pattern={"q_proj": 4})
    config, weights = "adapter_config.json", "adapter_model.safetensors"
    sound = {name: (folder / name).read_bytes() for name in (config, weights)}
    header = 8 + int.from_bytes(sound[weights][:8], "little")
    words = [b"null", b"-1", b"1e99", b'""', b"[]", b"0", b"lora_B", b"."]

    def attempt(raw):
        found = session.open_files({**sound, config if raw[:1] == b"{" else weights: raw})
        for name in found.tensors:
            found.read([rows(found.tensors[name], [(0, 1)])])

    def mutant(rng):
        if rng.random() < 0.5:
            return b"{" + spoil(sound[config][1:], rng, words=words)
        return spoil(sound[weights], rng, words=words, stop=header)

    with MemorySession() as session:
        attempt(sound[config])
        refused = fuzz(attempt, mutant, seed=cases, cases=cases)
    assert 0.3 * cases < refused < cases
