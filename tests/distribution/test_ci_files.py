"""The action, the hooks, the container and the citation: read, and run here as far as that goes."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from fnmatch import fnmatch

import pytest
import yaml
from click.testing import CliRunner

from kinprint import __version__
from kinprint.cli.main import main
from kinprint.refs import is_weights
from support.places import DEMO_MODELS, ROOT
from support.shipping import ACTION, STEPS, copied, instructions

HOOKS = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))}
PAGE = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
EXAMPLES = [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)]
HOSTILE = "$(touch pwned)`touch pwned`'\"; touch pwned; \n--fail-on\n${{ github.token }} ::set-env name=x::y"


# -- the action ------------------------------------------------------------------------------------------------------------


def test_nothing_that_others_write_is_part_of_a_script():
    assert ACTION["runs"]["using"] == "composite"
    for step in STEPS.values():
        if "run" in step:
            assert "${{" not in step["run"]
            assert step["shell"] == "bash"
    given = set(
        re.findall(r"inputs\.([\w-]+)", json.dumps(STEPS["Compare"]["env"]) + STEPS["Upload the findings"]["if"])
    )
    assert given == set(ACTION["inputs"])


def test_the_page_shows_every_input():
    rows = re.findall(r"^\| `([\w-]+)` \| (?:`([^`]+)`)?", PAGE, re.MULTILINE)
    assert rows == [(name, item.get("default", "")) for name, item in ACTION["inputs"].items()]
    (used,) = [step for step in EXAMPLES[0]["jobs"]["lineage"]["steps"] if "kinprint" in step["uses"]]
    assert used["with"].keys() <= ACTION["inputs"].keys()
    assert {name for name, item in ACTION["inputs"].items() if item.get("required")} <= used["with"].keys()
    assert used["uses"].endswith(f"@v{__version__}")
    assert EXAMPLES[0]["permissions"]["security-events"] == "write"


@pytest.fixture
def run_step(tmp_path):
    """Run the comparing step as the runner does; a program given in place of kinprint sees what it would be called with."""

    def run(program=None, **inputs):
        (tmp_path / "kinprint" / "bin").mkdir(parents=True)
        for name, call in {
            "python": [sys.executable],
            "kinprint": program or [sys.executable, "-m", "kinprint"],
        }.items():
            file = tmp_path / "kinprint" / "bin" / name
            file.write_text(f'#!/bin/sh\nexec {shlex.join(call)} "$@"\n')
            file.chmod(0o755)
        values = {name: str(inputs.pop(name, item.get("default"))) for name, item in ACTION["inputs"].items()}
        assert not inputs
        step, runner = STEPS["Compare"], {"RUNNER_TEMP": str(tmp_path)}
        runner |= {name: str(tmp_path / name) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        given = {name: values[text.split(".")[1].removesuffix(" }}")] for name, text in step["env"].items()}
        (tmp_path / "script").write_text(step["run"])
        bash = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(tmp_path / "script")]
        env = {**os.environ, **runner, **given}
        done = subprocess.run(bash, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
        output = tmp_path / "GITHUB_OUTPUT"
        return done, output.read_text() if output.exists() else ""

    return run


@pytest.mark.slow
def test_the_step_fails_on_a_silent_card_and_keeps_the_findings(run_step, tmp_path):
    for name, place in {"base": "base", "finetune": "model"}.items():
        shutil.copytree(DEMO_MODELS / name, tmp_path / place)
        (tmp_path / place / "README.md").write_text("---\nlicense: mit\n---\n# a model\n")
    done, output = run_step(model="model", base="base")
    assert done.returncode == 15, done.stderr
    assert output == "upload=true\n"
    findings = json.loads((tmp_path / "kinprint.sarif").read_text())["runs"][0]
    assert "undeclared-derivation" in [item["ruleId"] for item in findings["results"]]
    places = [place for item in findings["results"] for place in item["locations"]]
    assert all(place["physicalLocation"]["artifactLocation"]["uri"] == "model/model.safetensors" for place in places)
    assert findings["automationDetails"]["id"] == "kinprint/compare/base model/"
    said = done.stdout.splitlines()
    assert said[0].startswith("::stop-commands::")
    assert said[-1] == f"::{said[0].rpartition(':')[2]}::"
    assert "## Verdict" in said
    assert (tmp_path / "GITHUB_STEP_SUMMARY").read_text().startswith("# ")


def test_hostile_inputs_are_words(run_step, tmp_path):
    seen = tmp_path / "seen.json"
    program = [
        sys.executable,
        "-c",
        f"import json, sys; json.dump(sys.argv[1:], open({str(seen)!r}, 'w')); sys.exit(3)",
    ]
    done, output = run_step(program, **dict.fromkeys(ACTION["inputs"], HOSTILE))
    assert (done.returncode, output) == (3, "")
    words = json.loads(seen.read_text())
    assert words[0] == "compare"
    assert words[-3:] == ["--", HOSTILE, HOSTILE]
    options = words[1:-3]
    assert [word.partition("=")[0] for word in options[:5]] == [
        "--quiet",
        "--budget",
        "--fail-on",
        "--sarif",
        "--markdown",
    ]
    assert options[5:] == [f"--parent={line}" for line in HOSTILE.splitlines()]
    assert not list(tmp_path.rglob("pwned"))
    assert "::set-env" not in done.stdout


# -- hooks of pre-commit -----------------------------------------------------------------------------------------------------


def test_hooks_run_when_a_model_changes():
    for hook in HOOKS.values():
        assert hook["language"] == "python"
        assert not hook["pass_filenames"]
        for suffix in (".safetensors", ".gguf", ".bin", ".pt", ".pth", ".onnx", ".npz"):
            assert is_weights(f"x{suffix}")
            assert re.search(hook["files"], f"model/x{suffix}")
        assert re.search(hook["files"], "model/config.json")
        assert not re.search(hook["files"], "src/main.py")
    assert re.search(HOOKS["kinprint-declared"]["files"], "model/README.md")
    (repo,) = EXAMPLES[1]["repos"]
    assert [hook["id"] for hook in repo["hooks"]] == list(HOOKS)
    assert repo["rev"] == f"v{__version__}"


def hook_run(name, *arguments):
    program, *words = shlex.split(HOOKS[name]["entry"])
    assert program in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    return CliRunner().invoke(main, [*words, *map(str, arguments)], standalone_mode=False)


def test_the_weights_are_read_before_a_commit(tmp_path):
    assert hook_run("kinprint-inspect", DEMO_MODELS / "base").return_value == 0
    (tmp_path / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    assert hook_run("kinprint-inspect", tmp_path).exception.exit_code == 6


@pytest.mark.slow
def test_a_card_is_asked_for_before_a_commit(tmp_path):
    assert (
        hook_run("kinprint-declared", DEMO_MODELS / "base", DEMO_MODELS / "finetune").return_value == 18
    )  # not judged
    shutil.copytree(DEMO_MODELS / "finetune", tmp_path / "model")
    (tmp_path / "model" / "README.md").write_text("---\nbase_model: someone/base\n---\n# a model\n")
    assert hook_run("kinprint-declared", DEMO_MODELS / "base", tmp_path / "model").return_value == 0


# -- the container -----------------------------------------------------------------------------------------------------------


def test_the_container_is_small_and_its_user_is_nobody_special():
    lines = instructions()
    assert {word[1].split()[0] for word in lines if word[0] == "FROM"} == {"python:3.11-slim"}
    last = [word[0] for word in lines][::-1].index("FROM")
    final = dict(lines[-last:])
    assert final["USER"] == "kinprint"
    assert json.loads(final["ENTRYPOINT"]) == ["kinprint"]
    for word, rest in lines:
        for step in rest.split("&&") if word == "RUN" else ():
            if " pip " in step:
                assert "--require-hashes" in step or "--no-deps --no-index" in step


def test_what_the_container_copies_is_there_and_not_ignored():
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert rules[0] == "*"
    kept = [rule[1:] for rule in rules if rule.startswith("!")]
    assert set(copied()) == set(kept)
    assert all((ROOT / name).exists() for name in kept)
    assert not any(fnmatch(name, rule) for name in ("demo", ".venv", "tests") for rule in kept)


# -- the citation ------------------------------------------------------------------------------------------------------------

KEYS = {"cff-version", "message", "title", "authors"}  # which the format demands
MORE = {"abstract", "type", "version", "license", "keywords"}


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert KEYS <= citation.keys() <= KEYS | MORE
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == __version__
    assert citation["license"] == project["license"]
    assert citation["type"] == "software"
    assert all(author.keys() == {"name"} for author in citation["authors"])
