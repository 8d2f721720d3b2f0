"""One contract for every kind of Source: whoever reads cannot tell where the bytes are."""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from kinprint.errors import SourceError
from kinprint.refs import ByteRange
from kinprint.sources.base import read_whole
from kinprint.sources.local import LocalFile
from kinprint.sources.remote import RemoteFile

WEIGHTS = "model-00001-of-00002.safetensors"


def read(source, start, end):
    buffer = bytearray(end - start)
    source.read_into(ByteRange(start, end), memoryview(buffer))
    return bytes(buffer)


class SourceContract:
    """Subclasses give a `source` fixture for the file WEIGHTS of `model_folder`."""

    @pytest.fixture
    def data(self, model_folder):
        return (model_folder / WEIGHTS).read_bytes()

    def test_size(self, source, data):
        assert source.size == len(data)

    def test_whole_file(self, source, data):
        assert read_whole(source) == data

    def test_many_ranges(self, source, data):
        rng = random.Random(4)
        for _ in range(60):
            start, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
            assert read(source, start, end) == data[start:end]

    def test_edges(self, source, data):
        last = len(data)
        for start, end in [(0, 1), (last - 1, last), (0, 8), (7, 8), (last - 100, last)]:
            assert read(source, start, end) == data[start:end]

    def test_empty_ranges(self, source, data):
        for at in (0, 17, len(data)):
            assert read(source, at, at) == b""

    def test_reads_only_its_part_of_a_larger_buffer(self, source, data):
        buffer = bytearray(b"." * 30)
        source.read_into(ByteRange(5, 15), memoryview(buffer)[10:20])
        assert bytes(buffer) == b"." * 10 + data[5:15] + b"." * 10

    def test_sixteen_threads(self, source, data):
        rng = random.Random(6)
        spans = [sorted(rng.randrange(len(data) + 1) for _ in range(2)) for _ in range(96)]
        with ThreadPoolExecutor(16) as pool:
            for (start, end), got in zip(spans, pool.map(lambda span: read(source, *span), spans), strict=True):
                assert got == data[start:end]

    def test_identity_is_stable(self, source):
        before = source.identity
        read(source, 0, 10)
        source.prefetch()
        read(source, 10, 30)
        assert source.identity == before
        assert before

    @pytest.mark.parametrize("beyond", [1, 10**6])
    def test_beyond_the_end(self, source, data, beyond):
        for start in (0, len(data) - 1, len(data), len(data) + 5):
            with pytest.raises(SourceError) as caught:
                read(source, start, len(data) + 5 + beyond)
            assert source.label in caught.value.message

    def test_label_names_the_file(self, source):
        assert WEIGHTS in source.label


class TestLocalFile(SourceContract):
    @pytest.fixture
    def source(self, model_folder, session_for):
        path = model_folder / WEIGHTS
        return LocalFile(path, str(path), session_for().traffic)


class TestHubFile(SourceContract):
    @pytest.fixture
    def source(self, hub, session_for):
        source = session_for(hub).open_folder("owner/Small-Model").open(WEIGHTS)
        assert isinstance(source, RemoteFile)
        return source


class TestPlainUrl(SourceContract):
    @pytest.fixture
    def source(self, web, session_for):
        return session_for().open_folder(web.url).open(WEIGHTS)


class TestPlainUrlWithoutTags(SourceContract):
    @pytest.fixture
    def source(self, web, session_for, tmp_path):
        web.tags = False  # nothing to pin by: must not be cached, must still read
        return session_for(range_cache=tmp_path / "ranges").open_folder(web.url).open(WEIGHTS)


class TestColdCache(SourceContract):
    @pytest.fixture
    def source(self, hub, session_for, tmp_path):
        return session_for(hub, range_cache=tmp_path / "ranges").open_folder("owner/Small-Model").open(WEIGHTS)


class TestWarmCache(SourceContract):
    @pytest.fixture
    def source(self, hub, session_for, tmp_path):
        for _ in range(2):
            session = session_for(hub, range_cache=tmp_path / "ranges")
            source = session.open_folder("owner/Small-Model").open(WEIGHTS)
            read_whole(source)
        return source


class TestWarmCacheOfAPlainUrl(SourceContract):
    @pytest.fixture
    def source(self, web, session_for, tmp_path):
        for _ in range(2):
            source = session_for(range_cache=tmp_path / "ranges").open_folder(web.url).open(WEIGHTS)
            read(source, 0, 1000)
        return source
