"""The table of forms: every way to write a result to a file or to show it, with the function that does it for each type.

A new form is one line of `FORMS` and one file with its functions, ``report_<form>(report, lang="en")`` for two models and
``pairs_<form>`` for many. The command line makes an option from the line; `result.save("x.<suffix>")` finds it by its suffix.
Nothing is imported before a form is asked for: `kinprint --help` reads this table.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kinprint._util.files import write_whole
from kinprint.errors import BadSelection, NeedsExtra

if TYPE_CHECKING:
    from rich.console import Console

PAIR_TABLES = ("measurements", "tests", "layers")
ALL_PAIRS_TABLE = "verdicts"
TABLES = {"Report": PAIR_TABLES, "PairsReport": (ALL_PAIRS_TABLE,)}
"""Tables by type of result, the first by default: of two models, and of many."""

_TO_JSON = "to_json"  # a method: every result writes its own JSON
_RESULTS = ("Report", "PairsReport", "FamilyTree", "Inspection", "Verification", "FingerprintReport")


@dataclass(frozen=True)
class Form:
    """One way to write a result.

    Attributes
    ----------
    name, about
        What it is called, as an option of the command line and in Python, and what it is in one sentence.
    makers
        ``module:function`` by type of result, or the name of a method.
    suffixes
        How names of its files end.
    needs
        Package and extra without which it cannot be written.
    tables
        Whether it holds one table among several.
    """

    name: str
    about: str
    makers: Mapping[str, str]
    suffixes: tuple[str, ...] = ()
    needs: tuple[str, str] | None = None
    tables: bool = False

    @property
    def option(self) -> str:
        """Name as it is typed on the command line."""
        return f"--{self.name}"

    def require(self) -> None:
        """Refuse a form whose package is not installed.

        Raises
        ------
        NeedsExtra
            If it is not.
        """
        if self.needs is not None and find_spec(self.needs[0]) is None:
            raise NeedsExtra(self.option, extra=self.needs[1])


def _of_reports(room: str, name: str, **further: str) -> dict[str, str]:
    """Return the functions of a form for two and for many models, where they stand by convention."""
    base = f"kinprint.render.{room}"
    return {"Report": f"{base}.report:report_{name}", "PairsReport": f"{base}.pairs:pairs_{name}", **further}


FORMS = {
    form.name: form
    for form in (
        Form(
            "html",
            "Write the report as one HTML file that needs no network.",
            _of_reports("page", "html"),
            (".html", ".htm"),
        ),
        Form("markdown", "Write the report as Markdown.", _of_reports("markdown", "markdown"), (".md", ".markdown")),
        Form("csv", "Write a CSV table (see --table).", _of_reports("tables", "csv"), (".csv",), tables=True),
        Form(
            "parquet",
            "Write a Parquet table (see --table).",
            _of_reports("tables", "parquet"),
            (".parquet",),
            needs=("pyarrow", "parquet"),
            tables=True,
        ),
        Form(
            "cyclonedx",
            "Write a CycloneDX ML-BOM with pedigree and verdicts.",
            _of_reports("bom", "cyclonedx"),
            (".cdx.json", ".bom.json"),
            needs=("cyclonedx", "bom"),
        ),
        Form(
            "sarif",
            "Write findings for code-scanning tools (SARIF 2.1.0).",
            _of_reports("sarif", "sarif"),
            (".sarif", ".sarif.json"),
        ),
        Form("json", "Write all data as JSON.", dict.fromkeys(_RESULTS, _TO_JSON), (".json",)),
        Form(
            "svg",
            "Write the drawing of the tree.",
            {"FamilyTree": "kinprint.render.drawing.tree_svg:tree_svg"},
            (".svg",),
        ),
        Form(
            "notebook",
            "What a notebook shows.",
            _of_reports(
                "notebook",
                "notebook",
                FamilyTree="kinprint.render.notebook.pairs:tree_notebook",
                Inspection="kinprint.render.notebook.report:inspection_notebook",
            ),
        ),
    )
}
"""All forms by name."""

REPORT_FORMS = tuple(
    form for form in FORMS.values() if "Report" in form.makers and form.suffixes and form.name != "json"
)
"""Forms of reports that the command line has an option for; JSON is what --out writes."""

TERMINAL = {
    "Report": "kinprint.render.terminal.report:print_report",
    "PairsReport": "kinprint.render.terminal.pairs:print_pairs",
    "FamilyTree": "kinprint.render.terminal.tree:print_tree",
    "Inspection": "kinprint.render.terminal.inspection:print_inspection",
    "Verification": "kinprint.render.terminal.verification:print_verification",
    "FingerprintReport": "kinprint.render.terminal.fingerprints:print_fingerprint_report",
}
"""What prints a result in a terminal, by its type."""


def make(result: object, name: str, *, lang: str = "en", table: str | None = None) -> bytes:
    """Return a result in a form.

    Parameters
    ----------
    result : a report, a tree, an inspection.
    name : the form.
    lang : language of its sentences, in forms that have any.
    table : which table, in forms that hold one.

    Raises
    ------
    BadSelection
        If there is no such form of this result.
    NeedsExtra
        If the form needs a package that is not installed.
    """
    form, kind = FORMS.get(name), type(result).__name__
    if form is None or kind not in form.makers:
        fitting = ", ".join(item.name for item in FORMS.values() if kind in item.makers)
        raise BadSelection(f"there is no form {name!r} of a {kind}", hint=f"its forms: {fitting}")
    if table is not None and not form.tables:
        raise BadSelection(f"{name} holds no table, so {table!r} cannot be chosen")
    if form.tables:
        table = checked_table(result, table)
    form.require()
    maker = form.makers[kind]
    if maker == _TO_JSON:
        made = getattr(result, _TO_JSON)()
    else:
        made = in_language(found(maker), lang)(result, **({"table": table} if form.tables else {}))
    return made.encode() if isinstance(made, str) else bytes(made)


def checked_table(result: object, table: str | None) -> str:
    """Return the table that was chosen of a result, by default its first.

    Raises
    ------
    BadSelection
        If there is no such table.
    """
    kind = type(result).__name__
    known = TABLES.get(kind, ())
    if not known or table not in (None, *known):
        hint = f"its tables: {', '.join(known)}" if known else f"those that have tables: {', '.join(TABLES)}"
        raise BadSelection(f"a {kind} has no table {table!r}" if table else f"a {kind} has no tables", hint=hint)
    return table or known[0]


def save(
    result: object, path: str | Path, *, form: str | None = None, lang: str = "en", table: str | None = None
) -> Path:
    """Write a result to a file, whole or not at all, in the form that its name ends in, or in `form`.

    Raises
    ------
    BadSelection
        If no form has files of such a name.
    """
    target = Path(path)
    name = form or form_of(target.name).name
    write_whole(target, make(result, name, lang=lang, table=table))
    return target


def form_of(file: str) -> Form:
    """Return the form that a file's name tells: the one with the longest suffix that fits.

    Raises
    ------
    BadSelection
        If none does.
    """
    fitting = [(len(end), form) for form in FORMS.values() for end in form.suffixes if file.lower().endswith(end)]
    if not fitting:
        known = ", ".join(end for form in FORMS.values() for end in form.suffixes)
        raise BadSelection(f"cannot tell from {file!r} which form to write", hint=f"known: {known}; or name the form")
    return max(fitting, key=lambda item: item[0])[1]


def show(result: object, console: Console, *, lang: str = "en", **wishes: Any) -> None:
    """Print a result in a terminal."""
    in_language(found(TERMINAL[type(result).__name__]), lang)(result, console, **wishes)


def in_language(function: Callable[..., Any], lang: str) -> Callable[..., Any]:
    """Return a function of a form with its language chosen, if it has any."""
    return partial(function, lang=lang) if "lang" in inspect.signature(function).parameters else function


def found(place: str) -> Callable[..., Any]:
    """Return the function at ``module:function``."""
    module, name = place.split(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return function
