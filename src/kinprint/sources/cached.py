"""Read a remote file through the range cache."""

from typing import Any

from kinprint.errors import SourceChanged
from kinprint.refs import ByteRange
from kinprint.sources.cache import RangeCache, cache_key
from kinprint.sources.remote import RemoteFile


class CachedSource:
    """Serve ranges from disk where the cache holds them, and keep those that had to be fetched."""

    # With `pinned` facts (a commit) the key is known before any request, so a second run needs none. Without (a plain URL)
    # the server is asked first, and its entity tag becomes part of the key; no tag or a weak one, no caching.
    at_hand = False  # what the cache does not hold is waited for

    def __init__(self, inner: RemoteFile, cache: RangeCache, *, facts: dict[str, object], pinned: bool) -> None:
        self.label = inner.label
        self._inner, self._cache = inner, cache
        self._facts, self._pinned = facts, pinned
        self._key: str | None = cache_key(facts) if pinned else None
        self._about: dict[str, object] = (self._key and cache.about(self._key)) or {}

    @property
    def size(self) -> int:
        """Length in bytes: as noted when the first range was stored, else as the server says."""
        noted = self._about.get("size")
        return noted if isinstance(noted, int) else self._looked_up("size")

    @property
    def identity(self) -> str:
        """The content's tag: as noted, else as the server says."""
        noted = self._about.get("identity")
        return noted if isinstance(noted, str) else self._looked_up("identity")

    def prefetch(self) -> None:
        """Ask the server where the bytes are, unless the cache already knows the file."""
        if not self._about:
            self._inner.prefetch()
            self._note_look_up()

    def read_into(self, span: ByteRange, buffer: memoryview) -> None:
        """Fill `buffer` from the cache, else from the server and then into the cache."""
        key = self._find_key()
        if key is not None and self._cache.read_into(key, span, buffer):
            self._inner.client.traffic.add(cache_bytes=len(span))
            return
        self._inner.read_into(span, buffer)
        if key is None or not self._may_keep:
            return
        seen = self._seen()
        if self._about and self._about != seen:
            self._cache.forget(key)
            said = f"{self.label}: the server's copy is not the one whose ranges are in the cache"
            raise SourceChanged(said, hint="run it again: the old ranges have been dropped")
        self._note(key, seen)
        self._cache.write(key, span, buffer[: len(span)])

    def _find_key(self) -> str | None:
        if self._key is None:
            _ = self._inner.size  # asks the server
            if self._may_keep:
                self._key = cache_key(self._seen())
                self._about = self._cache.about(self._key) or {}
        return self._key

    @property
    def _may_keep(self) -> bool:
        # A commit pins every byte, whatever the tag; a URL is pinned by nothing but a strong tag.
        return self._inner.has_tag if self._pinned else self._inner.has_strong_identity

    def _seen(self) -> dict[str, object]:
        return {**self._facts, "size": self._inner.size, "identity": self._inner.identity}

    def _looked_up(self, what: str) -> Any:
        """Return what the server says, and keep it, so that the next run needs no look-up and can be offline."""
        found = getattr(self._inner, what)
        self._note_look_up()
        return found

    def _note_look_up(self) -> None:
        if self._pinned and self._key is not None and self._inner.is_known:
            self._note(self._key, self._seen())

    def _note(self, key: str, seen: dict[str, object]) -> None:
        if not self._about:
            self._cache.note(key, seen)
            self._about = seen
