"""Fixtures for quantised layers (store one, open it, hold it against what it stands for)."""

import numpy as np
import pytest

from kinprint.formats.checkpoint import open_checkpoint
from kinprint.formats.plan import rows, whole
from support.quantisers import write_layers

LAYER = "model.layers.0.mlp.up_proj"


@pytest.fixture
def open_layer(tmp_path, session_for):
    """Store one quantised layer, with a quantization_config if any settings are given, and open the checkpoint."""

    def build(layer, config=None, **settings):
        write_layers(tmp_path / "model", {LAYER: layer}, config or {"model_type": "llama"}, **settings)
        return open_checkpoint(str(tmp_path / "model"), session_for())

    return build


@pytest.fixture
def check_layer():
    """Demand that the one tensor of a checkpoint stands for a layer, whole and by rows."""

    def check(checkpoint, layer, *, exact=True):
        assert list(checkpoint.tensors) == [f"{LAYER}.weight"]
        tensor = checkpoint.tensors[f"{LAYER}.weight"]
        values = checkpoint.read([whole(tensor)])[0]
        assert (values.shape, values.dtype) == (layer.values.shape, np.float32)
        if exact:
            assert np.array_equal(values, layer.values)
        else:  # the last bit depends on the order of two multiplications
            assert np.allclose(values, layer.values, rtol=3e-7, atol=0)
        count = len(values)
        for interval in ((0, 1), (count // 3, count // 3 + 5), (count - 1, count), (3, 3)):
            assert np.array_equal(checkpoint.read([rows(tensor, [interval])])[0], values[slice(*interval)])
        several = [(1, 2), (5, 9), (count - 2, count)]
        joined = np.concatenate([values[start:stop] for start, stop in several])
        assert np.array_equal(checkpoint.read([rows(tensor, several)])[0], joined)
        return tensor

    return check
