"""The wheel in an empty environment: the demo and the README's commands run there, and nothing else is needed.

Every run builds the wheel and installs it where nothing is but the twelve packages of requirements/locked/core.txt, linked to those
installed here: fetching and unpacking them takes 12 s of CPU, links none. `make nightly` takes the steps of the Dockerfile, which
fetch all of it anew.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import venv
import zipfile
from email import message_from_string
from importlib.metadata import distribution

import pytest

from kinprint import __version__
from support.places import ROOT
from support.shipping import STEPS, commands, copied, instructions

pytestmark = pytest.mark.slow
OUT_OF_REACH = re.compile(
    r"No matching distribution|Could not find a version|ConnectionError|timed out|Max retries", re.IGNORECASE
)
LOCKED = dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements/locked/core.txt").read_text(), re.MULTILINE))
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


def built(folder):
    """Build the wheel as the Dockerfile does, of what the Dockerfile copies."""
    for name in copied():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, place, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, place)
    shell(f"{shlex.quote(sys.executable)} -m hatchling build -t wheel -d dist", folder)
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return built(tmp_path_factory.mktemp("build"))


@pytest.fixture(scope="module")
def program(wheel, tmp_path_factory):
    """Return the command of an environment where pip put the wheel, and the packages that the lock names are linked."""
    root = tmp_path_factory.mktemp("environment")
    venv.create(root, with_pip=False)
    (site,) = root.glob("lib/python*/site-packages")
    for name, version in LOCKED.items():
        package = distribution(name)
        assert package.version == version, f"{name} is not the one of requirements/locked: make test sets it up"
        for top in {file.parts[0] for file in package.files} - {"..", "__pycache__"}:
            (site / top).symlink_to(package.locate_file(top))
    shell(f"{shlex.quote(sys.executable)} -m pip --python {root} install --no-index --no-deps {wheel}", root)
    return root / "bin" / "kinprint"


def called(program, home, *arguments):
    env = {"PATH": f"{program.parent}:/usr/bin:/bin", "HOME": str(home), "HF_HUB_OFFLINE": "1"}
    line = ["kinprint", *map(str, arguments)]
    return subprocess.run(line, cwd=home, env=env, capture_output=True, text=True, timeout=600, check=False)


def test_the_wheel_holds_the_package_and_a_page_without_lost_links(wheel):
    assert wheel.name == f"kinprint-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = message_from_string(archive.read(f"kinprint-{__version__}.dist-info/METADATA").decode())
        models = [item for item in archive.infolist() if item.filename.startswith("kinprint/demo_models/")]
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert re.findall(r"\]\((?!https://|#)", metadata.get_payload()) == []
    assert {name.split("/")[0] for name in names} == {"kinprint", f"kinprint-{__version__}.dist-info"}
    assert "kinprint/py.typed" in names
    assert "kinprint/cli/help.json" in names
    assert len(models) == 3 * 4
    assert sum(item.compress_size for item in models) < 1_500_000


def test_the_environment_holds_the_wheel_and_what_it_needs_alone(program):
    listed = "import kinprint; from importlib.metadata import distributions as d\nprint(*(x.name for x in d()), kinprint.__file__)"
    said = subprocess.run([program.parent / "python", "-I", "-c", listed], capture_output=True, text=True, check=True)
    *names, file = said.stdout.split()
    assert sorted(name.lower() for name in names) == sorted({"kinprint", *LOCKED})
    assert file.startswith(str(program.parents[1]))


def test_the_demo_runs_from_the_wheel_alone(program, tmp_path):
    done = called(program, tmp_path, "demo")
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    lines = done.stdout.splitlines()
    assert "base, unrelated: no evidence" in lines
    assert "base, finetune: derived, further training" in lines
    assert "A cosine of 0.99 means nothing by itself." in lines
    cosines = [float(number) for number in re.findall(r"Raw cosine of pre-attention norms (\S+)", done.stdout)]
    assert min(cosines) > 0.985
    drawn = [line for line in lines if "●" in line]
    assert drawn[0].index("├") < drawn[0].index("●") < drawn[0].index("┤") < drawn[1].index("●")
    pages = sorted((tmp_path / "kinprint-demo").iterdir())
    assert [page.name for page in pages] == ["finetune.html", "unrelated.html"]
    assert all(page.stat().st_size > 10_000 for page in pages)


def shown(pattern, folder):
    """Return what a shell makes of a pattern, three of it: a tree of five models takes ten seconds."""
    return sorted(f"{path.relative_to(folder)}/" for path in folder.glob(pattern))[:3]


QUICK = {"inspect", "fingerprint", "cache"}  # the others take seconds each, and all of them half a minute: at night


def readme_runs(program, tmp_path, chosen):
    (tmp_path / "demo").symlink_to(ROOT / "demo")
    ran = []
    for words in commands((ROOT / "README.md").read_text(encoding="utf-8")):
        if any(NETWORK.match(word) for word in words) or words[0] == "study" or not chosen(words):
            continue
        line = [found for word in words for found in (shown(word, tmp_path) if "*" in word else [word])]
        done = called(program, tmp_path, *line)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        ran.append(words[0])
    return ran


def test_quick_commands_of_the_readme_run_from_the_wheel(program, tmp_path):
    ran = readme_runs(program, tmp_path, lambda words: words[0] in QUICK or words[-1] == "report.html")
    assert {*ran} == {*QUICK, "compare"}
    assert (tmp_path / "report.html").stat().st_size > 10_000
    assert called(program, tmp_path, "--version").stdout.split()[-1] == __version__


@pytest.mark.nightly
def test_the_commands_of_the_readme_run_from_the_wheel(installed, tmp_path):
    assert len(readme_runs(installed, tmp_path, lambda words: True)) >= 13


def test_shells_complete_paths(program, tmp_path):
    script = 'eval "$(_KINPRINT_COMPLETE=bash_source kinprint)"; complete -p kinprint'
    env = {"PATH": f"{program.parent}:/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, timeout=60, check=True)
    assert "_kinprint_completion" in done.stdout
    asked = {"COMP_WORDS": "kinprint compare de", "COMP_CWORD": "2", "_KINPRINT_COMPLETE": "bash_complete"}
    done = subprocess.run(["kinprint"], env=env | asked, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "file,de\n"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Return the command where the Dockerfile's first stage was run, in place of the container's root."""
    root = tmp_path_factory.mktemp("image")
    (root / "build").mkdir()
    built(root / "build")
    shutil.rmtree(root / "build" / "dist")
    lines = instructions()
    for word, rest in lines[: [word for word, _ in lines].index("FROM", 1)]:
        if word == "RUN":
            script = re.sub(r"(?<=\s)python(?=\s)", sys.executable, f" {rest}").replace("/opt/", f"{root}/opt/")
            shell(script, root / "build")
    return root / "opt" / "kinprint" / "bin" / "kinprint"


@pytest.mark.nightly
def test_what_is_missing_is_advised_by_name(installed, tmp_path):
    models = [ROOT / "demo" / "models" / name for name in ("base", "finetune")]
    done = called(installed, tmp_path, "compare", *models, "--parquet", tmp_path / "x.parquet")
    assert (done.returncode, done.stderr.splitlines()[-1].strip()) == (2, "next: pip install 'pyarrow>=17'")


@pytest.mark.nightly  # the same again, but for a wheel
def test_the_action_installs_what_it_comes_with(tmp_path):
    shell(STEPS["Install kinprint"]["run"], tmp_path, RUNNER_TEMP=str(tmp_path), GITHUB_ACTION_PATH=str(ROOT))
    said = shell('"$RUNNER_TEMP/kinprint/bin/kinprint" --version', tmp_path, RUNNER_TEMP=str(tmp_path))
    assert said.split()[-1] == __version__
