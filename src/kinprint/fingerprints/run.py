"""Run fingerprint methods on a pair, each beside its nulls; one that fails does not stop the others."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from importlib import resources
from pathlib import Path

import numpy as np

from kinprint._util.files import is_there
from kinprint._util.progress import Progress, quiet
from kinprint.errors import BudgetExceeded, DegenerateInput, NeedsExtra
from kinprint.evidence.attempts import attempt
from kinprint.evidence.empirical_null import EmpiricalNull, NullSample, parse_null
from kinprint.evidence.rules import LOG10_ALPHA
from kinprint.fingerprints.base import Features, Method, PortableMethod, Score, check_needs
from kinprint.fingerprints.methods import METHODS
from kinprint.model.tokens import Keys
from kinprint.model.weights import Weights
from kinprint.results.findings import BEYOND, INSIDE, NO_NULL, OFF, TESTED, MethodDetail, MethodFinding, MethodNull
from kinprint.results.options import Options
from kinprint.text import Text

ByMethod = Mapping[str, Features]
METHODS_NULL = "methods_null.json"
MOST_AXES, MOST_ROWS, MOST_BYTES, LARGEST = 4, 1024, 32 << 20, 1e12
"""What a fingerprint may hold: far beyond any real one."""


def chosen_methods(names: Sequence[str]) -> list[Method]:
    """Return the methods named, "all" for every one; a name that does not exist is refused."""
    if list(names) == ["all"]:
        return list(METHODS.values())
    return [METHODS[name] for name in dict.fromkeys(names)]


def room_for_methods(options: Options, *models: str | Path) -> Options:
    """Lift a budget that nobody chose where all models are on this machine: methods read whole matrices."""
    return replace(options, budget_bytes=None) if all(is_there(Path(model)) for model in models) else options


@cache
def shipped_null() -> EmpiricalNull | None:
    """Return the scores of independent models by each method, as measured when this version was made."""
    place = resources.files("kinprint.fingerprints").joinpath("data", METHODS_NULL)
    return parse_null(place.read_bytes(), METHODS_NULL) if place.is_file() else None


def statistic_of(method: Method) -> str:
    """Name a method's values in an empirical null; another version's values do not count."""
    return f"method:{method.name}:{method.version}"


def share_tokens(a: Weights, b: Weights) -> None:
    """Give each of two models the tokens of the other, so that both choose among the same ones."""

    @cache
    def shared() -> Keys | None:
        one, two = a.keys(), b.keys()
        return None if one is None or two is None else np.intersect1d(one, two)

    a.shared = b.shared = shared


def run_methods(
    a: Weights, b: Weights, methods: Sequence[Method], *, seed: int = 0, tell: Progress = quiet
) -> list[MethodFinding]:
    """Compare two models by every method; raise NeedsExtra if none could run and one lacks an optional dependency."""
    share_tokens(a, b)

    def score(method: Method) -> Score:
        check_needs(method, a, b)
        return method.score_models(a, b, seed=seed)

    return _run(methods, score, tell)


def run_on_features(
    a: ByMethod, b: ByMethod, methods: Sequence[Method], *, seed: int = 0, tell: Progress = quiet
) -> list[MethodFinding]:
    """Compare two models by their features alone: methods that need both models at once are off."""
    return _run(methods, lambda method: _score_features(method, a, b, seed), tell)


def _score_features(method: Method, a: ByMethod, b: ByMethod, seed: int) -> Score:
    if not isinstance(method, PortableMethod):
        raise DegenerateInput("it needs the weights of both models at once; a fingerprint does not hold them")
    sides = []
    for side, features in (("A", a), ("B", b)):
        found = features.get(method.name)
        if found is None:
            raise DegenerateInput("the fingerprint of {side} has nothing for it", side=side)
        if (own := found.version) != method.version:
            raise DegenerateInput(
                "the fingerprint of {side} is of version {a}, expected {b}", side=side, a=own, b=method.version
            )
        check_arrays(found, side)
        sides.append(found)
    try:
        with np.errstate(all="ignore"):
            score = method.score(sides[0], sides[1], seed=seed)
    except DegenerateInput:
        raise
    # A file made by a stranger may lack an array, or hold one of any shape: whatever that breaks, it is the file that is wrong.
    except (ArithmeticError, LookupError, TypeError, ValueError, MemoryError) as error:
        raise DegenerateInput(
            "a fingerprint does not hold what it should: {kind}: {why}", kind=type(error).__name__, why=str(error)
        ) from error
    if not math.isfinite(score.value):
        raise DegenerateInput("the fingerprints give no finite value")
    return score


def check_arrays(features: Features, side: str) -> None:
    """Refuse arrays of absurd shapes, and values near the end of their range, before a method multiplies them."""
    for name, array in features.arrays.items():
        rows, shown = array.shape[0] if array.ndim > 1 else 0, repr(name[:80])
        if array.ndim > MOST_AXES or rows > MOST_ROWS or array.nbytes > MOST_BYTES:
            raise DegenerateInput(
                "the fingerprint of {side}: {name} has shape {shape}: expected at most {axes} axes, {rows} rows and {n} bytes",
                side=side,
                name=shown,
                shape=str(array.shape),
                axes=MOST_AXES,
                rows=MOST_ROWS,
                n=MOST_BYTES,
            )
        if array.dtype.kind == "f" and array.size and float(np.abs(array).max()) > LARGEST:
            raise DegenerateInput(
                "the fingerprint of {side}: {name} holds values beyond {x:g}", side=side, name=shown, x=LARGEST
            )


def _run(methods: Sequence[Method], score: Callable[[Method], Score], tell: Progress) -> list[MethodFinding]:
    findings = []
    lacking: NeedsExtra | None = None
    for done, method in enumerate(methods):
        tell("methods", done, len(methods))
        known = method.name, method.title, method.version, method.needs
        off = partial(MethodFinding, *known, OFF, references=method.references)
        try:
            findings.append(attempt(lambda: finding(method, score(method), shipped_null()), off))  # noqa: B023 - called at once
        except (DegenerateInput, BudgetExceeded, NeedsExtra) as error:
            lacking = error if isinstance(error, NeedsExtra) else lacking
            findings.append(off(error.reason))
    tell("methods", len(methods), len(methods))
    if lacking is not None and all(item.status == OFF for item in findings):
        raise lacking
    return findings


def finding(method: Method, score: Score, null: EmpiricalNull | None) -> MethodFinding:
    """Put a score beside its nulls."""
    chance = score.chance
    if chance is not None and chance.mean is not None and chance.sd:
        chance = replace(chance, z=(score.value - chance.mean) / chance.sd)
    sample = null.sample(statistic_of(method)) if null is not None else None
    empirical = None if null is None or sample is None else _empirical(score.value, sample, null.title)
    return MethodFinding(
        method=method.name,
        title=method.title,
        version=method.version,
        needs=method.needs,
        status=TESTED,
        value=score.value,
        reading=_reading(score.value, chance, empirical),
        chance=chance,
        empirical=empirical,
        details=tuple(MethodDetail(name, value) for name, value in score.details.items()),
        layers=tuple(sorted(score.layers.items())),
        notes=score.notes,
        references=method.references,
    )


def _empirical(value: float, sample: NullSample, name: Text) -> MethodNull:
    """Count the independent pairs that are as alike; the p-value of a count never falls below 1/(pairs + 1)."""
    as_alike = sum(other >= value for other in sample.values)
    z = (value - sample.mean) / sample.sd if sample.sd > 0.0 else None
    log10_p = math.log10((as_alike + 1) / (len(sample.values) + 1))
    like = Text("independent models are like those of this null, which are very small")
    return MethodNull(name, False, sample.mean, sample.sd, z, log10_p, sample.largest, sample.pairs, (like,))


def _reading(value: float, chance: MethodNull | None, empirical: MethodNull | None) -> str:
    """Return on which side of its null a value lies: of an exact null where there is one, else of the empirical one."""
    if chance is not None and chance.exact and chance.log10_p is not None:
        return BEYOND if chance.log10_p <= LOG10_ALPHA else INSIDE
    if empirical is not None and empirical.largest is not None:
        return BEYOND if value > empirical.largest else INSIDE
    return NO_NULL
