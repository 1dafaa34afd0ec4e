"""torch.cond, while_loop and torch.compile inside traced functions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops import utils
from torch._higher_order_ops.strict_mode import strict_mode
from torch._higher_order_ops.while_loop import while_loop

from gradof import differentiate
from gradof.errors import UnsupportedOpError

Function = Callable[[Tensor], Tensor]
pytestmark = pytest.mark.skipif(
    not hasattr(utils, "_hop_compile_and_call"), reason="torch before 2.13 has another entry"
)


def check(compiled: Function, plain: Function, x: Tensor) -> None:
    x = x.requires_grad_()
    have, want = compiled(x), plain(x)
    torch.testing.assert_close(have, want)
    cotangent = torch.randn_like(want)
    (got,), (due,) = (torch.autograd.grad(y, x, cotangent) for y in (have, want))
    torch.testing.assert_close(got, due)


def test_cond_takes_a_branch_and_is_guarded() -> None:
    def branch(x: Tensor) -> Tensor:
        result: Tensor = torch.cond(
            x.sum() > 0, lambda a: torch.sin(a) * 2, lambda a: torch.cos(a) * a, (x,)
        )
        return result

    def plain(x: Tensor) -> Tensor:
        return torch.sin(x) * 2 if x.sum() > 0 else torch.cos(x) * x

    compiled = differentiate(branch)
    for sign in (1.0, -1.0, 1.0, -1.0):
        check(compiled, plain, torch.rand(5, dtype=torch.float64) * sign)
    info = compiled.cache_info()
    assert info.backward_runs == 4 and len(compiled.plans()) == 2, "a graph for each branch"


def test_cond_within_cond_sees_what_is_around_it() -> None:
    w = torch.randn(3, dtype=torch.float64)

    def branch(x: Tensor) -> Tensor:
        def positive(a: Tensor) -> Tensor:
            result: Tensor = torch.cond(a.max() > 1, lambda b: b * w, lambda b: b + w, (a,))
            return result

        result: Tensor = torch.cond(x[0] > 0, positive, lambda a: a * a, (x,))
        return result

    def plain(x: Tensor) -> Tensor:
        if not x[0] > 0:
            return x * x
        return x * w if x.max() > 1 else x + w

    compiled = differentiate(branch)
    for values in ([0.5, 2.0, 1.0], [0.5, 0.2, -1.0], [-0.5, 2.0, 1.0]):
        check(compiled, plain, torch.tensor(values, dtype=torch.float64))


def test_while_loop_runs_as_often_as_it_has_to() -> None:
    def loop(x: Tensor) -> Tensor:
        def again(i: Tensor, pair: dict[str, Tensor]) -> Tensor:
            return pair["y"].abs().max() < 10

        def body(i: Tensor, pair: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
            return i + 1, {"y": pair["y"] * 2 + i}

        start = torch.tensor(0), {"y": x}
        steps, result = while_loop(again, body, start)  # type: ignore[no-untyped-call]
        found: Tensor = result["y"] * steps
        return found

    def plain(x: Tensor) -> Tensor:
        i, y = 0, x
        while y.abs().max() < 10:
            i, y = i + 1, y * 2 + i
        return y * i

    compiled = differentiate(loop)
    for scale in (0.3, 3.0, 0.3):
        check(compiled, plain, torch.full((4,), scale, dtype=torch.float64))


def test_a_compiled_function_is_traced_as_it_was_written() -> None:
    def inner(x: Tensor) -> Tensor:
        return torch.tanh(x) * x

    linear = nn.Linear(4, 2).double()
    fast, module = torch.compile(inner, backend="eager"), torch.compile(linear, backend="eager")

    def outer(x: Tensor) -> Tensor:
        result: Tensor = module(fast(x)) ** 2
        return result

    compiled = differentiate(outer)
    check(compiled, lambda x: linear(inner(x)) ** 2, torch.randn(3, 4, dtype=torch.float64))
    assert compiled.cache_info().backward_runs == 1


def test_an_operator_that_cannot_be_followed_is_named() -> None:
    def strict(x: Tensor) -> Tensor:
        result: Tensor = strict_mode(torch.sin, (x,))  # type: ignore[no-untyped-call]
        return result

    with pytest.raises(UnsupportedOpError, match=r"behind strict_mode\n.*test_torch_control_flow"):
        differentiate(strict, strict=True)(torch.randn(4))


def test_torch_is_as_it_was_for_others_and_afterwards() -> None:
    before = getattr(utils, "_hop_compile_and_call")  # noqa: B009
    seen: list[Any] = []

    def other() -> None:
        x = torch.ones(3)
        seen.append(torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)))

    def failing(x: Tensor) -> Tensor:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        differentiate(failing)(torch.randn(4))
    torch.testing.assert_close(seen[0], torch.sin(torch.ones(3)))
    assert getattr(utils, "_hop_compile_and_call") is before  # noqa: B009
