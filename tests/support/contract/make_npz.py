"""NumPy archives as numpy itself writes them: stored and compressed, in either order of axes."""

import json

import numpy as np

from support.contract.little_model import Maker


def _write(dtype, *, save=np.savez, order="C"):
    def write(folder, tensors, config):
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config))
        save(
            folder / "model.npz",
            **{name: np.array(values, dtype=dtype, order=order) for name, values in tensors.items()},
        )

    return write


MAKERS = {
    "NumPy F32": Maker(_write("<f4"), "model.npz"),
    "NumPy F16": Maker(_write("<f2"), "model.npz"),
    "NumPy Fortran order": Maker(_write("<f4", order="F"), "model.npz", rows_alone=False),
    "NumPy compressed": Maker(_write("<f4", save=np.savez_compressed), "model.npz", rows_alone=False),
    "NumPy compressed, Fortran order": Maker(
        _write("<f2", save=np.savez_compressed, order="F"), "model.npz", rows_alone=False
    ),
}
