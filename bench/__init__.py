"""Benches: each compares ways of doing one thing in one run and checks the ratio against a goal."""

import os
import sys
from pathlib import Path

# The local hub and the model layouts are those of the tests; programs that a bench starts need them too.
_TESTS = str(Path(__file__).resolve().parents[1] / "tests")
if _TESTS not in sys.path:
    sys.path.append(_TESTS)
_PATH = os.environ.get("PYTHONPATH", "").split(os.pathsep)
if _TESTS not in _PATH:  # pytest has them in its own path, which programs do not inherit
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*_PATH, _TESTS]))
