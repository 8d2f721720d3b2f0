"""Read the files of a plain web folder, which nothing lists: the usual names are asked for."""

import hashlib
from urllib.parse import quote, urlsplit, urlunsplit

from kinprint.errors import AccessDenied, NotFound
from kinprint.refs import check_member_name, is_weights, needed_with, shown
from kinprint.sources.base import COMPANIONS, SMALL_FILE_CAP, Provenance, Source, read_whole
from kinprint.sources.cache import RangeCache
from kinprint.sources.cached import CachedSource
from kinprint.sources.http import HttpClient
from kinprint.sources.remote import RemoteFile


class WebFolder:
    """A URL of a folder in the hub's layout, or of one weight file with its companions beside it."""

    def __init__(self, reference: str, url: str, client: HttpClient, cache: RangeCache | None) -> None:
        self._client, self._cache = client, cache
        parts = urlsplit(url)
        self._only: str | None = None
        self._only_url = url
        if is_weights(parts.path):
            self._only = parts.path.rsplit("/", 1)[-1]
            parts = parts._replace(path=parts.path.rsplit("/", 1)[0])
        self._signed = bool(parts.query)  # a signed link opens one file, so its neighbours are not asked for
        self._base = urlunsplit(parts._replace(query="", fragment="")).rstrip("/")
        kind = "url-file" if self._only else "url-folder"
        self.provenance = Provenance(reference=shown(reference), kind=kind, location=shown(url))

    @property
    def names(self) -> frozenset[str] | None:
        """The single file, or None: nothing lists a web folder."""
        if self._only is None:
            return None
        return frozenset({*([self._only] if self._signed else needed_with(self._only)), *COMPANIONS})

    def open(self, name: str) -> Source:
        """Return a file by range; whether it exists shows at the first read."""
        check_member_name(name, where=shown(self._base))
        url = self._only_url if name == self._only else f"{self._base}/{quote(name)}"
        remote = RemoteFile(self._client, url, shown(url))
        if self._cache is None:
            return remote
        # One path may stand for many files told apart by the query, which may be secret: it enters as a digest.
        digest = hashlib.sha256(url.encode("utf-8", "surrogatepass")).hexdigest()
        return CachedSource(remote, self._cache, facts={"url": shown(url), "url_sha256": digest}, pinned=False)

    def read_small(self, name: str, cap: int = SMALL_FILE_CAP) -> bytes | None:
        """Return a whole small file, or None if the server has none; by range, so that the cache serves it next time."""
        if self._only and self._signed:
            return None
        source = self.open(name)
        try:
            _ = source.size
        except (NotFound, AccessDenied):  # a bucket that may not be listed answers 403 for what it does not have
            return None
        return read_whole(source, cap)
