"""Register all fingerprint methods on import, in the order of the tables."""

from importlib import import_module

from kinprint.fingerprints.base import METHODS

__all__ = ["METHODS"]

_MODULES = "awm compact fixed_points huref kin match match_activations mdir neuron_gram norms pdf reef spectral"

for _name in _MODULES.split():
    import_module(f"kinprint.fingerprints.methods.{_name}")
