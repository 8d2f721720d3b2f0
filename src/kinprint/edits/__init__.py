"""How one matrix was edited into another: copied, cast, scaled, quantised, pruned, adapted, perturbed, merged or trained.

Pure numerics on pairs of equal-shaped matrices or row slices. Nothing here says that two models are related; it describes
what was done if they are.
"""

from kinprint.edits.edit_names import Name, NamedEdit, explain_edit, name_edit
from kinprint.edits.lowrank import LowRank, difference_rank
from kinprint.edits.merging import Mixture, MixtureSums, mixture
from kinprint.edits.pair import PairEdit, describe
from kinprint.edits.quantisation_grids import GridFit, find_grid
from kinprint.edits.regression import Residual, Slope
from kinprint.edits.sameness import TensorIdentity, identity_of
from kinprint.edits.sparsity import Sparsity, sparsity_of

__all__ = [
    "GridFit",
    "LowRank",
    "Mixture",
    "MixtureSums",
    "Name",
    "NamedEdit",
    "PairEdit",
    "Residual",
    "Slope",
    "Sparsity",
    "TensorIdentity",
    "describe",
    "difference_rank",
    "explain_edit",
    "find_grid",
    "identity_of",
    "mixture",
    "name_edit",
    "sparsity_of",
]
