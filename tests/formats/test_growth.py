"""Costs that must not grow faster than what is read: counted in calls, not timed."""

import json

import pytest

from kinprint.bundle.members import CAPS, REPORT, _repeated_key
from kinprint.errors import FormatError
from kinprint.evidence.layer_grids import MOST_LAYERS, layer_grids
from kinprint.formats import format as choosing
from kinprint.formats.all_formats import FORMATS  # noqa: F401 - the formats register themselves
from kinprint.formats.format import choose_files
from kinprint.formats.safetensors.parser import MOST_TENSORS, parse_header
from kinprint.results.loading import MOST_BYTES
from support.counting import calls_of


def shards(stem, count):
    return [f"{stem}-{number:05d}-of-{count:05d}.safetensors" for number in range(1, count + 1)]


def test_choosing_among_shards_without_an_index_is_linear(monkeypatch):
    looked_at = []
    real = choosing._with_siblings
    monkeypatch.setattr(choosing, "_with_siblings", lambda *given: looked_at.append(given[0]) or real(*given))
    listed = frozenset(shards("model", 1200))
    assert set(choose_files(listed, None, "m").names) == listed
    assert len(looked_at) == 1  # the set, and not each of its files
    few, many = (calls_of(lambda n=n: choose_files(frozenset(shards("model", n)), None, "m")) for n in (300, 1200))
    assert many < 5 * few


def test_many_sets_of_shards_are_refused_after_the_second(monkeypatch):
    looked_at = []
    real = choosing._with_siblings
    monkeypatch.setattr(choosing, "_with_siblings", lambda *given: looked_at.append(given[0]) or real(*given))
    listed = [name for number in range(2000) for name in shards(f"part{number}", 2)]
    with pytest.raises(FormatError, match="nothing to say which belong together"):
        choose_files(listed, None, "m")
    assert len(looked_at) == 2


def test_keys_that_stand_twice_are_found_in_one_pass():
    sound = json.dumps({str(number): 0 for number in range(200_000)}).encode()  # pairs of which would be 40 billion
    assert _repeated_key(sound) is None
    assert _repeated_key(sound[:-1] + b', "7": 1}') == "7"


def test_headers_of_too_many_tensors_are_refused_before_they_are_parsed(monkeypatch):
    entry = b'"%d":{"dtype":"F32","shape":[],"data_offsets":[0,4]}'
    header = b"{" + b",".join(entry % number for number in range(MOST_TENSORS + 1)) + b"}"
    monkeypatch.setattr("kinprint.formats.safetensors.parser.orjson.loads", lambda _raw: pytest.fail("parsed"))
    with pytest.raises(FormatError, match=f"{MOST_TENSORS + 1} tensors, expected at most {MOST_TENSORS}"):
        parse_header(header, file=0, file_size=len(header) + 12, label="x")


def test_grids_of_deep_models_are_thinned(deep_probes):
    (grid,) = layer_grids(*deep_probes)
    assert len(grid.layers_a) == len(grid.layers_b) == MOST_LAYERS
    assert grid.layers_a == grid.layers_b  # so that layers at one place stand on the diagonal
    assert (grid.layers_a[0], grid.layers_a[-1]) <= (4, 511)
    assert len(grid.z) == MOST_LAYERS


@pytest.fixture
def deep_probes():
    import numpy as np

    from kinprint.arch import Role
    from kinprint.evidence.probe import Probe
    from kinprint.model.reader import Sample

    def probe(seed):
        rng = np.random.default_rng(seed)
        drawn = {(Role.INPUT_NORM, layer, None): rng.random(16).astype(np.float32) for layer in range(512)}
        samples = {key: Sample(values, "F32", (16,)) for key, values in drawn.items()}
        return Probe(label=str(seed), layers=512, samples=samples, hidden=16)

    return probe(0), probe(1)


def test_what_is_written_can_be_loaded_wherever_it_stands():
    assert CAPS[REPORT] == MOST_BYTES
