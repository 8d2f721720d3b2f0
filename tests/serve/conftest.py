"""One server with the bundled models for all tests; without the extra, these tests are skipped."""

import signal

import pytest

from support.places import DEMO_MODELS

pytest.importorskip("fastapi", reason="the extra serve is not installed")
pytest.importorskip("multipart", reason="the extra serve is not installed")

from support.serving import Server


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """A server that anyone may ask for comparisons of the bundled models, for all tests."""
    made = Server(
        tmp_path_factory.mktemp("serve"), "--local", str(DEMO_MODELS), "--rate", "100000", "--write-rate", "1000"
    )
    yield made
    assert made.end() == -signal.SIGTERM, "".join(made.lines)


@pytest.fixture(scope="session")
def compared(server):
    """The id of a stored comparison of base and finetune."""
    id_ = server.start("base", "finetune")
    job = server.ended(id_)
    assert job["state"] == "done", job
    return id_
