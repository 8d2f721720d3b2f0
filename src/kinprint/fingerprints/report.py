"""Make fingerprints of models, and compare two of them without the weights of either."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from kinprint._util.progress import Progress, quiet
from kinprint._version import __version__
from kinprint.evidence.rules import LOG10_ALPHA
from kinprint.fingerprints.base import Features, Method
from kinprint.fingerprints.file import SUFFIX, Fingerprint, describe, extract_features, read_fingerprint
from kinprint.fingerprints.methods import METHODS
from kinprint.fingerprints.run import chosen_methods, room_for_methods, run_on_features
from kinprint.model.model import Model, open_model
from kinprint.model.weights import StoredWeights
from kinprint.refs import path_text
from kinprint.results.findings import NO_EVIDENCE, NOT_TESTABLE, TESTED, MethodFinding
from kinprint.results.options import Options
from kinprint.results.result import Result
from kinprint.sources.session import Session, running
from kinprint.sources.settings import Settings
from kinprint.stats.combine import bonferroni
from kinprint.text import Text

RELATED = "related"
COMPACT = "compact"  # the method that is kept unless others are asked for


@dataclass(frozen=True)
class FingerprintSide:
    """One side: a fingerprint file, or a model that was read for this comparison."""

    reference: str
    kind: str  # "fingerprint" or "model"
    model: str
    architecture: str
    layers: int
    hidden: int
    commit: str | None
    digest: str | None
    made_by: str


@dataclass(frozen=True)
class FingerprintReport(Result):
    """Two fingerprints compared. Without controls, edits and a layer map there is no verdict.

    ``class_`` is "related" if an exact method rejects independence at the level of the verdicts, "no_evidence" if exact methods
    ran and none does, "not_testable" if none could run. Related means shared weights or a shared initialisation.
    """

    SCHEMA: ClassVar = "kinprint.fingerprint_report"
    CALLED: ClassVar = "a report on fingerprints"
    VERSIONS: ClassVar = (1,)

    schema: str
    schema_version: int
    made_by: str
    a: FingerprintSide
    b: FingerprintSide
    class_: str
    sentence: Text
    log10_p: float | None
    log10_alpha: float
    methods: tuple[MethodFinding, ...]


def make_fingerprint(
    model: str | Path,
    options: Options | None = None,
    *,
    settings: Settings | None = None,
    session: Session | None = None,
    progress: Progress | None = None,
    **chosen: Any,
) -> Fingerprint:
    """Read a model and return its fingerprint.

    Parameters
    ----------
    model : hub id, folder, file or URL.
    options : methods, by default the compact one, which is small and has exact tests; budget, files and bases. A model on
        this machine is read without a budget unless one is given.
    settings, session, progress, chosen : as for `kinprint.compare`.
    """
    wanted = reading_options(options, chosen, model)
    with running(wanted, settings, session) as run:
        return fingerprint_of(open_model(path_text(model), run), methods_of(wanted), progress)


def reading_options(options: Options | None, chosen: dict[str, Any], *models: str | Path) -> Options:
    """Return the options of reading models for fingerprints: those on this machine without a budget that nobody chose."""
    found = Options.of(options, **chosen).check()
    return room_for_methods(found, *models) if options is None and "budget_bytes" in Options.defaults(chosen) else found


def methods_of(options: Options, *files: Fingerprint) -> list[Method]:
    """Return the methods chosen; by default those that all files given hold, without a file the compact one."""
    if options.methods:
        return chosen_methods(options.methods)
    if not files:
        return [METHODS[COMPACT]]
    held = [{entry.method for entry in file.description.methods} for file in files]
    names = set.intersection(*held) or set.union(*held)  # where they have none in common, the report says so of each
    return [method for method in METHODS.values() if method.name in names]


def fingerprint_of(model: Model, methods: Sequence[Method], progress: Progress | None = None) -> Fingerprint:
    """Return the fingerprint of an open model."""
    weights = StoredWeights(model)
    where = model.checkpoint.provenance
    if where.kind in ("folder", "file"):  # a published file must not tell how its maker's disk is laid out
        weights.label = Path(where.location).resolve().name
    features, reasons = extract_features(weights, methods, progress or quiet)
    size = sum(tensor.elements for tensor in model.checkpoint.tensors.values())
    on_hub, stored = where.kind == "hub", model.checkpoint.files
    files = [(file.name, file.identity if on_hub else f"{file.size} bytes") for file in stored]
    return describe(weights, features, reasons, parameters=size, commit=where.commit, files=files)


def compare_fingerprints(
    a: str | Path,
    b: str | Path,
    options: Options | None = None,
    *,
    settings: Settings | None = None,
    session: Session | None = None,
    progress: Progress | None = None,
    **chosen: Any,
) -> FingerprintReport:
    """Compare two sides of which at least one is a fingerprint file; a model is read as far as its own fingerprint needs.

    Parameters
    ----------
    a, b : fingerprint files (``.kfp``) or models.
    options : methods and seed; for a model as for `make_fingerprint`.
    settings, session, progress, chosen : as for `kinprint.compare`.
    """
    wanted = reading_options(options, chosen, a, b)
    references = [path_text(reference) for reference in (a, b)]
    files = {text: read_fingerprint(Path(text)) for text in references if text.endswith(SUFFIX)}
    methods = methods_of(wanted, *files.values())
    with running(wanted, settings, session) as run:
        sides = [_side(text, files.get(text), run, methods, progress) for text in references]
    (one, features_a), (two, features_b) = sides
    findings = run_on_features(features_a, features_b, methods, seed=wanted.seed, tell=progress or quiet)
    class_, sentence, log10_p = conclude(findings)
    schema, made_by = (FingerprintReport.SCHEMA, FingerprintReport.VERSIONS[-1]), f"kinprint {__version__}"
    return FingerprintReport(*schema, made_by, one, two, class_, sentence, log10_p, LOG10_ALPHA, tuple(findings))


def _side(
    reference: str, file: Fingerprint | None, session: Session, methods: Sequence[Method], progress: Progress | None
) -> tuple[FingerprintSide, Mapping[str, Features]]:
    kind = "model" if file is None else "fingerprint"
    found = fingerprint_of(open_model(reference, session), methods, progress) if file is None else file
    text = found.description
    known = text.model, text.architecture, text.layers, text.hidden, text.commit, text.digest or None, text.made_by
    return FingerprintSide(reference, kind, *known), found.features


def conclude(findings: Sequence[MethodFinding]) -> tuple[str, Text, float | None]:
    """Judge by exact methods alone, corrected for their number."""
    nulls = [item.chance for item in findings if item.status == TESTED and item.chance is not None]
    exact = [null.log10_p for null in nulls if null.exact and null.log10_p is not None]
    if not exact:
        return NOT_TESTABLE, Text("Not testable: no method with an exact null could run on these fingerprints."), None
    log10_p = bonferroni(min(exact), len(exact))
    if log10_p <= LOG10_ALPHA:
        sentence = Text(
            "The two models share weights or their initialisation: if they were unrelated, agreement like this would have a "
            "chance below 10^{p}. Compare the weights for a verdict.",
            p=math.ceil(log10_p),
        )
        return RELATED, sentence, log10_p
    sentence = Text(
        "No exact method finds a relation. Fingerprints see less than weights: reordered models, for one, need compare --deep."
    )
    return NO_EVIDENCE, sentence, log10_p
