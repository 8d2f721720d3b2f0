"""Show models in memory, never written out, to fingerprint methods."""

from collections.abc import Mapping

import numpy as np

from kinprint.arch import RoleTensor, name_tensors
from kinprint.formats.dtypes import Array
from kinprint.formats.plan import Run
from kinprint.model.tokens import vocabulary
from kinprint.model.weights import Matrix, Weights


class HeldWeights(Weights):
    """Weights in memory under the names of their architecture."""

    def __init__(
        self,
        label: str,
        state: Mapping[str, Matrix],
        config: Mapping[str, object],
        tokenizer: Mapping[str, object] | None = None,
    ) -> None:
        naming = name_tensors(config, {name: value.shape for name, value in state.items()})
        hidden = config.get("hidden_size")
        super().__init__(label, naming, config, hidden if isinstance(hidden, int) else None)
        self.state: Mapping[str, Matrix] = state
        self.tokenizer = tokenizer
        self._known = (vocabulary(tokenizer) or None) if tokenizer else None

    def vocabulary(self) -> Mapping[str, int] | None:
        """Return the table given."""
        return self._known

    def _cost(self, part: RoleTensor, rows: Run | None) -> int:  # noqa: ARG002 - nothing is read
        return 0

    def _values(self, part: RoleTensor, rows: Run | None) -> Array:
        values = self.state[part.name]
        if part.rows is not None:
            values = np.concatenate([values[start:stop] for start, stop in part.rows])
        if part.transposed:
            values = values.T
        taken = values if rows is None else values[rows[0] : rows[1]]
        self.bytes_read += taken.size * 2
        return taken

    def _rows_of(self, part: RoleTensor, numbers: list[int]) -> Array:
        taken: Array = self.state[part.name][numbers]
        self.bytes_read += taken.size * 2
        return taken
