"""Closed streams, links to themselves and warnings of numpy: no traceback, no noise."""

import subprocess
import sys

import numpy as np
import pytest

from support.suspects import files_of, sound, write


@pytest.mark.parametrize(("closed", "style"), [("1>&-", "table"), ("1>&- 2>&-", "json"), ("0<&- 1>&-", "json")])
def test_closed_streams(environment, demo, tmp_path, closed, style):
    command = [sys.executable, "-m", "kinprint", "inspect", str(demo / "base"), "--no-norms", "--format", style]
    done = subprocess.run(
        ["sh", "-c", f'exec {closed}; exec "$@"', "sh", *command], env=environment, stderr=subprocess.PIPE, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_model_that_is_a_link_to_itself(inside, tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "model.safetensors").symlink_to("model.safetensors")
    (tmp_path / "l").symlink_to("l")
    for path in (tmp_path / "m", tmp_path / "l"):
        done = inside("inspect", path)
        assert done.code in (3, 6), done.err
        assert done.err.startswith("error: ")


def test_numpy_does_not_warn_users(environment, tmp_path):
    tensors, *rest = sound()
    for name in tensors:
        tensors[name] = np.full_like(tensors[name], 3e38)  # whose squares leave float32
    a, b = write(tmp_path / "a", files_of(*sound())), write(tmp_path / "b", files_of(tensors, *rest))
    command = [sys.executable, "-m", "kinprint", "compare", str(a), str(b), "--metrics", "pearson", "--deep", "--quiet"]
    quiet = {key: value for key, value in environment.items() if key != "PYTHONWARNINGS"}
    done = subprocess.run(command, env=quiet, capture_output=True, timeout=60, text=True)
    assert done.returncode in (0, 7)
    assert "Warning" not in done.stderr
