"""What the project needs and the product does not: models with known relations, the benchmark of methods, replicas.

No module of the product imports this package; commands that run on it look it up by name.
"""
