"""Labels and sentences in every language."""
