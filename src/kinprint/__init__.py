"""kinprint: say from their weights whether one language model derives from another, and how sure that is.

>>> import kinprint
>>> report = kinprint.compare("demo/models/base", "demo/models/finetune")   # doctest: +SKIP
>>> report.verdict.sentence                                                 # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinprint._version import __version__

if TYPE_CHECKING:
    from kinprint.bundle import verify_bundle, write_bundle
    from kinprint.comparison.pipeline import compare
    from kinprint.evidence.calibration import calibrate
    from kinprint.fingerprints.report import compare_fingerprints, make_fingerprint
    from kinprint.model.inspection import inspect
    from kinprint.model.model import Model, open, open_model, open_models  # noqa: A004 - read as kinprint.open
    from kinprint.render.page import page_html
    from kinprint.results.findings import Evidence, Verdict
    from kinprint.results.inspection import Inspection
    from kinprint.results.options import Options
    from kinprint.results.report import Report
    from kinprint.sources.ledger import Ledger
    from kinprint.sources.session import Session
    from kinprint.sources.settings import Settings
    from kinprint.tree import build_tree, compare_many

# Resolved on first use: `kinprint --help` must not wait for numpy.
_HOMES = {
    "Evidence": "kinprint.results.findings",
    "Inspection": "kinprint.results.inspection",
    "Ledger": "kinprint.sources.ledger",
    "Model": "kinprint.model.model",
    "Options": "kinprint.results.options",
    "Report": "kinprint.results.report",
    "Session": "kinprint.sources.session",
    "Settings": "kinprint.sources.settings",
    "Verdict": "kinprint.results.findings",
    "build_tree": "kinprint.tree",
    "calibrate": "kinprint.evidence.calibration",
    "compare": "kinprint.comparison.pipeline",
    "compare_fingerprints": "kinprint.fingerprints.report",
    "compare_many": "kinprint.tree",
    "inspect": "kinprint.model.inspection",
    "make_fingerprint": "kinprint.fingerprints.report",
    "open": "kinprint.model.model",
    "open_model": "kinprint.model.model",
    "open_models": "kinprint.model.model",
    "page_html": "kinprint.render.page",
    "verify_bundle": "kinprint.bundle",
    "write_bundle": "kinprint.bundle",
}

__all__ = [
    "Evidence",
    "Inspection",
    "Ledger",
    "Model",
    "Options",
    "Report",
    "Session",
    "Settings",
    "Verdict",
    "__version__",
    "build_tree",
    "calibrate",
    "compare",
    "compare_fingerprints",
    "compare_many",
    "inspect",
    "make_fingerprint",
    "open",
    "open_model",
    "open_models",
    "page_html",
    "verify_bundle",
    "write_bundle",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'kinprint' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
