"""Experiment 5: models of one width, MoE against dense, in groups, with and without the related pairs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kinprint.arch import Role
from kinprint.studies.baselines.common import ROLE, kinds_of, layers_of, results, tag
from kinprint.studies.baselines.groups import grid, moe_readings
from kinprint.studies.baselines.readings import COLUMNS, SPREAD_COLUMNS, Reading, Spread
from kinprint.studies.opened import Stage
from kinprint.studies.outcome import Cell, Check, Missing, Section, column, picture, table
from kinprint.text import Text, Value

GROUPS = ("MoE–MoE", "MoE–dense", "dense–dense")
_GROUP_NAMES = {"MoE–MoE": Text("MoE–MoE"), "MoE–dense": Text("MoE–dense"), "dense–dense": Text("dense–dense")}
EIGHT = ("Solar", "GLM", "Phi", "Mixtral", "Mistral", "Yi-6B", "Yi-9B", "Qwen1.5")
"""The models of the published group table: InternLM2 was announced, and is silently missing."""

RELATED = {
    frozenset(("Mixtral", "Mistral")): Text("one maker; inferred from their agreement, not documented"),
    frozenset(("Yi-6B", "Yi-9B")): Text("documented: the larger one was grown from the smaller"),
    frozenset(("GLM", "INTELLECT")): Text("documented: trained from the base model of the other"),
}
FAR, LOG10_P = 5.0, -3.0
"""A pair counts as related, documented or not, if Pearson lies so many null standard deviations above zero, and if chance does
not give as much by a coincidence of outliers either (the p-value is an upper bound where the tail is not normal)."""
MAX_LABELLINGS = 20_000


@dataclass(frozen=True)
class Group:
    """A choice of pairs: its name in tables, its title in figures, and the pairs by group."""

    text: Text
    title: str
    groups: dict[str, list[Reading]]


def moe_against_dense(stage: Stage, role: Role, section: Section) -> None:
    """Put the pairs of models at one layer into groups, by what both are."""
    kinds, layer = kinds_of(stage, section.missing), layers_of(stage).at
    readings = moe_readings(stage, role, list(kinds), layer, section.missing)
    if not readings:
        raise Missing(Text("no two of these models can be compared at layer {layer}", layer=layer))
    name = f"exp5_groups{tag(role)}"
    choices = group_choices(stage, readings, kinds)
    columns = (column("choice", "pairs"), column("group", "group"), *SPREAD_COLUMNS)
    rows: list[Sequence[Cell]] = [
        (choice.text, _GROUP_NAMES[group], *Spread.of(found).row)
        for choice in choices
        for group, found in choice.groups.items()
    ]
    title = Text("MoE and dense models at layer {layer}, {role}", layer=layer, role=role.value)
    section.tables.append(table(name, title, columns, rows))
    _related_table(section, readings, f"exp5_related{tag(role)}")
    _label_table(section, stage, choices, kinds, f"exp5_labels{tag(role)}")
    title = Text("Every pair of models at layer {layer}", layer=layer)
    section.tables.append(table(f"exp5_pairs{tag(role)}", title, COLUMNS, [r.row for r in readings], shown=36))
    caption = Text(
        "Raw cosine of pairs of models at layer {layer} ({role}) by group: every pair, mean ± sd, and what the spreads alone "
        "predict. Open: pairs of related models.",
        layer=layer,
        role=role.value,
    )
    related = {reading.key for reading in readings if relation(reading) is not None}
    section.pictures.append(picture(name, caption, "baselines.figures.group_dots", choices, related))
    caption = Text(
        "All models against each other at layer {layer} ({role}), MoE before dense: raw cosine and Pearson (null sd {sd:.4f}).",
        layer=layer,
        role=role.value,
        sd=readings[0].pearson_sd,
    )
    met = [model for model in kinds if any(model in (reading.a, reading.b) for reading in readings)]
    shown = grid(met, kinds, layer, readings)
    section.pictures.append(picture(f"exp5_heatmap{tag(role)}", caption, "baselines.figures.full_heatmap", shown))
    if stage.request.replicas:
        section.notes.append(
            Text(
                "Not published, and so assumed in the replicas: everything about InternLM2, and every Pearson correlation of the "
                "dense models and of Mixtral except GLM–Mixtral at layer 10; single cosines of the dense models are known to two "
                "decimals."
            )
        )
    if role is ROLE and layer == 10 and stage.original(*EIGHT):
        section.checks += _checks(readings, kinds) + _miscounts(stage, readings, kinds)


def relation(reading: Reading) -> Text | None:
    """Return why the two models of a reading count as related; None if nothing says so."""
    known = RELATED.get(frozenset((reading.a, reading.b)))
    if known is not None:
        return known
    if reading.z > FAR and reading.log10_p < LOG10_P:
        return Text("nothing documented, but Pearson lies over {far:.0f} null standard deviations above zero", far=FAR)
    return None


def group_choices(stage: Stage, readings: Sequence[Reading], kinds: Mapping[str, str]) -> list[Group]:
    """Return all pairs, those without the related ones, and before them the published choice if these are its models."""
    found = []
    eight = _eight(readings)
    if stage.original(*EIGHT) and len(eight) < len(readings):
        found.append(
            _choice(Text("the eight models of the published table"), "eight models, as published", eight, kinds)
        )
    found.append(_choice(Text("all models"), "all models", readings, kinds))
    apart = [reading for reading in readings if relation(reading) is None]
    if apart and len(apart) < len(readings):
        found.append(_choice(Text("without the related pairs"), "without related pairs", apart, kinds))
    return found


def _eight(readings: Sequence[Reading]) -> list[Reading]:
    return [reading for reading in readings if reading.a in EIGHT and reading.b in EIGHT]


def _choice(text: Text, title: str, readings: Sequence[Reading], kinds: Mapping[str, str]) -> Group:
    groups: dict[str, list[Reading]] = {group: [] for group in GROUPS}
    for reading in readings:
        moe = (kinds[reading.a] == "moe") + (kinds[reading.b] == "moe")
        groups[GROUPS[2 - moe]].append(reading)
    return Group(text, title, {group: found for group, found in groups.items() if found})


def _related_table(section: Section, readings: Sequence[Reading], name: str) -> None:
    rows = [
        (reading.a, reading.b, reading.cosine, reading.null_mean, reading.pearson, reading.z, why)
        for reading in readings
        if (why := relation(reading)) is not None
    ]
    if not rows:
        return
    columns = (
        column("a", "A"),
        column("b", "B"),
        column("cosine", "cosine", 4),
        column("null_mean", "cosine if independent", 4),
        column("pearson", "Pearson", 4),
        column("z", "z", 2),
        column("why", "why it counts as related"),
    )
    section.tables.append(table(name, Text("Related pairs"), columns, rows))
    section.notes.append(
        Text(
            "Related pairs do not belong in a mean that is to say what unrelated models have: their agreement is inherited. The "
            "table gives the means with and without them."
        )
    )


def _label_table(section: Section, stage: Stage, choices: Sequence[Group], kinds: Mapping[str, str], name: str) -> None:
    """Ask how often a random division of the models gives as large a gap: the pairs share models, so no t-test will do."""
    rows: list[Sequence[Cell]] = []
    for choice in choices:
        found = _relabelled(choice, kinds, np.random.default_rng(stage.request.seed))
        if found is not None:
            rows.append((choice.text, *found))
    if not rows:
        return
    columns = (
        column("choice", "pairs"),
        column("gap", "MoE–MoE minus all others", 4),
        column("labellings", "divisions tried"),
        column("p", "share with a gap as large", 3),
    )
    section.tables.append(
        table(name, Text("Gap between MoE pairs and the others, under other divisions"), columns, rows)
    )


def _relabelled(choice: Group, kinds: Mapping[str, str], rng: np.random.Generator) -> tuple[float, int, float] | None:
    readings = list(itertools.chain.from_iterable(choice.groups.values()))
    names = sorted({name for reading in readings for name in (reading.a, reading.b)})
    chosen = [names.index(name) for name in names if kinds[name] == "moe"]
    if not 2 <= len(chosen) < len(names):
        return None
    ends = np.array([[names.index(reading.a), names.index(reading.b)] for reading in readings])
    cosines = np.array([reading.cosine for reading in readings])
    count = math.comb(len(names), len(chosen))
    if count <= MAX_LABELLINGS:
        divisions = np.array(list(itertools.combinations(range(len(names)), len(chosen))))
    else:
        divisions = np.argsort(rng.random((MAX_LABELLINGS, len(names))), axis=1)[:, : len(chosen)]
    inside = np.zeros((len(divisions) + 1, len(names)), dtype=bool)
    np.put_along_axis(inside, np.vstack([chosen, divisions]), values=True, axis=1)
    both = inside[:, ends[:, 0]] & inside[:, ends[:, 1]]
    counts = both.sum(axis=1)
    some = (counts > 0) & (counts < len(readings))
    if not some[0]:
        return None
    both, counts = both[some], counts[some]
    gaps = (both @ cosines) / counts - (~both @ cosines) / (len(readings) - counts)
    first, others = float(gaps[0]), np.asarray(gaps[1:], dtype=np.float64)
    larger = np.abs(others) >= abs(first) - 1e-12
    share = larger.mean() if count <= MAX_LABELLINGS else (1 + larger.sum()) / (1 + larger.size)
    return first, int(larger.size), float(share)


def _checks(readings: Sequence[Reading], kinds: Mapping[str, str]) -> list[Check]:
    found = []
    said = results()["exp5_arch_layer10"]
    keys = {"MoE–MoE": "MoE-MoE", "MoE–dense": "MoE-nonMoE", "dense–dense": "nonMoE-nonMoE"}
    eight = _choice(Text("the eight models of the published table"), "", _eight(readings), kinds).groups
    for group, key in keys.items():
        if group not in eight:
            continue
        spread = Spread.of(eight[group])
        where: dict[str, Value] = {"group": _GROUP_NAMES[group]}
        found.append(Check(Text("mean cosine, {group}, eight models", **where), said[key]["mean"], spread.mean))
        found.append(Check(Text("sd, {group}, eight models", **where), said[key]["std"], spread.sd))
        found.append(Check(Text("number of pairs, {group}, eight models", **where), said[key]["n"], spread.n, digits=0))
    every = {(reading.a, reading.b): reading.cosine for reading in readings}
    matrix = results()["exp5_heatmap_2dec_read_from_png"]["matrix"]
    for (i, a), (k, b) in itertools.combinations(enumerate(EIGHT), 2):
        what = Text("cosine in the heatmap, {a}–{b}", a=a, b=b)
        found.append(Check(what, matrix[i][k], every.get((a, b)), digits=2, trust="picture"))
    return found


NOT_NINE = Text("announced for nine models, measured on eight: InternLM2 was not read, and nothing said so")


def _miscounts(stage: Stage, readings: Sequence[Reading], kinds: Mapping[str, str]) -> list[Check]:
    """Return the published numbers of pairs beside those of the nine models that were announced."""
    nine = [r for r in readings if {r.a, r.b} <= {*EIGHT, "InternLM2"}]
    if not stage.original("InternLM2") or len(nine) != math.comb(9, 2):
        return []
    groups = _choice(Text("all models"), "", nine, kinds).groups
    return [
        Check(
            Text("number of pairs among the nine models announced, {group}", group=_GROUP_NAMES[group]),
            said,
            len(groups[group]),
            digits=0,
            trust="wrong",
            reason=NOT_NINE,
        )
        for group, said in (("MoE–dense", 16.0), ("dense–dense", 6.0))
    ]
