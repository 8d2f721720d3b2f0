"""Define every exception that kinprint raises on purpose.

::

    KinprintError                     exit code
    ├── BadReference      ValueError     3   the text given does not name a model
    │   └── BadSelection                 2   a role, layer or metric that does not exist
    ├── BadSetting        ValueError     2   an environment variable or setting that makes no sense
    ├── NeedsExtra        ImportError    2   an optional dependency is not installed
    ├── SourceError       OSError        5   bytes could not be had
    │   ├── NotFound                     3   no such repository, revision or file
    │   ├── AccessDenied                 4   gated, private, or a token was refused
    │   ├── OfflineError                 5   offline was asked for and the bytes are not here
    │   ├── TransferError                5   the server broke the protocol or gave up, after retries
    │   ├── SourceChanged                5   the file changed while it was read
    │   ├── FileTooLarge                 5   a file is larger than its kind, or the budget, allows
    │   ├── NotRecorded                  9   a bundle does not hold what its own comparison asks for
    │   └── StorageError                 8   disk full, unwritable target, broken cache folder
    ├── FormatError       ValueError     6   a checkpoint is malformed
    │   └── UnsupportedDtype             6   a tensor's number format is not known
    ├── NotComparable     ValueError     7   two models share nothing that can be compared
    ├── BudgetExceeded    ValueError     7   the byte budget does not allow the least useful read
    ├── DegenerateInput   ValueError     -   a metric is undefined on this input (becomes a status, never a number)
    └── SchemaError       ValueError     6   a report of a version this program does not know

A message says what, where, expected, got; ``hint`` is the next step to take. The exit codes are those of the CLI and
are documented in the README; 0 is success, 1 a bug, 2 wrong usage, 130 an interrupt. A message that may become a reason in a
report is a `Text`.
"""

import importlib
from typing import Any

from kinprint.text import Text, Value, verbatim


class KinprintError(Exception):
    """Base of all errors raised on purpose."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    @property
    def reason(self) -> Text:
        """The message as a report keeps it: a sentence that languages can say, or plain text that none changes."""
        return verbatim(self.message)

    def __str__(self) -> str:
        return f"{self.message}\n  next: {self.hint}" if self.hint else self.message


class BadReference(KinprintError, ValueError):
    """The text given does not name a model."""

    exit_code = 3


class BadSelection(BadReference):
    """A role, layer or metric that does not exist: wrong usage."""

    exit_code = 2


class BadSetting(KinprintError, ValueError):
    """An environment variable or a setting that makes no sense: wrong usage."""

    exit_code = 2


class NeedsExtra(KinprintError, ImportError):
    """The request needs an optional dependency that is not installed."""

    exit_code = 2

    def __init__(self, what: str, *, extra: str) -> None:
        brought = " ".join(f"'{package}'" for package in packages_of(extra))
        super().__init__(
            Text("{what} needs the extra {extra}, which is not installed", what=what, extra=repr(extra)),
            hint=f"pip install {brought}" if brought else "pyproject.toml lists what it brings",
        )


def imported(module: str, what: str, *, extra: str) -> Any:
    """Return a module that an extra brings; NeedsExtra if it is not installed, naming `what` needs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise NeedsExtra(what, extra=extra) from error


def packages_of(extra: str) -> list[str]:
    """Return what an extra brings, by name: an index may have no kinprint, or one of a stranger's."""
    from importlib.metadata import distributions

    lines = [line.partition(";") for found in distributions(name="kinprint") for line in found.requires or ()]
    return sorted({package.strip() for package, _, when in lines if when.endswith(f"extra == '{extra}'")})


class SourceError(KinprintError, OSError):
    """Bytes could not be had."""

    exit_code = 5


class NotFound(SourceError):
    """No such repository, revision or file."""

    exit_code = 3


class AccessDenied(SourceError):
    """Gated or private, or the token was refused."""

    exit_code = 4


class OfflineError(SourceError):
    """Offline was asked for and the bytes are not on this machine."""


class TransferError(SourceError):
    """The server broke the protocol, or gave up after retries."""


class SourceChanged(SourceError):
    """The file changed while it was being read; a mixture of two versions would be worthless."""


class FileTooLarge(SourceError):
    """A file is larger than is allowed for its kind, or than the byte budget leaves."""


class NotRecorded(SourceError):
    """An evidence bundle does not hold what its own comparison asks for: verification fails."""

    exit_code = 9


class StorageError(SourceError):
    """Disk full, unwritable target, or a cache folder that cannot be used."""

    exit_code = 8


class FormatError(KinprintError, ValueError):
    """A checkpoint is malformed."""

    exit_code = 6


class UnsupportedDtype(FormatError):
    """A tensor is stored in a number format this program does not know."""


class NotComparable(KinprintError, ValueError):
    """Two models share nothing that can be compared."""

    exit_code = 7


class BudgetExceeded(KinprintError, ValueError):
    """The byte budget does not allow even the least useful read."""

    exit_code = 7


class DegenerateInput(KinprintError, ValueError):
    """A metric or test is undefined on this input. The pipeline turns it into a status, and the message into its reason.

    The message is English, with names of values in braces; see `kinprint.text.Text`.
    """

    def __init__(self, message: str, *, hint: str | None = None, **values: Value) -> None:
        plain = not values and not isinstance(message, Text)
        super().__init__(Text.of(message, {}) if plain else Text(message, **values), hint=hint)


class SchemaError(KinprintError, ValueError):
    """A report was written in a schema this program does not know."""

    exit_code = 6
