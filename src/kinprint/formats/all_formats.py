"""Describe all formats, best first: of a model in several formats, the first one listed is read. Describe a new format here."""

from importlib import import_module
from typing import Any

from kinprint.formats.format import FORMATS, Format, Loader


def _load(module: str) -> Loader:
    """Return the function `load` of a module, which is imported when a file is first read by it."""
    return lambda *file: _call(module, "load", *file)


def _call(module: str, function: str, *given: Any) -> Any:
    return getattr(import_module(f"kinprint.formats.{module}"), function)(*given)


SAFETENSORS = Format(
    name="safetensors",
    suffixes=(".safetensors",),
    load=_load("safetensors.parser"),
    index_names=("model.safetensors.index.json", "pytorch_model.safetensors.index.json"),
    single_names=("model.safetensors", "pytorch_model.safetensors"),
)
PYTORCH = Format(
    name="PyTorch",
    suffixes=(".bin", ".pt", ".pth", ".ckpt"),
    load=_load("pytorch.archive"),
    index_names=("pytorch_model.bin.index.json",),
    single_names=("pytorch_model.bin", "model.pt", "model.pth", "model.ckpt", "consolidated.00.pth"),
    accepts=lambda head: head.startswith(b"PK\x03\x04"),
)
LLAMA2C = Format(
    name="llama2.c",
    suffixes=(".bin",),
    load=_load("llama2c"),
    accepts=lambda head: _call("llama2c", "parse_header", head) is not None,
)
CTRANSLATE2 = Format(
    name="CTranslate2",
    suffixes=(".bin",),
    load=_load("ctranslate2"),
    accepts=lambda head: _call("ctranslate2", "is_model", head),
)
GGUF = Format(
    name="GGUF",
    suffixes=(".gguf",),
    load=_load("gguf.parser"),
    rank=lambda name: _call("gguf.parser", "rank", name),
    split_by_name=True,
)
ONNX = Format(
    name="ONNX",
    suffixes=(".onnx",),
    load=_load("onnx.parser"),
    single_names=("model.onnx",),
    rank=lambda name: _call("onnx.parser", "grade", name),
)
NUMPY = Format(
    name="NumPy",
    suffixes=(".npz",),
    load=_load("npz"),
    single_names=("model.npz", "weights.npz", "pytorch_model.npz"),
)
for _format in (SAFETENSORS, PYTORCH, CTRANSLATE2, LLAMA2C, GGUF, ONNX, NUMPY):
    FORMATS.add(_format.name, _format)
