"""The local hub, proven with the official client and then probed raw."""

import hashlib
import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
import urllib3
from huggingface_hub import HfApi, HfFileSystem, hf_hub_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from support.hub import Fault, HubServer
from support.layouts import write_checkpoint
from support.places import ROOT

REPO = "owner/Small-Model"
WEIGHTS = "model-00001-of-00002.safetensors"


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(11)
    tensors = {f"model.layers.{i}.w": rng.standard_normal((64, 64)).astype(np.float32) for i in range(4)}
    target = tmp_path / "repo"
    write_checkpoint(target, tensors, {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}, shards=2)
    (target / "sub" / "deep").mkdir(parents=True)
    (target / "sub" / "notes ü.txt").write_text("hello")
    (target / "sub" / "deep" / "x.json").write_text("{}")
    (target / ".gitattributes").write_text("*.safetensors filter=lfs\n")
    return target


@pytest.fixture
def hub(folder):
    with HubServer() as server:
        server.add_repo(REPO, folder)
        yield server


def api(hub, token=False):
    return HfApi(endpoint=hub.endpoint, token=token)


def resolve(hub, file=WEIGHTS, repo=REPO, revision="main", **headers):
    return raw("GET", f"{hub.endpoint}/{repo}/resolve/{revision}/{file}", **headers)


def raw(method, url, body=None, **headers):
    """One request, no redirects followed: (status, headers, body)."""
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.netloc, timeout=5)
    try:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, f"{where.path}?{where.query}" if where.query else where.path, body, names)
        reply = connection.getresponse()
        return reply.status, reply.headers, reply.read()
    finally:
        connection.close()


# ---- the official client ----


def test_model_info(hub, folder):
    info = api(hub).model_info(REPO, files_metadata=True)
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    assert sorted(sibling.rfilename for sibling in info.siblings) == files
    assert (info.id, info.author, info.private, info.gated) == (REPO, "owner", False, False)
    assert len(info.sha) == 40
    assert info.config["model_type"] == "llama"
    assert info.last_modified is not None
    weights = next(sibling for sibling in info.siblings if sibling.rfilename == WEIGHTS)
    content = (folder / WEIGHTS).read_bytes()
    assert (weights.size, weights.lfs.size) == (len(content), len(content))
    assert weights.lfs.sha256 == hashlib.sha256(content).hexdigest()
    config = next(sibling for sibling in info.siblings if sibling.rfilename == "config.json")
    text = (folder / "config.json").read_bytes()
    assert config.lfs is None
    assert config.blob_id == hashlib.sha1(b"blob %d\0" % len(text) + text).hexdigest()


def test_revisions(hub, folder, tmp_path):
    other = tmp_path / "other"
    write_checkpoint(other, {"w": np.ones(3, dtype=np.float32)}, {})
    commit = hub.add_revision(REPO, "refs/pr/1", other, commit="ab" * 20)
    assert commit == "ab" * 20
    at_tag = api(hub).repo_info(REPO, revision="refs/pr/1")
    assert at_tag.sha == commit
    assert {sibling.rfilename for sibling in at_tag.siblings} == {"model.safetensors", "config.json"}
    main = api(hub).model_info(REPO).sha
    assert api(hub).repo_info(REPO, revision=main).sha == main != commit
    assert [ref.target_commit for ref in api(hub).list_repo_refs(REPO).branches] == [main]
    with pytest.raises(ValueError, match="40 lower-case"):
        hub.add_revision(REPO, "v2", other, commit="main")


@pytest.mark.parametrize("page_size", [1000, 2])
def test_tree(folder, page_size):
    with HubServer(page_size=page_size) as hub:
        hub.add_repo(REPO, folder)
        everything = list(api(hub).list_repo_tree(REPO, recursive=True))
        files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        assert {entry.path for entry in everything if hasattr(entry, "size")} == files
        assert {entry.path for entry in everything if not hasattr(entry, "size")} == {"sub", "sub/deep"}
        top = {entry.path for entry in api(hub).list_repo_tree(REPO)}
        assert top == {name for name in files if "/" not in name} | {"sub"}
        inside = list(api(hub).list_repo_tree(REPO, "sub/deep", expand=True))
        assert [(entry.path, entry.size) for entry in inside] == [("sub/deep/x.json", 2)]
        assert inside[0].last_commit is not None
        with pytest.raises(RemoteEntryNotFoundError):
            list(api(hub).list_repo_tree(REPO, "nowhere"))


def test_paths_info(hub, folder):
    found = api(hub).get_paths_info(REPO, [WEIGHTS, "sub", "nowhere", "sub/notes ü.txt"])
    assert [entry.path for entry in found] == [WEIGHTS, "sub", "sub/notes ü.txt"]
    assert found[0].lfs.size == found[0].size == (folder / WEIGHTS).stat().st_size


@pytest.mark.parametrize("resolve_cache", [False, True])
def test_download(folder, tmp_path, resolve_cache):
    with HubServer(resolve_cache=resolve_cache) as hub:
        commit = hub.add_repo(REPO, folder)
        for file in (WEIGHTS, "config.json", "sub/notes ü.txt", "sub/deep/x.json"):
            path = hf_hub_download(REPO, file, endpoint=hub.endpoint, cache_dir=tmp_path / "cache", token="hf_secret")
            assert (folder / file).read_bytes() == Path(path).read_bytes()
            assert commit in path
        seen = hub.requests
        cdn = [request for request in seen if request.origin == "cdn"]
        assert [request.file for request in cdn] == [f"{REPO}/{WEIGHTS}"]
        assert not any(request.authorization for request in cdn)
        assert all(request.authorization_value == "Bearer hf_secret" for request in seen if request.origin == "hub")
        redirected = [request for request in seen if request.status == 307]
        assert len(redirected) == (3 if resolve_cache else 0)


@pytest.mark.parametrize("resolve_cache", [False, True])
def test_repository_without_an_owner(folder, tmp_path, resolve_cache):
    with HubServer(resolve_cache=resolve_cache) as hub:
        hub.add_repo("gpt2", folder)
        assert api(hub).model_info("gpt2").author is None
        assert "config.json" in {entry.path for entry in api(hub).list_repo_tree("gpt2")}
        for file in (WEIGHTS, "config.json"):
            path = hf_hub_download("gpt2", file, endpoint=hub.endpoint, cache_dir=tmp_path / "cache", token=False)
            assert Path(path).read_bytes() == (folder / file).read_bytes()


def test_file_exists_and_errors(hub, tmp_path):
    client = api(hub)
    assert client.file_exists(REPO, WEIGHTS)
    assert not client.file_exists(REPO, "nothing.json")
    assert not client.file_exists("owner/none", WEIGHTS)
    assert not client.revision_exists(REPO, "v9")
    with pytest.raises(RevisionNotFoundError):
        client.model_info(REPO, revision="v9")
    with pytest.raises(RepositoryNotFoundError) as anonymous:
        client.model_info("owner/none")
    with pytest.raises(RepositoryNotFoundError) as known:
        api(hub, "hf_other").model_info("owner/none")
    assert (anonymous.value.response.status_code, known.value.response.status_code) == (401, 404)
    with pytest.raises(RemoteEntryNotFoundError):
        hf_hub_download(REPO, "nothing.json", endpoint=hub.endpoint, cache_dir=tmp_path, token=False)
    with pytest.raises(RevisionNotFoundError):
        hf_hub_download(REPO, WEIGHTS, revision="v9", endpoint=hub.endpoint, cache_dir=tmp_path, token=False)


def test_gated_private_and_invalid_tokens(folder, tmp_path):
    with HubServer(token="hf_good", invalid_tokens=frozenset({"hf_revoked"})) as hub:
        hub.add_repo("owner/gated", folder, gated=True)
        hub.add_repo("owner/private", folder, private=True)
        # As on the real hub, a gated repository's description is public and its files are not.
        assert api(hub).model_info("owner/gated").gated == "manual"
        for token, status in ((False, 401), ("hf_other", 403)):
            with pytest.raises(GatedRepoError) as refused:
                hf_hub_download("owner/gated", WEIGHTS, endpoint=hub.endpoint, cache_dir=tmp_path, token=token)
            assert refused.value.response.status_code == status
            with pytest.raises(RepositoryNotFoundError):
                api(hub, token).model_info("owner/private")
        assert api(hub, "hf_good").model_info("owner/private").private
        path = hf_hub_download("owner/gated", WEIGHTS, endpoint=hub.endpoint, cache_dir=tmp_path, token="hf_good")
        assert Path(path).read_bytes() == (folder / WEIGHTS).read_bytes()
        with pytest.raises(HfHubHTTPError, match="Invalid credentials") as invalid:
            api(hub, "hf_revoked").model_info("owner/private")
        assert not isinstance(invalid.value, RepositoryNotFoundError)


def test_safetensors_metadata(hub, tmp_path, monkeypatch):
    # The client fetches the index into its default cache and takes no argument for another.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    metadata = api(hub).get_safetensors_metadata(REPO)
    assert metadata.sharded
    assert set(metadata.weight_map) == {f"model.layers.{i}.w" for i in range(4)}
    assert metadata.files_metadata[WEIGHTS].tensors["model.layers.0.w"].shape == [64, 64]
    assert metadata.parameter_count == {"F32": 4 * 64 * 64}
    assert (tmp_path / "cache").is_dir()


def test_file_system_reads_a_stretch(hub, folder):
    files = HfFileSystem(endpoint=hub.endpoint, token=False, use_listings_cache=False, skip_instance_cache=True)
    assert f"{REPO}/{WEIGHTS}" in files.ls(REPO, detail=False)
    with files.open(f"{REPO}/{WEIGHTS}", "rb", block_size=256) as stream:
        stream.seek(1000)
        assert stream.read(100) == (folder / WEIGHTS).read_bytes()[1000:1100]
    assert any(request.origin == "cdn" and request.range for request in hub.requests)


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_server_errors_reach_the_client_as_such(hub, status):
    hub.add_fault(Fault(kind="status", match="/api/models/", value=status, retry_after=7))
    with pytest.raises(HfHubHTTPError) as failed:
        api(hub).model_info(REPO)
    assert failed.value.response.status_code == status
    assert failed.value.response.headers["Retry-After"] == "7"
    assert ("Retry after 7 seconds" in str(failed.value)) == (status == 429)
    assert api(hub).model_info(REPO).id == REPO


# ---- raw ----


def test_redirect_carries_what_clients_need(hub, folder):
    commit = api(hub).model_info(REPO).sha
    content = (folder / WEIGHTS).read_bytes()
    for method in ("HEAD", "GET"):
        status, headers, body = raw(method, f"{hub.endpoint}/{REPO}/resolve/main/{WEIGHTS}")
        assert status == 302
        assert headers["X-Repo-Commit"] == commit
        assert headers["X-Linked-Size"] == str(len(content))
        assert headers["X-Linked-ETag"] == f'"{hashlib.sha256(content).hexdigest()}"'
        assert headers["Location"].startswith(hub.cdn + "/")
        assert {"Expires", "Signature"} <= {
            part.split("=")[0] for part in urlsplit(headers["Location"]).query.split("&")
        }
        assert bool(body) == (method == "GET")
        assert WEIGHTS not in urlsplit(headers["Location"]).path


@pytest.mark.parametrize(
    ("asked", "first", "last"),
    [
        ("0-0", 0, 0),
        ("5-9", 5, 9),
        ("100-", 100, None),
        ("-7", -7, None),
        ("10-99999999", 10, None),
        ("-9999999", 0, None),
    ],
)
def test_ranges(hub, folder, asked, first, last):
    content = (folder / WEIGHTS).read_bytes()
    expected = content[first:] if last is None else content[first : last + 1]
    start = first if first >= 0 else len(content) + first
    status, headers, body = raw("GET", resolve(hub)[1]["Location"], Range=f"bytes={asked}")
    assert (status, body) == (206, expected)
    assert headers["Content-Range"] == f"bytes {start}-{start + len(expected) - 1}/{len(content)}"
    assert headers["Content-Length"] == str(len(expected))
    assert headers["ETag"] != resolve(hub)[1]["X-Linked-ETag"]


def test_ranges_on_regular_files(hub, folder):
    status, headers, body = resolve(hub, "config.json", Range="bytes=1-4")
    assert (status, body) == (206, (folder / "config.json").read_bytes()[1:5])
    assert headers["Accept-Ranges"] == "bytes"
    assert headers["X-Repo-Commit"]


@pytest.mark.parametrize("asked", ["bytes=99999999-", "bytes=-0"])
def test_unsatisfiable(hub, folder, asked):
    status, headers, body = raw("GET", resolve(hub)[1]["Location"], Range=asked)
    assert (status, body) == (416, b"")
    assert headers["Content-Range"] == f"bytes */{(folder / WEIGHTS).stat().st_size}"


@pytest.mark.parametrize("asked", ["bytes=5-2", "bytes=a-b", "lines=1-2", "bytes=0-1,4-5", "bytes=-"])
def test_ranges_to_be_ignored(hub, folder, asked):
    status, headers, body = raw("GET", resolve(hub)[1]["Location"], Range=asked)
    assert (status, body) == (200, (folder / WEIGHTS).read_bytes())
    assert "Content-Range" not in headers


def test_conditional_requests(hub):
    link = resolve(hub)[1]["Location"]
    etag = raw("HEAD", link)[1]["ETag"]
    assert raw("GET", link, Range="bytes=0-9", If_Match=etag)[0] == 206
    assert raw("GET", link, Range="bytes=0-9", If_Match='"other"')[0] == 412
    assert raw("GET", link, Range="bytes=0-9", If_Range=etag)[0] == 206
    assert raw("GET", link, Range="bytes=0-9", If_Range='"other"')[0] == 200
    assert raw("GET", link, If_None_Match=etag)[0] == 304


def test_links_are_signed_and_expire(hub, folder):
    link = resolve(hub)[1]["Location"]
    assert raw("GET", link)[0] == 200
    assert raw("GET", link.replace("Signature=", "Signature=0"))[0] == 403
    assert raw("GET", link.split("?")[0])[0] == 403
    assert raw("GET", link.replace("Signature=", "Signature=%C3%A9"))[0] == 403
    assert raw("GET", link.replace("/xet-bridge-us/", "/xet-bridge-us/x"))[0] == 403
    with HubServer(link_ttl_s=-5) as late:
        late.add_repo(REPO, folder)
        assert raw("GET", resolve(late)[1]["Location"])[0] == 403


def test_keep_alive_pipelining_and_refusals(hub, folder):
    where = urlsplit(hub.endpoint)
    connection = http.client.HTTPConnection(where.netloc, timeout=5)
    for _ in range(3):
        connection.request("GET", f"/{REPO}/resolve/main/config.json")
        assert connection.getresponse().read() == (folder / "config.json").read_bytes()
        local = connection.sock.getsockname()
    assert connection.sock.getsockname() == local
    ask = f"GET /{REPO}/resolve/main/sub/deep/x.json HTTP/1.1\r\nHost: h\r\n\r\n".encode()
    connection.sock.sendall(ask + ask.replace(b"Host", b"Connection: close\r\nHost"))
    received = b""
    while piece := connection.sock.recv(65536):
        received += piece
    assert received.count(b"HTTP/1.1 200 OK") == received.count(b"\r\n\r\n{}") == 2
    connection.close()
    connection.connect()
    connection.sock.sendall(b"NONSENSE\r\n\r\n")
    assert connection.sock.recv(65536).startswith(b"HTTP/1.1 400")
    connection.close()


def test_big_bodies_are_streamed(tmp_path):
    target = tmp_path / "repo"
    target.mkdir()
    with (target / "model.safetensors").open("wb") as stream:
        stream.truncate(5 << 30)
        stream.seek((3 << 30) + 5)
        stream.write(b"needle")
    with HubServer() as hub:
        hub.add_repo(REPO, target)
        link = resolve(hub, "model.safetensors")[1]["Location"]
        body = raw("GET", link, Range=f"bytes={3 << 30}-{(3 << 30) + (4 << 20)}")[2]
        assert len(body) == (4 << 20) + 1
        assert body[5:11] == b"needle"
        hub.reset()
        # A client that leaves early costs the server what it took, not 5 GB.
        where = urlsplit(link)
        connection = http.client.HTTPConnection(where.netloc, timeout=5)
        connection.request("GET", f"{where.path}?{where.query}")
        assert len(connection.getresponse().read(1000)) == 1000
        connection.close()
        assert hub.requests[0].body_bytes < 64 << 20


def test_latency_and_statistics(folder, delays):
    with HubServer(latency_s=0.05, connect_latency_s=1000) as hub:
        hub.add_repo(REPO, folder)
        pool = urllib3.PoolManager(retries=False)
        for _ in range(2):
            pool.request("GET", f"{hub.endpoint}/{REPO}/resolve/main/config.json")
        pool.clear()
        hub.connect_latency_s = 0
        pool.request("GET", f"{hub.endpoint}/{REPO}/resolve/main/config.json")
        stats = pool.request("GET", f"{hub.endpoint}/_stats").json()
        # The second request follows before the connection is ready, as nobody waited; the statistics are not delayed.
        assert delays == [1000.05, 1000.05, 0.05]
        assert stats["requests"] == {"hub": 3, "cdn": 0}
        assert stats["bytes"]["hub"] == 3 * (folder / "config.json").stat().st_size
        assert pool.request("POST", f"{hub.endpoint}/_reset").status == 204
        assert hub.requests == []
        pool.clear()


def test_tls(folder):
    with HubServer(tls=True, cdn_host="localhost") as hub:
        hub.add_repo(REPO, folder)
        assert urlsplit(hub.cdn).hostname == "localhost"
        with urllib3.PoolManager(ca_certs=str(hub.ca_pem), retries=2) as pool:
            reply = pool.request("GET", f"{hub.endpoint}/{REPO}/resolve/main/{WEIGHTS}")
            assert reply.data == (folder / WEIGHTS).read_bytes()
        with urllib3.PoolManager(retries=False) as stranger, pytest.raises(urllib3.exceptions.SSLError):
            stranger.request("GET", hub.endpoint)
        context = ssl.create_default_context(cafile=str(hub.ca_pem))
        connection = http.client.HTTPSConnection(urlsplit(hub.endpoint).netloc, context=context, timeout=5)
        connection.request("GET", "/_stats")
        assert connection.sock.version() == "TLSv1.3"
        assert json.loads(connection.getresponse().read())["requests"]["cdn"] == 1
        connection.close()
        pem = hub.ca_pem
    assert not pem.exists()
    with pytest.raises(RuntimeError, match="tls=True"):
        HubServer().ca_pem  # noqa: B018


def test_tls_handshake_costs_a_second_round_trip(folder, delays):
    with HubServer(tls=True, connect_latency_s=1000) as hub:
        context = ssl.create_default_context(cafile=str(hub.ca_pem))
        connection = http.client.HTTPSConnection(urlsplit(hub.endpoint).netloc, context=context, timeout=5)
        connection.request("GET", "/nothing")
        assert connection.getresponse().read()
        connection.close()
    assert delays == [2000]


@pytest.mark.parametrize("ending", ["stdin", "signal"])
def test_own_process(folder, ending):
    command = [sys.executable, "-m", "support.hub", "--repo", f"{REPO}={folder}", "--latency-ms", "1"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    )
    with process:
        ready = json.loads(process.stdout.readline())
        info = HfApi(endpoint=ready["endpoint"], token=False).model_info(REPO)
        assert info.sha == ready["commit"][REPO]
        assert raw("GET", ready["endpoint"] + "/_stats")[0] == 200
        if ending == "stdin":
            process.stdin.close()
        else:
            process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
