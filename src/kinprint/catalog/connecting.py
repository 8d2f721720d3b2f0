"""Connect to a database, and say why that failed without repeating an address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinprint.catalog.addresses import shown_address
from kinprint.errors import AccessDenied, KinprintError, NotFound, TransferError, imported

if TYPE_CHECKING:
    import psycopg

_CONNECT_S = 10
_REFUSED = ("authentication failed", "no password supplied", "role ")


def connected(address: str) -> psycopg.Connection[Any]:
    """Connect to a database, every statement by itself; a KinprintError that tells no more of the address than it may."""
    library: Any = imported("psycopg", "a catalog in PostgreSQL", extra="postgres")
    try:
        db: psycopg.Connection[Any] = library.connect(
            address, autocommit=True, connect_timeout=_CONNECT_S, application_name="kinprint"
        )
    except library.Error as error:
        # The library's own message may repeat any part of the address, so it is neither shown nor chained.
        failed = _refusal(str(error), shown_address(address))
    else:
        return db
    raise failed


def _refusal(said: str, place: str) -> KinprintError:
    """Tell apart why there is no connection: the library gives no code, and a server of another language says it otherwise."""
    if any(word in said for word in _REFUSED):
        return AccessDenied(f"{place} refused the user or password", hint="check the address, PGPASSWORD, ~/.pgpass")
    if "does not exist" in said and "database" in said:
        return NotFound(f"{place}: there is no such database", hint="make it first: createdb NAME")
    return TransferError(
        f"cannot connect to {place}", hint="check host, port, user and database, and that the server runs"
    )
