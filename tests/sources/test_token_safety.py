"""The token: to the hub, to nobody else, and into no text."""

import logging
import traceback

import pytest

from kinprint.errors import AccessDenied, BadReference, BadSetting, KinprintError, NotFound, SourceError, TransferError
from kinprint.formats.checkpoint import open_checkpoint
from kinprint.refs import ByteRange, parse_ref
from kinprint.sources.settings import Settings
from support.hub import Fault, HubServer

REPO = "owner/Small-Model"
WEIGHTS = "model-00001-of-00002.safetensors"
TOKEN = "hf_secret"


def read(source, start=0, end=100):
    buffer = bytearray(end - start)
    source.read_into(ByteRange(start, end), memoryview(buffer))
    return bytes(buffer)


@pytest.mark.parametrize("cdn_host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("resolve_cache", [False, True])
def test_token_goes_to_the_hub_only(model_folder, session_for, cdn_host, resolve_cache, caplog):
    caplog.set_level(logging.DEBUG)
    with HubServer(cdn_host=cdn_host, resolve_cache=resolve_cache) as hub:
        hub.add_repo(REPO, model_folder, gated=True, private=True)
        open_checkpoint(REPO, session_for(hub, token=TOKEN))
        seen = {
            origin: {r.authorization_value for r in hub.requests if r.origin == origin} for origin in ("hub", "cdn")
        }
    assert seen == {"hub": {f"Bearer {TOKEN}"}, "cdn": {None}}
    assert TOKEN not in caplog.text


def test_redirect_to_another_name_of_the_same_host(hub, session_for):
    # "localhost" with the hub's own port: another origin, though the same machine.
    hub.add_fault(Fault(kind="redirect-host", match=r"/api/models", origin="hub", times=1))
    session_for(hub, token=TOKEN).open_folder(REPO)
    asked = [(r.host.partition(":")[0], r.authorization) for r in hub.requests]
    assert asked == [("127.0.0.1", True), ("localhost", False)]


@pytest.mark.parametrize("target", ["/x", "/x|y", "/x y", "/é"])
def test_a_host_that_can_be_read_two_ways_is_not_asked(hub, session_for, target):
    """urlsplit takes what follows the @ for the host, others what stands before the backslash."""
    client = session_for(hub, token=TOKEN)._client
    for place in (
        f"127.0.0.1:1\\@{hub.endpoint.partition('://')[2]}",
        f"{hub.endpoint.partition('://')[2]}\\@127.0.0.1:1",
    ):
        url = f"http://{place}{target}"
        with pytest.raises(TransferError):
            client.send(url, begun_at=hub.endpoint)
        with pytest.raises(BadReference):
            parse_ref(f"http://{place}/folder", endpoint=hub.endpoint)
        with pytest.raises(BadSetting):
            Settings(endpoint=f"http://{place}")
    assert not hub.requests


def test_an_unusual_target_goes_to_the_place_that_was_checked(hub, session_for):
    client = session_for(hub, token=TOKEN)._client
    reply = client.send(f"{hub.endpoint}/none|such here", begun_at=hub.endpoint)
    assert reply.status == 404
    assert [(r.path, r.authorization) for r in hub.requests] == [("/none%7Csuch%20here", True)]


def test_a_plain_address_gets_no_token(web, hub, session_for):
    seen = []

    def spoil(request):
        seen.append(request.headers.get("Authorization"))
        return False

    web.spoil = spoil
    read(session_for(hub, token=TOKEN).open_folder(web.url).open(WEIGHTS))
    assert seen == [None] * len(seen)
    assert seen


@pytest.mark.parametrize("way", ["range", "small"])
def test_a_stranger_that_redirects_to_the_hub_does_not_borrow_the_token(web, hub, session_for, model_folder, way):
    def spoil(request):
        name = request.path.rpartition("/")[2]
        web.reply(request, 302, b"", Location=f"{hub.endpoint}/{REPO}/resolve/main/{name}")
        return True

    web.spoil = spoil
    session = session_for(hub, token=TOKEN)
    if way == "range":
        assert read(session.open_folder(web.url).open(WEIGHTS)) == (model_folder / WEIGHTS).read_bytes()[:100]
    else:
        session._client.get_small(f"{web.url}/config.json", label="x", cap=5000)
    assert {r.authorization_value for r in hub.requests} == {None}
    hub.reset()
    session.open_folder(REPO)
    assert {r.authorization_value for r in hub.requests} == {f"Bearer {TOKEN}"}


def everything(error):
    return "".join(traceback.format_exception(error)) + repr(error) + str(error) + repr(vars(error))


FAULTS = [
    *(Fault(kind="status", match=r"owner", value=code, times=None) for code in (400, 401, 403, 404, 500)),
    *(Fault(kind=kind, match=r"owner", times=None) for kind in ("drop", "garbage", "redirect-loop")),
    Fault(kind="ignore-range", times=None),
    Fault(kind="shifted-range", times=None),
    Fault(kind="expired-link", times=None),
    Fault(kind="changed-etag", origin="cdn", times=None, skip=1),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.kind}{fault.value or ''}")
def test_no_text_names_the_token_or_a_signature(hub, session_for, fault, caplog):
    caplog.set_level(logging.WARNING)
    session = session_for(hub, token=TOKEN, attempts=2)
    hub.add_fault(fault)
    with pytest.raises(KinprintError) as caught:
        [read(source) for source in open_checkpoint(REPO, session).sources]
    text = everything(caught.value) + caplog.text
    assert TOKEN not in text
    assert "Signature=" not in text


def test_no_repr_names_the_token(hub, session_for):
    session = session_for(hub, token=TOKEN)
    checkpoint = open_checkpoint(REPO, session)
    assert "token=set" in repr(session.settings)
    assert TOKEN not in repr(session.settings) + repr(checkpoint) + repr(session) + repr(checkpoint.sources)


@pytest.mark.parametrize("token", ["hf_se\ncret", "hf_sé", "hf secret", "hf_\x00"])
def test_a_token_that_cannot_be_sent_is_not_quoted(token):
    with pytest.raises(BadSetting, match=r"holds characters that no token has") as caught:
        Settings(token=token)
    assert token not in everything(caught.value)
    assert "HF_TOKEN" in caught.value.hint


def test_signed_links_are_not_quoted(web, session_for):
    address = f"{web.url.replace('http://', 'http://user:pass@')}/missing.safetensors?sig=verysecret"
    with pytest.raises(NotFound) as caught:
        open_checkpoint(address, session_for())
    assert "verysecret" not in everything(caught.value)
    assert "pass@" not in caught.value.message


# ---- TLS ----


@pytest.fixture
def tls_hub(model_folder):
    with HubServer(tls=True) as server:
        server.add_repo(REPO, model_folder)
        yield server


def test_private_authority(tls_hub, session_for):
    checkpoint = open_checkpoint(REPO, session_for(tls_hub, ca_file=str(tls_hub.ca_pem)))
    assert len(checkpoint.tensors) == 4


def test_unknown_authority_is_refused(tls_hub, session_for, monkeypatch):
    with pytest.raises(TransferError, match=r"the TLS connection failed.*CERTIFICATE_VERIFY_FAILED") as caught:
        session_for(tls_hub).open_folder(REPO)
    assert "SSL_CERT_FILE" in caught.value.hint
    assert not tls_hub.requests


@pytest.mark.parametrize("content", [None, b"not a certificate"])
def test_unusable_authority_file(tls_hub, session_for, tmp_path, content):
    bundle = tmp_path / "bundle.pem"
    if content is not None:
        bundle.write_bytes(content)
    with pytest.raises(SourceError, match=r"the certificates in .*bundle.pem cannot be used") as caught:
        session_for(tls_hub, ca_file=str(bundle)).open_folder(REPO)
    assert "SSL_CERT_FILE" in caught.value.hint


def test_https_does_not_fall_back_to_http(tls_hub, hub, session_for):
    tls_hub.add_fault(Fault(kind="redirect-host", match=WEIGHTS, origin="hub", value=hub.endpoint, times=None))
    source = session_for(tls_hub, ca_file=str(tls_hub.ca_pem), token=TOKEN).open_folder(REPO).open(WEIGHTS)
    with pytest.raises(TransferError, match=r"redirected from https to plain http .*refused"):
        read(source)
    assert not hub.requests


def test_broken_handshake_is_retried(tls_hub, session_for):
    import ssl

    import urllib3

    session = session_for(tls_hub, ca_file=str(tls_hub.ca_pem))
    client = session._client
    real, calls = client._request, []

    def flaky(*args, **kwargs):
        calls.append(1)
        if len(calls) == 1:
            raise urllib3.exceptions.SSLError(ssl.SSLEOFError(8, "EOF occurred in violation of protocol"))
        return real(*args, **kwargs)

    client._request = flaky
    session.open_folder(REPO)
    assert session.traffic.retries == 1


# ---- who may read what ----


def test_missing_repository(hub, session_for):
    with pytest.raises(NotFound, match=r"owner/none@main: no such repository, or it is private .HTTP 401") as caught:
        session_for(hub).open_folder("owner/none")
    assert "set HF_TOKEN" in caught.value.hint
    with pytest.raises(NotFound, match=r"no such repository, or it is private .HTTP 404") as caught:
        session_for(hub, token=TOKEN).open_folder("owner/none")
    assert caught.value.hint is None


def test_private_repository(hub, model_folder, session_for):
    hub.add_repo("owner/private", model_folder, private=True)
    with pytest.raises(NotFound, match=r"no such repository, or it is private"):
        open_checkpoint("owner/private", session_for(hub))
    assert open_checkpoint("owner/private", session_for(hub, token=TOKEN)).tensors


@pytest.mark.parametrize(
    ("token", "status", "hint"),
    [(None, 401, "accept the model's terms"), ("hf_other", 403, "the token in use has no access")],
)
def test_gated_repository(hub, model_folder, session_for, token, status, hint):
    hub.add_repo("owner/gated", model_folder, gated=True)
    with pytest.raises(
        AccessDenied, match=rf"access denied .HTTP {status}.: Access to model owner/gated is restricted"
    ) as caught:
        open_checkpoint("owner/gated", session_for(hub, token=token))
    assert hint in caught.value.hint
    assert caught.value.exit_code == 4


def test_a_token_nobody_has(model_folder, session_for):
    with HubServer(invalid_tokens=frozenset({"hf_old"})) as hub:
        hub.add_repo(REPO, model_folder)
        with pytest.raises(AccessDenied, match=r"HTTP 401.: Invalid credentials") as caught:
            open_checkpoint(REPO, session_for(hub, token="hf_old"))
    assert "renew HF_TOKEN, or unset it" in caught.value.hint


def test_missing_revision(hub, session_for):
    with pytest.raises(NotFound, match=r"owner/Small-Model@nope: the repository has no such revision") as caught:
        session_for(hub).open_folder(f"{REPO}@nope")
    assert "a branch, a tag or a commit" in caught.value.hint


def test_revision_that_climbs(hub, session_for):
    with pytest.raises(BadReference, match=r"the revision of owner/Small-Model names the file '\.\.'"):
        session_for(hub).open_folder(f"{REPO}@..")


def test_missing_file(hub, session_for):
    words = rf"{REPO}@{hub.commit[:8]}/none.safetensors: the repository has no such file"
    with pytest.raises(NotFound, match=words) as caught:
        open_checkpoint(f"hf://{REPO}/none.safetensors", session_for(hub))
    assert WEIGHTS in caught.value.hint


def test_a_pasted_link_with_a_token_in_its_query(hub, session_for):
    link = f"{hub.endpoint}/{REPO}/resolve/main/{WEIGHTS}?token=verysecret#frag"
    checkpoint = open_checkpoint(link, session_for(hub))
    assert checkpoint.provenance.reference == f"{hub.endpoint}/{REPO}/resolve/main/{WEIGHTS}"
    assert "verysecret" not in repr(checkpoint) + repr(vars(checkpoint.folder))


# ---- a server that repeats the token ----


def _in_a_message(web, request):
    web.reply(request, 400, b"", X_Error_Message=f"you sent {request.headers['Authorization']}")


def _in_a_tag(web, request):
    web.reply(request, 206, b"x" * 100, Content_Range="bytes 0-99/100", ETag=request.headers["Authorization"])


def _in_a_range(web, request):
    web.reply(request, 206, b"x" * 100, Content_Range=request.headers["Authorization"])


def _in_a_header(web, request):
    request.wfile.write(b"HTTP/1.1 200 OK\r\nBad Name " + request.headers["Authorization"].encode() + b": x\r\n\r\n")
    request.close_connection = True


def _in_a_length(web, request):
    request.wfile.write(
        b"HTTP/1.1 206 OK\r\nContent-Length: " + request.headers["Authorization"].encode() + b"\r\n\r\n"
    )
    request.close_connection = True


def _in_a_place(web, request):
    web.reply(request, 302, b"", Location=f"http://localhost:1/{request.headers['Authorization'].split()[1]}")


def _in_the_body(web, request):
    body = request.headers["Authorization"].encode().ljust(100)
    web.reply(request, 206, body, Content_Range="bytes 0-99/100", ETag="a")


@pytest.mark.parametrize(
    "echo", [_in_a_message, _in_a_tag, _in_a_range, _in_a_header, _in_a_length, _in_a_place, _in_the_body]
)
def test_a_server_that_repeats_the_token(web, session_for, tmp_path, echo):
    web.spoil = lambda request: echo(web, request) or True
    session = session_for(endpoint=web.url, token=TOKEN, attempts=2, range_cache=tmp_path / "kept")
    source = session.open_folder(f"{web.url}/{WEIGHTS}").open(WEIGHTS)
    try:
        found = f"{read(source)!r} {source.identity}"
    except KinprintError as error:
        found = "".join(traceback.format_exception(error))
    assert TOKEN not in found.replace(f"Authorization', 'Bearer {TOKEN}", "")
    kept = [path.read_bytes() for path in (tmp_path / "kept").rglob("*") if path.is_file()]
    assert not any(TOKEN.encode() in content for content in kept)


def test_a_small_file_that_repeats_the_token(web, session_for):
    web.spoil = lambda request: web.reply(request, 200, request.headers["Authorization"].encode()) or True
    with pytest.raises(TransferError, match="repeats the token that was sent; refused") as caught:
        session_for(endpoint=web.url, token=TOKEN)._client.get_small(f"{web.url}/x", label="x", cap=1000)
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize("first", ["x" * 100, TOKEN.ljust(100)], ids=["later", "at once"])
def test_a_place_of_its_own_that_a_server_leads_to_does_not_repeat_the_token_either(web, session_for, tmp_path, first):
    """The token goes there too, and the second read goes there without being led."""
    bodies = iter([first, TOKEN.ljust(100)])

    def spoil(request):
        if request.path == "/elsewhere":
            assert request.headers["Authorization"] == f"Bearer {TOKEN}"
            span = request.headers["Range"].removeprefix("bytes=")
            web.reply(request, 206, next(bodies).encode(), Content_Range=f"bytes {span}/200", ETag="a")
        else:
            web.reply(request, 302, b"", Location="/elsewhere", X_Linked_Size="200")
        return True

    web.spoil = spoil
    session = session_for(endpoint=web.url, token=TOKEN, range_cache=tmp_path / "kept")
    source = session.open_folder(f"{web.url}/{WEIGHTS}").open(WEIGHTS)
    with pytest.raises(TransferError, match="repeats the token that was sent; refused"):
        [read(source, 0, 100), read(source, 100, 200)]
    kept = [path.read_bytes() for path in (tmp_path / "kept").rglob("*") if path.is_file()]
    assert not any(TOKEN.encode() in content for content in kept)
