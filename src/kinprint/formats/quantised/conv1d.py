"""Transpose quantised weights of GPT-2's Conv1D layers back to in × out, as the model itself stores them.

GPTQ and bitsandbytes replace such a layer by a linear one with the transposed weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kinprint.formats.dequantiser import Dequantiser
from kinprint.formats.dtypes import Array
from kinprint.formats.plan import TensorSlice
from kinprint.formats.quantised.modules import FloatArray, QuantisedLayer, chunks
from kinprint.formats.tensors import TensorInfo
from kinprint.text import Text

_MODELS = ("gpt2", "openai-gpt", "imagegpt", "decision_transformer")
_LAYERS = ("c_attn", "c_proj", "c_fc", "q_attn")


@dataclass(frozen=True, slots=True)
class TransposedConv1D:
    """The transpose of a dequantised matrix. Any row needs all of that matrix, which is built in pieces, and never held."""

    inner: Dequantiser

    @property
    def method(self) -> Text:
        """The method of quantisation, for the report."""
        return Text("{how}, transposed", how=self.inner.method)

    def parts(self, start: int, stop: int) -> Sequence[TensorSlice]:
        """Select everything that the matrix is made of, piece after piece."""
        if start >= stop:
            return []
        return [part for piece in self._pieces() for part in piece[2]]

    def _pieces(self) -> list[tuple[int, int, Sequence[TensorSlice]]]:
        """Return pieces of the matrix, and what each is made of; nothing after the first piece if all are made of the same."""
        cuts = list(chunks(0, *self.inner.shape))
        found = [(low, high, self.inner.parts(low, high)) for low, high in cuts]
        shared = found[0][2]
        if all(list(parts) == list(shared) for _, _, parts in found):
            return [(low, high, shared if at == 0 else ()) for at, (low, high, _) in enumerate(found)]
        return found

    def build(self, start: int, stop: int, parts: Sequence[Array]) -> Array:
        """Build the matrix in pieces, and keep the columns asked for."""
        built: FloatArray = np.empty((stop - start, self.inner.shape[0]), np.float32)
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
    is_conv1d = layer.settings.model_type in _MODELS and layer.stem.rpartition(".")[2] in _LAYERS
    if not is_conv1d or not isinstance(tensor.made, Dequantiser) or len(tensor.shape) != 2:
        return tensor
    return tensor._replace(shape=tensor.shape[::-1], made=TransposedConv1D(tensor.made))
