"""What is installed is pinned, with all that it brings along; and the tests that SECURITY.md names are there."""

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


@pytest.mark.parametrize("file", ["core.txt", "dev.txt"])
def test_everything_that_is_installed_is_pinned(file):
    pinned = {canonicalize_name(pin.name) for pin in pins("core.txt", "dev.txt", "transitive.txt")}
    assert brought_along(pins(file)) <= pinned


def test_pins_are_exact_and_name_no_address():
    for path in (ROOT / "requirements").glob("*.txt"):
        assert "://" not in path.read_text()
        assert "@" not in path.read_text()
    assert all(str(pin.specifier).startswith("==") for pin in pins("core.txt", "dev.txt", "transitive.txt"))


def test_lower_bounds_are_past_known_advisories():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    least = {
        pin.name: Version(str(pin.specifier).removeprefix(">="))
        for pin in map(Requirement, project["project"]["dependencies"])
    }
    assert least["orjson"] >= Version("3.11.6")
    assert least["jinja2"] >= Version("3.1.6")
    included = project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert all(pattern.startswith("/") for pattern in included)


def test_the_tests_that_hold_the_threat_model_are_there():
    named = re.findall(r"`(tests/[^`]+)`", (ROOT / "SECURITY.md").read_text())
    assert len(named) > 12
    assert [path for path in named if not (ROOT / path).is_file()] == []
