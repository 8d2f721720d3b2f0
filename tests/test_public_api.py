"""What `import kinprint` promises."""

import importlib.resources
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
    assert len(kinprint.__all__) == len(set(kinprint.__all__)) == 23
    for name in kinprint.__all__:
        assert getattr(kinprint, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = kinprint.nonsense


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


def test_inspect_and_open_model():
    found = kinprint.inspect(str(DEMO / "base"), settings=kinprint.Settings())
    assert isinstance(found, kinprint.Inspection)
    with kinprint.Session(kinprint.Settings()) as session:
        model = kinprint.open_model(str(DEMO / "base"), session)
        assert isinstance(model, kinprint.Model)
        assert model.label == str(DEMO / "base")
        assert [item.label for item in kinprint.open_models([model.label] * 2, session)] == [model.label] * 2


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
