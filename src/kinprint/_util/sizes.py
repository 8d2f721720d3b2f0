"""Byte counts as people write and read them."""

import re
from fractions import Fraction

from kinprint.errors import BadReference

_UNITS = {"": 1, "b": 1, "k": 10**3, "kb": 10**3, "kib": 1 << 10, "m": 10**6, "mb": 10**6, "mib": 1 << 20}
_UNITS |= {"g": 10**9, "gb": 10**9, "gib": 1 << 30, "t": 10**12, "tb": 10**12, "tib": 1 << 40}


def parse_size(text: str) -> int:
    """Return the bytes in ``64MB``, ``1.5 GiB`` or ``4096``; decimal units unless written KiB, MiB, GiB, TiB."""
    match = re.fullmatch(r"\s*([0-9]{1,19}(?:\.[0-9]{1,19})?)\s*([A-Za-z]*)\s*", text)
    if not match or match[2].lower() not in _UNITS:
        raise BadReference(f"cannot read {text!r} as a size: expected a number with an optional unit, such as 64MB")
    return int(Fraction(match[1]) * _UNITS[match[2].lower()])


def format_size(count: float) -> str:
    """Return e.g. ``1.4 MB`` (decimal units, as disks and networks are sold)."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
