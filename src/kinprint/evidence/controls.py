"""Run comparisons whose answer is known, by the same code, beside every verdict."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial

from kinprint._util.cores import aside, in_a_thread, may_fork
from kinprint._util.records import dataclass
from kinprint.errors import KinprintError
from kinprint.evidence.assess import Assessment, assess
from kinprint.evidence.attempts import attempt, note, noting
from kinprint.evidence.power import KEPT, planted_probe
from kinprint.evidence.probe import Probe
from kinprint.evidence.reading import read_probe
from kinprint.evidence.rules import LOG10_ALPHA
from kinprint.evidence.words import word
from kinprint.model.model import Model, open_model
from kinprint.model.reader import Want
from kinprint.refs import public
from kinprint.results.findings import IDENTICAL, NO_EVIDENCE, ControlFinding, PowerFinding
from kinprint.results.options import Options
from kinprint.results.plain_json import between_forks
from kinprint.sources.session import Session
from kinprint.text import Text

PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"
RELATED = "related"
SELF, SHUFFLED = "self", "shuffled self"
Controls = tuple[list[ControlFinding], frozenset[tuple[str, str]]]
"""Controls, and tests, by name and scope, that see a copy."""

CONTROL_LAYERS = 8
WIDE_LAYERS, WIDE_ROWS = 3, 16
"""Of wide models three layers and half of the rows show that the tests work: 16! = 10¹³ orders of rows."""


def own_controls(a: Probe, *, seed: int) -> Controls:
    """Run A against itself, which must be identical, and against itself with all free orders drawn anew: unrelated."""
    # Beside the two findings come the tests, by name and scope, that reach the threshold on a copy: no others could.
    a = _thinned(a)  # these show that the tests work on this model, for which some layers do
    same, shuffled = assess(a, a, seed=seed), assess(a, a.shuffled(seed + 1), seed=seed)
    return [_judged(SELF, IDENTICAL, same), _judged(SHUFFLED, NO_EVIDENCE, shuffled)], _reached(same)


def _thinned(probe: Probe) -> Probe:
    return probe.thinned(WIDE_LAYERS, WIDE_ROWS) if probe.is_wide else probe.thinned(CONTROL_LAYERS)


def control_layers(*probes: Probe) -> int:
    """Return how many layers controls look at, at most."""
    return WIDE_LAYERS if all(probe.is_wide for probe in probes) else CONTROL_LAYERS


def both_controls(of_a: Controls, of_b: Controls) -> Controls:
    """Join the controls of both models, so that their order does not matter: where those of B go wrong, these are reported."""
    (mine, able), (others, seen) = of_a, of_b
    worse = []
    for one, two in zip(mine, others, strict=True):
        instead = replace(two, reason=Text("model {side}: {why}", side="B", why=two.reason))
        worse.append(one if one.status == FAILED or two.status == PASSED else instead)
    return worse, able & seen


@dataclass(frozen=True)
class _Run:
    """Controls as they come from a fork, with why tests could not run."""

    findings: tuple[ControlFinding, ...]
    able: tuple[tuple[str, str], ...]
    broken: tuple[Text, ...]


MOST_DONE = 64  # answers kept
_DONE: dict[Hashable, _Run] = {}
"""Controls that ran: of several models that are compared in pairs, each is controlled once."""


def both_controls_aside(a: Probe, b: Probe, *, seed: int) -> Callable[[], Controls]:
    """Begin the controls of both models, beside what else is done; what is returned waits for them."""

    def run(few: Probe) -> _Run:
        with noting() as broken:
            found, able = attempt(lambda: own_controls(few, seed=seed), failed_controls)
        return _Run(tuple(found), tuple(sorted(able)), tuple(broken))

    def begin(few: Probe) -> Callable[[], _Run]:
        key = few.contents(), seed
        if (known := _DONE.get(key)) is not None:
            return lambda: known
        in_threads = not may_fork() and a.is_wide and b.is_wide  # narrow ones would wait for the interpreter
        running = in_a_thread(partial(run, few)) if in_threads else aside(partial(run, few), *between_forks(_Run))

        def wait() -> _Run:
            found = running()
            while len(_DONE) >= MOST_DONE:
                _DONE.pop(next(iter(_DONE)), None)
            if not found.broken:
                _DONE[key] = found
            return found

        return wait

    begun = [begin(_thinned(probe)) for probe in (a, b)]  # thinned now: more may be read into the probes meanwhile

    def wait() -> Controls:
        found = [each() for each in begun]
        note([why for one in found for why in one.broken])
        of_a, of_b = ((list(one.findings), frozenset(one.able)) for one in found)
        return both_controls(of_a, of_b)

    return wait


def failed_controls(why: Text) -> Controls:
    """Return what stands for the controls where they could not be run: failures, which forbid a verdict."""
    known = ((SELF, IDENTICAL), (SHUFFLED, NO_EVIDENCE))
    return [ControlFinding(name, expected, FAILED, None, None, None, why) for name, expected in known], frozenset()


def _reached(assessment: Assessment) -> frozenset[tuple[str, str]]:
    return frozenset((t.name, str(t.scope)) for t in assessment.tests if (t.log10_p_claim or 0.0) <= LOG10_ALPHA)


def able_tests(probes: tuple[Probe, Probe], power: Sequence[PowerFinding], *, seed: int) -> frozenset[tuple[str, str]]:
    """Return tests, by name and scope, that see a relation of strength `KEPT`: those known to, else all, by planting it."""
    known = frozenset((item.name, item.scope) for item in power if item.least is not None and item.least <= KEPT)
    if known:
        return known
    found = []
    for probe in probes:
        few = _thinned(probe)
        found.append(_reached(assess(few, planted_probe(few, few.shuffled(seed + 1), KEPT), seed=seed)))
    return found[0] & found[1]


def run_controls(options: Options, a: Probe, session: Session) -> list[ControlFinding]:
    """Run A against each control that the user gave. One that cannot be read is reported, not dropped."""
    found = []
    wanted = [(ref, NO_EVIDENCE) for ref in options.controls] + [(ref, RELATED) for ref in options.related]
    for reference, expected in wanted:
        name = public(reference)
        not_run = partial(ControlFinding, name, expected, NOT_RUN, None, None, None)
        try:
            found.append(attempt(partial(_held_against, reference, name, expected, options, a, session), not_run))
        except KinprintError as error:
            found.append(not_run(error.reason))
    return found


def _held_against(
    reference: str, name: str, expected: str, options: Options, a: Probe, session: Session
) -> ControlFinding:
    probe = read_alike(open_model(reference, session), a, session.remaining_bytes)
    return _judged(name, expected, assess(a, probe, seed=options.seed))


def read_alike(model: Model, like: Probe, allowance: int | None) -> Probe:
    """Read of a model the same slices that another probe has, as far as it has such tensors and the budget lets."""
    wants = []
    for key, part in model.parts.items():
        sample = like.samples.get(key)
        if sample is None or len(part.shape) != len(sample.shape):
            continue
        if sample.rows is None or sample.rows[1] <= part.shape[0]:
            wants.append(Want(*key, sample.rows, sample.columns))
    return read_probe(model, wants, allowance)


def classify(assessment: Assessment) -> str:
    """Return the class that a control is held to: identical, related, or nothing."""
    identity = assessment.identity
    if identity.same_structure and identity.identical == identity.tensors > 0:
        return IDENTICAL
    return RELATED if assessment.log10_p <= LOG10_ALPHA else NO_EVIDENCE


def _judged(name: str, expected: str, assessment: Assessment) -> ControlFinding:
    strongest, found = assessment.strongest, classify(assessment)
    if strongest is None and not assessment.identity.tensors:
        return ControlFinding(name, expected, NOT_RUN, None, None, None, Text("nothing was read"))
    if strongest is None and name == SHUFFLED:  # nothing is claimed of such models, so nothing can be claimed falsely
        return ControlFinding(name, expected, PASSED, NO_EVIDENCE, None, None, Text("no test applies"))
    if strongest is None and name != SELF:
        return ControlFinding(name, expected, NOT_RUN, None, None, None, Text("no test applies to this pair"))
    if name == SHUFFLED and found == IDENTICAL:  # constants survive any shuffle; a test must not see anything
        found = RELATED if assessment.log10_p <= LOG10_ALPHA else NO_EVIDENCE
    passed = found == expected or (expected == RELATED and found == IDENTICAL)
    log10_p, z = (None, None) if strongest is None else (assessment.log10_p, strongest.z)
    reason = None if passed else Text("expected {a}, found {b}", a=word(expected), b=word(found))
    return ControlFinding(name, expected, PASSED if passed else FAILED, found, log10_p, z, reason)
