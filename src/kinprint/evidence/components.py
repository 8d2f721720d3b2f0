"""Which parts of the two models share weights: embeddings, norms, attention, MLPs, experts, router, head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from kinprint.arch import Axis, Role
from kinprint.arch.roles import DENSE_ROLES
from kinprint.evidence.battery import LayerMap, SamplePair, corner, row_test
from kinprint.evidence.layer_map import ATTENTION, LAYER_ALPHA, MLP, LayerEvidence
from kinprint.evidence.probe import Probe
from kinprint.results.findings import TESTED, ComponentFinding, EvidenceTest, ExpertFinding
from kinprint.stats.combine import bonferroni
from kinprint.text import Text

SHARED, PARTLY, NOT_SHARED, NOT_TESTED = "shared", "partly shared", "not shared", "not tested"

_NORMS = tuple(role for role in Role if role.info.kind == "norm" and role.info.axes[0] is Axis.RESIDUAL)
_WHOLE = {
    "embedding": (Role.EMBEDDING,),
    "head": (Role.HEAD,),
    "router": (Role.ROUTER,),
    "attention output": (Role.ATTN_O,),
    "mlp output": (Role.MLP_DOWN, Role.SHARED_DOWN, Role.EXPERT_DOWN),
}
_LAYERED = {"attention": ATTENTION, "mlp": MLP}
LEAST_UNITS = 64  # permuted units below which a part that shows nothing counts as not tested


def component_map(
    probes: tuple[Probe, Probe],
    tests: Sequence[EvidenceTest],
    layers: LayerEvidence,
    experts: Sequence[ExpertFinding],
    neurons: Mapping[int, float],
) -> list[ComponentFinding]:
    """Say of each part that either model has whether it shares, from tests corrected for their number (`log10_p_holm`).

    `neurons` holds log10 p of layers whose MLPs were compared after an alignment, where that was done.
    """
    stored = {"norms": _NORMS, **_WHOLE, **_LAYERED}
    known = {name for name, roles in stored.items() if any(probe.has(roles) for probe in probes)}
    absent = {name: _why_absent(probes, roles) for name, roles in stored.items()}
    found = [_whole(name, roles, tests, absent[name]) for name, roles in _WHOLE.items() if name in known]
    if "norms" in known:
        found.insert(1, _norms(tests, absent["norms"]))
    count = len(layers.alignment.layers)
    if "attention" in known:
        found.append(_by_layer("attention", layers.attention, count, layers, absent["attention"]))
    mlp = {layer: min(p, neurons.get(layer, 0.0)) for layer, p in layers.mlp.items()} | {
        layer: p for layer, p in neurons.items() if layer not in layers.mlp
    }
    note = Text("compared after an alignment") if neurons else None
    into_experts = bool(experts) and "mlp" not in layers.testable  # a dense MLP beside experts is tested as those
    if "mlp" in known and not into_experts:
        found.append(_by_layer("mlp", mlp, count, layers, absent["mlp"], note))
    if experts:
        hits = sum(item.shared for item in experts)
        least = min((item.log10_p for item in experts if item.log10_p is not None), default=None)
        found.append(ComponentFinding("experts", _state(hits, len(experts)), len(experts), hits, least))
    return found


def _why_absent(probes: tuple[Probe, Probe], roles: Sequence[Role]) -> Text:
    """Say why a part could not be tested, as far as is known without its numbers."""
    a, b = probes
    for side, here, there in (("A", a, b), ("B", b, a)):
        if here.has(roles) and not there.has(roles):
            return Text("only model {side} has it", side=side)
    if a.hidden is not None and b.hidden is not None and a.hidden != b.hidden:
        return Text("shapes differ: model A is {a} wide, model B {b}", a=a.hidden, b=b.hidden)
    return Text("shapes differ, or it was not read")


def _state(hits: int, tested: int) -> str:
    if not tested:
        return NOT_TESTED
    return SHARED if hits == tested else PARTLY if hits else NOT_SHARED


def _whole(name: str, roles: Sequence[Role], tests: Sequence[EvidenceTest], absent: Text) -> ComponentFinding:
    """Judge a part tested as one: its best test decides, being corrected for the whole battery."""
    scopes = {role.value for role in roles}
    ok = [test for test in tests if test.scope in scopes and test.status == TESTED and test.log10_p_holm is not None]
    if not ok:
        reason = next((test.reason for test in tests if test.scope in scopes and test.reason), None)
        return ComponentFinding(name, NOT_TESTED, 0, 0, None, reason or absent)
    best = min(test.log10_p_holm or 0.0 for test in ok)
    hit = best <= LAYER_ALPHA
    units = max(test.n for test in ok)
    if not hit and units < LEAST_UNITS:
        note = Text("only {n} units could be permuted: too few to be sure of seeing a copy", n=units)
        return ComponentFinding(name, NOT_TESTED, 0, 0, best, note)
    return ComponentFinding(name, SHARED if hit else NOT_SHARED, 1, int(hit), best)


def _norms(tests: Sequence[EvidenceTest], absent: Text) -> ComponentFinding:
    ok = [t for t in tests if t.name == "norm_joint" and t.status == TESTED and t.log10_p_holm is not None]
    if not ok:
        reason = next((t.reason for t in tests if t.name == "norm_joint" and t.reason), None)
        return ComponentFinding("norms", NOT_TESTED, 0, 0, None, reason or absent)
    hits = sum((t.log10_p_holm or 0.0) <= LAYER_ALPHA for t in ok)
    return ComponentFinding("norms", _state(hits, len(ok)), len(ok), hits, min(t.log10_p_holm or 0.0 for t in ok))


def _by_layer(
    name: str, found: Mapping[int, float], count: int, layers: LayerEvidence, absent: Text, note: Text | None = None
) -> ComponentFinding:
    """Judge a part tested layer by layer: each entry is corrected for the search for its layer and for the layers."""
    tries = max(1, layers.alignment.layers[0].tries if layers.alignment.layers else 1) * max(count, 1)
    corrected = {layer: bonferroni(p, tries) for layer, p in found.items()}
    hits = sum(p <= LAYER_ALPHA for p in corrected.values())
    # a layer of B that matches none of A was tested too, and did not share
    searched = layers.alignment.status == TESTED and name in layers.testable
    tested = max(count, len(corrected)) if searched else len(corrected)
    least = min(corrected.values(), default=None)
    if not tested:
        reason = layers.alignment.reason if name in layers.testable else absent
        return ComponentFinding(name, NOT_TESTED, 0, 0, None, reason)
    return ComponentFinding(name, _state(hits, tested), tested, hits, least, note)


def expert_map(a: Probe, b: Probe, layer_map: LayerMap) -> list[ExpertFinding]:
    """Match each sampled expert of B with the sampled experts of A's layer, or with its dense MLP (upcycling).

    Among many experts the likeliest is chosen by a cheap look at a corner of its weights; the test counts all of them.
    """
    mine, theirs = _experts(b), _experts(a)
    total = sum(len(experts) for experts in mine.values())
    found = []
    for layer, experts in sorted(mine.items()):
        source = layer_map.get(layer)
        if source is None:
            continue
        options: list[int | None] = list(theirs.get(source, ())) or [None]
        for expert in experts:
            option = _likeliest(a, b, source, layer, options, expert)
            p = _expert_p(a, b, source, layer, option, expert)
            if p is not None:
                p = bonferroni(p, len(options) * total)
                found.append(ExpertFinding(layer, expert, option, p, p <= LAYER_ALPHA))
    return found


def _experts(probe: Probe) -> dict[int, list[int]]:
    """Return the experts read in each layer."""
    found: dict[int, set[int]] = {}
    for role, layer, expert in probe.samples:
        if role in DENSE_ROLES and layer is not None and expert is not None:
            found.setdefault(layer, set()).add(expert)
    return {layer: sorted(experts) for layer, experts in found.items()}


def _likeliest(a: Probe, b: Probe, source: int, layer: int, options: Sequence[int | None], expert: int) -> int | None:
    """Return the expert of A whose up (or gate) rows look most like those of one expert of B."""
    if len(options) == 1:
        return options[0]
    for role in DENSE_ROLES:
        mine = b.samples.get((role, layer, expert))
        if mine is not None:
            wanted = corner(mine)
            others = [(o, corner(s)) for o in options if (s := a.samples.get((role, source, o))) is not None]
            same = [(float(np.vdot(wanted, x)), o) for o, x in others if x.shape == wanted.shape]
            if same:
                return max(same, key=lambda item: item[0])[1]
    return options[0]


def _expert_p(a: Probe, b: Probe, source: int, layer: int, option: int | None, expert: int) -> float | None:
    ps = []
    for role, dense in DENSE_ROLES.items():
        mine = b.samples.get((role, layer, expert))
        other = a.samples.get((role, source, option) if option is not None else (dense, source, None))
        if mine is None or other is None or mine.stored.shape[1] != other.stored.shape[1]:
            continue
        if (mine.rows or (0, 0))[0] != (other.rows or (0, 0))[0] or not (mine.finite and other.finite):
            continue
        test = row_test(role, [SamplePair(role, layer, expert, other, mine)])
        if test.log10_p is not None:
            ps.append(test.log10_p)
    return bonferroni(min(ps), len(ps)) if ps else None
