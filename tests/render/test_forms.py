"""The table of forms: every line leads to a function, and save, load, frames and figures go over it."""

import builtins
import importlib
import json
import sys

import pytest

import kinprint
from kinprint.errors import BadSelection, NeedsExtra
from kinprint.render import forms
from kinprint.render.forms import FORMS, REPORT_FORMS, TERMINAL, form_of, found
from support.places import DEMO_MODELS, GOLDEN_REPORTS
from support.reports import pairs_report

REPORT = kinprint.Report.from_json((GOLDEN_REPORTS / "report_v1_annexes.json").read_bytes())


def test_every_place_exists():
    places = [place for form in FORMS.values() for place in form.makers.values() if ":" in place]
    for place in [*places, *TERMINAL.values()]:
        assert callable(found(place)), place


def test_the_table_is_read_without_heavy_packages(monkeypatch):
    real = builtins.__import__

    def light(name, *rest, **more):
        assert name.partition(".")[0] not in {"numpy", "rich", "jinja2", "orjson", "matplotlib", "pandas"}, name
        return real(name, *rest, **more)

    monkeypatch.delitem(sys.modules, "kinprint.render.forms")
    monkeypatch.setattr(builtins, "__import__", light)
    importlib.import_module("kinprint.render.forms")


@pytest.mark.parametrize("form", [form for form in REPORT_FORMS if not form.needs], ids=lambda form: form.name)
@pytest.mark.parametrize("result", [REPORT, pairs_report()], ids=["two", "many"])
def test_a_result_is_saved_by_its_suffix(form, result, tmp_path):
    for end in form.suffixes if type(result).__name__ in form.makers else ():
        assert form_of(f"X{end.upper()}") is form
        path = result.save(tmp_path / f"x{end}")
        assert path.read_bytes() == result.render(form.name)


def test_a_language_and_a_table_are_chosen(tmp_path):
    page = REPORT.save(str(tmp_path / "x.html"), lang="ko").read_text(encoding="utf-8")
    assert '<html lang="ko"' in page
    tests = REPORT.save(tmp_path / "x.csv", table="tests").read_text()
    assert tests.startswith("model_a,model_b,test,")
    assert json.loads(REPORT.save(tmp_path / "x.txt", form="sarif").read_bytes())["version"] == "2.1.0"


def test_what_cannot_be_written_is_said():
    with pytest.raises(BadSelection, match=r"cannot tell from 'x\.doc' which form"):
        REPORT.save("x.doc")
    with pytest.raises(BadSelection, match="no form 'svg' of a Report"):
        REPORT.save("x.svg")
    with pytest.raises(BadSelection, match="markdown holds no table"):
        REPORT.save("x.md", table="tests")
    with pytest.raises(BadSelection, match="a Report has no table 'verdicts'"):
        REPORT.save("x.csv", table="verdicts")
    with pytest.raises(BadSelection, match="a FamilyTree has no tables"):
        pairs_report().tree.to_frame()


def test_a_form_without_its_package(monkeypatch):
    monkeypatch.setattr(forms, "find_spec", lambda _name: None)
    with pytest.raises(NeedsExtra, match="--parquet needs the extra 'parquet'"):
        REPORT.render("parquet")


def test_load_opens_whatever_was_saved(tmp_path):
    tree = pairs_report().tree
    inspection = kinprint.inspect(DEMO_MODELS / "base", settings=kinprint.Settings())
    for number, result in enumerate((REPORT, pairs_report(), tree, inspection)):
        again = kinprint.load(str(result.save(tmp_path / f"{number}.json")))
        assert type(again) is type(result)
        assert again == result
    bundle = tmp_path / "x.zip"
    made = kinprint.make_bundle(
        bundle, DEMO_MODELS / "base", DEMO_MODELS / "base", layers="0", roles="input_norm", settings=kinprint.Settings()
    )
    assert kinprint.load(bundle) == made


@pytest.mark.parametrize("table", ["measurements", "tests", "layers"])
def test_frames_hold_what_the_tables_hold(table):
    pandas = pytest.importorskip("pandas")
    frame = REPORT.to_frame(table)
    header, *lines = REPORT.render("csv", table=table).decode().splitlines()
    assert list(frame.columns) == header.split(",")
    assert isinstance(frame, pandas.DataFrame)
    assert len(frame) >= 1
    if table == "tests":
        assert len(frame) == len(lines) == len(REPORT.evidence.tests)
        known = [test.log10_p for test in REPORT.evidence.tests if test.log10_p is not None]
        assert frame["log10_p"].dropna().tolist() == known
        assert str(frame["layer"].dtype) == "Int64"


def test_frames_and_figures_need_their_extras(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(NeedsExtra, match="extra 'pandas'"):
        REPORT.to_frame()
    with pytest.raises(NeedsExtra, match="extra 'plot'"):
        REPORT.plot.null()


def test_figures_show_the_null_beside_the_value():
    pytest.importorskip("matplotlib")
    measured = [
        v for item in REPORT.comparisons for v in item.measurements if v.metric == "pearson" and v.value is not None
    ]
    (axes,) = REPORT.plot.null().axes
    drawn = [line.get_xdata() for line in axes.lines]
    for value in measured:
        low, high = value.null.mean - 1.96 * value.null.sd, value.null.mean + 1.96 * value.null.sd
        assert any(list(line) == pytest.approx([low, high]) for line in drawn if len(line) == 2)
    assert sorted(x for line in axes.lines if line.get_marker() == "o" for x in line.get_xdata()) == pytest.approx(
        sorted(value.value for value in measured)
    )
    panels = REPORT.plot.layers(roles=["input_norm"]).axes
    assert [panel.get_title() for panel in panels] == ["input_norm"]
    grid = REPORT.grids[0]
    images = [axes.images[0].get_array() for axes in REPORT.plot.map(grid.role).axes if axes.images]
    assert images[0].tolist() == [list(row) for row in grid.grids()["cosine"]]
    assert images[1].tolist() == [list(row) for row in grid.grids()["cosine_null"]]
    with pytest.raises(BadSelection, match="no tensor has a value of 'nonsense'"):
        REPORT.plot.null("nonsense")
    with pytest.raises(BadSelection, match="no layer grid of 'nonsense'"):
        REPORT.plot.map("nonsense")
