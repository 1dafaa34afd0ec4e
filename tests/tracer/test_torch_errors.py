"""What cannot be traced is refused by name, at the user's line, with nothing changed."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gradof.errors import (
    CustomRuleError,
    DataDependentError,
    DataDependentShapeError,
    DeviceError,
    FreeTensorError,
    GradofError,
    InputError,
    LeafMutationError,
    LeafTypeError,
    TraceError,
    UnsupportedOpError,
)
from gradof.tracer.state.source import shorten
from gradof.tracer.torch.tracer import trace_torch

X = torch.randn(4, 3)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return torch.cat([g, g])


def to_list(x: torch.Tensor) -> torch.Tensor:
    return x if x.detach().repeat(30, 1).tolist() else -x  # here


def to_numpy(x: torch.Tensor) -> Any:
    return np.median(x.detach().numpy())  # here


def unique(x: torch.Tensor) -> Any:
    return x.unique()  # type: ignore[no-untyped-call]  # here


def mutated_leaf(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)  # here
    return x


def item_of_leaf(x: torch.Tensor) -> torch.Tensor:
    x[0] = 0.0  # here
    return x


def behind_data(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    z = y * y
    y.data.mul_(2)  # here
    return z.sum()


def custom(x: torch.Tensor) -> Any:
    return Doubled.apply(x)  # type: ignore[no-untyped-call]


def backward(x: torch.Tensor) -> torch.Tensor:
    loss = x.sum()
    loss.backward()  # type: ignore[no-untyped-call]  # here
    return loss


def transforms(x: torch.Tensor) -> Any:
    return torch.func.linearize(lambda y: (y**3).sum(), x)[0]  # here


def writes_array(x: torch.Tensor) -> torch.Tensor:
    shared = torch.from_numpy(np.ones(3, np.float32))  # here
    return x * shared.mul_(2)


def returns_array(x: torch.Tensor) -> Any:
    made = np.ones(3, np.float32)
    return x.sum(), torch.as_tensor(made)[1:], made  # here


def unknown_op(x: torch.Tensor) -> Any:
    return torch.special.bessel_j0(x)  # here


def hidden() -> Callable[[torch.Tensor], Any]:
    supply = iter([torch.ones(3)])

    def uses_hidden(x: torch.Tensor) -> torch.Tensor:
        return x * next(supply)  # here

    return uses_hidden


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch's own, of jacfwd
@pytest.mark.parametrize(
    ("fn", "error"),
    [
        (to_list, DataDependentError),
        (to_numpy, DataDependentError),
        (unique, DataDependentShapeError),
        (mutated_leaf, LeafMutationError),
        (item_of_leaf, LeafMutationError),
        (behind_data, TraceError),
        (custom, CustomRuleError),
        (backward, TraceError),
        (transforms, UnsupportedOpError),
        (writes_array, FreeTensorError),
        (returns_array, FreeTensorError),
        (unknown_op, UnsupportedOpError),
        (hidden(), FreeTensorError),
    ],
)
def test_refused_at_the_line(fn: Callable[..., Any], error: type[GradofError]) -> None:
    x = X.clone().requires_grad_()
    state = torch.get_rng_state()
    with pytest.raises(error) as caught:
        trace_torch(fn, (x,), {}, strict=True)
    assert type(caught.value) is error
    assert str(caught.value.loc) == f"{shorten(__file__)}:{line_of(fn)}"
    assert caught.value.hint
    assert torch.equal(x, X) and x.grad is None and x.is_leaf
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.is_grad_enabled()


def line_of(fn: Callable[..., Any]) -> int:
    if fn is custom:
        return inspect.getsourcelines(Doubled.backward)[1]
    lines, first = inspect.getsourcelines(fn)
    (here,) = [i for i, line in enumerate(lines) if "# here" in line]
    return first + here


def same(x: Any) -> Any:
    return x


@pytest.mark.parametrize(
    ("argument", "error"),
    [
        (np.ones(3), LeafTypeError),
        (iter([1.0]), LeafTypeError),
        (X.to_sparse(), LeafTypeError),
        (torch.ones(2, device="meta"), DeviceError),
        ({"a": [set()]}, LeafTypeError),
    ],
    ids=lambda a: type(a).__name__,
)
def test_refused_arguments(argument: Any, error: type[InputError]) -> None:
    with pytest.raises(error) as caught:
        trace_torch(same, (argument,), {})
    assert "args[0]" in caught.value.message
    assert str(caught.value.loc).startswith(shorten(__file__))


def test_overlapping_memory_of_a_changed_input_is_refused() -> None:
    def change(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x + y

    data = torch.ones(4)
    with pytest.raises(TraceError, match="shares its memory"):
        trace_torch(change, (data[:3], data[1:]), {})
    assert torch.equal(data, torch.ones(4))


def test_errors_of_the_function_pass_through_and_leave_torch_as_it_was() -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        trace_torch(fails, (X,), {})
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        trace_torch(lambda x: x @ x, (X,), {})
    fresh = torch.ones(2)
    assert not torch._is_functional_tensor(fresh)
    assert torch.equal(fresh + 1, torch.full((2,), 2.0))


def test_static_arguments() -> None:
    def fn(x: torch.Tensor, table: dict[str, int], flag: bool = False) -> torch.Tensor:
        return x * table["by"] if flag else x

    traced = trace_torch(fn, (X, {"by": 3}), {"flag": True}, static_argnames=("table",))
    assert traced.arg_leaves == (0,) and len(traced.static_leaves) == 2
    with pytest.raises(InputError, match="nope"):
        trace_torch(fn, (X, {"by": 3}), {}, static_argnames=("nope",))
