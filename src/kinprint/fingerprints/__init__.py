"""Compare models by fingerprint methods, each beside its own null, and store fingerprints in files."""
