"""Infer family trees of several models from distances between related models and cues to direction."""

from kinprint.tree.all_pairs import compare_many
from kinprint.tree.driver import build_tree

__all__ = ["build_tree", "compare_many"]
