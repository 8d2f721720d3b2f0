"""`kinprint inspect M`: describe one model."""

from typing import Any

import click

from kinprint.cli.help import MODEL, command
from kinprint.cli.options import Printing, Reading, comparison_options, printing_options, reading_options


@command("inspect")
@click.argument("model", type=MODEL)
@click.option("--no-norms", is_flag=True, help="Read headers only, no norm weights.")
@comparison_options("budget_bytes", "files", "bases")
@printing_options
@reading_options
def inspect_command(model: str, no_norms: bool, chosen: dict[str, Any], printing: Printing, reading: Reading) -> int:
    """Describe MODEL: architecture, tensors by role, norms by layer, and every tensor without a name."""
    from kinprint.model.inspection import inspect

    with reading.session() as (session, line):
        found = inspect(model, norms=not no_norms, session=session, progress=line.stage, **chosen)
    printing.show(found)
    return 0
