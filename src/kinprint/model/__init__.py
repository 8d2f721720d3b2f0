"""Open models, and read their tensors by role, config, tokens and card."""
