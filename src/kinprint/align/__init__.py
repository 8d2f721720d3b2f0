"""Alignment: find which layer, neuron or residual dimension of one model is which of another's, before anything is tested.

A derived model may have been reordered, resized or rotated. Each map found here comes with the evidence for it, beside a null
wherever one exists. Pure numerics: arrays in, maps out.
"""

from kinprint.align.layer_alignment import (
    BestMap,
    LayerMap,
    LayerScores,
    assignment_map,
    best_map,
    choose_map,
    monotone_map,
    pair_scores,
)
from kinprint.align.neuron_assignment import NeuronMap, NeuronMatch, gate_up_agreement, match_rows, recovered_map
from kinprint.align.residual_basis import ColumnMatch, Rotation, embedding_rotation, match_columns

__all__ = [
    "BestMap",
    "ColumnMatch",
    "LayerMap",
    "LayerScores",
    "NeuronMap",
    "NeuronMatch",
    "Rotation",
    "assignment_map",
    "best_map",
    "choose_map",
    "embedding_rotation",
    "gate_up_agreement",
    "match_columns",
    "match_rows",
    "monotone_map",
    "pair_scores",
    "recovered_map",
]
