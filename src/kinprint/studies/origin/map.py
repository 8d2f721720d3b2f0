"""The vocabulary map of the first accusation: ids of common tokens, and the scripts of what only one model has."""

from __future__ import annotations

from collections import Counter

import numpy as np

from kinprint.metrics import METRICS
from kinprint.studies.opened import Stage
from kinprint.studies.origin.scripts import SCRIPTS
from kinprint.studies.origin.shared import accused, count_check, is_published, origin
from kinprint.studies.origin.tokens import Comparison, classes, compared
from kinprint.studies.outcome import Cell, Check, Missing, Section, Table, column, picture, table
from kinprint.text import Text

SCATTERED = 2_000
SET_ORDER = Text(
    "published on 10,000 tokens in no defined order (standard error 0.008), so two decimals can agree; here on all "
    "common tokens"
)
_SCRIPT_NAMES = {
    "Korean": Text("Korean"),
    "Chinese": Text("Chinese"),
    "Latin": Text("Latin"),
    "digits": Text("digits"),
    "other": Text("other"),
    "part of a character": Text("part of a character"),
}


def vocabulary_map(stage: Stage) -> Section:
    """Part I: ids of the common tokens, and the scripts of what only A has."""
    section = Section()
    a, b = accused(stage)
    found = compared(stage, a, b)
    if found.common < 3:
        raise Missing(Text("{a} and {b} have {n} tokens in common: too few to compare ids", a=a, b=b, n=found.common))
    spearman = METRICS["spearman"](found.ids_a, found.ids_b)
    pearson = METRICS["pearson"](found.ids_a, found.ids_b)
    rows: list[list[Cell]] = [
        [Text("common tokens"), found.common],
        [Text("Spearman correlation of their ids"), spearman],
        [Text("Pearson correlation of their ids"), pearson],
        [Text("sd of either for ids in random order"), float(1 / np.sqrt(found.common - 1))],
        [Text("different differences of ids"), len(found.shifts)],
        [Text("ids below 1,000 with the same token"), found.first_same],
        [Text("tokens of A alone"), len(found.only_a)],
        [Text("tokens of A with ids from {first}", first=found.high_from), len(found.high)],
    ]
    columns = (column("what", "what"), column("value", "value", 4))
    section.tables.append(table("vocabulary_map", Text("Ids of the common tokens"), columns, rows))
    groups = {"only": found.only_a, "high": found.high}
    scripts = {name: found.scripts(tokens) for name, tokens in groups.items()}
    raw = {name: classes(tokens) for name, tokens in groups.items()}
    section.tables += [_script_table(found, scripts), _class_table(raw)]
    section.notes += [
        Text(
            "Byte-level tokens are decoded before they are sorted by script. Without that, as published, every Korean "
            "or Chinese token is a string of Latin-1 letters and counts as “other”."
        ),
        Text(
            "Both vocabularies put frequent tokens first, so ids of common tokens correlate whatever their origin: the "
            "null of random order is no test of descent."
        ),
    ]
    rng = np.random.default_rng(stage.request.seed)
    chosen = np.sort(rng.choice(found.common, min(SCATTERED, found.common), replace=False))
    caption = Text(
        "Ids of common tokens ({n} drawn of {all}), differences of ids of all of them, and the scripts of tokens of "
        "{a} that {b} lacks, and of those with ids from {first}: after decoding, and as published.",
        n=len(chosen),
        all=found.common,
        a=a,
        b=b,
        first=found.high_from,
    )
    arguments = (
        a,
        b,
        found.ids_a[chosen],
        found.ids_b[chosen],
        found.ids_a - found.ids_b,
        scripts,
        raw,
        found.high_from,
    )
    section.pictures.append(picture("vocabulary_map", caption, "origin.vocabulary_figures.vocabulary_map", *arguments))
    if stage.request.replicas:
        section.notes.append(
            Text(
                "How many tokens are Korean, Chinese, Latin and so on is assumed in the replicas: only the counts in the list of "
                "published figures are theirs by design. The table of scripts shows the method, not the models."
            )
        )
    if is_published(stage, a, b):
        section.checks += _map_checks(found, raw["high"], pearson)
    return section


def _script_table(found: Comparison, scripts: dict[str, Counter[str]]) -> Table:
    rows: list[list[Cell]] = [[_SCRIPT_NAMES[name], scripts["only"][name], scripts["high"][name]] for name in SCRIPTS]
    columns = (
        column("script", "script"),
        column("only", "tokens of A alone"),
        column("high", "tokens of A with high ids"),
    )
    return table(
        "scripts", Text("Scripts after decoding (high ids: from {first})", first=found.high_from), columns, rows
    )


def _class_table(raw: dict[str, Counter[str]]) -> Table:
    names = sorted(raw["only"].keys() | raw["high"].keys(), key=lambda name: -raw["only"][name])
    rows: list[list[Cell]] = [[name, raw["only"][name], raw["high"][name]] for name in names]
    columns = (
        column("class", "class"),
        column("only", "tokens of A alone"),
        column("high", "tokens of A with high ids"),
    )
    return table("classes", Text("Classes as published, without decoding"), columns, rows)


def _map_checks(found: Comparison, high: Counter[str], pearson: float) -> list[Check]:
    known = origin()["vocab_mapping_text"]
    counts = [
        (Text("tokens in common, vocabulary map"), known["common"], found.common),
        (Text("tokens with the same id, vocabulary map"), known["same_id"], found.same_id),
        (Text("ids below 1,000 with the same token"), known["first1000_same"], found.first_same),
        (Text("tokens of Solar alone"), known["solar_only"], len(found.only_a)),
        (Text("tokens of Solar with ids from 150,000"), known["high_id_ge_150000"], len(found.high)),
    ]
    counts += [
        (Text("among them of the class {name}, without decoding", name=name), number, high[name])
        for name, number in known["high_id_types"].items()
    ]
    return [
        *(count_check(what, float(number), float(value), "text") for what, number, value in counts),
        Check(
            Text("Pearson correlation of the ids"),
            known["id_corr_sample10000"],
            pearson,
            3,
            "text",
            SET_ORDER,
            within=0.01,
        ),
    ]
