"""List all formats, best first: of a model in several formats, the first one listed is read. Name a new format here."""

from kinprint.formats.format import FORMATS
from kinprint.formats.gguf.parser import GGUF
from kinprint.formats.llama2c import LLAMA2C
from kinprint.formats.npz import NUMPY
from kinprint.formats.onnx.parser import ONNX
from kinprint.formats.pytorch.archive import PYTORCH
from kinprint.formats.safetensors.parser import SAFETENSORS

for _format in (SAFETENSORS, PYTORCH, LLAMA2C, GGUF, ONNX, NUMPY):
    FORMATS.add(_format.name, _format)
