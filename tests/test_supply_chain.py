"""What is installed is pinned by digests, with all that it brings along; and the tests that SECURITY.md names are there."""

import re
import tomllib
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from support.places import ROOT


def pins(*names):
    lines = [
        line.split("#")[0].strip() for name in names for line in (ROOT / "requirements" / name).read_text().splitlines()
    ]
    return [Requirement(line) for line in lines if line and not line.startswith("-")]


LOCKED = ROOT / "requirements" / "locked"
LINE = re.compile(
    r"# .*|-r \w+\.txt|(?P<name>[a-z0-9-]+)==(?P<version>[0-9][\w.]*) \\|    --hash=sha256:[0-9a-f]{64}( \\)?"
)


def locked(name):
    """Return versions by name, of a locked file and those that it stands on; what is in it has digests."""
    found, text = {}, (LOCKED / f"{name}.txt").read_text()
    for base in re.findall(r"^-r (\w+)\.txt", text, re.MULTILINE):
        found |= locked(base)
    return found | dict(re.findall(r"^([a-z0-9-]+)==(\S+) \\\n    --hash=sha256:[0-9a-f]{64}", text, re.MULTILINE))


def brought_along(roots):
    """Return every package that these need here, with theirs."""
    found, todo = set(), list(roots)
    while todo:
        wanted = todo.pop()
        name = canonicalize_name(wanted.name)
        if (name, *sorted(wanted.extras)) in found:
            continue
        found.add((name, *sorted(wanted.extras)))
        needs = map(Requirement, metadata.distribution(name).requires or ())
        ways = [{"extra": extra} for extra in {"", *wanted.extras}]
        todo += [needed for needed in needs if needed.marker is None or any(map(needed.marker.evaluate, ways))]
    return {name for name, *_ in found}


NAMES = ["core", "build", "dev", "browser", "postgres", "serve", "load", "bench", "demo", "audit", "docs"]


@pytest.mark.parametrize("name", ["core", "dev"])
def test_everything_that_is_installed_is_locked(name):
    assert brought_along(pins(f"{name}.txt")) <= locked(name).keys()
    here = {found.name: found.version for found in metadata.distributions()}
    versions = {canonicalize_name(found): version for found, version in here.items()}
    assert {found: versions[found] for found in locked(name) if found in versions}.items() <= locked(name).items()


@pytest.mark.parametrize("name", NAMES)
def test_what_is_asked_for_is_locked_in_that_version(name):
    asked = {canonicalize_name(pin.name): str(pin.specifier) for pin in pins(f"{name}.txt")}
    found = locked(name) | (locked("torch") if name == "demo" else {})
    assert asked == {pin: f"=={found[pin]}" for pin in asked}


@pytest.mark.parametrize("name", [*NAMES, "torch"])
def test_locked_files_hold_names_versions_and_digests_and_no_address(name):
    lines = (LOCKED / f"{name}.txt").read_text(encoding="ascii").splitlines()
    assert [line for line in lines if not LINE.fullmatch(line)] == []
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        assert ("--hash=" in after) == line.endswith("\\")  # each package has a digest at least
    assert sum("--hash=" in line for line in lines) >= sum("==" in line for line in lines) > 0


def test_make_installs_nothing_without_digests():
    makefile = (ROOT / "Makefile").read_text()
    lines = [line.strip() for line in makefile.splitlines() if re.search(r"^\t.*(\$\(PIP\)|\$\(INSTALL\))", line)]
    ours, rest = "--no-deps --no-build-isolation -e .", "$(DEMO) $(INSTALL) -r requirements/demo.txt"
    assert len(lines) >= 9
    assert [line for line in lines if "$(LOCKED)/" not in line and not line.endswith(ours)] == [rest]
    # a file that is fetched alone is held against its digest when it is installed
    assert makefile.count("pip --disable-pip-version-check --quiet download") == 1
    assert "--no-index --find-links .venv-demo/files $(LOCKED)/torch.txt" in makefile
    assert "LOCKED := --require-hashes -r requirements/locked" in makefile


def test_pins_are_exact_and_name_no_address():
    for path in (ROOT / "requirements").glob("*.txt"):
        assert "://" not in path.read_text()
        assert "@" not in path.read_text()
    assert all(str(pin.specifier).startswith("==") for pin in pins(*(f"{name}.txt" for name in NAMES)))
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert set(build) <= set(map(str, pins("build.txt")))


def test_lower_bounds_are_past_known_advisories():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    least = {
        pin.name: Version(str(pin.specifier).removeprefix(">="))
        for pin in map(Requirement, project["project"]["dependencies"])
    }
    assert least["orjson"] >= Version("3.11.6")
    assert least["jinja2"] >= Version("3.1.6")
    assert least["urllib3"] >= Version("2.6.3")
    included = project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert all(pattern.startswith("/") for pattern in included)


def test_the_tests_that_hold_the_threat_model_are_there():
    text = (ROOT / "SECURITY.md").read_text()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    assert rows[0] == ["attacker", "what they control", "what they must not get", "held by"]
    assert len(rows) > 10
    for row in rows[2:]:  # each attacker has a test at least, and no cell is empty
        assert (len(row), all(row)) == (4, True), row
        named = re.findall(r"`(tests/[^`]+)`", row[3])
        assert [path for path in named if "def test_" in (ROOT / path).read_text()] == named != [], row[0]
