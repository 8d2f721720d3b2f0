"""Define results of a run: frozen dataclasses with a versioned JSON form."""
