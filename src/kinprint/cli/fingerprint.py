"""`kinprint fingerprint M`: write a fingerprint file; and `kinprint compare` where a side is one."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from kinprint.cli.help import MODEL, command
from kinprint.cli.options import Printing, Reading, comparison_options, printing_options, reading_options
from kinprint.cli.outputs import FILE, Outputs, check_target, save
from kinprint.errors import BadSelection

SUFFIX = ".kfp"


def is_fingerprint(reference: str) -> bool:
    """Return whether the text names a fingerprint file."""
    return reference.endswith(SUFFIX)


@command("fingerprint")
@click.argument("model", required=False, type=MODEL)
@click.option("-o", "--out", type=FILE, help="File to write (default: NAME.kfp here).")
@click.option("--method", "methods", metavar="NAMES", help="Only these methods, comma-separated, or all.")
@click.option("--list", "listed", is_flag=True, help="List all methods: what they need, what cannot hide from them.")
@comparison_options("budget_bytes", "files", "bases")
@printing_options
@reading_options
def fingerprint_command(
    model: str | None,
    out: Path | None,
    methods: str | None,
    listed: bool,
    chosen: dict[str, Any],
    printing: Printing,
    reading: Reading,
) -> int:
    """Write the fingerprint of MODEL: a small file that others can compare with, without the weights."""
    if listed:
        return _list_methods(printing)
    if model is None:
        raise click.UsageError("give a MODEL, or --list")
    from kinprint.fingerprints.file import write_fingerprint
    from kinprint.fingerprints.report import make_fingerprint
    from kinprint.render.terminal.fingerprints import print_fingerprint

    if methods:
        chosen |= {"methods": methods}
    target = out or Path(f"{_stem(model)}{SUFFIX}")
    if not is_fingerprint(target.name):
        raise BadSelection(f"cannot write {target.name!r}", hint=f"a fingerprint's name ends in {SUFFIX}")
    check_target(target)
    with reading.session() as (session, line):
        found = make_fingerprint(model, session=session, progress=line.stage, **chosen)
        read = session.bytes_delivered
    size = write_fingerprint(target, found)
    shown = {"file": str(target), "bytes": size, "bytes_read": read, "description": found.description}
    printing.show_plain(shown, partial(print_fingerprint, found.description, target.name, size, read))
    return 0


def _stem(reference: str) -> str:
    """Name the file after the model: the last part of its path or address."""
    last = reference.rstrip("/").rsplit("/", 1)[-1].split("@", 1)[0]
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in last).strip(".") or "model"


def _list_methods(printing: Printing) -> int:
    from kinprint.fingerprints.methods import METHODS
    from kinprint.render.terminal.fingerprints import print_catalogue

    shown = ("title", "version", "needs", "portable", "invariant_to", "summary", "references")
    facts = [{"method": method.name} | {name: getattr(method, name) for name in shown} for method in METHODS.values()]
    printing.show_plain(facts, partial(print_catalogue, facts))
    return 0


def compare_files(
    a: str, b: str, chosen: dict[str, Any], out: Path | None, printing: Printing, reading: Reading
) -> str:
    """Compare where at least one side is a fingerprint file, print what was found, and return its class."""
    from kinprint.fingerprints.report import compare_fingerprints

    Outputs(out).check()
    with reading.session() as (session, line):
        report = compare_fingerprints(a, b, session=session, progress=line.stage, **chosen)
    if out is not None:
        save(out / "report.json", report.to_json(), made=True)
    printing.show(report)
    return report.class_
