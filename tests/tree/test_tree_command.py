"""`kinprint tree` from end to end: what it writes, and what it says to bad input."""

import json
import shutil
import xml.etree.ElementTree as ET

import pytest

from kinprint._util.plain import short_names
from kinprint.errors import BadSelection, BadSetting
from kinprint.results.tree import FamilyTree
from kinprint.sources.session import Session
from kinprint.tree import build_tree, compare_many
from support.hub import HubServer


def test_one_model_is_no_tree(command, short):
    done = command(short / "base")
    assert done.code == 2
    assert "a tree needs two models or more, got 1" in done.err
    assert done.out == ""


@pytest.mark.parametrize("function", [build_tree, compare_many])
def test_one_name_is_no_list_of_its_letters(function, short):
    for one in (str(short / "base"), short / "base"):
        with pytest.raises(BadSelection, match=f"{function.__name__}: expected a list of models, got ") as caught:
            function(one)
        assert caught.value.hint == f"kinprint.{function.__name__}([a, b])"


def test_one_model_has_no_pairs(short):
    with pytest.raises(BadSelection, match=r"^compare_many: expected two models or more, got 1"):
        compare_many([short / "base"])


def test_no_model_is_no_tree(command):
    done = command()
    assert done.code == 2
    assert "got 0" in done.err


def test_one_model_named_twice_is_no_tree(command, short):
    done = command(short / "base", f"{short / 'base'}/")
    assert done.code == 2
    assert "all 2 names mean" in done.err


def test_an_unreadable_model_among_others_is_named(command, short, tmp_path):
    done = command(short / "base", tmp_path / "nowhere", short / "finetune")
    assert done.code == 3
    assert "nowhere" in done.err
    broken = tmp_path / "broken"
    shutil.copytree(short / "base", broken)
    (broken / "model.safetensors").write_bytes(b"\xff" * 64)
    done = command(short / "base", broken, short / "finetune")
    assert done.code == 6
    assert "broken" in done.err
    assert done.out == ""


def test_too_many_models_are_refused_with_the_cost(command):
    done = command(*(f"owner/m{number}" for number in range(41)))
    assert done.code == 2
    for words in ("41 models make 820 pairs", "minutes", "26.2 GB", "--max-models 41"):
        assert words in done.err
    assert command("a/b", "c/d", "e/f", "--max-models", "2").code == 2


def test_limits_are_checked_in_python_too():
    with pytest.raises(BadSetting, match="at most 1"):
        build_tree(["a", "b"], max_models=1)
    with pytest.raises(BadSelection, match="without limit"):
        build_tree(["a", "b", "c"], max_models=2, budget_bytes=None)


def test_a_budget_that_is_too_small_names_the_model(command, short):
    done = command(short / "base", short / "finetune", "--budget", "1kB")
    assert done.code == 7
    assert "base" in done.err
    assert "budget" in done.err


def test_an_unwritable_folder(command, short, tmp_path):
    (tmp_path / "file").write_text("")
    done = command(short / "base", short / "copy", "--out", tmp_path / "file" / "below", "-q")
    assert done.code == 8


def test_equal_models_end_as_one_node(command, short, tmp_path):
    done = command(short / "base", short / "copy", short / "base", "--out", tmp_path / "out", "-q", "--format", "json")
    assert done.code == 0
    tree = FamilyTree.from_json(done.out.encode())
    assert tree.edges == ()
    assert [model.node for model in tree.models] == [0, 0]
    assert any("taken once" in note for note in tree.notes)
    assert json.loads((tmp_path / "out" / "tree.json").read_bytes()) == json.loads(done.out)
    assert "base = copy" in (tmp_path / "out" / "tree.svg").read_text(encoding="utf-8")


def test_two_unrelated_models(command, short):
    done = command(short / "base", short / "unrelated", "--format", "table", "-q")
    assert done.code == 0
    assert "no two derive from one another" in done.out
    assert done.out.count("unrelated to the others") == 2


def test_short_names_tell_models_apart():
    assert short_names(["demo/models/base", "other/base/", "x"]) == ["models/base", "other/base", "x"]
    assert short_names(["owner/a", "owner/b@main"]) == ["a", "b@main"]
    assert short_names(["./a", "a"]) == ["./a", "a"]


@pytest.mark.slow
def test_a_family_is_drawn_written_and_repeated_exactly(command, short, tmp_path):
    names = ("base", "pruned", "finetune", "unrelated")
    done = command(*(short / name for name in names), "--out", tmp_path / "out", "--format", "table", "-q")
    assert done.code == 0
    assert "──▶ pruned" in done.out
    assert "─── finetune" in done.out
    assert "wrote" in done.err
    first = FamilyTree.from_json((tmp_path / "out" / "tree.json").read_bytes())
    assert ET.parse(tmp_path / "out" / "tree.svg").getroot().tag.endswith("svg")
    again = FamilyTree.from_json(command(*(short / name for name in names), "-q", "--format", "json").out.encode())
    assert (again.models, again.edges, again.pairs, again.notes) == (
        first.models,
        first.edges,
        first.pairs,
        first.notes,
    )
    assert first.run.bytes_read > 0


@pytest.mark.slow
@pytest.mark.nightly
def test_a_merge_has_both_parents(short):
    """Of trained models, and of one with a stranger: the stranger is a parent, and related to nothing else."""
    names = ["base", "finetune", "merged", "unrelated", "blended"]
    tree = build_tree([str(short / name) for name in names])
    found = {(names[edge.parent], names[edge.child]): edge for edge in tree.edges}
    shares = {ends: edge.merge for ends, edge in found.items() if edge.merge is not None}
    assert set(shares) == {("base", "merged"), ("finetune", "merged"), ("base", "blended"), ("unrelated", "blended")}
    assert shares["finetune", "merged"] == pytest.approx(0.6, abs=0.02)
    assert shares["unrelated", "blended"] == pytest.approx(0.4, abs=0.02)
    assert all(edge.direction == "forward" for edge in found.values() if edge.merge is not None)


@pytest.mark.slow
def test_metadata_turn_an_edge_only_on_request(command, short, tmp_path):
    child = tmp_path / "child"
    shutil.copytree(short / "finetune", child)
    (child / "README.md").write_text("---\nbase_model: somebody/base\n---\n", encoding="utf-8")
    edges = []
    for options in ((), ("--trust-metadata",)):
        done = command(child, short / "base", "-q", "--format", "json", *options)
        (edge,) = FamilyTree.from_json(done.out.encode()).edges
        assert any(cue.source == "metadata" for cue in edge.cues)
        edges.append(edge)
    assert edges[0].direction == "undirected"
    assert (edges[1].direction, edges[1].parent, edges[1].child) == ("forward", 1, 0)


@pytest.mark.slow
def test_models_of_a_hub_are_pinned_for_all_pairs(short, settings_for):
    with HubServer() as server:
        for name in ("base", "pruned", "finetune"):
            server.add_repo(f"demo/{name}", short / name)
        with Session(settings_for(server)) as session:
            tree = build_tree([f"demo/{name}" for name in ("base", "pruned", "finetune")], session=session)
            assert session.budget_bytes is None
    assert all(model.commit for model in tree.models)
    assert {(edge.parent, edge.child) for edge in tree.edges} == {(0, 1), (0, 2)}
