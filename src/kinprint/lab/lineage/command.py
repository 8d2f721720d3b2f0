"""Define the command `kinprint bench lineage`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kinprint.cli.help import HelpedGroup
from kinprint.results.options import split_names

if TYPE_CHECKING:
    from kinprint.lab.lineage.scoring import AttackScore

DEFAULT_LIMIT, SLOW_LIMIT = 3, 1
NULL_IS_OF = "Tiny Llama models, really trained; see docs/lineage.md."
FOLDER = click.Path(path_type=Path, file_okay=False)


@click.group("bench", cls=HelpedGroup)
def bench_command() -> None:
    """Benchmarks that anyone can repeat."""


@bench_command.command("lineage")
@click.option(
    "--full", is_flag=True, help="Train the full zoo (up to an hour on two cores, once; needs the extra torch)."
)
@click.option(
    "--zoo",
    "place",
    type=FOLDER,
    help="Folder of a zoo: opened if it holds one, else built there (default: in the cache folder).",
)
@click.option(
    "--out", type=FOLDER, default=Path("lineage-report"), show_default=True, help="Where pages and kept results go."
)
@click.option(
    "--method", "methods", default="all", show_default=True, metavar="NAMES", help="Only these, comma-separated."
)
@click.option("--no-verdict", is_flag=True, help="Leave out the row of compare --deep, which takes longest.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=DEFAULT_LIMIT,
    show_default=True,
    help="Unrelated bases held against each member; one for the slowest methods.",
)
@click.option("--every-pair", is_flag=True, help="Hold every member against every base by every method: hours.")
@click.option("--workers", type=click.IntRange(1, 64), default=2, show_default=True, help="Processes.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of everything drawn in methods.")
@click.option("--write-null", type=click.Path(path_type=Path, dir_okay=False), hidden=True)
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def lineage_command(
    full: bool,
    place: Path | None,
    out: Path,
    methods: str,
    no_verdict: bool,
    limit: int,
    every_pair: bool,
    workers: int,
    seed: int,
    write_null: Path | None,
    quiet: bool,
) -> int:
    """Run every fingerprint method on every pair of a zoo of small, really-trained models with known relations.

    Without --full a smaller zoo is trained in a few minutes. Both are kept, and so is every result: a second run goes on where
    the first stopped. Writes lineage.md, cells.csv, pairs.csv and a heatmap.
    """
    from kinprint._util.files import write_whole
    from kinprint.cli.outputs import check_target
    from kinprint.cli.progress import ProgressLine
    from kinprint.errors import NeedsExtra
    from kinprint.lab.lineage.bench import null_of, open_or_build, run_benchmark
    from kinprint.lab.lineage.heatmap import FILES, draw
    from kinprint.lab.lineage.pages import CELLS, PAIRS, REPORT, write_report
    from kinprint.lab.lineage.running import RESULTS

    for name in (RESULTS, REPORT, CELLS, PAIRS, *FILES):
        check_target(out / name, (out, *out.parents))
    if write_null is not None:
        check_target(write_null)
    with ProgressLine(enabled=False if quiet else None) as line:
        zoo = open_or_build(place, full=full, workers=workers, progress=line.stage)
        bench = run_benchmark(
            zoo,
            out,
            methods=split_names(methods),
            verdict=not no_verdict,
            limit=None if every_pair else limit,
            slow_limit=None if every_pair else SLOW_LIMIT,
            workers=workers,
            seed=seed,
            command=_repeated(full, no_verdict, every_pair, limit, methods),
            progress=line.stage,
        )
    paths = write_report(bench, out)
    try:
        paths += draw(list(bench.cells), list(bench.methods), out)
    except NeedsExtra as error:
        click.echo(f"no heatmap: {error.message}", err=True)
    if write_null is not None:
        name = f"independent models of the {zoo.record.tier} zoo"
        write_whole(write_null, null_of(bench, name, NULL_IS_OF).to_json())
    for path in paths:
        click.echo(f"wrote {path}", err=True)
    for cell in bench.cells:
        if cell.attack == "all":
            _summarise(cell)
    return 0


def _summarise(cell: AttackScore) -> None:
    auc, found = ("–" if x is None else f"{x:.3f}" for x in (cell.auc, cell.at_1))
    click.echo(f"{cell.method:<20} AUC {auc}   true positives at 1 % {found}   ({cell.pairs} related pairs)")


def _repeated(full: bool, no_verdict: bool, every_pair: bool, limit: int, methods: str) -> str:
    """Return the command that repeats the run."""
    words = ["kinprint bench lineage", *(["--full"] if full else []), *(["--no-verdict"] if no_verdict else [])]
    words += ["--every-pair"] if every_pair else [f"--limit {limit}"] if limit != DEFAULT_LIMIT else []
    return " ".join([*words, *([f"--method {methods}"] if methods != "all" else [])])


@bench_command.command("red-team")
@click.option("--out", type=FOLDER, default=Path("lineage-report"), show_default=True, help="Where the table goes.")
@click.option("--principle", "principles", type=int, multiple=True, help="Only these, by number.")
@click.option("--resume", is_flag=True, help="Keep what the table has, and run the rest.")
@click.option("--workers", type=click.IntRange(1, 64), default=2, show_default=True, help="Processes.")
def red_team_command(out: Path, principles: tuple[int, ...], resume: bool, workers: int) -> int:
    """Try to fool compare --deep: strangers made alike, copies in disguise, models of 6, 12 and 24 layers (half an hour).

    Writes red-team.csv, and the section of lineage.md if that page is in the folder. Models that are trained need the extra torch.
    """
    from kinprint._util.files import make_folder, write_whole
    from kinprint.cli.outputs import check_target
    from kinprint.lab.lineage.pages import REPORT
    from kinprint.lab.red_team import running

    table, page = out / running.FILE, out / REPORT
    for target in (table, page):
        check_target(target, (out, *out.parents))
    make_folder(out)
    done = running.from_csv(table.read_text(encoding="utf-8")) if resume and table.is_file() else []
    for item in running.run(done, principles, workers):
        done.append(item)
        write_whole(table, running.to_csv(done).encode())
        click.echo(f"{item['wrong'] or 'right':<40} {item['principle']} {item['recipe']} {item['layers']}", err=True)
    found = running.section(done)
    if page.is_file():
        write_whole(page, running.placed(page.read_text(encoding="utf-8"), found).encode())
    click.echo(found)
    return 0
