"""All formats, best first: where a model has several, the first one here is read. A new one is named here."""

from __future__ import annotations

from kinprint.formats.containers import FORMATS
from kinprint.formats.gguf import GGUF
from kinprint.formats.npz import NUMPY
from kinprint.formats.pytorch import PYTORCH
from kinprint.formats.safetensors import SAFETENSORS

for _format in (SAFETENSORS, PYTORCH, GGUF, NUMPY):
    FORMATS.add(_format.name, _format)
