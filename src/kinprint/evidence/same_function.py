"""Check whether two models compute the same function: their logits on random tokens, beside what rounding does to them.

Both models are read whole and run by `model/decoder.py`, in float64. What rounding does is measured: each weight that is not
among those of its partner gets an error drawn evenly from half a step of its number format to either side, and the logits are
computed again. Only a difference of that size is rounding. Weights in place that differ as little as by rounding must be
rounded, number by number: a short training is not the same function, however short.
"""

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import FloatArray
from kinprint.arch import Role, TensorKey
from kinprint.edits.rounding import is_float, steps, used_dtype
from kinprint.edits.sameness import identity_of
from kinprint.errors import BudgetExceeded, DegenerateInput
from kinprint.evidence.probe import LayerMap
from kinprint.formats.plan import MAX_GAP_BYTES
from kinprint.model.decoder import Decoder, Tensors
from kinprint.model.model import Model
from kinprint.model.reader import Sample, Want, read_together
from kinprint.results.findings import FunctionFinding
from kinprint.results.options import Options
from kinprint.text import Text

SEQUENCES, LENGTH = 4, 16
MOST_BYTES, MOST_BYTES_DEEP = 64_000_000, 512_000_000
"""Size of both models together: 64 MB in two bytes a weight are run four times in some two seconds of one core."""

ROUNDING = 1.2
"""Times the difference that rounding both models once makes, up to which it is rounding. Changes that keep the function make
0.37 to 1.03 of it on tiny models of 4 and 12 layers (four seeds) and 0.98 on stories15M; a neuron zeroed and all rotated, on tiny
ones, 1.3 to 3.6. Set on the models it was measured on: no other ones were held out."""

ARITHMETIC = 1e-6  # relative difference that float32 arithmetic makes on the way from one model to the other
LARGEST_ROUNDING = 0.2  # beyond it logits depend on the last bits of weights, and nothing can be told
NEAR = 4.0  # times its rounding, within which a tensor counts as in place and hardly changed
LEAST_TOKENS = 16
RETRAINED = Text("weights in place differ by as little as rounding, and not by rounding")

Samples = Mapping[TensorKey, Sample]
Ids = NDArray[np.intp]
Changed = dict[TensorKey, NDArray[np.bool_]]  # which numbers of a tensor are not those of its partner


def _values(samples: Samples, changed: Changed) -> Tensors:
    """Return a reader of tensors as the model uses them, the changed numbers with an error such as storing makes."""

    def value(key: TensorKey) -> FloatArray | None:
        sample = samples.get(key)
        if sample is None or key not in changed:
            return None if sample is None else sample.values
        rng = np.random.default_rng(zlib.crc32(repr(key).encode()))
        step = _steps(sample, sample.stored)
        return sample.values + changed[key] * step * rng.uniform(-0.5, 0.5, step.shape)

    return value


def check_function(
    models: tuple[Model, Model],
    tokens: Sequence[tuple[int, int]] | None,
    layer_map: LayerMap,
    options: Options,
    allowance: int | None = None,
) -> FunctionFinding:
    """Run both models on the same random tokens, if they can be read whole and run."""
    most = MOST_BYTES_DEEP if options.deep else MOST_BYTES
    try:
        decoders = [Decoder(model.naming, model.config) for model in models]
        ids = _shared_ids(models, tokens)
        a, b = _read(models, most if allowance is None else min(most, allowance))
        changed = _changed(a, b, layer_map, ids)
        if changed is None:
            return FunctionFinding(same=False, reason=RETRAINED)
        few = ids[0].size < SEQUENCES * LENGTH
        at = np.random.default_rng(options.seed).choice(ids[0].size, (SEQUENCES, LENGTH), replace=few)
        sides = list(zip(decoders, (a, b), ids, changed, strict=True))
        one, two = (_logits(decoder, _values(some, {}), rows, at) for decoder, some, rows, _ in sides)
        difference = _distance(one, two)
        errors = [
            _distance(plain, _logits(decoder, _values(some, keys), rows, at)) if keys else 0.0
            for plain, (decoder, some, rows, keys) in zip((one, two), sides, strict=True)
        ]
        n = ids[0].size  # rows of the embedding that no token has are padding
        all_tokens = all(m.part(Role.EMBEDDING).shape[0] <= n or 0 < len(m.tokens) <= n for m in models)
    except (DegenerateInput, BudgetExceeded) as error:
        return FunctionFinding(same=None, reason=error.reason)
    rounding = max(ARITHMETIC, float(np.linalg.norm(errors)))
    same = difference <= ROUNDING * rounding and rounding <= LARGEST_ROUNDING
    if not same and _only_cast(a, b, layer_map, ids):  # then B's numbers have to do in A's model what they do in B's
        same = _distance(two, _logits(decoders[0], _values(b, {}), ids[1], at)) <= ARITHMETIC
    return FunctionFinding(same, difference, rounding, at.size, ids[0].size, all_tokens)


def _shared_ids(models: tuple[Model, Model], tokens: Sequence[tuple[int, int]] | None) -> tuple[Ids, Ids]:
    """Return the ids of tokens that both models have: by their strings, or by number where these are not known."""
    rows = [model.part(Role.EMBEDDING).shape[0] for model in models]
    if tokens is None and rows[0] != rows[1]:
        raise DegenerateInput("which tokens both models have is not known")
    both = np.array([(n, n) for n in range(rows[0])] if tokens is None else tokens, dtype=np.intp).reshape(-1, 2)
    left, right = both[(both < rows).all(axis=1)].T
    if left.size < LEAST_TOKENS:
        raise DegenerateInput("the models share {n} tokens: expected at least {m}", n=left.size, m=LEAST_TOKENS)
    order = np.lexsort((left * right, left + right))  # the same whichever model comes first
    return left[order], right[order]


def _read(models: tuple[Model, Model], most: int) -> list[dict[TensorKey, Sample]]:
    wants = [[Want(*part.key) for part in model.naming.tensors] for model in models]
    plans = [model.plan(some, max_gap_bytes=MAX_GAP_BYTES) for model, some in zip(models, wants, strict=True)]
    if (cost := sum(plan.nbytes for plan in plans)) > most:
        raise DegenerateInput(
            "reading both models whole takes {n:,} bytes: expected at most {m:,} (see --budget, --deep)", n=cost, m=most
        )
    read = [
        {want.key: sample for want, sample in zip(some, samples, strict=True)}
        for some, samples in zip(wants, read_together(plans), strict=True)
    ]
    if not all(is_float(sample.dtype) and sample.finite for side in read for sample in side.values()):
        raise DegenerateInput("weights are stored as codes, or are not finite")
    return read


def _changed(a: Samples, b: Samples, layer_map: LayerMap, ids: tuple[Ids, Ids]) -> tuple[Changed, Changed] | None:
    """Return what may have been rounded: numbers that differ in tensors that are no reordering of each other, signs aside."""
    # None if a tensor was retrained.
    left, right = ({key: np.ones(sample.shape, dtype=bool) for key, sample in side.items()} for side in (a, b))
    for key, sample in b.items():
        role, layer, expert = key
        source = (role, layer if layer is None else layer_map.get(layer, layer), expert)
        if source not in a:
            continue
        rows = ids if role in (Role.EMBEDDING, Role.HEAD) else (slice(None), slice(None))
        one, two = a[source].stored[rows[0]], sample.stored[rows[1]]
        if one.shape != two.shape:
            continue
        if np.array_equal(np.sort(np.abs(one), None), np.sort(np.abs(two), None)):
            left.pop(source, None)
            right.pop(key)
        elif _retrained(a[source], sample, one, two):
            return None
        elif source in left:
            left[source][rows[0]] = right[key][rows[1]] = one != two
    return left, right


def _only_cast(a: Samples, b: Samples, layer_map: LayerMap, ids: tuple[Ids, Ids]) -> bool:
    """Whether every tensor is the other model's, or that one in another number format."""
    for key, sample in b.items():
        role, layer, expert = key
        other = a.get((role, layer if layer is None else layer_map.get(layer, layer), expert))
        rows = ids if role in (Role.EMBEDDING, Role.HEAD) else (slice(None), slice(None))
        if other is None or other.stored[rows[0]].shape != sample.stored[rows[1]].shape:
            return False
        same = identity_of(other.stored[rows[0]], sample.stored[rows[1]], other.dtype, sample.dtype)
        if not same.same_values and same.cast is None:
            return False
    return len(a) == len(b)


def _retrained(a: Sample, b: Sample, one: NDArray[Any], two: NDArray[Any]) -> bool:
    """Whether numbers differ as little as by rounding, and neither side is the other one rounded."""
    step = np.maximum(_steps(a, one), _steps(b, two))
    near = np.square(one - two).mean() <= NEAR**2 * np.square(step).mean() / 12.0
    return bool(near) and identity_of(one, two, a.dtype, b.dtype).cast is None


def _steps(sample: Sample, values: NDArray[Any]) -> FloatArray:
    return steps(values.astype(np.float64), used_dtype(values, sample.dtype))


def _logits(decoder: Decoder, values: Tensors, ids: Ids, at: NDArray[Any]) -> FloatArray:
    """Return the logits of shared tokens, less their mean at each position: probabilities do not depend on it."""
    try:
        with np.errstate(all="ignore"):
            found: FloatArray = decoder.logits(values, ids[at])[..., ids]
    except (ValueError, IndexError) as error:  # shapes that do not fit each other, in a stranger's file
        raise DegenerateInput("its tensors do not fit its config") from error
    if not np.isfinite(found).all():
        raise DegenerateInput("its logits are not finite")
    found -= found.mean(axis=-1, keepdims=True)
    return found


def _distance(one: FloatArray, two: FloatArray) -> float:
    size = np.sqrt(np.linalg.norm(one) * np.linalg.norm(two))
    return float(np.linalg.norm(one - two) / size) if size > 0.0 else 0.0
