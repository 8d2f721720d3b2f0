"""Which models a stranger may name: of the hub, and of the operator's folder; nothing else of this machine or the network."""

import pytest

from kinprint.errors import KinprintError
from kinprint.serve.options import ServeOptions
from kinprint.serve.references import argument, local_models, reference
from support.places import DEMO_MODELS

HUB = "https://huggingface.co"


@pytest.fixture
def options(tmp_path):
    return ServeOptions(tmp_path, local=DEMO_MODELS)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("owner/name", "owner/name"),
        (" owner/name@v1.0 ", "owner/name@v1.0"),
        ("hf://owner/name", "owner/name"),
        ("hf://owner/name@main/model.gguf", "hf://owner/name@main/model.gguf"),
        ("hf://gpt2", "hf://gpt2"),
        (f"{HUB}/owner/name", "owner/name"),
        (f"{HUB}/owner/name/tree/main", "owner/name@main"),
        ("base", "./base"),
        ("./base", "./base"),
    ],
)
def test_models_that_may_be_named(options, text, kept):
    assert reference(text, options, HUB) == kept


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/etc/passwd",
        "/etc",
        "~/secret",
        "../../demo/models/base",
        "./base/../../..",
        "base/../base",
        "demo/models/base",
        "model.safetensors",
        "./pyproject.toml",
        "file:///etc/passwd",
        "http://127.0.0.1/owner/name",
        "http://169.254.169.254/latest/meta-data",
        "https://evil.example/model.safetensors",
        "https://huggingface.co.evil.example/owner/name",
        "https://huggingface.co@evil.example/owner/name",
        "HTTPS://evil.example/x",
        "ftp://evil.example/x",
        "owner/name@a b",
        "owner/name@",
        "owner/name@x@y",
        "owner/na\x00me",
        "owner/name\n",
        "owner/‮name",
        "a" * 400,
        "\\\\server\\share",
        "C:\\models",
        "missing",
        "-rf",
    ],
)
def test_everything_else_is_refused_without_a_look_at_this_machine(options, text, monkeypatch, tmp_path):
    if text == "owner/name\n":
        assert reference(text, options, HUB) == "owner/name"  # ends are stripped
        return
    with pytest.raises(KinprintError):
        reference(text, options, HUB)


def test_without_a_folder_no_local_model_may_be_named(tmp_path):
    with pytest.raises(KinprintError, match="names no model"):
        reference("base", ServeOptions(tmp_path), HUB)


def test_links_out_of_the_folder_are_not_listed(tmp_path):
    (tmp_path / "models" / "own").mkdir(parents=True)
    (tmp_path / "models" / "own" / "config.json").write_text("{}")
    (tmp_path / "models" / "empty").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "config.json").write_text("{}")
    (tmp_path / "models" / "link").symlink_to(tmp_path / "elsewhere")
    assert local_models(ServeOptions(tmp_path, local=tmp_path / "models")) == ["own"]


def test_a_folder_of_a_hub_models_name_is_not_taken_for_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert argument("owner/name@v1") == "owner/name@v1"
    (tmp_path / "owner" / "name").mkdir(parents=True)
    assert argument("owner/name@v1") == "hf://owner/name@v1"
    assert argument("./base") == "./base"
    assert argument("a" * 300) == "a" * 300
