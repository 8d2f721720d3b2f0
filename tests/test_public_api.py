"""What `import kinprint` promises."""

import importlib.resources
import inspect
import subprocess
import sys

import pytest

import kinprint
from support.places import DEMO_MODELS

DEMO = DEMO_MODELS
SMALL = {"layers": "0", "roles": ("input_norm",), "metrics": ("pearson",)}


def python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


def test_every_public_name_exists():
    assert len(kinprint.__all__) == len(set(kinprint.__all__)) == 33
    for name in kinprint.__all__:
        assert getattr(kinprint, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = kinprint.nonsense


def test_dir_lists_the_public_names_and_no_module():
    code = "import kinprint, kinprint.comparison.pipeline; print(dir(kinprint) == sorted(kinprint.__all__))"
    assert python(code) == "True"


def test_no_public_function_demands_a_session():
    for name in kinprint.__all__:
        value = getattr(kinprint, name)
        if not inspect.isfunction(value):
            continue
        demanded = [item.name for item in inspect.signature(value).parameters.values() if item.default is item.empty]
        assert "session" not in demanded, name


def test_options_are_chosen_by_the_names_of_fields_or_of_the_command_line():
    chosen = kinprint.Options.of(budget="64MB", control=["a/b", DEMO / "base"], metrics="cosine,pearson", deep=True)
    assert chosen == kinprint.Options(
        budget_bytes=64_000_000, controls=("a/b", str(DEMO / "base")), metrics=("cosine", "pearson"), deep=True
    )
    with pytest.raises(TypeError, match="no option 'contrl'; did you mean 'control'"):
        kinprint.compare("a", "b", contrl=["c"])
    with pytest.raises(TypeError, match="'controls' is given twice"):
        kinprint.compare("a", "b", control="c", controls="d")
    with pytest.raises(kinprint.KinprintError, match="rows 0: expected 1 or more"):
        kinprint.compare("a", "b", rows=0)


def test_a_session_with_other_limits_is_refused():
    """A report states one budget: that of its options must be the one that held."""
    with kinprint.Session(kinprint.Settings(), budget_bytes=5_000_000) as session:
        with pytest.raises(kinprint.KinprintError, match="the session is limited to budget_bytes 5000000"):
            kinprint.compare(DEMO / "base", DEMO / "base", session=session, **SMALL)
        report = kinprint.compare(DEMO / "base", DEMO / "base", session=session, budget="5MB", **SMALL)
    assert report.settings.budget_bytes == 5_000_000


def test_import_is_light():
    heavy = "[m for m in ('numpy', 'scipy', 'rich', 'urllib3', 'orjson') if m in sys.modules]"
    assert python(f"import sys, kinprint, kinprint.cli.main; print({heavy})") == "[]"


def test_compare_returns_a_report_every_time():
    """Importing the submodule of the same name must not put it in the function's place."""
    settings = kinprint.Settings()
    for _ in range(2):
        report = kinprint.compare(str(DEMO / "base"), str(DEMO / "base"), kinprint.Options(**SMALL), settings=settings)
        assert isinstance(report, kinprint.Report)


@pytest.mark.parametrize(
    "before",
    [
        "",
        "import kinprint.comparison.pipeline",
        "from kinprint.comparison.pipeline import compare",
        "import kinprint.cli.compare",
    ],
)
def test_the_function_keeps_its_name_in_any_order_of_imports(before):
    assert python(f"{before}\nimport kinprint; kinprint.compare; print(type(kinprint.compare).__name__)") == "function"


def test_inspect_takes_a_path():
    found = kinprint.inspect(DEMO / "base", settings=kinprint.Settings())
    assert isinstance(found, kinprint.Inspection)


def test_progress_is_told_from_start_to_end():
    told = []
    report = kinprint.compare(
        str(DEMO / "base"),
        str(DEMO / "base"),
        kinprint.Options(**SMALL),
        settings=kinprint.Settings(),
        progress=lambda *state: told.append(state),
    )
    assert told[0] == ("opening", 0, 1)
    assert ("measuring", len(report.comparisons), len(report.comparisons)) in told
    assert told[-1] == ("evidence", 4, 4)


def test_types_are_published():
    assert importlib.resources.files("kinprint").joinpath("py.typed").is_file()
