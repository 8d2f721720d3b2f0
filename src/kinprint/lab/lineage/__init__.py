"""The lineage benchmark: every method on every pair of a zoo of really-trained models whose relations are known."""
