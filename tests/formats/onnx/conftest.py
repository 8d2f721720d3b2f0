"""What tests of ONNX files share."""

import onnx
import pytest

from kinprint.formats.all_formats import ONNX
from kinprint.formats.checkpoint import open_checkpoint
from kinprint.formats.format import FORMATS


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    monkeypatch.setitem(FORMATS, "ONNX", ONNX)


@pytest.fixture
def opened(tmp_path, session_for):
    """Write a model, or the bytes of one, and open it."""

    def open_(content, name="model.onnx", **options):
        path = tmp_path / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            onnx.save(content, path, **options)
        return open_checkpoint(str(path), session_for())

    return open_
