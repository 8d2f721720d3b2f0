"""Find the relatives of a model in a catalog: recall by short vectors, proof by exact tests, one report."""
