"""The drawing of a tree in the language of its page: all of its words, and room for them."""

import itertools
import re
import xml.etree.ElementTree as ET

import pytest

from kinprint.render.content.tree import summary
from kinprint.render.drawing.tree_svg import breadth, tree_svg
from kinprint.render.page.report import pairs_html
from kinprint.render.texts.words import Words, in_myriads
from kinprint.results.tree import FamilyTree
from kinprint.tree.facts import ModelFacts, PairFacts
from kinprint.tree.infer import infer_tree
from kinprint.tree.merges import Mix
from support.reports import pairs_report

SVG = "{http://www.w3.org/2000/svg}"
NEAR = {"attn_q": 0.1, "mlp_up": 0.1, "mlp_down": 0.1}
OURS = {"MLP", "ln", "expert"}  # words of English that Korean readers know by it


def model(name: str, **facts) -> ModelFacts:
    return ModelFacts(name=name, reference=name, **{"layers": 4, "parameters": 1_234_567, **facts})


def related(a: int, b: int, kind: str | None = "fine_tuned", **more) -> PairFacts:
    return PairFacts(a=a, b=b, found="derived", kind=kind, log10_p=-50.0, distances=NEAR, **more)


def apart(a: int, b: int, found: str = "no_evidence") -> PairFacts:
    return PairFacts(a=a, b=b, found=found, log10_p=-50.0 if found.startswith("shares") else None)


def trees() -> dict[str, FamilyTree]:
    four = [model(name) for name in ("m1", "m2", "m3", "m4")]
    lone = [apart(a, 3) for a in range(3)]
    tied = [apart(0, 3, "shares_initialisation"), apart(1, 3, "shares_components"), apart(2, 3)]
    family = [related(0, 1), related(0, 2, "depth_changed"), related(1, 2, None)]
    silent = [apart(a, 3, "not_testable") for a in range(3)]
    half = [apart(0, 3, "not_testable"), apart(1, 3), apart(2, 3)]
    experts = [model("m1", experts=8), model("m2", parameters=999), model("m3")]
    mix = [apart(0, 1), related(0, 2), related(1, 2)]
    return {
        "a family and a loner": infer_tree(four, [*family, *lone]),
        "ties": infer_tree(four, [*family, *tied]),
        "one tie": infer_tree(four[:2], [apart(0, 1, "shares_components")]),
        "not tested": infer_tree(four, [*family, *silent]),
        "tested in part": infer_tree(four, [*family, *half]),
        "experts, equal ones": infer_tree(experts, [apart(0, 1), apart(0, 2), PairFacts(a=1, b=2, found="identical")]),
        "a merge": infer_tree(four[:3], mix, [Mix(2, (0, 1), (0.6, 0.4), 0.99, 0.97)]),
    }


@pytest.mark.parametrize("name", trees())
def test_every_word_is_korean(name):
    drawn = ET.fromstring(tree_svg(trees()[name], "ko"))
    said = [element.text or "" for element in drawn.iter() if element.tag in (f"{SVG}text", f"{SVG}title")]
    assert any("모델" in text for text in said)
    english = {word for text in said for word in re.findall(r"[A-Za-z]{2,}", re.sub(r"m\d", "", text))}
    assert english <= OURS


@pytest.mark.parametrize("lang", ["en", "ko"])
@pytest.mark.parametrize("name", trees())
def test_no_text_touches_another_or_leaves_the_sheet(name, lang):
    drawn = ET.fromstring(tree_svg(trees()[name], lang))
    places = []
    for text in drawn.iter(f"{SVG}text"):
        x, y, px = float(text.get("x")), float(text.get("y")), int(text.get("font-size"))
        places.append((x, y - 0.8 * px, x + breadth(text.text or "", px), y + 0.2 * px))
    assert len(places) > 3
    for one, two in itertools.combinations(places, 2):
        assert one[2] <= two[0] or two[2] <= one[0] or one[3] <= two[1] or two[3] <= one[1]
    assert max(place[2] for place in places) <= float(drawn.get("width"))
    assert max(place[3] for place in places) <= float(drawn.get("height"))


def test_the_korean_page_tells_the_tree_in_korean():
    tree = pairs_html(pairs_report(), lang="ko").decode().split('<section id="tree">')[1].split("</section>")[0]
    assert "추가 학습" in tree
    assert "모델 3개: 계열 하나, 홀로 있는 모델 하나" in tree
    assert "further training" in pairs_html(pairs_report()).decode()


def test_english_is_as_it_was():
    tree = trees()["a family and a loner"]
    assert summary(tree, Words()).startswith("4 models: one family, one on its own, ")
    assert tree_svg(tree) == tree_svg(tree, "en")


@pytest.mark.parametrize(
    ("count", "said"),
    [(999, "999"), (9_999, "9,999"), (492_384, "49.2만"), (123_456_789, "1.23억"), (7_241_732_096, "72.4억")],
)
def test_counts_in_korean(count, said):
    assert in_myriads(count) == said
