"""Help: three examples at the top of each command, options in groups, sentences whole; and what shells complete."""

import json
import re
import shlex
from importlib.resources import files

import click
import pytest
from click.shell_completion import BashComplete

from kinprint.cli.main import main

PRODUCT = sorted(main.commands)
LAB = [("bench",), ("bench", "lineage"), ("bench", "red-team")]
TITLES = [
    "Examples",
    "What is written",
    "What the exit code means",
    "What is printed",
    "What is read and measured",
    "Further models and files",
    "Network and messages",
    "Options",
    "Exit codes",
]


@pytest.mark.parametrize("name", [(), *((name,) for name in PRODUCT), *LAB], ids=str)
def test_help_begins_with_three_examples_that_can_be_typed(inside, name):
    shown = inside(*name, "--help").out
    lines = shown.split("\n\n")[1].splitlines()
    assert lines[0] == "Examples:"
    assert len(lines) == 4
    for line in lines[1:]:
        _, command, *rest = shlex.split(line.split(" > ")[0])
        found = main.get_command(click.Context(main), command)
        if command == "bench":
            command, *rest = rest
            found = found.commands[command]
        found.make_context(command, rest, resilient_parsing=False).close()


def test_no_help_is_kept_of_commands_that_are_gone():
    assert json.loads((files("kinprint.cli") / "help.json").read_text()).keys() == {
        "main",
        *PRODUCT,
        *(" ".join(name) for name in LAB),
    }


def test_options_of_compare_stand_in_groups(inside):
    shown = inside("compare", "--help").out
    assert re.findall(r"^(\w.+):$", shown, re.MULTILINE) == TITLES
    groups = dict(zip(TITLES, re.split(r"^\w.+:$", shown, flags=re.MULTILINE)[1:], strict=True))
    assert "--html" in groups["What is written"]
    assert "--bundle" in groups["What is written"]
    assert "--control" in groups["Further models and files"]
    assert re.findall(r"--[\w-]+", groups["Options"]) == ["--help"]


@pytest.mark.parametrize("columns", ["60", "80", "120"])
def test_help_fits_and_cuts_no_sentence(inside, columns):
    shown = inside("--help", env={"COLUMNS": columns}).out
    assert max(map(len, shown.splitlines())) <= int(columns)
    assert re.findall(r"\w\.\.\.", shown) == []
    assert "how large it may grow." in " ".join(shown.split())


@pytest.mark.parametrize(
    ("typed", "part"),
    [(["compare"], "de"), (["compare", "a"], "b"), (["inspect"], "m"), (["compare", "a", "b", "--control"], "c")],
)
def test_paths_of_models_are_completed(typed, part):
    found = BashComplete(main, {}, "kinprint", "_KINPRINT_COMPLETE").get_completions(typed, part)
    assert [(item.type, item.value) for item in found] == [("file", part)]


def test_commands_are_completed():
    found = BashComplete(main, {}, "kinprint", "_KINPRINT_COMPLETE").get_completions([], "co")
    assert [item.value for item in found] == ["compare"]


def test_a_path_that_is_not_there_is_told_before_a_hub_is_asked(inside, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    done = inside("inspect", "models/base", "--offline")
    assert done.err.startswith(
        "no such file or folder: 'models/base'; taken for a repository on the hub\nerror: offline"
    )
    for text in ("owner/name", "models/base@main", "./models/base", "/models"):
        assert "taken for" not in inside("inspect", text, "--offline").err
