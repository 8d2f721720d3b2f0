import pytest

REPO = "owner/Small-Model"
WEIGHTS = "model-00001-of-00002.safetensors"


@pytest.fixture
def ranges(tmp_path):
    return tmp_path / "ranges"


@pytest.fixture
def data(model_folder):
    return (model_folder / WEIGHTS).read_bytes()


@pytest.fixture
def session(hub, session_for):
    return session_for(hub)


@pytest.fixture
def source(session):
    return session.open_folder(REPO).open(WEIGHTS)
