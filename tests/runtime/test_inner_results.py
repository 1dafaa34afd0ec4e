"""Gradients of results that other results are computed from, equal to eager's."""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from gradof import differentiate
from gradof.runtime import torch_inner
from gradof.runtime.inner_results import InnerResults
from gradof.runtime.unasked import IDLE

Tensor = torch.Tensor
F = torch.nn.functional


def chain(x: Any, w: Any) -> Any:
    h = (x * w).tanh()
    g = h.sin() * w
    return h, g, (g * g + h).sum()


def draws(x: Any, w: Any) -> Any:
    h = F.dropout(x * w, 0.5).tanh()
    g = F.dropout(h * w, 0.5) + torch.rand_like(h)
    return h, g, (g * g * h).sum()


def leaves() -> tuple[Tensor, Tensor]:
    torch.manual_seed(3)
    x, w = torch.randn(2, 5, dtype=torch.float64)
    return x.clone().requires_grad_(), w.clone().requires_grad_()



def retained(h: Any, g: Any, y: Any, x: Any, w: Any) -> Any:
    h.retain_grad()
    g.retain_grad()
    (y + 2 * g.sum() + h.sum()).backward()
    return h.grad, g.grad, x.grad, w.grad


def hooked(h: Any, g: Any, y: Any, x: Any, w: Any) -> Any:
    seen: list[Tensor] = []

    def double(grad: Tensor) -> Tensor:
        seen.append(grad)
        return grad * 2

    h.register_hook(double)
    del h
    (y + g.sum()).backward()
    return seen[0], x.grad, w.grad


def of_a_view(x: Any, w: Any) -> Any:
    h = (x * w).tanh()
    wide = h.expand(3, 5)
    return h, wide, (wide * wide * w).sum()


def written_to(h: Any, g: Any, y: Any, x: Any, w: Any) -> Any:
    h.retain_grad()
    y.mul_(2)
    y.backward()
    return h.grad, x.grad


def once_more(h: Any, g: Any, y: Any, x: Any, w: Any) -> Any:
    first = torch.autograd.grad(y, h, retain_graph=True)
    second = torch.autograd.grad(y, (h, x), retain_graph=True)
    return (*first, *second, *torch.autograd.grad(y, (x, w)))


def recorded(h: Any, g: Any, y: Any, x: Any, w: Any) -> Any:
    first = torch.autograd.grad(y, (h, g, x), create_graph=True)
    return (*first, *torch.autograd.grad(sum(f.square().sum() for f in first), (x, w)))  # type: ignore[arg-type]


def collected(h: Any, g: Any, y: Any, x: Any, w: Any) -> Any:
    y.backward(inputs=[h, x])
    return h.grad, x.grad, w.grad


def of_an_edge(h: Any, g: Any, y: Any, x: Any, w: Any) -> Any:
    return torch.autograd.grad(y, (torch.autograd.graph.get_gradient_edge(h),))


USES: list[Callable[..., Any]] = [
    lambda h, g, y, x, w: torch.autograd.grad(y, (h, g, x, w)),
    lambda h, g, y, x, w: torch.autograd.grad(y, h),
    lambda h, g, y, x, w: torch.autograd.grad(g.sum(), h),
    lambda h, g, y, x, w: torch.autograd.grad(y + g.sum(), (w, g)),
    lambda h, g, y, x, w: torch.autograd.grad(h.sum(), g, allow_unused=True),
    retained, hooked, written_to, once_more, recorded, collected, of_an_edge,
]  # fmt: skip


@pytest.mark.parametrize("fn", [chain, draws, of_a_view])
@pytest.mark.parametrize("use", USES)
def test_gradients_of_results_within(use: Callable[..., Any], fn: Any) -> None:
    compiled = differentiate(fn, strict=True)
    for _ in range(3):
        x, w = leaves()
        expected, after = use(*fn(x, w), x, w), torch.get_rng_state()
        x, w = leaves()
        found = use(*compiled(x, w), x, w)
        torch.testing.assert_close(found, expected)
        assert torch.equal(torch.get_rng_state(), after)
    assert compiled.cache_info().misses == 1


def in_a_thread(ask: Callable[[], Any]) -> Any:
    """As a device's nodes ask, which have a thread of their own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(ask).result()


@pytest.mark.parametrize("tells", ["the waiting thread", "nobody"])
@pytest.mark.parametrize("use", USES)
def test_where_another_thread_runs_the_backward(
    use: Callable[..., Any], tells: str, monkeypatch: Any
) -> None:
    plain = torch_inner._goals
    goals = (lambda: None) if tells == "nobody" else lambda: in_a_thread(plain)
    monkeypatch.setattr(torch_inner, "_goals", goals)
    results = []
    for run in (chain, differentiate(chain, strict=True)):
        x, w = leaves()
        results.append(use(*run(x, w), x, w))
    torch.testing.assert_close(*results)


def test_another_thread_takes_no_part_again_for_gradients_of_arguments(monkeypatch: Any) -> None:
    """The backward goes from all results at once, as it does in the caller's thread."""
    goals, asked = torch_inner._goals, []

    def told() -> Any:
        asked.append(in_a_thread(goals))
        return asked[-1]

    monkeypatch.setattr(torch_inner, "_goals", told)
    monkeypatch.setattr(InnerResults, "part", lambda *_: pytest.fail("the part ran"))
    x, w = leaves()
    h, g, y = differentiate(chain, strict=True)(x, w)
    found = torch.autograd.grad((h.sum(), g.sum(), y), (x, w))
    assert asked and all(given is not None for given in asked)
    x, w = leaves()
    h, g, y = chain(x, w)
    torch.testing.assert_close(found, torch.autograd.grad((h.sum(), g.sum(), y), (x, w)))


def test_two_backwards_at_once_tell_no_goals(monkeypatch: Any) -> None:
    """Which of them a device's thread works for is not known; the gradients are right."""
    goals, asked = torch_inner._goals, []

    def told() -> Any:
        def other(cotangent: Tensor) -> Tensor:
            asked.append(in_a_thread(goals))
            return cotangent

        with torch.enable_grad():
            a = torch.ones((), requires_grad=True)
            b = a * 2
            b.register_hook(other)  # type: ignore[no-untyped-call]
        torch.autograd.grad(b, a)  # within the backward that asks
        return asked[-1]

    monkeypatch.setattr(torch_inner, "_goals", told)
    results = []
    for run in (chain, differentiate(chain, strict=True)):
        x, w = leaves()
        _, g, y = run(x, w)
        results.append(torch.autograd.grad(y, (x, g)))
    torch.testing.assert_close(*results)
    assert asked and all(given is None for given in asked)


def test_after_a_backward_that_a_hook_has_ended() -> None:
    found = []
    for run in (chain, differentiate(chain, strict=True)):
        x, w = leaves()
        h, g, y = run(x, w)
        g.retain_grad()
        ends = [True]

        def end(grad: Tensor, ends: list[bool] = ends) -> None:
            if ends:
                raise ValueError(ends.pop())

        h.register_hook(end)
        with pytest.raises(ValueError, match="True"):
            y.backward(retain_graph=True)
        y.backward()
        found.append((x.grad, w.grad, g.grad))
    torch.testing.assert_close(*found)


def test_rows_of_a_jacobian() -> None:
    eye = torch.eye(5, dtype=torch.float64)
    runs: list[Any] = [chain, differentiate(chain, strict=True)]
    results = []
    for run in runs:
        x, w = leaves()
        h, g, _ = run(x, w)
        results.append(torch.autograd.grad(g, (h, x), eye, is_grads_batched=True))
    torch.testing.assert_close(*results)


def test_after_calls_without_a_backward() -> None:
    compiled = differentiate(chain, strict=True)
    x, w = leaves()
    for _ in range(IDLE + 1):
        h, _, y = compiled(x, w)
    expected = torch.autograd.grad((e := chain(x, w))[2], (e[0], w))
    torch.testing.assert_close(torch.autograd.grad(y, (h, w)), expected)


def test_df_runs_once_where_nobody_asks_for_them() -> None:
    compiled = differentiate(chain, strict=True)
    x, w = leaves()
    h, g, y = compiled(x, w)
    (y + h.sum() + g.sum()).backward()
    assert compiled.cache_info().backward_runs == 1


def test_buffers_that_the_call_writes_to() -> None:
    class Net(torch.nn.Module):
        seen: Any

        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Conv2d(2, 3, 3)
            self.norm = torch.nn.BatchNorm2d(3, momentum=0.5)
            self.register_buffer("seen", torch.ones(()))

        def forward(self, x: Any) -> Any:
            features = self.norm(self.first(x)).relu() * self.seen
            self.seen.add_(1)
            return features, features.mean((2, 3)).square().sum(1)

    torch.manual_seed(0)
    net: Any = Net()
    other = copy.deepcopy(net)
    compiled = differentiate(net, strict=True)
    for _ in range(3):
        image = torch.randn(2, 2, 6, 6)
        results = []
        for run in (compiled, other):
            features, scores = run(image)
            results.append(torch.autograd.grad(scores[0], features))
        torch.testing.assert_close(*results)
        torch.testing.assert_close(dict(net.named_buffers()), dict(other.named_buffers()))


def test_a_result_that_is_stored() -> None:
    class Net(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            self.h = x.tanh()
            return self.h.sin().sum()

    net: Any = Net()
    compiled = differentiate(net, strict=True)
    for _ in range(3):
        x, _ = leaves()
        y = compiled(x)
        net.h.retain_grad()
        y.backward()
        torch.testing.assert_close(net.h.grad, net.h.detach().cos())


@pytest.mark.parametrize("name", ["written", "freed"])
def test_what_eager_refuses(name: str) -> None:
    def use(run: Any) -> None:
        x, w = leaves()
        h, _, y = run(x, w)
        if name == "written":
            with torch.no_grad():
                w.mul_(2)
        else:
            y.backward()
        torch.autograd.grad(y, h)

    for run in (chain, differentiate(chain, strict=True)):
        with pytest.raises(RuntimeError, match=r"inplace|second time"):
            use(run)


def test_which_results_lie_within() -> None:
    compiled = differentiate(lambda x: (x.exp().detach().sin(), x.tanh(), x.sum()), strict=True)
    x, _ = leaves()
    assert compiled(x)[1].grad_fn.name() == "_CompiledBackward"  # none: no node of their own


def test_inputs_that_are_computed_from_each_other() -> None:
    """A backward that computes f again, recorded, follows no input to another."""

    def fn(a: Any, b: Any) -> Any:
        r = a * b
        for _ in range(12):
            r = torch.sin(r) + r * b.cos() * 0.1
        return r.sum()

    compiled = differentiate(fn, strict=True)
    for idle in (True, False):
        for k in range(2 * IDLE):
            a, _ = leaves()
            b = a * 2
            y = compiled(a, b)
            if not idle and k < 2 * IDLE - 1:
                y.backward()
        (first,) = torch.autograd.grad(y, a, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), a)
        (e1,) = torch.autograd.grad(fn(a, a * 2), a, create_graph=True)
        (e2,) = torch.autograd.grad(e1.sum(), a)
        torch.testing.assert_close((first, second), (e1, e2))


def _read_before(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    v = y * 2
    x.copy_(v)
    return v.sin() * w


def _read_after(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    x.copy_(y)
    return x * w


def _both(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    x.copy_(y)
    return x * w + y.sin()


def _twice(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    x.copy_(w)
    z = x * 3
    x.copy_(y)
    return x * w + z


@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize("fn", [_read_before, _read_after, _both, _twice])
def test_an_argument_that_is_another_one_by_copy(fn: Any, asks: bool) -> None:
    compiled: Any = differentiate(fn, strict=True)
    for _ in range(2):
        found = []
        for call in (compiled, fn):
            x = torch.zeros(3, dtype=torch.float64)
            x = x.requires_grad_().clone() if asks else x  # with a history of its own
            y, w = (torch.arange(3.0).double().add(i).requires_grad_() for i in (1.0, 2.0))
            value = call(x, y, w)
            inputs = [x, y, w]
            first = torch.autograd.grad(
                value.square().sum(), inputs, allow_unused=True, create_graph=True
            )
            own = torch.autograd.grad(x.sin().sum(), [y])
            found.append([value, x, *first, *own])
        for have, want in zip(*found, strict=True):
            assert (have is None) == (want is None)
            if have is not None:
                torch.testing.assert_close(have, want)
