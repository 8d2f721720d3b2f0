"""The published figures that studies are checked against, and which of them are known to be wrong, with the reason.

The numbers were printed in, or measured by the code of, four public repositories (January 2026); `published.json`
names their commits and says for each group how it came about.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import orjson

from kinprint.text import Text

_FILE = Path(__file__).parent / "published.json"

WRONG_D2 = Text(
    "Appendix D-2 fits no measurement: three independent readers agree with each other, not with it (layer 0: 0.127, not 0.950)"
)
WRONG_E3 = Text("Appendix E-3 says 0.94 and 0.01; two independent measurements give 0.986 and −0.002")
MIXED = Text(
    "a mixture: 0.95 for Solar is a mean over layers, 0.99 for Phi a best layer; on the same 32 layers all three are 0.93"
)


@cache
def published() -> dict[str, Any]:
    """Return all published figures."""
    found: dict[str, Any] = orjson.loads(_FILE.read_bytes())
    return found


def layerwise(category: str) -> dict[int, dict[str, float]]:
    """Return Solar against GLM by layer (``norm_pre`` or ``norm_post``): means, standard deviations, cosine, Pearson."""
    table = published()["anlgboy_sanity"]
    columns = table["cols"]
    rows = (dict(zip(columns, row, strict=True)) for row in table["rows"])
    return {int(row["layer"]): row for row in rows if row["category"] == category}
