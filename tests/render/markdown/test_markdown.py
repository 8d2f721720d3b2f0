"""The report as Markdown: everything a reader needs, the verdict first; text of strangers starts nothing."""

import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt

from kinprint.render.markdown.layout import MOST_ROWS, name, prose
from kinprint.render.markdown.report import report_markdown
from kinprint.render.repeat_command import command_of
from kinprint.render.texts.words import Words
from kinprint.results.findings import CLASSES
from kinprint.results.report import Report
from support.places import GOLDEN_REPORTS
from support.reports import HOSTILE, LONG, empty_report, hostile_report

GOLDEN = GOLDEN_REPORTS
IN_ENGLISH = Words()
REPORT = Report.from_json((GOLDEN / "report_v2.json").read_bytes())
OLDER = Report.from_json((GOLDEN / "report_v1.json").read_bytes())
READER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
MORE = (
    "1. one",
    "- item",
    "+ item",
    "# head",
    "> quote",
    "=====",
    "---",
    "***bold***",
    "_a_ __b__",
    "~~gone~~",
    "![x](http://a.b/c.png)",
    "<http://a.b>",
    "[a]: http://b",
    "```\ncode",
    "    indented",
    "a\\",
    "a | b",
    "$x$",
    "| a |\n|---|",
    "<!-- c",
    "x & y &copy; &#x3c;",
    "\\*x\\*",
)


class Seen(HTMLParser):
    """What a browser would see: tags, attributes, text."""

    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.text = Counter(), set(), []

    def handle_starttag(self, tag, attrs):
        self.tags[tag] += 1
        self.attributes |= {key for key, _ in attrs}

    def handle_data(self, data):
        self.text.append(data)


def seen(text):
    page = Seen()
    page.feed(READER.render(text))
    page.close()
    return page


def plain(text):
    return " ".join("".join(seen(text).text).split())


# ---- what is there ----


def test_the_verdict_comes_first():
    text = report_markdown(REPORT)
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert headings == [
        "Verdict",
        "The models",
        "Declared, and measured",
        "Evidence by role",
        "Tests of the hypothesis that the models share nothing",
        "What matches what",
        "What was done to the weights",
        "B as a weighted sum",
        "Controls: model A in comparisons whose answer is known",
        "What would have been seen",
        "Fingerprint methods",
        "Configuration",
        "Tokenizer",
        "How to read this",
        "Data, and how to repeat this",
    ]
    assert text.startswith("# base – tuned\n\n## Verdict\n\n**derived")
    assert text.endswith("```\n")


def test_every_part_of_the_report_is_on_the_page():
    text = plain(report_markdown(REPORT))
    evidence = REPORT.evidence
    for words in (
        REPORT.verdict.sentence,
        *REPORT.verdict.against,
        *(IN_ENGLISH.reason(said).text for said in REPORT.verdict.untested),
        *(item.role for item in REPORT.summary),
        *(test.name for test in evidence.tests),
        *(IN_ENGLISH.label("test", test.name) for test in evidence.tests),
        *(IN_ENGLISH.label("component", item.component) for item in evidence.components),
        *(IN_ENGLISH.control(item.name) for item in evidence.controls),
        *(item.quantity for item in evidence.power),
        *(item.method for item in REPORT.methods),
        *(item.sha256 for item in REPORT.reads),
        REPORT.declared.sentence,
        REPORT.declared.licences,
        "apache-2.0",
        "Seed: 0",
    ):
        assert " ".join(words.split()) in text
    assert command_of(REPORT) in report_markdown(REPORT)


def test_tables_are_tables():
    page = seen(report_markdown(REPORT))
    assert page.tags["table"] >= 9
    rows = len(REPORT.summary) + len(REPORT.evidence.tests) + len(REPORT.evidence.controls)
    assert page.tags["tr"] > rows


def test_figures_stand_beside_their_null():
    item = next(item for item in REPORT.summary if item.null is not None)
    row = next(line for line in report_markdown(REPORT).splitlines() if line.startswith(f"| `{item.role}` |"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1] == str(item.null.n)
    assert cells[7] == f"{item.null.z:+.2f}"
    assert float(cells[6]) == pytest.approx(item.null.sd, rel=0.01)


def test_missing_is_a_dash_with_its_reason():
    first = replace(REPORT.summary[0], null=None, statistic=None, mean_pearson=None, reason="all constant")
    text = report_markdown(replace(REPORT, summary=(first,)))
    row = next(line for line in text.splitlines() if line.startswith(f"| `{first.role}` |"))
    assert row.count(" – |") == 6
    assert row.endswith("| no test: all constant |")


@pytest.mark.parametrize("found", CLASSES)
def test_every_class_of_verdict_is_named(found):
    text = report_markdown(replace(REPORT, verdict=replace(REPORT.verdict, class_=found, kind=None)))
    assert f"**{found.replace('_', ' ')}**" in text
    assert ("No evidence is not proof of independence" in text) == (found == "no_evidence")


def test_long_tables_are_cut_and_say_so():
    tests = REPORT.evidence.tests[:1] * (MOST_ROWS + 7)
    text = report_markdown(replace(REPORT, evidence=replace(REPORT.evidence, tests=tests)))
    assert "and 7 more, in the JSON report" in text
    assert text.count(f"| {IN_ENGLISH.label('test', tests[0].name)} (`{tests[0].name}`) |") == MOST_ROWS + sum(
        item.name == tests[0].name for item in REPORT.evidence.power
    )


# ---- what little there may be ----


def test_an_older_report():
    text = report_markdown(OLDER)
    assert "## Declared, and measured" not in text
    assert "## Verdict" in text


def test_a_report_without_anything_comparable_says_why(tmp_path):
    report = empty_report(tmp_path)
    text = report_markdown(report)
    assert "Nothing could be compared:" in text
    assert " ".join(report.reason.split())[:60] in plain(text)
    bare = report_markdown(replace(report, verdict=None, evidence=None))
    assert "This comparison was asked for measurements alone." in bare


# ---- strangers ----


@pytest.mark.parametrize("text", [*HOSTILE, *MORE], ids=range(len(HOSTILE) + len(MORE)))
@pytest.mark.parametrize("place", ["{}", "- {}", "| a |\n|---|\n| {} |", "# {}", "**x.** {}", "1. {}"])
@pytest.mark.parametrize("way", [prose, name])
def test_text_is_shown_and_starts_nothing(text, place, way):
    harmless = seen(place.format("x")).tags
    page = seen(place.format(way(text)))
    assert page.tags - Counter(code=9) == harmless - Counter(code=9)
    shown = "".join("".join(page.text).split())
    wanted = "".join("".join(c if c.isprintable() else "\ufffd" for c in text).split())
    assert wanted[:60] in shown


def test_hostile_reports_have_no_more_than_the_tags_of_tame_ones():
    for everything in (False, True):
        hostile = seen(report_markdown(hostile_report(REPORT, everything=everything)))
        tame = seen(report_markdown(REPORT))
        assert set(hostile.tags) <= set(tame.tags)
        assert hostile.tags["table"] == tame.tags["table"]
        assert hostile.tags["tr"] == tame.tags["tr"]
        assert hostile.attributes <= {"style", "class"}


def test_the_source_holds_no_html_and_no_hidden_characters():
    text = report_markdown(hostile_report(REPORT, everything=True))
    body = text[: text.rindex("```sh")]  # code needs no escapes
    assert not re.search(r"<[a-z/!]", body, re.IGNORECASE)
    assert all(c.isprintable() or c == "\n" for c in text)
    assert LONG[:1000] not in body


def test_names_do_not_link_or_notify():
    assert prose("see http://a.b and www.a.b") == "see http\\://a.b and www\\.a.b"
    assert prose("@octocat and owner/name@main") == "`@`octocat and owner/name@main"
    assert name("@octocat") == "`@octocat`"


def test_plain_words_stay_plain():
    assert prose("fixed_points of mlp_up: 128 against 4 (z 62.0)") == "fixed_points of mlp_up: 128 against 4 (z 62.0)"
    assert name("model.layers.0.self_attn.q_proj.weight") == "`model.layers.0.self_attn.q_proj.weight`"
    assert (name(""), prose("")) == ("–", "")


def test_a_command_cannot_leave_its_fence():
    hostile = replace(REPORT, a=replace(REPORT.a, reference="x\n```\n# out\n````` y"))
    page = seen(report_markdown(hostile))
    assert page.tags["pre"] == 1
    assert page.tags["h1"] == 1
