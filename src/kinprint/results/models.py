"""Describe the compared models, and how their configs and tokenizers differ."""

from kinprint._util.records import dataclass
from kinprint.results.measurements import Skipped
from kinprint.text import Text


@dataclass(frozen=True)
class KeyDifference:
    """One key of the config that differs; a side without the key has ``present`` False."""

    key: str
    a: str | None
    b: str | None
    a_present: bool
    b_present: bool


@dataclass(frozen=True)
class ConfigDifference:
    """Differences of two config.json."""

    status: str
    reason: Text | None
    equal_keys: int
    differences: tuple[KeyDifference, ...]


@dataclass(frozen=True)
class TokenizerDifference:
    """Differences of two tokenizer.json. Counts are None where a side does not have such a table."""

    status: str
    reason: Text | None
    identical_files: bool | None = None
    kind_a: str | None = None
    kind_b: str | None = None
    tokens_a: int | None = None
    tokens_b: int | None = None
    tokens_common: int | None = None
    jaccard: float | None = None
    same_id: int | None = None
    merges_a: int | None = None
    merges_b: int | None = None
    merges_common: int | None = None


@dataclass(frozen=True)
class FileSummary:
    """One weight file that was opened."""

    name: str
    size: int
    identity: str


SYNTHETIC = Text("its config says that these weights are synthetic: not those of a trained model")


@dataclass(frozen=True)
class ModelSummary:
    """One of the compared models."""

    reference: str
    kind: str
    location: str
    revision: str | None
    commit: str | None
    architecture: str
    architecture_guessed: bool
    layers: int
    experts: int
    hidden: int | None
    tensors: int
    parameters: int
    stored_bytes: int
    unmapped: tuple[str, ...]
    excluded: tuple[Skipped, ...]
    notes: tuple[Text, ...]
    files: tuple[FileSummary, ...]

    @property
    def synthetic(self) -> bool:
        """Whether the model's config says that its weights are synthetic."""
        return SYNTHETIC in self.notes
