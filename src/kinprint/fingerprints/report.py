"""Fingerprints of models, and what two of them say about each other without the weights of either."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from kinprint._version import __version__
from kinprint.evidence.verdict import LOG10_ALPHA
from kinprint.fingerprints.all_methods import METHODS
from kinprint.fingerprints.base import Features, Method
from kinprint.fingerprints.file import SUFFIX, Fingerprint, describe, extract_features, read_fingerprint
from kinprint.fingerprints.run import chosen_methods, run_on_features
from kinprint.model.model import open_model
from kinprint.model.weights import StoredWeights
from kinprint.results.findings import NO_EVIDENCE, NOT_TESTABLE, TESTED, MethodFinding
from kinprint.sources.session import Session
from kinprint.stats.combine import bonferroni

SCHEMA, SCHEMA_VERSION = "kinprint.fingerprint_report", 1
RELATED = "related"
Tell = Callable[[str, int, int], None]


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
class FingerprintReport:
    """Two fingerprints held against each other. There is no verdict: no controls, no edits, no layer map can be had from these.

    ``class_`` is "related" if an exact method rejects independence at the level of the verdicts, "no_evidence" if exact methods
    ran and none does, "not_testable" if none could run. Related means shared weights or a shared initialisation.
    """

    schema: str
    schema_version: int
    made_by: str
    a: FingerprintSide
    b: FingerprintSide
    class_: str
    sentence: str
    log10_p: float | None
    log10_alpha: float
    methods: tuple[MethodFinding, ...]

    def to_json(self) -> bytes:
        """Return the report as JSON; ``class_`` is written as ``class``."""
        data = orjson.loads(orjson.dumps(self))
        data["class"] = data.pop("class_")
        return orjson.dumps(data, option=orjson.OPT_INDENT_2)


def make_fingerprint(
    reference: str, session: Session, methods: Sequence[Method] | None = None, tell: Tell | None = None
) -> Fingerprint:
    """Read a model and return its fingerprint; by default of every portable method that needs no forward pass."""
    model = open_model(reference, session)
    weights = StoredWeights(model)
    where = model.checkpoint.provenance
    if where.kind in ("folder", "file"):  # a published file must not tell how its maker's disk is laid out
        weights.label = Path(where.location).resolve().name
    chosen = default_methods() if methods is None else methods
    features, reasons = extract_features(weights, chosen, tell)
    return describe(
        weights,
        features,
        reasons,
        parameters=sum(tensor.elements for tensor in model.checkpoint.tensors.values()),
        commit=where.commit,
        files=[
            (file.name, file.identity if where.kind == "hub" else f"{file.size} bytes")
            for file in model.checkpoint.files
        ],
    )


def default_methods() -> list[Method]:
    """Return the portable methods that need nothing but weights and tokenizer."""
    return [method for method in METHODS.values() if method.portable and "forward pass" not in method.needs]


def compare_fingerprints(
    a: str, b: str, names: Sequence[str], session: Session, *, seed: int = 0, tell: Tell | None = None
) -> FingerprintReport:
    """Compare two sides of which at least one is a fingerprint file; a model is read as far as its own fingerprint needs."""
    methods = chosen_methods(names) if names else default_methods()
    sides = [_side(reference, session, methods, tell) for reference in (a, b)]
    findings = run_on_features(sides[0][1], sides[1][1], methods, seed=seed, tell=tell)
    class_, sentence, log10_p = conclude(findings)
    return FingerprintReport(
        SCHEMA,
        SCHEMA_VERSION,
        f"kinprint {__version__}",
        sides[0][0],
        sides[1][0],
        class_,
        sentence,
        log10_p,
        LOG10_ALPHA,
        tuple(findings),
    )


def _side(
    reference: str, session: Session, methods: Sequence[Method], tell: Tell | None
) -> tuple[FingerprintSide, Mapping[str, Features]]:
    if reference.endswith(SUFFIX):
        found, kind = read_fingerprint(Path(reference)), "fingerprint"
    else:
        found, kind = make_fingerprint(reference, session, methods, tell), "model"
    text = found.description
    digest = text.digest or None
    return (
        FingerprintSide(
            reference,
            kind,
            text.model,
            text.architecture,
            text.layers,
            text.hidden,
            text.commit,
            digest,
            text.made_by,
        ),
        found.features,
    )


def conclude(findings: Sequence[MethodFinding]) -> tuple[str, str, float | None]:
    """Judge by exact methods alone, corrected for their number."""
    exact = [
        item.chance.log10_p
        for item in findings
        if item.status == TESTED and item.chance is not None and item.chance.exact and item.chance.log10_p is not None
    ]
    if not exact:
        return NOT_TESTABLE, "Not testable: no method with an exact null could run on these fingerprints.", None
    log10_p = bonferroni(min(exact), len(exact))
    if log10_p <= LOG10_ALPHA:
        odds = f"if they were unrelated, agreement like this would have a chance below 10^{math.ceil(log10_p)}"
        sentence = f"The two models share weights or their initialisation: {odds}. Compare the weights for a verdict."
        return RELATED, sentence, log10_p
    return (
        NO_EVIDENCE,
        "No exact method finds a relation. Fingerprints see less than weights: reordered models, for one, need compare --deep.",
        log10_p,
    )
