"""Family trees of several models: distances between related ones, hints at direction, and a least arborescence."""

from __future__ import annotations

from kinprint.tree.all_pairs import PAIRS_OPTIONS, compare_many
from kinprint.tree.driver import MAX_MODELS, TREE_OPTIONS, build_tree
from kinprint.tree.facts import ModelFacts, PairFacts
from kinprint.tree.infer import infer_tree

__all__ = [
    "MAX_MODELS",
    "PAIRS_OPTIONS",
    "TREE_OPTIONS",
    "ModelFacts",
    "PairFacts",
    "build_tree",
    "compare_many",
    "infer_tree",
]
