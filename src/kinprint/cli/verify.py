"""`kinprint verify BUNDLE`: check an evidence bundle."""

import re
import shlex
from pathlib import Path

import click

from kinprint.cli.help import command
from kinprint.cli.options import Printing, Reading, printing_options, read_size
from kinprint.errors import FormatError

_LOOK = 200
_REPORT = re.compile(rb'\s*\{\s*"schema"\s*:\s*"kinprint\.(report|pairs)"')


@command("verify")
@click.argument("bundle", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--offline", is_flag=True, help="Use the bytes in the bundle, and ask no source for them.")
@click.option("--use-cache", is_flag=True, help="Let ranges in the caches of this machine stand for the sources.")
@click.option("--no-cache", is_flag=True, hidden=True, help="As without --use-cache.")
@click.option(
    "--allow-local",
    is_flag=True,
    help="Read paths outside the current folder and ask servers of the own network, if the bundle names them.",
)
@click.option(
    "--max-size",
    callback=read_size,
    default="4GiB",
    show_default=True,
    metavar="SIZE",
    help="Refuse a bundle that is larger than this when unpacked; none for no limit.",
)
@printing_options
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def verify_command(
    bundle: Path,
    offline: bool,
    use_cache: bool,
    no_cache: bool,
    allow_local: bool,
    max_size: int | None,
    quiet: bool,
    printing: Printing,
) -> int:
    """Check BUNDLE, an evidence bundle written by compare --bundle.

    Reads every recorded range again where it came from (with --offline: from the bundle), checks every SHA-256, computes
    every figure of the report anew, and names whatever does not agree.

    A bundle names what to read. Paths outside the current folder and servers of this machine's own network are left alone
    unless --allow-local allows them. The caches of this machine are not used unless --use-cache allows it.
    """
    from kinprint.bundle import verify_bundle

    _refuse_report(bundle)
    reading = Reading(offline, no_cache, quiet)
    with reading.progress() as line:
        found = verify_bundle(
            bundle,
            offline=offline,
            settings=reading.settings,
            max_bytes=max_size,
            allow_local=allow_local,
            use_cache=use_cache and not no_cache,
            announce=lambda said: click.echo(said, err=True),
            progress=line.stage,
        )
    printing.show(found)
    return found.exit_code


def _refuse_report(file: Path) -> None:
    """Refuse a report: easily taken for a bundle, but with nothing to check it against."""
    try:
        with file.open("rb") as opened:
            start = opened.read(_LOOK)
    except OSError:
        return
    if _REPORT.match(start):
        raise FormatError(
            f"{file}: a report, not an evidence bundle, so there is nothing to check it against",
            hint=f"{shlex.join(['kinprint', 'report', str(file)])} shows it; kinprint compare A B --bundle FILE writes a bundle",
        )
