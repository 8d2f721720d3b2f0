"""Read the matrices of a model by role, in logical orientation, one at a time."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinprint.arch import Naming, Role, RoleTensor
from kinprint.arch.configs import first_count, flattened, kv_heads_of
from kinprint.arch.roles import GATES_AND_UPS
from kinprint.errors import DegenerateInput
from kinprint.formats.dtypes import Array
from kinprint.formats.plan import MAX_GAP_BYTES, Run
from kinprint.model.model import Model
from kinprint.model.reader import Want, read_together
from kinprint.model.tokens import Keys, TokenSample, sample_ids, sample_tokens, token_key
from kinprint.refs import join_runs

Matrix = NDArray[np.float32]
"""Matrices stay in float32, which holds every BF16 and F16 value exactly; statistics over them are float64."""

TOKEN_GAP_BYTES = 1 << 16  # between rows of the embedding, many and short: reading on is faster than asking again

# Which norm's scale meets a matrix's input. Blocks that normalise their output instead (OLMo 2) have neither.
_NORM_BEFORE = {
    **dict.fromkeys((Role.ATTN_Q, Role.ATTN_K, Role.ATTN_V), Role.INPUT_NORM),
    **dict.fromkeys((*GATES_AND_UPS, Role.ROUTER), Role.POST_ATTENTION_NORM),
    Role.HEAD: Role.FINAL_NORM,
}


class Weights(ABC):
    """Weights of one model, as fingerprint methods read them."""

    def __init__(self, label: str, naming: Naming, config: Mapping[str, object], hidden: int | None) -> None:
        self.label = label
        self.naming = naming
        self.config = flattened(config)
        # numbers of heads, where the config tells: of queries, and of keys and values
        self.heads = first_count(self.config, ("num_attention_heads", "n_head", "n_heads"), 4096)
        self.kv_heads = kv_heads_of(self.config)
        self.layers = naming.layers
        self.experts = naming.experts
        self.hidden = hidden or 0  # width of the residual stream
        # what gives the keys of the tokens that the partner has too, where a pair is compared
        self.shared: Callable[[], Keys | None] | None = None
        self.bytes_read = 0
        self.kept: dict[Hashable, Any] = {}  # what searches come back to, if it is small
        self.lock = Lock()  # of what is kept
        self.folder: Path | None = None  # of the files, if they are on this machine: a forward pass needs them
        # Of a model that is in memory and has no files: tensors by name, and what tokenizer.json holds.
        self.state: Mapping[str, Matrix] | None = None
        self.tokenizer: Mapping[str, object] | None = None
        self._parts = {part.key: part for part in naming.tensors}

    def has(self, role: Role, layer: int | None = None, expert: int | None = None) -> bool:
        """Whether the model has this tensor."""
        return (role, layer, expert) in self._parts

    def shape(self, role: Role, layer: int | None = None, expert: int | None = None) -> tuple[int, ...]:
        """Return the logical shape, out × in; raises `DegenerateInput` where the model has no such tensor."""
        return self._part(role, layer, expert).shape

    def layers_with(self, *roles: Role) -> list[int]:
        """Return the layers that have all of these roles, in order."""
        return [layer for layer in range(self.layers) if all(self.has(role, layer) for role in roles)]

    def _part(self, role: Role, layer: int | None, expert: int | None) -> RoleTensor:
        part = self._parts.get((role, layer, expert))
        if part is None:
            if layer is None:
                raise DegenerateInput("{model} has no {role}", model=self.label, role=role.value)
            raise DegenerateInput("{model} has no {role} in layer {n}", model=self.label, role=role.value, n=layer)
        return part

    def nbytes(
        self, role: Role, layer: int | None = None, *, expert: int | None = None, rows: Run | None = None
    ) -> int:
        """Return what reading this takes; 0 for weights in memory."""
        return self._cost(self._part(role, layer, expert), rows)

    def matrix(
        self, role: Role, layer: int | None = None, *, expert: int | None = None, rows: Run | None = None
    ) -> Matrix:
        """Return a matrix (or a norm, or some rows), out × in, as the model uses it."""
        part = self._part(role, layer, expert)
        values = np.ascontiguousarray(self._values(part, rows), dtype=np.float32)
        return self._finite(part, values + np.float32(part.offset) if part.offset else values)

    def _finite(self, part: RoleTensor, values: Matrix) -> Matrix:
        if not np.isfinite(values).all():
            name = part.name
            raise DegenerateInput("{model}: {tensor} holds values that are not finite", model=self.label, tensor=name)
        return values

    def folded(
        self, role: Role, layer: int | None = None, *, expert: int | None = None, rows: Run | None = None
    ) -> Matrix:
        """Return a matrix with the scale of the norm before it multiplied in: only so does it rotate with the residual basis."""
        values = self.matrix(role, layer, expert=expert, rows=rows)
        before = _NORM_BEFORE.get(role)
        place = None if before is Role.FINAL_NORM else layer
        if before is None or not self.has(before, place):
            return values
        scale = self.matrix(before, place)
        if scale.shape != values.shape[1:]:
            return values
        return np.multiply(values, scale, out=values if self.state is None and values.flags.writeable else None)

    def expanded(self, role: Role, layer: int) -> Matrix:
        """Return a key or value matrix (gamma folded) with each head repeated for its own group of query heads."""
        values = self.folded(role, layer)
        heads, kv_heads = self.heads, self.kv_heads
        if not heads or not kv_heads or heads == kv_heads or heads % kv_heads or values.shape[0] % kv_heads:
            return values
        blocks = values.reshape(kv_heads, -1, values.shape[1])
        return np.repeat(blocks, heads // kv_heads, axis=0).reshape(-1, values.shape[1])

    @contextmanager
    def reading_ahead(self, wants: Sequence[Want]) -> Iterator[None]:
        """Read these in one go, and hold them while the block runs; weights in memory have nothing to read."""
        del wants
        yield

    @abstractmethod
    def vocabulary(self) -> Mapping[str, int] | None:
        """Return token to id, or None where the model has no tokenizer that can be read."""

    def keys(self) -> Keys | None:
        """Return the keys of all tokens, or None without a tokenizer."""
        known = self.vocabulary()
        return None if not known else np.array(sorted(token_key(text) for text in known), dtype=np.uint64)

    def tokens(self, count: int, *, rare: bool = False) -> TokenSample:
        """Choose tokens: the partner's too in a comparison. A method that needs labels calls this."""
        rows = self.shape(Role.EMBEDDING)[0]
        known = self.vocabulary()
        if not known:
            return sample_ids(rows, count, rare=rare)
        return sample_tokens(known, rows, count, shared=self.shared and self.shared(), rare=rare)

    def embedding(self, ids: NDArray[np.intp]) -> Matrix:
        """Return these rows of the embedding, in the order given."""
        part = self._part(Role.EMBEDDING, None, None)
        order = np.argsort(ids, kind="stable")
        values = self._rows_of(part, [int(number) for number in ids[order]])
        result = np.empty((len(ids), values.shape[1]), dtype=np.float32)
        result[order] = values
        return self._finite(part, result)

    @abstractmethod
    def _cost(self, part: RoleTensor, rows: Run | None) -> int: ...

    @abstractmethod
    def _values(self, part: RoleTensor, rows: Run | None) -> Array: ...

    @abstractmethod
    def _rows_of(self, part: RoleTensor, numbers: list[int]) -> Array: ...


class StoredWeights(Weights):
    """The weights of an open model, read when asked for and not kept."""

    def __init__(self, model: Model) -> None:
        super().__init__(model.label, model.naming, model.config, model.hidden)
        self.model = model
        where = model.checkpoint.provenance
        if where.kind in ("folder", "file"):
            place = Path(where.location)
            self.folder = place if place.is_dir() else place.parent
        self._ahead: dict[Want, Array] = {}

    @contextmanager
    def reading_ahead(self, wants: Sequence[Want]) -> Iterator[None]:
        """Plan all reads together: on a hub, one wait in place of one for each."""
        plan = self.model.plan(wants)
        self.bytes_read += plan.nbytes
        for want, sample in zip(wants, read_together([plan])[0], strict=True):
            sample.stored.flags.writeable = False  # whoever scales a matrix in place gets a copy
            self._ahead[want] = sample.stored
        try:
            yield
        finally:
            self._ahead.clear()

    def vocabulary(self) -> Mapping[str, int] | None:
        """Return the tokenizer's table; read once."""
        return self.model.tokens or None

    def _cost(self, part: RoleTensor, rows: Run | None) -> int:
        return self.model.cost(Want(*part.key, rows))

    def _values(self, part: RoleTensor, rows: Run | None) -> Array:
        want = Want(*part.key, rows)
        if (held := self._ahead.get(want)) is not None:
            return held
        (sample,) = self.model.read([want], max_gap_bytes=MAX_GAP_BYTES)
        cost = self.model.cost(want)
        self.bytes_read += cost  # no call between reading and writing it: other threads read, too
        return sample.stored

    def _rows_of(self, part: RoleTensor, numbers: list[int]) -> Array:
        runs = join_runs((number, number + 1) for number in dict.fromkeys(numbers))
        plan = self.model.plan([Want(*part.key, tuple(runs))], max_gap_bytes=TOKEN_GAP_BYTES)
        self.bytes_read += plan.nbytes
        return read_together([plan])[0][0].stored
