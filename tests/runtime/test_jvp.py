"""Derivatives along a direction: torch.func.jvp for torch, differences for numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import gradof
from gradof.errors import CotangentError

Tensor = torch.Tensor


def pair(x: Tensor, w: Tensor) -> dict[str, Any]:
    h = torch.tanh(x @ w)
    return {"h": h, "sums": (h.exp().sum(0), (x * x).mean())}


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "structure": pair,
    "softmax": lambda x, w: torch.softmax(x @ w, -1).log().sum(),
    "norm": lambda x, w: torch.nn.functional.layer_norm(x @ w, (3,)),
    "linear": lambda x, w: x @ w,
    "one ignored": lambda x, w: x.sin(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_torch(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    fn = FUNCTIONS[name]
    primals = torch.randn(4, 5, dtype=dtype), torch.randn(5, 3, dtype=dtype)
    tangents = torch.randn(4, 5, dtype=dtype), torch.randn(5, 3, dtype=dtype)
    compiled = gradof.differentiate(fn)
    have = gradof.jvp(compiled, primals, tangents)
    want = torch.func.jvp(fn, primals, tangents)
    rtol = 2e-5 if dtype == torch.float32 else 1e-11
    torch.testing.assert_close(have, want, rtol=rtol, atol=rtol)
    assert compiled.cache_info().backward_runs == 1


def test_forward_over_reverse_is_a_hessian_vector_product() -> None:
    x, t = torch.randn(6, dtype=torch.float64), torch.randn(6, dtype=torch.float64)

    def loss(v: Tensor) -> Tensor:
        return (v.sin() * v.prod()).sum()

    _, product = gradof.jvp(gradof.grad(loss), (x,), (t,))
    torch.testing.assert_close(product, gradof.hvp(loss, (x,), (t,))[0], rtol=1e-10, atol=1e-12)


def test_numpy_with_integers_and_structure() -> None:
    def fn(p: dict[str, Any], n: Any) -> Any:
        return np.cumsum(p["a"] ** 2) * n.sum(), n

    p, t = {"a": np.linspace(0.1, 1, 5)}, {"a": np.linspace(1, -1, 5)}
    n = np.arange(3)
    (value, same), (moved, nothing) = gradof.jvp(fn, (p, n), (t, None))
    assert nothing is None and (same == n).all()
    np.testing.assert_allclose(value, fn(p, n)[0])
    step = 1e-6
    ahead, behind = (fn({"a": p["a"] + s * t["a"]}, n)[0] for s in (step, -step))
    np.testing.assert_allclose(moved, (ahead - behind) / (2 * step), rtol=1e-7)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_inside_a_gradient(library: str) -> None:
    if library == "numpy":
        x: Any = np.linspace(0.2, 1.2, 4)
        ones: Any = np.ones(4)
        lib: Any = np
    else:
        x, ones, lib = (
            torch.linspace(0.2, 1.2, 4, dtype=torch.float64),
            torch.ones(4).double(),
            torch,
        )

    def along(v: Any) -> Any:
        return (gradof.jvp(lambda u: lib.sin(u) * u, (v,), (ones,))[1] ** 2).sum()

    have = gradof.grad(along)(x)
    first = lib.cos(x) * x + lib.sin(x)
    want = 2 * first * (2 * lib.cos(x) - lib.sin(x) * x)
    np.testing.assert_allclose(np.asarray(have), np.asarray(want), rtol=1e-10)


@pytest.mark.parametrize("tangents", [(np.ones(3),), (np.ones(2), np.ones(2)), ()])
def test_tangents_have_to_fit(tangents: Any) -> None:
    with pytest.raises(CotangentError):
        gradof.jvp(np.sin, (np.ones(2),), tangents)
