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
    from kinprint.comparison import compare
    from kinprint.evidence.calibration import calibrate
    from kinprint.evidence.examine import Inquiry
    from kinprint.findings import Evidence, Verdict
    from kinprint.fingerprints.report import compare_fingerprints, make_fingerprint
    from kinprint.inspection import inspect
    from kinprint.model import Model, open_model, open_models
    from kinprint.render.page import page_html
    from kinprint.results import Inspection, Report
    from kinprint.selection import Options
    from kinprint.sources.ledger import Ledger
    from kinprint.sources.session import Session
    from kinprint.sources.settings import Settings
    from kinprint.tree import build_tree, compare_many

# Resolved on first use: `kinprint --help` must not wait for numpy.
_HOMES = {
    "Evidence": "kinprint.findings",
    "Inquiry": "kinprint.evidence.examine",
    "Inspection": "kinprint.results",
    "Ledger": "kinprint.sources.ledger",
    "Model": "kinprint.model",
    "Options": "kinprint.selection",
    "Report": "kinprint.results",
    "Session": "kinprint.sources.session",
    "Settings": "kinprint.sources.settings",
    "Verdict": "kinprint.findings",
    "build_tree": "kinprint.tree",
    "calibrate": "kinprint.evidence.calibration",
    "compare": "kinprint.comparison",
    "compare_fingerprints": "kinprint.fingerprints.report",
    "compare_many": "kinprint.tree",
    "inspect": "kinprint.inspection",
    "make_fingerprint": "kinprint.fingerprints.report",
    "open_model": "kinprint.model",
    "open_models": "kinprint.model",
    "page_html": "kinprint.render.page",
    "verify_bundle": "kinprint.bundle",
    "write_bundle": "kinprint.bundle",
}

__all__ = [
    "Evidence",
    "Inquiry",
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
