"""What every figure of a study keeps to."""

import re
from typing import Any

_FIGURES = re.compile(r"\d")


def without_finding(drawn: dict[str, Any]) -> list[str]:
    """Return the names of figures whose title states no number, or one that does not exist."""
    titles = {name: figure.get_suptitle() for name, figure in drawn.items()}
    return [name for name, title in titles.items() if not _FIGURES.search(title) or re.search(r"\bnan\b", title)]
