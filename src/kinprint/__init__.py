"""kinprint: say from their weights whether one language model derives from another, and how sure that is.

>>> import kinprint
>>> report = kinprint.compare("demo/models/base", "demo/models/finetune")   # doctest: +SKIP
>>> report.verdict.sentence                                                 # doctest: +SKIP

The public names are those that ``dir(kinprint)`` lists; docs/api.md shows them at work. All modules below are internal: what is
in them may move between versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinprint._version import __version__

if TYPE_CHECKING:
    from kinprint.bundle import make_bundle, verify_bundle, write_bundle
    from kinprint.catalog.adding import add_model
    from kinprint.catalog.exchange import export_catalog, import_catalog
    from kinprint.catalog.store import Catalog, open_catalog
    from kinprint.comparison.pipeline import compare
    from kinprint.errors import KinprintError
    from kinprint.evidence.calibration import calibrate
    from kinprint.fingerprints.report import compare_fingerprints, make_fingerprint
    from kinprint.model.inspection import inspect
    from kinprint.model.model import Model, open  # noqa: A004 - read as kinprint.open
    from kinprint.results.findings import Evidence, Verdict
    from kinprint.results.inspection import Inspection
    from kinprint.results.loading import load
    from kinprint.results.options import Options
    from kinprint.results.report import Report
    from kinprint.results.search import SearchReport
    from kinprint.results.tree import FamilyTree, PairsReport
    from kinprint.searching.run import search
    from kinprint.sources.ledger import Ledger
    from kinprint.sources.session import Session
    from kinprint.sources.settings import Settings
    from kinprint.studies.recipe import study
    from kinprint.tree import build_tree, compare_many

# Resolved on first use: `kinprint --help` must not wait for numpy.
_NAMES = {
    "bundle": "make_bundle verify_bundle write_bundle",
    "catalog.adding": "add_model",
    "catalog.exchange": "export_catalog import_catalog",
    "catalog.store": "Catalog open_catalog",
    "comparison.pipeline": "compare",
    "errors": "KinprintError",
    "evidence.calibration": "calibrate",
    "fingerprints.report": "compare_fingerprints make_fingerprint",
    "model.inspection": "inspect",
    "model.model": "Model open",
    "results.findings": "Evidence Verdict",
    "results.inspection": "Inspection",
    "results.loading": "load",
    "results.options": "Options",
    "results.report": "Report",
    "results.search": "SearchReport",
    "searching.run": "search",
    "results.tree": "FamilyTree PairsReport",
    "sources.ledger": "Ledger",
    "sources.session": "Session",
    "sources.settings": "Settings",
    "studies.recipe": "study",
    "tree": "build_tree compare_many",
}
_HOMES = {name: f"kinprint.{module}" for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "Catalog", "Evidence", "FamilyTree", "Inspection", "KinprintError", "Ledger", "Model", "Options", "PairsReport",
    "Report", "SearchReport", "Session", "Settings", "Verdict", "__version__", "add_model", "build_tree", "calibrate",
    "compare", "compare_fingerprints", "compare_many", "export_catalog", "import_catalog", "inspect", "load",
    "make_bundle", "make_fingerprint", "open", "open_catalog", "search", "study", "verify_bundle", "write_bundle",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'kinprint' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
