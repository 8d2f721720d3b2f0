"""Every form of a report from the command line, targets that cannot be written, and what a script sees."""

import csv
import io
import json
import sys

import pytest

from kinprint._util.files import write_whole
from kinprint.cli.judging import EXIT_CODES, NAMES
from kinprint.cli.outputs import check_target
from kinprint.errors import StorageError
from kinprint.results.options import PAIR_BUDGET_BYTES
from kinprint.results.report import Report
from kinprint.results.tree import PairsReport
from support.reports import pairs_report

QUICK = ("--metrics", "pearson", "--quiet", "--format", "json")


@pytest.fixture(scope="module")
def forms(tmp_path_factory, demo):
    """One comparison, written in every form."""
    from click.testing import CliRunner

    from kinprint.cli.main import main

    folder = tmp_path_factory.mktemp("forms")
    (folder / "a").mkdir()
    asked = {
        "--html": "a/report.html",
        "--markdown": "report.md",
        "--csv": "all.csv",
        "--parquet": "all.parquet",
        "--cyclonedx": "bom.json",
        "--sarif": "findings.sarif",
        "--bundle": "evidence.zip",
        "--out": "out",
    }
    arguments = [part for option, name in asked.items() for part in (option, str(folder / name))]
    pair = str(demo / "base"), str(demo / "finetune")
    done = CliRunner().invoke(main, ["compare", *pair, *QUICK, "--exit-code", *arguments], standalone_mode=False)
    assert done.return_value == EXIT_CODES["derived"], done.output
    return folder


def test_every_form_is_written(forms):
    report = Report.from_json((forms / "out" / "report.json").read_bytes())
    sentence = report.verdict.sentence
    assert sentence.split("10^")[0] in (forms / "a" / "report.html").read_text(encoding="utf-8").replace("&#39;", "'")
    assert "**derived, " in (forms / "report.md").read_text(encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO((forms / "all.csv").read_text(encoding="utf-8"))))
    assert len(rows) >= sum(len(item.measurements) for item in report.comparisons) > 20
    assert (forms / "all.parquet").read_bytes()[:4] == b"PAR1"
    assert json.loads((forms / "bom.json").read_bytes())["bomFormat"] == "CycloneDX"
    assert json.loads((forms / "findings.sarif").read_bytes())["version"] == "2.1.0"
    assert (forms / "evidence.zip").read_bytes()[:2] == b"PK"
    assert report.reads
    assert report.grids


def test_a_saved_report_is_shown_and_written_again(forms, inside, tmp_path):
    saved = forms / "out" / "report.json"
    done = inside("report", saved, "--html", tmp_path / "again.html", "--format", "json", "--full")
    assert done.code == 0, done.err
    assert done.out.encode() == saved.read_bytes() + b"\n"
    assert (tmp_path / "again.html").read_bytes() == (forms / "a" / "report.html").read_bytes()
    table = inside("report", saved, "--format", "table", "--summary")
    assert "Verdict: derived, " in table.out


def test_a_bundle_is_a_report_too(forms, inside):
    done = inside("report", forms / "evidence.zip", "--format", "json", "--full")
    assert done.code == 0, done.err
    assert done.out.encode() == (forms / "out" / "report.json").read_bytes() + b"\n"


@pytest.mark.parametrize(
    ("content", "said", "step"),
    [
        (b"", "no report of kinprint", "kinprint compare A B --out FOLDER writes a report"),
        (b"# Read me", "no report of kinprint", "kinprint compare A B --out FOLDER writes a report"),
        (
            b"<!DOCTYPE html>\n<html>",
            "this is a page",
            "its JSON is saved with --out: kinprint compare A B --out FOLDER",
        ),
        (b"{}", "JSON, but no report of kinprint", "kinprint compare A B --out FOLDER writes a report"),
        (b"[1]", "JSON, but no report of kinprint", "kinprint compare A B --out FOLDER writes a report"),
        (b"\xff\xfe", "no report of kinprint", "kinprint compare A B --out FOLDER writes a report"),
        (b'{"schema": "kinprint.null", "schema_version": 1}', "'kinprint.null', not a report", "kinprint compare A B"),
        (b'{"schema": ["kinprint.report"]}', "not a report", "kinprint compare A B"),
        (b'{"schema": "kinprint.report", "schema_version": 99}', "version 99; this kinprint", "upgrade kinprint"),
        (b'{"schema": "kinprint.pairs", "schema_version": 99}', "version 99; this kinprint", "upgrade kinprint"),
        (b'{"schema": "kinprint.report", "schema_version": 0}', "version 0; this kinprint", "use the version"),
        (
            b'{"schema": "kinprint.report", "schema_version": 1}',
            "does not fit schema version 1",
            "damaged or was edited",
        ),
        (
            b'{"schema": "kinprint.pairs", "schema_version": 1}',
            "does not fit schema version 1",
            "damaged or was edited",
        ),
        (b"PK\x03\x04", "no evidence bundle", "fetch it again"),
    ],
)
def test_what_is_no_report(inside, tmp_path, content, said, step):
    (tmp_path / "x.json").write_bytes(content)
    done = inside("report", tmp_path / "x.json")
    assert done.code == 6
    error, following = done.err.splitlines()
    assert error.startswith(f"error: {tmp_path / 'x.json'}: ")
    assert said in error
    assert following.startswith("  next: ")
    assert step in following


def test_a_model_that_is_named_like_a_schema(forms, inside, tmp_path):
    raw = json.loads((forms / "out" / "report.json").read_bytes())
    raw["a"]["reference"] = "kinprint.pairs"
    (tmp_path / "x.json").write_text(json.dumps(raw), encoding="utf-8")
    assert inside("report", tmp_path / "x.json").code == 0


def test_no_such_report(inside, tmp_path):
    done = inside("report", tmp_path / "none.json")
    assert done.code == 3
    assert "no such file" in done.err


@pytest.mark.parametrize("option", ["--html", "--markdown", "--csv", "--parquet", "--cyclonedx", "--sarif", "--bundle"])
def test_a_target_that_cannot_be_written_is_refused_before_anything_is_read(inside, demo, tmp_path, option):
    (tmp_path / "file").write_bytes(b"")
    done = inside("compare", demo / "base", tmp_path / "no such model", option, tmp_path / "file" / "x")
    assert done.code == 8, done.err
    assert "is no folder" in done.err
    done = inside("compare", demo / "base", demo / "finetune", option, tmp_path)
    assert done.code == 2  # click itself: a folder


@pytest.mark.skipif(sys.platform != "linux", reason="a folder that nobody can write to, not even root")
@pytest.mark.parametrize("target", [("--html", "/proc/r.html"), ("--out", "/proc/new")])
def test_a_folder_that_refuses_what_its_permissions_allow(forms, inside, target):
    done = inside("report", forms / "out" / "report.json", *target)
    assert done.code == 8
    assert "/proc cannot be written to" in done.err
    assert "name another file" in done.err


def test_looking_at_targets_leaves_nothing(tmp_path):
    check_target(tmp_path / "new" / "r.html", [tmp_path / "new"])
    check_target(tmp_path / "r.html")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options",
    [
        ("--html", "{}/x", "--markdown", "{}/x"),
        ("--html", "{}/x", "--sarif", "{}/y/../x"),
        ("--out", "{}", "--csv", "{}/report.json"),
        ("--html", "{}/x", "--bundle", "{}/x"),
    ],
)
def test_one_target_for_two_forms(inside, demo, tmp_path, options):
    given = [part.format(tmp_path) for part in options]
    done = inside("compare", demo / "base", tmp_path / "no such model", *given)
    assert done.code == 2
    assert f"{options[0]} and {options[2]} both name" in done.err
    assert list(tmp_path.glob("x*")) == []


def test_a_report_is_not_overwritten_by_its_own_page(forms, inside, tmp_path):
    saved = tmp_path / "report.json"
    saved.write_bytes((forms / "out" / "report.json").read_bytes())
    before = saved.read_bytes()
    done = inside("report", saved, "--html", saved)
    assert done.code == 2
    assert f"--html would overwrite {saved}" in done.err
    assert inside("report", saved, "--out", tmp_path).code == 0  # the same report again
    assert saved.read_bytes() == before


def test_a_table_that_nothing_would_hold(forms, inside, tmp_path):
    saved, idle = forms / "out" / "report.json", ("--table", "tests")
    done = inside("report", saved, "--markdown", tmp_path / "r.md", *idle)
    assert done.code == 2
    assert "--table needs --csv FILE or --parquet FILE" in done.err
    assert inside("report", saved, "--csv", tmp_path / "used", *idle).code == 0


def test_a_full_disk_is_told_with_the_next_step(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="cannot write") as caught:
        write_whole(tmp_path / "file" / "x", b"")
    assert caught.value.hint == "free some space, or name another file"


@pytest.mark.parametrize(
    ("fail_on", "code"),
    [
        ("derived", 11),
        ("not-testable,derived", 11),
        ("identical|not_testable", 0),
        ("no-evidence", 0),
        ("undeclared", 0),
    ],
)
def test_fail_on(inside, demo, fail_on, code):
    assert inside("compare", demo / "base", demo / "finetune", *QUICK, "--fail-on", fail_on).code == code


def test_fail_on_no_evidence(inside, demo):
    pair = demo / "base", demo / "unrelated"
    assert inside("compare", *pair, *QUICK, "--fail-on", "no-evidence").code == 17
    assert inside("compare", *pair, *QUICK, "--fail-on", "derived").code == 0


def test_fail_on_something_unheard_of(inside, demo):
    done = inside("compare", demo / "base", demo / "base", "--fail-on", "evil")
    assert done.code == 2
    assert all(name in done.err for name in NAMES)


def test_fail_on_what_only_a_search_finds(inside, demo):
    done = inside("compare", demo / "base", demo / "finetune", "--fail-on", "derived,related")
    told = " ".join(done.err.replace("│", " ").split())
    assert (done.code, done.out) == (2, "")
    assert f"'related', which only a search finds, is not one of {', '.join(NAMES)}" in told


def test_the_schema_is_printed(inside):
    done = inside("schema")
    assert done.code == 0
    assert json.loads(done.out)["$id"].startswith("urn:kinprint:schema:report")


# -- more than two -------------------------------------------------------------------------------------------------------


ALL_PAIRS_FORMS = {
    "--html": "r.html",
    "--markdown": "r.md",
    "--csv": "r.csv",
    "--parquet": "r.parquet",
    "--cyclonedx": "bom.json",
    "--sarif": "r.sarif",
}


@pytest.fixture(scope="module")
def three(tmp_path_factory, demo):
    from click.testing import CliRunner

    from kinprint.cli.main import main

    folder = tmp_path_factory.mktemp("three")
    names = [str(demo / name) for name in ("base", "finetune", "unrelated")]
    targets = ["--out", str(folder)]
    for form, name in ALL_PAIRS_FORMS.items():
        targets += [form, str(folder / name)]
    done = CliRunner().invoke(
        main, ["compare", *names, "--quiet", "--format", "table", *targets], standalone_mode=False
    )
    assert done.return_value == 0, done.output
    return folder, done.output


def test_all_pairs(three, inside):
    folder, shown = three
    report = PairsReport.from_json((folder / "report.json").read_bytes())
    assert report.clusters == ((0, 1), (2,))
    assert [(pair.a, pair.b, pair.class_) for pair in report.pairs] == [
        (0, 1, "derived"),
        (0, 2, "no_evidence"),
        (1, 2, "no_evidence"),
    ]
    assert report.pair(1, 0).log10_p_pairs > report.pair(0, 1).log10_p
    assert min(pair.norm_cosine for pair in report.pairs) > 0.98  # what misleads
    assert sorted(path.name for path in (folder / "pairs").iterdir()) == ["1-2.json", "1-3.json", "2-3.json"]
    Report.from_json((folder / "pairs" / "1-3.json").read_bytes())
    assert "Verdict of every pair" in shown
    assert "common ancestor: base, finetune" in shown
    assert "| 3 | `unrelated` |" in (folder / "r.md").read_text(encoding="utf-8")
    assert "finetune" in (folder / "r.html").read_text(encoding="utf-8")
    again = inside("report", folder / "report.json", "--format", "table")
    assert "Verdict of every pair" in again.out


def test_every_form_of_all_pairs(three):
    folder, _ = three
    rows = list(csv.DictReader(io.StringIO((folder / "r.csv").read_text(encoding="utf-8"))))
    assert [(row["name_a"], row["name_b"], row["verdict"]) for row in rows] == [
        ("base", "finetune", "derived"),
        ("base", "unrelated", "no_evidence"),
        ("finetune", "unrelated", "no_evidence"),
    ]
    assert (folder / "r.parquet").read_bytes()[:4] == b"PAR1"
    bom = json.loads((folder / "bom.json").read_bytes())
    assert [item["bom-ref"] for item in bom["components"]] == ["model-1", "model-2", "model-3"]
    assert [set(item["pedigree"]) for item in bom["components"]] == [{"variants", "notes"}] * 2 + [{"notes"}]
    (run,) = json.loads((folder / "r.sarif").read_bytes())["runs"]
    assert [item["ruleId"] for item in run["results"]] == ["derived-from", "no-evidence", "no-evidence"]


def test_every_form_of_a_saved_report_on_all_pairs(three, inside, tmp_path):
    folder, _ = three
    again = [part for form, name in ALL_PAIRS_FORMS.items() for part in (form, tmp_path / name)]
    done = inside("report", folder / "report.json", *again, "--table", "verdicts", "--format", "json")
    assert done.code == 0, done.err
    for name in ALL_PAIRS_FORMS.values():
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


@pytest.mark.parametrize("form", ["--csv", "--parquet"])
@pytest.mark.parametrize("table", ["measurements", "tests", "layers"])
def test_tables_of_a_pair_are_not_of_many(three, inside, demo, tmp_path, form, table):
    folder, _ = three
    done = inside("report", folder / "report.json", "--table", table, form, tmp_path / "x")
    assert done.code == 2
    assert f"--table {table} is of one pair, and {folder / 'report.json'} is on all pairs" in done.err
    command = done.err.rpartition("next: kinprint ")[2].split()
    assert command == ["report", str(folder / "pairs" / "1-2.json"), "--table", table, form, "FILE"]
    assert not (tmp_path / "x").exists()
    assert inside(*command[:-1], tmp_path / "x", "--format", "json").code == 0
    assert (tmp_path / "x").exists()
    names = [demo / "base", demo / "finetune", tmp_path / "no such model"]
    done = inside("compare", *names, "--table", table, form, tmp_path / "y")
    assert done.code == 2
    assert f"--table {table} is of one pair, and 3 models were given" in done.err
    later = f"give --out OUT, then kinprint report OUT/pairs/1-2.json --table {table} {form} FILE"
    assert f"next: compare the pair alone, or {later}" in done.err


def test_the_table_of_many_is_not_of_a_pair(forms, inside, demo, tmp_path):
    saved = forms / "out" / "report.json"
    for given in (("report", saved), ("compare", demo / "base", tmp_path / "no such model")):
        done = inside(*given, "--table", "verdicts", "--csv", tmp_path / "x")
        assert done.code == 2
        assert "--table verdicts has a row for each pair of more than two models" in done.err
        assert "next: choose measurements, tests or layers" in done.err
    assert not (tmp_path / "x").exists()


def test_choices_reach_every_pair(inside, demo, tmp_path):
    names = [demo / name for name in ("base", "finetune", "unrelated")]
    done = inside(
        "compare", *names, "--quiet", "--rows", 3, "--layers", 0, "--roles", "attn_v,input_norm", "--out", tmp_path
    )
    assert done.code == 0, done.err
    chosen = Report.from_json((tmp_path / "pairs" / "1-2.json").read_bytes()).settings
    assert (chosen.rows, chosen.layers, chosen.roles) == (3, "0", ("attn_v", "input_norm"))


def test_a_copy_counts_as_derived(inside, demo):
    pair = demo / "base", demo / "base"
    assert inside("compare", *pair, *QUICK, "--fail-on", "derived").code == EXIT_CODES["identical"]


def test_what_is_for_two_models_only(inside, demo, tmp_path):
    names = [demo / name for name in ("base", "finetune", "unrelated")]
    for option in (
        ("--control", "x"),
        ("--explain",),
        ("--bundle", tmp_path / "x"),
        ("--method", "all"),
        ("--exit-code",),
    ):
        done = inside("compare", *names, *option)
        assert done.code == 2
        assert f"{option[0]} is for a comparison of two models, and 3 were given" in done.err
        assert "next: compare the pair alone" in done.err
        later = f"give --out OUT, then kinprint report OUT/pairs/1-2.json {option[0]}"
        assert (later in done.err) == (option[0] == "--explain")


def test_one_pair_of_many_is_explained(three, inside, demo):
    folder, _ = three
    names = [demo / name for name in ("base", "finetune", "unrelated")]
    done = inside("compare", *names, "--out", folder, "--explain")
    assert f"kinprint report {folder}/pairs/1-2.json --explain\n" in done.err


def test_pairs_are_named_by_the_smaller_number_first(forms, inside, monkeypatch, tmp_path):
    report = Report.from_json((forms / "out" / "report.json").read_bytes())

    def backwards(_models, *, on_report, **_wishes):
        on_report(2, 0, report)  # as where the first model is the deeper one
        return pairs_report()

    monkeypatch.setattr("kinprint.tree.compare_many", backwards)
    assert inside("compare", "a", "b", "c", "--quiet", "--out", tmp_path).code == 0
    assert [path.name for path in (tmp_path / "pairs").iterdir()] == ["1-3.json"]
    assert Report.from_json((tmp_path / "pairs" / "1-3.json").read_bytes()) == report  # in its own order


def test_help_tells_the_budget_of_several_models(inside):
    text = " ".join(inside("compare", "--help").out.split())
    assert f"({PAIR_BUDGET_BYTES // 10**6}MB a pair unless you give one" in text


@pytest.mark.parametrize(
    ("words", "limits"),
    [
        (("scan",), "of each model"),
        (("catalog", "add"), "of each model"),
        (("tree",), "of each pair"),
        (("inspect",), "in all"),
        (("compare",), "in all"),
    ],
)
def test_help_tells_what_a_budget_limits(inside, words, limits):
    text = " ".join(inside(*words, "--help").out.split())
    assert f"Read at most this much {limits}, headers and tokenizers included" in text


def test_one_model_is_too_few(inside, demo):
    done = inside("compare", demo / "base")
    assert done.code == 2
    assert "expected two models or more, got 1" in done.err


def test_forms_of_a_report_need_the_models_themselves(inside, demo, tmp_path):
    done = inside("compare", tmp_path / "x.kfp", demo / "base", "--html", tmp_path / "x.html")
    assert done.code == 2
    assert "--html needs the models themselves" in done.err
