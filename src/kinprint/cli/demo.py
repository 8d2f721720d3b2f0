"""`kinprint demo`: compare tiny models that come with kinprint, and say what they teach."""

from pathlib import Path

import click

import kinprint
from kinprint.cli.help import command
from kinprint.cli.options import Reading, language_option
from kinprint.cli.output import terminal
from kinprint.cli.outputs import FOLDER, check_target, save
from kinprint.errors import NotFound
from kinprint.render.forms import make

PAIRS = ("unrelated", "finetune")


@command("demo")
@click.option("--out", type=FOLDER, default=Path("kinprint-demo"), show_default=True, help="Folder for the pages.")
@language_option("Language.")
def demo_command(out: Path, lang: str) -> int:
    """Compare three tiny models that come with kinprint, offline, and say why a cosine of 0.99 means nothing."""
    from kinprint.comparison.pipeline import compare
    from kinprint.render.terminal.answer import print_lesson

    models, pages = bundled_models(), {name: out / f"{name}.html" for name in PAIRS}
    for page in pages.values():
        check_target(page, (out,))
    with Reading(offline=True, no_cache=True, quiet=False).session() as (session, line):
        found = {name: compare(models / "base", models / name, session=session, progress=line.stage) for name in PAIRS}
    print_lesson(found, str(models), terminal(piped_width=None), lang=lang)
    for name, page in pages.items():
        save(page, make(found[name], "html", lang=lang), made=True)
    return 0


def bundled_models() -> Path:
    """Return the folder of the models, from here if it is below: in the package, as wheels have it, or in the clone."""
    package = Path(kinprint.__file__).parent
    found = next(filter(Path.is_dir, (package / "demo_models", package.parents[1] / "demo" / "models")), None)
    if found is None:
        raise NotFound("this installation has no models to compare", hint="install kinprint from its wheel or clone")
    return found.relative_to(Path.cwd()) if found.is_relative_to(Path.cwd()) else found
