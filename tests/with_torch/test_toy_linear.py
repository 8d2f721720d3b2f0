"""Linear maps of the toy training are torch's, in values and gradients, whoever computes the products."""

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402 - needs torch

from kinprint.studies.toy_init.linear import linear, products  # noqa: E402 - needs torch


def given(shape, seed=0):
    draw = torch.Generator().manual_seed(seed)
    sizes = (shape, (24, shape[-1]), (24,))
    return [torch.randn(size, generator=draw).requires_grad_() for size in sizes]


def results(function, shape, transposed):
    x, weight, bias = given(shape)
    found = function(x.mT.contiguous().mT if transposed else x, weight, bias)
    upstream = torch.randn(found.shape, generator=torch.Generator().manual_seed(1))
    torch.autograd.backward(found, upstream.mT.contiguous().mT if transposed else upstream)
    return found.detach(), x.grad, weight.grad, bias.grad


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shape", [(7, 32), (1, 32), (3, 7, 32)])
@pytest.mark.parametrize("missing", [False, True])
def test_values_and_gradients_are_those_of_torch(shape, missing, transposed, monkeypatch):
    expected = results(functional.linear, shape, transposed)
    if missing:
        monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert products() == ("torch" if missing else "oneDNN")
    for mine, theirs in zip(results(linear, shape, transposed), expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


def test_a_second_derivative_is_refused():
    x, weight, bias = given((7, 32))
    (first,) = torch.autograd.grad(linear(x, weight, bias).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.autograd.grad(first.sum(), weight)
