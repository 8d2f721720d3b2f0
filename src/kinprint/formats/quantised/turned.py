"""GPT-2's layers, which are stored in × out, come out of a quantiser as out × in: here they are turned back.

Both GPTQ and bitsandbytes replace such a layer (Conv1D) by a linear one with the transposed weight. The architecture files
expect what the model itself stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kinprint.formats.dtypes import Array
from kinprint.formats.plan import TensorSlice
from kinprint.formats.quantised.modules import Layer
from kinprint.formats.tensors import Made, TensorInfo

_MODELS = ("gpt2", "openai-gpt", "imagegpt", "decision_transformer")
_LAYERS = ("c_attn", "c_proj", "c_fc", "q_attn")


@dataclass(frozen=True, slots=True)
class Turned:
    """The transpose of a made matrix of `rows` rows. Any row needs all of them."""

    inner: Made
    rows: int

    @property
    def method(self) -> str:
        """What is done, for the report."""
        return f"{self.inner.method}, transposed"

    def parts(self, start: int, stop: int) -> Sequence[TensorSlice]:
        """Return all that the matrix is made of."""
        return self.inner.parts(0, self.rows) if start < stop else self.inner.parts(0, 0)

    def build(self, start: int, stop: int, parts: Sequence[Array]) -> Array:
        """Build the matrix and take columns."""
        whole = self.inner.build(0, self.rows if start < stop else 0, parts)
        return np.ascontiguousarray(whole[:, start:stop].T)


def as_conv1d(tensor: TensorInfo, layer: Layer) -> TensorInfo:
    """Turn a tensor back if its model stores it in × out."""
    turned = layer.settings.model_type in _MODELS and layer.stem.rpartition(".")[2] in _LAYERS
    if not turned or tensor.made is None or len(tensor.shape) != 2:
        return tensor
    return tensor._replace(shape=tensor.shape[::-1], made=Turned(tensor.made, tensor.shape[0]))
