"""`kinprint cache`: show or delete what is kept of remote files."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from kinprint.cli.help import HelpedGroup
from kinprint.cli.options import Printing, format_option

if TYPE_CHECKING:
    from kinprint.sources.cache import RangeCache

_OFF = "the range cache is switched off (KINPRINT_CACHE)"


@click.group("cache", cls=HelpedGroup, invoke_without_command=True)
@format_option
@click.pass_context
def cache_command(context: click.Context, style: str) -> None:
    """Show the range cache: where it is, what it holds, how large it may grow."""
    if context.invoked_subcommand is not None:
        return
    from kinprint.render.terminal.cache import print_cache

    cache, printing = _open(), Printing(style, "en")
    if cache is None and not printing.json:
        click.echo(_OFF, err=True)
        return
    stored = [file for file in cache.files() if file.ranges] if cache else []
    facts = {
        "folder": str(cache.root) if cache else None,
        "cap_bytes": cache.cap_bytes if cache else None,
        "stored_bytes": sum(file.stored_bytes for file in stored),
        "files": [{**file.about, "ranges": file.ranges, "stored_bytes": file.stored_bytes} for file in stored],
    }
    printing.show_plain(facts, partial(print_cache, facts))


@cache_command.command("clear")
def clear_command() -> None:
    """Delete everything the range cache holds."""
    from kinprint._util.sizes import format_size

    cache = _open()
    if cache is None:
        click.echo(_OFF, err=True)
        return
    click.echo(f"freed {format_size(cache.clear())} in {cache.root}", err=True)


def _open() -> RangeCache | None:
    from kinprint.sources.cache import RangeCache
    from kinprint.sources.settings import Settings

    settings = Settings.from_env()
    return RangeCache(settings.range_cache, settings.range_cache_cap_bytes) if settings.range_cache else None
