"""The command that repeats a comparison, built from what its report says was asked."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

from kinprint.results.models import ModelSummary
from kinprint.results.report import Report

_UNITS = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


def command_of(report: Report) -> str:
    """Return one line for a POSIX shell that runs this comparison again.

    Models of the hub are pinned to the commit that was read. Settings are written out even where they are the default, so
    that a later version with other defaults does the same. Controls, parents and bases stand as they were given: a report
    does not hold their commits.
    """
    settings = report.settings
    words = ["kinprint", "compare"]
    options: list[tuple[str, str | None]] = [
        ("--budget", written_size(settings.budget_bytes)),
        ("--rows", str(settings.rows)),
        ("--experts", str(settings.experts)),
        ("--seed", str(settings.seed)),
        ("--layers", settings.layers),
        ("--roles", _joined(settings.roles)),
        ("--metrics", _joined(settings.metrics)),
        ("--method", _joined(settings.methods)),
        ("--null", settings.null),
        *_each("--control", settings.controls),
        *_each("--related", settings.related),
        *_each("--parent", settings.parents),
        *_each("--base", settings.bases),
        *_each("--file", settings.files),
    ]
    for name, value in options:
        if value is None:
            continue
        # a value that starts with a dash would be taken for an option of its own
        words += [f"{name}={value}"] if value.startswith("-") else [name, value]
    if settings.deep:
        words.append("--deep")
    models = [pinned(report.a), pinned(report.b)]
    if any(model.startswith("-") for model in models):
        words.append("--")
    return shlex.join([*words, *models])


def pinned(model: ModelSummary) -> str:
    """Return the reference of a model, with the commit that was read if it is of the hub."""
    if model.kind != "hub" or model.commit is None:
        return model.reference
    return pinned_reference(model.reference, model.commit)


def pinned_reference(reference: str, commit: str) -> str:
    """Return a reference to a model of the hub with a commit in place of its revision."""
    scheme, mark, rest = reference.partition("://")
    if mark and scheme != "hf":
        return _pinned_page(reference, commit)
    repo, at, tail = rest.partition("@") if mark else reference.partition("@")
    if not mark:
        return f"{repo}@{commit}"
    parts = repo.split("/")
    parts = parts[1:] if parts[0] == "models" and len(parts) > 2 else parts
    file = tail.partition("/")[2] if at else "/".join(parts[2:])
    return f"hf://{'/'.join(parts[:2])}@{commit}{f'/{file}' if file else ''}"


def _pinned_page(address: str, commit: str) -> str:
    """Pin a page of the hub, as pasted from a browser: ``…/owner/name[/tree|blob|resolve/revision[/file]]``."""
    for step in ("/tree/", "/blob/", "/resolve/"):
        start, found, rest = address.partition(step)
        if found:
            _, slash, file = rest.partition("/")
            return f"{start}{step}{commit}{slash}{file}"
    return f"{address.rstrip('/')}/tree/{commit}"


def written_size(count: int | None) -> str:
    """Write a budget as the command line takes it, without rounding."""
    if count is None:
        return "none"
    for factor, unit in _UNITS:
        if count and count % factor == 0:
            return f"{count // factor}{unit}"
    return str(count)


def _joined(names: tuple[str, ...]) -> str | None:
    return ",".join(names) or None


def _each(option: str, values: Iterable[str]) -> Iterator[tuple[str, str]]:
    return ((option, value) for value in values)
