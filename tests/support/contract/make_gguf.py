"""GGUF as llama.cpp converts a Llama: rows of q and k interleaved, matrices quantised, norms in F32."""

from support.contract.little_model import Maker
from support.gguf_files import convert_llama, write_gguf


def _writer(dtype, name):
    def write(folder, tensors, config):
        folder.mkdir(exist_ok=True)
        write_gguf(folder / name, *convert_llama(tensors, config, dtype))

    return write


def _maker(dtype, error=0.0):
    name = f"little-{dtype}.gguf"
    return Maker(_writer(dtype, name), name, error)


MAKERS = {
    "GGUF F32": _maker("F32"),
    "GGUF F16": _maker("F16"),
    "GGUF BF16": _maker("BF16"),
    "GGUF Q8_0": _maker("Q8_0", 0.005),
    "GGUF Q6_K": _maker("Q6_K", 0.03),
    "GGUF Q4_K": _maker("Q4_K", 0.12),
    "GGUF Q4_0": _maker("Q4_0", 0.13),
}
