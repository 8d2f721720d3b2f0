"""Transpose quantised weights of GPT-2's Conv1D layers back to in × out, as the model itself stores them.

GPTQ and bitsandbytes replace such a layer by a linear one with the transposed weight.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kinprint.formats.dtypes import Array
from kinprint.formats.plan import TensorSlice
from kinprint.formats.quantised.modules import FloatArray, QuantisedLayer, chunks
from kinprint.formats.row_maker import RowMaker
from kinprint.formats.tensors import TensorInfo
from kinprint.text import Text

_MODELS = ("gpt2", "openai-gpt", "imagegpt", "decision_transformer")
_LAYERS = ("c_attn", "c_proj", "c_fc", "q_attn")


@dataclass(frozen=True, slots=True)
class TransposedConv1D:
    """The transpose of a dequantised matrix. Any row needs all of that matrix, which is built in pieces, and never held."""

    inner: RowMaker

    @property
    def method(self) -> Text:
        """The method of quantisation, for the report."""
        return Text("{how}, transposed", how=self.inner.method)

    def parts(self, start: int, stop: int) -> Sequence[TensorSlice]:
        """Select everything that the matrix is made of, each part once."""
        pieces = chunks(0, *self.inner.shape) if start < stop else ()
        return list(dict.fromkeys(part for piece in pieces for part in self.inner.parts(*piece)))

    def build(self, start: int, stop: int, parts: Sequence[Array]) -> Array:
        """Build the matrix in pieces, and keep the columns asked for."""
        built: FloatArray = np.empty((stop - start, self.inner.shape[0]), np.float32)
        values = dict(zip(self.parts(start, stop), parts, strict=True))
        for low, high in chunks(0, *self.inner.shape) if values else ():
            given = [values[part] for part in self.inner.parts(low, high)]
            built[:, low:high] = self.inner.build(low, high, given)[:, start:stop].T
        return built


def as_conv1d(tensor: TensorInfo, layer: QuantisedLayer) -> TensorInfo:
    """Transpose a tensor back if its model stores it in × out."""
    is_conv1d = layer.settings.model_type in _MODELS and layer.stem.rpartition(".")[2] in _LAYERS
    if not is_conv1d or not isinstance(tensor.made, RowMaker) or len(tensor.shape) != 2:
        return tensor
    return tensor._replace(shape=tensor.shape[::-1], made=TransposedConv1D(tensor.made))
