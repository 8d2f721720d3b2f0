"""Addresses of catalogs in a database: told from names of files, and shown without what is secret."""

import re
from urllib.parse import parse_qsl, unquote, urlsplit

from kinprint._util.plain import printable
from kinprint.errors import BadReference

SCHEMES = ("postgresql://", "postgres://")
_MEANT = re.compile(r"\s*postgres(ql)?:|.*password\s*=", re.IGNORECASE | re.DOTALL)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]{0,40}", re.IGNORECASE)
_FORM = "postgresql://user@host:port/database"


def is_database(text: str) -> bool:
    """Whether a catalog's name is the address of a database; BadReference for what is neither that nor the name of a file.

    Such a text may hold a password, so no part of it is repeated.
    """
    if text.startswith(SCHEMES):
        return True
    if _MEANT.match(text):
        hint = "the address begins with postgresql:// in small letters; a password is best in ~/.pgpass"
        raise BadReference(f"cannot read the address of the catalog: expected a file, or {_FORM}", hint=hint)
    scheme, mark, _ = text.partition("://")
    if mark:
        shown = scheme if _SCHEME.fullmatch(scheme) else "…"
        raise BadReference(f"cannot open a catalog at {shown}://…: expected a file, or postgresql://host/database")
    return False


def shown_address(address: str) -> str:
    """Return host, port and database of an address, as they are used: never the user, the password or other options."""
    hint = "letters such as @ : / in a user, a password or an option are written %40 %3A %2F"
    refused = BadReference(f"cannot read the address of the catalog: expected {_FORM}", hint=hint)
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", str(parts.port or "")
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
    except ValueError:
        raise refused from None
    if address.count("@") > ("@" in parts.netloc):  # where a password ends cannot be told
        raise refused
    host, port = options.get("hostaddr") or options.get("host", host), options.get("port", port)
    name = unquote(parts.path) if "dbname" not in options else f"/{options['dbname']}"
    if "/" in unquote(host):  # a folder of sockets on this machine
        host = ""
    host = f"[{host}]" if ":" in host else host
    return f"postgresql://{printable(host, 100)}{port and f':{printable(port, 20)}'}{printable(name, 100)}"
