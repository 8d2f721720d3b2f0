"""One PostgreSQL server for all tests of a worker, and a database of its own for each."""

import itertools
import os
from collections.abc import Iterator

import pytest

from support.postgres import PostgresServer, lacking

_numbers = itertools.count()
_REQUIRED = os.environ.get("KINPRINT_REQUIRE_POSTGRES") == "1"  # now: no test sees the variable


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server, or a reason to skip."""
    if (why := lacking()) is not None:
        (pytest.fail if _REQUIRED else pytest.skip)(why)
    with PostgresServer() as server:
        yield server


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[str]:
    """An empty database, dropped at the end with whoever is connected."""
    name = f"test{next(_numbers)}"
    postgres.execute("postgres", f"CREATE DATABASE {name}")
    yield name
    postgres.execute("postgres", f"DROP DATABASE {name} WITH (FORCE)")
