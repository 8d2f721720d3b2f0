"""The page on all pairs: what it shows, names of strangers, and the command that repeats it."""

import re
import shlex
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from kinprint.render.markdown.report import pairs_markdown
from kinprint.render.page.report import pairs_command, pairs_html
from kinprint.render.texts.words import Words
from kinprint.results.tree import PairsReport
from kinprint.tree.all_pairs import clusters_of
from support.reports import pairs_report

EVIL = '</script><script>alert(1)</script>"><img src=x onerror=alert(1)>\u202e{{7*7}}'


class Elements(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.tags, self.ids, self.links = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        given = dict(attrs)
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given["href"]] if tag == "a" else []
        assert not any(name.startswith("on") for name in given)


@pytest.mark.parametrize("lang", ["en", "ko"])
def test_the_page(lang):
    report = pairs_report()
    page = pairs_html(report, lang=lang).decode()
    found = Elements(page)
    assert page == pairs_html(report, lang=lang).decode()
    assert len(found.ids) == len(set(found.ids))
    assert all(link[1:] in found.ids for link in found.links)
    assert {"pair-0", "pair-1", "pair-2"} <= set(found.ids)
    assert "-49.5" in page  # corrected for three pairs


def test_the_tree_and_the_pairs_give_one_edit_one_name():
    page = pairs_html(pairs_report()).decode()
    tree = page.split('<section id="tree">')[1].split("</section>")[0]
    assert [re.sub("<[^>]*>", "", name) for name in re.findall("<strong><bdi>(.*?)</bdi>", tree)] == [
        "base",
        "child",
        "other",
    ]
    assert "further training" in tree
    assert "→" not in tree  # nothing tells which came first
    assert "fine tuned" not in page


def test_the_matrix_has_names_and_words():
    page = pairs_html(pairs_report()).decode()
    matrix = page.split('<section id="matrix"')[1].split("</section>")[0]
    for model in ("base", "child", "other"):
        assert len(re.findall(f"<th scope=.(?:col|row).><bdi>{model}</bdi></th>", matrix)) == 2
    cells = re.findall(r'<td class="cell[^"]*">(?:<a [^>]*>)?([^<]*)', matrix)
    assert cells == ["", "derived", "no evidence", "derived", "", "no evidence", "no evidence", "no evidence", ""]


def test_the_files_of_the_pairs_are_named():
    for lang in ("en", "ko"):
        data = pairs_html(pairs_report(), lang=lang).decode().split('id="data"')[1]
        assert "pairs/1-2.json" in data


def test_names_of_strangers_are_inert():
    plain, evil = (
        Elements(pairs_html(pairs_report(names)).decode()) for names in (("a", "b", "c"), (EVIL, EVIL * 400, "c"))
    )
    assert [tag for tag in evil.tags if tag in ("script", "img")] == [
        tag for tag in plain.tags if tag in ("script", "img")
    ]
    text = pairs_markdown(pairs_report((EVIL, "b|c", "`d`")))
    assert "<script" not in text
    assert "| 2 | b\\|c |" in text


def test_what_does_not_stand_is_marked_and_joins_nothing():
    report = pairs_report(log10_p=-6.2)
    assert report.clusters == ((0,), (1,), (2,))
    assert not report.pairs[0].significant
    assert report.pairs[0].log10_p_pairs == pytest.approx(-6.2 + 0.4771, abs=1e-3)
    said = f">derived ({Words().say('many.doubtful')})</a></td>"
    assert said not in pairs_html(pairs_report()).decode()
    assert said in pairs_html(report).decode()


def test_the_command_repeats_it():
    words = shlex.split(pairs_command(pairs_report()))
    assert words[:2] == ["kinprint", "compare"]
    assert words[-3:] == [f"owner/{name}@{'c' * 40}" for name in ("base", "child", "other")]


def test_json_there_and_back():
    report = pairs_report()
    assert PairsReport.from_json(report.to_json()) == report
    assert b'"class": "derived"' in report.to_json()


def test_equal_models_share_a_cell():
    report = pairs_report()
    models = (report.tree.models[0], replace(report.tree.models[1], node=0), report.tree.models[2])
    same = replace(report, tree=replace(report.tree, models=models, edges=()), pairs=report.pairs[1:2])
    assert clusters_of(same.tree)[0] == (0, 1)
    assert pairs_html(same).decode().count('class="cell cell-identical"') == 2


def test_a_model_that_could_not_be_tested_is_not_called_unrelated():
    report = pairs_report()
    silent = tuple(replace(pair, class_="not_testable") if 2 in (pair.a, pair.b) else pair for pair in report.pairs)
    lines = tuple(replace(line, found="not_testable") if 2 in (line.a, line.b) else line for line in report.tree.pairs)
    found = replace(report, pairs=silent, tree=replace(report.tree, pairs=lines))
    assert (found.alone, found.not_testable) == ((), (2,))
    page, text = pairs_html(found).decode(), pairs_markdown(found)
    for shown in (page, text):
        assert "tested against any of the others" in shown
        assert "none of the others, as far as was seen" not in shown
    assert "unrelated to the others" not in page
    assert pairs_report().alone == (2,)
