"""torch.compile around our calls: it leaves them alone, at the first call and at later ones."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import gradof

# Dynamo's own, of what comes out of a graph that ended at a call it leaves alone
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")


@pytest.fixture(autouse=True)
def _fresh() -> Any:
    reset: Any = torch._dynamo.reset
    reset()
    yield
    reset()


def _compiled(fn: Any, **options: Any) -> Any:
    return torch.compile(fn, backend="eager", **options)


def test_a_loss_within_a_compiled_step() -> None:
    loss = gradof.differentiate(lambda x, w: (torch.tanh(x @ w) ** 2).sum())

    def step(x: torch.Tensor, w: torch.Tensor) -> Any:
        return loss(x * 2, w) * 3 + w.sum()

    w = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    fast = _compiled(step)
    for n in (3, 3, 5):  # a first call, one that is known, and another shape
        x = torch.randn(n, 4, dtype=torch.float64)
        have, want = fast(x, w), (torch.tanh(x * 2 @ w) ** 2).sum() * 3 + w.sum()
        torch.testing.assert_close(have, want)
        torch.testing.assert_close(*(torch.autograd.grad(v, w)[0] for v in (have, want)))
    assert loss.cache_info().forward_runs == 3 and loss.cache_info().backward_runs >= 1


def test_a_module_of_ours_within_a_compiled_module() -> None:
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Linear(4, 3), nn.GELU())
    plain = nn.Sequential(nn.Linear(2, 4), inner, nn.Linear(3, 1))
    ours = nn.Sequential(plain[0], gradof.differentiate(inner), plain[2])
    fast, x = _compiled(ours), torch.randn(6, 2)
    for _ in range(3):
        have, want = fast(x).sum(), plain(x).sum()
        torch.testing.assert_close(have, want)
        for a, b in zip(*(torch.autograd.grad(v, list(plain.parameters())) for v in (have, want)),
                        strict=True):  # fmt: skip
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("what", ["value_and_grad", "prepared", "hessian"])
def test_what_gives_gradients_itself(what: str) -> None:
    def fn(x: Any) -> Any:
        return (x**3).sum()

    x = torch.randn(4, dtype=torch.float64)
    run: Any = {
        "value_and_grad": lambda: gradof.value_and_grad(fn),
        "prepared": lambda: gradof.value_and_grad(fn).prepare(x),
        "hessian": lambda: gradof.hessian(fn),
    }[what]
    run = run()

    def step(x: Any) -> Any:
        found = run(x + 1.0)
        return found[1] * 2 if isinstance(found, tuple) else found.diagonal() * 2

    fast = _compiled(step)
    want = 6 * (x + 1) ** 2 if what != "hessian" else 12 * (x + 1)
    for _ in range(3):
        torch.testing.assert_close(fast(x), want)


def test_fullgraph_says_who_compiles_it() -> None:
    fn = gradof.differentiate(torch.sin)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="gradof compiles it"):
        _compiled(lambda x: fn(x) + 1, fullgraph=True)(torch.randn(3))


@pytest.mark.parametrize(
    "first", ["torch", pytest.param("gradof", marks=pytest.mark.long)]
)
def test_torch_may_be_loaded_before_or_after(first: str) -> None:
    code = """
import sys, warnings
import FIRST
import gradof, numpy as np
fn = gradof.differentiate(lambda x: (x * x).sum())
assert fn(np.ones(3)) == 3
assert ("torch" in sys.modules) == ("FIRST" == "torch")
import torch
assert "torch._dynamo" not in sys.modules, "which takes a second"
again = gradof.differentiate(lambda x: (x * x).sum())
x = torch.ones(3, requires_grad=True)
y = torch.compile(lambda x: again(x) * 2 + fn(x), backend="eager")(x)
assert torch.autograd.grad(y, x)[0].tolist() == [6.0] * 3
"""
    subprocess.run([sys.executable, "-c", code.replace("FIRST", first)], check=True)


def test_numpy_functions_adopt_plain_arrays_afterwards() -> None:
    """Its frame evaluator changes what counts of references say; they are measured anew."""

    def loss(x: Any) -> Any:
        one, several = np.arange(3.0) * 1.0, {"a": [np.zeros((2, 2)) + 1.0]}
        one[0] = x[0] * 2
        several["a"][0][0, 1] = x[1] ** 2
        view = np.linspace(0.0, 1.0, 4).reshape(2, 2)
        view[0] = x[:2]
        return np.sum(one * x) + several["a"][0].sum() + np.sum(view**2)

    before = gradof.grad(loss)(np.ones(3))
    _compiled(lambda x: x * 2)(torch.ones(3))
    afterwards = gradof.grad(lambda x: loss(x))
    np.testing.assert_array_equal(afterwards(np.ones(3)), before)
    np.testing.assert_array_equal(before, [6.0, 5.0, 2.0])
    assert afterwards.cache_info().backward_runs == 1
