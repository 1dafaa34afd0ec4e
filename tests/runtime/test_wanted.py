"""A backward computes what it was asked for: nothing else is compiled, nothing else runs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import gradof


def product(a: Tensor, b: Tensor) -> Tensor:
    """One matrix product: its df has one product per gradient that is wanted."""
    return (a @ b).sum()


def setup() -> tuple[Any, Tensor, Tensor, Tensor]:
    """The compiled product, two leaves, and b = 2 * leaf, which is none."""
    a, leaf = torch.randn(3, 4, requires_grad=True), torch.randn(4, 2, requires_grad=True)
    return gradof.differentiate(product), a, leaf, leaf * 2.0


def products(compiled: Any, *args: Tensor) -> list[int]:
    """Matrix products in each df specialised so far."""
    plan = compiled.bind(args, {}).entry.plan
    return [
        sum(node.kind == "mm" for node in special.plan.graph.walk())
        for gradient in plan.gradients.values()
        for special in gradient.dfs.values()
    ]


@pytest.mark.parametrize("wanted", ["a", "b", "leaf"])
def test_grad_of_one_input_computes_one_product(wanted: str) -> None:
    compiled, a, leaf, b = setup()
    target = {"a": a, "b": b, "leaf": leaf}[wanted]
    (ours,) = torch.autograd.grad(compiled(a, b), [target], retain_graph=True)
    (eager,) = torch.autograd.grad(product(a, b), [target])
    torch.testing.assert_close(ours, eager)
    assert products(compiled, a, b) == [1]


def test_backward_into_some_inputs() -> None:
    compiled, a, leaf, b = setup()
    torch.autograd.backward(compiled(a, b), inputs=[leaf])
    assert a.grad is None and leaf.grad is not None
    torch.testing.assert_close(leaf.grad, 2 * (a.detach().T @ torch.ones(3, 2)))
    assert products(compiled, a, b) == [1]


def test_plain_backward_computes_all() -> None:
    compiled, a, leaf, b = setup()
    compiled(a, b).backward()
    assert a.grad is not None and leaf.grad is not None
    assert products(compiled, a, b) == [2]


def test_create_graph_of_one_input() -> None:
    compiled, a, _, b = setup()
    (first,) = torch.autograd.grad((compiled(a, b)) ** 2, [a], create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), [a])
    (first_eager,) = torch.autograd.grad(product(a, b) ** 2, [a], create_graph=True)
    (second_eager,) = torch.autograd.grad(first_eager.sum(), [a])
    torch.testing.assert_close(second, second_eager)


def cosines(compiled: Any, *args: Tensor) -> list[int]:
    """Cosines in each df specialised so far, as it is emitted."""
    plan = compiled.bind(args, {}).entry.plan
    return [
        sum(node.kind == "cos" for node in special.plan.prepared.walk())
        for gradient in plan.gradients.values()
        for special in gradient.dfs.values()
    ]


def two_sines(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """pytorch#131794: the gradient of one output needs one cosine."""
    return a.sin(), b.sin()


@pytest.mark.parametrize("which", [0, 1])
def test_one_output_computes_one_cosine(which: int) -> None:
    compiled = gradof.differentiate(two_sines)
    args = [torch.randn(4, requires_grad=True) for _ in range(2)]
    seed = torch.randn(4)
    ours = torch.autograd.grad(compiled(*args)[which], args, seed, allow_unused=True)
    eager = torch.autograd.grad(two_sines(*args)[which], args, seed, allow_unused=True)
    assert [g is None for g in ours] == [g is None for g in eager] == [which == 1, which == 0]
    torch.testing.assert_close(ours[which], eager[which])
    assert cosines(compiled, *args) == [1]


def test_materialize_grads_and_allow_unused() -> None:
    compiled = gradof.differentiate(two_sines)
    a, b = (torch.randn(4, requires_grad=True) for _ in range(2))
    ours = torch.autograd.grad(compiled(a, b)[0].sum(), [a, b], materialize_grads=True)
    torch.testing.assert_close(ours, (a.cos(), torch.zeros(4)))
    with pytest.raises(RuntimeError) as mine:
        torch.autograd.grad(compiled(a, b)[0].sum(), [a, b])
    with pytest.raises(RuntimeError) as eager:
        torch.autograd.grad(two_sines(a, b)[0].sum(), [a, b])
    assert str(mine.value) == str(eager.value)


def test_outputs_without_gradient_and_inputs_that_want_none() -> None:
    def mixed(a: Tensor, b: Tensor, n: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return a * b, a.argmax(), (a * b).detach(), n + 1

    compiled = gradof.differentiate(mixed)
    a, b, n = torch.randn(4, requires_grad=True), torch.randn(4), torch.arange(4)
    ours, eager = compiled(a, b, n), mixed(a, b, n)
    assert [t.requires_grad for t in ours] == [t.requires_grad for t in eager]
    torch.testing.assert_close(ours, eager)
    torch.testing.assert_close(torch.autograd.grad(ours[0].sum(), [a]), (b,))
    plan = compiled.bind((a, b, n), {}).entry.plan
    assert list(plan.gradients) == [(True, False, False)]


def test_grads_of_leaves_come_without_errors_of_torchs_after_the_first() -> None:
    """torch raises an error, 40 us each, if asked of a leaf that autograd.grad collects."""

    def fn(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return (a * b).sin() * c

    compiled = gradof.differentiate(fn)
    leaves = [torch.randn(5, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    seed = torch.randn(5, dtype=torch.float64)
    kinds = []
    for wanted in ([0, 1], [0, 1], [2, 0], [1]):
        inputs = [leaves[i] for i in wanted]
        y = compiled(*leaves)
        kinds.append({type(node).__name__ for node, _ in y.grad_fn.next_functions})
        mine = torch.autograd.grad(y, inputs, seed, create_graph=True)
        theirs = torch.autograd.grad(fn(*leaves), inputs, seed, create_graph=True)
        torch.testing.assert_close(mine, theirs)
        again = [
            torch.autograd.grad(g[0], leaves, seed, allow_unused=True, materialize_grads=True)
            for g in (mine, theirs)
        ]
        torch.testing.assert_close(*again)
    assert kinds[0] == {"AccumulateGrad"} and kinds[1] == {"AliasBackward0"}
    compiled(*leaves).backward(seed)
    want = torch.autograd.grad(fn(*leaves), leaves, seed)
    torch.testing.assert_close([t.grad for t in leaves], list(want))


@pytest.mark.parametrize("together", [False, True])
def test_hooks_of_leaves_are_not_called_without_a_gradient(together: bool) -> None:
    """A backward from one of two results, and a second derivative that does not come to a leaf."""

    def f(x: Any, w: Any, b: Any) -> Any:
        return (x * w).sin().sum(), (x * b).sum()

    def noting(name: str, change: Any) -> Any:
        def hook(gradient: Any) -> Any:
            seen.append(name)
            return change(gradient)

        return hook

    seen: list[str] = []
    leaves: list[Any] = [torch.rand(3, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    x, w, b = leaves
    w.register_hook(noting("w", lambda g: g.clamp(-1, 1)))
    handle = b.register_hook(noting("b", lambda g: g * 2))
    g: Any = gradof.differentiate(f, strict=True)
    for _ in range(3):
        first, second = g(x, w, b)
        if together:
            first, second = first + second, second
        first.backward(retain_graph=True)
        assert sorted(seen) == (["b", "w"] if together else ["w"])
        assert (b.grad is None) != together
        seen.clear()
        second.backward()
        assert seen == ["b"]
        seen.clear()
        (slope,) = torch.autograd.grad(g(x, w, b)[0], x, create_graph=True)
        slope.sum().backward()
        assert seen == ["w"]
        seen.clear()
        for leaf in leaves:
            leaf.grad = None
    there = [*w._backward_hooks.values(), *b._backward_hooks.values()]
    assert [hook.__name__ for hook in there] == ["hook", "hook"]
    handle.remove()
    g(x, w, b)[1].backward()
    assert not seen
    torch.testing.assert_close(b.grad, x.detach())


@pytest.mark.parametrize("first", [0, 2])
@pytest.mark.filterwarnings("ignore::gradof.errors.EagerWarning")
def test_hooks_of_a_leaf_whose_gradient_the_function_asks_for(first: int) -> None:
    """Eager's `torch.autograd.grad` hands it to them."""

    def f(x: Any, w: Any) -> Any:
        (slope,) = torch.autograd.grad((x * w).sin().sum(), w, create_graph=True)
        return (x * (w - 0.1 * slope)).pow(2).sum()

    x, w = torch.rand(2, 3, dtype=torch.float64), torch.rand(3, dtype=torch.float64)
    leaf: Any = w.requires_grad_()
    g: Any = gradof.differentiate(f)
    for call in range(5):
        if call == first:
            leaf.register_hook(lambda gradient: gradient * 2)
        found, expected = (torch.autograd.grad(fn(x, w), w) for fn in (g, f))
        torch.testing.assert_close(found, expected)
    assert g.cache_info().backward_runs == first


@pytest.mark.filterwarnings("ignore::gradof.errors.EagerWarning")
def test_a_gradient_that_goes_on_through_another_argument() -> None:
    """Forces by `pos`, where edges were computed from it before the call: eager goes through."""

    def f(edges: Any, pos: Any) -> Any:
        energy = (edges**2).sum() + (pos * edges.sum()).sin().sum()
        return energy, *torch.autograd.grad(energy, pos, create_graph=True)

    g: Any = gradof.differentiate(f)
    for outside in (False, True, False, True):
        pos = torch.rand(4, dtype=torch.float64, requires_grad=True)
        other = torch.rand(4, dtype=torch.float64, requires_grad=True)
        edges = (pos if outside else other) * 2
        torch.testing.assert_close(g(edges, pos), f(edges, pos))
    assert g.cache_info().forward_runs == 2


def test_two_results_of_one_op_do_not_come_from_each_other() -> None:
    def f(q: Any, k: Any) -> Any:
        energy = (q * k).sin().sum()
        return energy, *torch.autograd.grad(energy, q, create_graph=True)

    g: Any = gradof.differentiate(f, strict=True)
    both = torch.rand(2, 4, dtype=torch.float64, requires_grad=True) * 2
    torch.testing.assert_close(g(*both.unbind()), f(*both.unbind()))
