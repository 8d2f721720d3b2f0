"""safetensors: the parser of headers and a writer without torch."""
