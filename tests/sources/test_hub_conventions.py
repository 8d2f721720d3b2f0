"""The hub's own conventions: environment, official cache, offline mode, revisions."""

import errno
import os
import shutil

import numpy as np
import pytest
from huggingface_hub import hf_hub_download, snapshot_download

from kinprint.comparison.pipeline import compare
from kinprint.errors import BadSetting, FileTooLarge, NotFound, OfflineError, TransferError
from kinprint.formats.checkpoint import open_checkpoint
from kinprint.formats.plan import whole
from kinprint.sources.settings import DEFAULT_ENDPOINT, Settings
from support.hub import Fault
from support.layouts import write_checkpoint

REPO = "owner/Small-Model"
WEIGHTS = "model-00001-of-00002.safetensors"


def read_all(checkpoint):
    return checkpoint.read([whole(tensor) for tensor in checkpoint.tensors.values()])


# ---- environment ----


def test_defaults(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    settings = Settings.from_env({})
    assert (settings.endpoint, settings.token, settings.offline) == (DEFAULT_ENDPOINT, None, False)
    assert settings.hub_cache == tmp_path / ".cache" / "huggingface" / "hub"
    assert settings.range_cache == tmp_path / ".cache" / "kinprint"
    assert settings.range_cache_cap_bytes == 4 << 30


def test_token_from_the_environment_and_from_files(tmp_path):
    home, other = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    (home / "token").write_text("hf_from_home\n")
    other.write_text("  hf_from_path ")
    env = {"HF_HOME": str(home)}
    assert Settings.from_env(env).token == "hf_from_home"
    assert Settings.from_env({**env, "HF_TOKEN_PATH": str(other)}).token == "hf_from_path"
    assert Settings.from_env({**env, "HUGGING_FACE_HUB_TOKEN": "hf_old"}).token == "hf_old"
    assert Settings.from_env({**env, "HUGGING_FACE_HUB_TOKEN": "hf_old", "HF_TOKEN": " hf_env "}).token == "hf_env"
    assert Settings.from_env({**env, "HF_TOKEN": " "}).token == "hf_from_home"
    assert Settings.from_env({**env, "HF_TOKEN": "hf_env", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}).token is None
    (home / "token").write_bytes(b"\xff\xfe")
    assert Settings.from_env(env).token is None


def test_places_from_the_environment(tmp_path):
    env = {"HF_HOME": "/h", "XDG_CACHE_HOME": "/x", "HF_ENDPOINT": "http://mirror.test/", "KINPRINT_CACHE_SIZE": "10MB"}
    settings = Settings.from_env(env)
    assert (str(settings.hub_cache), str(settings.range_cache)) == ("/h/hub", "/x/kinprint")
    assert (settings.endpoint, settings.range_cache_cap_bytes) == ("http://mirror.test", 10_000_000)
    assert str(Settings.from_env({**env, "HF_HUB_CACHE": "/c", "KINPRINT_CACHE": "/k"}).hub_cache) == "/c"
    assert str(Settings.from_env({"KINPRINT_CACHE": "/k"}).range_cache) == "/k"
    assert Settings.from_env({"KINPRINT_CACHE": "off"}).range_cache is None
    assert Settings.from_env({"SSL_CERT_FILE": "/a", "CURL_CA_BUNDLE": "/b"}).ca_file == "/a"


@pytest.mark.parametrize(("value", "offline"), [("1", True), ("TRUE", True), ("yes", True), ("0", False), ("", False)])
@pytest.mark.parametrize("name", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_from_the_environment(name, value, offline):
    assert Settings.from_env({name: value}).offline is offline


def test_the_deadline_is_a_setting():
    assert Settings.from_env({}).deadline_s == 90.0
    assert Settings.from_env({"KINPRINT_DEADLINE": "7.5"}).deadline_s == 7.5
    for text in ("soon", "0", "-1", "nan", "inf", "1e9", "9999999"):
        with pytest.raises(BadSetting, match=r"KINPRINT_DEADLINE is .*: expected seconds"):
            Settings.from_env({"KINPRINT_DEADLINE": text})


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"HF_ENDPOINT": "hub.test"}, "HF_ENDPOINT is 'hub.test': expected an http"),
        ({"HF_ENDPOINT": "http://"}, "HF_ENDPOINT is 'http:': expected an http"),
        ({"HF_ENDPOINT": "http://hub.test:99999"}, "HF_ENDPOINT is .*: expected an http"),
        ({"HF_ENDPOINT": "http://hub.test/?key=verysecret"}, "HF_ENDPOINT is 'http://hub.test/…': expected an http"),
        ({"HF_ENDPOINT": "http://user:verysecret@hub.test"}, "HF_ENDPOINT holds a user name or password"),
        ({"HF_ENDPOINT": "http://user:very/verysecret@hub.test"}, "HF_ENDPOINT holds a user name or password"),
        ({"KINPRINT_CACHE_SIZE": "lots"}, "KINPRINT_CACHE_SIZE: cannot read 'lots' as a size"),
    ],
)
def test_bad_environment(env, words):
    with pytest.raises(BadSetting, match=words) as caught:
        Settings.from_env(env)
    assert caught.value.exit_code == 2
    assert "verysecret" not in str(caught.value)
    assert next(iter(env)) in caught.value.hint


# ---- the official cache ----


@pytest.fixture
def official(hub, tmp_path):
    """The official client's cache, filled by the official client."""
    cache = tmp_path / "official"
    snapshot_download(REPO, endpoint=hub.endpoint, cache_dir=cache, token=False)
    hub.reset()
    return cache


def test_official_cache_is_used_first(hub, official, session_for, model_folder):
    session = session_for(hub, hub_cache=official)
    checkpoint = open_checkpoint(REPO, session)
    read_all(checkpoint)
    assert [r.file for r in hub.requests] == [""]  # the revision look-up, and no file
    assert session.traffic.local_bytes > 0
    assert checkpoint.provenance.commit == hub.commit


def test_a_file_of_a_name_that_this_machine_cannot_have_is_missing(hub, official, session_for):
    with pytest.raises(NotFound):
        open_checkpoint(f"hf://{REPO}/{'a' * 300}.safetensors", session_for(hub, hub_cache=official))


def test_partly_filled_official_cache(hub, tmp_path, session_for):
    cache = tmp_path / "official"
    hf_hub_download(REPO, WEIGHTS, endpoint=hub.endpoint, cache_dir=cache, token=False)
    hub.reset()
    read_all(open_checkpoint(REPO, session_for(hub, hub_cache=cache)))
    files = {r.file.removeprefix(REPO + "/") for r in hub.requests if r.file}
    assert files == {"config.json", "model.safetensors.index.json", "model-00002-of-00002.safetensors"}


@pytest.mark.parametrize("revision", ["", "@main", "@commit"])
def test_offline_from_the_official_cache(hub, official, session_for, revision):
    session = session_for(hub, hub_cache=official, offline=True)
    checkpoint = open_checkpoint(REPO + revision.replace("commit", hub.commit), session)
    assert len(read_all(checkpoint)) == 4
    assert hub.requests == []
    assert checkpoint.provenance.commit == hub.commit


def test_offline_from_the_range_cache(hub, tmp_path, session_for):
    online = read_all(open_checkpoint(REPO, session_for(hub, range_cache=tmp_path / "ranges")))
    hub.reset()
    for revision in ("", "@" + hub.commit):
        session = session_for(hub, range_cache=tmp_path / "ranges", offline=True)
        offline = read_all(open_checkpoint(REPO + revision, session))
        assert all(np.array_equal(one, two) for one, two in zip(online, offline, strict=True))
    assert hub.requests == []


def test_a_cache_that_is_full_and_may_only_be_read_serves_offline(hub, tmp_path, session_for, monkeypatch):
    online = read_all(open_checkpoint(REPO, session_for(hub, range_cache=tmp_path / "ranges")))
    hub.reset()

    def refuse(*_arguments, **_more):
        raise PermissionError(errno.EROFS, "Read-only file system")

    for name in ("utime", "unlink", "rename", "replace", "mkdir", "rmdir"):
        monkeypatch.setattr(os, name, refuse)
    session = session_for(hub, range_cache=tmp_path / "ranges", offline=True, range_cache_cap_bytes=1)
    offline = read_all(open_checkpoint(REPO, session))
    monkeypatch.undo()
    assert all(np.array_equal(one, two) for one, two in zip(online, offline, strict=True))
    assert hub.requests == []


def test_offline_without_a_cache(hub, session_for, tmp_path):
    for reference in (REPO, f"{REPO}@{hub.commit}", "owner/none"):
        session = session_for(hub, offline=True, hub_cache=tmp_path / "none", range_cache=tmp_path / "empty")
        with pytest.raises(OfflineError, match=r"offline, and owner/.* is in no cache") as caught:
            open_checkpoint(reference, session)
        assert "unset HF_HUB_OFFLINE or leave out --offline" in caught.value.hint
    assert hub.requests == []


def test_offline_and_a_range_that_was_never_read(hub, tmp_path, session_for):
    open_checkpoint(REPO, session_for(hub, range_cache=tmp_path / "ranges"))
    checkpoint = open_checkpoint(REPO, session_for(hub, range_cache=tmp_path / "ranges", offline=True))
    with pytest.raises(
        OfflineError, match=r"offline, and .*model-0000[12]-of-00002.safetensors is not on this machine"
    ):
        read_all(checkpoint)


def test_offline_and_a_web_address(web, session_for):
    with pytest.raises(OfflineError, match=r"is not on this machine") as caught:
        open_checkpoint(web.url, session_for(offline=True))
    assert caught.value.hint == "unset HF_HUB_OFFLINE or leave out --offline"


def test_offline_and_a_file_the_official_cache_has_not(hub, tmp_path, session_for):
    """Nothing lists the repository offline, so a file that is not here is not said to be missing there."""
    hf_hub_download(REPO, WEIGHTS, endpoint=hub.endpoint, cache_dir=tmp_path / "c", token=False)
    folder = session_for(hub, hub_cache=tmp_path / "c", offline=True).open_folder(f"{REPO}@{hub.commit}")
    with pytest.raises(OfflineError, match=r"offline, and .*/tokenizer.json is not on this machine"):
        folder.open("tokenizer.json")


# ---- revisions ----


def other_weights(folder, seed):
    rng = np.random.default_rng(seed)
    tensors = {f"model.layers.{i}.w": rng.standard_normal((64, 64)).astype(np.float32) for i in range(4)}
    write_checkpoint(folder, tensors, {"model_type": "llama"}, shards=2)
    return tensors


def test_every_address_carries_the_commit(hub, session_for):
    checkpoint = open_checkpoint(REPO, session_for(hub))
    read_all(checkpoint)
    resolved = [r.path for r in hub.requests if r.origin == "hub" and "/resolve/" in r.path]
    assert resolved
    assert all(f"/resolve/{hub.commit}/" in path for path in resolved)
    assert hub.requests[0].path.startswith("/api/models/")
    assert (checkpoint.provenance.revision, checkpoint.provenance.commit) == ("main", hub.commit)


def test_a_branch_that_moves_is_not_mixed(hub, session_for, tmp_path):
    session = session_for(hub)
    checkpoint = open_checkpoint(REPO, session)
    before = read_all(checkpoint)
    new = other_weights(tmp_path / "new", 99)
    commit = hub.add_revision(REPO, "main", tmp_path / "new")
    assert commit != hub.commit
    after = read_all(checkpoint)
    assert all(np.array_equal(one, two) for one, two in zip(before, after, strict=True))
    again = open_checkpoint(REPO, session)
    assert again.provenance.commit == commit
    np.testing.assert_array_equal(again.read([whole(again.tensors["model.layers.0.w"])])[0], new["model.layers.0.w"])


def test_named_revisions(hub, session_for, tmp_path):
    other_weights(tmp_path / "v2", 5)
    commit = hub.add_revision(REPO, "refs/pr/2", tmp_path / "v2")
    assert session_for(hub).open_folder(f"{REPO}@refs/pr/2").provenance.commit == commit


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"<html>", "did not answer with a model's description"),
        (b"[]", "did not answer with a model's description"),
        (b'{"sha": "' + b"0" * 40 + b'"}', "did not answer with a model's description"),
        (b'{"sha": "../../x", "siblings": []}', "expected 40 hex digits"),
        (b'{"sha": 5, "siblings": []}', "expected 40 hex digits"),
        (b'{"siblings": [' + b"[]," * 20_000 + b"[]]}", "has 20003 opening brackets in 60018 bytes"),
    ],
)
def test_strange_descriptions(web, session_for, body, words):
    def spoil(request):
        web.reply(request, 200, body)
        return True

    web.spoil = spoil
    with pytest.raises(TransferError, match=words):
        session_for(endpoint=web.url).open_folder(REPO)


def test_description_beyond_its_cap(web, session_for):
    def spoil(request):
        web.reply(request, 200, b"", Content_Length=str((8 << 20) + 1))
        return True

    web.spoil = spoil
    with pytest.raises(FileTooLarge, match=r"8388609 bytes, more than the 8388608 allowed"):
        session_for(endpoint=web.url).open_folder(REPO)


def test_description_of_another_commit(web, session_for):
    def spoil(request):
        web.reply(request, 200, b'{"sha": "' + b"1" * 40 + b'", "siblings": []}')
        return True

    web.spoil = spoil
    with pytest.raises(TransferError, match=r"answered for another commit, 1111"):
        session_for(endpoint=web.url).open_folder(f"{REPO}@{'0' * 40}")


def test_hostile_names_in_a_listing_are_left_out(web, session_for):
    def spoil(request):
        names = b'"../../x", "/etc/passwd", "a\\\\..\\\\b", 5, "model.safetensors"'
        listed = b",".join(b'{"rfilename": ' + name.strip() + b"}" for name in names.split(b","))
        web.reply(request, 200, b'{"sha": "' + b"1" * 40 + b'", "siblings": [' + listed + b"]}")
        return True

    web.spoil = spoil
    assert session_for(endpoint=web.url).open_folder(REPO).names == {"model.safetensors"}


def test_a_file_that_vanished_after_the_listing(hub, session_for):
    folder = session_for(hub).open_folder(REPO)
    hub.add_fault(Fault(kind="status", match=r"config.json", value=404, error_code="EntryNotFound"))
    with pytest.raises(NotFound, match=r"config.json: no such file .HTTP 404"):
        folder.read_small("config.json")


# ---- a plain web folder ----


def test_web_folder(web, session_for):
    checkpoint = open_checkpoint(web.url, session_for())
    assert len(read_all(checkpoint)) == 4
    assert checkpoint.provenance.kind == "url-folder"


@pytest.mark.parametrize("status", [403, 404, 410])
def test_web_folder_without_config_or_index(web, session_for, model_folder, status):
    (model_folder / "config.json").unlink()
    (model_folder / "model.safetensors.index.json").unlink()
    shutil.copy(model_folder / WEIGHTS, model_folder / "model.safetensors")

    def spoil(request):
        if (model_folder / request.path.lstrip("/")).exists():
            return False
        web.reply(request, status, b"denied")  # a bucket that may not be listed answers 403 for what it does not have
        return True

    web.spoil = spoil
    checkpoint = open_checkpoint(web.url, session_for())
    assert len(checkpoint.tensors) == 2
    assert any("no config.json" in note for note in checkpoint.notes)


def test_a_bucket_that_denies_what_it_does_not_have(web, session_for, model_folder):
    """Optional files (tokenizer, card, adapter) are reasons in the report; nothing ends the comparison."""
    (model_folder / "tokenizer.json").unlink(missing_ok=True)

    def spoil(request):
        if (model_folder / request.path.lstrip("/")).exists():
            return False
        web.reply(request, 403, b"denied")
        return True

    web.spoil = spoil
    report = compare(web.url, str(model_folder), session=session_for(), metrics=("pearson",))
    assert report.verdict is not None
    assert "HTTP 403" in (report.tokenizer.reason or "")


def test_web_file_with_its_companions(web, session_for):
    checkpoint = open_checkpoint(f"{web.url}/{WEIGHTS}", session_for())
    assert checkpoint.config["model_type"] == "llama"
    assert checkpoint.provenance.kind == "url-file"


def test_signed_web_file_asks_for_nothing_else(web, session_for):
    open_checkpoint(f"{web.url}/{WEIGHTS}?sig=1", session_for())
    assert {path for path, _ in web.log} == {f"/{WEIGHTS}?sig=1"}


def test_web_folder_with_nothing_there(web, session_for):
    with pytest.raises(NotFound, match=r"nowhere/model.safetensors: no such file .HTTP 404"):
        open_checkpoint(f"{web.url}/nowhere", session_for())


def test_empty_web_file(web, session_for, model_folder):
    (model_folder / "empty.json").write_bytes(b"")
    assert session_for().open_folder(web.url).read_small("empty.json") == b""


def test_connections():
    assert Settings().connections == 48
    assert Settings(endpoint="http://mirror.test").connections == 96  # nothing to shake hands over
    assert Settings(endpoint="http://mirror.test", concurrency=3).connections == 3
