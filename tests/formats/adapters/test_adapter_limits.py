"""What a hostile adapter may not cost: names are searched by their ends, so they are bounded."""

import numpy as np
import pytest

from kinprint.errors import FormatError
from kinprint.formats.adapters.config import LoraSettings
from kinprint.formats.adapters.lora import MAX_DEPTH, MAX_NAME, read_adapter
from kinprint.formats.tensors import TensorInfo
from support.counting import at_most_calls


def adapter(path):
    names = {f"base_model.model.{path}.lora_{part}.weight": shape for part, shape in (("A", (2, 8)), ("B", (8, 2)))}
    return {name: TensorInfo(name, "F32", shape, 0, 0, 4 * int(np.prod(shape))) for name, shape in names.items()}


@pytest.mark.parametrize("path", ["a." * 20_000 + "q_proj", "b" * (MAX_NAME + 1), "c." * (MAX_DEPTH + 1) + "q_proj"])
def test_names_without_end_are_refused_at_once(path):
    with pytest.raises(FormatError, match="expected at most 1000 and 64"), at_most_calls(1000):
        read_adapter(adapter(path), LoraSettings(2, 4.0), "x")


def test_of_two_patterns_that_match_the_first_one_listed_counts():
    settings = LoraSettings(2, 4.0, alpha_pattern={"attn.q": 8.0, "q": 16.0} | {f"other{n}": 1.0 for n in range(10)})
    assert settings.alpha_of("layers.0.attn.q") == 8.0
    assert settings.alpha_of("layers.0.mlp.q") == 16.0
    assert settings.alpha_of("layers.0.mlp.k") == 4.0
