"""Turn findings into exit codes."""

from collections.abc import Iterable

import click

EXIT_CODES = {
    "no_evidence": 0,
    "not_testable": 7,
    "identical": 10,
    "derived": 11,
    "shares_components": 12,
    "shares_initialisation": 13,
}
"""What a script sees of the verdict; the codes of failures are in `kinprint.errors`."""

DECLARED_CODES = {"undeclared": 15, "declared_not_shown": 16, "not_judged": 18}
"""What a script sees of cards that do not say what the weights say, or that are not there, if it asks with --fail-on."""

NO_EVIDENCE_CODE = 17
"""For --fail-on no-evidence: a check that a model does derive from its declared base wants a code of its own, 0 being taken."""

NAMES = [name.replace("_", "-") for name in (*EXIT_CODES, *DECLARED_CODES)]


def read_fail_on(_context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    """Turn derived,not-testable into names of findings; None if the option was not given."""
    if value is None:
        return None
    chosen = [part.strip().lower().replace("_", "-") for part in value.replace("|", ",").split(",") if part.strip()]
    for name in chosen:
        if name not in NAMES:
            raise click.BadParameter(f"{name!r} is not one of {', '.join(NAMES)}", param=parameter)
    if not chosen:
        raise click.BadParameter(f"expected one or more of {', '.join(NAMES)}", param=parameter)
    return tuple(name.replace("-", "_") for name in chosen)


fail_on_option = click.option(
    "--fail-on",
    metavar="FINDINGS",
    callback=read_fail_on,
    help=f"Exit with 0 unless one of these is found, comma-separated: {', '.join(NAMES)}. A copy counts as derived too.",
)


def exit_code(found: Iterable[str], fail_on: tuple[str, ...] | None) -> int:
    """Return the exit code of findings: the first of `fail_on` that is among them, without it that of the verdict."""
    findings = list(found)
    if fail_on is None:
        return next((EXIT_CODES[name] for name in findings if name in EXIT_CODES), 0)
    codes = EXIT_CODES | DECLARED_CODES | {"no_evidence": NO_EVIDENCE_CODE}
    # a copy is a derivation too: who asks for the one must not miss the other
    asked = [each for name in fail_on for each in ((name, "identical") if name == "derived" else (name,))]
    return next((codes[name] for name in asked if name in findings), 0)
