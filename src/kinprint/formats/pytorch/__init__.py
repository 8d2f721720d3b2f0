"""Read PyTorch archives without unpickling."""
