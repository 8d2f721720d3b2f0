"""Files and folders on this machine."""

import os

import pytest

from kinprint.errors import FileTooLarge, FormatError, NotFound, SourceChanged, SourceError
from kinprint.formats.checkpoint import open_checkpoint
from kinprint.refs import ByteRange
from kinprint.sources.base import Traffic
from kinprint.sources.local import LocalFile, LocalFolder


def local(path):
    return LocalFile(path, "label", Traffic())


def test_missing(tmp_path):
    with pytest.raises(NotFound, match=r"label: no such file"):
        local(tmp_path / "x")


def test_a_folder_is_not_a_file(tmp_path):
    with pytest.raises(SourceError, match=r"label: is not a regular file"):
        local(tmp_path)


def test_below_a_file(tmp_path):
    (tmp_path / "f").write_bytes(b"")
    with pytest.raises(SourceError, match=r"label: cannot be opened: Not a directory"):
        local(tmp_path / "f" / "x")


def test_links_that_lead_out_of_the_folder(tmp_path):
    model, secret = tmp_path / "model", tmp_path / "secret"
    model.mkdir()
    secret.write_bytes(b"of this machine")
    (model / "config.json").symlink_to("../secret")
    (model / "inner.json").symlink_to("real.json")
    (model / "real.json").write_bytes(b"{}")
    (model / "loop.json").symlink_to("loop.json")
    folder = LocalFolder("m", model, Traffic())
    with pytest.raises(SourceError, match=r"config.json: is a link that leads outside the model's folder"):
        folder.read_small("config.json")
    assert folder.read_small("inner.json") == b"{}"
    assert folder.names == {"config.json", "inner.json", "real.json"}  # a link to itself is no file
    (tmp_path / "named").symlink_to("model")
    assert LocalFolder("m", tmp_path / "named", Traffic()).read_small("real.json") == b"{}"


def test_a_file_that_the_user_names_may_be_a_link(tmp_path):
    (tmp_path / "weights").write_bytes(b"12345678")
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "model.gguf").symlink_to("../weights")
    assert LocalFolder("m", tmp_path / "m", Traffic(), only="model.gguf").open("model.gguf").size == 8
    with pytest.raises(SourceError, match="leads outside"):
        LocalFolder("m", tmp_path / "m", Traffic()).open("model.gguf")


def test_links_of_the_hubs_own_cache(tmp_path):
    blobs, snapshot = tmp_path / "models--a--b" / "blobs", tmp_path / "models--a--b" / "snapshots" / "1"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    (blobs / "5f").write_bytes(b"{}")
    (snapshot / "config.json").symlink_to("../../blobs/5f")
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "config.json").symlink_to(blobs / "5f")  # a folder that the client filled
    for folder in (snapshot, tmp_path / "local"):
        assert LocalFolder("m", folder, Traffic()).read_small("config.json") == b"{}"


def test_a_pipe_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SourceError, match=r"is not a regular file"):
        local(tmp_path / "pipe")


def test_read_error_is_ours(tmp_path, monkeypatch):
    (tmp_path / "f").write_bytes(b"12345678")
    source = local(tmp_path / "f")

    def broken(*_args):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "preadv", broken)
    with pytest.raises(SourceError, match=r"label: cannot be read: Input/output error"):
        source.read_into(ByteRange(0, 4), memoryview(bytearray(4)))


def test_a_folder_that_may_not_be_read_is_told(tmp_path, monkeypatch):
    def refused(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(SourceError, match="cannot be read: Permission denied"):
        _ = LocalFolder("x", tmp_path, Traffic()).names


def test_without_positional_reads(tmp_path, monkeypatch):
    (tmp_path / "f").write_bytes(b"12345678")
    monkeypatch.delattr(os, "preadv")
    buffer = bytearray(3)
    local(tmp_path / "f").read_into(ByteRange(2, 5), memoryview(buffer))
    assert buffer == b"345"


@pytest.mark.parametrize("after", [b"1234567", b"123456789", b"abcdefgh"])
def test_a_file_that_changes_under_us(tmp_path, after):
    path = tmp_path / "f"
    path.write_bytes(b"12345678")
    os.utime(path, ns=(1, 1))
    source = local(path)
    path.write_bytes(after)
    with pytest.raises(SourceChanged, match=r"changed while it was read") as caught:
        source.read_into(ByteRange(0, 4), memoryview(bytearray(4)))
    assert "run it again" in caught.value.hint


def test_a_replaced_file_stays_the_one_that_was_opened(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"12345678")
    source = local(path)
    (tmp_path / "new").write_bytes(b"abcdefgh")
    (tmp_path / "new").replace(path)
    buffer = bytearray(4)
    source.read_into(ByteRange(0, 4), memoryview(buffer))
    assert buffer == b"1234"


def test_folder(model_folder):
    traffic = Traffic()
    folder = LocalFolder("ref", model_folder, traffic)
    assert "config.json" in folder.names
    assert folder.read_small("absent.json") is None
    assert folder.read_small("config.json") == (model_folder / "config.json").read_bytes()
    assert traffic.local_bytes == traffic.bytes_read > 0
    with pytest.raises(FileTooLarge, match=r"more than the 5 allowed"):
        folder.read_small("config.json", 5)


def test_one_file_sees_only_its_companions(model_folder):
    (model_folder / "other.safetensors").write_bytes(b"")
    name = "model-00001-of-00002.safetensors"
    folder = LocalFolder("ref", model_folder, Traffic(), only=name)
    assert folder.names == {name, "config.json", "tokenizer.json"}


def test_a_file_of_another_format(tmp_path, session_for):
    (tmp_path / "weights.h5").write_bytes(b"\x89HDF\r\n" + bytes(100))
    with pytest.raises(FormatError, match=r"weights\.h5: no known format of weights \(known: \.safetensors"):
        open_checkpoint(str(tmp_path / "weights.h5"), session_for())
