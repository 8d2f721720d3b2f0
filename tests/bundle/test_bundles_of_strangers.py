"""What a stranger's bundle cannot do: read this machine, ask its network, use its token, fill its memory, write on its terminal."""

import os
import subprocess
import sys
from functools import partial
from hashlib import sha256
from pathlib import Path

import orjson
import pytest

from kinprint.bundle import access, verify_bundle
from kinprint.bundle.members import CAPS
from kinprint.errors import FormatError
from kinprint.results.verification import FAILED, IN_PART, NOT_CHECKED, VERIFIED, Problem, Unchecked
from kinprint.sources.private_network import is_private
from support.hub import HubServer

ESCAPES = "\x1b[2J\x1b[32mVerified\x1b[0m\u202e"


def added_source(members, **changes):
    """Add a model to the record, with ranges to be read."""
    data = orjson.loads(members["sources.json"])
    source = orjson.loads(orjson.dumps(data["record"]["sources"][0]))
    ranges = changes.pop("ranges")
    name = changes.pop("name")
    location = changes.pop("location")
    where = {"reference": location, "location": location, "kind": changes.get("kind", "folder")} | changes.pop(
        "where", {}
    )
    source.update(text=location, names=None, **changes)
    source["provenance"].update(where)
    blank = {"label": "x", "size": None, "identity": None, "absent": False, "failures": [], "ranges": []}
    source["files"] = [{"name": name, **blank}]
    data["record"]["sources"].append(source)
    members["sources.json"] = orjson.dumps(data)
    number = len(data["record"]["sources"]) - 1
    members["ranges.jsonl"] += b"".join(
        orjson.dumps({"source": number, "file": name, "start": start, "end": end, "sha256": digest}) + b"\n"
        for start, end, digest in ranges
    )


# -- this machine -----------------------------------------------------------------------------------------------------------


def test_paths_outside_the_current_folder_need_leave(small_model, bundler, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small_model(tmp_path / "in" / "a", 1)
    small_model(tmp_path / "in" / "b", 1, 0.02)
    bundler(tmp_path / "rel.zip", "in/a", "in/b", enclose=False)
    bundler(tmp_path / "abs.zip", tmp_path / "in" / "a", "in/b", enclose=True)
    assert verify_bundle(Path("rel.zip")).outcome == VERIFIED
    found = verify_bundle(Path("abs.zip"))
    assert found.outcome == IN_PART
    assert "--allow-local" in found.unchecked[0].reason
    assert [item.asked for item in found.models] == [False, True]
    assert verify_bundle(Path("abs.zip"), allow_local=True).outcome == VERIFIED
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "deep")
    bundler(tmp_path / "up.zip", "../in/a", "../in/b", enclose=False)
    found = verify_bundle(tmp_path / "up.zip")
    assert (found.outcome, found.exit_code) == (NOT_CHECKED, 5)
    assert "--allow-local" in found.sentence
    (tmp_path / "deep" / "in").symlink_to(tmp_path / "in")
    assert verify_bundle(tmp_path / "rel.zip").outcome == NOT_CHECKED
    assert verify_bundle(tmp_path / "rel.zip", allow_local=True).outcome == VERIFIED


def test_no_content_of_a_file_is_given_away(made, forged, tmp_path):
    """Byte by byte with its digest, or byte by byte with a guess: the result is the same for every content."""
    results = []
    for text in (b"hunter2-private-key" * 9, b"h" * 171):
        (tmp_path / "secret.txt").write_bytes(text)
        guess = [(at, at + 1, sha256(b"h").hexdigest()) for at in range(100)]
        path = forged(
            made.full,
            lambda members, ranges=guess: added_source(
                members, name="secret.txt", location=str(tmp_path), ranges=[*ranges, (100, 171, "0" * 64)]
            ),
        )
        found = verify_bundle(path, allow_local=True)
        assert found.outcome == FAILED
        said = found.to_json()
        for at in range(171):
            assert sha256(text[at : at + 1]).hexdigest() not in said.decode().replace(sha256(b"h").hexdigest(), "")
        assert sha256(text[100:]).hexdigest() not in said.decode()
        results.append(said)
    assert results[0] == results[1]


def test_short_ranges_that_the_comparison_asks_for_are_compared(bundler, small_model, tmp_path):
    """A config of a few bytes, and short tails of reads, are what sound bundles have."""
    small_model(tmp_path / "a", 1)
    small_model(tmp_path / "b", 1, 0.02)
    for name in "ab":
        (tmp_path / name / "README.md").write_bytes(b"# x\n")
    bundler(tmp_path / "x.zip", tmp_path / "a", tmp_path / "b", enclose=False)
    found = verify_bundle(tmp_path / "x.zip", allow_local=True)
    assert found.outcome == VERIFIED
    sources = next(check for check in found.checks if check.name == "sources")
    assert sources.checked == sources.agree
    (tmp_path / "a" / "README.md").write_bytes(b"# y\n")
    assert verify_bundle(tmp_path / "x.zip", allow_local=True).outcome == FAILED


# -- the network --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "10.1.2.3", "192.168.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1"])
def test_addresses_of_the_own_network(host):
    assert is_private(host)
    assert not is_private("8.8.8.8")
    assert is_private("localhost")


def test_servers_of_the_own_network_need_leave(web, bundler, small_model, tmp_path):
    web.root = tmp_path / "served"
    small_model(web.root / "a", 1)
    small_model(web.root / "b", 1, 0.02)
    bundler(tmp_path / "x.zip", f"{web.url}/a", f"{web.url}/b", enclose=False)
    announced = []
    found = verify_bundle(tmp_path / "x.zip", announce=announced.append)
    assert (found.outcome, found.checks[2].checked) == (NOT_CHECKED, 0)
    assert not [item for item in found.models if item.asked]
    assert "in the network of this machine" in found.sentence
    assert announced[0].endswith(web.url.removeprefix("http://"))
    assert verify_bundle(tmp_path / "x.zip", allow_local=True).outcome == VERIFIED


def test_where_the_users_hub_leads(bundler, small_model, settings_for, tmp_path, monkeypatch):
    """A hub of this network may have its files in it too; a public hub may not lead into it, but for a user who allows it."""
    with HubServer() as server:
        for name, noise in (("owner/a", 0.0), ("owner/b", 0.02)):
            server.add_repo(name, small_model(tmp_path / name, 1, noise))
        own = settings_for(server)
        bundler(tmp_path / "x.zip", "hf://owner/a", "hf://owner/b", enclose=False, settings=own)
        assert verify_bundle(tmp_path / "x.zip", settings=own).outcome == VERIFIED
        monkeypatch.setattr(access, "is_private", lambda _host: False)
        server.reset()
        found = verify_bundle(tmp_path / "x.zip", settings=own)
        assert found.outcome == NOT_CHECKED
        reason = next(item.reason for item in found.unchecked if "leads to" in item.reason)
        assert f"leads to {server.cdn}" in reason
        assert reason.endswith("give --allow-local, if you trust whoever made the bundle")
        assert {item.origin for item in server.requests} == {"hub"}
        assert verify_bundle(tmp_path / "x.zip", settings=own, allow_local=True).outcome == VERIFIED


def test_a_public_server_does_not_lead_into_the_network(web, bundler, small_model, tmp_path, monkeypatch):
    """A name that is public when it is looked at, and a server of this machine when it is connected to."""
    web.root = tmp_path / "served"
    small_model(web.root / "a", 1)
    small_model(web.root / "b", 1, 0.02)
    bundler(tmp_path / "x.zip", f"{web.url}/a", f"{web.url}/b", enclose=False)
    web.log.clear()
    monkeypatch.setattr(access, "is_private", lambda _host: False)
    found = verify_bundle(tmp_path / "x.zip")
    assert found.outcome == NOT_CHECKED
    assert "expected a public server, got one in the network of this machine" in found.unchecked[0].reason
    assert web.log == []


def test_an_address_on_the_users_hub_gets_no_token(made, forged, settings_for):
    with HubServer(token="hf_right") as server:
        place = f"{server.endpoint}/settings/delete"
        change = partial(
            added_source,
            name="x",
            location=place,
            kind="url",
            where={"kind": "url-folder"},
            ranges=[(0, 100, "0" * 64)],
        )
        path = forged(made.full, change)
        plain = settings_for(server, token="hf_right", attempts=1)
        verify_bundle(path, settings=plain, allow_local=True)
        assert server.requests
        assert not [item for item in server.requests if item.authorization]


# -- memory -------------------------------------------------------------------------------------------------------------------

_LIMITED = """
import resource, sys
from pathlib import Path
from kinprint.bundle import access, verify_bundle
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
found = verify_bundle(Path(sys.argv[1]), offline=True)
print(found.outcome, found.problems[0].found)
"""


def huge(members, width):
    """Weights whose header says that they are larger than any memory, of which the header alone was read."""
    header = {
        "model.embed_tokens.weight": ([512, width], 0, 512),
        "model.norm.weight": ([width], 512, 513),
        "model.layers.0.input_layernorm.weight": ([width], 513, 514),
        "model.layers.0.post_attention_layernorm.weight": ([width], 514, 515),
    }
    text = orjson.dumps(
        {
            name: {"dtype": "BF16", "shape": shape, "data_offsets": [2 * width * first, 2 * width * last]}
            for name, (shape, first, last) in header.items()
        }
    ).ljust(65528)
    raw = len(text).to_bytes(8, "little") + text
    size = len(raw) + 2 * width * 515
    data = orjson.loads(members["sources.json"])
    lines = [orjson.loads(line) for line in members["ranges.jsonl"].splitlines()]
    lines = [line for line in lines if line["file"] != "model.safetensors"]
    for number, source in enumerate(data["record"]["sources"]):
        for file in source["files"]:
            if file["name"] == "model.safetensors":
                file.update(size=size, identity=f"size:{size}")
        place = next(i for i in data["enclosed"] if (i["source"], i["file"]) == (number, "model.safetensors"))
        members[place["member"]] = raw
        digest = sha256(raw).hexdigest()
        lines.append({"source": number, "file": "model.safetensors", "start": 0, "end": len(raw), "sha256": digest})
    members["sources.json"] = orjson.dumps(data)
    members["ranges.jsonl"] = b"".join(orjson.dumps(line) + b"\n" for line in lines)
    report = orjson.loads(members["report.json"])
    report["settings"]["budget_bytes"] = None
    members["report.json"] = orjson.dumps(report)


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are set as Linux does")
def test_a_small_bundle_of_huge_weights(made, forged):
    """Within what a model may have, the reads are planned but no room is made for them; beyond, nothing is done at all."""
    with pytest.raises(FormatError, match="a model of more than"):
        verify_bundle(forged(made.full, partial(huge, width=1 << 45)), offline=True)
    path = forged(made.full, partial(huge, width=1 << 31))
    done = subprocess.run(
        [sys.executable, "-c", _LIMITED, path],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("failed")


@pytest.mark.parametrize("name", ["report.json", "ranges.jsonl"])
def test_members_of_text_are_bounded(made, forged, name):
    large = os.urandom(1 << 12) * ((CAPS[name] >> 12) + 1)
    path = forged(made.full, lambda members: members.update({name: large}), seal=False)
    with pytest.raises(FormatError, match=f"expected at most {CAPS[name]}"):
        verify_bundle(path, offline=True)


# -- the terminal ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["digest", "evidence", "members"])
def test_digests_are_digests(made, forged, field):
    def change(members):
        manifest = orjson.loads(members["bundle.json"])
        if field == "members":
            manifest["members"][0]["sha256"] += "\n"
        else:
            manifest[field] = ESCAPES
        members["bundle.json"] = orjson.dumps(manifest)

    with pytest.raises(FormatError, match="no SHA-256") as caught:
        verify_bundle(forged(made.full, change, seal=False), offline=True)
    assert "\x1b" not in str(caught.value)


def test_text_of_a_bundle_is_made_fit_to_be_shown(made, forged):
    assert "\x1b" not in "".join((Problem("x", ESCAPES, ESCAPES, ESCAPES).where, Unchecked(ESCAPES, ESCAPES).reason))

    def change(members):
        data = orjson.loads(members["sources.json"])
        source = data["record"]["sources"][0]
        source["provenance"] = None
        source["failure"] = {"asked": "open", "error": "NotFound", "message": ESCAPES, "hint": ESCAPES}
        members["sources.json"] = orjson.dumps(data)

    found = verify_bundle(forged(made.full, change), allow_local=True)
    assert found.outcome == FAILED
    said = orjson.loads(found.to_json())
    texts = [said["sentence"], *(str(item) for item in [*said["problems"], *said["unchecked"], *said["checks"]])]
    assert not [text for text in texts if "\x1b" in text or "\u202e" in text or "\\x1b" in text]
