"""What is refused before any page sees it: other hosts, other sites' pages, too much, too often; and what every reply says."""

import asyncio

import pytest

from kinprint.serve.guard import Buckets, Guard, client_name
from kinprint.serve.options import Limits, ServeOptions


async def _fine(scope, receive, send):
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": body})


def ask(guard, *, method="GET", host="localhost:8377", client="192.0.2.1", body=(b"",), **headers):
    sent = []
    parts = list(body)

    async def receive():
        part = parts.pop(0) if parts else b""
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(message):
        sent.append(message)

    named = {"host": host, **{name.replace("_", "-"): value for name, value in headers.items()}}
    scope = {
        "type": "http",
        "method": method,
        "path": "/",
        "client": (client, 1),
        "headers": [(name.encode(), value.encode()) for name, value in named.items()],
    }
    asyncio.run(guard(scope, receive, send))
    return sent[0]["status"], dict(sent[0]["headers"]), b"".join(message.get("body", b"") for message in sent[1:])


def guard(tmp_path, **limits):
    return Guard(_fine, ServeOptions(tmp_path, limits=Limits(**limits)))


@pytest.mark.parametrize("host", ["localhost:8377", "127.0.0.1", "[::1]:80", "LOCALHOST"])
def test_its_own_names_are_answered(tmp_path, host):
    assert ask(guard(tmp_path), host=host)[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8377", "", "127.0.0.1.evil.example", "[::2]:80"])
def test_other_names_for_this_machine_are_refused(tmp_path, host):
    assert ask(guard(tmp_path), host=host)[0] == 421


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),  # a program
        ({"sec_fetch_site": "same-origin"}, 200),
        ({"sec_fetch_site": "none"}, 200),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"sec_fetch_site": "cross-site", "origin": "http://localhost:8377"}, 403),
        ({"origin": "http://localhost:8377"}, 200),
        ({"origin": "http://localhost:9999"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "https://evil.example"}, 403),
    ],
)
def test_forms_of_other_sites_are_refused(tmp_path, headers, status):
    assert ask(guard(tmp_path), method="POST", **headers)[0] == status
    assert ask(guard(tmp_path), method="GET", **headers)[0] == 200


@pytest.mark.parametrize("length", ["101", "99999999999999999999999", "-1", "1e3", "x", "٣"])
def test_a_length_that_is_too_great_or_none_is_refused(tmp_path, length):
    try:
        found = ask(guard(tmp_path, body_bytes=100), method="POST", content_length=length)[0]
    except UnicodeEncodeError:
        pytest.skip("no such header can be sent")
    assert found == 413


def test_a_body_that_grows_is_cut(tmp_path):
    small = guard(tmp_path, body_bytes=100)
    assert ask(small, method="POST", body=[b"x" * 50, b"x" * 50])[2] == b"x" * 100
    assert ask(small, method="POST", body=[b"x" * 50, b"x" * 51])[0] == 413


def test_one_client_cannot_take_everybodys_turn(tmp_path):
    narrow = guard(tmp_path, reads_per_minute=3, writes_per_minute=1)
    assert [ask(narrow)[0] for _ in range(4)] == [200, 200, 200, 429]
    assert int(ask(narrow)[1][b"retry-after"]) >= 1
    assert ask(narrow, client="192.0.2.2")[0] == 200
    assert [ask(narrow, method="POST")[0] for _ in range(2)] == [200, 429]


def test_places_come_back_with_time():
    now = [0.0]
    buckets = Buckets(60, clock=lambda: now[0])
    assert all(buckets.take("x") == 0.0 for _ in range(60))
    assert buckets.take("x") == pytest.approx(1.0)
    now[0] = 2.5
    assert [buckets.take("x") == 0.0 for _ in range(3)] == [True, True, False]


def test_a_household_is_one_client():
    def name(address):
        return client_name({"client": (address, 1)})

    assert name("2001:db8:1:2::1") == name("2001:db8:1:2:ffff::9") != name("2001:db8:1:3::1")
    assert name("192.0.2.1") != name("192.0.2.2")
    assert client_name({"client": None}) == "unknown"


def test_every_reply_has_the_strict_headers(tmp_path):
    for status, headers, _ in (ask(guard(tmp_path)), ask(guard(tmp_path), host="evil.example")):
        assert status in (200, 421)
        policy = headers[b"content-security-policy"].decode()
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy
        assert headers[b"x-content-type-options"] == b"nosniff"
        assert headers[b"x-frame-options"] == b"DENY"
