"""GPT-2's layers, which are stored in × out, come out of a quantiser as out × in: here they are transposed back.

Both GPTQ and bitsandbytes replace such a layer (Conv1D) by a linear one with the transposed weight. The architecture files
expect what the model itself stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from kinprint.formats.dtypes import Array
from kinprint.formats.plan import TensorSlice
from kinprint.formats.quantised.modules import FloatArray, QuantisedLayer, chunks
from kinprint.formats.tensors import Dequantised, TensorInfo
from kinprint.text import Text

_MODELS = ("gpt2", "openai-gpt", "imagegpt", "decision_transformer")
_LAYERS = ("c_attn", "c_proj", "c_fc", "q_attn")


@dataclass(frozen=True, slots=True)
class TransposedConv1D:
    """The transpose of a made matrix. Any row needs all of that matrix, which is built piece by piece, and never held."""

    inner: Dequantised
    rows: int
    columns: int

    @property
    def method(self) -> Text:
        """What is done, for the report."""
        return Text("{how}, transposed", how=self.inner.method)

    def parts(self, start: int, stop: int) -> Sequence[TensorSlice]:
        """Return all that the matrix is made of, piece after piece."""
        if start >= stop:
            return []
        return [part for piece in self._pieces() for part in piece[2]]

    def _pieces(self) -> list[tuple[int, int, Sequence[TensorSlice]]]:
        """Return rows of the matrix, and what they are made of; nothing but for the first if all are made of the same."""
        cuts = list(chunks(0, self.rows, self.columns))
        found = [(low, high, self.inner.parts(low, high)) for low, high in cuts]
        shared = found[0][2]
        if all(list(parts) == list(shared) for _, _, parts in found):
            return [(low, high, shared if at == 0 else ()) for at, (low, high, _) in enumerate(found)]
        return found

    def build(self, start: int, stop: int, parts: Sequence[Array]) -> Array:
        """Build the matrix in pieces, and keep the columns asked for."""
        built: FloatArray = np.empty((stop - start, self.rows), np.float32)
        if start >= stop:
            return built
        at, shared = 0, parts
        for number, (low, high, needed) in enumerate(self._pieces()):
            given = parts[at : at + len(needed)] if needed else shared
            if number == 0:
                shared = given
            at += len(needed)
            built[:, low:high] = self.inner.build(low, high, given)[:, start:stop].T
        return built


def as_conv1d(tensor: TensorInfo, layer: QuantisedLayer) -> TensorInfo:
    """Transpose a tensor back if its model stores it in × out."""
    as_stored = layer.settings.model_type in _MODELS and layer.stem.rpartition(".")[2] in _LAYERS
    if not as_stored or tensor.made is None or len(tensor.shape) != 2:
        return tensor
    return tensor._replace(
        shape=tensor.shape[::-1], made=TransposedConv1D(cast(Dequantised, tensor.made), *tensor.shape)
    )
