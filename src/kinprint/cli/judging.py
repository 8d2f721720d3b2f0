"""Turn findings into exit codes."""

from collections.abc import Callable, Iterable, Sequence

import click

from kinprint._util.records import dataclass
from kinprint.cli.options import F, into, packing
from kinprint.errors import NotComparable

EXIT_CODES = {
    "no_evidence": 0,
    "not_testable": 7,
    "identical": 10,
    "derived": 11,
    "shares_components": 12,
    "shares_initialisation": 13,
}
"""What a script sees of the verdict with --exit-code; the codes of failures are in `kinprint.errors`."""

RELATED = {"related": 14}
"""The same of two fingerprint files, and of a search, of which there is no verdict."""

DECLARED_CODES = {"undeclared": 15, "declared_not_shown": 16, "not_judged": 18}
"""What a script sees of cards that do not say what the weights say, or that are not there, if it asks with --fail-on."""

NO_EVIDENCE_CODE = 17
"""For --fail-on no-evidence: a check that a model does derive from its declared base wants a code of its own, 0 being taken."""

NAMES = [name.replace("_", "-") for name in (*EXIT_CODES, *DECLARED_CODES)]
"""Findings of comparisons that --fail-on knows."""

SEARCH_NAMES = [*NAMES, *RELATED]
"""Findings of searches, likewise."""


def _fail_on_reader(names: Sequence[str]) -> Callable[..., tuple[str, ...]]:
    """Return what turns derived,not-testable into names of findings; none if the option was not given."""

    def read(_context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
        if value is None:
            return ()
        chosen = [part.strip().lower().replace("_", "-") for part in value.replace("|", ",").split(",") if part.strip()]
        for name in chosen:
            if name not in names:
                why = ", which only a search finds," if name in SEARCH_NAMES else ""
                raise click.BadParameter(f"{name!r}{why} is not one of {', '.join(names)}", param=parameter)
        if not chosen:
            raise click.BadParameter(f"expected one or more of {', '.join(names)}", param=parameter)
        return tuple(name.replace("-", "_") for name in chosen)

    return read


@dataclass(frozen=True)
class Judging:
    """What the exit code of a comparison tells: that it was made, its verdict, or whether a finding was made."""

    fail_on: tuple[str, ...]
    exit_code: bool  # of the verdict

    def __post_init__(self) -> None:
        if self.fail_on and self.exit_code:
            raise click.UsageError("--fail-on and --exit-code exclude each other: either says what the exit code means")

    def code(self, found: Iterable[str], *, made: bool = True) -> int:
        """Return the exit code of findings, and say on stderr what failed; `made`: something could be compared."""
        findings = list(found)
        if self.fail_on:
            codes = EXIT_CODES | RELATED | DECLARED_CODES | {"no_evidence": NO_EVIDENCE_CODE}
            # a copy is a derivation too: who asks for the one must not miss the other
            asked = [each for name in self.fail_on for each in ((name, "identical") if name == "derived" else (name,))]
            hit = next((name for name in asked if name in findings), None)
            if hit is not None:
                click.echo(f"failed on {hit.replace('_', '-')}, exit code {codes[hit]}", err=True)
            return 0 if hit is None else codes[hit]
        codes = EXIT_CODES | RELATED if self.exit_code else {}
        return next((codes[name] for name in findings if name in codes), 0 if made else NotComparable.exit_code)


def judging_options(names: Sequence[str]) -> Callable[[F], F]:
    """Add the options that say what the exit code means where these are the findings, handed over as `judging`."""
    return packing(
        "judging",
        into(Judging),
        "What the exit code means",
        click.option(
            "--fail-on",
            metavar="FINDINGS",
            callback=_fail_on_reader(names),
            help=f"Exit with 0 unless one of these is found, comma-separated: {', '.join(names)}. A copy counts as derived too.",
        ),
        click.option(
            "--exit-code", is_flag=True, help="Tell the verdict by the exit code: 0, 7, 10, 11, 12, 13 or 14."
        ),
    )
