"""Where adapters and their bases are found: folders, files, web folders, a hub; and which base is taken."""

import json
import shutil

import numpy as np
import pytest

from kinprint.errors import BadReference, FormatError, KinprintError, NotFound
from kinprint.formats.adapters.config import base_reference
from kinprint.formats.adapters.lora import find_renaming
from kinprint.formats.checkpoint import open_checkpoint
from kinprint.formats.plan import rows
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from support.adapter_files import (
    HIDDEN,
    LITTLE,
    PATHS,
    Q,
    base_tensors,
    close,
    drawn,
    factors,
    lora_names,
    read,
    summed,
    write_adapter,
)
from support.contract import make_pytorch as make
from support.gguf_files import write_gguf
from support.hub import HubServer
from support.layouts import write_checkpoint


@pytest.fixture
def remote(adapter, base):
    """A hub with the base and an adapter that declares it."""
    with HubServer() as server:
        server.add_repo("owner/Base", base)
        server.add_repo("other/Adapter", adapter(declared="owner/Base"))
        yield server


def test_on_a_hub_and_from_its_cache(remote, adapter, opened, session_for, tmp_path):
    local = opened(adapter(name="again"))
    first = session_for(remote, range_cache=tmp_path / "cache")
    found = open_checkpoint("other/Adapter", first)
    assert found.notes[0].endswith("; merged into owner/Base (declared)")
    assert [file.name for file in found.files] == ["model.safetensors", "adapter_model.safetensors"]
    items = [rows(found.tensors[f"{path}.weight"], [(3, 9)]) for path in PATHS]
    values = found.read(items)
    for item, got in zip(items, values, strict=True):
        assert np.array_equal(got, local.read([rows(local.tensors[item.tensor.name], [(3, 9)])])[0])
    remote.reset()
    again = open_checkpoint("other/Adapter", session_for(remote, range_cache=tmp_path / "cache"))
    assert all(np.array_equal(x, y) for x, y in zip(again.read(items), values, strict=True))
    assert not [request for request in remote.requests if request.range and request.body_bytes > 0]
    offline = open_checkpoint("other/Adapter", session_for(remote, range_cache=tmp_path / "cache", offline=True))
    assert all(np.array_equal(x, y) for x, y in zip(offline.read(items), values, strict=True))


def test_a_file_of_a_repository(remote, session_for, tmp_path, adapter):
    found = open_checkpoint("hf://other/Adapter/adapter_model.safetensors", session_for(remote))
    assert found.base is not None
    folder = tmp_path / "several"
    folder.mkdir()
    shutil.copytree(adapter(name="inner", declared="owner/Base"), folder / "checkpoint-7")
    remote.add_repo("other/Several", folder)
    below = open_checkpoint("hf://other/Several/checkpoint-7/adapter_model.safetensors", session_for(remote))
    assert below.base is not None
    assert np.array_equal(read(below, f"{Q.format(0)}.weight"), read(found, f"{Q.format(0)}.weight"))


def test_the_revision_that_an_adapter_names(remote, base, adapter, session_for, tmp_path):
    old = remote.add_repo("owner/Moving", base)
    write_checkpoint(tmp_path / "new", {"other.weight": drawn(1, 4, 4)}, LITTLE)
    remote.add_revision("owner/Moving", "main", tmp_path / "new")
    remote.add_repo("other/Pinned", adapter(name="pinned", declared="owner/Moving", revision=old))
    found = open_checkpoint("other/Pinned", session_for(remote))
    assert found.base.provenance.commit == old
    remote.add_repo("other/Loose", adapter(name="loose", declared="owner/Moving"))
    with pytest.raises(FormatError, match="does not have"):
        open_checkpoint("other/Loose", session_for(remote))


def test_in_a_web_folder(adapter, base, session_for, web):
    web.root = adapter(declared=None).parent
    with Session(Settings(), bases=[str(base)]) as session:
        for address in ("adapter", "adapter/adapter_model.safetensors"):
            found = open_checkpoint(f"{web.url}/{address}", session)
            want = summed(base_tensors()[f"{Q.format(0)}.weight"], *factors(Q.format(0), HIDDEN, HIDDEN), 2.0)
            assert close(read(found, f"{Q.format(0)}.weight"), want)
            assert found.notes[0].endswith(f"merged into {base} (given)")
    with pytest.raises(NotFound):
        open_checkpoint(f"{web.url}/nothing", session_for())


def test_one_file_by_its_path(adapter, opened, tmp_path):
    folder = adapter()
    found = opened(folder / "adapter_model.safetensors")
    assert np.array_equal(read(found, f"{Q.format(0)}.weight"), read(opened(folder), f"{Q.format(0)}.weight"))
    (folder / "adapter_config.json").unlink()
    plain = opened(folder / "adapter_model.safetensors")
    assert plain.base is None
    assert len(plain.tensors) == 2 * len(PATHS)


# -- which folders are adapters ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "beside", ["training_args.bin", "optimizer.pt", "README.md", "value_head.bin", "other.safetensors"]
)
def test_what_a_trainer_leaves_behind_is_no_model(beside, adapter, opened):
    folder = adapter()
    (folder / beside).write_bytes(b"x")
    assert opened(folder).base is not None


def test_a_whole_model_wins_over_the_adapter_beside_it(adapter, base, opened, session_for):
    folder = adapter()
    for file in ("model.safetensors", "config.json"):
        shutil.copy(base / file, folder / file)
    found = opened(folder)
    assert found.base is None
    assert not found.adapter
    assert np.array_equal(read(found, f"{Q.format(0)}.weight"), base_tensors()[f"{Q.format(0)}.weight"])
    with Session(Settings(), files=["adapter_model.safetensors"]) as session:  # --file asks for the adapter
        assert open_checkpoint(str(folder), session).base is not None


def test_shards_beside_an_adapter_are_a_whole_model(adapter, opened):
    folder = adapter()
    write_checkpoint(folder, base_tensors(), LITTLE, shards=3)
    assert opened(folder).base is None


def test_an_adapter_alone(adapter, session_for):
    folder = adapter(declared="nobody/Nowhere")
    found = open_checkpoint(str(folder), session_for(), alone=True)
    assert set(found.tensors) == {name for path in PATHS for name in lora_names(path, 0, 0)}
    what, where = "LoRA adapter: rank 8, alpha 16, targets q_proj, up_proj in 3 layers", "nobody/Nowhere (declared)"
    assert found.notes == (f"{what}; its base, {where}, was not read: see --base",)
    down = read(found, f"base_model.model.{Q.format(0)}.lora_A.weight")
    assert np.array_equal(down, factors(Q.format(0), HIDDEN, HIDDEN)[0])


def test_an_adapter_of_an_unknown_kind_alone(adapter, session_for):
    found = open_checkpoint(str(adapter(peft_type="LOHA", declared=None)), session_for(), alone=True)
    assert "adapter type 'LOHA' is not known" in found.notes[0]
    assert found.notes[0].endswith("it does not name its base: see --base")
    assert len(found.tensors) == 2 * len(PATHS)


# -- bases ---------------------------------------------------------------------------------------------------------------


def test_a_base_that_is_given_wins(adapter, base, tmp_path):
    other = {name: 2 * values for name, values in base_tensors().items()}
    write_checkpoint(tmp_path / "other", other, LITTLE)
    write_checkpoint(tmp_path / "unlike", {"a.weight": drawn(1, 4, 4)}, LITTLE)
    folder, path = str(adapter()), Q.format(0)
    for given in ([tmp_path / "other"], [tmp_path / "unlike", tmp_path / "other"]):
        with Session(Settings(), bases=list(map(str, given))) as session:
            found = open_checkpoint(folder, session)
            assert found.base.label == str(tmp_path / "other")
            assert close(
                read(found, f"{path}.weight"), summed(other[f"{path}.weight"], *factors(path, HIDDEN, HIDDEN), 2.0)
            )
    with Session(Settings(), bases=[str(tmp_path / "unlike")]) as session, pytest.raises(FormatError) as caught:
        open_checkpoint(folder, session)
    assert "6 of 6 targets are not there" in caught.value.message
    assert "--base" in caught.value.hint


@pytest.mark.parametrize(
    ("declared", "kind", "said"),
    [
        (None, FormatError, "does not name its base"),
        ("/no/such/path/here", NotFound, "a path that is not here"),
        ("C:\\Users\\me\\model", NotFound, "neither here nor a name on the hub"),
        ("http://127.0.0.1:9/model", BadReference, "declares an address"),
        ("https://user:secret@host/model", BadReference, "declares an address"),
        ("nobody/Nowhere", KinprintError, "could not be opened"),
    ],
)
def test_a_base_that_cannot_be_had(declared, kind, said, adapter, session_for):
    folder = str(adapter(declared=declared))
    with HubServer() as server, pytest.raises(kind) as caught:
        open_checkpoint(folder, session_for(server))
    assert said in caught.value.message
    assert "--base" in caught.value.hint
    assert "secret" not in str(caught.value)


def test_an_adapter_from_elsewhere_means_no_path_of_this_machine(adapter, base, session_for, monkeypatch):
    """A stranger's adapter could otherwise have any local file read."""
    monkeypatch.chdir(base.parent)
    with HubServer() as server:
        for number, declared in enumerate((str(base), "base", "./base", "../base")):
            server.add_repo(f"other/Adapter{number}", adapter(name=f"a{number}", declared=declared))
            with pytest.raises(NotFound) as caught:
                open_checkpoint(f"other/Adapter{number}", session_for(server))
            assert "--base" in caught.value.hint
        assert open_checkpoint(str(adapter(name="here", declared="base")), session_for(server)).base is not None


def test_names_without_an_owner_are_on_the_hub():
    ref = base_reference("gpt2", "abc", here=True, label="x", endpoint="http://localhost")
    assert (ref.kind, ref.repo, ref.revision, ref.text) == ("hub", "gpt2", "abc", "gpt2")


def test_a_base_of_a_name_longer_than_any_files_is_not_found():
    for name in ("a" * 300, "~nobody-of-this-name/x/y"):
        with pytest.raises(NotFound, match="the adapter declares the base"):
            base_reference(name, None, here=True, label="x", endpoint="http://localhost")


def test_an_adapter_is_no_base(adapter, session_for):
    first = adapter()
    second = adapter(name="second", declared=first)
    with pytest.raises(FormatError, match="is an adapter itself"):
        open_checkpoint(str(second), session_for())
    config = json.loads((first / "adapter_config.json").read_text())
    (first / "adapter_config.json").write_text(json.dumps(config | {"base_model_name_or_path": str(first)}))
    with pytest.raises(FormatError, match="is an adapter itself"):
        open_checkpoint(str(first), session_for())


def test_other_beginnings_of_names():
    base = [
        "language_model.model.layers.0.q.weight",
        "language_model.model.layers.1.q.weight",
        "vision.layers.0.v.weight",
    ]
    rename = find_renaming(
        ["model.language_model.layers.0.q.weight", "model.language_model.layers.1.q.weight"], base, "", ""
    )
    assert rename("model.language_model.layers.1.q.weight") == base[1]
    assert find_renaming(["layers.1.q.weight"], base, "", "")("layers.1.q.weight") == base[1]
    with pytest.raises(FormatError, match="2 of 2"):  # which layer it is may not be left out
        find_renaming(["h.4.q.weight", "h.5.q.weight"], ["layers.0.q.weight"], "", "")
    with pytest.raises(FormatError, match="1 of 1"):
        find_renaming(["h.4.q.weight"], ["layers.0.q.weight"], "", "")
    with pytest.raises(FormatError, match="1 of 1"):  # two could be meant
        find_renaming(["layers.0.q.weight"], ["a.layers.0.q.weight", "b.layers.0.q.weight"], "", "")


@pytest.mark.parametrize("transposed", [False, True])
def test_an_adapter_in_a_pytorch_archive(transposed, adapter, opened):
    """A factor may itself be made when read: torch stores transposed matrices as they lie."""
    folder = adapter()
    tensors = {}
    for path, out in PATHS.items():
        tensors |= lora_names(path, *factors(path, out, HIDDEN))
    want = opened(folder)
    value, storages = make.state_dict(tensors, "F32", transposed=transposed)
    (folder / "adapter_model.bin").write_bytes(make.torch_file(value, storages))
    (folder / "adapter_model.safetensors").unlink()
    found = opened(folder)
    assert found.files[-1].name == "adapter_model.bin"
    for name in want.tensors:
        assert np.array_equal(read(found, name), read(want, name)), name


def test_a_whole_model_in_another_format_wins_as_well(adapter, opened):
    folder = adapter()
    value, storages = make.state_dict(base_tensors(), "F32")
    (folder / "pytorch_model.bin").write_bytes(make.torch_file(value, storages))
    found = opened(folder)
    assert [file.name for file in found.files] == ["pytorch_model.bin"]
    assert set(found.tensors) == set(base_tensors())


@pytest.mark.parametrize("own", [True, False])
def test_a_base_that_holds_its_own_tokenizer(own, tmp_path, session_for):
    """A GGUF file does; an adapter's own goes first. Its names are not those of PEFT, so the adapter is made for it."""
    metadata = {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": ["a", "b", "c"],
    }
    weight = drawn(1, 64, 64)
    write_gguf(tmp_path / "base.gguf", metadata, {"blk.0.ffn_up.weight": ("F32", weight)})
    down, up = drawn(2, 8, 64), drawn(3, 64, 8)
    folder = write_adapter(tmp_path / "a", lora_names("blk.0.ffn_up", down, up), base=tmp_path / "base.gguf")
    if own:
        (folder / "tokenizer.json").write_text('{"model": {"vocab": {"x": 0}}}')
    found = open_checkpoint(str(folder), session_for())
    assert close(read(found, "blk.0.ffn_up.weight"), summed(weight, down, up, 2.0))
    assert found.read_json("tokenizer.json")["model"]["vocab"] == ({"x": 0} if own else {"a": 0, "b": 1, "c": 2})
