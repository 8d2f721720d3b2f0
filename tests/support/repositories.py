"""What the local hub knows of its repositories: files with their git and LFS identities, commits and revisions."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

LFS_SUFFIXES = (".safetensors", ".bin", ".gguf")
LFS_SIZE = 10 * 1000 * 1000
HASH_LIMIT = 64 * 1024 * 1024
"""Files above this size get a stand-in for their SHA-256: sparse giants of 200 GB are never read through."""


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file at one commit.

    ``oid`` is the git blob id: of the content, or for an LFS file of its pointer. ``sha256`` is None for regular files
    and a stand-in made of name, size and modification time above `HASH_LIMIT`.
    """

    path: str
    disk: Path
    size: int
    oid: str
    sha256: str | None
    pointer_size: int
    cdn_path: str

    @property
    def cdn_etag(self) -> str:
        """The storage's own tag, deliberately none of the hub's hashes."""
        return '"' + hashlib.md5(f"cdn:{self.sha256}:{self.size}".encode(), usedforsecurity=False).hexdigest() + '"'

    def entry(self, commit: str | None = None) -> dict[str, Any]:
        """Return the tree API's description; with a commit, the expanded form."""
        entry: dict[str, Any] = {"type": "file", "oid": self.oid, "size": self.size, "path": self.path}
        if self.sha256 is not None:
            entry["lfs"] = {"oid": self.sha256, "size": self.size, "pointerSize": self.pointer_size}
        if commit is not None:
            entry["lastCommit"] = _last_commit(commit)
            entry["securityFileStatus"] = {"status": "safe", "avScan": None, "pickleImportScan": None}
        return entry

    def sibling(self, blobs: bool) -> dict[str, Any]:
        """Return the model API's description."""
        entry: dict[str, Any] = {"rfilename": self.path}
        if blobs:
            entry |= {"size": self.size, "blobId": self.oid}
            if self.sha256 is not None:
                entry["lfs"] = {"sha256": self.sha256, "size": self.size, "pointerSize": self.pointer_size}
        return entry


def _last_commit(commit: str) -> dict[str, str]:
    return {"id": commit, "title": "Upload folder", "date": "2025-07-28T00:00:00.000Z"}


def _describe(repo_id: str, folder: Path, disk: Path) -> HubFile:
    path = disk.relative_to(folder).as_posix()
    stat = disk.stat()
    lfs = path.endswith(LFS_SUFFIXES) or stat.st_size > LFS_SIZE
    if not lfs:
        content = disk.read_bytes()
        oid = hashlib.sha1(b"blob %d\x00" % len(content) + content, usedforsecurity=False).hexdigest()
        return HubFile(path, disk, stat.st_size, oid, None, 0, "")
    if stat.st_size <= HASH_LIMIT:
        with disk.open("rb") as stream:
            sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    else:
        sha256 = hashlib.sha256(f"{path}:{stat.st_size}:{stat.st_mtime_ns}".encode()).hexdigest()
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {stat.st_size}\n".encode()
    oid = hashlib.sha1(b"blob %d\x00" % len(pointer) + pointer, usedforsecurity=False).hexdigest()
    owner = hashlib.sha1(repo_id.encode(), usedforsecurity=False).hexdigest()[:24]
    # Two paths of one content get two addresses here (the name goes into the digest), unlike in the real storage:
    # the log and the faults speak of files by name.
    name = hashlib.sha256(f"{sha256}:{path}".encode()).hexdigest()
    return HubFile(path, disk, stat.st_size, oid, sha256, len(pointer), f"/xet-bridge-us/{owner}/{name}")


@dataclass(slots=True)
class Snapshot:
    """The files of one commit."""

    commit: str
    files: dict[str, HubFile]
    modified: float = 0.0

    @classmethod
    def of(cls, repo_id: str, folder: Path, commit: str | None) -> Snapshot:
        """Describe a folder; hidden folders are left out.

        Raises
        ------
        NotADirectoryError
            If there is no such folder.
        """
        if not folder.is_dir():
            raise NotADirectoryError(f"cannot serve {folder}: not a folder")
        found = sorted(
            path
            for path in folder.rglob("*")
            if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts[:-1])
        )
        files = [_describe(repo_id, folder, path) for path in found]
        times = [file.disk.stat().st_mtime_ns for file in files]
        if commit is None:
            stamps = [(file.path, file.size, when) for file, when in zip(files, times, strict=True)]
            commit = hashlib.sha1(json.dumps(stamps).encode(), usedforsecurity=False).hexdigest()
        return cls(commit, {file.path: file for file in files}, max(times, default=0) / 1e9)

    def tree(self, under: str, recursive: bool, expand: bool) -> list[dict[str, Any]] | None:
        """List a folder, None if there is none of that name."""
        prefix = under.strip("/") + "/" if under.strip("/") else ""
        commit = self.commit if expand else None
        folders: dict[str, dict[str, Any]] = {}
        files: list[dict[str, Any]] = []
        for path, file in self.files.items():
            if not path.startswith(prefix):
                continue
            parts = path[len(prefix) :].split("/")
            depth = len(parts) if recursive else min(2, len(parts))
            for level in range(1, depth):
                name = prefix + "/".join(parts[:level])
                folders.setdefault(name, self.folder_entry(name, commit))
            if recursive or len(parts) == 1:
                files.append(file.entry(commit))
        if prefix and not folders and not files:
            return None
        return [*folders.values(), *files]

    def folder_entry(self, name: str, commit: str | None) -> dict[str, Any]:
        """Describe a folder; its tree id is made up from commit and name."""
        oid = hashlib.sha1(f"{self.commit}:{name}".encode(), usedforsecurity=False).hexdigest()
        entry: dict[str, Any] = {"type": "directory", "oid": oid, "size": 0, "path": name}
        if commit is not None:
            entry["lastCommit"] = _last_commit(commit)
        return entry

    def paths(self, wanted: list[str], expand: bool) -> list[dict[str, Any]]:
        """Describe files and folders by name; unknown names are left out, as the hub does."""
        commit = self.commit if expand else None
        found = []
        for path in wanted:
            name = path.strip("/")
            if name in self.files:
                found.append(self.files[name].entry(commit))
            elif any(other.startswith(name + "/") for other in self.files):
                found.append(self.folder_entry(name, commit))
        return found


@dataclass(slots=True)
class Repo:
    """A repository with its branches and tags."""

    repo_id: str
    gated: bool = False
    private: bool = False
    revisions: dict[str, str] = field(default_factory=dict)
    snapshots: dict[str, Snapshot] = field(default_factory=dict)

    def put(self, revision: str, snapshot: Snapshot) -> None:
        """Point a revision at a snapshot; earlier commits stay reachable."""
        self.snapshots[snapshot.commit] = snapshot
        self.revisions[revision] = snapshot.commit

    def at(self, revision: str) -> Snapshot | None:
        """Return the snapshot of a branch, a tag or a full commit id."""
        return self.snapshots.get(self.revisions.get(revision, revision))

    def info(self, snapshot: Snapshot, blobs: bool) -> dict[str, Any]:
        """Return the model API's answer."""
        stamp = datetime.fromtimestamp(snapshot.modified, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        return {
            "_id": hashlib.sha1(self.repo_id.encode(), usedforsecurity=False).hexdigest()[:24],
            "id": self.repo_id,
            "modelId": self.repo_id,
            "author": self.repo_id.partition("/")[0] if "/" in self.repo_id else None,
            "sha": snapshot.commit,
            "lastModified": stamp,
            "createdAt": "2025-07-28T00:00:00.000Z",
            "private": self.private,
            "gated": "manual" if self.gated else False,
            "disabled": False,
            "downloads": 0,
            "likes": 0,
            "library_name": "transformers",
            "tags": ["transformers", "safetensors"],
            "pipeline_tag": "text-generation",
            "config": self._config(snapshot),
            "usedStorage": sum(file.size for file in snapshot.files.values()),
            "siblings": [file.sibling(blobs) for file in snapshot.files.values()],
        }

    @staticmethod
    def _config(snapshot: Snapshot) -> dict[str, Any]:
        file = snapshot.files.get("config.json")
        if file is None:
            return {}
        try:
            config = json.loads(file.disk.read_bytes())
        except ValueError:
            # The hub serves repositories with a broken config too; tests add such folders on purpose.
            return {}
        if not isinstance(config, dict):
            return {}
        return {key: config[key] for key in ("architectures", "model_type") if key in config}

    def refs(self) -> dict[str, Any]:
        """Return the refs API's answer: main is a branch, every other name a tag."""
        branches = [name for name in self.revisions if name == "main"]
        tags = [name for name in self.revisions if name != "main"]
        return {
            "branches": [self._ref(name, "heads") for name in branches],
            "tags": [self._ref(name, "tags") for name in tags],
            "converts": [],
        }

    def _ref(self, name: str, kind: str) -> dict[str, str]:
        return {"name": name, "ref": f"refs/{kind}/{name}", "targetCommit": self.revisions[name]}
