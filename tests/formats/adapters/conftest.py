"""An adapter of a little base, written anew for each test."""

import pytest

from kinprint.formats.checkpoint import open_checkpoint
from support.adapter_files import HIDDEN, LITTLE, PATHS, RANK, base_tensors, factors, lora_names, write_adapter
from support.layouts import write_checkpoint


@pytest.fixture
def base(tmp_path):
    write_checkpoint(tmp_path / "base", base_tensors(), LITTLE)
    return tmp_path / "base"


@pytest.fixture
def adapter(tmp_path, base):
    """Write an adapter of the base; by default of all of its projections."""

    def write(tensors=None, name="adapter", declared=base, **settings):
        if tensors is None:
            tensors = {}
            for path, out in PATHS.items():
                tensors |= lora_names(path, *factors(path, out, HIDDEN, settings.get("r", RANK)))
        return write_adapter(tmp_path / name, tensors, base=declared, **settings)

    return write


@pytest.fixture
def opened(session_for):
    def go(folder, **more):
        return open_checkpoint(str(folder), session_for(**more))

    return go
