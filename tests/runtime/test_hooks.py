"""Hooks on gradients and modules: as in eager, recorded where they only compute, else refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.autograd.graph import register_multi_grad_hook, saved_tensors_hooks
from torch.nn.modules import module as modules

from gradof import differentiate, grad
from gradof.errors import TraceError
from tests.runtime.compare import check, close

Tensor = torch.Tensor
K = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
W = torch.tensor([0.3, -1.2, 0.7], dtype=torch.float64)
SEEN: list[Any] = []


def leaf() -> Tensor:
    return W.clone().requires_grad_()


def scaled(w: Any) -> Any:
    h = w * 2
    h.register_hook(lambda g: g * K)
    return (h * h).sum()


def late(w: Any) -> Any:
    h = w * 2
    z = (h * h).sum()
    h.register_hook(lambda g: g.clamp(-1, 1))
    return z + (h * 3).sum()


def several(w: Any) -> Any:
    h = w * 2
    h.register_hook(lambda g: g + 1)
    z = h.sum()
    h.register_hook(lambda g: g * 2)
    h.register_hook(lambda g: torch.stack([x.sin() for x in g]))
    return z + (h * h).sum()


def with_a_view(w: Any) -> Any:
    h = w * 2
    v = h[1:]
    h.register_hook(lambda g: g * K)
    return (v * v).sum() + (h * h).sum()


def then_in_place(w: Any) -> Any:
    h = w * 2
    h.register_hook(lambda g: g * K)
    h.mul_(w)
    return (h * h).sum()


def of_what_its_rule_reads(w: Any) -> Any:
    h = w.tanh()
    h.register_hook(lambda g: g * K)
    return h.exp().sum()


def several_of_what_its_rule_reads(w: Any) -> Any:
    h = (w * w).exp()
    z = h.sin().sum()
    h.register_hook(lambda g: g * 2)
    h.register_hook(lambda g: g.sin())
    return z + (h[1:] * h[:-1]).sum()


def of_one_of_several_results(w: Any) -> Any:
    values, vectors = torch.linalg.eigh(torch.outer(w, w) + torch.diag(w * K))
    vectors.register_hook(lambda g: g * 3)
    return (vectors * vectors * values).sum() + vectors.pow(4).sum()


def of_nothing(w: Any) -> Any:
    h = w * 2
    h.register_hook(lambda g: None)
    return (h * h).sum()


def of_a_local(w: Any) -> Any:
    h, other, factor = w * 2, w.sin(), 1.5

    def hook(g: Tensor) -> Tensor:
        bound = other.abs() * factor
        return torch.minimum(torch.maximum(g, -bound), bound)

    h.register_hook(hook)
    return (h * h).sum()


@pytest.mark.parametrize(
    "fn", [scaled, late, several, with_a_view, then_in_place, of_what_its_rule_reads,
           several_of_what_its_rule_reads, of_one_of_several_results, of_nothing, of_a_local],
)  # fmt: skip
def test_hooks_of_tensors_are_recorded(fn: Callable[[Any], Any]) -> None:
    check(fn, leaf(), order=2)
    x = leaf()
    (want,) = torch.autograd.grad(fn(x), x)
    close(grad(differentiate(fn, strict=True))(W), want)


def net() -> Any:
    torch.manual_seed(3)
    layers = torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)
    return torch.nn.Sequential(*layers).double()


def test_hooks_of_submodules_are_recorded() -> None:
    def build() -> Any:
        m = net()
        m[1].register_full_backward_pre_hook(lambda mod, go: (go[0] ** 2 * 3,))
        m[0].register_forward_hook(lambda mod, args, out: out * 2)
        m[2].register_forward_pre_hook(lambda mod, args: (args[0] + 1,))
        return m

    m = build()
    check(lambda x: m(x).sum(), leaf(), order=2)


def counted(w: Any) -> Any:
    h = w * 2
    h.register_hook(lambda g: SEEN.append(g))
    return (h * h).sum()


def printed(w: Any) -> Any:
    h = w * 2
    h.register_hook(lambda g: print(g))
    return h.sum()


def in_place_hook(w: Any) -> Any:
    h = w * 2
    h.register_hook(lambda g: g.mul_(2))
    return h.sum()


def augmented_hook(w: Any) -> Any:
    def hook(g: Tensor) -> Tensor:
        g *= 2
        return g

    h = w * 2
    h.register_hook(hook)
    return h.sum()


def counter(w: Any) -> Any:
    n = 0

    def hook(g: Tensor) -> Tensor:
        nonlocal n
        n += 1
        return g * n

    h = w * 2
    h.register_hook(hook)
    return h.sum()


def method(w: Any) -> Any:
    h = w * 2
    h.register_hook(SEEN.append)
    return h.sum()


def of_an_argument(w: Any) -> Any:
    w.register_hook(lambda g: g * 2)
    return w.sum()


def removed(w: Any) -> Any:
    h = w * 2
    h.register_hook(lambda g: g * 2).remove()
    return h.sum()


def retained(w: Any) -> Any:
    h = w * 2
    h.retain_grad()
    return h.sum()


def saved(w: Any) -> Any:
    with saved_tensors_hooks(lambda x: x * 2, lambda x: x):
        return (w * w).sum()


def of_a_node(w: Any) -> Any:
    h = w * 2
    node: Any = h.grad_fn
    node.register_hook(lambda gi, go: (gi[0] * 2, None))
    return h.sum()


def multi(w: Any) -> Any:
    h, k = w * 2, w * 3
    register_multi_grad_hook((h, k), lambda grads: None)
    return (h * k).sum()


def accumulated(w: Any) -> Any:
    w.register_post_accumulate_grad_hook(lambda p: None)
    return w.sum()


REFUSED = [
    counted, printed, in_place_hook, augmented_hook, counter, method, of_an_argument, removed,
    retained, saved, of_a_node, multi, accumulated,
]  # fmt: skip


@pytest.mark.parametrize("fn", REFUSED)
def test_what_a_graph_would_not_do_again_is_refused(fn: Callable[[Any], Any]) -> None:
    SEEN.clear()
    x, y = leaf(), W.clone()
    with pytest.raises(TraceError):
        differentiate(fn, strict=True)(x)
    if fn is not accumulated:
        with pytest.raises(TraceError):
            grad(differentiate(fn, strict=True))(y)
    assert not SEEN and not x._backward_hooks and x.grad is None
    assert not x._post_accumulate_grad_hooks
    assert torch.equal(x, W) and torch.equal(y, W)
    assert torch._C._autograd._top_saved_tensors_default_hooks(False) is None


@pytest.mark.parametrize(
    "register",
    [
        lambda m: m.register_full_backward_hook(lambda mod, gi, go: (gi[0] * 10,)),
        lambda m: m.register_full_backward_pre_hook(lambda mod, go: SEEN.append(go)),
        lambda m: m.register_full_backward_pre_hook(lambda mod, go: mod.note(go)),
        lambda m: m.register_backward_hook(lambda mod, gi, go: (gi[0] * 10,)),
    ],
)
def test_hooks_of_submodules_that_need_the_backward_are_refused(
    register: Callable[[Any], Any],
) -> None:
    m = net()
    register(m[1])
    before = {name: dict(getattr(m[1], name)) for name in vars(m[1]) if name.endswith("_hooks")}
    with pytest.raises(TraceError, match="grad"):
        differentiate(m, strict=True)(leaf())
    assert before == {name: dict(getattr(m[1], name)) for name in before}
    assert vars(modules)["BackwardHook"].__module__ == "torch.utils.hooks", "torch's own is back"


# --- hooks around a call: torch runs them ---------------------------------------------------------


class Log:
    """One module, called with its hooks again and again."""

    def __init__(self, called: Any, m: Any) -> None:
        self.called, self.m = called, m
        self.steps: list[list[tuple[str, Tensor]]] = []

    def step(self) -> None:
        found: list[tuple[str, Tensor]] = []
        self.steps.append(found)
        x: Any = leaf()
        x.register_hook(lambda g: found.append(("argument", g.clone())))
        y = self.called(x)
        y.retain_grad()
        y.register_hook(lambda g: g * 2)
        weights = list(self.m.parameters())
        handles: list[Any] = [
            p.register_post_accumulate_grad_hook(lambda p: found.append(("kept", p.grad.clone())))
            for p in weights
        ]
        handles.append(register_multi_grad_hook(
            weights, lambda grads: found.append(("all", grads[0].clone()))
        ))  # fmt: skip
        self.m.seen = found
        (y**2).sum().backward()
        for handle in handles:
            handle.remove()
        found.sort(key=lambda pair: (pair[0], tuple(pair[1].shape)))  # the order is the engine's
        found += [("value", y.detach()), ("result", y.grad), ("x", x.grad)]
        for p in weights:
            found.append(("weight", p.grad))
            p.grad = None


def _on_the_module(m: Any) -> Iterator[Any]:
    yield m.register_forward_hook(lambda mod, args, out: out * 3)
    yield m.register_forward_pre_hook(lambda mod, args: (args[0] + 1,))
    yield m.register_full_backward_hook(lambda mod, gi, go: (gi[0] * 10,))
    yield m.register_full_backward_pre_hook(lambda mod, go: (go[0] * 10,))
    yield m.register_full_backward_hook(lambda mod, gi, go: mod.seen.append(("hook", gi[0] + 0)))


def _inside(m: Any) -> Iterator[Any]:
    yield m[1].register_forward_hook(lambda mod, args, out: out * 3)
    yield m[1].register_full_backward_pre_hook(lambda mod, go: (go[0] * 3,))
    yield m[1].register_full_backward_pre_hook(lambda mod, go: (go[0] * 4,))
    yield modules.register_module_forward_hook(lambda mod, args, out: out * 3)
    yield modules.register_module_forward_hook(lambda mod, args, out: out * 2)


def _run(compiled: bool, one_at_a_time: bool, register: Callable[[Any], Iterator[Any]]) -> Log:
    m = net()
    log = Log(differentiate(m, strict=True) if compiled else m, m)
    handles = []
    log.step()
    for handle in register(m):
        handles.append(handle)
        log.step()
        log.step()
        if one_at_a_time:
            handle.remove()
    for handle in handles:
        handle.remove()
    log.step()
    return log


@pytest.mark.parametrize("one_at_a_time", [False, True])
@pytest.mark.parametrize("register", [_on_the_module, _inside])
def test_hooks_that_come_and_go(
    register: Callable[[Any], Iterator[Any]], one_at_a_time: bool
) -> None:
    got, want = _run(True, one_at_a_time, register), _run(False, one_at_a_time, register)
    for mine, theirs in zip(got.steps, want.steps, strict=True):
        assert [name for name, _ in mine] == [name for name, _ in theirs]
        for (name, g), (_, w) in zip(mine, theirs, strict=True):
            close(g, w, name)
    assert got.called.cache_info().backward_runs > 0


def test_a_hook_that_removes_itself_runs_once() -> None:
    inner = torch.nn.Linear(2, 2)
    seen: list[str] = []

    def once(module: Any, args: Any, output: Any) -> None:
        seen.append("once")
        handle.remove()

    handle = inner.register_forward_hook(once)
    compiled = differentiate(torch.nn.Sequential(inner))
    for _ in range(3):
        compiled(torch.ones(1, 2)).sum().backward()
    assert seen == ["once"] and not inner._forward_hooks


def test_hooks_run_in_the_order_that_they_are_moved_to() -> None:
    inner = torch.nn.Tanh()
    inner.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    inner.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    compiled = differentiate(torch.nn.Sequential(inner))
    x = torch.ones(2, requires_grad=True)
    torch.testing.assert_close(compiled(x), torch.tanh(x * 2 + 1))
    hooks: Any = inner._forward_pre_hooks
    hooks.move_to_end(next(iter(hooks)))
    torch.testing.assert_close(compiled(x), torch.tanh((x + 1) * 2))


def test_hooks_on_results_that_no_gradient_flows_between() -> None:
    def fn(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = (x * 2).tanh()
        return h, (x + h.detach()).sum(), h.argmax() + x.sum()

    compiled, found = differentiate(fn), []
    for run in (compiled, fn):
        h, y, z = run(leaf())
        h.register_hook(lambda g: found.append(g.clone()))
        (y + z + h.square().sum()).backward()
    torch.testing.assert_close(found[0], found[1])
    assert compiled.cache_info().backward_runs == 1


def of_a_written_view(w: Any) -> Any:
    h = w * 2
    h.add_(1)
    v = h[1:]
    v.register_hook(lambda g: g * 3)
    return v.unsqueeze(0).exp().sum() + h.exp().sum()


def of_written_memory(w: Any) -> Any:
    h = torch.relu_(w * 2)
    h.register_hook(lambda g: g * 3)  # type: ignore[no-untyped-call]
    return h.unsqueeze(0).exp().sum()


def test_hooks_beside_changes_in_place() -> None:
    check(of_written_memory, leaf(), order=2)
    with pytest.raises(TraceError, match="belongs to a view of what was changed in place"):
        differentiate(of_a_written_view, strict=True)(leaf())
