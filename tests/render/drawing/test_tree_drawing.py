"""The drawings: every name inert, every edge there, nothing on top of anything else."""

import io
import itertools
import re
import xml.etree.ElementTree as ET

import pytest
from rich.cells import cell_len
from rich.console import Console

from kinprint.errors import SchemaError
from kinprint.render.content.tree import summary, ties
from kinprint.render.drawing.tree_svg import BOX, breadth, fitted, tree_svg
from kinprint.render.terminal.tree import print_tree
from kinprint.render.texts.words import Words
from kinprint.results.tree import Cue, FamilyTree
from kinprint.tree.facts import ModelFacts, PairFacts
from kinprint.tree.infer import infer_tree
from kinprint.tree.merges import Mix

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = [
    "</text><script>alert(1)</script>",
    "\"onload='x' & <b>",
    "[red]x[/red]",
    "\x1b[31mred\x1b]0;t\x07",
    "\u202eright to left\u2066",
    "x" * 10_000,
    "漢字 🧬 " * 30,
    "nul\x00\ufffe\ud800",
]


def forest(names, links=()):
    """A star around the first name, an arrow to the second, and the last one alone."""
    models = [ModelFacts(name=name, reference=name, layers=4, parameters=1000) for name in names]
    last = len(names) - 1
    pairs = []
    for a, b in itertools.combinations(range(len(names)), 2):
        if b == last:
            found = next((shares for one, shares in links if one == a), "no_evidence")
            pairs.append(PairFacts(a=a, b=b, found=found, log10_p=-50.0))
            continue
        length = 0.01 * b if a == 0 else 0.01 * (a + b)
        cues = [Cue("zeros", "weights", 3.0, f"zeros in {names[b]}")] if (a, b) == (0, 1) else []
        roles = dict.fromkeys(("attn_q", "mlp_up", "mlp_down"), length)
        pairs.append(
            PairFacts(a=a, b=b, found="derived", kind="fine_tuned", log10_p=-50.0, distances=roles, cues=tuple(cues))
        )
    return infer_tree(models, pairs)


def printed(tree, width=120):
    console = Console(file=io.StringIO(), width=width, force_terminal=False, highlight=False)
    print_tree(tree, console)
    return console.file.getvalue()


def boxes(svg):
    """All rectangles but the ground, and all texts with a guess of their extent, as (left, top, right, bottom)."""
    root = ET.fromstring(svg)
    rects = [
        tuple(float(r.get(k)) for k in ("x", "y", "width", "height")) for r in root.iter(f"{SVG}rect") if r.get("x")
    ]
    texts = []
    for text in root.iter(f"{SVG}text"):
        x, y, px = float(text.get("x")), float(text.get("y")), int(text.get("font-size"))
        texts.append((x, y - 0.8 * px, x + breadth(text.text or "", px), y + 0.2 * px))
    return [(x, y, x + w, y + h) for x, y, w, h in rects], texts, (float(root.get("width")), float(root.get("height")))


def overlap(one, two):
    return one[0] < two[2] and two[0] < one[2] and one[1] < two[3] and two[1] < one[3]


def test_the_terminal_shows_arrow_line_and_loner():
    text = printed(forest(["base", "sparse", "tuned", "stranger"]))
    lines = text.splitlines()
    assert lines[0] == "4 models: one family, one on its own, which came first is proposed for 1 of 2 links"
    assert any(line.startswith("├──▶ sparse") for line in lines)
    assert any(line.startswith("└─── tuned") for line in lines)
    assert any(line.startswith("stranger  unrelated to the others") for line in lines)
    assert "hypotheses" in text
    assert "+3.00" in text


@pytest.mark.parametrize("width", [30, 44, 60, 80])
def test_the_terminal_wraps_at_spaces_beside_the_rails(width):
    console = Console(file=io.StringIO(), width=width, force_terminal=True, highlight=False, color_system=None)
    print_tree(forest(["base", "sparse", "tuned", "stranger"]), console, details=False)
    lines = console.file.getvalue().splitlines()
    assert max(map(cell_len, lines)) <= width
    words = " ".join("\n".join(lines).replace("│", " ").split())
    assert "├──▶ sparse further training; distance 0.01" in words
    assert "└─── tuned further training; distance 0.02" in words
    assert "stranger unrelated to the others, as far as weights tell; 4 layers, 1,000 parameters" in words
    first, last = (next(n for n, line in enumerate(lines) if name in line) for name in ("sparse", "tuned"))
    assert all(line.startswith("│      ") for line in lines[first + 1 : last])


@pytest.mark.parametrize("width", [60, 120, 200])
def test_hostile_names_are_inert_in_the_terminal(width):
    text = printed(forest(["base", *HOSTILE, "stranger"]), width)
    assert "[red]x[/red]" in text
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e\u2066]", text)
    assert "x" * 100 not in text


def test_hostile_names_are_inert_in_svg():
    svg = tree_svg(forest(["base", *HOSTILE, "stranger"]))
    root = ET.fromstring(svg)
    allowed = {"svg", "title", "defs", "marker", "path", "rect", "text", "g"}
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= allowed
    assert not any(name.startswith("on") or "href" in name for element in root.iter() for name in element.attrib)
    assert len(svg) < 60_000


@pytest.mark.parametrize(
    "names", [["a", "b", "c", "d"], ["base", *HOSTILE, "stranger"], [f"model-{n}" * 9 for n in range(40)]]
)
def test_nothing_overlaps_and_all_is_on_the_sheet(names):
    rects, texts, (width, height) = boxes(tree_svg(forest(names, [(0, "shares_initialisation")])))
    assert len(rects) == len(names)
    for group in (rects, texts):
        assert not any(overlap(one, two) for one, two in itertools.combinations(group, 2))
        assert all(x0 >= 0 and y0 >= 0 and x1 <= width and y1 <= height for x0, y0, x1, y1 in group)
    inside = [(rect, text) for rect in rects for text in texts if overlap(rect, text)]
    assert len(inside) == len(names)  # each box holds its own name and touches no other text
    assert all(rect[0] < text[0] and text[2] <= rect[2] and rect[3] - rect[1] == BOX for rect, text in inside)


def test_arrow_and_plain_line_differ_by_more_than_colour():
    paths = [
        p
        for p in ET.fromstring(tree_svg(forest(["base", "sparse", "tuned", "s"]))).iter(f"{SVG}path")
        if p.get("stroke")
    ]
    marks = sorted((p.get("marker-end") or "", p.get("stroke-width")) for p in paths)
    assert marks == [("", "1.6"), ("url(#arrow)", "2.2")]


def test_ties_between_families_are_summed_up_and_drawn_dotted():
    tree = forest(["base", "sparse", "tuned", "sibling"], [(n, "shares_initialisation") for n in (0, 2)])
    (tie,) = ties(tree)
    assert (tie.one, tie.two, tie.pairs, tie.of) == (3, 0, 2, 3)
    assert "sibling shares its random start" in printed(tree)
    assert "(2 of 3 pairs)" in printed(tree)
    assert 'stroke-dasharray="2 4"' in tree_svg(tree).decode()


def test_both_parents_of_a_merge_are_named_and_drawn():
    models = [ModelFacts(name=name) for name in ("one", "two", "mix")]
    pairs = [PairFacts(a=0, b=1, found="no_evidence", log10_p=0.0)]
    pairs += [PairFacts(a=a, b=2, found="derived", log10_p=-50.0, distances={"mlp_up": 0.2}) for a in (0, 1)]
    tree = infer_tree(models, pairs, [Mix(2, (0, 1), (0.6, 0.4), 0.99, 0.97)])
    assert "second parent two (40%)" in printed(tree)
    svg = tree_svg(tree).decode()
    assert "second parent two (40%)" in svg
    assert 'stroke-dasharray="7 3 2 3"' in svg


def test_equal_and_unrelated_models_are_said_to_be_so():
    models = [ModelFacts(name=name) for name in ("a", "b", "c")]
    pairs = [PairFacts(a=0, b=1, found="identical"), PairFacts(a=0, b=2, found="no_evidence", log10_p=0.0)]
    tree = infer_tree(models, pairs)
    assert (
        summary(tree, Words()) == "3 models: one equals another, no two derive from one another, as far as weights tell"
    )
    assert "a = b" in printed(tree)
    assert "a = b" in tree_svg(tree).decode()
    assert "Edges" not in printed(tree)


def test_names_are_cut_in_the_middle():
    text = fitted("start-" + "x" * 200 + "-end", 14, 200)
    assert text.startswith("start-")
    assert text.endswith("-end")
    assert breadth(text, 14) <= 200
    assert fitted("short", 14, 200) == "short"


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"{", "not a tree"),
        (b"[]", "cannot read a tree of schema None"),
        (b'{"schema": "kinprint.tree", "schema_version": 99}', "version 99"),
        (b'{"schema": "kinprint.tree", "schema_version": 1}', "does not fit"),
    ],
)
def test_other_files_are_refused(raw, words):
    with pytest.raises(SchemaError, match=re.escape(words)):
        FamilyTree.from_json(raw)
