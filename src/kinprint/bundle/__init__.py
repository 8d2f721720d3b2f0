"""Write and verify evidence bundles: a comparison with everything that is needed to repeat it."""

from kinprint.bundle.verifying import report_of, verify_bundle
from kinprint.bundle.writing import make_bundle, write_bundle

__all__ = ["make_bundle", "report_of", "verify_bundle", "write_bundle"]
