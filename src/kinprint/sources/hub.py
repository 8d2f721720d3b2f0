"""A repository on the hub: its revision pinned to a commit, its files resolved once, the official cache used first."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

import orjson

from kinprint._util.plain import printable
from kinprint.errors import BadReference, FileTooLarge, NotFound, OfflineError, TransferError
from kinprint.refs import ByteRange, check_member_name, is_weights, shown
from kinprint.sources.base import (
    DESCRIPTION_CAP,
    SMALL_FILE_CAP,
    Provenance,
    Source,
    Traffic,
    not_here,
    read_whole,
    too_large,
    too_many_brackets,
)
from kinprint.sources.cache import RangeCache, cache_key
from kinprint.sources.cached import CachedSource
from kinprint.sources.http import OFFLINE_HINT, HttpClient
from kinprint.sources.local import LocalFile
from kinprint.sources.remote import RemoteFile
from kinprint.text import Text

_SHA = re.compile(r"^[0-9a-f]{40}$")


class HubFolder:
    """One repository at one commit."""

    def __init__(
        self,
        reference: str,
        repo: str,
        revision: str | None,
        client: HttpClient,
        cache: RangeCache | None,
        traffic: Traffic,
    ) -> None:
        self._client = client
        self._cache = cache
        self._traffic = traffic
        self._repo = repo
        self._endpoint = client.settings.endpoint
        self._revision = check_member_name(revision or "main", where=f"the revision of {repo}")
        self._commit, names = self._pin()
        self._snapshot = self._official("snapshots", self._commit)
        on_disk = _files_below(self._snapshot) if self._snapshot else frozenset()
        self._names = names | on_disk
        self.provenance = Provenance(
            reference=reference,
            kind="hub",
            location=shown(f"{self._endpoint}/{repo}"),
            revision=self._revision,
            commit=self._commit,
        )

    @property
    def names(self) -> frozenset[str]:
        """All files of the repository at this commit (offline: those known here)."""
        return self._names

    def open(self, name: str) -> Source:
        """Return a file: from the official cache if it is there, else by range."""
        check_member_name(name, where=self._repo)
        local = self._snapshot / name if self._snapshot else None
        if local is not None and local.is_file():
            return LocalFile(local, str(local), self._traffic)
        label = f"{self._repo}@{self._commit[:8]}/{printable(name)}"
        if name not in self._names:
            raise self._missing(label)
        url = f"{self._endpoint}/{self._repo}/resolve/{self._commit}/{quote(name)}"
        remote = RemoteFile(self._client, url, label, commit=self._commit)
        if self._cache is None:
            return remote
        return CachedSource(remote, self._cache, self._traffic, facts=self._facts(path=name), pinned=True)

    def _missing(self, label: str) -> NotFound | OfflineError:
        if self._client.settings.offline and self._known_names(self._commit) is None:
            # Only what happens to be on this machine is known: the repository itself may well have the file.
            return OfflineError(not_here(label), hint=OFFLINE_HINT)
        weights = sorted(printable(name) for name in self._names if is_weights(name))
        more = f" and {len(weights) - 3} more" if len(weights) > 3 else ""
        hint = f"check the spelling; its files of weights are: {', '.join(weights[:3])}{more}"
        said = Text("{label}: the repository has no such file", label=label)
        return NotFound(said, hint=hint if weights else "it has no file of weights at all")

    def read_small(self, name: str, cap: int = SMALL_FILE_CAP) -> bytes | None:
        """Return a whole small file, from the cache if it was read before."""
        if name not in self._names:
            return None
        source = self.open(name)
        key = cache_key(self._facts(path=name))
        known = self._cache.about(key) if self._cache else None
        if isinstance(source, LocalFile) or known:
            if source.size > cap:
                raise FileTooLarge(too_large(source.label, source.size, cap))
            return read_whole(source)
        url = f"{self._endpoint}/{self._repo}/resolve/{self._commit}/{quote(name)}"
        body, tag = self._client.get_small(url, label=source.label, cap=cap)
        if self._cache is not None and body and tag:
            self._cache.note(key, {**self._facts(path=name), "size": len(body), "identity": f"etag:{tag}"})
            self._cache.write(key, ByteRange(0, len(body)), memoryview(body))
        return body

    # -- pinning ------------------------------------------------------------------------------------------------------

    def _pin(self) -> tuple[str, frozenset[str]]:
        """Return the commit the revision stands for, and the files there."""
        if _SHA.match(self._revision):
            listed = self._known_names(self._revision)
            if listed is not None:
                return self._revision, listed
        if self._client.settings.offline:
            return self._pin_offline()
        url = f"{self._endpoint}/api/models/{self._repo}/revision/{quote(self._revision, safe='')}"
        label = f"{self._repo}@{self._revision}"
        body, _ = self._client.get_small(url, label=label, cap=DESCRIPTION_CAP)
        dense = too_many_brackets(body)
        if dense:
            raise TransferError(f"{label}: {shown(url)} did not answer with a model's description: it {dense}")
        try:
            info = orjson.loads(body)
            commit = info["sha"]
            names = [entry["rfilename"] for entry in info["siblings"]]
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise TransferError(f"{label}: {shown(url)} did not answer with a model's description") from error
        if not isinstance(commit, str) or not _SHA.match(commit):
            raise TransferError(f"{label}: the server names the commit {str(commit)[:80]!r}; expected 40 hex digits")
        if _SHA.match(self._revision) and commit != self._revision:
            raise TransferError(f"{label}: the server answered for another commit, {commit}")
        safe = frozenset(name for name in names if isinstance(name, str) and _is_safe(name))
        if self._cache is not None:
            self._cache.note(
                cache_key(self._facts(listing=commit)), {**self._facts(listing=commit), "names": sorted(safe)}
            )
            self._cache.note(cache_key(self._ref_facts()), {**self._ref_facts(), "commit": commit})
        return commit, safe

    def _pin_offline(self) -> tuple[str, frozenset[str]]:
        commit = self._revision if _SHA.match(self._revision) else None
        if commit is None:
            ref = self._official("refs", self._revision, folder=False)
            if ref is not None:
                text = ref.read_text(encoding="ascii", errors="replace").strip()
                commit = text if _SHA.match(text) else None
        if commit is None and self._cache is not None:
            noted = (self._cache.about(cache_key(self._ref_facts())) or {}).get("commit")
            commit = noted if isinstance(noted, str) and _SHA.match(noted) else None
        if commit is None or (self._official("snapshots", commit) is None and self._known_names(commit) is None):
            said = Text("offline, and {name} is in no cache on this machine", name=f"{self._repo}@{self._revision}")
            raise OfflineError(said, hint=f"{OFFLINE_HINT}; once fetched, the model is here for offline use")
        return commit, self._known_names(commit) or frozenset()

    def _known_names(self, commit: str) -> frozenset[str] | None:
        facts = (self._cache.about(cache_key(self._facts(listing=commit))) if self._cache else None) or {}
        names = facts.get("names")
        if not isinstance(names, list):
            return None
        return frozenset(name for name in names if isinstance(name, str) and _is_safe(name))

    def _facts(self, *, path: str | None = None, listing: str | None = None) -> dict[str, object]:
        what: dict[str, object] = {"listing": True} if listing else {"path": path}
        return {"endpoint": self._endpoint, "repo": self._repo, "commit": listing or self._commit, **what}

    def _ref_facts(self) -> dict[str, object]:
        return {"endpoint": self._endpoint, "repo": self._repo, "revision": self._revision}

    def _official(self, *parts: str, folder: bool = True) -> Path | None:
        """Return a path inside the official client's cache of this repository, if it exists."""
        root = self._client.settings.hub_cache
        if root is None or not all(_is_safe(part) for part in parts):
            return None
        path = root.joinpath("models--" + self._repo.replace("/", "--"), *parts)
        return path if (path.is_dir() if folder else path.is_file()) else None


def _is_safe(name: str) -> bool:
    try:
        check_member_name(name, where="listing")
    except BadReference:
        return False
    return True


def _files_below(folder: Path) -> frozenset[str]:
    return frozenset(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
