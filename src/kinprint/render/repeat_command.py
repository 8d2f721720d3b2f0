"""Build the command that repeats a comparison from the options in its report."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kinprint.results.models import ModelSummary
from kinprint.results.options import SEARCH_OPTIONS, USUAL_LIMIT, Options
from kinprint.results.report import Report
from kinprint.results.search import NAMED

if TYPE_CHECKING:
    from kinprint.results.search import SearchReport
    from kinprint.results.tree import PairsReport, TreeModel


def command_of(report: Report) -> str:
    """Return one line for a POSIX shell that runs this comparison again.

    Models of the hub are pinned to the commit that was read. Settings are written out even where they are the default, so
    that a later version with other defaults does the same. Controls, parents and bases stand as they were given: a report
    does not hold their commits.
    """
    return compare_again(report.settings.arguments(), [pinned(report.a), pinned(report.b)])


def pairs_command(report: PairsReport) -> str:
    """Return one line for a POSIX shell that compares the same models again, those of the hub at the same commits."""
    tree = report.tree.settings
    # reports of the first versions state no more than these three
    stated = report.settings or Options(budget_bytes=tree.budget_bytes, seed=tree.seed, deep=tree.deep)
    return compare_again(stated.arguments(many=True), list(map(pinned, report.tree.models)))


def search_command(report: SearchReport) -> str:
    """Return one line for a POSIX shell that looks for the same model again."""
    verified = sum(item.verified is not None and item.class_ != NAMED for item in report.found)
    verify = ["--verify", str(max(1, verified))] if any(item.verified is not None for item in report.found) else []
    return search_again(report, [*verify, *(["--local", report.local] if report.local else [])])


def search_again(report: SearchReport, options: Sequence[str]) -> str:
    """Return the command that looks for a model in the same catalog with these options, and those that it was searched with."""
    query, settings = report.query.reference, report.settings or Options()
    limit = ["--limit", str(report.limit)] if report.limit not in (None, USUAL_LIMIT) else []
    chosen = settings.arguments(only=SEARCH_OPTIONS, changed=True)
    dashes = ["--"] if query.startswith("-") else []
    return shlex.join(["kinprint", "search", "--catalog", report.catalog, *options, *limit, *chosen, *dashes, query])


def compare_again(options: Sequence[str], models: Sequence[str]) -> str:
    """Return the command that compares models with these options."""
    dashes = ["--"] if any(model.startswith("-") for model in models) else []
    return shlex.join(["kinprint", "compare", *options, *dashes, *models])


def pinned(model: ModelSummary | TreeModel) -> str:
    """Return the reference of a model, with the commit that was read if it is of the hub; old reports do not tell the kind."""
    if model.kind not in ("hub", "") or model.commit is None:
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
