"""Options that several commands share, and what they turn into."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click
from click.core import ParameterSource

from kinprint._util.sizes import parse_size
from kinprint.errors import BadReference
from kinprint.results.options import EACH, NUMBER, SWITCH, CommandOption, Options, options_of

if TYPE_CHECKING:
    from kinprint.cli.progress import ProgressLine
    from kinprint.sources.session import Session
    from kinprint.sources.settings import Settings


class Result(Protocol):
    """What has a JSON form."""

    def to_json(self) -> bytes:
        """Return it."""
        ...


F = TypeVar("F", bound=Callable[..., Any])
LANGUAGES = ("en", "ko")


def read_size(_context: click.Context, parameter: click.Parameter, value: str) -> int | None:
    """Turn 64MB into bytes, and "none" into no limit."""
    if value.lower() in ("none", "unlimited"):
        return None
    try:
        return parse_size(value)
    except BadReference as error:
        raise click.BadParameter(error.message, param=parameter) from error


# -- options of a comparison ---------------------------------------------------------------------------------------------


def comparison_options(*names: str, base: Options | None = None) -> Callable[[F], F]:
    """Add the options of comparisons, all or those named, and hand over as `chosen` those that the user gave.

    Parameters
    ----------
    names
        Fields of `Options`.
    base
        Where the defaults that help shows are taken from.
    """
    defaults = base or Options()

    def add(function: F) -> F:
        @functools.wraps(function)
        def packed(**given: Any) -> Any:
            context = click.get_current_context()
            values = {name: given.pop(name) for name, _ in options_of(Options, names or None)}
            chosen = {
                name: value
                for name, value in values.items()
                if context.get_parameter_source(name) is not ParameterSource.DEFAULT
            }
            return function(chosen=chosen, **given)

        for name, described in reversed(list(options_of(Options, names or None))):
            packed = _click_option(name, described, getattr(defaults, name))(packed)
        return packed  # type: ignore[return-value]

    return add


def _click_option(name: str, described: CommandOption, default: Any) -> Callable[[F], F]:
    def read(_context: click.Context, parameter: click.Parameter, value: Any) -> Any:
        try:
            return described.read(value)
        except BadReference as error:
            raise click.BadParameter(error.message, param=parameter) from error

    shown = described.text(default) if described.written != SWITCH else None
    return click.option(
        described.flag,
        name,
        callback=read,
        default=None if described.written == EACH else default if described.written in (NUMBER, SWITCH) else shown,
        show_default=shown is not None,
        is_flag=described.written == SWITCH,
        multiple=described.written == EACH,
        type=click.IntRange(described.least) if described.written == NUMBER else None,
        metavar=described.metavar,
        help=described.help,
    )


# -- how a command reads and prints ----------------------------------------------------------------------------------------


def _packing(name: str, kind: type, *options: Callable[[F], F]) -> Callable[[F], F]:
    """Return what adds options to a command, and hands their values over as one object called `name`."""

    def add(function: F) -> F:
        @functools.wraps(function)
        def packed(**given: Any) -> Any:
            made = kind(**{item.name: given.pop(item.name) for item in fields(kind)})
            return function(**{name: made}, **given)

        for option in reversed(options):
            packed = option(packed)
        return packed  # type: ignore[return-value]

    return add


@dataclass(frozen=True)
class Reading:
    """How a command reads models."""

    offline: bool
    no_cache: bool
    quiet: bool

    @property
    def settings(self) -> Settings:
        """The environment's settings, with the command's own wishes on top."""
        from kinprint.sources.settings import Settings

        settings = Settings.from_env()
        return replace(
            settings,
            offline=self.offline or settings.offline,
            range_cache=None if self.no_cache else settings.range_cache,
        )

    def progress(self) -> ProgressLine:
        """Return the line of progress, silent if nobody wants it."""
        from kinprint.cli.progress import ProgressLine

        return ProgressLine(enabled=False if self.quiet else None)

    @contextmanager
    def session(self) -> Iterator[tuple[Session, ProgressLine]]:
        """Open a session with a progress line."""
        from kinprint.sources.session import Session

        with self.progress() as line, Session(self.settings, on_traffic=line.traffic) as session:
            yield session, line


reading_options = _packing(
    "reading",
    Reading,
    click.option("--offline", is_flag=True, help="Use only what is on this machine (like HF_HUB_OFFLINE=1)."),
    click.option("--no-cache", is_flag=True, help="Neither use nor fill the range cache."),
    click.option("-q", "--quiet", is_flag=True, help="No progress."),
)
"""Adds the options of every command that reads models, handed over as `reading`."""


@dataclass(frozen=True)
class Printing:
    """How a command prints what it found."""

    style: str
    lang: str

    @property
    def json(self) -> bool:
        """Whether to print JSON: asked for, or nobody reads a terminal."""
        return self.style == "json" or (self.style == "auto" and not sys.stdout.isatty())

    def show(self, result: Result, **details: bool) -> None:
        """Print a result: JSON, or tables in a terminal."""
        from kinprint.cli.output import terminal, write_json
        from kinprint.render.forms import show

        if self.json:
            write_json(result.to_json())
        else:
            show(result, terminal(), lang=self.lang, **details)

    def show_plain(self, data: object, tables: Callable[..., None]) -> None:
        """Print plain data: JSON, or by a function that takes the console and the language."""
        from kinprint.cli.output import terminal, write_json
        from kinprint.render.forms import in_language

        if self.json:
            import orjson

            write_json(orjson.dumps(data, option=orjson.OPT_INDENT_2))
        else:
            in_language(tables, self.lang)(terminal())


format_option = click.option(
    "--format",
    "style",
    type=click.Choice(["auto", "table", "json"]),
    default="auto",
    help="auto: tables in a terminal, JSON when piped.",
)
printing_options = _packing(
    "printing",
    Printing,
    format_option,
    click.option(
        "--lang",
        type=click.Choice(LANGUAGES),
        default="en",
        show_default=True,
        help="Language of tables and pages; JSON holds data and is the same in each.",
    ),
)
"""Adds the options of every command that prints, handed over as `printing`."""
