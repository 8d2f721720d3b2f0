"""Results as terminal text."""
