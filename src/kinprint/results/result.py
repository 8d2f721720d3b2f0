"""What every result can do beside holding data."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any


class Result:
    """Base of what a run returns. Forms stand above results, so they are looked up when one is asked for."""

    def save(self, path: str | Path, *, lang: str = "en", form: str | None = None, table: str | None = None) -> Path:
        """Write the result to a file, in the form that its name tells (``.html``, ``.md``, ``.csv``, ``.json``, …).

        Parameters
        ----------
        path : the file; written whole or not at all.
        lang : language, in forms that have sentences: "en" or "ko".
        form : name of the form, where the file's name does not tell it.
        table : which table, in forms that hold one.

        Returns
        -------
        The path.
        """
        saved: Path = _forms().save(self, path, form=form, lang=lang, table=table)
        return saved

    def render(self, form: str, *, lang: str = "en", table: str | None = None) -> bytes:
        """Return the result in a form ("html", "markdown", "csv", "sarif", …), as `save` writes it."""
        made: bytes = _forms().make(self, form, lang=lang, table=table)
        return made

    def to_frame(self, table: str | None = None) -> Any:
        """Return one table as a pandas DataFrame.

        Parameters
        ----------
        table : of two models "measurements" (every metric on every pair of tensors, the default), "tests" (of the evidence) or
            "layers" (every layer of A against every layer of B); of many models "verdicts".

        Raises
        ------
        NeedsExtra
            If pandas is not installed.
        BadSelection
            If there is no such table.
        """
        return importlib.import_module("kinprint.render.tables.frame").to_frame(self, table)

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        shown: bytes = _forms().make(self, "notebook")
        return shown.decode()


def _forms() -> Any:
    return importlib.import_module("kinprint.render.forms")
