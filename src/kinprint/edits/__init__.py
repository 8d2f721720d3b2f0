"""Edits: describe how one matrix was made from another: by cast, scaling, quantisation, pruning, low rank, noise, merge, training.

Pure numerics on pairs of equal-shaped matrices or row slices. No statement here says that two models are related; each describes
what was done if they are.
"""
