"""Comparisons of every kind are repeated from their bundles alone: remote, cached, with controls, adapters, other formats."""

import shutil
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path

import pytest

from kinprint import bundle
from kinprint.evidence.empirical_null import load_null
from kinprint.results.options import Options
from kinprint.sources.settings import Settings
from support.adapter_files import HIDDEN, LITTLE, PATHS, base_tensors, drawn, factors, lora_names, write_adapter
from support.gguf_files import convert_llama, write_gguf
from support.hub import HubServer
from support.layouts import write_checkpoint
from support.places import DEMO_MODELS

verify_bundle = partial(bundle.verify_bundle, allow_local=True)  # the models lie outside the current folder

CONFIG_FOR_GGUF = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "intermediate_size": 96,
    "vocab_size": 40,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 128,
}
DEMO = DEMO_MODELS


def verified(path, **more):
    found = verify_bundle(path, **more)
    assert (found.outcome, found.problems[:3], found.unchecked) == ("verified", (), ())
    assert found.exact == found.figures
    return found


@pytest.fixture
def served(small_model, tmp_path):
    with HubServer(token="hf_right") as server:
        server.add_repo("own/a", small_model(tmp_path / "a", 1, shards=2))
        server.add_repo("own/b", small_model(tmp_path / "b", 1, 0.02))
        yield server


def test_over_the_hub(served, settings_for, bundler, tmp_path):
    plain = settings_for(served)
    first = bundler(tmp_path / "one.zip", "own/a", "own/b@main", settings=plain)
    kept = replace(plain, range_cache=tmp_path / "ranges")
    for _ in range(2):
        again = bundler(tmp_path / "two.zip", "own/a", "own/b@main", settings=kept, enclose=False)
        assert replace(again, run=first.run) == first
    served.reset()
    verified(tmp_path / "one.zip", offline=True)
    assert served.requests == []
    verified(tmp_path / "two.zip", settings=plain)
    assert sum(item.body_bytes for item in served.requests) >= sum(item.bytes_read for item in first.reads)
    served.reset()
    verified(tmp_path / "two.zip", settings=kept)
    assert [item for item in served.requests if item.origin == "cdn"] != []  # the cache is no source
    served.reset()
    found = verified(tmp_path / "two.zip", settings=kept, use_cache=True)
    assert "caches of this machine" in found.sentence
    assert [item for item in served.requests if item.origin == "cdn"] == []


def test_another_hub_than_the_users_own(served, settings_for, bundler, tmp_path):
    """The hub that the bundle names is asked, without the token that is for another."""
    bundler(tmp_path / "x.zip", "own/a", "own/b", settings=settings_for(served), enclose=False)
    served.reset()
    found = verified(tmp_path / "x.zip", settings=settings_for(endpoint="http://127.0.0.1:9", token="hf_right"))
    assert "not on your hub" in found.models[0].said
    assert found.sentence.endswith(f"Not read on your hub: {served.endpoint}/own/a, {served.endpoint}/own/b.")
    assert served.requests
    assert not [item for item in served.requests if item.authorization]


def test_a_commit_that_is_gone(served, settings_for, bundler, small_model, tmp_path):
    """The pinned commit is asked for, not what the branch is now."""
    plain = settings_for(served)
    bundler(tmp_path / "x.zip", "own/a", "own/b", settings=plain)
    served.add_repo("own/b", small_model(tmp_path / "later", 9))
    found = verify_bundle(tmp_path / "x.zip", settings=plain)
    assert (found.outcome, found.exit_code) == ("verified_in_part", 5)
    assert [item.what for item in found.unchecked] == ["own/b"]


@pytest.mark.slow
def test_a_hub_that_is_gone(settings_for, bundler, small_model, tmp_path):
    with HubServer() as server:
        server.add_repo("own/a", small_model(tmp_path / "a", 1))
        plain = replace(settings_for(server), attempts=1)
        bundler(tmp_path / "x.zip", "own/a", "own/a", settings=plain, enclose=False)
    found = verify_bundle(tmp_path / "x.zip", settings=plain)
    assert (found.outcome, found.exit_code) == ("not_checked", 5)
    assert len(found.unchecked) == 1


@pytest.mark.slow
def test_web_folders(web, bundler, small_model, tmp_path):
    web.root = tmp_path / "served"
    small_model(web.root / "a", 1)
    small_model(web.root / "b", 1, 0.02)
    bundler(tmp_path / "x.zip", f"{web.url}/a", f"{web.url}/b/model.safetensors")
    verified(tmp_path / "x.zip")
    web.close()
    verified(tmp_path / "x.zip", offline=True)


def test_controls_parents_and_what_was_not_there(bundler, small_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, seed, noise in (("a", 1, 0.0), ("b", 1, 0.02), ("other", 5, 0.0), ("kin", 1, 0.03), ("more", 8, 0.0)):
        small_model(tmp_path / name, seed, noise)
    (tmp_path / "empty").mkdir()
    report = bundler(
        tmp_path / "x.zip",
        "a/",
        "./b/model.safetensors",
        controls=("./other", "./empty", "hf://nobody/nothing"),
        related="./kin",
        parents="./more",
        budget_bytes=2_000_000,
        settings=Settings(offline=True),
    )
    states = [item.status for item in report.evidence.controls if not item.name.endswith("self")]
    assert states.count("not run") == 2
    assert report.a.location == "a"
    (tmp_path / "deeper" / "still").mkdir(parents=True)
    shutil.move("x.zip", "deeper/still/x.zip")
    monkeypatch.chdir(tmp_path / "deeper" / "still")
    found = verified(Path("x.zip"), offline=True)
    assert "and 3 failures that it records, was not checked" in found.sentence


def test_a_null_of_ones_own(bundler, made, tmp_path):
    null = replace(load_null(), name="a null of one's own")
    (tmp_path / "null.json").write_bytes(null.to_json())
    bundler(tmp_path / "x.zip", made.a, made.b, null=tmp_path / "null.json")
    (tmp_path / "null.json").unlink()
    found = verified(tmp_path / "x.zip", offline=True)
    assert found.null == sha256(null.to_json()).hexdigest()
    assert f"an empirical null supplied with the bundle (sha256 {found.null})" in found.sentence


@pytest.mark.slow
def test_one_comparison_of_many_in_a_session(made, tmp_path, fast_options):
    from kinprint.bundle import write_bundle
    from kinprint.comparison.pipeline import compare
    from kinprint.sources.ledger import Ledger
    from kinprint.sources.session import Session
    from kinprint.sources.settings import Settings

    with Session(Settings()) as session:
        for number in range(2):
            with Ledger(keep=True) as ledger:
                with session.recording(ledger):
                    report = compare(made.a, made.b, fast_options, session=session, budget="5MB")
                write_bundle(tmp_path / f"{number}.zip", report, ledger, enclose=True)
        assert session.ledger is None
    verified(tmp_path / "0.zip", offline=True)
    found = verify_bundle(tmp_path / "1.zip", offline=True)  # what was read before it is hearsay
    assert (found.outcome, found.problems, [item.what for item in found.unchecked]) == (
        "verified_in_part",
        (),
        ["the budget"],
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["grown", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("finetune", "unrelated"))]
)
def test_demo_models(bundler, tmp_path, name):
    options = Options(controls=DEMO / "unrelated", deep=name == "unrelated")
    bundler(tmp_path / "x.zip", DEMO / "base", DEMO / name, options=options, budget_bytes=128 << 20)
    verified(tmp_path / "x.zip", offline=True)


@pytest.mark.slow
def test_fingerprint_methods(bundler, tmp_path):
    options = Options(metrics=("pearson",), methods=("huref", "norms"))
    bundler(tmp_path / "x.zip", DEMO / "base", DEMO / "finetune", options=options)
    verified(tmp_path / "x.zip", offline=True)


@pytest.mark.slow
def test_adapters_with_a_declared_base(bundler, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_checkpoint(tmp_path / "base", base_tensors(), LITTLE, shards=3)
    lora = {}
    for path, out in PATHS.items():
        lora |= lora_names(path, *factors(path, out, HIDDEN))
    write_adapter(tmp_path / "adapter", lora, base="base")
    report = bundler(tmp_path / "x.zip", "base", "adapter", options=Options(metrics=("pearson",)))
    assert "merged into base" in report.b.notes[0]
    verified(tmp_path / "x.zip")
    shutil.rmtree(tmp_path / "base")
    shutil.rmtree(tmp_path / "adapter")
    verified(tmp_path / "x.zip", offline=True)
    write_checkpoint(tmp_path / "given", base_tensors(), LITTLE)
    write_adapter(tmp_path / "adapter", lora)
    bundler(
        tmp_path / "y.zip",
        "given",
        "adapter",
        options=Options(metrics=("pearson",)),
        bases=("given",),
        files=("model.safetensors",),
    )
    verified(tmp_path / "y.zip", offline=True)


@pytest.mark.slow
def test_gguf(bundler, tmp_path):
    config = CONFIG_FOR_GGUF
    tensors = {
        f"model.layers.{layer}.{name}.weight": drawn(10 * layer + number, *shape)
        for layer in range(2)
        for number, (name, shape) in enumerate(
            {
                "input_layernorm": (64,),
                "post_attention_layernorm": (64,),
                "self_attn.q_proj": (64, 64),
                "self_attn.k_proj": (64, 64),
                "self_attn.v_proj": (64, 64),
                "self_attn.o_proj": (64, 64),
                "mlp.gate_proj": (96, 64),
                "mlp.up_proj": (96, 64),
                "mlp.down_proj": (64, 96),
            }.items()
        )
    } | {"model.embed_tokens.weight": drawn(90, 40, 64), "model.norm.weight": drawn(91, 64)}
    write_checkpoint(tmp_path / "plain", tensors, config, dtype="BF16")
    (tmp_path / "g").mkdir()
    write_gguf(tmp_path / "g" / "model.gguf", *convert_llama(tensors, config, "Q8_0"))
    bundler(
        tmp_path / "x.zip", tmp_path / "plain", tmp_path / "g" / "model.gguf", options=Options(metrics=("pearson",))
    )
    verified(tmp_path / "x.zip")
    verified(tmp_path / "x.zip", offline=True)
