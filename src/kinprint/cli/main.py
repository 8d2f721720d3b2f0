"""Run a command, and turn errors into messages and exit codes."""

import errno
import os
import sys
import warnings
from importlib import import_module
from importlib.util import find_spec
from io import TextIOWrapper

import click

from kinprint._util.cores import allow_forks
from kinprint._version import __version__
from kinprint.cli import (
    cache,
    calibrate,
    catalog,
    catalog_tree,
    compare,
    demo,
    fingerprint,
    inspect,
    report,
    scan,
    search,
    serve,
    study,
    tree,
    verify,
)
from kinprint.cli.help import HelpedGroup
from kinprint.cli.output import silence_stdout
from kinprint.errors import KinprintError, StorageError

INTERRUPTED = 130

BENCH = "bench"  # of the lab, which the product does not import: looked up by name, and absent where the lab is


class _Commands(HelpedGroup):
    """The commands of the product, and those of the lab where it is installed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *([BENCH] if find_spec("kinprint.lab") else [])])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == BENCH and find_spec("kinprint.lab"):
            command: click.Command = import_module("kinprint.lab.lineage.command").bench_command
            return command
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="kinprint")
def main() -> None:
    """Say from their weights whether one language model derives from another, how, and how sure we are."""


for command in (
    *(compare.compare_command, inspect.inspect_command, report.report_command, report.schema_command),
    *(verify.verify_command, fingerprint.fingerprint_command, study.study_command, tree.tree_command),
    *(calibrate.calibrate_command, cache.cache_command, demo.demo_command, catalog.catalog_command),
    *(scan.scan_command, search.search_command, serve.serve_command),
):
    main.add_command(command)
catalog.catalog_command.add_command(catalog_tree.tree_command)


def run() -> None:
    """Run the command line; every expected failure ends in a message on stderr and its documented exit code."""
    # Tests run in threads of our own; more threads inside each matrix product only get in each other's way.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    allow_forks()
    if not sys.warnoptions:  # what numpy warns of ends in a figure's status, not between the lines of a table
        warnings.simplefilter("ignore", RuntimeWarning)
    if None in (sys.stdin, sys.stdout, sys.stderr):
        _open_streams()
    if isinstance(sys.stdout, TextIOWrapper):  # a locale without our letters gets question marks, not a traceback
        sys.stdout.reconfigure(errors="replace")
    try:
        code = main.main(standalone_mode=False)
    except KinprintError as error:
        _say(f"error: {error.message}")
        if error.hint:
            _say(f"  next: {error.hint}")
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        _say("interrupted")
        sys.stderr.flush()
        os._exit(INTERRUPTED)  # threads may sit in a read; the cache writes atomically, so nothing is lost
    except OSError as error:  # what sources and files raise is a KinprintError; this is stdout itself
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        silence_stdout()
        _say(f"error: cannot write to stdout: {error.strerror}")
        _say("  next: free some space, or write elsewhere")
        sys.exit(StorageError.exit_code)
    sys.exit(code if isinstance(code, int) else 0)


def _open_streams() -> None:
    """Open nothing in the place of streams that were closed, before a file that is written gets their number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def _say(text: str) -> None:
    from kinprint._util.plain import printable

    click.echo(printable(text, 4000), err=True)
