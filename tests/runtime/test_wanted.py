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
