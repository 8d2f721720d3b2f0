"""`kinprint serve`: the pages where people look models up; `kinprint serve keys`: who may start jobs by the API."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from kinprint.cli.help import HelpedGroup, in_group
from kinprint.cli.options import read_size
from kinprint.cli.outputs import FILE, FOLDER
from kinprint.errors import NotFound, imported

MAY_START = ("nobody", "keys", "anyone")  # kinprint.serve.options says what they mean
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_NAME = 60  # characters of a key's name


def _data_folder() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser() / "kinprint" / "serve"


folder_option = click.option(
    "--folder", type=FOLDER, help="Where jobs, results and keys are kept; by default in your data folder."
)
state_option = click.option(
    "--state",
    envvar="KINPRINT_SERVE_STATE",
    metavar="postgresql://…",
    help="Database that keeps jobs and keys; by default a file in the folder.",
)


@click.group("serve", cls=HelpedGroup, invoke_without_command=True)
@in_group(
    "Where",
    click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at."),
    click.option(
        "--port", type=click.IntRange(0, 65535), default=8377, show_default=True, help="Port; 0 for any free."
    ),
    click.option(
        "--public-host",
        "names",
        multiple=True,
        metavar="NAME",
        help="Name under which people ask for it, behind a proxy.",
    ),
    click.option("--trusted-proxy", "proxies", multiple=True, metavar="ADDRESS", help="Proxy that says who asks."),
    folder_option,
    state_option,
)
@in_group(
    "What strangers may do",
    click.option(
        "--jobs",
        "may_start",
        type=click.Choice(MAY_START),
        help="Who may start comparisons: by default anyone on this machine, and nobody (read only) at another --host.",
    ),
    click.option("--local", type=FOLDER, metavar="DIR", help="Models of this folder may be named; no other path may."),
    click.option("--hub-token", is_flag=True, help="Jobs use your token of the hub: anyone sees what it can read."),
    click.option(
        "--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="Jobs that run at a time."
    ),
    click.option(
        "--budget", "budget_bytes", default="128MB", show_default=True, callback=read_size, help="Bytes of a job."
    ),
    click.option(
        "--memory", "memory_bytes", default="4GiB", show_default=True, callback=read_size, help="Memory of a job."
    ),
    click.option("--deadline", type=click.FloatRange(1), default=300, show_default=True, help="Seconds of a job."),
    click.option(
        "--rate",
        type=click.IntRange(1),
        default=1200,
        show_default=True,
        help="Pages a minute that one client may ask for.",
    ),
    click.option(
        "--write-rate",
        type=click.IntRange(1),
        default=30,
        show_default=True,
        help="Forms a minute that one client may send.",
    ),
)
@click.option(
    "--catalog", metavar="CATALOG", help="Catalog to search, as kinprint catalog takes it; without it, no search."
)
@click.option(
    "--families", type=FILE, help="Graph that kinprint catalog tree --json wrote; without it, what cards declare."
)
@click.pass_context
def serve_command(context: click.Context, /, **given: Any) -> int:
    """Serve pages on which people compare models and look them up, on this machine only unless --host says otherwise.

    Jobs run in processes of their own, --workers of them at a time; results are kept and have permanent addresses. Only models of
    the hub can be named, and those of --local. Behind a proxy give --public-host and --trusted-proxy (docs/serve.md).
    """
    if context.invoked_subcommand is not None:
        context.obj = given
        return 0
    imported("fastapi", "kinprint serve", extra="serve")
    from kinprint.serve.options import LOOPBACK, Limits, ServeOptions
    from kinprint.serve.run import serve

    here = given["host"] in _LOOPBACK
    host = f"[{given['host']}]" if ":" in given["host"] else given["host"]
    for size in ("budget_bytes", "memory_bytes"):
        if not given[size]:  # no memory at all would be no limit to its process
            raise click.UsageError("a job of a stranger's has a limit: give a size")
    limits = Limits(
        workers=given["workers"],
        job_s=given["deadline"],
        job_memory_bytes=given["memory_bytes"],
        budget_bytes=given["budget_bytes"],
        reads_per_minute=given["rate"],
        writes_per_minute=given["write_rate"],
    )
    options = ServeOptions(
        folder=given["folder"] or _data_folder(),
        hosts=(*LOOPBACK, host, *given["names"]),
        may_start=given["may_start"] or ("anyone" if here and not given["names"] else "nobody"),
        local=_checked(given["local"]),
        catalog=_catalog(given["catalog"]),
        families=_graph(given["families"]),
        state=_address(given["state"]),
        hub_token=given["hub_token"],
        proxies=given["proxies"],
        limits=limits,
    )
    serve(options, given["host"], given["port"], lambda address: click.echo(f"kinprint serves {address}", err=True))
    return 0


def _catalog(ref: str | None) -> str | None:
    """Return a catalog that jobs find from wherever they run; NotFound if there is none."""
    if ref is None:
        return None
    from kinprint.catalog.store import open_catalog

    with open_catalog(ref, read_only=True):
        return ref if "://" in ref else str(Path(ref).expanduser().resolve())


def _graph(file: Path | None) -> Path | None:
    """Return a graph's file that can be read; a KinprintError if it cannot."""
    if file is not None:
        from kinprint._util.files import read_whole
        from kinprint.results.graph import FamilyGraph
        from kinprint.results.result import MOST_BYTES

        FamilyGraph.from_json(read_whole(file, MOST_BYTES))
    return file


def _checked(local: Path | None) -> Path | None:
    if local is not None and not local.is_dir():
        raise NotFound(f"no such folder: {local}", hint="--local names a folder of models")
    return local


@serve_command.group("keys", cls=HelpedGroup)
def keys_command() -> None:
    """Keys that programs start jobs with; the server keeps their digests only."""


@keys_command.command("add")
@click.argument("name")
@folder_option
@state_option
@click.pass_context
def add_command(context: click.Context, name: str, folder: Path | None, state: str | None) -> int:
    """Make a key called NAME, and print it once."""
    if not name.isprintable() or len(name) > _NAME:
        raise click.UsageError(f"a key's name has at most {_NAME} characters")
    click.echo(_state(context, folder, state).add_key(name))
    click.echo("this is the only time that the key is shown", err=True)
    return 0


@keys_command.command("list")
@folder_option
@state_option
@click.pass_context
def list_command(context: click.Context, folder: Path | None, state: str | None) -> int:
    """List the names of all keys."""
    for name, added in _state(context, folder, state).all_keys():
        click.echo(f"{name}\t{datetime.fromtimestamp(added, UTC):%Y-%m-%d}")
    return 0


@keys_command.command("remove")
@click.argument("name")
@folder_option
@state_option
@click.pass_context
def remove_command(context: click.Context, name: str, folder: Path | None, state: str | None) -> int:
    """Remove the key called NAME: from now on it starts nothing."""
    if not _state(context, folder, state).remove_key(name):
        raise NotFound(f"there is no key named {name!r}", hint="kinprint serve keys list shows all")
    return 0


def _state(context: click.Context, folder: Path | None, state: str | None) -> Any:
    from kinprint.serve.state import open_state

    return open_state(folder or context.obj["folder"] or _data_folder(), _address(state or context.obj["state"]))


def _address(state: str | None) -> str | None:
    """Return the address of a database; a password in it is not repeated."""
    from kinprint.catalog.addresses import SCHEMES

    if state and not state.startswith(SCHEMES):
        raise click.UsageError("--state names a database: postgresql://user@host/database")
    return state or None
