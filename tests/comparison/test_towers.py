"""Models made of several towers: each is compared with its own kind, alone or inside another model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import kinprint
from kinprint.results.report import Report
from support.layouts import write_checkpoint
from support.surveyed import SURVEYED

LLAVA = SURVEYED["llava"]
VISION, LANGUAGE = "vision_tower.", "language_model."
Arrays = dict[str, np.ndarray]


def drawn(seed: int) -> Arrays:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape).astype(np.float32) / 8 for name, shape in LLAVA.shapes.items()}


def noisy(arrays: Arrays) -> Arrays:
    rng = np.random.default_rng(9)
    return {n: x + 0.05 * x.std() * rng.standard_normal(x.shape).astype(np.float32) for n, x in arrays.items()}


def part(arrays: Arrays, prefix: str) -> Arrays:
    return {name: values for name, values in arrays.items() if name.startswith(prefix)}


def stripped(arrays: Arrays, prefix: str) -> Arrays:
    return {name.removeprefix(prefix): values for name, values in part(arrays, prefix).items()}


def saved(folder: Path, arrays: Arrays, config: dict[str, object] = LLAVA.config) -> Path:
    write_checkpoint(folder, arrays, config)
    return folder


def towers(report: Report) -> dict[str, str | None]:
    return {item.tower: item.class_ for item in report.towers}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("towers")
    one, two = drawn(1), drawn(2)
    return {
        "one": saved(home / "one", one),
        "same pictures": saved(home / "pictures", {**two, **noisy(part(one, VISION))}),
        "language alone": saved(home / "language", stripped(noisy(one), LANGUAGE), LLAVA.config["text_config"]),
        "pictures alone": saved(home / "encoder", stripped(noisy(one), VISION), LLAVA.config["vision_config"]),
    }


@pytest.fixture(scope="module")
def report(models: dict[str, Path]) -> Report:
    return kinprint.compare(models["one"], models["same pictures"])


def test_each_tower_has_its_own_verdict(report: Report) -> None:
    assert report.verdict is not None
    assert (report.verdict.class_, towers(report)) == ("no_evidence", {"vision": "derived"})
    (found,) = report.towers
    assert (found.layers_a, found.layers_b) == (3, 3)
    assert found.compared == sum(bool(LLAVA.roles[name]) for name in LLAVA.shapes if name.startswith(VISION))
    assert found.log10_p is not None
    assert found.log10_p < -20
    assert kinprint.Report.from_json(report.to_json()).towers == report.towers


@pytest.mark.parametrize(
    ("alone", "note"),
    [
        ("language alone", None),
        ("pictures alone", "model A is compared by its vision tower: model B is no more than that"),
    ],
)
def test_a_model_is_compared_with_the_tower_of_a_larger_one(
    models: dict[str, Path], alone: str, note: str | None
) -> None:
    report = kinprint.compare(models["one"], models[alone])
    assert report.verdict is not None
    assert (report.verdict.class_, report.towers) == ("derived", ())
    assert list(report.notes) == ([note] if note else [])


@pytest.mark.parametrize("form", ["markdown", "html"])
@pytest.mark.parametrize(("lang", "words"), [("en", ("vision", "Towers")), ("ko", ("시각", "타워"))])
def test_towers_are_shown(report: Report, form: str, lang: str, words: tuple[str, str]) -> None:
    shown = report.render(form, lang=lang).decode()
    assert all(word in shown for word in words)


def test_towers_are_read_within_the_budget(models: dict[str, Path]) -> None:
    report = kinprint.compare(models["one"], models["same pictures"], budget_bytes=60_000)
    assert [item.tower for item in report.towers] == ["vision"]
    assert report.bytes_read <= 60_000
