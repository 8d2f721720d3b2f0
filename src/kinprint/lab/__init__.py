"""Make models with known relations, benchmark methods on them, and write replicas: for the project, not for users.

No module of the product imports this package; commands that run on it look it up by name.
"""
