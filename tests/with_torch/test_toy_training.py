"""The toy GPT-2 experiment: a model that is really a GPT-2, trained without leaving a trace in the caller's torch."""

import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from kinprint.errors import BadSetting, NeedsExtra
from kinprint.studies.toy_init.experiment import FULL, NORMS, PLAN, REDUCED, ToySetting, run_toy

torch = pytest.importorskip("torch")


from kinprint.studies.toy_init.training import chain_text, initial_parameters, logits, shifted_text, train  # noqa: E402 - needs torch

TINY = ToySetting(layers=2, width=128, heads=4, vocabulary=64, positions=33, batch=1, steps=80)
SHORT = replace(TINY, width=32, steps=4)


def cosines(a, b):
    return (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def pearsons(a, b):
    return cosines(a - a.mean(axis=1, keepdims=True), b - b.mean(axis=1, keepdims=True))


@pytest.fixture(scope="module", params=[False, True], ids=["shifted", "distinct"])
def models(request):
    return run_toy(replace(TINY, distinct_data=request.param))


def test_the_four_models_are_those_of_the_plan(models):
    assert [(m.name, m.initialisation) for m in models] == list(PLAN)
    assert [m.stream for m in models] == [1, 2, 3, 4]
    assert [m.seed for m in models] == [10, 20, 30, 40]
    for model in models:
        assert len(model.losses) == TINY.steps
        for weights in (model.norms, model.start):
            assert tuple(weights) == NORMS
            assert {w.shape for w in weights.values()} == {(TINY.layers, TINY.width)}
            assert {w.dtype for w in weights.values()} == {np.dtype(np.float64)}


def test_losses_start_at_chance_and_fall(models):
    for model in models:
        assert model.losses[0] == pytest.approx(math.log(TINY.vocabulary), abs=0.25)
        assert np.mean(model.losses[-10:]) < 0.6 * model.losses[0]


def test_norms_from_one_stay_near_one_and_their_cosine_says_nothing(models):
    ones_a, ones_b = models[:2]
    for norm in NORMS:
        a, b = ones_a.norms[norm], ones_b.norms[norm]
        assert np.all(ones_a.start[norm] == 1)
        assert 1e-3 < np.abs(a - 1).max() < 0.2, "trained, but not far"
        assert cosines(a, b).min() > 0.999
        assert np.abs(pearsons(a, b)).max() < 0.5


def test_random_norms_keep_their_own_start_and_share_nothing(models):
    random_a, random_b = models[2:]
    for norm in NORMS:
        for model in (random_a, random_b):
            assert np.abs(model.norms[norm] - model.start[norm]).max() > 1e-3
            assert pearsons(model.norms[norm], model.start[norm]).min() > 0.9
        # five standard deviations of an independent pair
        bound = 5 / math.sqrt(TINY.width)
        assert np.abs(pearsons(random_a.norms[norm], random_b.norms[norm])).max() < bound
        assert np.abs(cosines(random_a.norms[norm], random_b.norms[norm])).max() < bound


def test_two_runs_are_equal_and_another_seed_is_not():
    first, again = run_toy(SHORT), run_toy(SHORT)
    for a, b in zip(first, again, strict=True):
        assert a.losses == b.losses
        for norm in NORMS:
            np.testing.assert_array_equal(a.norms[norm], b.norms[norm])
    other = run_toy(replace(SHORT, seeds=(11, 20, 30, 40)))
    assert other[0].losses != first[0].losses
    assert other[1].losses == first[1].losses


@pytest.mark.parametrize("fails", [False, True])
def test_the_callers_torch_is_left_as_it_was(fails):
    class Halted(Exception):
        pass

    def progress(name, done, total):
        assert torch.get_num_threads() == 1
        if fails and done == 2:
            raise Halted

    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        torch.default_generator.manual_seed(5)
        before = torch.get_rng_state()
        with torch.no_grad():
            if fails:
                with pytest.raises(Halted):
                    run_toy(SHORT, progress=progress)
            else:
                assert len(run_toy(SHORT, progress=progress)) == 4
            assert not torch.is_grad_enabled()
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


def test_the_callers_random_state_does_not_matter():
    torch.default_generator.manual_seed(1)
    first = train(SHORT, "x", "random", stream=3, seed=30)
    torch.default_generator.manual_seed(2)
    assert train(SHORT, "x", "random", stream=3, seed=30).losses == first.losses


def test_progress_counts_every_step_of_every_model():
    seen = []
    run_toy(SHORT, progress=lambda *call: seen.append(call))
    for name, _ in PLAN:  # side by side, so the models take turns
        assert [call[1:] for call in seen if call[0] == name] == [
            (step, SHORT.steps) for step in range(1, SHORT.steps + 1)
        ]
    assert len(seen) == len(PLAN) * SHORT.steps


def test_the_initialisations_differ_in_the_norm_weights_alone():
    ones = initial_parameters(SHORT, "ones", seed=7)
    drawn = initial_parameters(SHORT, "random", seed=7)
    different = {name for name in ones if not torch.equal(ones[name], drawn[name])}
    norms = {f"h.{layer}.{norm}.weight" for layer in range(SHORT.layers) for norm in NORMS}
    assert different == norms | {"ln_f.weight"}
    assert all(not tensor.any() for name, tensor in drawn.items() if name.endswith(".bias"))


def test_initial_spreads_are_those_of_gpt2():
    parameters = initial_parameters(TINY, "random", seed=10)
    residual = 0.02 / math.sqrt(2 * TINY.layers)
    expected = {
        "wte.weight": 0.02,
        "h.1.attn.c_attn.weight": 0.02,
        "h.1.attn.c_proj.weight": residual,
        "h.1.mlp.c_fc.weight": 0.02,
        "h.1.mlp.c_proj.weight": residual,
    }
    for name, std in expected.items():
        assert float(parameters[name].std()) == pytest.approx(std, rel=0.05), name
    assert "lm_head.weight" not in parameters, "the head is tied"


def test_norm_weights_are_not_a_multiple_of_other_weights_of_the_same_seed():
    parameters = initial_parameters(TINY, "random", seed=30)
    norm = parameters["h.0.ln_1.weight"].numpy()
    for name in ("wte.weight", "wpe.weight"):
        first = parameters[name].numpy().ravel()[: TINY.width]
        assert abs(np.corrcoef(norm, first)[0, 1]) < 0.5


def oracle_logits(parameters, tokens, setting):
    """Return the scores of the same model, built from torch's own transformer layers."""
    x = parameters["wte.weight"][tokens] + parameters["wpe.weight"][: tokens.shape[1]]
    mask = torch.full((tokens.shape[1],) * 2, -math.inf).triu(1)
    for index in range(setting.layers):
        layer = torch.nn.TransformerEncoderLayer(
            setting.width,
            setting.heads,
            dim_feedforward=4 * setting.width,
            dropout=0.0,
            activation=lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
            batch_first=True,
            norm_first=True,
        )
        names = {
            "self_attn.in_proj_": "attn.c_attn.",
            "self_attn.out_proj.": "attn.c_proj.",
            "linear1.": "mlp.c_fc.",
            "linear2.": "mlp.c_proj.",
            "norm1.": "ln_1.",
            "norm2.": "ln_2.",
        }
        state = {a + end: parameters[f"h.{index}.{b}{end}"] for a, b in names.items() for end in ("weight", "bias")}
        layer.load_state_dict(state)
        x = layer(x, src_mask=mask)
    x = torch.nn.functional.layer_norm(x, (setting.width,), parameters["ln_f.weight"], parameters["ln_f.bias"])
    return x @ parameters["wte.weight"].T


def test_the_model_agrees_with_torchs_own_layers():
    # Larger weights than at the start, and biases: else the attention is flat and a wrong one would pass.
    generator = torch.Generator().manual_seed(3)
    start = initial_parameters(SHORT, "random", seed=10)
    parameters = {name: p + 0.2 * torch.randn(p.shape, generator=generator) for name, p in start.items()}
    tokens = torch.randint(SHORT.vocabulary, (2, 20), generator=generator)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        expected = oracle_logits(parameters, tokens, SHORT)
        got = logits(parameters, tokens, SHORT)
    assert float(expected.std()) > 0.1
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


def test_no_token_sees_a_later_one():
    parameters = initial_parameters(SHORT, "ones", seed=10)
    tokens = torch.arange(12).reshape(1, 12)
    changed = tokens.clone()
    changed[0, 7] = 50
    before = logits(parameters, tokens, SHORT)
    after = logits(parameters, changed, SHORT)
    torch.testing.assert_close(before[:, :7], after[:, :7])
    assert (before[:, 7:] - after[:, 7:]).abs().amax(dim=-1).min() > 1e-6


def test_the_published_streams_are_one_sequence_at_other_phases():
    setting = replace(FULL, batch=3)
    first, second = shifted_text(setting, 1), shifted_text(setting, 2)
    rows = first(5)
    assert rows.shape == (3, 128)
    np.testing.assert_array_equal(rows, np.broadcast_to((105 + np.arange(128)) % 256, (3, 128)))
    np.testing.assert_array_equal(second(0), first(100))


def test_distinct_streams_are_chains_of_their_own():
    setting = replace(FULL, batch=16, distinct_data=True)
    pairs = {}
    for stream in (1, 2):
        draw = chain_text(setting, stream)
        np.testing.assert_array_equal(draw(3), chain_text(setting, stream)(3))
        assert not np.array_equal(draw(3), draw(4))
        rows = np.concatenate([draw(step) for step in range(20)])
        assert rows.min() >= 0
        assert rows.max() < 256
        pairs[stream] = set(zip(rows[:, :-1].ravel().tolist(), rows[:, 1:].ravel().tolist(), strict=True))
        followers = np.bincount([a for a, _ in pairs[stream]], minlength=256)
        assert followers.max() == 3, "a chain, not noise"
    # 768 of 65,536 pairs each: 9 in common by chance
    assert len(pairs[1]) > 500
    assert len(pairs[1] & pairs[2]) < 30


@pytest.mark.parametrize(
    "changes",
    [
        {"layers": 0},
        {"steps": 0},
        {"width": 10, "heads": 4},
        {"positions": 1},
        {"vocabulary": 3},
        {"dropout": 1.0},
        {"learning_rate": 0.0},
        {"streams": (1, 2, 3)},
        {"seeds": (10, 20, 30, -1)},
        {"seeds": (10, 20, 30, 10 + 2**32)},
    ],
)
def test_settings_that_make_no_sense_are_refused(changes):
    with pytest.raises(BadSetting, match=next(iter(changes))):
        replace(TINY, **changes)


def test_the_reduced_setting_keeps_what_moves_norms():
    assert (REDUCED.steps, REDUCED.learning_rate, REDUCED.dropout) == (FULL.steps, FULL.learning_rate, FULL.dropout)
    assert (REDUCED.vocabulary, REDUCED.streams, REDUCED.seeds) == (FULL.vocabulary, FULL.streams, FULL.seeds)
    assert REDUCED.width // REDUCED.heads == FULL.width // FULL.heads


def test_the_package_loads_without_torch():
    code = "import sys, kinprint.studies.toy_init.experiment; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_without_torch_the_extra_is_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "kinprint.studies.toy_init.training")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(NeedsExtra, match=r"needs the extra 'torch'(.|\n)*pip install .*'torch=="):
        run_toy(SHORT)
