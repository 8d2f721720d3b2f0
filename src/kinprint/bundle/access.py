"""What a bundle may make this machine read: a stranger wrote the addresses and the paths in it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from kinprint._util.plain import printable
from kinprint.bundle.references import LOCAL, endpoint_of
from kinprint.errors import SourceError
from kinprint.sources.http import origin_of
from kinprint.sources.http_connection import ServerAddress
from kinprint.sources.ledger import ReadingRecord, SourceRecord
from kinprint.sources.private_network import ALLOW_LOCAL, is_near
from kinprint.sources.settings import Settings
from kinprint.text import Text


@dataclass(frozen=True)
class Access:
    """What the user allows.

    Attributes
    ----------
    settings
        The user's own.
    allow_local
        Read any path that the bundle names, and ask servers of this machine and its network.
    use_cache
        Take ranges from the caches of this machine, where they are there.
    """

    settings: Settings
    allow_local: bool = False
    use_cache: bool = False

    def settings_for(self, source: SourceRecord) -> Settings:
        """Return how to read a model: with the user's token from the user's hub only, and from a cache only if allowed.

        Raises
        ------
        SourceError
            If the user does not allow it.
        """
        own = self.settings if self.use_cache else replace(self.settings, range_cache=None, hub_cache=None)
        if source.kind in LOCAL:
            self._check_path(source)
            return replace(own, token=None)
        if source.kind == "hub":
            endpoint = endpoint_of(source)
            if endpoint == own.endpoint:
                return replace(own, near=self._near_of_own_hub())
            own = replace(own, endpoint=endpoint)
        self._check_host(_location(source))
        # no token: an address on the user's own hub that is no repository could be any of its doors. And what was looked up now
        # may stand for something else when it is connected to, or lead elsewhere
        return replace(own, token=None, near=None if self.allow_local else frozenset())

    def _near_of_own_hub(self) -> frozenset[str] | None:
        """Return the servers of this network that the user's hub may lead to: if it is in it, it may have its files there too."""
        scheme, host, port = origin_of(self.settings.endpoint)
        free = self.allow_local or self.settings.offline or is_near(host)  # offline, not even a name is looked up
        return None if free else frozenset({ServerAddress(scheme, host, port).server})

    def _check_path(self, source: SourceRecord) -> None:
        path = Path(_location(source))
        if self.allow_local or (not path.is_absolute() and ".." not in path.parts and not _leads_outside(path)):
            return
        raise SourceError(
            Text(
                "{path} is a path outside the current folder, which is not read because a bundle names it; {hint}",
                path=printable(str(path)),
                hint=ALLOW_LOCAL,
            )
        )

    def _check_host(self, address: str) -> None:
        host = urlsplit(address).hostname or ""
        if self.allow_local or not is_near(host):
            return
        raise SourceError(
            Text(
                "{host} is in the network of this machine, and is not asked because a bundle names it; {hint}",
                host=printable(host),
                hint=ALLOW_LOCAL,
            )
        )


def hosts_of(record: ReadingRecord) -> tuple[str, ...]:
    """Return the servers that a record names."""
    found = {
        urlsplit(source.provenance.location).netloc
        for source in record.sources
        if source.provenance is not None and source.kind not in LOCAL
    }
    return tuple(sorted(printable(host.rpartition("@")[2], 200) for host in found))


def _leads_outside(path: Path) -> bool:
    """Whether a link in a path leads elsewhere; the user made it, but not for a stranger."""
    try:
        return not path.resolve().is_relative_to(Path.cwd().resolve())
    except (OSError, RuntimeError, ValueError):
        return True


def _location(source: SourceRecord) -> str:
    return source.provenance.location if source.provenance is not None else source.text
