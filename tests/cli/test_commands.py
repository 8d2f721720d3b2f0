"""What the commands print, and where."""

import json
import re
import shlex
import subprocess

import pytest
from click.testing import CliRunner

from kinprint.cli.main import main
from kinprint.metrics import METRICS
from kinprint.results.report import Report
from support.places import ROOT

QUICK = ("--layers", "0-1", "--roles", "input_norm,attn_q,mlp_down", "--rows", "8")


@pytest.fixture
def invoke(monkeypatch, tmp_path):
    monkeypatch.setenv("KINPRINT_CACHE", str(tmp_path / "ranges"))
    monkeypatch.setenv("HOME", str(tmp_path))

    def run(*arguments):
        result = CliRunner().invoke(main, list(map(str, arguments)), standalone_mode=False)
        if result.exception is not None:
            raise result.exception
        return result

    return run


def test_help_lists_commands_and_exit_codes(kinprint):
    done = kinprint("--help")
    assert done.code == 0
    for word in ("compare", "inspect", "cache", "owner/name@revision", "Exit codes:"):
        assert word in done.out
    for code in (*range(10), 130):
        assert re.search(rf"^  {code} +[a-z]", done.out, re.MULTILINE), code
    for name in ("compare", "inspect", "cache"):
        assert f"kinprint {name}" in kinprint(name, "-h").out
    assert re.fullmatch(r"kinprint, version \d+\.\d+\.\d+\S*\n", kinprint("--version").out)


def test_models_of_the_demo_are_named_from_here_where_they_are_below(invoke, monkeypatch, tmp_path):
    def own():
        return invoke("demo", "--out", tmp_path / "pages").output.split("Worth trying next:")[1].splitlines()[2].split()

    monkeypatch.setattr("kinprint.cli.demo.PAIRS", ())  # what is found in them is looked at where the wheel is
    monkeypatch.chdir(ROOT)
    assert own() == ["kinprint", "compare", "demo/models/base", "demo/models/finetune", "--full"]
    monkeypatch.chdir(tmp_path)
    assert own()[2] == str(ROOT / "demo" / "models" / "base")


def test_json_is_one_object_and_the_file_says_the_same(kinprint, demo, tmp_path):
    out = tmp_path / "deep" / "er"
    done = kinprint("compare", demo / "base", demo / "finetune", *QUICK, "--format", "json", "--full", "--out", out)
    assert done.code == 0
    assert done.out.encode() == (out / "report.json").read_bytes() + b"\n"
    report = Report.from_json(done.out.encode())
    assert len(report.comparisons) == 6
    assert done.err == f"made the folder {out}\nwrote {out / 'report.json'}\n"
    assert [path.name for path in out.iterdir()] == ["report.json"]


def test_piped_output_is_the_answer(kinprint, demo):
    done = kinprint("compare", demo / "base", demo / "base", *QUICK)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "Verdict: identical"
    assert len(lines) <= 20
    assert max(map(len, lines[:-1])) <= 80
    assert "\x1b" not in done.out
    narrow = kinprint("compare", demo / "base", demo / "base", *QUICK, env={"COLUMNS": "60"}).out.splitlines()
    assert max(map(len, narrow[:-1])) <= 60


def test_json_is_small_unless_all_is_asked_for(inside, demo):
    pair = ("compare", demo / "base", demo / "unrelated", *QUICK, "--format", "json")
    short, full = (json.loads(inside(*pair, *more).out) for more in ((), ("--full",)))
    left_out = ("comparisons", "grids", "reads")
    assert short.pop("schema") == "kinprint.report.findings"
    assert short | {"run": None} == {key: full[key] for key in full if key not in (*left_out, "schema")} | {"run": None}
    assert all(full[key] for key in left_out)


def test_short_json_is_not_taken_for_a_report(inside, demo, tmp_path):
    """It holds no measurement, which is not the same as none made."""
    short = inside("compare", demo / "base", demo / "base", *QUICK, "--format", "json").out
    (tmp_path / "short.json").write_text(short)
    done = inside("report", tmp_path / "short.json")
    assert done.code == 6
    assert "of schema 'kinprint.report.findings', not a report" in done.err
    assert "--out FOLDER writes a report" in done.err


def test_the_table_shows_every_metric_of_every_layer_beside_its_null(invoke, demo):
    line = ["compare", demo / "base", demo / "unrelated", *QUICK, "--metrics", "all", "--format"]
    shown, raw = (invoke(*line, form, "--full").output for form in ("table", "json"))
    report = Report.from_json(raw.encode())
    for column in ("Observed", "Null mean", "Null sd", "z", "log10 p"):
        assert shown.count(column) >= 3
    for role in ("input_norm", "attn_q", "mlp_down"):
        lines = shown[shown.index(f"{role} (null: permuted") :].splitlines()
        table = lines[: lines.index("")]
        for item in (item for item in report.comparisons if item.role == role):
            for found in item.measurements:
                rows = [line for line in table if re.search(rf"\b{found.metric} ", line) and ":" not in line]
                assert len(rows) == 2, (role, found.metric)
                if found.null is not None and found.null.z is not None:
                    assert any(f"{found.null.z:+.2f}" in line for line in rows), (role, found.metric)
    assert "Verdict: no evidence" in shown
    assert "Evidence by role" in shown
    assert {metric.name for metric in METRICS.values()} <= set(re.findall(r"\w+", shown))


def test_summary_leaves_the_layers_out(invoke, demo):
    shown = invoke("compare", demo / "base", demo / "unrelated", *QUICK, "--format", "table", "--summary").output
    assert "Evidence by role" in shown
    assert "spearman" not in shown
    assert "not compared: 31 tensors: its role was not asked for" not in shown
    assert "its role was not asked for" in shown


def test_inspect_as_json_and_as_table(invoke, inside, demo):
    found = json.loads(inside("inspect", demo / "base", "--format", "json").out)
    assert found["schema"] == "kinprint.inspection"
    assert {item["role"]: item["tensors"] for item in found["roles"]}["attn_q"] == 4
    assert sum(item["stored_bytes"] for item in found["roles"]) == found["model"]["stored_bytes"]
    assert len(found["norms"]) == 9
    shown = invoke("inspect", demo / "base", "--format", "table").output
    assert "Every stored tensor has a name" in shown
    assert re.search(r"attn_k +4 +4 +32 × 96 +BF16", shown)
    for item in found["norms"]:
        assert f"{item['mean']:.4f}" in shown
    assert len(re.findall(r"input_norm +\d +", shown)) == 4 + 1  # a line for each layer, and the inventory's


def test_inspect_without_norms_reads_no_weights(inside, demo):
    found = json.loads(inside("inspect", demo / "base", "--no-norms", "--format", "json").out)
    assert found["norms"] == []


def test_cache_show_and_clear(inside, demo_hub, tmp_path):
    env = {"HF_ENDPOINT": demo_hub.endpoint}
    empty = json.loads(inside("cache", "--format", "json").out)
    assert (empty["folder"], empty["files"], empty["stored_bytes"]) == (str(tmp_path / "ranges"), [], 0)
    assert inside("inspect", "demo/base", env=env).code == 0
    full = json.loads(inside("cache", "--format", "json").out)
    assert full["stored_bytes"] > 50_000
    assert {entry["repo"] for entry in full["files"]} == {"demo/base"}
    shown = inside("cache", "--format", "table")
    assert re.search(r"demo/base@[0-9a-f]{8}", shown.out)
    cleared = inside("cache", "clear")
    assert (cleared.code, cleared.out) == (0, "")
    assert re.match(r"freed [0-9.]+ kB in ", cleared.err)
    assert json.loads(inside("cache", "--format", "json").out)["stored_bytes"] == 0
    off = inside("cache", "--format", "table", env={"KINPRINT_CACHE": "off"})
    assert (off.code, off.out) == (0, "")
    assert "switched off" in off.err
    assert inside("cache", "clear", env={"KINPRINT_CACHE": "off"}).code == 0


def test_no_cache_leaves_no_trace(inside, demo_hub, tmp_path):
    done = inside("inspect", "demo/base", "--no-cache", env={"HF_ENDPOINT": demo_hub.endpoint})
    assert done.code == 0
    assert not (tmp_path / "ranges").exists()


def test_offline_after_online(inside, demo_hub):
    env = {"HF_ENDPOINT": demo_hub.endpoint}
    online = json.loads(inside("inspect", "demo/base", "--format", "json", env=env).out)
    demo_hub.reset()
    offline = inside("inspect", f"demo/base@{online['model']['commit']}", "--offline", "--format", "json", env=env)
    assert demo_hub.requests == []
    assert offline.code == 0, offline.err
    assert json.loads(offline.out)["norms"] == online["norms"]


@pytest.mark.parametrize("style", ["text", "table", "json"])
@pytest.mark.parametrize(("gate", "code"), [((), 0), (("--fail-on", "no-evidence"), 17)])
def test_a_reader_that_goes_away_changes_no_exit_code(environment, command, demo, style, gate, code):
    """The reader is gone before the first byte comes: a gate that failed must still say so, and nothing else is said."""
    options = ["--format", style, "--full", "--roles", "input_norm,attn_q", *gate]
    arguments = [*command, "compare", demo / "base", demo / "unrelated", *options]
    process = subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    _, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (code, b"failed on no-evidence, exit code 17\n" if gate else b"")


def test_a_pipeline_fails_with_its_gate(environment, command, demo):
    """As a shell sees it: `| head -1` ends while the tables are still being written."""
    quick = ["--full", "--metrics", "all", "--fail-on", "identical", "--quiet"]
    line = shlex.join([*command, "compare", str(demo / "base"), str(demo / "base"), *quick])
    script = f"set -o pipefail; {line} | head -c 1 >/dev/null"
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (10, b"failed on identical, exit code 10\n")
