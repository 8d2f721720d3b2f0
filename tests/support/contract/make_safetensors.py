"""safetensors in three number formats and in shards."""

from support.contract.little_model import Maker
from support.layouts import write_checkpoint


def _writer(dtype, shards=1):
    def write(folder, tensors, config):
        write_checkpoint(folder, tensors, config, dtype=dtype, shards=shards)

    return write


MAKERS = {
    "safetensors F32": Maker(_writer("F32"), "model.safetensors"),
    "safetensors F16": Maker(_writer("F16"), "model.safetensors"),
    "safetensors BF16": Maker(_writer("BF16"), "model.safetensors"),
    "safetensors sharded": Maker(_writer("BF16", 3), "model-00001-of-00003.safetensors"),
}
