"""Opening whole models: what is asked of the server, and which indexes are refused."""

import json
import math

import numpy as np
import pytest

from kinprint.errors import FileTooLarge, FormatError, NotFound
from kinprint.formats.checkpoint import open_checkpoint
from kinprint.formats.format import FIRST_READ
from kinprint.formats.plan import rows, whole
from support.hub import Fault, HubServer
from support.layouts import write_checkpoint, write_sparse_glm_air

INDEX = "model.safetensors.index.json"
REPO = "owner/Small-Model"
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
TINY = {"layers": 4, "experts": 6, "hidden": 64, "vocab": 256, "heads": 4, "kv_heads": 2, "head_dim": 16}
TINY |= {"intermediate": 96, "moe_intermediate": 32}


@pytest.fixture(params=["local", "hub", "web"])
def place(request, model_folder, hub, web, session_for):
    """Open the model in `model_folder` as it now is, from three kinds of place."""

    def opened():
        if request.param == "local":
            return open_checkpoint(str(model_folder), session_for())
        if request.param == "web":
            return open_checkpoint(web.url, session_for())
        hub.add_repo("owner/now", model_folder)
        return open_checkpoint("owner/now", session_for(hub))

    opened.kind = request.param
    return opened


def edit_index(folder, change):
    index = json.loads((folder / INDEX).read_text())
    change(index)
    (folder / INDEX).write_text(json.dumps(index))


def test_a_good_model(place, model_folder):
    checkpoint = place()
    assert sorted(checkpoint.tensors) == [f"model.layers.{i}.w" for i in range(4)]
    assert [file.name for file in checkpoint.files] == [FIRST, SECOND]
    assert [file.size for file in checkpoint.files] == [(model_folder / n).stat().st_size for n in (FIRST, SECOND)]
    assert checkpoint.config["model_type"] == "llama"
    assert checkpoint.notes == ()
    assert checkpoint.read_json("tokenizer.json") == {"model": {"vocab": {"a": 0}}}
    assert checkpoint.read_json("absent.json") is None
    expected = {f"model.layers.{i}.w": w for i, w in enumerate(_weights())}
    names = list(expected)
    part = checkpoint.read(
        [rows(checkpoint.tensors[n], [(0, 3), (60, 64)]) for n in names] + [whole(checkpoint.tensors[names[0]])]
    )
    for name, got in zip(names, part, strict=False):
        np.testing.assert_array_equal(got, expected[name][[0, 1, 2, 60, 61, 62, 63]])
    np.testing.assert_array_equal(part[-1], expected[names[0]])


def _weights():
    rng = np.random.default_rng(11)
    return [rng.standard_normal((64, 64)).astype(np.float32) for _ in range(4)]


# ---- indexes that lie ----


def test_index_names_an_absent_shard(place, model_folder):
    (model_folder / SECOND).unlink()
    if place.kind == "web":  # nothing lists a web folder, so the server's own answer is what there is
        with pytest.raises(NotFound, match=rf"{SECOND}: no such file .HTTP 404"):
            place()
        return
    with pytest.raises(FormatError, match=rf"the index names '{SECOND}', which is not there") as caught:
        place()
    assert "incomplete" in caught.value.hint


def test_index_names_a_tensor_that_is_nowhere(place, model_folder):
    edit_index(model_folder, lambda index: index["weight_map"].update({"ghost.weight": FIRST}))
    with pytest.raises(
        FormatError, match=rf"puts tensor 'ghost.weight' in '{FIRST}', but it is stored in nowhere"
    ) as caught:
        place()
    assert "fetch the model again" in caught.value.hint


def test_index_puts_a_tensor_in_the_wrong_shard(place, model_folder):
    edit_index(model_folder, lambda index: index["weight_map"].update({"model.layers.0.w": SECOND}))
    with pytest.raises(FormatError, match=rf"'model.layers.0.w' in '{SECOND}', but it is stored in {FIRST}"):
        place()


def test_same_tensor_in_two_shards(place, model_folder):
    (model_folder / SECOND).write_bytes((model_folder / FIRST).read_bytes())
    with pytest.raises(
        FormatError, match=rf"{SECOND}: tensor 'model.layers.0.w' is also stored in '{FIRST}'"
    ) as caught:
        place()
    assert "do not belong together" in caught.value.hint


def test_tensors_that_the_index_forgot(place, model_folder):
    edit_index(model_folder, lambda index: index["weight_map"].pop("model.layers.0.w"))
    checkpoint = place()
    assert "model.layers.0.w" in checkpoint.tensors
    assert checkpoint.notes == ("1 stored tensors are not in the index; they are read all the same",)


@pytest.mark.parametrize("name", ["../x.safetensors", "/etc/passwd", "a\\..\\b", "C:\\x", "", "sub//x", "x\0y"])
def test_index_that_leads_outside(place, model_folder, name):
    edit_index(model_folder, lambda index: index["weight_map"].update({"model.layers.0.w": name}))
    with pytest.raises(FormatError, match=r"names the file .* leads outside the model's folder") as caught:
        place()
    assert "from a source you trust" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "has no usable weight_map"),
        ('{"weight_map": {}}', "has no usable weight_map"),
        ('{"weight_map": ["a"]}', "has no usable weight_map"),
        ('{"weight_map": {"a": 5}}', "has no usable weight_map"),
        ('{"weight_map": {"a": null}}', "has no usable weight_map"),
        ("[]", "holds a JSON list, expected an object"),
        ("{", "is not valid JSON"),
        ("", "is not valid JSON"),
    ],
)
def test_unusable_index(place, model_folder, text, words):
    (model_folder / INDEX).write_text(text)
    with pytest.raises(FormatError, match=words) as caught:
        place()
    assert INDEX in caught.value.message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1]", "JSON list, expected an object"),
        ("{nope", "is not valid JSON"),
        ('{"a": NaN, "b": "\\ud800"}', "is not valid JSON"),  # half a character, which no report could hold
        ('{"a": [' + "[]," * 10_000 + "[]]}", "has 10003 opening brackets in 30011 bytes, expected at most one in 8"),
    ],
)
def test_unusable_config(place, model_folder, text, words):
    (model_folder / "config.json").write_text(text)
    with pytest.raises(FormatError, match=rf"config.json .*{words}") as caught:
        place()
    assert "fetch config.json again" in caught.value.hint


def test_config_nested_beyond_reason(model_folder, session_for):
    (model_folder / "config.json").write_text('{"a": NaN, "b": ' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(FormatError, match=r"config\.json") as caught:
        open_checkpoint(str(model_folder), session_for())
    assert caught.value.hint


def test_config_as_python_writes_it(place, model_folder):
    config = {"model_type": "llama", "scale": math.inf, "least": -math.inf, "none": [math.nan]}
    (model_folder / "config.json").write_text(json.dumps(config))
    found = place().config
    assert (found["model_type"], found["scale"], found["least"]) == ("llama", math.inf, -math.inf)
    assert math.isnan(found["none"][0])


@pytest.mark.parametrize(("name", "cap"), [("config.json", 4 << 20), (INDEX, 64 << 20)])
def test_files_larger_than_their_kind(place, model_folder, name, cap):
    with (model_folder / name).open("r+b") as file:
        file.truncate(cap + 1)
    with pytest.raises(FileTooLarge, match=rf"{name}: {cap + 1} bytes, more than the {cap} allowed"):
        place()


def test_no_config(place, model_folder):
    (model_folder / "config.json").unlink()
    checkpoint = place()
    assert checkpoint.config == {}
    assert "no config.json" in checkpoint.notes[0]


def test_git_lfs_pointer(place, model_folder):
    text = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n"
    (model_folder / FIRST).write_bytes(text)
    with pytest.raises(FormatError, match=rf"{FIRST}: .*Git LFS pointer") as caught:
        place()
    assert "git lfs pull" in caught.value.hint


def test_empty_shard(place, model_folder):
    (model_folder / FIRST).write_bytes(b"")
    with pytest.raises(FormatError, match=rf"{FIRST}: 0 bytes, too short"):
        place()


# ---- which file is meant ----


def test_several_files_and_no_index(model_folder, session_for):
    (model_folder / INDEX).unlink()
    assert len(open_checkpoint(str(model_folder), session_for()).files) == 2  # the names say that they belong together
    (model_folder / FIRST).rename(model_folder / "one.safetensors")
    (model_folder / SECOND).rename(model_folder / "two.safetensors")
    with pytest.raises(FormatError, match=r"2 safetensors files and nothing to say which belong together") as caught:
        open_checkpoint(str(model_folder), session_for())
    assert "one.safetensors" in caught.value.hint


def test_a_shard_that_is_missing(model_folder, session_for):
    (model_folder / INDEX).unlink()
    (model_folder / SECOND).unlink()
    with pytest.raises(FormatError, match=rf"{FIRST} is one of 2 files, but {SECOND} is not there"):
        open_checkpoint(str(model_folder), session_for())


def test_no_weights(tmp_path, session_for):
    (tmp_path / "weights.h5").write_bytes(b"")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(FormatError, match=r"no file of weights \(it has: h5, json\)") as caught:
        open_checkpoint(str(tmp_path), session_for())
    assert "known formats: .safetensors" in caught.value.hint


def test_empty_folder(tmp_path, session_for):
    with pytest.raises(FormatError, match=r"it has: nothing"):
        open_checkpoint(str(tmp_path), session_for())


def test_one_file_of_a_repository(hub, session_for):
    checkpoint = open_checkpoint(f"hf://{REPO}/{SECOND}", session_for(hub))
    assert len(checkpoint.tensors) == 2
    assert len(checkpoint.files) == 1


def test_one_odd_name_is_enough(model_folder, session_for, tmp_path):
    odd = tmp_path / "odd"
    odd.mkdir()
    (odd / "weights.safetensors").write_bytes((model_folder / FIRST).read_bytes())
    assert len(open_checkpoint(str(odd), session_for()).tensors) == 2


# ---- what it costs ----


@pytest.fixture(scope="module")
def glm(tmp_path_factory):
    folder = tmp_path_factory.mktemp("glm")
    return folder, write_sparse_glm_air(folder, shards=8, **TINY)


def kinds(hub):
    counted = {}
    for request in hub.requests:
        what = "api" if not request.file else request.file.rpartition("/")[2]
        what = f"{'shard' if what.startswith('model-') else what} at {request.origin}"
        counted[what] = counted.get(what, 0) + 1
    return counted


def test_requests_and_round_trips(glm, session_for):
    """Each wave is answered when all of it has come: nothing is asked for later than it could be."""
    folder, report = glm
    with HubServer(waves=[1, 10, 8]) as hub:  # description; index, config and look-ups; headers
        hub.add_repo("owner/glm", folder)
        session = session_for(hub, concurrency=64)
        checkpoint = open_checkpoint("owner/glm", session)
        tensor = checkpoint.tensors["model.norm.weight"]
        assert hub.waves == []
        assert kinds(hub) == {
            "api at hub": 1,
            f"{INDEX} at hub": 1,
            "config.json at hub": 1,
            "shard at hub": 8,
            "shard at cdn": 8,
        }
        sent = sum(r.body_bytes for r in hub.requests if r.origin == "cdn")
        assert sent <= 1.25 * sum(file.header_bytes for file in checkpoint.files) + 8 * 512
        checkpoint.read([whole(tensor)])
        assert kinds(hub)["shard at cdn"] == 9
        assert kinds(hub)["shard at hub"] == 8
    assert len(checkpoint.tensors) == report.tensors


def test_real_proportions_of_header_bytes(tmp_path, session_for):
    """With as many tensors in a shard as real ones have, prediction wastes less than a quarter."""
    write_sparse_glm_air(tmp_path / "m", shards=3, **{**TINY, "layers": 8, "experts": 24, "hidden": 4096})
    with HubServer() as hub:
        hub.add_repo("owner/glm", tmp_path / "m")
        checkpoint = open_checkpoint("owner/glm", session_for(hub))
        sent = sum(r.body_bytes for r in hub.requests if r.origin == "cdn")
        assert kinds(hub)["shard at cdn"] == 3
    assert sent <= 1.25 * sum(file.header_bytes for file in checkpoint.files)


@pytest.mark.parametrize("shards", [1, 2])
def test_long_header_costs_one_more_request(tmp_path, session_for, shards):
    tensors = {f"w{i}": np.zeros(4, np.float32) for i in range(2)}
    metadata = {"notes": "x" * (FIRST_READ + 1000)}
    write_checkpoint(tmp_path / "m", tensors, {}, shards=shards, metadata=metadata)
    with HubServer() as hub:
        hub.add_repo("owner/m", tmp_path / "m")
        checkpoint = open_checkpoint("owner/m", session_for(hub))
        file = checkpoint.files[0].name
        ranges = [r.range for r in hub.requests if r.origin == "cdn" and r.file.endswith(file)]
    assert len(ranges) == 2
    first_end, second_start = int(ranges[0].rpartition("-")[2]), int(ranges[1].partition("=")[2].partition("-")[0])
    assert second_start == first_end + 1  # nothing twice
    assert ranges[1].endswith(f"-{checkpoint.files[0].header_bytes - 1}")


def test_a_failing_shard_names_itself(hub, session_for):
    hub.add_fault(Fault(kind="status", match=SECOND, origin="hub", value=404, error_code="EntryNotFound", times=None))
    with pytest.raises(NotFound, match=rf"{SECOND}: no such file .HTTP 404"):
        open_checkpoint(REPO, session_for(hub))


def test_overlapping_reads_move_each_byte_once(hub, session_for):
    session = session_for(hub)
    checkpoint = open_checkpoint(REPO, session)
    tensor = checkpoint.tensors["model.layers.0.w"]
    before = session.traffic.network_bytes
    checkpoint.read([whole(tensor), rows(tensor, [(3, 40)]), whole(tensor)])
    assert session.traffic.network_bytes - before == tensor.nbytes
