"""What kinprint returns and writes: plain frozen dataclasses, versioned, the same object in Python, JSON and on screen.

JSON holds no NaN: a number that does not exist is null, and the ``status`` and ``reason`` beside it say why.
"""

from __future__ import annotations

import importlib
import types
import typing
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache, partial
from typing import Any, TypeVar

import orjson

from kinprint.annexes import DeclaredFinding, FileReads, LayerGrid
from kinprint.errors import SchemaError
from kinprint.findings import Evidence, MethodFinding, Verdict

SCHEMA = "kinprint.report"
INSPECTION_SCHEMA = "kinprint.inspection"
SCHEMA_VERSION = 1

OK = "ok"
NOT_COMPARABLE = "not_comparable"
NO_NULL = "no_null"

LATER = {"later": True}
"""Marks a field that was added after reports of this schema were written: it has a default, and may be missing."""

T = TypeVar("T")


@dataclass(frozen=True)
class NullResult:
    """What a metric does under permutation, and how far the observed value lies from it.

    Parameters
    ----------
    name
        Kind of the null.
    mean, sd
        Of the metric over all permutations, in the metric's own units.
    z
        (observed − mean) / sd, so closer means negative for a distance. For distances that are a function of a dot
        product it is taken on the dot product, where it is exact. None where every permutation gives the same value.
    log10_p
        Base-10 logarithm of the one-sided p-value towards "closer"; None where the metric cannot see order.
    p_method
        How the p-value was had, in words.
    tail
        "greater" or "less": the side of the null, in the metric's units, on which "closer" lies.
    n
        Number of exchangeable units permuted.
    n_draws
        Number of Monte-Carlo permutations, if any were drawn.
    skewness, excess_kurtosis
        Exact, of the permuted dot product (None where not computed).
    assumptions
        What has to hold for the figures to mean what they say.
    fourth, reach
        What guards the normal tail against a coincidence of outliers; see `kinprint.stats.tails.tail_correction`.
    """

    name: str
    mean: float
    sd: float
    z: float | None
    log10_p: float | None
    p_method: str
    tail: str
    n: int
    n_draws: int | None = None
    skewness: float | None = None
    excess_kurtosis: float | None = None
    assumptions: tuple[str, ...] = ()
    fourth: float | None = None
    reach: float | None = None


@dataclass(frozen=True)
class Measurement:
    """One metric on one pair of tensors. ``null`` is None unless ``status`` is "ok"."""

    metric: str
    status: str
    value: float | None = None
    null: NullResult | None = None
    reason: str | None = None


@dataclass(frozen=True)
class CosineExplained:
    """Why the raw cosine is what it is: cos = (1 + r·CVa·CVb) / sqrt((1+CVa²)(1+CVb²))."""

    r: float
    cv_a: float
    cv_b: float
    predicted: float
    observed: float
    if_independent: float


@dataclass(frozen=True)
class TensorSide:
    """One side of a compared pair: which stored tensor, and what was read of it."""

    tensor: str
    dtype: str
    shape: tuple[int, ...]  # logical, out × in
    nonfinite: int = 0


@dataclass(frozen=True)
class TensorComparison:
    """All metrics on one pair of tensors of the same role."""

    role: str
    layer: int | None
    expert: int | None
    a: TensorSide
    b: TensorSide
    status: str
    reason: str | None
    rows: tuple[int, int] | None  # logical rows compared (half-open); None means all
    columns: tuple[int, int] | None  # likewise
    elements: int
    permuted_axis: str | None
    measurements: tuple[Measurement, ...]
    explained: CosineExplained | None = None


@dataclass(frozen=True)
class RoleSummary:
    """One role over all its layers, under one joint null: layers are correlated and are never counted as independent."""

    role: str
    kind: str
    compared: int
    not_compared: int
    median_cosine: float | None
    median_cosine_null: float | None
    mean_pearson: float | None
    statistic: float | None  # what the null is of: the mean correlation over the rows that entered the joint test
    null: NullResult | None
    permutation: str | None = None  # whether one permutation served all layers, or each had its own
    reason: str | None = None


@dataclass(frozen=True)
class Skipped:
    """Something that was not compared, how often, and why."""

    what: str
    count: int
    reason: str
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class KeyDifference:
    """One key of the config that differs; a side without the key has ``present`` False."""

    key: str
    a: str | None
    b: str | None
    a_present: bool
    b_present: bool


@dataclass(frozen=True)
class ConfigDifference:
    """How two config.json differ."""

    status: str
    reason: str | None
    equal_keys: int
    differences: tuple[KeyDifference, ...]


@dataclass(frozen=True)
class TokenizerDifference:
    """How two tokenizers differ, from tokenizer.json. Counts are None where a side does not have such a table."""

    status: str
    reason: str | None
    identical_files: bool | None = None
    kind_a: str | None = None
    kind_b: str | None = None
    tokens_a: int | None = None
    tokens_b: int | None = None
    tokens_common: int | None = None
    jaccard: float | None = None
    same_id: int | None = None
    merges_a: int | None = None
    merges_b: int | None = None
    merges_common: int | None = None


@dataclass(frozen=True)
class FileSummary:
    """One weight file that was opened."""

    name: str
    size: int
    identity: str


@dataclass(frozen=True)
class ModelSummary:
    """One of the compared models."""

    reference: str
    kind: str
    location: str
    revision: str | None
    commit: str | None
    architecture: str
    architecture_guessed: bool
    layers: int
    experts: int
    hidden: int | None
    tensors: int
    parameters: int
    stored_bytes: int
    unmapped: tuple[str, ...]
    excluded: tuple[Skipped, ...]
    notes: tuple[str, ...]
    files: tuple[FileSummary, ...]


@dataclass(frozen=True)
class ReportSettings:
    """What the user chose; together with the commits it determines every number in the report."""

    budget_bytes: int | None
    rows: int
    experts: int
    layers: str | None
    roles: tuple[str, ...]
    metrics: tuple[str, ...]
    seed: int
    controls: tuple[str, ...] = ()
    related: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    deep: bool = False
    methods: tuple[str, ...] = field(default=(), metadata=LATER)
    files: tuple[str, ...] = field(default=(), metadata=LATER)
    bases: tuple[str, ...] = field(default=(), metadata=LATER)
    null: str | None = field(default=None, metadata=LATER)  # file of an empirical null, where one was given


@dataclass(frozen=True)
class Run:
    """What may differ between two runs of the same comparison: time, traffic, versions. Nothing else in a report may."""

    kinprint: str
    python: str
    numpy: str
    started: str
    elapsed_s: float
    requests: int
    retries: int
    network_bytes: int
    cache_bytes: int
    local_bytes: int
    problem: str | None = field(default=None, metadata=LATER)  # of the range cache, which is no reason to fail


@dataclass(frozen=True)
class Report:
    """Everything one comparison found: measurements beside their nulls, the evidence drawn from them, and the verdict.

    ``verdict`` and ``evidence`` are None only in a comparison that was asked for measurements alone.
    """

    schema: str
    schema_version: int
    status: str  # "ok", or "not_comparable" if not one tensor could be compared
    reason: str | None
    a: ModelSummary
    b: ModelSummary
    settings: ReportSettings
    bytes_read: int
    bytes_planned: int
    config: ConfigDifference
    tokenizer: TokenizerDifference
    summary: tuple[RoleSummary, ...]
    comparisons: tuple[TensorComparison, ...]
    skipped: tuple[Skipped, ...]
    notes: tuple[str, ...]
    verdict: Verdict | None
    evidence: Evidence | None
    run: Run
    methods: tuple[MethodFinding, ...] = field(default=(), metadata=LATER)  # of those asked for by name
    grids: tuple[LayerGrid, ...] = field(default=(), metadata=LATER)
    declared: DeclaredFinding | None = field(default=None, metadata=LATER)
    reads: tuple[FileReads, ...] = field(default=(), metadata=LATER)  # empty if the session kept no ledger

    def _repr_html_(self) -> str:
        """Return what a notebook shows. Pages stand above results, so they are looked up when one is asked for."""
        return str(importlib.import_module("kinprint.render.notebook").notebook_html(self))

    def __repr__(self) -> str:
        # a prompt, a log or a notebook prints this: the whole report has hundreds of kilobytes
        printable = importlib.import_module("kinprint.plain").printable
        found = [self.status] if self.status != OK else []
        if self.verdict is None:
            found.append("no verdict")
        else:
            found += [printable(word, 40) for word in (self.verdict.class_, self.verdict.kind) if word]
            found += [f"log10 p {self.verdict.log10_p:.1f}"] if self.verdict.log10_p is not None else []
        names = f"{printable(self.a.reference, 80)} and {printable(self.b.reference, 80)}"
        return f"<Report: {names}: {', '.join(found)}>"

    def to_json(self, *, indent: bool = True) -> bytes:
        """Return the report as JSON (UTF-8)."""
        option = orjson.OPT_PASSTHROUGH_DATACLASS | (orjson.OPT_INDENT_2 if indent else 0)
        return orjson.dumps(self, default=to_plain, option=option)

    @classmethod
    def from_json(cls, raw: bytes) -> Report:
        """Read a report back; a schema of another version is refused, not guessed at."""
        try:
            data = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            raise SchemaError(f"not a report: {error}") from error
        found = (data.get("schema"), data.get("schema_version")) if isinstance(data, dict) else (None, None)
        if found != (SCHEMA, SCHEMA_VERSION):
            raise SchemaError(
                f"cannot read a report of schema {found[0]!r}, version {found[1]!r}; expected {SCHEMA!r}, {SCHEMA_VERSION}",
                hint="use the version of kinprint that wrote it, or run the comparison again",
            )
        try:
            return build(cls, data)
        except (KeyError, TypeError, ValueError) as error:
            raise SchemaError(f"the report does not fit schema version {SCHEMA_VERSION}: {error}") from error


@dataclass(frozen=True)
class RoleInventory:
    """Tensors of one role, shape and dtype. ``fused`` means they are parts of larger stored tensors."""

    role: str
    tensors: int
    layers: int
    shape: tuple[int, ...]
    dtype: str
    stored_bytes: int
    fused: bool
    example: str


@dataclass(frozen=True)
class NormStatistics:
    """One norm's weights, population statistics over the finite values, as the model uses them (offset added)."""

    role: str
    layer: int | None
    width: int
    nonfinite: int
    mean: float | None
    std: float | None
    minimum: float | None
    maximum: float | None
    cv: float | None


@dataclass(frozen=True)
class Inspection:
    """What `inspect` found in one model."""

    schema: str
    schema_version: int
    model: ModelSummary
    roles: tuple[RoleInventory, ...]
    norms: tuple[NormStatistics, ...]
    bytes_read: int
    requests: int

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return str(importlib.import_module("kinprint.render.notebook").inspection_html(self))

    def __repr__(self) -> str:
        printable = importlib.import_module("kinprint.plain").printable
        model = self.model
        name, architecture = printable(model.reference, 80), printable(model.architecture, 40)
        return f"<Inspection: {name}: {architecture}, {model.layers} layers, {model.parameters:,} parameters>"

    def to_json(self, *, indent: bool = True) -> bytes:
        """Return the inspection as JSON (UTF-8)."""
        return orjson.dumps(self, option=orjson.OPT_INDENT_2 if indent else 0)


@cache
def _names(kind: type) -> tuple[tuple[str, str], ...]:
    """Return attribute names with the names they have in JSON: ``class_`` is written as ``class``."""
    return tuple((field.name, field.name.rstrip("_")) for field in fields(kind))


@cache
def _optional(kind: type) -> frozenset[str]:
    return frozenset(field.name for field in fields(kind) if LATER.items() <= field.metadata.items())


def to_plain(value: Any) -> dict[str, Any]:
    """Return a dataclass as orjson is to write it, one level deep."""
    if not is_dataclass(value) or isinstance(value, type):
        raise TypeError(f"cannot write a {type(value).__name__}")
    return {key: getattr(value, name) for name, key in _names(type(value))}


def build(kind: type[T], data: Any) -> T:
    """Make a dataclass of this module from plain JSON data, following the declared types."""
    return typing.cast(T, _converter(typing.cast(Hashable, kind))(data))


@cache
def _converter(kind: Any) -> Callable[[Any], Any]:
    """Return the function that makes a value of a declared type: found once, as a report has hundreds of thousands of values."""
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        given = _converter(next(option for option in typing.get_args(kind) if option is not types.NoneType))
        return lambda data: None if data is None else given(data)
    if origin is tuple:
        return _tuple_converter(typing.get_args(kind))
    if is_dataclass(kind) and isinstance(kind, type):
        return partial(_build_dataclass, kind)

    def plain(data: Any) -> Any:
        if type(data) is kind:
            return data
        if kind is float and type(data) is int:
            return float(data)
        raise TypeError(f"expected {kind.__name__}, got {data!r:.80}")

    return plain


def _tuple_converter(items: tuple[Any, ...]) -> Callable[[Any], Any]:
    alike = len(items) == 2 and items[1] is Ellipsis
    made = [_converter(item) for item in items if item is not Ellipsis]

    def convert(data: Any) -> tuple[Any, ...]:
        if not isinstance(data, list):
            raise TypeError(f"expected a list, got {type(data).__name__}")
        if alike:
            return tuple(map(made[0], data))
        return tuple(one(entry) for one, entry in zip(made, data, strict=True))

    return convert


@cache
def _parts(kind: type) -> tuple[tuple[str, str, bool, Callable[[Any], Any]], ...]:
    """Return what a dataclass is made of: attribute, its name in JSON, whether it may be missing, and its converter."""
    hints = typing.get_type_hints(kind)
    return tuple((name, key, name in _optional(kind), _converter(hints[name])) for name, key in _names(kind))


def _build_dataclass(kind: type, data: Any) -> Any:
    if not isinstance(data, dict):
        raise TypeError(f"{kind.__name__}: expected an object, got {type(data).__name__}")
    # a report without what was added later is older, not broken
    return kind(**{name: one(data[key]) for name, key, later, one in _parts(kind) if not later or key in data})
