"""The wheel in an empty environment, made by the steps of the Dockerfile: the README's commands run there."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from email import message_from_string

import pytest

from kinprint import __version__
from support.places import ROOT
from support.shipping import STEPS, commands, copied, instructions

pytestmark = [pytest.mark.slow, pytest.mark.nightly]  # a minute of pip
OUT_OF_REACH = re.compile(
    r"No matching distribution|Could not find a version|ConnectionError|timed out|Max retries", re.IGNORECASE
)
NETWORK = re.compile(r"^(?!demo/)[\w-]+/[\w.-]+$")  # owner/name


def shell(script, folder, **more):
    """Run a script as the runner and docker do; skip where the package registry is out of reach."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    env |= {"PIP_NO_COMPILE": "1", "PIP_RETRIES": "2", **more}
    command = ["bash", "-eo", "pipefail", "-c", script]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode and OUT_OF_REACH.search(done.stderr):
        pytest.skip(f"the package registry is out of reach: {done.stderr.strip().splitlines()[-1][:200]}")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Return the folder in which the Dockerfile's first stage was run, in place of the container's root."""
    root = tmp_path_factory.mktemp("image")
    (root / "build").mkdir()
    for name in copied():
        place = root / "build" / name
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, place, ignore=ignored) if (ROOT / name).is_dir() else shutil.copy(
            ROOT / name, place
        )
    lines = instructions()
    for word, rest in lines[: [word for word, _ in lines].index("FROM", 1)]:
        if word == "RUN":
            script = re.sub(r"(?<=\s)python(?=\s)", sys.executable, f" {rest}").replace("/opt/", f"{root}/opt/")
            shell(script, root / "build")
    return root


def test_the_wheel_holds_the_package_and_a_page_without_lost_links(installed):
    (wheel,) = (installed / "build" / "dist").glob("*.whl")
    assert wheel.name == f"kinprint-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = message_from_string(archive.read(f"kinprint-{__version__}.dist-info/METADATA").decode())
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert re.findall(r"\]\((?!https://|#)", metadata.get_payload()) == []
    assert {name.split("/")[0] for name in names} == {"kinprint", f"kinprint-{__version__}.dist-info"}
    assert "kinprint/py.typed" in names


def shown(pattern, folder):
    """Return what a shell makes of a pattern, three of it: a tree of five models takes ten seconds."""
    return sorted(f"{path.relative_to(folder)}/" for path in folder.glob(pattern))[:3]


def test_the_commands_of_the_readme_run_from_the_wheel(installed, tmp_path):
    (tmp_path / "demo").symlink_to(ROOT / "demo")
    env = {"PATH": f"{installed}/opt/kinprint/bin:/usr/bin:/bin", "HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    ran = []
    for words in commands((ROOT / "README.md").read_text(encoding="utf-8")):
        if any(NETWORK.match(word) for word in words) or words[0] == "study":
            continue
        line = [found for word in words for found in (shown(word, tmp_path) if "*" in word else [word])]
        done = subprocess.run(
            ["kinprint", *line], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode in (0, 10, 11), f"{words}: {done.stderr}"
        ran.append(words[0])
    assert len(ran) >= 12
    assert (tmp_path / "report.html").stat().st_size > 10_000
    said = subprocess.run(["kinprint", "--version"], env=env, capture_output=True, text=True, check=True).stdout
    assert said.split()[-1] == __version__


def test_what_is_missing_is_advised_by_name(installed, tmp_path):
    env = {"PATH": f"{installed}/opt/kinprint/bin", "HOME": str(tmp_path)}
    models = [str(ROOT / "demo" / "models" / name) for name in ("base", "finetune")]
    command = ["kinprint", "compare", *models, "--parquet", str(tmp_path / "x.parquet")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stderr.splitlines()[-1].strip()) == (2, "next: pip install 'pyarrow>=17'")


@pytest.mark.nightly  # the same again, but for a wheel
def test_the_action_installs_what_it_comes_with(tmp_path):
    shell(STEPS["Install kinprint"]["run"], tmp_path, RUNNER_TEMP=str(tmp_path), GITHUB_ACTION_PATH=str(ROOT))
    said = shell('"$RUNNER_TEMP/kinprint/bin/kinprint" --version', tmp_path, RUNNER_TEMP=str(tmp_path))
    assert said.split()[-1] == __version__
