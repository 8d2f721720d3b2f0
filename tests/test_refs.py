"""What may name a model, and what may not."""

import pytest

from kinprint.errors import BadReference, NotFound
from kinprint.refs import ByteRange, check_member_name, parse_ref, shown

HUB = "https://hub.test"
SHA = "0123456789abcdef0123456789abcdef01234567"


def parse(text, endpoint=HUB):
    return parse_ref(text, endpoint=endpoint)


@pytest.mark.parametrize(
    ("text", "repo", "revision", "file"),
    [
        ("owner/name", "owner/name", None, None),
        ("  owner/name ", "owner/name", None, None),
        ("owner/name@v1.0", "owner/name", "v1.0", None),
        (f"owner/name@{SHA}", "owner/name", SHA, None),
        ("owner/name@refs/pr/3", "owner/name", "refs/pr/3", None),
        ("Owner-1/Na.me_2", "Owner-1/Na.me_2", None, None),
        ("hf://owner/name", "owner/name", None, None),
        ("hf://models/owner/name", "owner/name", None, None),
        ("hf://gpt2", "gpt2", None, None),
        ("hf://owner/name@dev", "owner/name", "dev", None),
        ("hf://owner/name@dev/sub/x.safetensors", "owner/name", "dev", "sub/x.safetensors"),
        (f"{HUB}/owner/name", "owner/name", None, None),
        (f"{HUB}/owner/name/", "owner/name", None, None),
        (f"{HUB}/owner/name/tree/dev", "owner/name", "dev", None),
        (f"{HUB}/owner/name/blob/main/x.safetensors", "owner/name", "main", "x.safetensors"),
        (f"{HUB}/owner/name/resolve/{SHA}/a/b.safetensors?download=true", "owner/name", SHA, "a/b.safetensors"),
        (f"{HUB}/owner/name/tree/refs%2Fpr%2F1", "owner/name", "refs/pr/1", None),
    ],
)
def test_repositories(text, repo, revision, file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ref = parse(text)
    assert (ref.kind, ref.repo, ref.revision, ref.file) == ("hub", repo, revision, file)


@pytest.mark.parametrize(
    "url",
    [
        "https://elsewhere.test/owner/name",
        "http://hub.test/owner/name",
        "https://hub.test:8443/owner/name",
        f"{HUB}/owner",
        f"{HUB}/owner/name/discussions/4",
        "https://elsewhere.test/folder/model.safetensors?sig=1",
    ],
)
def test_other_addresses_stay_addresses(url):
    ref = parse(url)
    assert (ref.kind, ref.url) == ("url", url)


def test_no_secret_of_an_address_is_kept_in_its_text():
    page = parse(f"{HUB}/owner/name/resolve/main/model.safetensors?token=SECRET#x")
    assert (page.kind, page.text) == ("hub", f"{HUB}/owner/name/resolve/main/model.safetensors")
    assert "SECRET" not in repr(page)
    other = parse("https://user:SECRET@elsewhere.test:81/m.safetensors?sig=SECRET")
    assert other.text == "https://elsewhere.test:81/m.safetensors"
    assert parse("http://[::1]:8/m").text == "http://[::1]:8/m"


@pytest.mark.parametrize(
    "text",
    [
        "http://user:SECRET@host:abc/x",
        "http://user:SEC/SECRET@host/x",
        "http://user:SEC?SECRET@host:abc/x",
        "http://host:abc/x?token=SECRET",
        "http://host:abc/x#SECRET",
        "http://host:abc/?mail=a@SECRET",
        "hf://owner/na me?token=SECRET",
        "ftp://user:SECRET@host/x",
        "ftp://user:SECRET@host/x.safetensors",
        "HTTP://host/x.safetensors?SECRET",
    ],
)
def test_no_secret_of_a_bad_address_is_quoted(text):
    with pytest.raises((BadReference, NotFound)) as caught:
        parse(text)
    assert "SECRET" not in str(caught.value)
    assert text.partition("://")[0] in caught.value.message


def test_a_mirror_below_a_path():
    assert parse("https://mirror.test/hf/owner/name", "https://mirror.test/hf").repo == "owner/name"
    assert parse("https://mirror.test/owner/name", "https://mirror.test/hf").kind == "url"


def test_a_local_path_wins(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert parse("owner/name").kind == "hub"
    (tmp_path / "owner" / "name").mkdir(parents=True)
    assert parse("owner/name").kind == "folder"
    assert parse("hf://owner/name").kind == "hub"
    (tmp_path / "w.safetensors").write_bytes(b"")
    ref = parse("w.safetensors")
    assert (ref.kind, ref.path.name) == ("file", "w.safetensors")


def test_home_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "m").mkdir()
    assert parse("~/m").path == tmp_path / "m"


@pytest.mark.parametrize(
    "text",
    ["./missing", "../missing/x", "/missing/x", "~/missing-model", "a.safetensors", "dir\\model", "a/b/c", "models/"],
)
def test_a_missing_path_is_not_taken_for_a_repository(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotFound, match="no such file or folder") as caught:
        parse(text)
    assert "owner/name" in caught.value.hint
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    "text",
    ["", "   ", "owner/na me", "owner/name@", "owner/name@a@b", "-x/y", "ftp://x/y", "owner/" + "n" * 97],
)
def test_not_a_model(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadReference, match="expected owner/name"):
        parse(text)


def test_a_bare_name_gets_a_hint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadReference) as caught:
        parse("gpt2")
    assert "hf://gpt2" in caught.value.hint


@pytest.mark.parametrize("text", ["hf://", "hf:///x", "hf://a b", "hf://owner/name@"])
def test_bad_hf_uri(text):
    with pytest.raises(BadReference, match="expected hf://owner/name"):
        parse(text)


@pytest.mark.parametrize(
    "text", ["http://", "https:///path", "http://[::1", "http://host:99999/x", "http://host:0/x", "http://host:abc/"]
)
def test_bad_address(text):
    with pytest.raises(BadReference, match=r"expected http\(s\)://host"):
        parse(text)


@pytest.mark.parametrize("name", ["a", "sub/a.safetensors", "…ü.json", "a..b", "..a"])
def test_member_names_that_are_fine(name):
    assert check_member_name(name, where="x") == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/etc/passwd",
        "../x",
        "a/../b",
        "a\\..\\b",
        "\\x",
        "C:\\x",
        "C:x",
        "a//b",
        "a/",
        "./a",
        "a/.",
        "x\0y",
        "\\\\host\\share",
        "..",
        ".",
    ],
)
def test_member_names_that_lead_outside(name):
    with pytest.raises(BadReference, match=r"the index names the file .* leads outside the model's folder"):
        check_member_name(name, where="the index")


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (4, 3)])
def test_not_a_byte_range(start, end):
    with pytest.raises(ValueError, match="not a byte range"):
        ByteRange(start, end)


def test_byte_range():
    assert len(ByteRange(3, 3)) == 0


@pytest.mark.parametrize("address", ["http://3fff::1/", "http://host:port/x", "http://[::1/x"])
def test_what_is_no_address_can_still_be_named(address):
    assert shown(address).startswith("http://")
    assert "secret" not in shown(address.replace("//", "//me:secret@"))


def test_a_name_longer_than_any_files_is_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadReference, match="as a model: expected"):
        parse("a" * 300)
    with pytest.raises(BadReference):
        parse("owner/" + "a" * 300)
    for path in ("./" + "a" * 300, "a" * 300 + ".safetensors", "~nobody-of-this-name/model"):
        with pytest.raises(NotFound, match="no such file or folder"):
            parse(path)
