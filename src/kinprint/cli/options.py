"""Options that several commands share, and what they turn into."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kinprint._util.sizes import parse_size
from kinprint.errors import BadReference

if TYPE_CHECKING:
    from kinprint.cli.progress import ProgressLine
    from kinprint.sources.ledger import Ledger
    from kinprint.sources.session import Session
    from kinprint.sources.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])
DEFAULT_BUDGET = "128MB"


def read_budget(_context: click.Context, parameter: click.Parameter, value: str) -> int | None:
    """Turn 64MB into bytes, and "none" into no limit."""
    if value.lower() in ("none", "unlimited"):
        return None
    try:
        return parse_size(value)
    except BadReference as error:
        raise click.BadParameter(error.message, param=parameter) from error


def shared(function: F) -> F:
    """Add the options of every command that reads models."""
    for option in (
        click.option(
            "--budget",
            callback=read_budget,
            default=DEFAULT_BUDGET,
            show_default=True,
            metavar="SIZE",
            help=BUDGET_HELP,
        ),
        click.option("--format", "style", type=click.Choice(["auto", "table", "json"]), default="auto", help=AUTO_HELP),
        click.option("--offline", is_flag=True, help="Use only what is on this machine (like HF_HUB_OFFLINE=1)."),
        click.option("--no-cache", is_flag=True, help="Neither use nor fill the range cache."),
        click.option("-q", "--quiet", is_flag=True, help="No progress."),
    ):
        function = option(function)
    return function


def which_weights(function: F) -> F:
    """Add the options that say which weights of a model are meant: a file among several, the base of an adapter."""
    function = click.option("--base", "bases", multiple=True, metavar="MODEL", help=BASE_HELP)(function)
    return click.option("--file", "files", multiple=True, metavar="NAME", help=FILE_HELP)(function)


FILE_HELP = "Read this weight file in models that have it, instead of choosing the best format."
BASE_HELP = "The model that a LoRA adapter among those named belongs to, instead of the one it declares."
AUTO_HELP = "auto: tables in a terminal, JSON when piped."
BUDGET_HELP = "Read at most this much in all, headers and tokenizers included; none for no limit."


@dataclass(frozen=True)
class Reading:
    """How a command reads models: what `shared` and `which_weights` ask for, in one piece."""

    budget: int | None
    style: str
    bases: tuple[str, ...]
    files: tuple[str, ...]
    offline: bool
    no_cache: bool
    quiet: bool

    @contextmanager
    def session(self, budget: int | None, ledger: Ledger | None = None) -> Iterator[tuple[Session, ProgressLine]]:
        """Open a session with a progress line."""
        from kinprint.cli.progress import ProgressLine
        from kinprint.sources.session import Session

        with (
            ProgressLine(enabled=False if self.quiet else None) as line,
            Session(
                make_settings(offline=self.offline, no_cache=self.no_cache),
                budget_bytes=budget,
                on_traffic=line.traffic,
                bases=self.bases,
                files=self.files,
                ledger=ledger,
            ) as session,
        ):
            yield session, line


def make_settings(*, offline: bool, no_cache: bool) -> Settings:
    """Return the environment's settings with the command's own wishes on top."""
    from kinprint.sources.settings import Settings

    settings = Settings.from_env()
    return replace(
        settings, offline=offline or settings.offline, range_cache=None if no_cache else settings.range_cache
    )


def wants_json(style: str) -> bool:
    """Whether to print JSON: asked for, or nobody reads a terminal."""
    return style == "json" or (style == "auto" and not sys.stdout.isatty())


def split(text: str | None) -> tuple[str, ...]:
    """Return the names in a comma-separated list."""
    return tuple(part.strip() for part in text.split(",") if part.strip()) if text else ()
