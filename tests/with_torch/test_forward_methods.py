"""REEF and neuron matching on activations, through transformers: files and memory alike, symmetries, the demo family, bad input."""

import json
import shutil

import numpy as np
import pytest

from kinprint.errors import DegenerateInput
from kinprint.fingerprints.forward import Runner, prompts
from kinprint.fingerprints.methods.match_activations import MatchActivations
from kinprint.fingerprints.methods.reef import REEF
from kinprint.lab.zoo import derive
from kinprint.lab.zoo.held import HeldWeights
from kinprint.model.model import open_model
from kinprint.model.weights import StoredWeights
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from support.places import DEMO_MODELS, FAMILY_MODELS

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

MODELS = DEMO_MODELS
FAMILY = FAMILY_MODELS
REEF_METHOD, MATCH = REEF(), MatchActivations()


@pytest.fixture(scope="module")
def base():
    return derive.load_state(MODELS / "base")


def held(state, config, tokenizer, label="model"):
    return HeldWeights(label, state, config, tokenizer)


def demo(name):
    return held(*derive.load_state(MODELS / name), label=name)


@pytest.fixture
def stored():
    with Session(Settings()) as session:
        yield lambda folder: StoredWeights(open_model(str(folder), session))


def symmetries(base):
    state, config, tokenizer = base
    for change in (
        derive.permute_residual,
        derive.flip_signs,
        derive.permute_neurons,
        derive.permute_heads,
        derive.rescale_neurons,
        derive.rescale_values,
    ):
        yield change.__name__, held(change(state, config, 5), config, tokenizer)
    rotated, rotated_config = derive.rotate_residual(state, config, 5)
    yield "rotate_residual", held(rotated, rotated_config, tokenizer)


def test_files_and_memory_give_the_same(base, stored):
    from_files = stored(MODELS / "base")
    one, two = list(Runner(from_files).last_tokens()), list(Runner(held(*base)).last_tokens())
    assert len(one) == 4
    for X, Y in zip(one, two, strict=True):
        assert X.shape == (200, 96)
        assert X.dtype == np.float32
        assert np.array_equal(X, Y)
    assert from_files.bytes_read >= (MODELS / "base" / "model.safetensors").stat().st_size


def test_padding_and_batches_change_nothing(base):
    """Each prompt alone, through the model itself, without hooks; before the final norm."""
    from transformers import LlamaConfig, LlamaModel

    state, config, _ = base
    runner = Runner(held(*base))
    module = LlamaModel(LlamaConfig(**config, attn_implementation="eager")).eval()
    weights = {k.removeprefix("model."): torch.from_numpy(np.array(v)) for k, v in state.items() if "lm_head" not in k}
    module.load_state_dict(weights)
    found = list(runner.last_tokens())
    cut = runner.prompts()
    for number in (0, 37, 199):
        with torch.inference_mode():
            hidden = module(torch.tensor([cut[number].ids]), output_hidden_states=True).hidden_states
        for layer in range(3):  # the last of them is normed
            assert np.allclose(found[layer][number], hidden[layer + 1][0, -1].numpy(), atol=1e-5)
        normed = module.norm(torch.from_numpy(found[3][number]))
        assert np.allclose(normed.detach().numpy(), hidden[4][0, -1].numpy(), atol=1e-5)


def test_what_neurons_give_is_the_product_of_their_weights(base):
    state, _, _ = base
    runner = Runner(held(*base))
    places = [(0, 1), (7, 2), (199, 0)]
    gate, up = runner.neurons(places)[2]
    assert gate.shape == up.shape == (256, 3)
    # both are linear in one input, which the other determines
    both = np.concatenate([state[f"model.layers.2.mlp.{name}_proj.weight"] for name in ("gate", "up")])
    given = np.concatenate([gate, up])
    fitted, *_ = np.linalg.lstsq(both.astype(np.float64), given, rcond=None)
    assert np.abs(both @ fitted - given).max() < 1e-4 * np.abs(given).max()


def test_reef_is_invariant_to_every_symmetry(base):
    original = REEF_METHOD.extract(held(*base))
    assert REEF_METHOD.score(original, original).value == pytest.approx(1.0, abs=1e-9)
    for name, other in symmetries(base):
        assert REEF_METHOD.score(original, REEF_METHOD.extract(other)).value == pytest.approx(1.0, abs=1e-4), name


def test_reef_on_the_demo_family():
    """Shared language alone gives some likeness: that is what the empirical null is for."""
    original = REEF_METHOD.extract(demo("base"))
    scores = {
        name: REEF_METHOD.score(original, REEF_METHOD.extract(demo(name)))
        for name in ("finetune", "grown", "unrelated")
    }
    assert scores["finetune"].value > 0.6
    assert scores["grown"].value > 0.6
    assert 0.0 < scores["unrelated"].value < 0.2
    assert scores["unrelated"].details["biased"] > scores["unrelated"].value


def test_match_is_invariant_to_every_symmetry(base):
    for name, other in symmetries(base):
        score = MATCH.score_models(held(*base), other)
        assert score.value > 0.999, name
        assert score.details["agreement"] > 0.999, name


def test_match_is_not_invariant_to_training_from_another_start(base):
    score = MATCH.score_models(held(*base), demo("unrelated"))  # which has a tokenizer of its own
    assert abs(score.value) < 0.15
    assert score.chance.log10_p > -3
    assert score.details["agreement"] < 0.05


def test_match_on_the_demo_family(base):
    assert MATCH.score_models(held(*base), demo("finetune")).value > 0.99
    grown = MATCH.score_models(held(*base), demo("grown"))
    assert dict(grown.layers) == {0: 0, 1: 1, 2: 2, 3: 1, 4: 2, 5: 3}


def test_a_mixture_can_be_run_but_its_experts_not_watched(base):
    upcycled = held(*derive.load_state(FAMILY / "upcycled"), label="upcycled")
    assert REEF_METHOD.score_models(held(*base), upcycled).value > 0.8
    with pytest.raises(DegenerateInput, match="no gate and up maps"):
        MATCH.score_models(held(*base), upcycled)


def test_two_runs_are_equal_and_nothing_is_left_behind(base, capsys):
    threads = torch.get_num_threads()
    one, two = (REEF_METHOD.extract(held(*base)) for _ in range(2))
    assert np.array_equal(one.arrays["grams"], two.arrays["grams"])
    assert torch.get_num_threads() == threads
    assert torch.is_grad_enabled()
    printed = capsys.readouterr()
    assert printed.out == printed.err == ""


def test_a_bert_is_run_too(tmp_path, stored):
    """A model that looks both ways, without a gate."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    BertModel(BertConfig(**sizes, vocab_size=512, max_position_embeddings=64)).save_pretrained(tmp_path)
    shutil.copy(MODELS / "base" / "tokenizer.json", tmp_path)
    model = stored(tmp_path)
    assert REEF_METHOD.score_models(model, model).value == pytest.approx(1.0)
    with pytest.raises(DegenerateInput, match="no gate and up maps"):
        MATCH.score_models(model, model)


def test_a_model_elsewhere_or_without_a_tokenizer(base, stored, tmp_path):
    state, config, tokenizer = base
    with pytest.raises(DegenerateInput, match="has no tokenizer"):
        REEF_METHOD.extract(held(state, config, None))
    away = stored(MODELS / "base")
    away.folder = None
    with pytest.raises(DegenerateInput, match="needs the model's files on this machine"):
        REEF_METHOD.extract(away)
    for name in ("config.json", "model.safetensors"):
        shutil.copy(MODELS / "base" / name, tmp_path)
    with pytest.raises(DegenerateInput, match=r"has no tokenizer\.json"):
        REEF_METHOD.extract(stored(tmp_path))
    with pytest.raises(DegenerateInput, match="tokenizer cannot be read"):
        REEF_METHOD.extract(held(state, config, {"model": {"type": "none"}}))
    assert len(Runner(held(state, config, tokenizer)).prompts()) == len(prompts())


def test_missing_weights_are_not_filled_with_noise(base):
    state, config, tokenizer = base
    lacking = {name: values for name, values in state.items() if "layers.2.mlp.up_proj" not in name}
    with pytest.raises(DegenerateInput, match=r"1 weights are missing, such as layers\.2\.mlp\.up_proj"):
        REEF_METHOD.extract(held(lacking, config, tokenizer))


def test_what_transformers_cannot_load(base, stored, tmp_path):
    state, config, tokenizer = base
    with pytest.raises(DegenerateInput, match="cannot be loaded by transformers"):
        REEF_METHOD.extract(held(state, {**config, "model_type": "no-such-model"}, tokenizer))
    small = {**state, "model.embed_tokens.weight": state["model.embed_tokens.weight"][:100]}
    with pytest.raises(DegenerateInput, match="embedding has 100 rows"):
        REEF_METHOD.extract(held(small, {**config, "vocab_size": 100}, tokenizer))
    with pytest.raises(DegenerateInput, match="a prompt has"):
        REEF_METHOD.extract(held(state, {**config, "max_position_embeddings": 4}, tokenizer))
    broken = {**state, "model.norm.weight": state["model.norm.weight"]}
    broken["model.layers.1.input_layernorm.weight"] = np.full(96, np.inf, np.float32)
    with pytest.raises(DegenerateInput, match="not finite"):
        REEF_METHOD.extract(held(broken, config, tokenizer))


def test_no_code_of_the_model_is_run(stored, tmp_path):
    """A config that points to code beside it: the code is not touched."""
    shutil.copytree(MODELS / "base", tmp_path / "model")
    folder = tmp_path / "model"
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Own", "AutoModel": "own.Own"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    with pytest.raises(DegenerateInput, match="cannot be loaded by transformers"):
        REEF_METHOD.extract(stored(folder))
    assert not (tmp_path / "ran").exists()


def test_an_adapter_is_refused(stored, tmp_path):
    shutil.copytree(MODELS / "base", tmp_path / "model")
    model = stored(tmp_path / "model")
    (tmp_path / "model" / "adapter_config.json").write_text("{}")
    with pytest.raises(DegenerateInput, match="is an adapter"):
        REEF_METHOD.extract(model)
