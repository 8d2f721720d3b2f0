"""What a ranged reply must be to be believed, and what is done about replies that are not."""

import time

import pytest

from kinprint.errors import FileTooLarge, SourceChanged, TransferError
from support.remote import REPO, WEIGHTS, fault, read

# ---- a reply that is not what was asked for is refused ----


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("shifted-range", r"asked for bytes 0-999, got Content-Range 'bytes 1-1000/"),
        ("no-content-range", "HTTP 206 with Content-Range ''; expected bytes a-b/size"),
        ("long-body", "asked for 1000 bytes, the reply declares 1016"),
        ("few-bytes", "asked for 1000 bytes, the reply declares 999"),
        ("gzip", "came encoded as 'gzip'; expected plain bytes"),
    ],
)
def test_unbelievable_replies(hub, session, source, kind, words):
    struck = fault(hub, kind, origin="cdn")
    with pytest.raises(TransferError, match=words) as caught:
        read(source)
    assert WEIGHTS in caught.value.message
    assert struck.fired == 1
    assert session.traffic.network_bytes < 1000 + 5000  # the description, and nothing of the reply


def test_wrong_total(hub, source, data):
    fault(hub, "wrong-total", origin="cdn")
    with pytest.raises(SourceChanged, match=rf"was {len(data)} bytes, is now {len(data) + 1} bytes") as caught:
        read(source)
    assert "run it again" in caught.value.hint


def test_whole_file_instead_of_a_range(tmp_path, hub, session_for):
    big = tmp_path / "big"
    big.mkdir()
    with (big / WEIGHTS).open("wb") as file:
        file.truncate(300 << 20)
    hub.add_repo("owner/big", big)
    fault(hub, "ignore-range", origin="cdn")
    source = session_for(hub).open_folder("owner/big").open(WEIGHTS)
    with pytest.raises(TransferError, match=r"whole file \(HTTP 200\) instead of bytes 0-999") as caught:
        read(source)
    assert "download the file" in caught.value.hint
    time.sleep(0.05)
    assert hub.requests[-1].body_bytes < 32 << 20  # what socket buffers hold, not the file


def test_changed_tag_midway(hub, source):
    read(source)
    fault(hub, "changed-etag", origin="cdn", times=None)
    with pytest.raises(SourceChanged, match=r"changed while it was read .*reply tag") as caught:
        read(source, 1000, 2000)
    assert "nothing read so far has been mixed" in caught.value.hint


def test_weak_tags_are_compared_midway_too(web, session_for, data):
    tags = iter(['W/"one"', 'W/"one"', 'W/"two"'])

    def spoil(request):
        first, last = (int(text) for text in request.headers["Range"].removeprefix("bytes=").split("-"))
        stated = f"bytes {first}-{last}/{len(data)}"
        web.reply(request, 206, data[first : last + 1], Content_Range=stated, ETag=next(tags))
        return True

    source = plain(web, session_for, spoil)
    assert read(source) == data[:1000]
    assert read(source, 1000, 2000) == data[1000:2000]
    assert not source.has_strong_identity
    with pytest.raises(SourceChanged, match=r"reply tag 'one', then 'two'"):
        read(source)


def test_changed_linked_tag_after_an_expired_link(hub, source):
    read(source)
    fault(hub, "expired-link", origin="cdn")
    fault(hub, "changed-etag", origin="hub", times=None)
    with pytest.raises(SourceChanged, match=r"linked tag"):
        read(source, 1000, 2000)


def test_expired_link_is_renewed_once(hub, source, data):
    read(source)
    hub.reset()
    struck = fault(hub, "expired-link", origin="cdn")
    assert read(source, 1000, 2000) == data[1000:2000]
    assert struck.fired == 1
    assert [(r.origin, r.status) for r in hub.requests] == [("cdn", 403), ("hub", 302), ("cdn", 206)]


def test_link_that_stays_expired(hub, source):
    read(source)
    fault(hub, "expired-link", origin="cdn", times=None)
    from kinprint.errors import AccessDenied

    with pytest.raises(AccessDenied, match=r"HTTP 403"):
        read(source)


def test_another_commit_than_asked_for(hub, session, model_folder):
    source = session.open_folder(REPO).open(WEIGHTS)
    source._commit = "f" * 40
    with pytest.raises(SourceChanged, match=rf"asked for commit {'f' * 40}, the server answers with '{hub.commit}'"):
        read(source)


# ---- servers that no hub would be ----


def plain(web, session_for, spoil, **changes):
    web.spoil = spoil
    return session_for(**changes).open_folder(web.url).open(WEIGHTS)


@pytest.mark.parametrize(
    "stated", ["bytes 0-999/*", "bytes 0-999/99999999999999999999999", "bytes 0-999", "0-999/5000", "bytes */5"]
)
def test_odd_content_range(web, session_for, data, stated):
    def spoil(request):
        web.reply(request, 206, data[:1000], Content_Range=stated)
        return True

    source = plain(web, session_for, spoil)
    if stated.endswith("*"):
        assert read(source) == data[:1000]  # allowed by the standard: the total is not known
    else:
        with pytest.raises(TransferError, match=r"expected bytes a-b/size"):
            read(source)


def test_size_that_nobody_tells(web, session_for, data):
    def spoil(request):
        first, last = (int(text) for text in request.headers["Range"].removeprefix("bytes=").split("-"))
        web.reply(request, 206, data[first : last + 1], Content_Range=f"bytes {first}-{last}/*")
        return True

    source = plain(web, session_for, spoil)
    assert read(source, 5, 50) == data[5:50]
    with pytest.raises(TransferError, match=r"does not say how long the file is") as caught:
        _ = source.size
    assert "download" in caught.value.hint


def test_body_without_end(web, session_for, data):
    def spoil(request):
        total = len(data)
        request.send_response(206)
        request.send_header("Content-Range", f"bytes 0-999/{total}")
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        while True:
            request.wfile.write(b"400\r\n" + b"x" * 1024 + b"\r\n")
        return True

    source = plain(web, session_for, spoil)
    with pytest.raises(TransferError, match=r"asked for 1000 bytes, the server sends more"):
        read(source)


@pytest.mark.parametrize(
    ("header", "value"),
    [("Content_Length", "9" * 5000), ("Content_Length", "-5"), ("Content_Length", "1000, 1000, 7")],
)
def test_absurd_content_length(web, session_for, data, header, value):
    def spoil(request):
        web.reply(request, 206, data[:1000], Content_Range=f"bytes 0-999/{len(data)}", **{header: value})
        request.close_connection = True
        return True

    source = plain(web, session_for, spoil, read_timeout_s=0.3)
    with pytest.raises(TransferError, match=r"the server breaks the protocol: .*Content-Length"):
        read(source)
    assert source.client.traffic.retries == 0  # at once: no later attempt will change it


@pytest.mark.parametrize("size", ["9" * 5000, str(10**18), "-1", "x"])
def test_absurd_linked_size(web, session_for, data, size):
    def spoil(request):
        if "real" in request.path:
            return False
        web.reply(request, 302, b"", Location=f"/{WEIGHTS}?real", X_Linked_Size=size)
        return True

    source = plain(web, session_for, spoil)
    if size == str(10**18):
        with pytest.raises(SourceChanged, match=rf"was {10**18} bytes, is now {len(data)}"):
            read(source)
    else:
        assert read(source) == data[:1000]
        assert source.size == len(data)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("ftp://x/y", "not an http"),
        ("file:///etc/passwd", "not an http"),
        ("http://", "more than 5 redirects"),  # which stands for the very same address
        ("http://[::1/x", "cannot be read"),
        ("http://host:99999/", "cannot be read"),
        ("", "more than 5 redirects"),
    ],
)
def test_redirects_to_nowhere(web, session_for, target, words):
    def spoil(request):
        web.reply(request, 302, b"", **({"Location": target} if target else {}))
        return True

    with pytest.raises(TransferError, match=words):
        read(plain(web, session_for, spoil))


def test_redirect_loop(hub, source):
    fault(hub, "redirect-loop", times=None)
    with pytest.raises(TransferError, match=r"more than 5 redirects") as caught:
        read(source)
    assert "?" not in caught.value.message
    assert len([r for r in hub.requests if r.file]) <= 7


def test_nobody_listens(session_for):
    source = session_for().open_folder("http://127.0.0.1:9/folder").open(WEIGHTS)
    with pytest.raises(TransferError, match=r"gave up after 3 attempts.*NewConnectionError"):
        read(source)


def test_a_host_that_no_name_can_be(session_for):
    session = session_for()
    with pytest.raises(TransferError, match=r"cannot be asked for: Location") as caught:
        read(session.open_folder(f"http://{'a' * 300}.test/folder").open(WEIGHTS))
    assert "check the address" in caught.value.hint
    assert (session.traffic.requests, session.traffic.retries) == (1, 0)


def test_small_file_too_large(hub, session):
    folder = session.open_folder(REPO)
    with pytest.raises(FileTooLarge, match=r"more than the 10 allowed here"):
        folder.read_small("config.json", 10)


def test_endless_small_file(web, hub, session_for):
    def spoil(request):
        request.send_response(200)
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        while True:
            request.wfile.write(b"400\r\n" + b"x" * 1024 + b"\r\n")
        return True

    web.spoil = spoil
    client = session_for()._client
    with pytest.raises(FileTooLarge, match=r"sends more than the 5000 bytes"):
        client.get_small(web.url + "/config.json", label="x", cap=5000)


def test_compressed_small_file(web, session_for):
    import gzip

    def spoil(request):
        web.reply(request, 200, gzip.compress(b"{}" * 50), Content_Encoding="gzip")
        return True

    web.spoil = spoil  # some proxies compress whatever they were asked
    assert session_for()._client.get_small(web.url + "/config.json", label="x", cap=5000)[0] == b"{}" * 50


@pytest.mark.parametrize("status", [400, 418, 501])
def test_other_statuses_are_final(hub, source, status):
    struck = fault(hub, "status", value=status, origin="cdn", times=None)
    with pytest.raises(TransferError, match=rf"unexpected reply HTTP {status}"):
        read(source)
    assert struck.fired == 1
