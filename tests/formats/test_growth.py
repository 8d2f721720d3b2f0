"""Costs that must not grow faster than what is read: counted in calls, not timed."""

import base64
import json
import zlib
from dataclasses import replace

import pytest

from kinprint._util.strange_json import repeated_key
from kinprint.bundle.members import CAPS, REPORT
from kinprint.comparison.pipeline import compare
from kinprint.comparison.selection import MOST_MEASUREMENTS
from kinprint.errors import BadSelection, FileTooLarge, FormatError
from kinprint.evidence.layer_grids import MOST_CELLS, layer_grids
from kinprint.formats import format as choosing
from kinprint.formats.all_formats import FORMATS  # noqa: F401 - the formats register themselves
from kinprint.formats.format import choose_files
from kinprint.formats.safetensors.parser import MOST_TENSORS, parse_header
from kinprint.render.page import payload
from kinprint.render.page.markup import PageWords
from kinprint.results import loading
from kinprint.results.options import Options
from kinprint.results.plain_json import write_json
from kinprint.results.report import Report
from kinprint.results.result import MOST_BYTES
from support.counting import calls_of
from support.places import DEMO_MODELS, GOLDEN_REPORTS


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
    assert repeated_key(sound) is None
    assert repeated_key(sound[:-1] + b', "7": 1}') == "7"


def test_headers_of_too_many_tensors_are_refused_before_they_are_parsed(monkeypatch):
    entry = b'"%d":{"dtype":"F32","shape":[],"data_offsets":[0,4]}'
    header = b"{" + b",".join(entry % number for number in range(MOST_TENSORS + 1)) + b"}"
    monkeypatch.setattr("kinprint.formats.safetensors.parser.orjson.loads", lambda _raw: pytest.fail("parsed"))
    with pytest.raises(FormatError, match=f"{MOST_TENSORS + 1} tensors, expected at most {MOST_TENSORS}"):
        parse_header(header, file=0, file_size=len(header) + 12, label="x")


def test_grids_of_deep_models_are_stored_whole_and_compactly(deep_probes):
    (grid,), note = layer_grids(*deep_probes)
    assert (grid.layers_a, grid.layers_b, note) == (tuple(range(512)), tuple(range(512)), None)
    assert len(write_json(grid)) < 512 * 512 * 4 * 5.4 + 20_000  # as text each number took 18 to 20 bytes
    assert [len(rows) for rows in grid.grids().values()] == [512] * 4


def test_pages_thin_them_out(deep_probes):
    (grid,), _ = layer_grids(*deep_probes)
    report = Report.from_json((GOLDEN_REPORTS / "report_v2.json").read_bytes())
    report = replace(report, grids=(grid,))
    voices = [PageWords("en")]
    head, whole = zlib.decompress(
        base64.b64decode(payload.packed(report, voices, **payload.shown_of(report, voices)))
    ).split(b"\n", 1)
    (drawn,) = Report.from_json(whole).grids
    assert len(drawn.layers_a) == payload.MOST_LAYERS
    assert drawn.layers_a == drawn.layers_b  # so that layers at one place stand on the diagonal
    assert drawn.grids()["z"][1][2] == grid.grids()["z"][drawn.layers_a[1]][drawn.layers_b[2]]
    assert [said["step"] for said in json.loads(head)["grids"]] == [4]


def test_grids_of_deeper_models_are_thinned_and_that_is_said(deep_probes, monkeypatch):
    monkeypatch.setattr("kinprint.evidence.layer_grids.MOST_CELLS", 50 * 50 + 99)
    (grid,), note = layer_grids(*deep_probes)
    assert (len(grid.layers_a), grid.layers_a, len(grid.grids()["z"])) == (50, grid.layers_b, 50)
    assert "hold 50 evenly spaced layers" in note


def test_all_grids_together_have_a_limit_that_leaves_room_in_a_report():
    assert 4 * MOST_CELLS * 16 / 3 + 570 * MOST_MEASUREMENTS < MOST_BYTES


def test_reports_that_could_not_be_opened_are_not_written(monkeypatch, tmp_path):
    report = Report.from_json((GOLDEN_REPORTS / "report_v2.json").read_bytes())
    indented, plain = len(report.to_json()), len(report.to_json(indent=False))
    monkeypatch.setattr("kinprint.results.result.MOST_BYTES", (indented + plain) // 2)
    assert len(report.to_json()) == plain  # what does not fit with its indentation has none
    monkeypatch.setattr("kinprint.results.result.MOST_BYTES", plain)
    with pytest.raises(FileTooLarge, match="it could not be opened again"):
        report.to_json()


def test_more_measurements_than_a_report_holds_are_refused_before_they_are_read(monkeypatch, tmp_path):
    monkeypatch.setattr("kinprint.comparison.selection.MOST_MEASUREMENTS", 10)
    with pytest.raises(BadSelection, match="measurements were asked for; a report holds 10"):
        compare(DEMO_MODELS / "base", DEMO_MODELS / "finetune", Options(metrics=("cosine", "pearson")))


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
    assert CAPS[REPORT] == loading.MOST_BYTES == MOST_BYTES
