"""Define the options that several commands share, each group handed over as one object."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from kinprint._util.files import is_there
from kinprint._util.records import dataclass
from kinprint._util.sizes import parse_size
from kinprint.cli.help import MODEL, in_group
from kinprint.cli.output import terminal, write_json
from kinprint.errors import BadReference, NotFound
from kinprint.results.options import BUDGET_HELP, EACH, NUMBER, SWITCH, CommandOption, Options, options_of, written_size
from kinprint.text import LANGUAGES

if TYPE_CHECKING:
    from kinprint.catalog.store import Catalog
    from kinprint.cli.progress import ProgressLine
    from kinprint.sources.session import Session
    from kinprint.sources.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])


def packing(
    name: str, pack: Callable[[dict[str, Any]], Any], title: str, *options: Callable[[F], F]
) -> Callable[[F], F]:
    """Return a decorator that adds options to a command, under `title`; `pack` makes one argument called `name` of them."""

    def add(function: F) -> F:
        @functools.wraps(function)
        def packed(**given: Any) -> Any:
            made = pack(given)
            return function(**{name: made}, **given)

        return in_group(title, *options)(packed)  # type: ignore[arg-type]

    return add


def _reading(read: Callable[[Any], Any]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return a callback that reads the value of an option, and names the option in errors."""

    def callback(_context: click.Context, parameter: click.Parameter, value: Any) -> Any:
        try:
            return read(value)
        except BadReference as error:
            raise click.BadParameter(error.message, param=parameter) from error

    return callback


read_size = _reading(lambda value: None if value.lower() in ("none", "unlimited") else parse_size(value))
"""Turns 64MB into bytes, and "none" into no limit."""

LEAST_MEMORY = 200_000_000  # of a process, which takes some 130 MB with its libraries: with less models had the blame


def _memory(value: str) -> int | None:
    if value.lower() in ("none", "unlimited"):
        return None
    if (size := parse_size(value)) < LEAST_MEMORY:  # 0 would be no limit at all
        raise BadReference(f"{value}: expected {written_size(LEAST_MEMORY)} or more, which a process needs for itself")
    return size


read_memory = _reading(_memory)
"""The same for the memory of a process."""


def comparison_options(*names: str, base: Options | None = None, budget_of: str = "in all") -> Callable[[F], F]:
    """Add the options of comparisons, all or those named, with the defaults of `base`; `chosen` holds those that were given.

    `budget_of` says what the budget limits, where it is not the whole command: "of each model".
    """
    defaults = base or Options()
    described = dict(options_of(Options, names or None))
    if "budget_bytes" in described:
        described["budget_bytes"] = replace(described["budget_bytes"], help=BUDGET_HELP.format(of=budget_of))

    def pack(given: dict[str, Any]) -> dict[str, Any]:
        context = click.get_current_context()
        values = {name: given.pop(name) for name in described}
        default = ParameterSource.DEFAULT
        return {name: value for name, value in values.items() if context.get_parameter_source(name) is not default}

    options = (_click_option(name, option, getattr(defaults, name)) for name, option in described.items())
    return packing("chosen", pack, "What is read and measured", *options)


def _click_option(name: str, described: CommandOption, default: Any) -> Callable[[F], F]:
    shown = described.text(default) if described.written != SWITCH else None
    path = described.models or described.metavar == "FILE"
    made: Callable[[F], F] = click.option(
        described.flag,
        name,
        callback=_reading(described.read),
        default=None if described.written == EACH else default if described.written in (NUMBER, SWITCH) else shown,
        show_default=shown is not None,
        is_flag=described.written == SWITCH,
        multiple=described.written == EACH,
        type=click.IntRange(described.least) if described.written == NUMBER else MODEL if path else None,
        metavar=described.metavar,
        help=described.help,
    )
    return in_group("Further models and files", made) if path or described.written == EACH else made


def into(kind: type) -> Callable[[dict[str, Any]], Any]:
    """Return how to make a `kind` of the options that are called like its fields."""
    return lambda given: kind(**{item.name: given.pop(item.name) for item in fields(kind)})


@dataclass(frozen=True)
class Reading:
    """How a command reads models."""

    offline: bool
    no_cache: bool
    quiet: bool

    @property
    def settings(self) -> Settings:
        """The environment's settings, overridden by the command's options."""
        from kinprint.sources.settings import Settings

        settings = Settings.from_env()
        cache = None if self.no_cache else settings.range_cache
        return replace(settings, offline=self.offline or settings.offline, range_cache=cache)

    def progress(self) -> ProgressLine:
        """Return the progress line, silent with --quiet."""
        from kinprint.cli.progress import ProgressLine

        return ProgressLine(enabled=False if self.quiet else None)

    @contextmanager
    def session(self) -> Iterator[tuple[Session, ProgressLine]]:
        """Open a session with a progress line."""
        from kinprint._util.arenas import one_arena
        from kinprint.sources.session import Session

        one_arena()
        with self.progress() as line, Session(self.settings, on_traffic=line.traffic) as session:
            yield session, line


reading_options = packing(
    "reading",
    into(Reading),
    "Network and messages",
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
        """Whether to print JSON."""
        return self.style == "json"

    def show(self, result: Any, **details: bool) -> None:
        """Print a result: JSON, or tables."""
        from kinprint.render.forms import show

        if self.json:
            write_json(result.to_json())
        else:
            show(result, terminal(), lang=self.lang, **details)

    def show_plain(self, data: object, tables: Callable[..., None]) -> None:
        """Print plain data: JSON, or by a function that takes the console and the language."""
        from kinprint.render.forms import in_language

        if self.json:
            import orjson

            write_json(orjson.dumps(data, option=orjson.OPT_INDENT_2))
        else:
            in_language(tables, self.lang)(terminal())


def language_option(about: str) -> Callable[[F], F]:
    """Return the option that chooses the language."""
    return click.option("--lang", type=click.Choice(LANGUAGES), default="en", show_default=True, help=about)


format_option = click.option(
    *("--format", "style"),
    type=click.Choice(["text", "table", "json"]),
    default="text",
    show_default=True,
    help="text: a verdict in twenty lines, of other results their tables; table: all tables; json: data.",
)
printing_options = packing(
    "printing",
    into(Printing),
    "What is printed",
    format_option,
    language_option("Language of tables and pages; JSON holds data and is the same in each."),
)
"""Adds the options of every command that prints, handed over as `printing`."""
showing_options = packing(
    "showing",
    lambda given: {name: given.pop(name) for name in ("full", "brief", "explain")},
    "What is printed",
    click.option("--full", is_flag=True, help="Print all tables, not the answer alone; in JSON every measurement."),
    click.option("--summary", "brief", is_flag=True, help="Print the tables, but not every layer and metric."),
    click.option(
        "--explain",
        is_flag=True,
        help="Print why: every test, the layer map, controls, and every rule with its inputs.",
    ),
)
"""Adds the options that say how much of a comparison is printed, handed over as `showing`."""


@dataclass(frozen=True)
class ChosenCatalog:
    """Which catalog a command works on."""

    catalog: str | None

    def open(self, *, read_only: bool = False, make: bool = True) -> Catalog:
        """Open the catalog; one that does not exist is made, unless it is to be read, or without `make`."""
        from kinprint.catalog.store import open_catalog

        return open_catalog(self.catalog, read_only=read_only, make=make)

    def open_if_there(self) -> Catalog | None:
        """Open the catalog for writing; None, and nothing is made, if there is none in its place, which can be written to."""
        from kinprint.catalog.store import find_catalog
        from kinprint.cli.outputs import check_target

        place = find_catalog(self.catalog)
        if isinstance(place, Path) and not is_there(place):
            check_target(place, place.parents)
            return None
        try:
            return self.open(make=False)
        except NotFound:  # a database without tables; one that is not there is found out when they are made
            if isinstance(place, Path):
                raise
            return None

    @property
    def place(self) -> str:
        """Return where the catalog is, or will be, for messages."""
        from kinprint._util.plain import printable
        from kinprint.catalog.addresses import shown_address
        from kinprint.catalog.file import PATH_CHARS
        from kinprint.catalog.store import find_catalog

        place = find_catalog(self.catalog)
        return shown_address(place) if isinstance(place, str) else printable(str(place), PATH_CHARS)


catalog_option = packing(
    "known",
    into(ChosenCatalog),
    "Which catalog",
    click.option(
        "--catalog",
        metavar="FILE|URL",
        help="A file, or postgresql://… for a shared one; default: KINPRINT_CATALOG, or catalog.db in your data folder.",
    ),
)
"""Adds the option of every command that touches a catalog, handed over as `known`."""
