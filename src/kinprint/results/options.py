"""Define the options of a comparison once, for Python, the command line, the report that states them, and verification."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import field, fields, replace
from functools import partial
from typing import Any

from kinprint._util.records import dataclass
from kinprint._util.sizes import parse_size
from kinprint.errors import BadSelection
from kinprint.refs import path_text, public
from kinprint.results.later import LATER

DEFAULT_BUDGET_BYTES = 128_000_000  # of a comparison or an inspection, unless the user says otherwise
PAIR_BUDGET_BYTES = 32_000_000  # of each pair of many models: there are many
SEARCH_OPTIONS = ("budget_bytes", "seed", "deep", "files", "bases")  # those that `kinprint search` takes
USUAL_LIMIT = 10  # relatives that a search proves and lists
BUDGET_HELP = "Read at most this much {of}, headers and tokenizers included; none for no limit."
_UNITS = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))

USUAL_METRICS = ("cosine", "pearson")  # what the summary by role needs; no verdict rests on any metric
ALL = "all"

TEXT, NUMBER, SIZE, SWITCH = "text", "number", "size", "switch"
NAMES, EACH = "names", "each"  # several values: in one argument, separated by commas; or each after the option's name
_LISTS = (NAMES, EACH)


@dataclass(frozen=True)
class CommandOption:
    """Form of a field of `Options` on the command line."""

    name: str  # without dashes
    written: str  # how values are written: TEXT, NUMBER, SIZE, SWITCH, NAMES or EACH
    help: str  # one sentence on what the option does
    metavar: str | None = None  # what stands for a value in help
    pair_only: bool = False  # whether the option makes sense for two models only
    models: bool = False  # whether the values name models: addresses may hold secrets, which no report keeps
    least: int | None = None  # smallest number that makes sense

    @property
    def flag(self) -> str:
        """Name as it is typed."""
        return f"--{self.name}"

    def read(self, value: Any) -> Any:
        """Return a value as the field holds it: from a list, a path, a size or comma-separated names."""
        if self.written == SIZE and isinstance(value, str):
            return None if value.lower() in ("none", "unlimited") else parse_size(value)
        if self.written == TEXT:
            return None if value is None else os.fspath(value)
        if self.written not in _LISTS:
            return value
        if value is None:
            return ()
        if self.written == NAMES and isinstance(value, str):
            return split_names(value)
        plain = path_text if self.models else os.fspath
        return (plain(value),) if isinstance(value, str | os.PathLike) else tuple(map(plain, value))

    def write(self, value: Any) -> list[str]:
        """Return the arguments that give this value on a command line; none where it is the absence of a choice."""
        if self.written == SWITCH:
            return [self.flag] if value else []
        if self.written == EACH:
            return [word for each in value for word in _argument(self.flag, each)]
        text = self.text(value)
        return [] if text is None else _argument(self.flag, text)

    def text(self, value: Any) -> str | None:
        """Return a value as one text, or None where it is the absence of a choice."""
        if self.written == SIZE:
            return written_size(value)
        if self.written == SWITCH:
            return self.flag if value else None
        if self.written in _LISTS:
            return ",".join(value) or None
        return None if value is None else str(value)


def option(default: Any, *about: Any, later: bool = False, **more: Any) -> Any:
    """Return a field of `Options`, described as a `CommandOption`; `later` marks one that reports of the first versions lack."""
    return field(default=default, metadata={"option": CommandOption(*about, **more)} | (LATER if later else {}))


later = partial(option, later=True)


def models(name: str, about: str, **more: Any) -> Any:
    """Return a field of `Options` that names models."""
    return option((), name, EACH, about, metavar="MODEL", models=True, **more)


@dataclass(frozen=True)
class Options:
    """Choices of the user; together with the commits of the models, they determine every number in a report.

    Values may be given as a person writes them: a list or a single name for several, a path for a name, ``"64MB"`` for a size.

    Attributes
    ----------
    budget_bytes : Limit on all bytes read, headers and tokenizers included; None for no limit.
    rows, experts, layers, roles : Rows of each matrix, experts of each layer, layers such as ``"0,5,10-20"`` and roles to
        look at; empty for all roles.
    metrics : Metrics to compute on every slice, cosine and Pearson by default; ``"all"`` for every one, which a report then names.
    seed : Seed of Monte-Carlo permutations.
    controls, related : Models known to be unrelated to A, and known to be related to it.
    parents : Further models that B may be a merge of, beside A.
    deep : Look for reordered neurons and residual dimensions even where nothing else suggests a relation.
    thorough : Read on, within the budget, where no further byte can change class or kind.
    methods : Fingerprint methods to run as well, by name; ``"all"`` for every one.
    files, bases : Weight files to read in models that have them; models that adapters belong to.
    label_a, label_b : Names of the models in reports, instead of where they were found.
    null : File of an empirical null; None for the one that ships.
    """

    budget_bytes: int | None = option(
        DEFAULT_BUDGET_BYTES,
        "budget",
        SIZE,
        BUDGET_HELP.format(of="in all"),
        "SIZE",
        least=0,
    )
    rows: int = option(32, "rows", NUMBER, "Rows read of each matrix, at most.", least=1)
    experts: int = option(1, "experts", NUMBER, "Experts sampled in each layer.", least=0)
    layers: str | None = option(None, "layers", TEXT, "Only these layers, such as 0,5,10-20.")
    roles: tuple[str, ...] = option((), "roles", NAMES, "Only these roles, comma-separated (see kinprint inspect).")
    metrics: tuple[str, ...] = option(
        USUAL_METRICS, "metrics", NAMES, "Measure these on every slice, comma-separated, or all (docs/metrics.md)."
    )
    seed: int = option(0, "seed", NUMBER, "Seed of the Monte-Carlo permutations.", least=0)
    controls: tuple[str, ...] = models("control", "A model known to be unrelated to A.", pair_only=True)
    related: tuple[str, ...] = models("related", "A model known to be related to A.", pair_only=True)
    parents: tuple[str, ...] = models("parent", "A further model B may be a merge of, beside A.", pair_only=True)
    deep: bool = option(False, "deep", SWITCH, "Look for reordered neurons and residual dimensions in any case.")
    thorough: bool = later(
        False, "thorough", SWITCH, "Read on to the budget where what was read settles class and kind."
    )
    methods: tuple[str, ...] = later(
        (),
        "method",
        NAMES,
        "Also run these fingerprint methods, comma-separated, or all (kinprint fingerprint --list). Local models are then read "
        "without a budget unless you give one.",
        "NAMES",
        pair_only=True,
    )
    files: tuple[str, ...] = later(
        (), "file", EACH, "Read this weight file in models that have it, instead of choosing the best format.", "NAME"
    )
    bases: tuple[str, ...] = models(
        "base",
        "The model that a LoRA adapter among those named belongs to, instead of the one it declares.",
        later=True,
    )
    label_a: str | None = later(None, "label-a", TEXT, "Name of the first model in reports.", "NAME", pair_only=True)
    label_b: str | None = later(None, "label-b", TEXT, "Name of the second model in reports.", "NAME", pair_only=True)
    null: str | None = later(None, "null", TEXT, "Empirical null made by kinprint calibrate.", "FILE", pair_only=True)

    def __post_init__(self) -> None:
        for name, described in options_of(self):
            object.__setattr__(self, name, described.read(getattr(self, name)))

    @classmethod
    def of(cls, base: Options | None = None, /, **chosen: Any) -> Options:
        """Return `base`, or the defaults, with some options chosen by name: of a field, or of the command line (`control`).

        Raise TypeError for an unknown option, or one given twice.
        """
        names = {described.name: name for name, described in options_of(cls)}
        found: dict[str, Any] = {}
        for given, value in chosen.items():
            name = names.get(given, given)
            if name not in names.values():
                import difflib

                near = difflib.get_close_matches(given, [*names, *names.values()], n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"options: {', '.join(names.values())}"
                raise TypeError(f"a comparison has no option {given!r}; {hint}")
            if name in found:
                raise TypeError(f"the option {name!r} is given twice")
            found[name] = value
        return replace(base or cls(), **found)

    @classmethod
    def defaults(cls, chosen: Iterable[str]) -> frozenset[str]:
        """Return the fields that nobody chose, given the names of those that somebody did."""
        named = frozenset(chosen)
        return frozenset(name for name, described in options_of(cls) if not named & {name, described.name})

    @property
    def impossible(self) -> str | None:
        """First number out of range, in words; None if there is none."""
        for name, described in options_of(self):
            value = getattr(self, name)
            if described.least is not None and value is not None and value < described.least:
                return f"{name} {value}: expected {described.least} or more"
        return None

    def check(self) -> Options:
        """Return the options; raise BadSelection for a number that is no choice, before anything is read."""
        if (wrong := self.impossible) is not None:
            raise BadSelection(wrong)
        return self

    def public(self) -> Options:
        """Return the options as a report may state them: of addresses no part that may be secret."""
        named = [name for name, described in options_of(self) if described.models]
        return Options.of(self, **{name: tuple(map(public, getattr(self, name))) for name in named})

    def arguments(self, *, many: bool = False, changed: bool = False, only: Collection[str] | None = None) -> list[str]:
        """Return the arguments that choose these options: for many models, those that are no default, `only` those named."""
        chosen = [(name, described) for name, described in options_of(self, only) if not (many and described.pair_only)]
        written = [
            (described.write(getattr(self, name)), described.write(getattr(Options(), name)))
            for name, described in chosen
        ]
        return [word for words, usual in written if not changed or words != usual for word in words]


def options_of(
    options: Options | type[Options], names: Collection[str] | None = None
) -> list[tuple[str, CommandOption]]:
    """Return the fields of options with how they are given on the command line; all, or those named."""
    return [(item.name, item.metadata["option"]) for item in fields(options) if names is None or item.name in names]


def split_names(text: str | None) -> tuple[str, ...]:
    """Return the names in a comma-separated list."""
    return tuple(part.strip() for part in text.split(",") if part.strip()) if text else ()


def written_size(count: int | None) -> str:
    """Write a size as the command line takes it, without rounding."""
    if count is None:
        return "none"
    for factor, unit in _UNITS:
        if count and count % factor == 0:
            return f"{count // factor}{unit}"
    return str(count)


def _argument(flag: str, value: str) -> list[str]:
    # a value that starts with a dash would be taken for an option of its own
    return [f"{flag}={value}"] if value.startswith("-") else [flag, value]
