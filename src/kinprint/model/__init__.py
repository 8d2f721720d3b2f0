"""An open model: its tensors by role, config, tokens and card."""
