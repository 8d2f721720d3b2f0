"""Where the project's own models and files are."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEMO_MODELS = ROOT / "demo" / "models"
FAMILY_MODELS = ROOT / "tests" / "family"
GOLDEN_REPORTS = ROOT / "tests" / "golden"
