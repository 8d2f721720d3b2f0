"""Read a repository on the hub: pin the revision to a commit, and use the cache of the official client first."""

import re
import threading
from pathlib import Path
from urllib.parse import quote

from kinprint._util.files import is_file, is_folder, remember_read
from kinprint._util.plain import printable
from kinprint._util.strange_json import parse_json
from kinprint.errors import NotFound, OfflineError, TransferError
from kinprint.refs import ByteRange, check_member_name, is_weights, leads_outside, shown
from kinprint.sources.base import SMALL_FILE_CAP, Provenance, Source, not_here, read_whole
from kinprint.sources.cache import RangeCache, cache_key
from kinprint.sources.cached import CachedSource
from kinprint.sources.http import OFFLINE_HINT, HttpClient
from kinprint.sources.local import LocalFile
from kinprint.sources.remote import RemoteFile
from kinprint.text import Text

_DESCRIPTION_CAP = 8 << 20  # of a repository, with the names of all its files
_SHA = re.compile(r"^[0-9a-f]{40}$")


class HubFolder:
    """One repository at one commit."""

    def __init__(
        self, reference: str, repo: str, revision: str | None, client: HttpClient, cache: RangeCache | None
    ) -> None:
        self._client, self._cache = client, cache
        self._repo, self._endpoint = repo, client.settings.endpoint
        self._revision = check_member_name(revision or "main", where=f"the revision of {repo}")
        self._weights = 0  # files of weights that were opened, and not found on this machine
        self._led = threading.Lock()  # taken once the first of them is looked up, and kept
        self._commit, names = self._pin()
        self._snapshot = self._official("snapshots", self._commit)
        kept = [path for path in self._snapshot.rglob("*") if path.is_file()] if self._snapshot else []
        # all files at this commit; offline, those known on this machine
        self.names = names.union(path.relative_to(self._snapshot or "").as_posix() for path in kept)
        location = shown(f"{self._endpoint}/{repo}")
        self.provenance = Provenance(reference, "hub", location, self._revision, self._commit)

    def open(self, name: str) -> Source:
        """Return a file: from the official cache if it is there, else by range."""
        check_member_name(name, where=self._repo)
        local = self._snapshot / name if self._snapshot else None
        if local is not None and is_file(local):
            remember_read(local)
            return LocalFile(local, str(local), self._client.traffic)
        label = f"{self._repo}@{self._commit[:8]}/{printable(name)}"
        if name not in self.names:
            raise self._missing(label)
        self._weights += is_weights(name)
        remote = RemoteFile(self._client, self._url(name), label, commit=self._commit, on_target=self._follow)
        if self._cache is None:
            return remote
        return CachedSource(remote, self._cache, facts=self._file_facts(name), pinned=True)

    def _follow(self, url: str, target: str) -> None:
        """Open connections to where the first file of several leads: the others, still being looked up, mostly lie there too."""
        if self._weights > 1 and self._led.acquire(blocking=False):
            self._client.reach(target, self._weights, begun_at=url)

    def _url(self, name: str) -> str:
        return f"{self._endpoint}/{self._repo}/resolve/{self._commit}/{quote(name)}"

    def _missing(self, label: str) -> NotFound | OfflineError:
        if self._client.settings.offline and self._known_names(self._commit) is None:
            # Only what happens to be on this machine is known: the repository itself may well have the file.
            return OfflineError(not_here(label), hint=OFFLINE_HINT)
        weights = sorted(printable(name) for name in self.names if is_weights(name))
        more = f" and {len(weights) - 3} more" if len(weights) > 3 else ""
        hint = f"check the spelling; its files of weights are: {', '.join(weights[:3])}{more}"
        said = Text("{label}: the repository has no such file", label=label)
        return NotFound(said, hint=hint if weights else "it has no file of weights at all")

    def read_small(self, name: str, cap: int = SMALL_FILE_CAP) -> bytes | None:
        """Return a whole small file, from the cache if it was read before."""
        if name not in self.names:
            return None
        source, facts = self.open(name), self._file_facts(name)
        if isinstance(source, LocalFile) or self._noted(facts):
            return read_whole(source, cap)
        body, tag = self._client.get_small(self._url(name), label=source.label, cap=cap)
        if self._cache is not None and body and tag:
            self._note(facts, size=len(body), identity=f"etag:{tag}")
            self._cache.write(cache_key(facts), ByteRange(0, len(body)), memoryview(body))
        return body

    def _pin(self) -> tuple[str, frozenset[str]]:
        if _SHA.match(self._revision):
            listed = self._known_names(self._revision)
            if listed is not None:
                return self._revision, listed
        if self._client.settings.offline:
            return self._pin_offline()
        url = f"{self._endpoint}/api/models/{self._repo}/revision/{quote(self._revision, safe='')}"
        label = f"{self._repo}@{self._revision}"
        self._client.reach(url, 1, begun_at=url)  # what the description leads to takes at least two connections
        body, _ = self._client.get_small(url, label=label, cap=_DESCRIPTION_CAP)
        try:
            info = parse_json(body)
            commit = info["sha"]
            names = [entry["rfilename"] for entry in info["siblings"]]
        except (ValueError, KeyError, TypeError) as error:
            why = f": {error}" if isinstance(error, ValueError) else ""
            raise TransferError(f"{label}: {shown(url)} did not answer with a model's description{why}") from error
        if not isinstance(commit, str) or not _SHA.match(commit):
            raise TransferError(f"{label}: the server names the commit {str(commit)[:80]!r}; expected 40 hex digits")
        if _SHA.match(self._revision) and commit != self._revision:
            raise TransferError(f"{label}: the server answered for another commit, {commit}")
        safe = _safe_names(names)
        self._note(self._facts(commit=commit, listing=True), names=sorted(safe))
        self._note(self._facts(revision=self._revision), commit=commit)
        return commit, safe

    def _pin_offline(self) -> tuple[str, frozenset[str]]:
        ref = self._official("refs", self._revision, folder=False)
        kept = ref.read_text(encoding="ascii", errors="replace").strip() if ref else None
        told = (self._revision, kept, self._noted(self._facts(revision=self._revision)).get("commit"))
        commit = next((text for text in told if isinstance(text, str) and _SHA.match(text)), None)
        if commit is None or (self._official("snapshots", commit) is None and self._known_names(commit) is None):
            said = Text("offline, and {name} is in no cache on this machine", name=f"{self._repo}@{self._revision}")
            raise OfflineError(said, hint=f"{OFFLINE_HINT}; once fetched, the model is here for offline use")
        return commit, self._known_names(commit) or frozenset()

    def _known_names(self, commit: str) -> frozenset[str] | None:
        names = self._noted(self._facts(commit=commit, listing=True)).get("names")
        return _safe_names(names) if isinstance(names, list) else None

    def _facts(self, **what: object) -> dict[str, object]:
        return {"endpoint": self._endpoint, "repo": self._repo, **what}

    def _file_facts(self, name: str) -> dict[str, object]:
        return self._facts(commit=self._commit, path=name)

    def _note(self, facts: dict[str, object], **more: object) -> None:
        if self._cache is not None:
            self._cache.note(cache_key(facts), {**facts, **more})

    def _noted(self, facts: dict[str, object]) -> dict[str, object]:
        return (self._cache.about(cache_key(facts)) if self._cache is not None else None) or {}

    def _official(self, *parts: str, folder: bool = True) -> Path | None:
        """Return a path inside the official client's cache of this repository, if it exists."""
        root = self._client.settings.hub_cache
        if root is None or any(map(leads_outside, parts)):
            return None
        path = root.joinpath("models--" + self._repo.replace("/", "--"), *parts)
        return path if (is_folder(path) if folder else is_file(path)) else None


def _safe_names(names: list[object]) -> frozenset[str]:
    return frozenset(name for name in names if isinstance(name, str) and not leads_outside(name))
