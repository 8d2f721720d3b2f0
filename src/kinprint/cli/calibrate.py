"""`kinprint calibrate M…`: build an empirical null from independent models."""

from pathlib import Path
from typing import Any

import click

from kinprint._util.files import is_folder
from kinprint.cli.help import MODEL, command
from kinprint.cli.options import Printing, Reading, comparison_options, format_option, reading_options
from kinprint.cli.output import write_json
from kinprint.cli.outputs import FILE, check_target, save
from kinprint.refs import is_weights


@command("calibrate")
@click.argument("models", nargs=-1, required=True, type=MODEL)
@click.option("--out", type=FILE, default=Path("null.json"), show_default=True, help="Where to write the null.")
@click.option("--name", help="How reports name this null; by default after the number of models.")
@comparison_options("budget_bytes")
@format_option
@reading_options
def calibrate_command(
    models: tuple[str, ...], out: Path, name: str | None, chosen: dict[str, Any], style: str, reading: Reading
) -> int:
    """Build an empirical null from MODELS, all known to be independent of each other.

    A folder that holds no weights itself stands for the models in it.

    Tests that align before they look (neuron matching) need to know how much unrelated models agree by chance. compare uses
    the result with --null. Models that turn out to be related are refused.
    """
    from kinprint.evidence.calibration import calibrate

    models = tuple(found for reference in models for found in _expanded(reference))
    if len(models) < 2:
        raise click.UsageError("calibrate needs at least two models")
    check_target(out)
    with reading.session() as (session, line):
        null = calibrate(models, name=name, session=session, progress=line.stage, **chosen)
    save(out, null.to_json())
    if Printing(style, "en").json:
        write_json(null.to_json())
    else:
        for sample in null.samples:
            click.echo(
                f"{sample.statistic}: {sample.pairs} pairs of layers, mean {sample.mean:.4f}, sd {sample.sd:.4f}, "
                f"largest {sample.largest:.4f}"
            )
    return 0


def _expanded(reference: str) -> list[str]:
    """Return the model itself, or the models in a folder of models."""
    folder = Path(reference)
    if not is_folder(folder) or _holds_weights(folder):
        return [reference]
    inside = sorted(str(child) for child in folder.iterdir() if child.is_dir() and _holds_weights(child))
    return inside or [reference]


def _holds_weights(folder: Path) -> bool:
    return any(is_weights(child.name) for child in folder.iterdir())
