"""Write requirements/locked: all that an environment needs, each package with its version and the SHA-256 of every file of it.

    python tools/lock.py [pip core build dev browser postgres serve demo audit docs load bench]

pip resolves requirements/NAME.txt, keeping what is locked already; the package index tells the digests of files for other machines.
Names, versions and digests only: no address. torch stands alone (torch.txt), as its builds differ in what they need.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

HERE = Path(__file__).resolve().parents[1] / "requirements"
BASES = {
    "pip": None,
    "core": None,
    "build": None,
    "dev": "core",
    "browser": "dev",
    "postgres": "dev",
    "serve": "dev",
    "demo": "dev",
    "audit": None,
    "docs": None,
    "load": None,
    "bench": "dev",
}
APART = "torch"
_FILE = re.compile(r"#sha256=([0-9a-f]{64})[^>]*>\s*([^<\s]+)\s*</a>")


def main(names: list[str]) -> None:
    for name in names or list(BASES):
        below, base = {}, BASES[name]
        while base is not None:
            below |= locked(base)
            base = BASES[base]
        found = resolved(name)
        apart = {pin: digest for pin, digest in found.items() if pin.startswith(f"{APART}==")}
        mine = {pin: digest for pin, digest in found.items() if pin not in apart and pin not in below}
        write(name, mine, BASES[name])
        if apart:
            write(APART, apart, None)


def locked(name: str) -> dict[str, set[str]]:
    """Return the pins of a locked file with their digests."""
    file = HERE / "locked" / f"{name}.txt"
    lines = file.read_text(encoding="ascii").replace("\\\n", " ").splitlines() if file.exists() else []
    pins = [line.split() for line in lines if "==" in line and not line.startswith("#")]
    return {pin: {item.removeprefix("--hash=sha256:") for item in rest} for pin, *rest in pins}


def resolved(name: str) -> dict[str, str | None]:
    """Return what pip would install into an empty environment, with the digest of the file that it would take here."""
    known = [pin for other in [*BASES, APART] for pin in locked(other)]
    files, base = [HERE / f"{name}.txt"], BASES[name]
    while base is not None:
        files.append(HERE / f"{base}.txt")
        base = BASES[base]
    wanted = {
        Requirement(line.split("#")[0]).name for file in files for line in file.read_text().splitlines() if "==" in line
    }
    wanted = set(map(canonicalize_name, wanted))
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as kept:  # what is asked for by name has its version there
        kept.write("\n".join(pin for pin in dict.fromkeys(known) if pin.split("==")[0] not in wanted))
        kept.flush()
        ask = ["install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-", "-c", kept.name]
        command = [sys.executable, "-m", "pip", *ask, *(word for file in files for word in ("-r", str(file)))]
        report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    found = {}
    for item in report["install"]:
        version = Version(item["metadata"]["version"]).public
        digests = item["download_info"].get("archive_info", {}).get("hashes", {})
        found[f"{canonicalize_name(item['metadata']['name'])}=={version}"] = digests.get("sha256")
    return found


def write(name: str, pins: dict[str, str | None], base: str | None) -> None:
    head = [
        f"# Made by tools/lock.py from requirements/{name if name != APART else 'demo'}.txt: digests of the files for all machines."
    ]
    head += [f"-r {base}.txt"] if base else []
    for pin, here in sorted(pins.items()):
        digests = sorted(digests_of(pin) | ({here} if here else set()))
        head.append(" \\\n".join([pin, *(f"    --hash=sha256:{digest}" for digest in digests)]))
        print(f"{name}: {pin}, {len(digests)} files")
    (HERE / "locked").mkdir(exist_ok=True)
    (HERE / "locked" / f"{name}.txt").write_text("\n".join(head) + "\n", encoding="ascii")


def digests_of(pin: str) -> set[str]:
    """Return the digests that the package index gives for all files of a version."""
    name, version = pin.split("==")
    with urllib.request.urlopen(f"{index()}/{name}/", timeout=120) as reply:
        page = reply.read().decode()
    return {digest for digest, file in _FILE.findall(page) if version_of(file) == Version(version)}


def index() -> str:
    """Return the index that pip asks here."""
    from pip._internal.models.index import PyPI

    asked = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True
    )
    return (asked.stdout.strip() or PyPI.simple_url).rstrip("/")


def version_of(file: str) -> Version | None:
    """Return the version that a file's name tells, without its build; None for files that pip does not install."""
    try:
        return (parse_wheel_filename if file.endswith(".whl") else parse_sdist_filename)(file)[1]
    except (InvalidSdistFilename, InvalidWheelFilename, InvalidVersion):
        return None


if __name__ == "__main__":
    main(sys.argv[1:])
