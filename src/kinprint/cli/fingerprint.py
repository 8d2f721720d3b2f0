"""`kinprint fingerprint M`, and `kinprint compare` where a side is a fingerprint file."""

from __future__ import annotations

from pathlib import Path

import click

from kinprint.cli.options import Reading, shared, split, which_weights
from kinprint.errors import BadSelection

SUFFIX = ".kfp"
RELATED_CODE = 14


def is_fingerprint(reference: str) -> bool:
    """Whether the text names a fingerprint file."""
    return reference.endswith(SUFFIX)


def for_methods(budget: int | None, methods: str | None, *references: str) -> int | None:
    """Lift the budget that nobody gave where methods read whole matrices of models on this machine."""
    from click.core import ParameterSource

    given = click.get_current_context().get_parameter_source("budget") is not ParameterSource.DEFAULT
    return budget if given or not methods or not all(Path(text).exists() for text in references) else None


@click.command("fingerprint")
@click.argument("model", required=False)
@click.option(
    "-o", "--out", type=click.Path(path_type=Path, dir_okay=False), help="File to write (default: NAME.kfp here)."
)
@click.option("--method", "methods", metavar="NAMES", help="Only these methods, comma-separated, or all.")
@click.option("--list", "listed", is_flag=True, help="List all methods: what they need, what cannot hide from them.")
@which_weights
@shared
def fingerprint_command(
    model: str | None,
    out: Path | None,
    methods: str | None,
    listed: bool,
    bases: tuple[str, ...],
    files: tuple[str, ...],
    budget: int | None,
    style: str,
    offline: bool,
    no_cache: bool,
    quiet: bool,
) -> int:
    """Write the fingerprint of MODEL: a small file that others can compare with, without the weights."""
    if listed:
        return _list_methods(style)
    if model is None:
        raise click.UsageError("give a MODEL, or --list")
    from kinprint.cli.options import make_settings, wants_json
    from kinprint.cli.output import terminal, write_json
    from kinprint.cli.progress import ProgressLine
    from kinprint.fingerprints.file import write_fingerprint
    from kinprint.fingerprints.report import make_fingerprint
    from kinprint.fingerprints.run import chosen_methods
    from kinprint.sources.session import Session

    chosen = chosen_methods(split(methods)) if methods else None
    target = out or Path(f"{_stem(model)}{SUFFIX}")
    if not is_fingerprint(target.name):
        raise BadSelection(f"cannot write {target.name!r}", hint=f"a fingerprint's name ends in {SUFFIX}")
    with (
        ProgressLine(enabled=False if quiet else None) as line,
        Session(
            make_settings(offline=offline, no_cache=no_cache),
            budget_bytes=for_methods(budget, "all", model),
            on_traffic=line.traffic,
            bases=bases,
            files=files,
        ) as session,
    ):
        found = make_fingerprint(model, session, chosen, line.stage)
        read = session.bytes_delivered
    size = write_fingerprint(target, found)
    if wants_json(style):
        import orjson

        shown = {"file": str(target), "bytes": size, "bytes_read": read, "description": found.description}
        write_json(orjson.dumps(shown, option=orjson.OPT_INDENT_2))
    else:
        from kinprint.render.terminal.fingerprints import print_fingerprint

        print_fingerprint(found.description, target.name, size, read, terminal())
    return 0


def _stem(reference: str) -> str:
    """Name the file after the model: the last part of its path or address."""
    last = reference.rstrip("/").rsplit("/", 1)[-1].split("@", 1)[0]
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in last).strip(".") or "model"


def _list_methods(style: str) -> int:
    from kinprint.cli.options import wants_json
    from kinprint.cli.output import terminal, write_json
    from kinprint.fingerprints.all_methods import METHODS

    facts = [
        {
            "method": method.name,
            "title": method.title,
            "version": method.version,
            "needs": method.needs,
            "portable": method.portable,
            "invariant_to": method.invariant_to,
            "summary": method.summary,
            "references": method.references,
        }
        for method in METHODS.values()
    ]
    if wants_json(style):
        import orjson

        write_json(orjson.dumps(facts, option=orjson.OPT_INDENT_2))
    else:
        from kinprint.render.terminal.fingerprints import print_catalogue

        print_catalogue(facts, terminal())
    return 0


def compare_files(a: str, b: str, methods: tuple[str, ...], out: Path | None, reading: Reading, *, seed: int) -> int:
    """Compare where at least one side is a fingerprint file; return the exit code."""
    from kinprint.cli.judging import EXIT_CODES
    from kinprint.cli.options import wants_json
    from kinprint.cli.output import terminal, write_file, write_json
    from kinprint.fingerprints.report import RELATED, compare_fingerprints

    with reading.session(for_methods(reading.budget, "all", a, b)) as (session, line):
        report = compare_fingerprints(a, b, methods, session, seed=seed, tell=line.stage)
    data = report.to_json()
    if out is not None:
        click.echo(f"wrote {write_file(out, 'report.json', data)}", err=True)
    if wants_json(reading.style):
        write_json(data)
    else:
        from kinprint.render.terminal.fingerprints import print_fingerprint_report

        print_fingerprint_report(report, terminal())
    return RELATED_CODE if report.class_ == RELATED else EXIT_CODES[report.class_]
