"""Family trees of several models: distances between related ones, hints at direction, and a least arborescence."""

from __future__ import annotations

from kinprint.tree.all_pairs import compare_many
from kinprint.tree.driver import MAX_MODELS, PAIR_BUDGET_BYTES, build_tree
from kinprint.tree.facts import ModelFacts, PairFacts
from kinprint.tree.infer import infer_tree

__all__ = ["MAX_MODELS", "PAIR_BUDGET_BYTES", "ModelFacts", "PairFacts", "build_tree", "compare_many", "infer_tree"]
