"""What a study writes: pages, tables, pictures, an index; and what it found, in a sentence."""

import io
import json
import sys
from dataclasses import replace

import pytest
from PIL import Image

from kinprint.cli import study as study_command
from kinprint.errors import NeedsExtra, StorageError
from kinprint.studies.figure_style import rendered
from kinprint.studies.outcome import (
    Check,
    Column,
    ModelOutcome,
    PartOutcome,
    Picture,
    Section,
    columns,
    file_name,
)
from kinprint.studies.writing import SYNTHETIC, show, write_index, write_outcome
from kinprint.text import Text
from support.korean import wrong_korean
from support.outcomes import outcome_of, table

ROWS = [("a|b", 0.123456, None), ("<script>", float("nan"), 12345)]


def test_the_page_and_its_files(tmp_path):
    section = Section(
        tables=[table("numbers", Text("Numbers"), columns("what; x .3; n"), ROWS)],
        checks=[
            Check(Text("good"), 0.98, 0.981, 2),
            Check(Text("bad"), 0.95, 0.127, 2, "wrong", Text("nobody measured it")),
        ],
        notes=[Text("A note")],
        missing=[Text("{model} has no tensor of the role {role}", model="[x](y)", role="router")],
    )
    member = ModelOutcome("one", "x/one", None, "llama", 4, 64, 1000, True, None)
    outcome = outcome_of(section, replicas=True, members=[member])
    target = write_outcome(outcome, tmp_path, command="kinprint study test")
    page = target.read_text()
    assert "a\\|b" in page
    assert "&lt;script>" in page
    assert "12,345" in page
    assert "| – |" in page
    assert "1 of 1 agree" in page
    assert "0 more are shown without a result, and 1 are known to be wrong" in page
    assert "nobody measured it" in page
    assert "statistical replicas, not the models themselves" in page
    assert "\\[x\\](y) has no tensor" in page
    assert (tmp_path / "tables" / "numbers.csv").read_text() == "what,x,n\na|b,0.123456,\n<script>,nan,12345\n"
    data = json.loads((tmp_path / "results.json").read_bytes())
    assert data["parts"][0]["tables"][0]["rows"] == [["a|b", 0.123456, None], ["<script>", None, 12345]]
    assert [check["agrees"] for check in data["parts"][0]["published"]] == [True, False]


@pytest.mark.parametrize("replicas", [True, False])
def test_a_picture_of_replicas_says_so_inside(replicas, tmp_path):
    section = Section()
    rows = [(0.1, 0.5, 1.0, 64, 0.5, 0.1, 0.5, 0.5, 0.5, 0.5, 0.5)]
    section.add_picture("grid", "sanity.synthetic_grid", rows)
    member = ModelOutcome("one", "x/one", None, "llama", 4, 64, 1000, True, None)
    write_outcome(outcome_of(section, replicas=replicas, members=[member]), tmp_path)
    assert (SYNTHETIC in (tmp_path / "figures" / "grid.svg").read_text()) == replicas


def test_a_title_and_a_note_stand_above_all_panels():
    rows = [(0.1, 0.5, 1.0, 64, 0.5, 0.1, 0.5, 0.5, 0.5, 0.5, 0.5)]
    figure = Picture("p", Text("A grid."), "sanity.figures.synthetic_grid", (rows,)).draw()
    inches = figure.get_size_inches().copy()
    png = dict(rendered(figure, SYNTHETIC))["png"]
    note, title = sorted((text.get_window_extent() for text in figure.texts), key=lambda box: box.y0)
    panels = max(axes.get_tightbbox().y1 for axes in figure.axes)
    assert panels <= note.y0 < note.y1 <= title.y0
    assert title.y1 <= figure.bbox.y1
    assert title.x1 <= figure.bbox.x1
    width, height = Image.open(io.BytesIO(png)).size
    assert width >= 2 * 96 * inches[0]  # pixels of a screen, twice
    assert height > 2 * 96 * inches[1]


@pytest.mark.parametrize("name", ["../../x", "a/b", "..", "x" * 500, "a\\b", "모델", "a\nb", "\udc80"])
def test_names_of_files_stay_in_their_folder(name, tmp_path):
    section = Section(tables=[table(f"{name}", Text("T"), columns("n"), [(1,)])])
    write_outcome(outcome_of(section), tmp_path / "out")
    written = list(tmp_path.rglob("*.csv"))
    assert [path.parent for path in written] == [tmp_path / "out" / "tables"]
    assert len(written[0].name) < 140


def test_names_that_differ_stay_different():
    assert len({file_name(name) for name in ("a/b", "a_b", "a|b", "a b")}) == 4
    assert file_name("shuffle_input_norm_Solar_GLM") == "shuffle_input_norm_Solar_GLM"


def test_the_page_in_korean(tmp_path):
    section = Section(checks=[Check(Text("x"), 1.0, 1.0, 1)])
    page = write_outcome(outcome_of(section), tmp_path, language="ko").read_text()
    assert "공개된 값과 측정값" in page
    assert wrong_korean(*page.splitlines()) == []
    assert "누락된 것과 그 이유" in page


def test_a_long_table_is_shown_in_part_and_kept_whole(tmp_path):
    section = Section(tables=[table("long", Text("Long"), columns("n"), [(n,) for n in range(200)], shown=10)])
    page = write_outcome(outcome_of(section), tmp_path).read_text()
    assert "The first 10 of 200 rows" in page
    assert "[long.csv](tables/long.csv)" in page
    assert len((tmp_path / "tables" / "long.csv").read_text().splitlines()) == 201


def test_without_matplotlib_the_tables_are_still_written(tmp_path, monkeypatch):
    for name in list(sys.modules):
        if name.startswith("matplotlib") or (name.startswith("kinprint.studies.") and "figure" in name):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    shown = Picture("p", Text("A picture"), "sanity.figures.synthetic_grid", ([],))
    with pytest.raises(NeedsExtra, match="needs the extra 'plot'"):
        shown.draw()
    numbers = table("t", Text("T"), columns("n"), [(1,)])
    page = write_outcome(outcome_of(Section(tables=[numbers], pictures=[shown])), tmp_path).read_text()
    assert "needs the extra 'plot'" in page
    assert "pip install 'matplotlib>=" in page
    assert not (tmp_path / "figures").exists()


def test_an_unwritable_target(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError, match="cannot write"):
        write_outcome(outcome_of(Section()), tmp_path / "file")


@pytest.mark.parametrize(
    ("cell", "digits", "shown"),
    [
        (None, None, "–"),
        (0.5, 3, "0.500"),
        (1e-7, None, "1e-07"),
        (3, None, "3"),
        (True, None, "True"),
        ("x", None, "x"),
    ],
)
def test_cells(cell, digits, shown):
    assert show(cell, Column("c", Text("c"), digits)) == shown


def test_members_with_a_problem_are_listed(tmp_path):
    member = ModelOutcome("gone", "x/gone", None, None, None, None, None, False, "no such repository")
    page = write_outcome(outcome_of(Section(), members=[member]), tmp_path).read_text()
    assert "could not be opened: no such repository" in page


# ---- what was found, in a sentence ----


def pairs_of(*rows):
    section = Section()
    section.add_table("pairs", Text("Pairs"), columns("a; b; cosine; log10_p"), [("x", "y", *row) for row in rows])
    return section


def test_what_was_found_in_one_sentence():
    same = (0.99, -0.5)
    found = outcome_of(pairs_of(same, (0.95, -9.0), (0.2, float("nan"))), pairs_of(same))
    told = "1 of 2 pairs of tensors are shown to agree beyond shuffling (p < 10^-6), 2 have a cosine over 0.9"
    assert str(found.finding) == told
    assert "2쌍 중 1쌍" in found.finding.render("ko")
    checked = Section(checks=[Check(Text("x"), 0.5, 0.5), Check(Text("y"), 0.5, 0.9), Check(Text("z"), 1.0, None)])
    both = str(outcome_of(pairs_of(same), checked).finding)
    assert both.endswith("; 1 of 2 published figures agree")
    assert str(outcome_of(Section()).finding) == "0 tables"


@pytest.mark.parametrize(
    ("names", "figures"), [("z", (9.63,)), ("pearson; pearson_sd", (0.988, 0.1026)), ("z", (4.7,)), ("layer", (3.0,))]
)
def test_a_weak_bound_is_not_told_as_no_agreement(names, figures):
    section, far = pairs_of((0.99, -0.5)), figures[0] / (figures[1:] or (1.0,))[0] > 4.75
    section.add_table("more", Text("More"), columns(f"cosine; log10_p; {names}"), [(0.9997, -3.71, *figures)])
    found = outcome_of(section).finding
    assert str(found).startswith("0 of 2 pairs of tensors are shown to agree")
    assert ("of 1 more z is over 4.75" in str(found)) == (far and names != "layer")
    assert ("1쌍은 z가 4.75보다" in found.render("ko")) == (far and names != "layer")


def test_figures_of_made_up_vectors_are_not_said_of_the_models(tmp_path):
    made_up = Section(checks=[Check(Text("x"), 0.5, 0.5)])
    part = PartOutcome("toy", Text("Toy"), made_up, uses_models=False)
    member = ModelOutcome("one", "x/one", None, "llama", 4, 64, 1000, False, None)
    found = replace(outcome_of(pairs_of((0.99, -0.5)), members=[member]), parts=(part,))
    assert str(found.finding) == "1 of 1 published figures of made-up vectors agree, none is of these models"
    assert "none is of the models above" in write_outcome(found, tmp_path).read_text()
    assert str(replace(found, models=()).finding) == "1 of 1 published figures agree"


def test_where_p_is_an_upper_bound_is_told(tmp_path):
    assert "Elsewhere it is an upper bound" in write_outcome(outcome_of(pairs_of((0.9, -9.0))), tmp_path).read_text()
    assert "upper bound" not in write_outcome(outcome_of(Section()), tmp_path).read_text()


def test_several_studies_have_an_index(tmp_path):
    (tmp_path / "a b").mkdir()
    one, two = (outcome_of(pairs_of((0.99, -0.5)), replicas=replicas, members=["m"]) for replicas in (True, False))
    pages = [tmp_path / "a b" / "RESULTS.md", tmp_path / "c" / "RESULTS.md"]
    write_index([one, two], pages, tmp_path / "study-index.md")
    lines = (tmp_path / "study-index.md").read_text().splitlines()
    assert "statistical replicas" in lines[2]
    assert lines[4].startswith("- [A title](a%20b/RESULTS.md): of synthetic replicas: 0 of 1 pairs")
    assert "(c/RESULTS.md): 0 of 1 pairs" in lines[5]


def test_figures_that_were_not_drawn_are_told(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(study_command, "find_spec", lambda name: None)
    section = Section(pictures=[Picture("p", Text("p"), "x.y", ())] * 3)
    study_command._summarise(outcome_of(section), tmp_path / "RESULTS.md", "en")
    out, err = capsys.readouterr()
    assert "test: 3 figures were not drawn: drawing figures needs the extra 'plot', which is not installed; pip" in err
    assert out.startswith("test: ")
    study_command._summarise(outcome_of(Section()), tmp_path / "RESULTS.md", "en")
    assert "not drawn" not in capsys.readouterr().err
