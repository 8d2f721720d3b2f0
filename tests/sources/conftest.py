import pytest


@pytest.fixture
def ranges(tmp_path):
    return tmp_path / "ranges"
