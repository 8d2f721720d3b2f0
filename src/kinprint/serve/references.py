"""Decide which models a stranger may name: repositories of the hub, and what the operator allows beside them."""

from __future__ import annotations

from pathlib import Path

from kinprint._util.files import is_there
from kinprint._util.plain import printable
from kinprint.errors import BadReference
from kinprint.refs import is_repo, parse_ref
from kinprint.serve.options import ServeOptions
from kinprint.text import Text

LONGEST = 300
LOCAL = "./"  # what the reference of a model of the operator's folder begins with
_HINT = Text("a model is owner/name or owner/name@revision of the hub, or its page there")


def reference(text: str, options: ServeOptions, endpoint: str) -> str:
    """Return a model's reference as jobs keep it; BadReference for what may not be named here.

    Nothing of this machine is looked at but the list of models that the operator shows.
    """
    text = text.strip()
    if not text or len(text) > LONGEST or not text.isprintable():
        raise BadReference(Text("no model can have this name"), hint=_HINT)
    if text.removeprefix(LOCAL) in local_models(options):
        return LOCAL + text.removeprefix(LOCAL)
    if text.startswith(("hf://", "http://", "https://")):
        found = parse_ref(text, endpoint=endpoint)
        if found.kind == "hub" and found.repo is not None:
            at = f"@{found.revision}" if found.revision else ""
            plain = is_repo(found.repo) and found.file is None
            return f"{found.repo}{at}" if plain else f"hf://{found.repo}{at}{f'/{found.file}' if found.file else ''}"
        said = Text(
            "this server reads models of the hub only, and {text} is elsewhere", text=printable(found.text, 120)
        )
        raise BadReference(said, hint=_HINT)
    name, at, revision = text.partition("@")
    if not is_repo(name) or (at and (not revision or any(sign in revision for sign in "@ \\"))):
        said = Text("{text} names no model of the hub", text=printable(text, 120))
        raise BadReference(said, hint=_HINT)
    return text


def local_models(options: ServeOptions) -> list[str]:
    """Return the names of the models in the operator's folder: folders with a config, and no links out of it."""
    if options.local is None:
        return []
    root = options.local.resolve()
    found = [folder for folder in root.iterdir() if folder.is_dir() and (folder / "config.json").is_file()]
    return sorted(folder.name for folder in found if folder.resolve().parent == root and folder.name.isprintable())


def argument(kept: str) -> str:
    """Return a kept reference as the engine takes it, in the folder that a job runs in: the hub's name wins over a path."""
    if kept.startswith((LOCAL, "hf://")):
        return kept
    return f"hf://{kept}" if is_there(Path(kept.partition("@")[0])) else kept


def shown(kept: str) -> str:
    """Return a kept reference as people read it."""
    return kept.removeprefix(LOCAL)
