"""Save, read, render and tabulate what a run returns."""

import importlib
from pathlib import Path
from typing import Any, ClassVar, Self

from kinprint.errors import FileTooLarge
from kinprint.results.plain_json import read_json, write_json

SCHEMA_VERSION = 2
READABLE = (1, SCHEMA_VERSION)  # versions that open: a report of schema 1 has English sentences without their data
MOST_BYTES = 128 << 20  # of a report as JSON, by itself or in a bundle, written or read


class Result:
    """Base of what a run returns. Forms stand above results, so they are looked up when one is asked for."""

    SCHEMA: ClassVar[str]  # name in JSON
    CALLED: ClassVar[str]  # name in messages
    VERSIONS: ClassVar[tuple[int, ...]] = READABLE

    def to_json(self, *, indent: bool = True) -> bytes:
        """Return the result as JSON (UTF-8), without its indentation if it is too long with it."""
        made = write_json(self, indent=indent)
        if len(made) < MOST_BYTES:
            return made
        if indent:
            return self.to_json(indent=False)
        said = f"{self.CALLED} of {len(made)} bytes, expected at most {MOST_BYTES}: it could not be opened again"
        raise FileTooLarge(said, hint="choose fewer metrics, roles, layers or experts")

    @classmethod
    def from_json(cls, raw: bytes) -> Self:
        """Read a result back; a schema of another version is refused, not guessed at."""
        return read_json(cls, raw, cls.CALLED, cls.SCHEMA, cls.VERSIONS)

    def save(self, path: str | Path, *, lang: str = "en", form: str | None = None, table: str | None = None) -> Path:
        """Write the result to a file, whole or not at all, in the form that its name tells (``.html``, ``.md``, ``.csv``, …).

        `form` names the form where the file's name does not; `lang` is "en" or "ko"; `table` says which, in forms that hold one.
        """
        saved: Path = _forms().save(self, path, form=form, lang=lang, table=table)
        return saved

    def render(self, form: str, *, lang: str = "en", table: str | None = None) -> bytes:
        """Return the result in a form ("html", "markdown", "csv", "sarif", …), as `save` writes it."""
        made: bytes = _forms().make(self, form, lang=lang, table=table)
        return made

    def to_frame(self, table: str | None = None) -> Any:
        """Return one table as a pandas DataFrame; raise NeedsExtra without pandas, BadSelection for an unknown table.

        Tables of two models: "measurements" (every metric on every pair of tensors, the default), "tests" (of the evidence),
        "layers" (every layer of A against every layer of B). Table of many models: "verdicts".
        """
        return importlib.import_module("kinprint.render.tables.report").to_frame(self, table)

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        shown: bytes = _forms().make(self, "notebook")
        return shown.decode()


def _forms() -> Any:
    return importlib.import_module("kinprint.render.forms")
