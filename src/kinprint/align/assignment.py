"""Find the best one-to-one assignment of rows to columns."""

from collections.abc import Callable
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import FloatArray

IDENTITY, PERMUTED, SUBSET, NONE = "identity", "permuted", "subset (width-pruned)", "none"
SUBSET_IN_ORDER = "subset in order"
"""Kinds of maps between the neurons of two layers."""

IN_ORDER = 0.95  # so many of the neurons kept follow each other as before; of a random order half do

_Solver = Callable[[FloatArray], tuple[NDArray[Any], NDArray[Any]]]


@cache
def _solver() -> _Solver:
    """Return scipy's `linear_sum_assignment`, out of its extension module if that is found alone.

    The packages around it take 0.25 s to load, half of what a search on small models may take; the module takes 2 ms.
    """
    try:
        places = getattr(find_spec("scipy"), "submodule_search_locations", None) or []
        spec = PathFinder.find_spec("scipy.optimize._lsap", [f"{place}/optimize" for place in places])
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        found: _Solver = module.linear_sum_assignment
    except (ImportError, AssertionError, AttributeError):
        from scipy.optimize import linear_sum_assignment

        found = linear_sum_assignment
    return found


def assigned(similarity: NDArray[np.floating]) -> NDArray[np.intp]:
    """Return for each row the column that the best one-to-one assignment gives it, or −1: that of the largest sum."""
    index = np.full(similarity.shape[0], -1, dtype=np.intp)
    # costs made here: the solver takes half as long again to turn similarities into them
    rows, columns = _solver()(np.negative(similarity, dtype=np.float64))
    index[rows] = columns
    return index
