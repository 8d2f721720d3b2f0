"""Derive models from others by construction, in numpy, so that the relation of every pair is known.

A state maps tensor names, Llama's or Mixtral's, to float32 arrays. Every function returns a new state and leaves its
arguments alone; where the shape of the model changes, a new config comes with it. Randomness depends on ``seed`` and,
except for orders and changes of basis, on the tensor's name, never on the order of the tensors.
"""

from kinprint.lab.zoo.derive.damage import (
    low_rank,
    noise,
    prune,
    quantise,
    replace_embeddings,
    replace_norms,
    replace_tables,
    scale,
)
from kinprint.lab.zoo.derive.merging import dare, merge, slerp, ties
from kinprint.lab.zoo.derive.states import Config, State, TokenizerJson, load_state, save_state, stored, stored_config
from kinprint.lab.zoo.derive.structure import (
    drop_layers,
    extend_vocabulary,
    frankenmerge,
    prune_neurons,
    prune_vocabulary,
    stack_layers,
    upcycle,
)
from kinprint.lab.zoo.derive.symmetry import (
    all_symmetries,
    flip_signs,
    fold_norms,
    mix_values,
    permute_and_flip,
    permute_heads,
    permute_neurons,
    permute_residual,
    random_rotation,
    random_symmetry,
    rescale_neurons,
    rescale_pairs,
    rescale_values,
    rotate_residual,
    turn_rotary,
)

__all__ = [
    "Config", "State", "TokenizerJson", "all_symmetries", "dare", "drop_layers",
    "extend_vocabulary", "flip_signs", "fold_norms", "frankenmerge", "load_state", "low_rank", "merge",
    "mix_values", "noise", "permute_and_flip", "permute_heads", "permute_neurons", "permute_residual", "prune",
    "prune_neurons", "prune_vocabulary", "quantise", "random_rotation", "random_symmetry", "replace_embeddings",
    "replace_norms", "replace_tables", "rescale_neurons", "rescale_pairs", "rescale_values", "rotate_residual",
    "save_state", "scale", "slerp", "stack_layers", "stored", "stored_config", "ties", "turn_rotary", "upcycle",
]  # fmt: skip
