"""Which of a model's tensors are vectors: studies of norms take no others, and must not read matrices to find that out."""

from __future__ import annotations

from kinprint.arch import Role
from kinprint.studies.opened import Stage
from kinprint.studies.outcome import Missing
from kinprint.text import Text


def is_vector(stage: Stage, name: str, role: Role, layer: int) -> bool:
    """Whether the model has this tensor and it has one dimension."""
    return stage.holds(name, role, layer) and len(stage.part(name, role, layer).shape) == 1


def require_vector(stage: Stage, name: str, role: Role, layer: int) -> None:
    """Refuse a tensor that is no vector.

    Raises
    ------
    Missing
        If the model does not have it, or it is a matrix.
    """
    if len(stage.part(name, role, layer).shape) != 1:
        raise Missing(Text("{role} is a matrix: this study compares vectors", role=role.value))
