"""Read byte ranges of model files: on this machine, on the hub and on other servers."""
