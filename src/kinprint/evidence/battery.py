"""List the families of exact tests, and run every test that two probes allow.

A family is a function from a `ProbePair` and a role to a test, or None where the role is not its own; DegenerateInput switches the
test off, with the reason. A new family is one such function (in a file of its own, beside `kinprint.evidence.exact_tests`) and one
line in `FAMILIES`; its name goes into `kinprint.evidence.words` and the labels of `kinprint.render.texts`.
"""

from collections.abc import Callable, Mapping
from functools import partial

from kinprint._util.records import dataclass
from kinprint.arch import Role
from kinprint.errors import DegenerateInput
from kinprint.evidence.attempts import attempt, beside
from kinprint.evidence.dimension_test import dimension_test
from kinprint.evidence.exact_tests import head_test, matrix_test, norm_test, row_test, token_test
from kinprint.evidence.exchangeability import ProbePair
from kinprint.evidence.probe import LayerMap, Probe, SamplePair, has_neuron_rows, is_residual_norm
from kinprint.evidence.sign_tests import sign_axis, sign_test
from kinprint.results.findings import OFF, SIGN_FLIPS, EvidenceTest
from kinprint.text import Text, verbatim

Family = Callable[[ProbePair, Role], EvidenceTest | None]


def _norms(pair: ProbePair, role: Role) -> EvidenceTest | None:
    group = pair.slices.get(role)
    return norm_test(role, group, pair.ordered, pair.seed) if group and is_residual_norm(role) else None


def _matrices(pair: ProbePair, role: Role) -> EvidenceTest | None:
    group = pair.slices.get(role)
    if role is Role.EMBEDDING and pair.numbered_tokens is not None:
        raise DegenerateInput(pair.numbered_tokens)
    return matrix_test(role, group, pair.ordered, pair.seed) if group and role.info.kind == "matrix" else None


def _rows(pair: ProbePair, role: Role) -> EvidenceTest | None:
    group, b = pair.slices.get(role), pair.b
    if group and has_neuron_rows(role):
        return row_test(role, group)
    if group and role is Role.ATTN_V and b.kv_heads and pair.a.kv_heads == b.kv_heads:
        return row_test(role, group, b.head_size(group[0].b))  # values carry no rotary position
    if group and role is Role.MIXER_VALUE and b.mixer_head and pair.a.mixer_head == b.mixer_head:
        return row_test(role, group, b.mixer_head)
    return None


def _heads(pair: ProbePair, role: Role) -> EvidenceTest | None:
    read = [(layer, sample) for (of, layer, _), sample in pair.b.heads.items() if of is role and layer is not None]
    sources = [(pair.a.heads.get((role, pair.layer_map.get(layer, -1), None)), sample) for layer, sample in read]
    blocks = [(one, two) for one, two in sources if one is not None]
    return head_test(role, blocks) if blocks else None


def _tokens(pair: ProbePair, role: Role) -> EvidenceTest | None:
    one, two = (probe.tokens.get((role, None, None)) for probe in (pair.a, pair.b))
    if one is not None and pair.numbered_tokens is not None:
        raise DegenerateInput(pair.numbered_tokens)
    return token_test(one, two, pair.ordered, pair.seed) if one is not None and two is not None else None


def _dimensions(pair: ProbePair, role: Role) -> EvidenceTest | None:
    """Look at all norms together, once: at the turn of the first role among them."""
    norms = [one for one in pair.slices if is_residual_norm(one)]
    if not norms or role is not norms[0]:
        return None
    return dimension_test([slices for one in norms for slices in pair.slices[one]], pair.ordered)


def _signs(pair: ProbePair, role: Role) -> EvidenceTest | None:
    group, probes = pair.slices.get(role), (pair.a, pair.b)
    one, two = (probe.tokens.get((role, None, None)) for probe in probes)
    if one is not None and two is not None:  # by token string, as vocabularies may differ
        group = [SamplePair(role, None, None, one, two)]
    position = sign_axis(role, probes, {**pair.a.ordered, **pair.b.ordered}) if group else None
    return None if not group or position is None else sign_test(role, position, group, probes)


FAMILIES: tuple[Mapping[str, Family], ...] = (
    {"norm_joint": _norms, "matrix_correlation": _matrices, "fixed_points": _rows},
    {"head_fixed_points": _heads},
    {"token_rows": _tokens},
    {"dimension_fixed_points": _dimensions},
    {SIGN_FLIPS: _signs},
)
"""Names of tests and their families, in the order of reports: those of one line alternate, role by role."""


BESIDE = frozenset({"fixed_points", "head_fixed_points", "token_rows", "dimension_fixed_points", SIGN_FLIPS})
"""Tests that of wide models run beside the others: half of the work, and none of it is asked for again by the summary."""


@dataclass(frozen=True)
class _Found:
    """Tests by their number, as they come from a fork."""

    numbers: tuple[int, ...]
    tests: tuple[EvidenceTest, ...]


def run_battery(a: Probe, b: Probe, layer_map: LayerMap, *, seed: int = 0) -> list[EvidenceTest]:
    """Run every test that the two probes allow. What an assumption forbids is in the list too, switched off."""
    pair = ProbePair(a, b, layer_map, seed)
    read = {key[0] for probe in (a, b) for slices in (probe.samples, probe.heads, probe.tokens) for key in slices}
    roles = [role for role in Role if role in read]
    every = [(name, family, role) for line in FAMILIES for role in roles for name, family in line.items()]

    def run(*, others: bool) -> _Found:
        found: dict[int, EvidenceTest] = {}
        for number, (name, family, role) in enumerate(every):
            if (name in BESIDE) is others and (test := _guarded(name, family, pair, role)) is not None:
                found[number] = test
        return _Found(tuple(found), tuple(found.values()))

    rest = partial(run, others=True)
    begun = beside(rest, _Found) if a.is_wide and b.is_wide else rest
    parts = run(others=False), begun()
    tests = {number: test for part in parts for number, test in zip(part.numbers, part.tests, strict=True)}
    return [tests[number] for number in sorted(tests)]


def _guarded(name: str, family: Family, pair: ProbePair, role: Role) -> EvidenceTest | None:
    def off(reason: Text) -> EvidenceTest | None:
        return EvidenceTest(name, verbatim(role.value), status=OFF, reason=reason)

    try:
        return attempt(lambda: family(pair, role), off)
    except DegenerateInput as error:
        return off(error.reason)
