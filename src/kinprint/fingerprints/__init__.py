"""Fingerprints: methods that say how alike two models are, each beside its own null; and files that carry them."""
