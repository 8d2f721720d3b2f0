"""Hold what a study finds as plain data: tables, checks against published figures, pictures, notes, and what is missing."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import orjson

from kinprint.errors import KinprintError, NeedsExtra
from kinprint.text import Text, Value, joined

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from kinprint.studies.figure_style import Film

Cell: TypeAlias = float | int | str | bool | Text | None
Trust: TypeAlias = Literal["measured", "derived", "text", "picture", "wrong"]
ROUNDING = 5e-5
FAR, HIGH = -6, 0.9  # log10 p, and a cosine that looks high, in the sentence that says what was found
FAR_Z = 4.7534  # where the upper tail of a normal null has that p


class Missing(KinprintError):
    """A part of a study that cannot be done on these models. The others go on; RESULTS.md says what is missing and why."""

    exit_code = 7

    def __init__(self, template: str, /, **values: Value) -> None:
        self.text = Text(template, **values)
        super().__init__(str(self.text))


@dataclass(frozen=True)
class Column:
    """One column: its key in CSV and JSON, its heading, and how many decimals a reader needs (None: as it is)."""

    key: str
    heading: Text
    digits: int | None = None
    scientific: bool = False


_COLUMN = re.compile(r"(\w+)(?:: (.+?))?(?: \.(\d)(e?))?")
_SHARED: dict[str, Column] = {}


def columns(text: str) -> tuple[Column, ...]:
    """Return columns from ``key: heading .digits`` each, a semicolon between two; ``.2e``: two digits, scientific notation.

    Without a heading a column has that of `SHARED`, or its key: ``layer; cosine; gap: mean absolute difference .2e``.
    """
    found = []
    for item in text.split(";"):
        match = _COLUMN.fullmatch(item.strip())
        if match is None:
            raise ValueError(f"expected a column as 'key: heading .digits', got {item.strip()!r}")
        key, heading, digits, scientific = match.groups()
        usual = _SHARED.get(key, Column(key, Text(key)))
        said = Column(key, Text(heading or usual.heading), int(digits) if digits else None, bool(scientific))
        found.append(said if heading or digits else usual)
    return tuple(found)


SHARED = (
    "a: A; b: B; layer_a: layer of A; layer_b: layer of B; cosine .4; null_mean: cosine if independent .4; null_sd: its sd .5; "
    "pearson: Pearson .4; pearson_sd: Pearson's null sd .4; z .2; log10_p: log10 p .2; cv_a: spread over mean, A .3; "
    "cv_b: spread over mean, B .3; sd .4; median .4; min: least .4; max: greatest .4"
)
"""The columns of a measured pair of vectors, and of a summary of such pairs."""
_SHARED.update((item.key, item) for item in columns(SHARED))


@dataclass(frozen=True)
class Table:
    """Rows under columns. Long tables go whole into CSV and JSON; RESULTS.md shows `shown` rows of them."""

    name: str
    title: Text
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    shown: int = 60

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != (n := len(self.columns)):
                raise ValueError(f"table {self.name}: {n} columns, but a row of {len(row)} cells: {row}")


_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
MAX_NAME = 120


def file_name(name: str) -> str:
    """Return a name fit for a file: models may be called anything, and their names are part of those of tables and figures."""
    plain = _UNSAFE.sub("_", name).lstrip(".") or "unnamed"
    if plain == name and len(name) <= MAX_NAME:
        return name
    return f"{plain[:MAX_NAME]}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


Row: TypeAlias = Sequence[Cell] | object  # cells in order, or anything whose attributes are called like the columns


@dataclass(frozen=True)
class Check:
    """One published figure beside the measured one.

    Two numbers agree if they differ by at most half a unit of the last printed digit, which is what rounding hides, and
    `ROUNDING` more, for vectors that are stored in BF16.
    """

    what: Text
    published: float
    measured: float | None  # None: could not be measured
    digits: int = 4  # decimals that the publication printed
    trust: Trust = "measured"  # by published code; else derived from such numbers, text, a picture, or known wrong
    reason: Text | None = None  # what is wrong with the published number, or a remark
    within: float | None = None  # another tolerance, where digits cannot be expected to agree; the reason says why
    comparable: bool = True  # False: not fixed in replicas, or from another setting; shown without a result

    @property
    def difference(self) -> float | None:
        """Measured minus published."""
        return None if self.measured is None else self.measured - self.published

    @property
    def tolerance(self) -> float:
        """Half a unit of the last printed digit and `ROUNDING`, unless ``within`` says otherwise."""
        return 0.5 * 10.0**-self.digits + ROUNDING if self.within is None else self.within

    @property
    def agrees(self) -> bool | None:
        """Whether the two agree as far as printed; None if there is nothing to compare."""
        if self.difference is None or not self.comparable:
            return None
        return abs(self.difference) <= self.tolerance * (1 + 1e-9)


@dataclass(frozen=True)
class Picture:
    """A figure that is drawn only when it is written, so that tables can be had without matplotlib."""

    name: str
    caption: Text
    figure: str  # the function that draws it: ``study.module.function`` in `kinprint.studies`
    arguments: tuple[Any, ...]  # the results that the function takes

    def draw(self) -> Figure | Film:
        """Return the figure; `NeedsExtra` if matplotlib is not installed."""
        module, _, function = self.figure.rpartition(".")
        try:
            style = import_module("kinprint.studies.figure_style")
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("kinprint"):
                raise
            raise NeedsExtra("drawing figures", extra="plot") from error
        with style.shared_style():
            drawn: Figure | Film = getattr(import_module(f"kinprint.studies.{module}"), function)(*self.arguments)
        return drawn


@cache
def described_pictures(study: str) -> dict[str, dict[str, str]]:
    """Return what a study's ``pictures.json`` says: the function that draws each picture, and its caption."""
    found: dict[str, dict[str, str]] = orjson.loads((Path(__file__).parent / study / "pictures.json").read_bytes())
    return found


@dataclass
class Section:
    """What one part of a study found."""

    tables: list[Table] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    notes: list[Text] = field(default_factory=list)
    missing: list[Text] = field(default_factory=list)
    values: dict[str, float | None] = field(default_factory=dict)  # numbers that claims name and no table holds
    comparable: bool = True  # False if published figures are about other layers or models than these

    def add_table(
        self, name: str, title: Text, columns: Sequence[Column], rows: Iterable[Row], *, shown: int = 60
    ) -> None:
        """Add a table; numbers may be numpy's."""
        cells = (row if isinstance(row, tuple | list) else [getattr(row, item.key) for item in columns] for row in rows)
        plain = (tuple(cell.item() if isinstance(cell, np.generic) else cell for cell in row) for row in cells)
        self.tables.append(Table(file_name(name), title, tuple(columns), tuple(plain), shown))

    def add_picture(self, name: str, picture: str, /, *arguments: Any, **values: Value) -> None:
        """Add a `picture` (``study.key`` in that study's ``pictures.json``) of `arguments`; its caption takes `values`."""
        study, _, key = picture.partition(".")
        found = described_pictures(study)[key]
        figure, caption = f"{study}.{found['figure']}", Text(found["caption"], **values)
        self.pictures.append(Picture(file_name(name), caption, figure, arguments))

    def note(self, template: str, /, **values: Value) -> None:
        """Add a sentence that explains the part's results, unless it is there."""
        text = Text(template, **values)
        self.notes += [] if text in self.notes else [text]


@dataclass(frozen=True)
class PartOutcome:
    """A part of a study with what it found."""

    name: str
    title: Text
    section: Section
    uses_models: bool = True


@dataclass(frozen=True)
class ModelOutcome:
    """A model of a study, as RESULTS.md lists it."""

    name: str
    reference: str
    commit: str | None
    architecture: str | None
    layers: int | None
    width: int | None
    parameters: int | None
    replica: bool
    problem: str | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """Everything a study found, ready to be written."""

    study: str
    title: Text
    summary: Text
    source: Text
    models: tuple[ModelOutcome, ...]
    parts: tuple[PartOutcome, ...]
    settings: dict[str, Any]
    bytes_read: int
    seconds: float

    def save(self, folder: str | Path, lang: str = "en") -> Path:
        """Write RESULTS.md in a language, every table as CSV, all as JSON, figures as PNG and SVG; return RESULTS.md's path."""
        from kinprint.studies.writing import write_outcome

        return write_outcome(self, Path(folder), language=lang)

    @property
    def checks(self) -> list[Check]:
        """All checks against published figures, in order."""
        return [check for part in self.parts for check in part.section.checks]

    @property
    def synthetic(self) -> bool:
        """Whether what was measured are replicas, not the models themselves."""
        return bool(self.settings.get("replicas") and self.models)

    @property
    def sure_checks(self) -> list[Check]:
        """Checks with a result against figures that are not known to be wrong."""
        return [check for check in self.checks if check.trust != "wrong" and check.agrees is not None]

    @property
    def only_made_up(self) -> bool:
        """Whether every published figure with a result is of made-up vectors, none of the models of this run."""
        others = [check for part in self.parts if part.uses_models for check in part.section.checks]
        return bool(self.models) and not any(check in others for check in self.sure_checks)

    @property
    def finding(self) -> Text:
        """What was found, in one sentence: measured pairs that shuffling does not explain, published figures that agree."""
        tables = [table for part in self.parts for table in part.section.tables]
        known = _measured_pairs(tables)
        said = []
        if known:
            beyond, high = sum(p < FAR for _, p in known), sum(x > HIGH for x, _ in known)
            counts = {"beyond": beyond, "n": len(known), "p": FAR, "high": high, "x": HIGH}
            said.append(
                Text(
                    "{beyond} of {n} pairs of tensors are shown to agree beyond shuffling (p < 10^{p}), {high} have a cosine over "
                    "{x}",
                    **counts,
                )
            )
            more = sum(p >= FAR and z is not None and z > FAR_Z for (_, p), z in known.items())
            if more:
                unsure = "of {more} more z is over {z:.2f}, but of their p only a weaker upper bound is known"
                said.append(Text(unsure, more=more, z=FAR_Z))
        if sure := self.sure_checks:
            told = "{agree} of {n} published figures agree"
            if self.only_made_up:
                told = "{agree} of {n} published figures of made-up vectors agree, none is of these models"
            said.append(Text(told, agree=sum(check.agrees is True for check in sure), n=len(sure)))
        sentence = joined(said or [Text("{n} tables", n=len(tables))])
        return Text("of synthetic replicas: {found}", found=sentence) if self.synthetic else sentence

    @property
    def missing(self) -> list[tuple[PartOutcome, Text]]:
        """What could not be done, with the part it belongs to."""
        return [(part, text) for part in self.parts for text in part.section.missing]


def _measured_pairs(tables: Iterable[Table]) -> dict[tuple[float, float], float | None]:
    """Return the z (None where no table tells it) of every measured pair, by its cosine and log10 p: tables may share pairs."""
    found: dict[tuple[float, float], float | None] = {}
    for table in tables:
        keys = [column.key for column in table.columns]
        if not {"cosine", "log10_p"} <= set(keys):
            continue
        for cells in table.rows:
            row = {key: cell for key, cell in zip(keys, cells, strict=True) if isinstance(cell, float)}
            x, p = row.get("cosine"), row.get("log10_p", float("nan"))
            if x is not None and p == p:
                z = row["pearson"] / row["pearson_sd"] if row.keys() >= {"pearson", "pearson_sd"} else None
                found[x, p] = row.get("z", z if z is not None else found.get((x, p)))
    return found
