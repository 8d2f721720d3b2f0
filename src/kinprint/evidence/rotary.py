"""Find in which of two orders a model keeps the rows of q and k, where its format does not say.

Rotary embeddings turn pairs of rows of a head. Hugging Face's checkpoints keep the first rows of all pairs and then the second
ones; Meta's, and what was made of them, keep the two rows of a pair next to each other. A config, GGUF's metadata or llama2.c's
header settles the order. An archive of arrays under Hugging Face's names may have either, so both are tried against the other
model: one question for the whole model, asked of some ten thousand numbers that either agree or do not.
"""

from dataclasses import replace

import numpy as np

from kinprint._util.numeric import FloatArray, unit_rows
from kinprint.arch import Role
from kinprint.arch.configs import flattened, kv_heads_of
from kinprint.arch.roles import BIASES
from kinprint.errors import BudgetExceeded
from kinprint.formats.dtypes import Array
from kinprint.formats.plan import MAX_GAP_BYTES
from kinprint.formats.tensors import Tensors
from kinprint.formats.views import MAX_ROWS_IN_ORDER, in_hugging_face_order
from kinprint.model.model import Model
from kinprint.model.reader import Want, read_together
from kinprint.text import Text

AGREE = 0.2
"""Mean correlation of rows from which an order counts as found; chance gives 0.00 ± 0.06 for a single row of 288."""

CLEARER = 2.0  # times the correlation in the order as stored, by which the other must be better
NOTE = Text(
    "rows of q and k stand as in Meta's checkpoints, the two of a pair next to each other; they are read in the order of "
    "Hugging Face (nothing says which it is: the other model told)"
)
_REORDERED = (Role.ATTN_Q, Role.ATTN_K, BIASES[Role.ATTN_Q], BIASES[Role.ATTN_K])


def in_one_order(a: Model, b: Model) -> tuple[Model, Model]:
    """Return the models with the rows of q and k in one order, where one of them does not say which it has."""
    if not (a.naming.guessed or b.naming.guessed):
        return a, b
    found = _first_keys(a, b)
    if found is None:
        return a, b
    head_dim, layer = found
    want = Want(Role.ATTN_K, layer, rows=(0, head_dim))
    try:
        (one,), (two,) = read_together([model.plan([want], max_gap_bytes=MAX_GAP_BYTES) for model in (a, b)])
    except BudgetExceeded:
        return a, b
    left, right = one.stored, two.stored
    order = np.arange(head_dim).reshape(-1, 2).T.ravel()  # Hugging Face's row i is Meta's row order[i]
    as_stored = _agreement(left, right)
    reordered = _agreement(left[order], right), _agreement(left, right[order])
    best = int(np.argmax(reordered))
    if reordered[best] < AGREE or reordered[best] < CLEARER * as_stored:
        return a, b
    return (_reordered(a, head_dim), b) if best == 0 else (a, _reordered(b, head_dim))


def _first_keys(a: Model, b: Model) -> tuple[int, int | None] | None:
    """Return the rows of a head and the first layer whose matrices k both have in one shape, if they can be read so."""
    heads = kv_heads_of(flattened(a.checkpoint.config)) or kv_heads_of(flattened(b.checkpoint.config))
    if heads is None or not (_plain(a) and _plain(b)):
        return None
    keys = [{part.layer: part for part in model.naming.tensors if part.role is Role.ATTN_K} for model in (a, b)]
    for layer, part in keys[0].items():
        other = keys[1].get(layer)
        if other is not None and other.shape == part.shape and part.shape[0] % (2 * heads) == 0:
            return part.shape[0] // heads, layer
    return None


def _plain(model: Model) -> bool:
    """Whether q and k are tensors of their own, a row of the role in a row of the file, and rotary: not with positions added."""
    if any(part.role is Role.POSITION_EMBEDDING for part in model.naming.tensors):
        return False
    return not any(part.transposed or part.rows for part in model.naming.tensors if part.role in _REORDERED)


def _agreement(a: Array, b: Array) -> float:
    """Return the mean correlation of rows in the same place."""
    one, two = _standardised(a), _standardised(b)
    return float(np.mean(np.sum(one * two, axis=1)))


def _standardised(values: Array) -> FloatArray:
    centred: FloatArray = values.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        centred -= centred.mean(axis=1, keepdims=True)
        centred[~np.isfinite(centred).all(axis=1)] = 0.0  # a row that is not finite agrees with nothing
        return unit_rows(centred)


def _reordered(model: Model, head_dim: int) -> Model:
    """Return the model with the rows of q and k put in Hugging Face's order when they are read."""
    held = dict(model.checkpoint.tensors.stored())
    for part in model.naming.tensors:
        tensor = model.checkpoint.tensors[part.name]
        fits = tensor.shape[0] % head_dim == 0 and head_dim <= tensor.shape[0] <= MAX_ROWS_IN_ORDER
        if part.role in _REORDERED and part.name in held and fits:
            held[part.name] = in_hugging_face_order(tensor, tensor.shape[0] // head_dim)
    checkpoint = replace(model.checkpoint, tensors=Tensors(held), notes=(*model.checkpoint.notes, NOTE))
    return replace(model, checkpoint=checkpoint)
