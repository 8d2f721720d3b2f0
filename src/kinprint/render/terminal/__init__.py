"""Print results in a terminal."""
