"""A sample of the survey of docs/architectures.md: every tensor named, and a copy reordered by the roles computes the same."""

import sys

import pytest

from support.places import ROOT

pytest.importorskip("torch")
pytest.importorskip("transformers")
sys.path.insert(0, str(ROOT / "tools" / "architectures"))

from survey import survey
from tiny_models import all_types

# an encoder-decoder, experts, latent attention, Mamba 1 and 2, narrow embeddings at both ends, stages with merged patches, a stream
# inside layers, batch norms
SAMPLE = ("t5", "qwen3_moe", "deepseek_v2", "mamba", "mamba2", "rembert", "swin", "mobilebert", "mobilenet_v2")


@pytest.mark.parametrize("kind", SAMPLE)
def test_roles_cover_a_type_and_their_axes_are_right(kind, tmp_path):
    row = survey(kind, all_types()[kind], tmp_path, depth=1)
    assert (row.built, row.guessed, row.unmapped) == ("", False, [])
    assert row.function in ("same", "same, heads in place")
