"""Compare models of one width, MoE and dense, in groups, with and without the related pairs (experiment 5)."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kinprint.arch import Role
from kinprint.studies.baselines.common import add_checks, at_layer, kinds_of, layers_of, tag
from kinprint.studies.baselines.groups import compared_models, model_grid
from kinprint.studies.opened import StudyRun
from kinprint.studies.outcome import Missing, Section, columns
from kinprint.studies.vector_pairs import COLUMNS, SPREAD_COLUMNS, Spread, VectorPair
from kinprint.text import Text, Value

GROUPS = (Text("MoE–MoE"), Text("MoE–dense"), Text("dense–dense"))
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
class PairChoice:
    """A choice of pairs: its name in tables, its title in figures, and the pairs by group."""

    text: Text
    title: str
    groups: dict[Text, list[VectorPair]]


def moe_against_dense(run: StudyRun, role: Role, section: Section) -> None:
    """Put the pairs of models at one layer into groups, by what both are."""
    kinds, layer = kinds_of(run, section.missing), layers_of(run).at
    pairs = at_layer(run, role, kinds, layer, section.missing)
    if not pairs:
        raise Missing("no two of these models can be compared at layer {layer}", layer=layer)
    named: dict[str, Value] = {"layer": layer, "role": role.value}
    choices = pair_choices(run, pairs, kinds)
    section.add_table(
        f"exp5_groups{tag(role)}",
        Text("MoE and dense models at layer {layer}, {role}", **named),
        (*columns("choice: pairs; group"), *SPREAD_COLUMNS),
        [(choice.text, group, *Spread.of(found)) for choice in choices for group, found in choice.groups.items()],
    )
    related = {pair.key: why for pair in pairs if (why := relation(pair)) is not None}
    if related:
        rows = [(p.a, p.b, p.cosine, p.null_mean, p.pearson, p.z, related[p.key]) for p in pairs if p.key in related]
        head = columns("a; b; cosine; null_mean; pearson; z; why: why it counts as related")
        section.add_table(f"exp5_related{tag(role)}", Text("Related pairs"), head, rows)
        section.note(
            "Related pairs do not belong in a mean that is to say what unrelated models have: their agreement is inherited. "
            "The table gives the means with and without them."
        )
    gaps = [(choice.text, *gap) for choice in choices if (gap := division_gap(choice, kinds, run.request.seed))]
    if gaps:
        head = columns(
            "choice: pairs; gap: MoE–MoE minus all others .4; labellings: divisions tried; p: share with a gap as large .3"
        )
        title = Text("Gap between MoE pairs and the others, under other divisions")
        section.add_table(f"exp5_labels{tag(role)}", title, head, gaps)
    title = Text("Every pair of models at layer {layer}", layer=layer)
    section.add_table(f"exp5_pairs{tag(role)}", title, COLUMNS, pairs, shown=36)
    section.add_picture(f"exp5_groups{tag(role)}", "baselines.group_dots", choices, set(related), **named)
    shown = model_grid(compared_models(list(kinds), pairs), kinds, layer, pairs), ("cosine", "pearson")
    section.add_picture(f"exp5_heatmap{tag(role)}", "baselines.moe_and_dense", *shown, **named, sd=pairs[0].pearson_sd)
    if run.request.replicas:
        section.note(
            "Not published, and so assumed in the replicas: everything about InternLM2, and every Pearson correlation of the "
            "dense models and of Mixtral except GLM–Mixtral at layer 10; single cosines of the dense models are known to two "
            "decimals."
        )
    if layer == 10 and run.original(*EIGHT):
        add_checks(run, role, section, "exp5", _published_values(pairs, kinds))


def relation(pair: VectorPair) -> Text | None:
    """Return why the two models of a pair count as related; None if nothing says so."""
    known = RELATED.get(frozenset((pair.a, pair.b)))
    if known is not None:
        return known
    if pair.z > FAR and pair.log10_p < LOG10_P:
        return Text("nothing documented, but Pearson lies over {far:.0f} null standard deviations above zero", far=FAR)
    return None


def pair_choices(run: StudyRun, pairs: Sequence[VectorPair], kinds: Mapping[str, str]) -> list[PairChoice]:
    """Return all pairs, those without the related ones, and before them the published choice if these are its models."""
    found = [(Text("all models"), "all models", pairs)]
    eight, apart = _among(EIGHT, pairs), [pair for pair in pairs if relation(pair) is None]
    if run.original(*EIGHT) and len(eight) < len(pairs):
        found.insert(0, (Text("the eight models of the published table"), "eight models, as published", eight))
    if apart and len(apart) < len(pairs):
        found.append((Text("without the related pairs"), "without related pairs", apart))
    return [PairChoice(text, title, _grouped(chosen, kinds)) for text, title, chosen in found]


def _among(names: Sequence[str], pairs: Sequence[VectorPair]) -> list[VectorPair]:
    return [pair for pair in pairs if pair.a in names and pair.b in names]


def _grouped(pairs: Sequence[VectorPair], kinds: Mapping[str, str]) -> dict[Text, list[VectorPair]]:
    groups: dict[Text, list[VectorPair]] = {group: [] for group in GROUPS}
    for pair in pairs:
        groups[GROUPS[2 - (kinds[pair.a] == "moe") - (kinds[pair.b] == "moe")]].append(pair)
    return {group: found for group, found in groups.items() if found}


def division_gap(choice: PairChoice, kinds: Mapping[str, str], seed: int) -> tuple[float, int, float] | None:
    """Return how much MoE pairs differ from the others, divisions of the models tried, and the share with as large a gap.

    The pairs share models, so no t-test will do. None where a division leaves no pair on one side.
    """
    pairs = list(itertools.chain.from_iterable(choice.groups.values()))
    names = sorted({name for pair in pairs for name in (pair.a, pair.b)})
    chosen = [names.index(name) for name in names if kinds[name] == "moe"]
    if not 2 <= len(chosen) < len(names):
        return None
    ends = np.array([[names.index(pair.a), names.index(pair.b)] for pair in pairs])
    cosines = np.array([pair.cosine for pair in pairs])
    every = math.comb(len(names), len(chosen)) <= MAX_LABELLINGS
    if every:
        divisions = np.array(list(itertools.combinations(range(len(names)), len(chosen))))
    else:
        draws = np.random.default_rng(seed).random((MAX_LABELLINGS, len(names)))
        divisions = np.argsort(draws, axis=1)[:, : len(chosen)]
    inside = np.zeros((len(divisions) + 1, len(names)), dtype=bool)
    np.put_along_axis(inside, np.vstack([chosen, divisions]), values=True, axis=1)
    both = inside[:, ends[:, 0]] & inside[:, ends[:, 1]]
    counts = both.sum(axis=1)
    some = (counts > 0) & (counts < len(pairs))
    if not some[0]:
        return None
    both, counts = both[some], counts[some]
    gaps = (both @ cosines) / counts - (~both @ cosines) / (len(pairs) - counts)
    larger = np.abs(gaps[1:]) >= abs(gaps[0]) - 1e-12
    share = larger.mean() if every else (1 + larger.sum()) / (1 + larger.size)
    return float(gaps[0]), int(larger.size), float(share)


def _published_values(pairs: Sequence[VectorPair], kinds: Mapping[str, str]) -> dict[str, float | None]:
    """Return what the published group table and heatmap hold, and how many pairs the nine models announced have."""
    values: dict[str, float | None] = {f"heatmap {pair.a} {pair.b}": pair.cosine for pair in _among(EIGHT, pairs)}
    for group, found in _grouped(_among(EIGHT, pairs), kinds).items():
        spread = Spread.of(found)
        values |= {f"{group} mean": spread.mean, f"{group} sd": spread.sd, f"{group} n": spread.n}
    nine = _among((*EIGHT, "InternLM2"), pairs)
    if len(nine) == math.comb(9, 2):
        values |= {f"{group} nine": len(found) for group, found in _grouped(nine, kinds).items()}
    return values
