"""`kinprint cache`: what is kept of remote files, and how to be rid of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kinprint.cli.options import Printing, format_option

if TYPE_CHECKING:
    from kinprint.sources.cache import RangeCache


@click.group("cache", invoke_without_command=True)
@format_option
@click.pass_context
def cache_command(context: click.Context, style: str) -> None:
    """Show the range cache: where it is, what it holds, how large it may grow."""
    if context.invoked_subcommand is None:
        _show(style)


@cache_command.command("clear")
def clear_command() -> None:
    """Delete everything the range cache holds."""
    from kinprint._util.sizes import format_size

    cache = _open()
    if cache is None:
        click.echo("the range cache is switched off (KINPRINT_CACHE)", err=True)
        return
    click.echo(f"freed {format_size(cache.clear())} in {cache.root}", err=True)


def _open() -> RangeCache | None:
    from kinprint.sources.cache import RangeCache
    from kinprint.sources.settings import Settings

    settings = Settings.from_env()
    return RangeCache(settings.range_cache, settings.range_cache_cap_bytes) if settings.range_cache else None


def _show(style: str) -> None:
    import orjson

    from kinprint.cli.output import terminal, write_json

    cache = _open()
    files = cache.files() if cache else []
    stored = [file for file in files if file.ranges]
    if Printing(style, "en").json:
        facts = {
            "folder": str(cache.root) if cache else None,
            "cap_bytes": cache.cap_bytes if cache else None,
            "stored_bytes": sum(file.stored_bytes for file in stored),
            "files": [{**file.about, "ranges": file.ranges, "stored_bytes": file.stored_bytes} for file in stored],
        }
        write_json(orjson.dumps(facts, option=orjson.OPT_INDENT_2))
        return
    if cache is None:
        click.echo("the range cache is switched off (KINPRINT_CACHE)", err=True)
        return
    from kinprint.render.terminal.cache import print_cache

    kept = [(file.about, file.ranges, file.stored_bytes) for file in stored]
    print_cache(str(cache.root), cache.cap_bytes, kept, terminal())
