"""PyTorch archives, read without unpickling."""
