"""Matrix products inside a run use one thread, also where numpy was loaded first."""

import numpy as np  # noqa: F401 - loads the library whose threads are counted
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from kinprint._util.cores import one_thread_for_products
from kinprint.results.options import Options
from kinprint.sources.session import running


@pytest.fixture(autouse=True)
def _three_threads(monkeypatch):
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    with threadpool_limits(3, user_api="blas"):
        yield


def _threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_a_run_uses_one_and_gives_back_the_others() -> None:
    assert _threads() == {3}
    with running(Options()):
        assert _threads() == {1}
    assert _threads() == {3}


def test_an_error_gives_them_back() -> None:
    with pytest.raises(ValueError, match="inside"), one_thread_for_products():
        raise ValueError("inside")
    assert _threads() == {3}
