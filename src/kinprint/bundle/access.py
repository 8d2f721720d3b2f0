"""Limit what a bundle can make this machine read: a stranger wrote the addresses and paths in it."""

from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from kinprint._util.plain import printable
from kinprint.bundle.references import LOCAL, endpoint_of
from kinprint.errors import SourceError
from kinprint.sources.http import origin_of
from kinprint.sources.ledger import ReadingRecord, SourceRecord
from kinprint.sources.private_network import ALLOW_LOCAL, is_private
from kinprint.sources.settings import Settings
from kinprint.text import Text, Value


@dataclass(frozen=True)
class Access:
    """What the user allows."""

    settings: Settings  # the user's own
    allow_local: bool = False  # read any path that the bundle names, and ask servers of this machine and its network
    use_cache: bool = False  # take ranges from the caches of this machine, where they hold them

    def settings_for(self, source: SourceRecord) -> Settings:
        """Return how to read a model: with the user's token from their hub only; SourceError if they do not allow to read it."""
        own = self.settings if self.use_cache else replace(self.settings, range_cache=None, hub_cache=None)
        if source.kind in LOCAL:
            self._check_path(source)
            return replace(own, token=None)
        if source.kind == "hub":
            endpoint = endpoint_of(source)
            if endpoint == own.endpoint:
                return replace(own, private_servers=self.private_servers_of_own_hub())
            own = replace(own, endpoint=endpoint)
        self._check_host(urlsplit(source.location).hostname or "")
        # No token: an address on the user's own hub that is no repository could be anything there. And a name that was looked up
        # now may stand for another server when it is connected to, or lead elsewhere.
        return replace(own, token=None, private_servers=None if self.allow_local else frozenset())

    def private_servers_of_own_hub(self) -> frozenset[str] | None:
        """Return the servers of this network that the user's hub may lead to: a hub in it may have its files there too."""
        own = origin_of(self.settings.endpoint)
        # offline, not even a name is looked up
        free = self.allow_local or self.settings.offline or is_private(own.host)
        return None if free else frozenset({own.server})

    def _check_path(self, source: SourceRecord) -> None:
        path = Path(source.location)
        if self.allow_local or (not path.is_absolute() and ".." not in path.parts and not _leads_outside(path)):
            return
        told: dict[str, Value] = {"path": printable(str(path)), "hint": ALLOW_LOCAL}
        raise SourceError(
            Text(
                "{path} is a path outside the current folder, which is not read because a bundle names it; {hint}",
                **told,
            )
        )

    def _check_host(self, host: str) -> None:
        if self.allow_local or not is_private(host):
            return
        told: dict[str, Value] = {"host": printable(host), "hint": ALLOW_LOCAL}
        raise SourceError(
            Text("{host} is in the network of this machine, and is not asked because a bundle names it; {hint}", **told)
        )


def hosts_of(record: ReadingRecord) -> tuple[str, ...]:
    """Return the servers that a record names."""
    remote = [source for source in record.sources if source.provenance is not None and source.kind not in LOCAL]
    found = {urlsplit(source.location).netloc for source in remote}
    return tuple(sorted(printable(host.rpartition("@")[2], 200) for host in found))


def _leads_outside(path: Path) -> bool:
    """Whether a link in a path leads elsewhere; the user made it, but not for a stranger."""
    try:
        return not path.resolve().is_relative_to(Path.cwd().resolve())
    except (OSError, RuntimeError, ValueError):
        return True
