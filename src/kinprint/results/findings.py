"""Define the verdict and its evidence: tests, layer map, components, edits, controls, power, fingerprint methods.

``class_`` is written as ``class`` in JSON: a trailing underscore only keeps a Python keyword apart.
"""

from dataclasses import field

from kinprint._util.records import dataclass
from kinprint.results.later import LATER
from kinprint.results.p_values import PMethod
from kinprint.text import Text, labelled

IDENTICAL = "identical"
DERIVED = "derived"
SHARES_COMPONENTS = "shares_components"
SHARES_INITIALISATION = "shares_initialisation"
NO_EVIDENCE = "no_evidence"
NOT_TESTABLE = "not_testable"
CLASSES = (IDENTICAL, DERIVED, SHARES_COMPONENTS, SHARES_INITIALISATION, NO_EVIDENCE, NOT_TESTABLE)

SAME_STRUCTURE = "same_structure"  # variant of no evidence: places agree, signs of weights do not
PART, UNCLEAR = "part", "unclear"
"""Variants of shared initialisation and components: of a part alone; training or start, and which is not known."""

NOTHING_SAID = Text("")

FORWARD, BACKWARD = "forward", "backward"

SIGN_FLIPS = "sign_flips"  # the test that supports tests of order, and claims nothing alone

TESTED = "ok"
OFF = "off"  # an assumption fails or the input is degenerate: the reason says which


@dataclass(frozen=True)
class EvidenceTest:
    """One test of the hypothesis that the two models share nothing.

    Parameters
    ----------
    name, scope : Which test, and of which role or group of roles.
    layer, expert : Where, if it is of one place; None for a test over all layers.
    statistic, null_mean, null_sd, z : Observed value, and what it does if the models are unrelated.
    log10_p : One-sided towards "related", before correction; ``log10_p_holm`` after Holm's correction over the battery.
    log10_p_signs : The same, corrected, of the signs of the same units; None where they have no sign symmetry.
    negated : Of a test of signs: how much of the agreement up to sign has the other sign, from 0 to 1.
    n, blocks : Exchangeable units permuted, and layers (or experts) that entered.
    null, p_method, assumptions : What is permuted, how the p-value was had, and what must hold. ``p_detail`` has the method
        in words, where those say more than its label.
    status, reason : "ok", or "off" with the reason; an "off" test has no numbers.
    """

    name: str
    scope: Text
    layer: int | None = None
    expert: int | None = None
    statistic: float | None = None
    null_mean: float | None = None
    null_sd: float | None = None
    z: float | None = None
    log10_p: float | None = None
    log10_p_holm: float | None = None
    n: int = 0
    blocks: int = 0
    null: Text = NOTHING_SAID
    p_method: PMethod | None = None
    assumptions: tuple[Text, ...] = ()
    status: str = TESTED
    reason: Text | None = None
    p_detail: Text | None = None
    log10_p_signs: float | None = field(default=None, metadata=LATER)
    negated: float | None = field(default=None, metadata=LATER)

    @property
    def log10_p_claim(self) -> float | None:
        """What a claim about weights may rest on: the weaker of order and signs, where the units have a sign symmetry."""
        if self.log10_p_holm is None or self.name == SIGN_FLIPS:
            return None
        return self.log10_p_holm if self.log10_p_signs is None else max(self.log10_p_holm, self.log10_p_signs)

    @property
    def bound(self) -> bool:
        """Whether the true p-value may be smaller than the figure given."""
        return self.p_method is not None and self.p_method.bound

    @property
    def p_text(self) -> Text:
        """Method of the p-value, in words."""
        return self.p_detail or (self.p_method.label if self.p_method else NOTHING_SAID)


@dataclass(frozen=True)
class LayerFinding:
    """One layer of B: which layer of A it matches, and on what evidence. ``tries`` is the search it was corrected for.

    ``also`` are further layers of A that it matches, where A repeats layers.
    """

    layer: int
    source: int | None
    correlation: float | None
    z: float | None
    log10_p: float | None
    tries: int
    shared: bool
    runner_up: int | None = None
    runner_up_z: float | None = None
    also: tuple[int, ...] = field(default=(), metadata=LATER)

    @property
    def sources(self) -> tuple[int, ...]:
        """All layers of A that share weights with this one."""
        return (self.source, *self.also) if self.shared and self.source is not None else ()


@dataclass(frozen=True)
class LayerAlignment:
    """Layer of A that each layer of B matches. Matrices decide; norms forgive wrong maps and do not enter.

    A layer in ``layers`` without a source was read and matches none. Of those in ``unread`` (of B) and ``unread_a`` nothing is
    known.
    """

    status: str
    kind: str  # "identity", "subsequence", "monotone with repeats", "blocks", "shuffled", "partial", "none"
    layers: tuple[LayerFinding, ...]
    scopes: tuple[str, ...]  # roles whose row slices entered
    reason: Text | None = None
    unread: tuple[int, ...] = field(default=(), metadata=LATER)
    unread_a: tuple[int, ...] = field(default=(), metadata=LATER)

    @property
    def matches(self) -> list[tuple[int, int]]:
        """Every layer of A with each layer of B that matches it."""
        return [(source, item.layer) for item in self.layers for source in item.sources]

    @property
    def moved(self) -> bool:
        """Whether a layer of B matches one of A that stands elsewhere."""
        return any(source != layer for source, layer in self.matches)


@dataclass(frozen=True)
class ComponentFinding:
    """One part of the model: whether weights are shared there, and in how many places."""

    component: str
    state: str  # "shared", "partly shared", "not shared", "not tested"
    tested: int
    shared: int
    log10_p: float | None
    note: Text | None = None


@dataclass(frozen=True)
class ExpertFinding:
    """One expert of B: which expert of A (or A's dense MLP, source None) it matches."""

    layer: int
    expert: int
    source: int | None
    log10_p: float | None
    shared: bool


@dataclass(frozen=True)
class EditFinding:
    """Change of one kind of tensor, as the slices of all its layers show."""

    scope: str
    edit: str
    tensors: int
    identical: int
    changed_share: float | None
    mean_ulps: float | None
    slope: float | None
    correlation: float | None
    relative_difference: float | None
    zeros_a: float | None
    zeros_b: float | None
    bits: int | None = None
    rank: int | None = None
    noise: float | None = None
    reasons: tuple[Text, ...] = ()
    direction: str | None = field(default=None, metadata=LATER)  # "forward" if B looks made from A; None if unknown


@dataclass(frozen=True)
class MergeFinding:
    """B as a weighted sum of given parents, by least squares over everything that was read of all of them."""

    parents: tuple[str, ...]
    coefficients: tuple[float, ...]
    standard_errors: tuple[float, ...]
    r_squared: float
    gain: float  # share explained of what the best single parent leaves unexplained
    elements: int
    note: Text | None = None
    alternative: Text | None = field(default=None, metadata=LATER)  # what else may be merged in; None if B is explained


@dataclass(frozen=True)
class FunctionFinding:
    """Whether two models compute the same function: their logits on random tokens, beside what rounding does to them.

    ``same`` is None where it was not checked. ``difference`` is relative to the size of the logits, and ``rounding`` what storing
    both models makes of it, at ``positions`` in random text, over the ``tokens`` that both have: ``all_tokens`` of both, or not.
    """

    same: bool | None
    difference: float | None = None
    rounding: float | None = None
    positions: int = 0
    tokens: int = 0
    all_tokens: bool = True
    reason: Text | None = None

    @property
    def same_how(self) -> Text:
        """How far the function is the same, where it is."""
        whole = Text("the same function, up to rounding")
        return whole if self.all_tokens else Text("the same function of the tokens that both have, up to rounding")

    @property
    def said(self) -> Text:
        """What was found, in a line."""
        if self.reason is not None:
            return Text("not checked: {why}", why=self.reason) if self.same is None else self.reason
        figures = Text(
            "at {n} places in random tokens, the logits of {m} tokens differ by {x:.1e} of their size; rounding makes {y:.1e}",
            n=self.positions,
            m=self.tokens,
            x=self.difference,
            y=self.rounding,
        )
        return labelled(Text("both compute {how}", how=self.same_how), figures) if self.same else figures


@dataclass(frozen=True)
class ControlFinding:
    """A comparison whose answer is known, run by the same code."""

    name: str
    expected: str
    status: str  # "passed", "failed", "not run"
    found: str | None  # class of verdict
    log10_p: float | None
    z: float | None
    reason: Text | None = None


@dataclass(frozen=True)
class PowerFinding:
    """The weakest relation that one test would have seen with probability ``power`` at level ``log10_alpha``."""

    name: str
    scope: str
    quantity: Text  # "correlation of norm scales", "cosine of rows"
    least: float | None
    power: float
    log10_alpha: float
    n: int
    width: int | None
    blocks: int
    reason: Text | None = None


@dataclass(frozen=True)
class Rule:
    """One step of the reasoning: question, inputs, whether the rule fired, and what followed."""

    name: str
    question: Text
    inputs: tuple[Text, ...]
    fired: bool
    outcome: str


@dataclass(frozen=True)
class Verdict:
    """Where the pair stands in the lattice, in one sentence, and why."""

    class_: str
    kind: str | None
    sentence: Text
    log10_p: float | None
    layer_map: tuple[int | None, ...] | None  # for each layer of B the layer of A, or None
    reasons: tuple[Text, ...]  # strongest evidence for
    against: tuple[Text, ...]  # what speaks against, or limits
    untested: tuple[Text, ...]
    assumptions: tuple[Text, ...]
    rules: tuple[Rule, ...]
    log10_alpha: float
    tests: int  # how many p-values the correction was for
    null: Text | None = None  # the empirical null used, if a test needed one
    variant: str | None = field(default=None, metadata=LATER)  # of the kind, where one has several
    kinds: tuple[str, ...] = field(default=(), metadata=LATER)  # every edit that shows; ``kind`` sums them up


@dataclass(frozen=True)
class Evidence:
    """Evidence that the verdict rests on."""

    tests: tuple[EvidenceTest, ...]
    alignment: LayerAlignment
    components: tuple[ComponentFinding, ...]
    experts: tuple[ExpertFinding, ...]
    edits: tuple[EditFinding, ...]
    merge: MergeFinding | None
    controls: tuple[ControlFinding, ...]
    power: tuple[PowerFinding, ...]
    stages: tuple[Text, ...]  # what was read when, with bytes, and why the next stage was or was not entered
    function: FunctionFinding | None = field(default=None, metadata=LATER)  # None where there was no reason to look


BEYOND, INSIDE, NO_NULL = "beyond its null", "inside its null", "no null"


@dataclass(frozen=True)
class MethodNull:
    """Scores of unrelated models by one method, and how far this pair is from them.

    Parameters
    ----------
    name : What was permuted or drawn, or which empirical null.
    exact : Whether it holds whatever the models were trained on. An empirical null speaks for models like those it was made
        from.
    mean, sd, z, log10_p : Of the method's value; p one-sided, towards "more alike". An empirical p-value is never below
        1/(n + 1).
    largest : The largest value of any unrelated pair, for an empirical null.
    n : Units permuted, or pairs of models.
    """

    name: Text
    exact: bool
    mean: float | None
    sd: float | None
    z: float | None
    log10_p: float | None
    largest: float | None
    n: int
    assumptions: tuple[Text, ...] = ()


@dataclass(frozen=True)
class MethodDetail:
    """A further figure of a method, by name."""

    name: str
    value: float


@dataclass(frozen=True)
class MethodFinding:
    """One row of the table of methods: the value beside its nulls. ``value`` is None where the method is off."""

    method: str
    title: Text
    version: int
    needs: tuple[str, ...]
    status: str
    reason: Text | None = None
    value: float | None = None
    reading: str = NO_NULL
    chance: MethodNull | None = None
    empirical: MethodNull | None = None
    details: tuple[MethodDetail, ...] = ()
    layers: tuple[tuple[int, int], ...] = ()  # layer of B, layer of A
    notes: tuple[Text, ...] = ()
    references: tuple[str, ...] = ()


@dataclass(frozen=True)
class TowerFinding:
    """What a comparison of two towers found that stand beside the main models: encoders of pictures or of sound.

    ``class_`` is None where they could not be compared; ``sentence`` is the verdict's, or the reason.
    """

    tower: str
    layers_a: int
    layers_b: int
    compared: int  # tensors
    class_: str | None
    log10_p: float | None
    sentence: Text
    kind: str | None = None
