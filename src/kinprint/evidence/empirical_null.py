"""Read and write empirical nulls: statistics of tests that align first, on models known to be independent."""

import math
from importlib import resources
from pathlib import Path

import orjson

from kinprint._util.files import read_whole
from kinprint._util.records import dataclass
from kinprint._util.strange_json import parse_json
from kinprint.errors import FileTooLarge, NotFound, SchemaError
from kinprint.results.plain_json import build
from kinprint.text import Text, verbatim

NULL_SCHEMA = "kinprint.null"
NULL_VERSION = 1
DEFAULT_NULL = "default_null.json"
MOST_BYTES = 64 << 20  # of a null: that which ships has 12 kB
MARGIN = 2.0  # the largest value ever seen is widened by this factor: a finite sample does not know its own extremes
ROUNDING = 1e-6
"""Relative difference between a stated mean, spread or largest value and that of the values, which may have been rounded."""


@dataclass(frozen=True)
class NullSample:
    """One statistic on pairs of independent models: every value, so that anyone can look."""

    statistic: str
    pairs: int
    values: tuple[float, ...]
    mean: float
    sd: float
    largest: float


@dataclass(frozen=True)
class NullModel:
    """One of the models that the null was made from."""

    label: str
    identity: str  # digest of what was read of it
    group: str  # models of one group are related and never paired


@dataclass(frozen=True)
class EmpiricalNull:
    """Values of statistics on known-independent pairs, and where they come from."""

    schema: str
    schema_version: int
    name: str
    made_by: str
    note: str
    models: tuple[NullModel, ...]
    samples: tuple[NullSample, ...]

    @property
    def title(self) -> Text:
        """How reports name this null; those that ship have a name in every language."""
        shipped = (
            Text("kinprint's default null ({n} tiny Llama models, trained independently)", n=len(self.models)),
            Text("independent models of the full zoo"),
        )
        return next((text for text in shipped if text == self.name), verbatim(self.name))

    def sample(self, statistic: str) -> NullSample | None:
        """Return the values of one statistic, or None if this null has none."""
        return next((item for item in self.samples if item.statistic == statistic), None)

    def largest(self, statistic: str) -> float:
        """Return the value beyond which a pair counts as outside this null; 1 (nothing is outside) if it has no values."""
        found = self.sample(statistic)
        return 1.0 if found is None or not found.values else found.largest * MARGIN

    def to_json(self) -> bytes:
        """Return the null as JSON."""
        return orjson.dumps(self, option=orjson.OPT_INDENT_2) + b"\n"


def load_null(path: str | Path | None = None) -> EmpiricalNull:
    """Read a null made by `kinprint calibrate`, or the one that ships with the package."""
    if path is None:
        raw = resources.files("kinprint.evidence").joinpath("data", DEFAULT_NULL).read_bytes()
    else:
        try:
            raw = read_whole(Path(path), MOST_BYTES)
        except FileTooLarge:
            raise
        except OSError as error:
            what = f"cannot read the null {path}: {error.strerror}"
            raise NotFound(what, hint="kinprint calibrate makes one") from error
    return parse_null(raw, str(path or DEFAULT_NULL))


def parse_null(raw: bytes, label: str) -> EmpiricalNull:
    """Read a null from its bytes, and check the summaries by the values."""
    # Where a file keeps fewer values than there were pairs, only the largest can be checked: it is always among them.
    try:
        data = parse_json(raw)
        found = (data.get("schema"), data.get("schema_version")) if isinstance(data, dict) else (None, None)
        if found != (NULL_SCHEMA, NULL_VERSION):
            raise SchemaError(f"expected schema {NULL_SCHEMA!r} version {NULL_VERSION}, got {found[0]!r}, {found[1]!r}")
        null = build(EmpiricalNull, data)
        for sample in null.samples:
            _check_summary(sample)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, SchemaError):
            raise
        raise SchemaError(f"{label} is not a null: {error}", hint="make it again with kinprint calibrate") from error
    return null


def _check_summary(sample: NullSample) -> None:
    if not sample.values:  # then nothing lies outside it, whatever it says
        return
    again = summarise(sample.statistic, sample.values)
    pairs = [("largest", sample.largest, again.largest)]
    if sample.pairs == again.pairs:
        pairs += [("mean", sample.mean, again.mean), ("sd", sample.sd, again.sd)]
    elif sample.pairs < again.pairs:
        raise ValueError(f"{sample.statistic} has {again.pairs} values of {sample.pairs} pairs")
    for name, said, found in pairs:
        if not math.isclose(said, found, rel_tol=ROUNDING, abs_tol=ROUNDING * abs(again.largest)):
            raise ValueError(f"{sample.statistic}: {name} is said to be {said:g}, and is {found:g} by its values")


def summarise(statistic: str, values: tuple[float, ...]) -> NullSample:
    """Return a statistic's values with their mean, spread and largest."""
    import numpy as np

    array = np.asarray(values, dtype=np.float64)
    mean, sd, largest = float(array.mean()), float(array.std()), float(array.max())
    return NullSample(statistic, array.size, tuple(array.tolist()), mean, sd, largest)
