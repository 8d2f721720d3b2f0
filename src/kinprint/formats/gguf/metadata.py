"""Decode metadata values of a GGUF file when they are asked for."""

import struct
from collections.abc import Mapping
from typing import NamedTuple

from kinprint.errors import FormatError

STRING = 8
_CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
FIXED = {number: struct.Struct(f"<{code}") for number, code in _CODES.items()}  # the others: strings (8), arrays (9)
_F32, _BOOL = 6, 7
_U64 = struct.Struct("<Q")
MAX_STRINGS = 1 << 20  # tokens, or merges, of a vocabulary
MAX_NUMBERS = 1 << 20
MAX_TEXT = 1 << 12  # characters of a name or an architecture

Number = int | float


class MetadataValue(NamedTuple):
    """A value: its type (of its items, if it is an array), how many there are, and where they begin."""

    kind: int
    is_array: bool
    length: int
    at: int


class Metadata:
    """Values by key. The walk over the header has checked that all of them lie within `data`."""

    def __init__(self, data: bytes, entries: Mapping[str, MetadataValue], label: str) -> None:
        self._data, self._entries, self._label = data, entries, label

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def count(self, key: str) -> int:
        """Return how many items an array has; 0 if there is no such array."""
        entry = self._entries.get(key)
        return entry.length if entry is not None and entry.is_array else 0

    def number(self, key: str) -> Number | None:
        """Return a number, or None if there is none under this key."""
        entry = self._entries.get(key)
        return None if entry is None or entry.is_array else next(iter(self.numbers(key)), None)

    def numbers(self, key: str, most: int = MAX_NUMBERS) -> list[Number]:
        """Return an array of numbers, or a single one as a list; [] if there is none or it is longer than `most`."""
        entry = self._entries.get(key)
        if entry is None or entry.kind not in FIXED or entry.kind == _BOOL or entry.length > most:
            return []
        form = FIXED[entry.kind]
        found = struct.unpack_from(f"<{entry.length}{form.format[1:]}", self._data, entry.at)
        # a float32 is rounded to the decimal that configs write: 1e-06, not 9.999999974752427e-07
        return [float(f"{value:.7g}") if entry.kind == _F32 else value for value in found]

    def text(self, key: str) -> str | None:
        """Return a short string, or None if there is none under this key."""
        entry = self._entries.get(key)
        if entry is None or entry.is_array or entry.kind != STRING:
            return None
        length = _U64.unpack_from(self._data, entry.at)[0]
        return self._data[entry.at + 8 : entry.at + 8 + min(length, MAX_TEXT)].decode(errors="replace")

    def strings(self, key: str) -> list[str]:
        """Return an array of strings; [] if there is none. Raise FormatError if there are more than any vocabulary has."""
        entry = self._entries.get(key)
        if entry is None or not entry.is_array or entry.kind != STRING:
            return []
        if entry.length > MAX_STRINGS:
            raise FormatError(f"{self._label}: {key} lists {entry.length} strings, at most {MAX_STRINGS} expected")
        data, at, unpack = self._data, entry.at, _U64.unpack_from
        found = []
        for _ in range(entry.length):
            end = at + 8 + unpack(data, at)[0]
            found.append(data[at + 8 : end].decode(errors="replace"))
            at = end
        return found
