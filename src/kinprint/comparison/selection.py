"""Choose which tensors of two models are compared, and how many rows of each fit the byte budget. Nothing is read."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache

from kinprint._util.numeric import evenly_spaced
from kinprint._util.records import dataclass
from kinprint.arch import Axis, Role, RoleTensor
from kinprint.arch.roles import AXES, role_named
from kinprint.errors import BadSelection
from kinprint.formats.plan import Run
from kinprint.model.model import Model
from kinprint.model.reader import Want
from kinprint.results.measurements import Skipped
from kinprint.results.options import Options
from kinprint.text import Text

MAX_ELEMENTS = 32_768  # of one matrix: enough to see a correlation of 0.03, and what a test costs grows with it
MIN_PERMUTED_ROWS = 16  # where the rows are what is permuted (o_proj): 4! = 24 orders could show nothing
MIN_ROWS = 4  # fewer rows say little; then layers are left out instead


@dataclass(frozen=True, slots=True)
class Pair:
    """Two tensors of the same role, layer and expert; ``reason`` says why they cannot be compared, if so."""

    role: Role
    layer: int | None
    expert: int | None
    a: RoleTensor
    b: RoleTensor
    rows: Run | None = None
    columns: Run | None = None
    reason: Text | None = None

    @property
    def is_matrix(self) -> bool:
        """Whether rows can be left out."""
        return len(self.a.shape) == 2

    @property
    def want(self) -> Want:
        """Rows and columns to read on either side."""
        return Want(self.role, self.layer, self.expert, self.rows, self.columns)


def parse_layers(text: str | None, count: int) -> set[int] | None:
    """Read ``0,5,10-20`` (inclusive, as people mean it) as layer numbers below `count`; None means all."""
    if text is None:
        return None
    chosen: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not _is_number(first) or (dash and not _is_number(last)):
            raise BadSelection(f"cannot read {text!r} as layers: expected numbers and ranges, such as 0,5,10-20")
        low, high = int(first), int(last) if dash else int(first)
        if high < low:
            raise BadSelection(f"cannot read {part.strip()!r} as layers: the range runs backwards")
        chosen.update(range(low, min(high, count - 1) + 1))
    if not chosen:
        raise BadSelection(f"no layer of {text!r} exists in both models: they share layers 0 to {count - 1}")
    return chosen


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


MOST_MEASUREMENTS = 120_000  # of 570 bytes each, which with the layer grids is what a report may have
OTHER_ROLE, OTHER_LAYER = Text("its role was not asked for"), Text("its layer was not asked for")


def pair_up(a: Model, b: Model, options: Options) -> tuple[list[Pair], list[Skipped]]:
    """Pair tensors by role, layer and expert. Whatever has no partner, or was not asked for, is counted with a reason."""
    shared_layers = min(a.naming.layers, b.naming.layers)
    layers = parse_layers(options.layers, shared_layers) if shared_layers else None
    roles = set(map(role_named, options.roles))
    experts = set(evenly_spaced(range(min(a.naming.experts, b.naming.experts)), max(options.experts, 0)))
    right = dict(b.parts)
    not_sampled = Text(
        "its expert was not sampled ({n} of {m} experts are; see --experts)", n=len(experts), m=a.naming.experts
    )
    pairs: list[Pair] = []
    left_out: dict[Text, list[str]] = {}
    for part in a.naming.tensors:
        partner = right.pop(part.key, None)
        reason = None
        if roles and part.role not in roles:
            reason = OTHER_ROLE
        elif layers is not None and part.layer is not None and part.layer not in layers:
            reason = OTHER_LAYER
        elif partner is None:
            reason = _unpaired("A", "B", part, b)
        elif part.expert is not None and part.expert not in experts:
            reason = not_sampled
        if reason is not None:
            left_out.setdefault(reason, []).append(part.name)
        elif partner is not None:
            unlike = _mismatch(part.role, part.shape, partner.shape)
            pairs.append(Pair(part.role, part.layer, part.expert, part, partner, reason=unlike))
    for part in right.values():
        asked_for = not roles or part.role in roles
        reason = _unpaired("B", "A", part, a) if asked_for else OTHER_ROLE
        left_out.setdefault(reason, []).append(part.name)
    if (count := len(pairs) * len(options.metrics)) > MOST_MEASUREMENTS:
        said = f"{count} measurements were asked for; a report holds {MOST_MEASUREMENTS}"
        raise BadSelection(said, hint="choose --metrics, --roles, --layers or fewer --experts")
    most_first = sorted(left_out.items(), key=lambda item: -len(item[1]))
    return pairs, [Skipped(Text("tensors"), len(names), why, tuple(names[:3])) for why, names in most_first]


def _unpaired(side: str, other: str, part: RoleTensor, model: Model) -> Text:
    layers, experts = model.naming.layers, model.naming.experts
    too_deep = part.layer is not None and part.layer >= layers
    too_many = part.expert is not None and part.expert >= experts > 0
    return _why_unpaired(side, other, part.role, layers if too_deep else None, experts if too_many else None)


@cache  # one text for all tensors that it is said of: a mixture of experts has a hundred thousand
def _why_unpaired(side: str, other: str, role: Role, layers: int | None, experts: int | None) -> Text:
    if layers is not None:
        return Text("model {side} has only {n} layers", side=other, n=layers)
    if experts is not None:
        return Text("model {side} has only {n} experts", side=other, n=experts)
    return Text("only model {side} has the role {role} there", side=side, role=role.value)


def _mismatch(role: Role, a: tuple[int, ...], b: tuple[int, ...]) -> Text | None:
    """Return why shapes rule out a comparison; heads, neurons or tokens may differ in number: common rows are compared."""
    if len(a) != len(b) or len(a) not in (1, 2):
        return Text("shapes {a} and {b} have no common form", a=str(a), b=str(b))
    if 0 in (*a, *b):
        return Text("shapes {a} and {b} leave nothing to compare", a=str(a), b=str(b))
    axes = role.info.axes
    if len(a) == 1 and a != b:
        return Text("{axis} counts differ: {a} and {b}", axis=AXES[axes[0]], a=a[0], b=b[0])
    if axes[0] is Axis.RESIDUAL and a[0] != b[0]:  # a prefix of another model's residual stream is no counterpart
        return Text("{axis} counts differ: {a} and {b} rows", axis=AXES[axes[0]], a=a[0], b=b[0])
    if a[1:] != b[1:]:
        return Text("{axis} counts differ: {a} and {b} columns", axis=AXES[axes[1]], a=a[1], b=b[1])
    return None


def fit_budget(
    pairs: Sequence[Pair], a: Model, b: Model, *, rows: int, budget_bytes: int | None
) -> tuple[list[Pair], list[Skipped]]:
    """Give every matrix as many rows, up to `rows`, as the budget allows all of them; vectors are read whole, first."""
    # If even `MIN_ROWS` rows do not fit, matrices keep every second, third, … layer until they do; if vectors alone do not
    # fit, they are thinned likewise. What is left out is counted.
    usable = [pair for pair in pairs if pair.reason is None]
    blocked = [pair for pair in pairs if pair.reason is not None]
    vectors, matrices = [p for p in usable if not p.is_matrix], [p for p in usable if p.is_matrix]
    matrices = [_placed(pair, rows) for pair in matrices]
    if budget_bytes is None:
        return [*vectors, *matrices, *blocked], []
    skipped: list[Skipped] = []
    kept_vectors = _thin(vectors, a, b, budget_bytes)
    left = budget_bytes - _cost(kept_vectors, a, b)

    def with_rows(count: int) -> list[Pair]:
        return [_placed(pair, count) for pair in matrices]

    kept_matrices = matrices
    if _cost(matrices, a, b) > left:  # few models need to search for it
        counts = list(_descending(rows))
        # fewer rows cost no more
        fits = bisect_left(counts, True, key=lambda count: _cost(with_rows(count), a, b) <= left)
        kept_matrices = with_rows(counts[fits]) if fits < len(counts) else _thin(with_rows(counts[-1]), a, b, left)
    for kind, before, after in ((Text("vectors"), vectors, kept_vectors), (Text("matrices"), matrices, kept_matrices)):
        if len(after) < len(before):
            why = Text("the byte budget does not allow them; see --budget")
            skipped.append(Skipped(kind, len(before) - len(after), why))
    return [*kept_vectors, *kept_matrices, *blocked], skipped


def _descending(rows: int) -> Iterable[int]:
    count = rows
    while count > MIN_ROWS:
        yield count
        count = count * 3 // 4
    yield min(rows, MIN_ROWS)


def _placed(pair: Pair, rows: int) -> Pair:
    """Choose which rows to read. Token rows start a quarter into the vocabulary: the first are special tokens and bytes."""
    # Where the rows are what is permuted, many are needed, and long ones are cut after reading to keep the cost down.
    total, width = min(pair.a.shape[0], pair.b.shape[0]), pair.a.shape[1]
    by_rows = not pair.role.info.axes[1].exchangeable and pair.role.info.axes[0].exchangeable
    count = min(rows, total, max(MIN_PERMUTED_ROWS if by_rows else MIN_ROWS, MAX_ELEMENTS // width))
    start = total // 4 if pair.role.info.axes[0] is Axis.TOKEN else 0
    start = min(start, total - count)
    whole = count == total and pair.a.shape == pair.b.shape
    kept = max(1, MAX_ELEMENTS // count)
    columns = (0, kept) if by_rows and kept < width else None
    return replace(pair, rows=None if whole else (start, start + count), columns=columns)


def _cost(pairs: Sequence[Pair], a: Model, b: Model) -> int:
    """Return the bytes the pairs need; a stored tensor that several roles share whole (fused, transposed) counts once."""
    seen: set[tuple[int, str]] = set()
    total = 0
    for pair in pairs:
        want = pair.want
        for number, (model, part) in enumerate(((a, pair.a), (b, pair.b))):
            if part.transposed:
                if (number, part.name) in seen:
                    continue
                seen.add((number, part.name))
            total += model.cost(want)
    return total


def _thin(pairs: Sequence[Pair], a: Model, b: Model, budget_bytes: int) -> list[Pair]:
    """Keep every k-th layer with the least k that fits; tensors outside layers are kept while they fit."""
    layers = sorted({pair.layer for pair in pairs if pair.layer is not None})
    for step in range(1, min(len(layers), 4096) + 1):
        chosen = {None, *layers[::step]}
        kept = [pair for pair in pairs if pair.layer in chosen]
        if _cost(kept, a, b) <= budget_bytes:
            return kept
    kept = []
    for pair in pairs:
        if _cost([*kept, pair], a, b) <= budget_bytes:
            kept.append(pair)
    return kept
