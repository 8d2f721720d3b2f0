"""One server with the bundled models for all tests; without the extra, these tests are skipped."""

import signal

import pytest

from support.places import DEMO_MODELS

pytest.importorskip("fastapi", reason="the extra serve is not installed")
pytest.importorskip("multipart", reason="the extra serve is not installed")

from support.databases import database, postgres
from support.graphs import synthetic_graph
from support.serving import Server

__all__ = ["database", "postgres"]


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """A server that anyone may ask for comparisons of the bundled models, for all tests."""
    graph = tmp_path_factory.mktemp("graph") / "families.json"
    graph.write_bytes(synthetic_graph(300).to_json())
    how = ("--local", str(DEMO_MODELS), "--families", str(graph), "--rate", "100000", "--write-rate", "1000")
    made = Server(tmp_path_factory.mktemp("serve"), *how)
    yield made
    assert made.end() == -signal.SIGTERM, "".join(made.lines)


@pytest.fixture(scope="session")
def compared(server):
    """The id of a stored comparison of base and finetune."""
    id_ = server.start("base", "finetune")
    job = server.ended(id_)
    assert job["state"] == "done", job
    return id_
