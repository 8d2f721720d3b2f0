"""Keep a training's numbers, so that a run that was ended goes on: a safetensors file that is compared, never parsed.

What it is of (settings, seeds, versions) and its shapes give its header, so a reader knows every byte of it beforehand and takes
no other. A SHA-256 of the numbers follows, then the numbers.
"""

from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import numpy as np
import orjson
from numpy.typing import NDArray

from kinprint._util.files import make_folder, read_whole, replacing
from kinprint.errors import KinprintError
from kinprint.text import Text

Arrays = dict[str, NDArray[np.float32]]
_DIGEST, _MOST_HEADER = 32, 10**6  # bytes


class Kept:
    """The file of one training, by what it is of; `note` says whether it was used. Without a folder nothing is kept."""

    def __init__(self, folder: Path | None, name: str, of: Mapping[str, object]) -> None:
        self.note: Text | None = None
        self._name, self._of = name, {key: str(value) for key, value in of.items()}
        self._path = folder / f"{name}-{sha256(orjson.dumps(self._of)).hexdigest()[:8]}.safetensors" if folder else None

    def write(self, arrays: Arrays) -> None:
        """Write all arrays; a reader sees the former file or this one, whenever the writer is killed."""
        if self._path is not None:
            make_folder(self._path.parent)
            body = b"".join(np.ascontiguousarray(array, "<f4").data for array in arrays.values())
            with replacing(self._path) as temporary, temporary.open("wb") as file:
                file.writelines([self._header(arrays), sha256(body).digest(), body])

    def restore(self, *choices: Arrays) -> Arrays | None:
        """Fill that one of the choices which the file holds, and return it; None if it holds none of them, or there is no file."""
        if self._path is None:
            return None
        if not self._path.exists():
            if others := sorted(self._path.parent.glob(f"{self._name}-????????.safetensors")):
                self.note = Text("{file} is of other settings or versions, and was not used.", file=others[0].name)
            return None
        sizes, raw = [sum(array.nbytes for array in arrays.values()) for arrays in choices], memoryview(b"")
        with suppress(KinprintError, OSError):
            raw = memoryview(read_whole(self._path, max(sizes) + _MOST_HEADER))
        for arrays, size in zip(choices, sizes, strict=True):
            numbers = raw[-size:]
            if raw[:-size] == self._header(arrays) + sha256(numbers).digest():
                values = np.frombuffer(numbers, "<f4")
                for array in arrays.values():
                    array[...], values = values[: array.size].reshape(array.shape), values[array.size :]
                self.note = Text("{file}, kept by an earlier run of the same settings, was used.", file=self._path.name)
                return arrays
        self.note = Text("{file} does not hold what such a run keeps, and was not used.", file=self._path.name)
        return None

    def _header(self, arrays: Arrays) -> bytes:
        fields: dict[str, object] = {"__metadata__": self._of}
        fields["sha256"], end = {"dtype": "U8", "shape": [_DIGEST], "data_offsets": [0, _DIGEST]}, _DIGEST
        for name, array in arrays.items():
            start, end = end, end + array.nbytes
            fields[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": [start, end]}
        text = orjson.dumps(fields)
        text += b" " * (-len(text) % 8)
        return len(text).to_bytes(8, "little") + text
