"""vjp, hvp, jvp, jacobian and hessian of what cannot be traced, and torch.func around what was.

The numbers are torch.func's of the plain function; that of `grad` is in test_eager.py.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

import gradof
from gradof import differentiate
from gradof.errors import CotangentError, DtypeError, EagerWarning, OutputError, TraceError

# torch's own, where forward mode is first used
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
func: Any = torch.func
Tensor = torch.Tensor


@contextmanager
def one_warning() -> Iterator[None]:
    """Exactly one EagerWarning inside, at a line of this file."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield
    assert [(w.category, w.filename) for w in seen] == [(EagerWarning, __file__)]


def _x(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _plain(x: Tensor, y: Tensor) -> Tensor:
    return torch.sin(x * y) * x.exp()


def _loud(x: Tensor, y: Tensor) -> Tensor:
    print(end="")
    return _plain(x, y)


def _loud_sum(x: Tensor, y: Tensor) -> Tensor:
    return _loud(x, y).sum()


def _plain_sum(x: Tensor, y: Tensor) -> Tensor:
    return _plain(x, y).sum()


def _pulled(pair: Any) -> Any:
    out, pull = pair
    return out, *pull(T)


X, Y, T, S = _x(3), _x(3, seed=1), _x(3, seed=2), _x(3, seed=3)

CASES: dict[str, tuple[Callable[[Any], Any], Callable[[], Any]]] = {
    "vjp": (
        lambda make: _pulled(gradof.vjp(make(_loud), X, Y)),
        lambda: _pulled(func.vjp(_plain, X, Y)),
    ),
    "jvp": (
        lambda make: gradof.jvp(make(_loud), (X, Y), (T, S)),
        lambda: func.jvp(_plain, (X, Y), (T, S)),
    ),
    "hvp": (
        lambda make: gradof.hvp(make(_loud_sum), (X, Y), (T, S)),
        lambda: func.jvp(func.grad(_plain_sum, (0, 1)), (X, Y), (T, S))[1],
    ),
    "jacobian": (
        lambda make: gradof.jacobian(make(_loud), (0, 1))(X, Y),
        lambda: func.jacrev(_plain, (0, 1))(X, Y),
    ),
    "hessian": (
        lambda make: gradof.hessian(make(_loud_sum), (0, 1))(X, Y),
        lambda: func.hessian(_plain_sum, (0, 1))(X, Y),
    ),
    "value_and_grad": (
        lambda make: gradof.value_and_grad(make(_loud_sum), (0, 1))(X, Y),
        lambda: func.grad_and_value(_plain_sum, (0, 1))(X, Y)[::-1],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_as_torch_has_it_with_one_warning(name: str) -> None:
    ours, theirs = CASES[name]
    made: dict[Any, Any] = {}

    def make(fn: Any) -> Any:
        return made.setdefault(fn, differentiate(fn))

    wanted = theirs()  # torch may warn of its own
    with one_warning():
        for _ in range(3):
            found = ours(make)
            torch.testing.assert_close(found, wanted)
            assert not any(leaf.requires_grad for leaf in torch.utils._pytree.tree_leaves(found))
    (compiled,) = made.values()
    assert (compiled.cache_info().misses, compiled.cache_info().eager_runs) == (1, 3)
    with pytest.raises(TraceError, match="print is called"):
        ours(lambda fn: differentiate(fn, strict=True))


def _structured(tree: dict[str, Any], n: Tensor) -> dict[str, Any]:
    print(end="")
    return {"a": tree["w"] * tree["z"][0], "n": n + 1, "text": "b", "c": tree["w"].sum()}


def test_structures_and_what_has_no_gradient() -> None:
    tree, n = {"w": X, "z": [Y]}, torch.tensor([1, 2])
    with one_warning():
        out, pull = gradof.vjp(_structured, tree, n)
    grads, nothing = pull({"a": T, "n": None, "text": None, "c": torch.tensor(2.0).double()})
    assert nothing is None and out["text"] == "b" and out["n"].tolist() == [2, 3]
    torch.testing.assert_close(grads, {"w": T * Y + 2, "z": [T * X]})
    with pytest.raises(CotangentError):
        pull({"a": T.float(), "n": None, "text": None, "c": torch.tensor(2.0).double()})
    with pytest.raises(CotangentError):
        pull(T)
    value, moved = gradof.jvp(_structured, (tree, n), ({"w": S, "z": [T]}, None))
    assert (moved["n"], moved["text"], value["text"]) == (None, None, "b")
    torch.testing.assert_close((moved["a"], moved["c"]), (S * Y + T * X, S.sum()))
    with pytest.raises(OutputError):
        gradof.jacobian(_structured)(tree, n)
    with pytest.raises(OutputError):
        gradof.hessian(_loud)(X, Y)
    with pytest.raises(DtypeError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gradof.hessian(_loud_sum)(n, Y)


def test_parameters_that_are_read_get_gradients_through_the_results() -> None:
    net = nn.Linear(3, 1).double()

    def energy(x: Tensor) -> Tensor:
        print(end="")
        return torch.tanh(net(x)).sum()

    def penalty(gradient: Any) -> tuple[Any, Any]:
        net.zero_grad()
        gradient(X).square().sum().backward()
        return net.weight.grad, net.bias.grad

    wanted = penalty(func.grad(energy))
    with one_warning():
        one = torch.ones((), dtype=torch.float64)
        for fn in (gradof.grad(energy), lambda x: gradof.vjp(energy, x)[1](one)[0],
                   lambda x: gradof.jacobian(energy)(x)):  # fmt: skip
            torch.testing.assert_close(penalty(fn), wanted)
        with torch.no_grad():
            assert not gradof.grad(energy)(X).requires_grad
        own = X.clone().requires_grad_()
        gradof.hvp(energy, (own,), (T,))[0].sum().backward()
    third = func.grad(lambda x: func.vjp(func.grad(energy), x)[1](T)[0].sum())(X)
    torch.testing.assert_close(own.grad, third)


def test_arguments_that_are_changed_in_place() -> None:
    def fn(x: Tensor) -> Tensor:
        print(end="")
        x.mul_(2)
        return (x**2).sum()

    x = X.clone()
    with pytest.raises(RuntimeError, match="leaf Variable"):  # as of arguments that require grad
        gradof.grad(fn)(x)
    assert torch.equal(x, X)


def test_one_tensor_as_two_arguments_has_two_gradients() -> None:
    own = X.clone().requires_grad_()
    with one_warning():
        for x in (X, own):
            first, second = gradof.grad(_loud_sum, (0, 1))(x, x)
            wanted = func.grad(_plain_sum, (0, 1))(X, X)
            torch.testing.assert_close((first.detach(), second.detach()), wanted)


# --- torch.func around ----------------------------------------------------------------------------


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3).double()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = torch.tanh(self.layer(x))
        return out


AROUND: dict[str, Callable[[Any, Any], Any]] = {
    "vmap": lambda fn, net: func.vmap(fn)(_x(4, 3)),
    "vmap of the traced shape": lambda fn, net: func.vmap(fn)(_x(4, 2, 3)),
    "grad": lambda fn, net: func.grad(lambda x: fn(x).sum())(_x(2, 3)),
    "jacrev": lambda fn, net: func.jacrev(fn)(_x(2, 3)),
    "jacfwd": lambda fn, net: func.jacfwd(fn)(_x(2, 3)),
    "hessian": lambda fn, net: func.hessian(lambda x: fn(x).sum())(_x(3)),
    "per-sample gradients": lambda fn, net: func.vmap(
        func.grad(lambda p, x: func.functional_call(net, p, (x,)).sum()), (None, 0)
    )({k: v.detach() for k, v in net.named_parameters()}, _x(4, 2, 3)),
    "forward mode": lambda fn, net: _tangent(fn, _x(2, 3), _x(2, 3, seed=1)),
}


def _tangent(fn: Any, x: Tensor, t: Tensor) -> Any:
    duals: Any = torch.autograd.forward_ad
    with duals.dual_level():
        return duals.unpack_dual(fn(duals.make_dual(x, t))).tangent


@pytest.mark.parametrize("name", AROUND)
def test_transforms_of_torch_around_what_was_traced(name: str) -> None:
    torch.manual_seed(0)
    net = _Net()
    compiled = differentiate(net)
    for _ in range(3):  # by its generated call from the second on
        compiled(_x(2, 3)).sum().backward()
    wanted = AROUND[name](net.forward, net)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EagerWarning)
        found = AROUND[name](compiled, compiled)
    torch.testing.assert_close(found, wanted)
    before = compiled.cache_info()
    compiled(_x(2, 3)).sum().backward()
    after = compiled.cache_info()
    assert (after.misses, after.backward_runs) == (before.misses, before.backward_runs + 1)


OURS_WITHIN: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "grad": (lambda fn: gradof.grad(lambda x: fn(x).sum()),
             lambda fn: func.grad(lambda x: fn(x).sum())),
    "vjp": (lambda fn: lambda x: gradof.vjp(fn, x)[1](x)[0],
            lambda fn: lambda x: func.vjp(fn, x)[1](x)[0]),
    "jacobian": (gradof.jacobian, func.jacrev),
    "hessian": (lambda fn: gradof.hessian(lambda x: fn(x).sum()),
                lambda fn: func.hessian(lambda x: fn(x).sum())),
    "hvp": (lambda fn: lambda x: gradof.hvp(lambda y: fn(y).sum(), (x,), (x,))[0],
            lambda fn: lambda x: func.jvp(func.grad(lambda y: fn(y).sum()), (x,), (x,))[1]),
    "jvp": (lambda fn: lambda x: gradof.jvp(fn, (x,), (x,)),
            lambda fn: lambda x: func.jvp(fn, (x,), (x,))),
}  # fmt: skip


@pytest.mark.parametrize("name", OURS_WITHIN)
def test_our_transforms_within_torchs(name: str) -> None:
    torch.manual_seed(0)
    net = _Net()
    ours, theirs = OURS_WITHIN[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EagerWarning)
        found = func.vmap(ours(net))(_x(4, 3))
    torch.testing.assert_close(found, func.vmap(theirs(net))(_x(4, 3)))
