"""Read GGUF, the format of llama.cpp."""
