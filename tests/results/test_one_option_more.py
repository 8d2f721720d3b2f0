"""A new option of compare is one field: it arrives in the command line, the report, the page, the command and verification."""

import dataclasses
import shlex

import click
import pytest

import kinprint.bundle.verifying as verifying
import kinprint.comparison.pipeline as pipeline
import kinprint.results.options as options_module
import kinprint.results.report as report_module
from kinprint.bundle import make_bundle, verify_bundle
from kinprint.cli.options import comparison_options
from kinprint.render.repeat_command import command_of
from kinprint.results import plain_json
from kinprint.results.options import NAMES, Options, option
from kinprint.results.report import Report
from kinprint.sources.settings import Settings
from support.places import DEMO_MODELS

SMALL = {"layers": "0", "roles": ("input_norm",), "metrics": ("pearson",)}


@dataclasses.dataclass(frozen=True)
class WiderOptions(Options):
    colours: tuple[str, ...] = option((), "colour", NAMES, "Only these colours, comma-separated.", later=True)


@pytest.fixture
def wider(monkeypatch):
    """Put one more field into Options, everywhere that the class is looked up."""
    caches = [item for item in vars(plain_json).values() if hasattr(item, "cache_clear")]
    for module in (options_module, report_module, pipeline, verifying):
        monkeypatch.setattr(module, "Options", WiderOptions)
    monkeypatch.setattr("kinprint.cli.options.Options", WiderOptions)
    for item in caches:
        item.cache_clear()
    yield
    monkeypatch.undo()
    for item in caches:
        item.cache_clear()


@pytest.mark.usefixtures("wider")
def test_it_arrives_everywhere(tmp_path):
    taken = {}

    @click.command()
    @comparison_options()
    def command(chosen):
        taken.update(chosen)

    command.main(["--colour", "red,blue"], standalone_mode=False)
    assert taken == {"colours": ("red", "blue")}
    bundle = tmp_path / "x.zip"
    made = make_bundle(
        bundle, DEMO_MODELS / "base", DEMO_MODELS / "base", settings=Settings(), enclose=True, **SMALL, **taken
    )
    assert made.settings.colours == ("red", "blue")
    assert b'"colours": [\n' in made.to_json()
    assert Report.from_json(made.to_json()) == made
    words = shlex.split(command_of(made))
    assert words[words.index("--colour") + 1] == "red,blue"
    page = made.render("html").decode()
    assert "<dt>colours</dt>" in page.replace(' lang="en"', "").replace('<span dir="auto">', "").replace("</span>", "")
    assert "red, blue" in page
    assert verify_bundle(bundle, offline=True).outcome == "verified"


def test_what_an_older_report_lacks_has_its_default():
    later = [item.name for item in dataclasses.fields(Options) if item.metadata.get("later")]
    assert set(later) >= {"methods", "files", "bases", "null"}


def test_secrets_in_addresses_do_not_enter_a_report():
    address = "https://user:word@host.example/model?signature=hf_secret"
    stated = Options(controls=address, related=address, parents=address, bases=address).public()
    assert "hf_secret" not in repr(stated)
    assert "word" not in repr(stated)
    assert stated.controls == ("https://host.example/model",)


@pytest.mark.parametrize("many", [False, True])
def test_what_is_for_two_models_is_not_written_for_many(many):
    words = Options(controls="c", null="n.json", rows=5).arguments(many=many)
    assert ("--control" in words) is not many
    assert words[words.index("--rows") + 1] == "5"
