"""Define the description of one model, as `kinprint inspect` returns it."""

from dataclasses import dataclass
from typing import ClassVar

from kinprint._util.plain import printable
from kinprint.results.models import ModelSummary
from kinprint.results.result import Result


@dataclass(frozen=True)
class RoleInventory:
    """Tensors of one role, shape and dtype. ``fused`` means they are parts of larger stored tensors."""

    role: str
    tensors: int
    layers: int
    shape: tuple[int, ...]
    dtype: str
    stored_bytes: int
    fused: bool
    example: str


@dataclass(frozen=True)
class NormStatistics:
    """One norm's weights, population statistics over the finite values, as the model uses them (offset added)."""

    role: str
    layer: int | None
    width: int
    nonfinite: int
    mean: float | None
    std: float | None
    minimum: float | None
    maximum: float | None
    cv: float | None


@dataclass(frozen=True)
class Inspection(Result):
    """Description of one model by `inspect`."""

    SCHEMA: ClassVar = "kinprint.inspection"
    CALLED: ClassVar = "an inspection"

    schema: str
    schema_version: int
    model: ModelSummary
    roles: tuple[RoleInventory, ...]
    norms: tuple[NormStatistics, ...]
    bytes_read: int
    requests: int

    def __repr__(self) -> str:
        model = self.model
        name, architecture = printable(model.reference, 80), printable(model.architecture, 40)
        return f"<Inspection: {name}: {architecture}, {model.layers} layers, {model.parameters:,} parameters>"
