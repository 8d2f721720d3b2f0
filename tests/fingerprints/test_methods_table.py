"""The registry, the runner and the commands: every method declared, each value beside its nulls, none able to stop the others."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from kinprint.cli.main import main
from kinprint.errors import BadSelection, DegenerateInput, NeedsExtra
from kinprint.evidence.empirical_null import NULL_SCHEMA, NULL_VERSION, EmpiricalNull, summarise
from kinprint.fingerprints.base import CHANGES, Method, Need, PortableMethod, Score, pair_null
from kinprint.fingerprints.methods import METHODS
from kinprint.fingerprints.run import chosen_methods, finding, run_methods, shipped_null, statistic_of
from kinprint.lab.zoo import derive
from kinprint.lab.zoo.held import HeldWeights
from kinprint.model.tokens import common_rows, sample_ids, sample_tokens, token_key
from kinprint.results.findings import BEYOND, INSIDE, NO_NULL, OFF, TESTED
from kinprint.results.report import Report
from support.places import DEMO_MODELS

DEMO = DEMO_MODELS


@pytest.fixture(scope="module")
def models():
    return {name: HeldWeights(name, *derive.load_state(DEMO / name)) for name in ("base", "finetune", "unrelated")}


@pytest.fixture
def invoke(monkeypatch, tmp_path):
    monkeypatch.setenv("KINPRINT_CACHE", str(tmp_path / "ranges"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        return CliRunner().invoke(main, list(map(str, arguments)), standalone_mode=False)

    return run


def test_every_method_declares_itself():
    assert len(METHODS) >= 12
    for method in METHODS.values():
        assert method.title
        assert method.summary.endswith(".")
        assert method.references
        assert set(method.needs) <= set(Need)
        assert set(method.invariant_to) <= set(CHANGES)
        assert method.portable == isinstance(method, PortableMethod)
    assert set(METHODS["kin"].invariant_to) == set(CHANGES)


def test_names_are_checked():
    assert chosen_methods(["all"]) == list(METHODS.values())
    assert [method.name for method in chosen_methods(["kin", "gram", "kin"])] == ["kin", "gram"]
    with pytest.raises(BadSelection, match="no method is called 'hurref'"):
        chosen_methods(["hurref"])


def test_weights_only_methods_put_the_finetune_above_the_unrelated_model(models):
    methods = [method for method in METHODS.values() if "forward pass" not in method.needs]
    related = {row.method: row for row in run_methods(models["base"], models["finetune"], methods)}
    unrelated = {row.method: row for row in run_methods(models["base"], models["unrelated"], methods)}
    for name, row in related.items():
        assert row.status == TESTED, (name, row.reason)
        assert row.value > unrelated[name].value, name
    exact = [row for row in unrelated.values() if row.chance is not None and row.chance.exact]
    assert len(exact) >= 3
    assert {row.reading for row in exact} == {INSIDE}
    assert {related[name].reading for name in ("gram", "kin", "fixed_points")} == {BEYOND}


class Broken(Method):
    """A method that cannot."""

    name, title = "broken", "broken"

    def score_models(self, a, b, *, seed=0):
        raise DegenerateInput("it never works")


class Torchless(Broken):
    """A method without its library."""

    name, title = "torchless", "torchless"

    def score_models(self, a, b, *, seed=0):
        raise NeedsExtra("this", extra="torch")


def test_a_method_that_fails_says_why_and_the_others_run(models):
    rows = run_methods(models["base"], models["base"], [Broken(), Torchless(), METHODS["pdf"]])
    assert [row.status for row in rows] == [OFF, OFF, TESTED]
    assert rows[0].reason == "it never works"
    assert "'torch'" in rows[1].reason
    with pytest.raises(NeedsExtra):
        run_methods(models["base"], models["base"], [Torchless()])


def null_with(values):
    method = METHODS["pdf"]
    sample = summarise(statistic_of(method), tuple(values))
    return EmpiricalNull(NULL_SCHEMA, NULL_VERSION, "a null", "test", "", (), (sample,))


def test_an_empirical_null_counts_and_never_promises_more_than_its_size():
    null = null_with(np.linspace(0.0, 0.5, 99))
    row = finding(METHODS["pdf"], Score(0.9), null)
    assert row.empirical is not None
    assert row.empirical.log10_p == pytest.approx(-2.0)
    assert (row.empirical.n, row.reading) == (99, BEYOND)
    inside = finding(METHODS["pdf"], Score(0.5), null)
    assert inside.reading == INSIDE
    assert inside.empirical.log10_p == pytest.approx(np.log10(2 / 100))
    assert finding(METHODS["pdf"], Score(0.5), None).reading == NO_NULL


def test_an_exact_null_decides_before_an_empirical_one():
    chance = pair_null("order", 0.0, 0.1, -3.0, 10, exact=True)
    row = finding(METHODS["pdf"], Score(0.9, chance), null_with([0.1, 0.2]))
    assert row.reading == INSIDE
    assert row.chance.z == pytest.approx(9.0)
    loose = pair_null("tokens", 0.0, 0.1, -300.0, 10, exact=False)
    assert finding(METHODS["pdf"], Score(0.15, loose), null_with([0.1, 0.2])).reading == INSIDE


def test_the_shipped_null_covers_the_methods_and_a_new_one_is_said_to_have_none():
    null = shipped_null()
    assert null is not None
    covered = [method.name for method in METHODS.values() if null.sample(statistic_of(method)) is not None]
    assert len(covered) >= 12  # all methods of the lineage benchmark at the time when the null was made
    for method in METHODS.values():
        sample = null.sample(statistic_of(method))
        if sample is None:
            assert finding(method, Score(0.99), null).reading == NO_NULL
            continue
        assert sample.pairs >= 100
        assert sample.largest == max(sample.values)


def test_tokens_are_chosen_alike_by_models_that_never_met():
    one = {f"t{number}": number for number in range(1000)}
    two = {f"t{number}": 2000 - number for number in range(500, 1500)}
    a, b = sample_tokens(one, 1000, 200), sample_tokens(two, 2001, 200)
    first, second = common_rows(a.keys, b.keys)
    names = {number: text for text, number in one.items()}
    others = {number: text for text, number in two.items()}
    assert [names[x] for x in a.ids[first]] == [others[x] for x in b.ids[second]]
    assert len(first) > 40  # a third of the union is shared
    late = sample_tokens(one, 1000, 1000, rare=True)
    assert late.ids.min() >= 499
    assert len(sample_tokens(one, 100, 200).ids) == 100
    by_number = sample_ids(1000, 50)
    assert not np.isin(by_number.keys, [token_key(text) for text in one]).any()


# -- commands ------------------------------------------------------------------------------------------------------------


def test_list_names_every_method(invoke):
    listed = json.loads(invoke("fingerprint", "--list", "--format", "json").stdout)
    assert [item["method"] for item in listed] == list(METHODS)
    table = invoke("fingerprint", "--list", "--format", "table").stdout
    assert all(name in table for name in METHODS)


def test_fingerprint_writes_a_file_that_compare_takes(invoke, tmp_path):
    done = invoke("fingerprint", DEMO / "base", "--method", "gram,norms", "-q", "--format", "json")
    assert json.loads(done.stdout)["description"]["model"] == "base"
    assert (tmp_path / "base.kfp").is_file()
    assert invoke("fingerprint", DEMO / "finetune", "-o", "f.kfp", "-q", "--method", "gram,norms").exit_code == 0
    related = invoke("compare", "base.kfp", "f.kfp", "-q", "--out", "report", "--exit-code", "--format", "json")
    assert related.return_value == 14
    assert invoke("compare", "base.kfp", "f.kfp", "-q").return_value == 0
    data = json.loads(related.stdout)
    assert data["class"] == "related"
    assert json.loads((tmp_path / "report" / "report.json").read_bytes()) == data
    table = invoke("compare", "base.kfp", DEMO / "unrelated", "-q", "--format", "table", "--method", "gram")
    assert table.return_value == 0
    assert "no evidence: " in table.stdout
    assert "exact" in table.stdout
    assert invoke("fingerprint", DEMO / "base", "-o", "compact.kfp", "-q").exit_code == 0
    shown = " ".join(invoke("compare", "compact.kfp", DEMO / "finetune", "-q", "--format", "table").stdout.split())
    assert "The answer rests on those whose null is exact." in shown
    assert "The verdict does not rest on them" not in shown
    assert "compact: tests 14 " in shown


def test_wrong_names_are_refused_before_anything_is_read(invoke):
    assert isinstance(invoke("fingerprint", DEMO / "base", "-o", "x.bin").exception, BadSelection)
    assert isinstance(invoke("compare", DEMO / "base", DEMO / "base", "--method", "nope").exception, BadSelection)
    assert invoke("fingerprint").exception is not None


def test_compare_shows_methods_beside_the_verdict_and_the_report_keeps_them(invoke):
    quick = ("--roles", "input_norm", "--layers", "0", "-q", "--metrics", "pearson")
    done = invoke(
        "compare", DEMO / "base", DEMO / "finetune", *quick, "--method", "gram,pdf", "--format", "json", "--full"
    )
    report = Report.from_json(done.stdout.encode())
    assert [row.method for row in report.methods] == ["gram", "pdf"]
    assert report.settings.methods == ("gram", "pdf")
    assert report.verdict is not None
    table = invoke(
        "compare", DEMO / "base", DEMO / "finetune", *quick, "--method", "gram,kin", "--format", "table"
    ).stdout
    assert "Fingerprint methods" in table
    assert "beyond its null" in table


def test_reports_without_methods_still_open(invoke):
    quick = ("--roles", "input_norm", "--layers", "0", "-q", "--metrics", "pearson")
    data = json.loads(invoke("compare", DEMO / "base", DEMO / "base", *quick, "--format", "json", "--full").stdout)
    del data["methods"], data["settings"]["methods"]
    assert Report.from_json(json.dumps(data).encode()).methods == ()
