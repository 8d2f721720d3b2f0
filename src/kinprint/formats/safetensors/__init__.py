"""Parse headers of safetensors files, and write such files without torch."""
