"""Every sentence of the engine has a translation in its room, with the same places, and no translation is left over."""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import orjson
import pytest

from kinprint.render.texts.words import Words
from kinprint.text import LANGUAGES, has_words, places, tables
from support.korean import HANGUL, unwanted_words, wrong_korean
from support.places import ROOT

SOURCE = ROOT / "src" / "kinprint"
ERRORS = ("DegenerateInput", "OrderedNeurons")  # their messages are the reasons in reports
OTHERS = [lang for lang in LANGUAGES if lang != "en"]


@cache
def calls():
    """Return each sentence in the package: file, line, template (None if it is no literal), names of its values."""
    found = []
    for file in sorted(SOURCE.rglob("*.py")):
        if "studies" in file.relative_to(SOURCE).parts or file == SOURCE / "text.py":
            continue
        nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
        ours = any(isinstance(node, ast.ImportFrom) and node.module == "kinprint.text" for node in nodes)
        for node in nodes:
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
                continue
            given = node.args[0].value if len(node.args) == 1 and isinstance(node.args[0], ast.Constant) else None
            template = given if isinstance(given, str) else None
            # rich has a Text, too; an error of a programmer's making may be English alone
            if (node.func.id == "Text" and ours) or (node.func.id in ERRORS and (template or node.keywords)):
                names = [item.arg for item in node.keywords if node.func.id == "Text" or item.arg != "hint"]
                found.append((file, node.lineno, template, names))
    for file in sorted((SOURCE / "arch" / "data").glob("*.json")):
        found += [(file, 0, entry["reason"], []) for entry in entries(file).get("exclude", ())]
    return found


@cache
def entries(file):
    return orjson.loads(file.read_bytes())


def rooms(file: Path):
    """Return the folders whose tables serve a file: its own and those above."""
    return [folder for folder in file.parents if folder == SOURCE or SOURCE in folder.parents]


def test_text_is_given_literals():
    wrong = [
        f"{file.name}:{line}"
        for file, line, template, _ in calls()
        if template is None and file != SOURCE / "errors.py"
    ]
    assert wrong == [], "use Text.of, verbatim or joined for what is no literal"


def test_values_fit_their_places():
    wrong = [
        f"{file.name}:{line}: {template}"
        for file, line, template, names in calls()
        if template is not None and None not in names and {name for name, _ in places(template)} != set(names)
    ]
    assert wrong == []


@pytest.mark.parametrize("lang", OTHERS)
def test_every_sentence_has_a_translation_in_its_room(lang):
    wrong = []
    for file, line, template, _ in calls():
        if template is None or not has_words(template):
            continue
        near = [folder / f"{lang}.json" for folder in rooms(file)]
        if not any(template in entries(table) for table in near if table.exists()):
            wrong.append(f"{file.relative_to(SOURCE)}:{line}: {template}")
    assert wrong == []


@pytest.mark.parametrize("lang", OTHERS)
def test_translations_have_the_places_of_their_sentences_and_none_is_left_over(lang):
    wrong, said = [], {}
    for table in tables(lang):
        used = {template for file, _, template, _ in calls() if table.parent in file.parents}
        for template, translation in entries(table).items():
            where = f"{table.relative_to(SOURCE)}: {template}"
            if {name for name, _ in places(template)} != {name for name, _ in places(translation)}:
                wrong.append(f"{where}: other places")
            if template not in used and "studies" not in table.parts:  # their headings are no calls of Text
                wrong.append(f"{where}: nothing says this")
            if said.setdefault(template, translation) != translation:
                wrong.append(f"{where}: translated in two ways")
    assert wrong == []


SAME_IN_KOREAN = {
    "sha256 {digest}",
    "size:{n}",
    "a {kind}",
    "{a} leads to {b}",
    "alpha {x:g}",
    "alphas {x:g} to {y:g}",
    "mlp",
    "{test} ({scope}): {reason}",
}
"""Identifiers and signs alone."""

ENGLISH_RUN = re.compile(r"[A-Za-z']{2,}(?: [A-Za-z']{2,}){2,}")
PLACE = re.compile(r"\{[^{}]*\}")
LABELS = SOURCE / "render" / "texts" / "labels_ko.json"


def korean(*, studies=True, labels=False):
    """Return every Korean sentence of the package beside its English one, or beside the key of its label."""
    files = [*(table for table in tables("ko") if studies or "studies" not in table.parts), *([LABELS] * labels)]
    return [entry for file in files for entry in entries(file).items()]


def test_korean_is_korean():
    said = [(english, PLACE.sub("", translation)) for english, translation in korean(studies=False)]
    assert [english for english, text in said if not HANGUL.search(text) and english not in SAME_IN_KOREAN] == []
    assert [english for english, text in korean() if ENGLISH_RUN.search(PLACE.sub("", text))] == []


def test_no_korean_particle_depends_on_a_value():
    """은/는, 이/가, 을/를 and 과/와 change with the sound before them, which a place does not know.

    Both forms at once, 을(를), are what a machine writes. A size always ends in 바이트, so 를 is right there.
    """
    bare = re.compile(r"(?<!\{read)\}(은|는|이|가|을|를|과|와|으로|로)(?=[ ,.)]|$)|\((은|는|이|가|을|를|과|와|으)\)")
    assert [text for _, text in korean(labels=True) if bare.search(text)] == []


def test_no_translation_drops_a_digit():
    for english, translation in korean(studies=False):
        lost = Counter(filter(str.isdigit, PLACE.sub("", english))) - Counter(
            filter(str.isdigit, PLACE.sub("", translation))
        )
        assert not lost, english


def test_korean_keeps_to_one_vocabulary():
    assert wrong_korean(*(text for _, text in korean(labels=True))) == []


def test_the_vocabulary_is_in_use():
    """A word that nothing says forbids nothing: each stands in a sentence, a label or a heading of the glossary."""
    said = [text for _, text in korean(labels=True)]
    terms = {term for term, _ in unwanted_words()}
    assert len(terms) > 15
    assert [term for term in sorted(terms) if not any(term in text for text in said)] == []


@pytest.mark.parametrize(
    "text",
    ["노름 가중치가 같음", "원 코사인 0.99", "독립인 쌍의 95 %", "1.8 MB를 읽음", "모든 층", "{a}의 매개변수 수"],
)
def test_wrong_korean_is_found(text):
    assert wrong_korean(text) == [text]


@pytest.mark.parametrize("text", ["심층 탐색", "정규화(LayerNorm) 가중치", "독립인 쌍의 95%", "1.8MB를 읽음", "10 B"])
def test_right_korean_is_not(text):
    assert wrong_korean(text) == []


@pytest.mark.parametrize("check", ["archive", "names", "ranges", "enclosed bytes", "sources", "figures"])
def test_every_check_of_a_bundle_has_a_korean_name(check):
    assert HANGUL.search(Words("ko").label("check", check))
