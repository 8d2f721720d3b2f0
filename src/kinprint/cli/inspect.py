"""`kinprint inspect M`."""

from __future__ import annotations

import click

from kinprint.cli.options import shared, which_weights


@click.command("inspect")
@click.argument("model")
@click.option("--no-norms", is_flag=True, help="Read headers only, no norm weights.")
@which_weights
@shared
def inspect_command(
    model: str,
    no_norms: bool,
    bases: tuple[str, ...],
    files: tuple[str, ...],
    budget: int | None,
    style: str,
    offline: bool,
    no_cache: bool,
    quiet: bool,
) -> int:
    """Describe MODEL: architecture, tensors by role, norms by layer, and every tensor without a name."""
    from kinprint.cli.options import make_settings, wants_json
    from kinprint.cli.output import terminal, write_json
    from kinprint.cli.progress import ProgressLine
    from kinprint.model.inspection import inspect
    from kinprint.sources.session import Session

    settings = make_settings(offline=offline, no_cache=no_cache)
    with (
        ProgressLine(enabled=False if quiet else None) as line,
        Session(settings, budget_bytes=budget, on_traffic=line.traffic, bases=bases, files=files) as session,
    ):
        found = inspect(model, norms=not no_norms, session=session, progress=line.stage)
    if wants_json(style):
        write_json(found.to_json())
    else:
        from kinprint.render.terminal.report import print_inspection

        print_inspection(found, terminal())
    return 0
