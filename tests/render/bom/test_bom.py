"""CycloneDX: valid by the official schema whatever the report, and no pedigree that verdicts, cards and tree do not bear out."""

import functools
import json
import sys
import uuid
from dataclasses import replace

import pytest

from kinprint.errors import NeedsExtra, SchemaError
from kinprint.render.bom.report import pairs_cyclonedx, report_cyclonedx
from kinprint.render.parentage import CONTRADICTED, UNKNOWN, direction, direction_among
from kinprint.results.findings import CLASSES
from kinprint.results.models import FileSummary
from kinprint.results.report import Report
from kinprint.results.tree import BACKWARD, FORWARD, UNDIRECTED, PairsReport
from support.places import GOLDEN_REPORTS
from support.reports import HOSTILE, empty_report, hostile_report, pairs_report

GOLDEN = GOLDEN_REPORTS
REPORT = Report.from_json((GOLDEN / "report_v1_annexes.json").read_bytes())
OLDER = Report.from_json((GOLDEN / "report_v1.json").read_bytes())
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@functools.cache
def official():
    """The schema's own validator; it takes two seconds to load, and other workers have no need of it."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    return JsonStrictValidator(SchemaVersion.V1_6)


def valid(report):
    content = pairs_cyclonedx(report) if isinstance(report, PairsReport) else report_cyclonedx(report)
    assert official().validate_str(content.decode()) is None
    return json.loads(content)


def of_class(report, found):
    return replace(report, verdict=replace(report.verdict, class_=found))


def declaring(report, *, a=(), b=(), state="declared", named_by=()):
    found = report.declared
    sides = {"a": replace(found.a, base_models=a), "b": replace(found.b, base_models=b)}
    return replace(report, declared=replace(found, state=state, named_by=named_by, **sides))


def on_hub(report, endpoint="https://huggingface.co", identity="size:3"):
    def moved(model, name):
        return replace(
            model,
            reference=f"Owner/{name}@main",
            kind="hub",
            location=f"{endpoint}/Owner/{name}",
            commit=COMMIT,
            files=(FileSummary("model.safetensors", 3, identity),),
        )

    return replace(report, a=moved(report.a, "Base-1"), b=moved(report.b, "Tuned-1"))


def properties(thing):
    found = {}
    for item in thing["properties"]:
        found.setdefault(item["name"], []).append(item["value"])
    return found


def model(data, letter):
    return next(item for item in data["components"] if item["bom-ref"] == f"model-{letter}")


# ---- valid ----


@pytest.mark.parametrize("found", CLASSES)
@pytest.mark.parametrize("hostile", [False, True])
def test_every_class_of_verdict_is_valid(found, hostile):
    report = of_class(REPORT, found)
    data = valid(hostile_report(report, everything=True) if hostile else report)
    assert properties(data)["kinprint:verdict"] == [found]
    assert (data["bomFormat"], data["specVersion"]) == ("CycloneDX", "1.6")


def test_the_check_can_fail():
    data = json.loads(report_cyclonedx(REPORT))
    data["components"][0]["type"] = "paternity test"
    assert official().validate_str(json.dumps(data)) is not None
    data["components"][0] |= {"type": "file", "unknown": 1}
    assert official().validate_str(json.dumps(data)) is not None


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_of_models_and_licences_are_valid(text):
    declared = replace(REPORT.declared, a=replace(REPORT.declared.a, licence=text))
    valid(
        replace(REPORT, a=replace(REPORT.a, reference=text, commit=text, kind="hub", location=text), declared=declared)
    )


def test_an_older_report_and_one_without_anything_comparable(tmp_path):
    valid(OLDER)
    empty = empty_report(tmp_path)
    data = valid(empty)
    assert properties(data)["kinprint:status"] == ["not_comparable"]
    assert properties(data)["kinprint:reason"][0].startswith(empty.reason[:40])
    bare = valid(replace(empty, verdict=None, evidence=None))
    assert properties(bare)["kinprint:verdict"] == ["none"]
    assert "pedigree" not in model(bare, "b")


# ---- pedigree ----


def test_weights_alone_name_no_ancestor():
    for found in ("derived", "identical"):
        data = valid(declaring(of_class(REPORT, found), state="undeclared"))
        for letter, other in (("a", "b"), ("b", "a")):
            pedigree = model(data, letter)["pedigree"]
            assert set(pedigree) == {"variants", "notes"}
            assert [item["bom-ref"] for item in pedigree["variants"]] == [f"model-{other}-related-to-{letter}"]
            assert f"Direction: {UNKNOWN}." in pedigree["notes"]
        assert properties(data)["kinprint:direction"] == [UNKNOWN]


@pytest.mark.parametrize(("a", "b", "child"), [((), ("base",), "b"), (("tuned",), (), "a")])
def test_a_card_tells_the_direction_if_the_weights_agree(a, b, child):
    report = declaring(REPORT, a=a, b=b, named_by=(child.upper(),))
    data = valid(report)
    parent = "a" if child == "b" else "b"
    assert [item["name"] for item in model(data, child)["pedigree"]["ancestors"]] == [getattr(report, parent).reference]
    assert "descendants" in model(data, parent)["pedigree"]
    assert "ancestors" not in model(data, parent)["pedigree"]
    assert properties(data)["kinprint:direction"][0].startswith(f"declared: the card of {child.upper()} names")


@pytest.mark.parametrize(
    ("a", "b", "state", "named_by"),
    [
        (("tuned",), ("base",), "declared", ("A", "B")),  # each names the other
        (("third",), ("third",), "declared", ()),  # siblings
        ((), ("base",), "declared_not_shown", ("B",)),
        ((), ("other/elsewhere",), "other_declared", ()),
    ],
)
def test_otherwise_the_direction_stays_open(a, b, state, named_by):
    assert direction(declaring(REPORT, a=a, b=b, state=state, named_by=named_by)) == (UNKNOWN, None)


@pytest.mark.parametrize("found", ["no_evidence", "not_testable", "shares_components", "shares_initialisation"])
def test_no_relative_without_a_derivation(found):
    data = valid(of_class(REPORT, found))
    for letter in "ab":
        assert set(model(data, letter)["pedigree"]) == {"notes"}
    assert ("kinprint:no_proof" in properties(data)) == (found == "no_evidence")
    assert ("does not prove" in model(data, "b")["pedigree"]["notes"]) == (found == "no_evidence")


# ---- components ----


def test_models_of_the_hub_have_a_package_address():
    data = valid(on_hub(REPORT))
    assert model(data, "a")["purl"] == f"pkg:huggingface/Owner/Base-1@{COMMIT}"
    assert (model(data, "b")["group"], model(data, "b")["name"]) == ("Owner", "Tuned-1")
    elsewhere = valid(on_hub(REPORT, "http://127.0.0.1:9"))
    assert "repository_url=" in model(elsewhere, "a")["purl"]
    assert "purl" not in model(valid(REPORT), "a")


@pytest.mark.parametrize(
    ("identity", "known"),
    [
        (f"etag:{'ab' * 32}", True),
        (f'etag:"{"ab" * 32}"', True),
        (f'etag:W/"{"ab" * 32}"', False),
        ("etag:abcdef", False),
        ("size:3", False),
        ("", False),
    ],
)
def test_only_known_hashes_are_given(identity, known):
    (file,) = model(valid(on_hub(REPORT, identity=identity)), "a")["components"]
    assert file.get("hashes") == ([{"alg": "SHA-256", "content": "ab" * 32}] if known else None)
    assert ("kinprint:hash_source" in properties(file)) == known
    local = replace(REPORT, a=replace(REPORT.a, files=(FileSummary("x", 3, identity),)))
    assert "hashes" not in model(valid(local), "a")["components"][0]


@pytest.mark.parametrize(
    ("licence", "expected"),
    [
        ("apache-2.0", {"id": "Apache-2.0"}),
        ("MIT", {"id": "MIT"}),
        ("llama3", {"name": "llama3"}),
        ("MIT OR x", {"name": "MIT OR x"}),
        ("", None),
        ("  ", None),
        (None, None),
    ],
)
def test_licences_as_declared(licence, expected):
    declared = replace(REPORT.declared, a=replace(REPORT.declared.a, licence=licence))
    found = model(valid(replace(REPORT, declared=declared)), "a").get("licenses")
    assert found == (None if expected is None else [{"license": {"acknowledgement": "declared", **expected}}])


def test_the_evidence_is_there():
    data = valid(REPORT)
    found = properties(data)
    verdict = REPORT.verdict
    assert found["kinprint:sentence"] == [verdict.sentence]
    assert float(found["kinprint:log10_p"][0]) == verdict.log10_p
    assert float(found["kinprint:threshold"][0]) == verdict.log10_alpha
    assert found["kinprint:tests"] == [str(verdict.tests)]
    assert found["kinprint:limits"] == ["; ".join(verdict.against)]
    assert len(found["kinprint:control"]) == len(REPORT.evidence.controls)
    assert found["kinprint:declared"] == ["declared"]
    assert found["kinprint:seed"] == ["0"]
    assert sorted(text.rsplit(" ", 1)[1] for text in found["kinprint:reads_sha256"]) == sorted(
        item.sha256 for item in REPORT.reads
    )
    assert data["metadata"]["tools"]["components"][0]["version"] == REPORT.run.kinprint
    assert data["metadata"]["timestamp"] == REPORT.run.started
    assert model(data, "a")["modelCard"]["modelParameters"]["architectureFamily"] == REPORT.a.architecture


# ---- the same twice ----


def test_the_same_report_gives_the_same_bytes_and_another_another_number():
    assert report_cyclonedx(REPORT) == report_cyclonedx(REPORT)
    number = json.loads(report_cyclonedx(REPORT))["serialNumber"]
    assert uuid.UUID(number.removeprefix("urn:uuid:")).version == 5
    later = replace(REPORT, run=replace(REPORT.run, started="2031-01-01T00:00:00+00:00", elapsed_s=9.0, local_bytes=1))
    assert json.loads(report_cyclonedx(later))["serialNumber"] == number
    other = replace(REPORT, bytes_read=REPORT.bytes_read + 1)
    assert json.loads(report_cyclonedx(other))["serialNumber"] != number


def test_a_report_without_a_date_is_refused():
    with pytest.raises(SchemaError, match="when it was made"):
        report_cyclonedx(replace(REPORT, run=replace(REPORT.run, started="yesterday")))


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cyclonedx.output.json", None)
    with pytest.raises(NeedsExtra, match="bom"):
        report_cyclonedx(REPORT)


# ---- all pairs of several models ----


def among(*, direction=UNDIRECTED, log10_p=-50.0, declared=None, **more):
    """Three models of which the first two are related: which way the tree points, and what changes in their pair."""
    report = pairs_report(log10_p=log10_p)
    edges = tuple(
        replace(edge, parent=0, child=1, direction=direction, probability=0.9 if direction == FORWARD else 0.1)
        for edge in report.tree.edges
    )
    pair = replace(report.pairs[0], **more)
    if declared is not None:
        pair = replace(pair, declared=replace(pair.declared, state="declared", named_by=declared))
    return replace(report, tree=replace(report.tree, edges=edges), pairs=(pair, *report.pairs[1:]))


def relatives(data, number):
    pedigree = model(data, number)["pedigree"]
    return {
        name: [item["bom-ref"] for item in pedigree[name]]
        for name in ("ancestors", "descendants", "variants")
        if name in pedigree
    }


def bom_refs(thing):
    if isinstance(thing, dict):
        yield from ([thing["bom-ref"]] if "bom-ref" in thing else [])
        thing = list(thing.values())
    if isinstance(thing, list):
        for item in thing:
            yield from bom_refs(item)


@pytest.mark.parametrize("found", CLASSES)
@pytest.mark.parametrize("hostile", [False, True])
def test_all_pairs_of_every_class_are_valid(found, hostile):
    report = among(class_=found, declared=("B",))
    data = valid(hostile_report(report, everything=True) if hostile else report)
    assert [len(data["components"]), properties(data)["kinprint:pair:1-2:verdict"]] == [3, [found]]
    found = list(bom_refs(data))
    assert len(found) == len(set(found))


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_of_many_models_are_valid(text):
    plain = pairs_report((text, text, text))
    models = tuple(replace(item, commit=text, location=text, architecture=text) for item in plain.tree.models)
    data = valid(replace(plain, tree=replace(plain.tree, models=models)))
    assert len(data["components"]) == 3  # equal names do not make one of them
    for value in [entry["value"] for thing in (data, *data["components"]) for entry in thing["properties"]]:
        assert value.isprintable()


@pytest.mark.parametrize(("arrow", "first", "second"), [(FORWARD, "1", "2"), (BACKWARD, "2", "1")])
def test_an_arrow_of_the_tree_is_told_as_a_hypothesis_and_makes_no_ancestor(arrow, first, second):
    report = among(direction=arrow)
    data = valid(report)
    assert relatives(data, second) == {"variants": [f"model-{first}-related-to-{second}"]}
    assert relatives(data, first) == {"variants": [f"model-{second}-related-to-{first}"]}
    assert relatives(data, "3") == {}
    told = f"hypothesis: cues of the tree point from model-{first} to model-{second} (probability 0.90"
    assert told in model(data, second)["pedigree"]["notes"]
    assert properties(data)["kinprint:pair:1-2:direction"][0].startswith(told)


def test_weight_files_of_many_models_stand_with_what_the_hub_says_of_them():
    report = among()
    files = (FileSummary("m.safetensors", 10, f'etag:"{"a" * 64}"'), FileSummary("<b>.bin", 3, "size:3"))
    models = tuple(
        replace(item, kind=kind, files=files)
        for item, kind in zip(report.tree.models, ("hub", "folder", ""), strict=True)
    )
    data = valid(replace(report, tree=replace(report.tree, models=models)))
    for number, hashes in (
        ("1", ["a" * 64]),
        ("2", []),
        ("3", ["a" * 64]),
    ):  # an older report tells the hub by its commit
        found = {
            item["name"]: [one["content"] for one in item.get("hashes", [])]
            for item in model(data, number)["components"]
        }
        assert found == {"m.safetensors": hashes, "<b>.bin": []}


def test_an_edge_without_an_arrow_makes_variants():
    data = valid(among())
    assert relatives(data, "1") == {"variants": ["model-2-related-to-1"]}
    assert relatives(data, "2") == {"variants": ["model-1-related-to-2"]}
    assert properties(data)["kinprint:pair:1-2:direction"] == [UNKNOWN]


@pytest.mark.parametrize("arrow", [FORWARD, BACKWARD, UNDIRECTED])
@pytest.mark.parametrize("found", ["no_evidence", "not_testable"])
@pytest.mark.parametrize("significant", [False, True])  # as an edited report may say
def test_nothing_makes_a_relative_of_what_shows_no_relation(arrow, found, significant):
    data = valid(among(direction=arrow, class_=found, significant=significant, declared=("B",)))
    assert [relatives(data, number) for number in "123"] == [{}, {}, {}]
    assert "kinprint:pair:1-2:direction" not in properties(data)


@pytest.mark.parametrize("arrow", [FORWARD, UNDIRECTED])
def test_what_does_not_stand_after_correction_is_no_relation(arrow):
    report = among(direction=arrow, log10_p=-6.2, declared=("B",))
    data = valid(report)
    assert [relatives(data, number) for number in "123"] == [{}, {}, {}]
    found = [name for name in properties(data) if name.startswith("kinprint:pair:1-2:")]
    assert found == ["kinprint:pair:1-2:does_not_stand"]
    assert "1 would by themselves, and do not after the correction" in model(data, "1")["pedigree"]["notes"]
    assert "kinprint:related_by" not in properties(model(data, "1"))


@pytest.mark.parametrize(
    ("arrow", "named_by", "first"),
    [
        (UNDIRECTED, ("B",), 0),
        (UNDIRECTED, ("A",), 1),
        (UNDIRECTED, ("A", "B"), None),
        (UNDIRECTED, (), None),
        (FORWARD, ("B",), 0),
        (FORWARD, ("A", "B"), None),
        (BACKWARD, ("B",), None),  # card against tree
    ],
)
def test_a_card_and_the_tree_together(arrow, named_by, first):
    report = among(direction=arrow, declared=named_by)
    told, parent = direction_among(report, report.pairs[0])
    assert parent == first
    if first is not None:
        assert relatives(valid(report), str(first + 1)) == {
            "descendants": [f"model-{2 - first}-related-to-{first + 1}"]
        }
        assert relatives(valid(report), str(2 - first)) == {"ancestors": [f"model-{first + 1}-related-to-{2 - first}"]}
    if (arrow, named_by) == (BACKWARD, ("B",)):
        assert told == CONTRADICTED
        assert relatives(valid(report), "1") == {"variants": ["model-2-related-to-1"]}
    assert ("declared: the card of" in told) == (len(named_by) == 1 and told != CONTRADICTED)
    assert ("hypothesis" in told) == (arrow == FORWARD)


def test_shared_parts_make_no_relative_even_under_an_arrow():
    data = valid(among(direction=FORWARD, class_="shares_components", kind="merged"))
    assert relatives(data, "2") == {}
    assert "hypothesis" in model(data, "2")["pedigree"]["notes"]


def test_a_copy_says_whose_weights_it_has():
    report = among(class_="identical", log10_p_pairs=None)
    models = (report.tree.models[0], replace(report.tree.models[1], node=0), report.tree.models[2])
    data = valid(replace(report, tree=replace(report.tree, models=models, edges=()), pairs=report.pairs[:2]))
    assert relatives(data, "2") == {"variants": ["model-1-related-to-2"]}
    assert properties(model(data, "2"))["kinprint:same_weights_as"] == ["model-1"]
    assert "The weights are those of model-1" in model(data, "2")["pedigree"]["notes"]


def test_a_model_that_could_not_be_tested_is_not_called_unrelated():
    report = pairs_report()
    silent = tuple(replace(pair, class_="not_testable") if 2 in (pair.a, pair.b) else pair for pair in report.pairs)
    notes = model(valid(replace(report, pairs=silent)), "3")["pedigree"]["notes"]
    assert "could not be tested against any of the others" in notes
    assert "does not prove that there is none" in model(valid(report), "3")["pedigree"]["notes"]


def test_components_stand_in_the_order_of_the_models():
    names = ("c", "a", "b")
    data = valid(pairs_report(names))
    assert [(item["bom-ref"], item["name"]) for item in data["components"]] == [
        (f"model-{number}", name) for number, name in enumerate(names, 1)
    ]
    turned = replace(REPORT, a=replace(REPORT.a, reference="z"), b=replace(REPORT.b, reference="a"))
    assert [item["bom-ref"] for item in valid(turned)["components"]] == ["model-a", "model-b"]


def test_components_of_many_models():
    report = pairs_report()
    licensed = replace(report.pairs[0].declared.b, licence="mit", base_models=("owner/base",), relation="finetune")
    pair = replace(report.pairs[0], declared=replace(report.pairs[0].declared, b=licensed))
    hub = tuple(replace(item, location=f"https://huggingface.co/{item.location}") for item in report.tree.models)
    local = replace(hub[2], commit=None, location="models/other", reference="models/other")
    tree = replace(report.tree, models=(*hub[:2], local))
    data = valid(replace(report, pairs=(pair, *report.pairs[1:]), tree=tree))
    assert model(data, "2")["purl"] == f"pkg:huggingface/owner/child@{'c' * 40}"
    assert model(data, "2")["licenses"] == [{"license": {"id": "MIT", "acknowledgement": "declared"}}]
    assert properties(model(data, "2"))["kinprint:declared_base"] == ["owner/base"]
    assert "licenses" not in model(data, "1")
    assert (model(data, "3")["name"], "purl" in model(data, "3")) == ("models/other", False)


def test_the_evidence_of_all_pairs_is_there():
    report = pairs_report()
    found = properties(valid(report))
    pair = report.pairs[0]
    assert float(found["kinprint:pair:1-2:log10_p"][0]) == pair.log10_p
    assert float(found["kinprint:pair:1-2:log10_p_pairs"][0]) == pair.log10_p_pairs
    assert float(found["kinprint:threshold"][0]) == report.tree.settings.log10_alpha
    assert found["kinprint:pair:1-2:sentence"] == [pair.sentence]
    assert found["kinprint:pair:1-2:declared"] == ["undeclared"]
    assert found["kinprint:pair:1-2:shared_parts"] == ["mlp 4 of 4"]
    assert found["kinprint:pair:1-3:verdict"] == ["no_evidence"]
    assert found["kinprint:group"] == ["model-1, model-2"]
    assert found["kinprint:no_proof"]
    assert found["kinprint:command"][0].startswith("kinprint compare ")


def test_one_report_on_many_models_gives_the_same_bytes_whenever_it_was_made():
    report = pairs_report()
    data = json.loads(pairs_cyclonedx(report))
    assert pairs_cyclonedx(report) == pairs_cyclonedx(PairsReport.from_json(report.to_json()))
    assert "timestamp" not in data["metadata"]
    later = replace(report, tree=replace(report.tree, run=replace(report.tree.run, elapsed_s=9.0)))
    assert json.loads(pairs_cyclonedx(later))["serialNumber"] == data["serialNumber"]
    assert json.loads(pairs_cyclonedx(pairs_report(log10_p=-51.0)))["serialNumber"] != data["serialNumber"]


def test_without_the_library_the_extra_is_named_for_many_models(monkeypatch):
    monkeypatch.setitem(sys.modules, "cyclonedx.output.json", None)
    with pytest.raises(NeedsExtra, match="bom"):
        pairs_cyclonedx(pairs_report())
