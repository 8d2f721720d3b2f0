"""A ledger knows every byte that was delivered, and a session replayed from it answers alike."""

import hashlib
import tempfile
import threading

import pytest

from kinprint.errors import FileTooLarge, NotFound, NotRecorded, OfflineError, SourceChanged, StorageError
from kinprint.formats.checkpoint import open_checkpoint
from kinprint.formats.plan import whole
from kinprint.refs import ByteRange, join_runs
from kinprint.sources.ledger import CHUNK_BYTES, Failure, Ledger, digest_of
from kinprint.sources.replay import KeptBytes, ReplaySession, SharedFile
from kinprint.sources.session import PIECE_BYTES, Session
from kinprint.sources.settings import Settings
from support.layouts import write_checkpoint

REPO = "owner/Small-Model"


def read_all(reference, session):
    checkpoint = open_checkpoint(reference, session)
    return checkpoint.read([whole(tensor) for tensor in checkpoint.tensors.values()])


def kept_of(ledger):
    """What the ledger kept, as a replay reads it."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    shared, found, at = SharedFile(file), {}, 0
    for number, source in enumerate(ledger.record().sources):
        for item in source.files:
            if item.ranges:
                data = b"".join(ledger.contents(number, item.name))
                shared.write(at, memoryview(data))
                found[number, item.name] = KeptBytes(shared, at, item.spans)
                assert found[number, item.name].length == len(data)
                at += len(data)
    return file, found


def test_pieces_are_whole_chunks():
    assert PIECE_BYTES % CHUNK_BYTES == 0


def test_merged():
    assert join_runs([]) == []
    assert join_runs(sorted([(5, 7), (0, 2), (2, 3), (6, 9), (0, 1)])) == [(0, 3), (5, 9)]


def test_without_a_ledger_nothing_is_wrapped(model_folder, session_for):
    folder = session_for().open_folder(str(model_folder))
    assert type(folder).__name__ == "LocalFolder"


def test_every_range_with_its_digest(model_folder):
    ledger = Ledger()
    with Session(Settings(), ledger=ledger) as session:
        read_all(str(model_folder), session)
    (source,) = ledger.record().sources
    assert source.text == str(model_folder)
    assert source.names == tuple(sorted(path.name for path in model_folder.iterdir()))
    weights = [file for file in source.files if file.name.endswith(".safetensors")]
    assert len(weights) == 2
    for file in source.files:
        raw = (model_folder / file.name).read_bytes() if not file.absent else b""
        for item in file.ranges:
            assert hashlib.sha256(raw[item.start : item.end]).hexdigest() == item.sha256
    for line in ledger.summary():
        file = next(file for file in source.files if file.name == line.file)
        assert line.sha256 == digest_of(file.ranges)
        assert line.bytes_read == sum(end - start for start, end in line.spans)
        assert line.size == (model_folder / line.file).stat().st_size
    assert [line.file for line in ledger.summary()] == sorted(line.file for line in ledger.summary())


def test_local_and_remote_give_the_same_ranges(tmp_path, hub, settings_for):
    """Ranges of several chunks: read in pieces from a disk, whole from a server."""
    import numpy as np

    values = np.random.default_rng(3).standard_normal((500, 1000)).astype(np.float32)
    write_checkpoint(tmp_path / "large", {"model.layers.0.w": values}, {"model_type": "llama"})
    hub.add_repo("owner/large", tmp_path / "large")
    found = []
    for reference, settings in (
        (str(tmp_path / "large"), Settings()),
        ("owner/large", settings_for(hub)),
        ("owner/large", settings_for(hub, range_cache=tmp_path / "ranges")),
        ("owner/large", settings_for(hub, range_cache=tmp_path / "ranges")),
    ):
        ledger = Ledger()
        with Session(settings, ledger=ledger) as session:
            read_all(reference, session)
        found.append(ledger)
    lists = [[(file.name, file.ranges) for file in ledger.record().sources[0].files if file.ranges] for ledger in found]
    assert lists[0] == lists[1] == lists[2] == lists[3]
    assert max(len(ranges) for _, ranges in lists[0]) >= 5
    assert found[1].summary() == found[2].summary() == found[3].summary()


def test_other_bytes_the_second_time(model_folder):
    ledger = Ledger()
    with Session(Settings(), ledger=ledger) as session:
        session.open_folder(str(model_folder)).read_small("config.json")
        config = model_folder / "config.json"
        config.write_bytes(config.read_bytes().replace(b"llama", b"lama2"))
        with pytest.raises(SourceChanged, match=r"config\.json: bytes 0 to \d+ were read twice and differ"):
            session.open_folder(str(model_folder)).read_small("config.json")


def test_from_many_threads(model_folder):
    with Ledger(keep=True) as ledger:
        with Session(Settings(), ledger=ledger) as session:
            source = session.open_folder(str(model_folder)).open("model-00001-of-00002.safetensors")

            def read(first):
                for start in range(first, 20_000, 37):
                    source.read_into(ByteRange(start, start + 5000), memoryview(bytearray(5000)))

            threads = [threading.Thread(target=read, args=(first,)) for first in (0, 0, 5, 11)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        raw = (model_folder / "model-00001-of-00002.safetensors").read_bytes()
        (file,) = ledger.record().sources[0].files
        ((start, end),) = file.spans
        assert b"".join(ledger.contents(0, file.name)) == raw[start:end]
        assert all(hashlib.sha256(raw[item.start : item.end]).hexdigest() == item.sha256 for item in file.ranges)


def test_a_full_disk(model_folder, monkeypatch):
    with Ledger(keep=True) as ledger, Session(Settings(), ledger=ledger) as session:

        class Full:
            def seek(self, at):
                raise OSError(28, "No space left on device")

            def close(self):
                pass

        ledger._spool.close()
        monkeypatch.setattr(ledger, "_spool", Full())
        with pytest.raises(StorageError, match="No space left"):
            session.open_folder(str(model_folder)).read_small("config.json")


# -- replaying ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def replayed(model_folder):
    """A recorded session with a few questions, and the session that answers from it."""
    with Ledger(keep=True) as ledger:
        with Session(Settings(offline=True), ledger=ledger) as session:
            arrays = read_all(str(model_folder), session)
            folder = session.open_folder(str(model_folder))
            assert folder.read_small("README.md") is None
            with pytest.raises(FileTooLarge):
                folder.read_small("tokenizer.json", 3)
            with pytest.raises(NotFound):
                folder.open("nothing.bin")
            with pytest.raises(OfflineError):
                session.open_folder("nobody/nothing")
            with pytest.raises(NotFound):
                session.open_folder("./no/such/place")
        file, kept = kept_of(ledger)
        with file, ReplaySession(ledger.record(), kept) as again:
            yield model_folder, arrays, ledger, again


def test_a_replay_answers_alike(replayed):
    model_folder, arrays, ledger, again = replayed
    reference = str(model_folder)
    for path in list(model_folder.iterdir()):
        path.unlink()
    model_folder.rmdir()
    found = read_all(reference, again)
    assert [a.tobytes() for a in found] == [a.tobytes() for a in arrays]
    folder = again.open_folder(reference)
    assert folder.read_small("README.md") is None
    with pytest.raises(FileTooLarge, match="more than the 3 allowed here"):
        folder.read_small("tokenizer.json", 3)
    with pytest.raises(NotFound, match=r"nothing\.bin: no such file"):
        folder.open("nothing.bin")
    with pytest.raises(OfflineError, match="is in no cache on this machine"):
        again.open_folder("nobody/nothing")
    with pytest.raises(NotFound, match="no such file or folder"):
        again.open_folder("./no/such/place")
    assert again.missing == []
    assert {line.file: line.sha256 for line in again.ledger.summary()} == {
        line.file: line.sha256 for line in ledger.summary()
    }


def test_what_was_not_asked_for_is_not_there(replayed):
    model_folder, _, _, again = replayed
    folder = again.open_folder(str(model_folder))
    for question in (
        lambda: folder.open("vocab.txt"),
        lambda: folder.read_small("vocab.txt"),
        lambda: folder.open("model-00001-of-00002.safetensors").read_into(
            ByteRange(10**6, 10**6 + 5), memoryview(bytearray(5))
        ),
        lambda: again.open_folder("owner/other"),
        lambda: again.open_folder(str(model_folder.parent)),
    ):
        before = len(again.missing)
        with pytest.raises(NotRecorded):
            question()
        assert len(again.missing) == before + 1


def test_a_failure_of_an_unknown_name_is_still_an_error():
    for name in ("os", "KinprintError", "NeedsExtra", "__name__"):
        error = Failure("open", name, "what happened", "what next").again()
        assert (error.message, error.hint) == ("what happened", "what next")
