"""What the files for others to run us hold: steps of the action, instructions of the Dockerfile, commands of a page."""

import shlex
from typing import Any

import yaml
from markdown_it import MarkdownIt

from support.places import ROOT

ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS: dict[str, dict[str, Any]] = {step["name"]: step for step in ACTION["runs"]["steps"]}


def instructions() -> list[tuple[str, str]]:
    """Return the Dockerfile's instructions with their arguments."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.partition(" ") for line in text.splitlines() if line and not line.startswith("#")]
    return [(word, rest) for word, _, rest in lines]


def copied() -> list[str]:
    """Return what the Dockerfile takes from the repository."""
    lines = [rest for word, rest in instructions() if word == "COPY" and "--from" not in rest]
    return [name for rest in lines for name in rest.split()[:-1]]


def commands(text: str) -> list[list[str]]:
    """Return kinprint's commands in blocks of shell, as words; continued lines are joined, comments left out."""
    fences = [token.content for token in MarkdownIt().parse(text) if token.type == "fence" and token.info in ("", "sh")]
    rows = "".join(fences).replace("\\\n", " ").splitlines()
    lines = [shlex.split(row, comments=True) for row in rows if row.startswith(("kinprint ", "uvx "))]
    return [line[line.index("kinprint") + 1 :] for line in lines]
