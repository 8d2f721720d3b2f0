"""Find the role of every tensor of a checkpoint, by data files rather than by code."""

from kinprint.arch.configs import ordered_axes
from kinprint.arch.loading import file_names as architectures
from kinprint.arch.mapping import name_tensors, residual_width
from kinprint.arch.naming import Excluded, Naming, RoleTensor, TensorKey
from kinprint.arch.roles import Axis, Role

__all__ = [
    "Axis", "Excluded", "Naming", "Role", "RoleTensor", "TensorKey", "architectures", "name_tensors",
    "ordered_axes", "residual_width",
]  # fmt: skip
