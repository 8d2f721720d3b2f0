"""Describe all formats, best first: of a model in several formats, the first one listed is read. Describe a new format here."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from kinprint.formats.format import FORMATS, Format


def _format(name: str, suffixes: str, module: str, *, index: str = "", single: str = "", **more: Any) -> Format:
    """Describe a format whose functions (`load`, others by name) stand in a module, imported when a file is first read by it."""

    def function(called: str) -> Callable[..., Any]:
        return lambda *given: getattr(import_module(f"kinprint.formats.{module}"), called)(*given)

    more |= {field: function(more[field]) for field in ("accepts", "rank", "together") if field in more}
    usual = tuple(index.split()), tuple(single.split())
    return Format(name, tuple(suffixes.split()), function("load"), *usual, **more)


SAFETENSORS = _format(
    "safetensors",
    ".safetensors",
    "safetensors.parser",
    index="model.safetensors.index.json pytorch_model.safetensors.index.json "
    "diffusion_pytorch_model.safetensors.index.json",
    single="model.safetensors pytorch_model.safetensors diffusion_pytorch_model.safetensors",
)
PYTORCH = _format(
    "PyTorch",
    ".bin .pt .pth .ckpt",
    "pytorch.archive",
    index="pytorch_model.bin.index.json diffusion_pytorch_model.bin.index.json",
    single="pytorch_model.bin diffusion_pytorch_model.bin model.pt model.pth model.ckpt consolidated.00.pth",
    accepts="is_archive",
)
LLAMA2C = _format("llama2.c", ".bin", "llama2c", accepts="parse_header")
CTRANSLATE2 = _format("CTranslate2", ".bin", "ctranslate2", accepts="is_model")
GGUF = _format("GGUF", ".gguf", "gguf.parser", rank="rank", split_by_name=True)
ONNX = _format("ONNX", ".onnx", "onnx.parser", single="model.onnx", rank="grade", together="with_encoder")
NUMPY = _format("NumPy", ".npz", "npz", single="model.npz weights.npz pytorch_model.npz")
for _each in (SAFETENSORS, PYTORCH, CTRANSLATE2, LLAMA2C, GGUF, ONNX, NUMPY):
    FORMATS.add(_each.name, _each)
