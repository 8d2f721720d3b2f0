"""Bytes to arrays: the one safetensors parser, the one dtype decoder, pure read plans, and the open checkpoint."""
