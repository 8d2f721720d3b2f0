"""Hold labels and sentences in every language."""
