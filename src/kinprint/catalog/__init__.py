"""Catalogs of known models: fingerprints with their provenance, in one file or in a shared database."""
