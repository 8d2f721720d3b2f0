"""Judge which parts of the two models share weights: embeddings, norms, attention, MLPs, experts, router, head."""

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.arch import Axis, Role
from kinprint.arch.roles import DENSE_ROLES
from kinprint.errors import DegenerateInput
from kinprint.evidence.exact_tests import RESIDUAL_ORDER, row_test
from kinprint.evidence.exchangeability import corner
from kinprint.evidence.layer_map import LAYER_ALPHA, PARTS, LayerEvidence
from kinprint.evidence.probe import LayerMap, Probe, SamplePair, is_residual_norm
from kinprint.evidence.sign_tests import negated_units, sign_axis, sign_test
from kinprint.results.findings import SIGN_FLIPS, TESTED, ComponentFinding, EvidenceTest, ExpertFinding
from kinprint.stats.combine import bonferroni
from kinprint.text import Text

SHARED, PARTLY, NOT_SHARED, NOT_TESTED = "shared", "partly shared", "not shared", "not tested"

ENDS = ("embedding", "head")  # where these are shared, two models have one residual basis, whatever their layers are
_WHOLE = {
    "embedding": (Role.EMBEDDING,),
    "norms": tuple(filter(is_residual_norm, Role)),
    "head": (Role.HEAD,),
    "router": (Role.ROUTER,),
    "attention output": (Role.ATTN_O,),
    "mlp output": (Role.MLP_DOWN, Role.SHARED_DOWN, Role.EXPERT_DOWN),
}
PART_ROLES = _WHOLE | PARTS  # tests of these roles speak for the part
LAYERS = "layers"  # scope of the layer map
BLIND = Text("no test that ran would have seen a copy of it")
TOO_WEAK = Text("it may keep something of the other model, too little to be sure of in this part alone")
PLACES_ALONE = Text("signs do not agree, so whatever agrees is places, not weights")
OUT_OF_PLACE = Text("not in place, and not compared in the order or basis that was found")
SAME_FUNCTION = Text("what was not matched computes the same, since the models do")
BY_PRODUCTS = Text("compared by products over heads, in whatever order or basis these are")
ONLY_BY_PRODUCTS = Text("compared by products over heads; no test in place was possible")
HEADS_MAY_DIFFER = Text("not in place: heads may be reordered or rotated")
RESIDUAL_MOVED = frozenset({*_WHOLE, "attention", "experts"})
"""Parts of which a comparison in place says nothing once residual dimensions are known to be reordered or rotated."""
NEURONS_MOVED = frozenset({"mlp output", "experts", "router"})
IN_ONE_BASIS = Text(
    "agrees no more than parts do that were trained in one residual basis, which shared embeddings or a shared head fix"
)
SAME_NORMS = 0.9
"""Correlation of norms from which they are copies although embeddings are shared: those of a draft model, which has another's
embeddings and head and layers of its own, come to 0.6 (`tests/family/draft`), those of fine-tunes to 0.97 and more."""
_NEGATED = {Axis.NEURON: "mlp output", Axis.HEAD: "attention output"}
"""Parts whose columns have the signs of these units: where some are negated, nothing agrees in place."""

LEAST_UNITS = 64  # permuted units below which a part that shows nothing counts as not tested


def component_map(
    probes: tuple[Probe, Probe],
    tests: Sequence[EvidenceTest],
    layers: LayerEvidence,
    experts: Sequence[ExpertFinding],
    neurons: Mapping[int, float],
    moved: frozenset[str] = frozenset(),
    heads: Mapping[int, float] | None = None,
) -> list[ComponentFinding]:
    """Say of each part that either model has whether it shares, from tests corrected for their number (`log10_p_holm`)."""
    # `neurons` holds log10 p of layers whose MLPs were compared after an alignment, where that was done; `moved` names parts
    # that an alignment showed not to stand in place: what does not agree there was not tested; `heads` log10 p of layers whose
    # attention was compared by products over heads.
    signs = {str(t.scope): t.log10_p_holm for t in tests if t.name == SIGN_FLIPS and t.log10_p_holm is not None}
    barred: dict[str, Text | None] = {}
    for name, roles in PARTS.items():  # where none of the signs agree, places agree by a recipe, not by weights
        scopes = {role.value for role in roles}
        if min((p for scope, p in signs.items() if scope in scopes), default=-math.inf) > LAYER_ALPHA:
            agrees = any((t.log10_p_holm or 0.0) <= LAYER_ALPHA for t in tests if str(t.scope) in scopes)
            barred[name] = PLACES_ALONE if agrees else None
    moved |= {part for axis, part in _NEGATED.items() if negated_units(tests, axis)}
    absent = {
        name: _why_absent(probes, roles)
        for name, roles in PART_ROLES.items()
        if any(probe.has(roles) for probe in probes)
    }
    found = [_whole(name, tests, absent[name]) for name in _WHOLE if name in absent]
    if any(item.shared for item in found if item.component in ENDS):
        own = _own_units(tests)
        matched = any(item.shared for item in experts) or min(neurons.values(), default=0.0) <= LAYER_ALPHA
        strangers = bool(own) and not any(own.values()) and not matched
        barred |= {name: IN_ONE_BASIS for name in PARTS if strangers or own.get(name) is False}
        found = [_between_strangers(item, tests) if strangers else item for item in found]
    if "attention" in absent:
        in_place = {} if "attention" in barred else layers.attention
        attention = _by_layer("attention", in_place, layers, absent["attention"], barred.get("attention"))
        found.append(_by_products(heads, attention) if heads else attention)
    # a dense MLP beside experts is tested as those, unless all their neurons were matched together
    matched = min(neurons.values(), default=0.0) <= LAYER_ALPHA
    into_experts = bool(experts) and "mlp" not in layers.testable and not matched
    if "mlp" in absent and not into_experts:
        in_place = {} if "mlp" in barred else layers.mlp
        mlp = in_place | {layer: min(p, in_place.get(layer, p)) for layer, p in neurons.items()}
        note = Text("compared after an alignment") if neurons else barred.get("mlp")
        gained = any(p <= LAYER_ALPHA < in_place.get(layer, 0.0) for layer, p in neurons.items())
        found.append(_by_layer("mlp", mlp, layers, absent["mlp"], note, frozenset(neurons if gained else ())))
    if experts:
        hits = sum(item.shared for item in experts)
        least = min((item.log10_p for item in experts if item.log10_p is not None), default=None)
        found.append(ComponentFinding("experts", _state(hits, len(experts)), len(experts), hits, least))
    mlp_shared = any(item.shared for item in found if item.component in ("mlp", "experts"))
    return [_where_tested(item, moved, mlp_shared=mlp_shared) for item in found]


def _where_tested(item: ComponentFinding, moved: frozenset[str], *, mlp_shared: bool) -> ComponentFinding:
    """Call a part that does not agree in place untested, where it is known not to stand in place, or may well not."""
    if item.shared or not item.tested:
        return item
    by_products = item.note in (BY_PRODUCTS, ONLY_BY_PRODUCTS)
    reordered = item.component == "attention" and mlp_shared and not by_products
    if not reordered and (item.component not in moved or by_products):
        return item
    return ComponentFinding(item.component, NOT_TESTED, 0, 0, None, HEADS_MAY_DIFFER if reordered else OUT_OF_PLACE)


def _by_products(heads: Mapping[int, float], in_place: ComponentFinding) -> ComponentFinding:
    """Judge attention by the products over heads, unless it shows more in place."""
    ps = [bonferroni(p, len(heads)) for p in heads.values()]
    hits = sum(p <= LAYER_ALPHA for p in ps)
    if in_place.shared >= hits > 0 or (in_place.shared and not hits):
        return in_place
    note = BY_PRODUCTS if in_place.tested else ONLY_BY_PRODUCTS  # "not in place" needs a test in place
    return ComponentFinding("attention", _state(hits, len(ps)), len(ps), hits, min(ps), note)


def would_show_copy(name: str, tests: Sequence[EvidenceTest], able: Collection[tuple[str, str]]) -> bool:
    """Whether a test of the part ran that reaches the threshold on a copy: only then a part that shows nothing is not shared."""
    scopes = {role.value for role in PART_ROLES.get(name, ())} | ({LAYERS} if name in PARTS else set())
    ran = {(test.name, str(test.scope)) for test in tests if test.status == TESTED and test.log10_p is not None}
    return name not in PART_ROLES or any(scope in scopes and (test, scope) in able for test, scope in ran)


def with_power(
    components: Sequence[ComponentFinding], tests: Sequence[EvidenceTest], able: Collection[tuple[str, str]]
) -> list[ComponentFinding]:
    """Return the parts, those that show nothing as not tested where no test would have seen a copy of them."""
    return [
        item
        if item.shared or not item.tested or would_show_copy(item.component, tests, able)
        else ComponentFinding(item.component, NOT_TESTED, 0, 0, item.log10_p, BLIND)
        for item in components
    ]


def without_weak(components: Sequence[ComponentFinding], weak: Collection[str]) -> list[ComponentFinding]:
    """Return the parts, those named as not tested unless they share."""
    return [
        ComponentFinding(item.component, NOT_TESTED, 0, 0, item.log10_p, TOO_WEAK)
        if item.tested and not item.shared and item.component in weak
        else item
        for item in components
    ]


def shows_nothing(item: ComponentFinding | None) -> bool:
    """Whether a part was tested in its place and not shown to share, be what it may keep too little to be sure of or not."""
    return item is not None and not item.shared and (bool(item.tested) or item.note is TOO_WEAK)


def of_one_function(components: Sequence[ComponentFinding]) -> list[ComponentFinding]:
    """Return the parts of models that compute the same function: what was not matched there is not known to be different."""
    return [
        item
        if item.shared == item.tested
        else ComponentFinding(item.component, SHARED, item.shared, item.shared, item.log10_p, SAME_FUNCTION)
        if item.shared
        else ComponentFinding(item.component, NOT_TESTED, 0, 0, None, SAME_FUNCTION)
        for item in components
    ]


def _own_units(tests: Sequence[EvidenceTest]) -> dict[str, bool]:
    """Say of each part whether its own units (neurons, value channels) stand in place, where that was tested."""
    # Their order is drawn anew in every model. What is tested by residual dimensions agrees a little between any two models
    # that were trained on the same embeddings, since these give dimensions a meaning.
    found: dict[str, bool] = {}
    for name, roles in PARTS.items():
        scopes = {role.value for role in roles}
        ps = [t.log10_p_holm for t in tests if t.name == "fixed_points" and str(t.scope) in scopes]
        if known := [p for p in ps if p is not None]:
            found[name] = min(known) <= LAYER_ALPHA
    return found


def _why_absent(probes: tuple[Probe, Probe], roles: Sequence[Role]) -> Text:
    """Say why a part could not be tested, as far as is known without its numbers."""
    a, b = probes
    for side, here, there in (("A", a, b), ("B", b, a)):
        if here.has(roles) and not there.has(roles):
            return _why_missing(side, here, there, roles)
    if a.hidden is not None and b.hidden is not None and a.hidden != b.hidden:
        return Text("shapes differ: model A is {a} wide, model B {b}", a=a.hidden, b=b.hidden)
    return Text("shapes differ, or it was not read")


def _why_missing(side: str, here: Probe, there: Probe, roles: Sequence[Role]) -> Text:
    """Tell a part that the other model lacks from one that it may have under names that no template matches."""
    dimensions = {len(role.info.axes) for role in roles if here.has((role,))}
    dimensions |= {count + 1 for count in dimensions if count > 1}  # experts may be stored together
    could_be = [name for name, shape in there.unmapped.items() if len(shape) in dimensions]
    if not could_be:
        return Text("only model {side} has it", side=side)
    return Text(
        "model {side} has it; in the other it was not recognised: {n} tensors of unknown role could be it ({name}, for one)",
        side=side,
        n=len(could_be),
        name=could_be[0],
    )


def _state(hits: int, tested: int) -> str:
    if not tested:
        return NOT_TESTED
    return SHARED if hits == tested else PARTLY if hits else NOT_SHARED


def _between_strangers(item: ComponentFinding, tests: Sequence[EvidenceTest]) -> ComponentFinding:
    """Take back that a part is shared by residual dimensions alone, unless it is a near-copy."""
    # Strangers share embeddings or head, and no layer.
    own = {role.value for role in _WHOLE[item.component]}
    near = [
        t
        for t in tests
        if t.scope in own and (RESIDUAL_ORDER not in t.assumptions or (t.statistic or 0.0) >= SAME_NORMS)
    ]
    if item.component in ENDS or not item.shared or any((t.log10_p_claim or 0.0) <= LAYER_ALPHA for t in near):
        return item
    return ComponentFinding(item.component, NOT_TESTED, 0, 0, item.log10_p, IN_ONE_BASIS)


def _whole(name: str, tests: Sequence[EvidenceTest], absent: Text) -> ComponentFinding:
    """Judge a part tested over all layers: its best test decides, being corrected for the whole battery; norms role by role."""
    scopes = {role.value for role in _WHOLE[name]}
    own = [test for test in tests if test.scope in scopes]
    ok = [test for test in own if test.status == TESTED and test.log10_p_claim is not None]
    if not ok:
        reason = next((test.reason for test in own if test.reason), None)
        return ComponentFinding(name, NOT_TESTED, 0, 0, None, reason or absent)
    ps = [test.log10_p_claim or 0.0 for test in ok]
    if name != "norms":
        ps = [min(ps)]
        units = max(test.n for test in ok)
        if ps[0] > LAYER_ALPHA and units < LEAST_UNITS:
            note = Text("only {n} units could be permuted: too few to be sure of seeing a copy", n=units)
            return ComponentFinding(name, NOT_TESTED, 0, 0, ps[0], note)
    hits = sum(p <= LAYER_ALPHA for p in ps)
    together = [t.log10_p_claim or 0.0 for t in tests if name == "norms" and t.name == "dimension_fixed_points"]
    if not hits and min(together, default=0.0) <= LAYER_ALPHA:  # no norm by itself, but all of them together
        return ComponentFinding(name, SHARED, 1, 1, min(together))
    return ComponentFinding(name, _state(hits, len(ps)), len(ps), hits, min([*ps, *together]))


def _by_layer(
    name: str,
    found: Mapping[int, float],
    layers: LayerEvidence,
    absent: Text,
    note: Text | None = None,
    aligned: frozenset[int] = frozenset(),
) -> ComponentFinding:
    """Judge a part tested layer by layer: each entry is corrected for the search for its layer and for the layers."""
    # Where only an alignment shows that layers share, those that were compared after it (`aligned`) count as tested, beside those
    # that share in place.
    count = len(layers.alignment.layers)
    corrected = {layer: bonferroni(p, layers.tries) for layer, p in found.items()}
    shared = {layer for layer, p in corrected.items() if p <= LAYER_ALPHA}
    hits = len(shared)
    if shared & aligned:
        tested = len(shared | aligned)
    else:  # a layer of B that matches none of A was tested too, and did not share
        searched = layers.alignment.status == TESTED and name in layers.testable
        tested = max(count, len(corrected)) if searched else len(corrected)
    if not tested:
        reason = layers.alignment.reason if name in layers.testable else absent
        return ComponentFinding(name, NOT_TESTED, 0, 0, None, reason)
    return ComponentFinding(name, _state(hits, tested), tested, hits, min(corrected.values(), default=None), note)


def expert_map(a: Probe, b: Probe, layer_map: LayerMap) -> list[ExpertFinding]:
    """Match each sampled expert of B with the sampled experts of A's layer, or with its dense MLP (upcycling)."""
    # Among many experts the likeliest is chosen by a cheap look at a corner of its weights; the test counts all of them.
    mine, theirs = _experts(b), _experts(a)
    total = sum(len(experts) for experts in mine.values())
    found = []
    for layer, experts in sorted(mine.items()):
        source = layer_map.get(layer)
        if source is None:
            continue
        options: list[int | None] = list(theirs.get(source, ())) or [None]
        corners = _Corners(a, source, options)
        for expert in experts:
            option = corners.likeliest(b, layer, expert)
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


def _signs(pair: SamplePair, probes: tuple[Probe, Probe]) -> float:
    """Return log10 p of the signs of a pair that order matches; minus infinity where its units have no sign symmetry."""
    position = sign_axis(pair.role, probes, {})
    try:
        found = None if position is None else sign_test(pair.role, position, [pair], probes).log10_p
    except DegenerateInput:
        found = None
    return -math.inf if found is None else found


class _Corners:
    """Corners of the up and gate rows of experts, to find those that look most like an expert of another model."""

    def __init__(self, a: Probe, layer: int, options: Sequence[int | None]) -> None:
        self._options = options
        rows: dict[tuple[Role, tuple[int, ...]], dict[int | None, FloatArray]] = {}
        for role in DENSE_ROLES if len(options) > 1 else ():
            for option in options:
                if (sample := a.samples.get((role, layer, option))) is not None:
                    found = corner(sample)
                    rows.setdefault((role, found.shape), {})[option] = found.ravel()
        self._tables = {key: ([*found], np.stack([*found.values()])) for key, found in rows.items()}

    def likeliest(self, b: Probe, layer: int, expert: int) -> int | None:
        """Return the expert whose up (or gate) rows look most like those of one expert of B."""
        for role in DENSE_ROLES:
            if (mine := b.samples.get((role, layer, expert))) is not None:
                wanted = corner(mine)
                if (known := self._tables.get((role, wanted.shape))) is not None:
                    options, table = known
                    return options[int(np.argmax(table @ wanted.ravel()))]
        return self._options[0]


def _expert_p(a: Probe, b: Probe, source: int, layer: int, option: int | None, expert: int) -> float | None:
    ps = []
    for role, dense in DENSE_ROLES.items():
        mine = b.samples.get((role, layer, expert))
        other = a.samples.get((role, source, option) if option is not None else (dense, source, None))
        if mine is None or other is None or mine.stored.shape[1] != other.stored.shape[1]:
            continue
        if (mine.rows or (0, 0))[0] != (other.rows or (0, 0))[0] or not (mine.finite and other.finite):
            continue
        pair = SamplePair(role, layer, expert, other, mine)
        if (p := row_test(role, [pair]).log10_p) is not None:
            ps.append(max(p, _signs(pair, (a, b))) if p < 0.0 else p)
    return bonferroni(min(ps), len(ps)) if ps else None
