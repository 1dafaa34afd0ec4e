"""Every module of torch's own table of modules and their inputs, beside eager to second order.

The table is what torch tests itself with: constructors and arguments that nobody here chose. Of a
module with many inputs some at equal distances are tried; `make long` has every module.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing._internal.common_modules import ModuleInfo, module_db
from torch.utils import _pytree as pytree

from gradof import differentiate

INPUTS = 8  # of a module in training and in evaluation
ADDS = {"nn.BCELoss": 1e-8}  # eager adds 1e-12 to p (1 - p) in its second derivative
Found = dict[str, list[Tensor | None]]


def _clone(tree: Any) -> Any:
    def clone(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return copy.deepcopy(leaf)
        return leaf.detach().clone().requires_grad_(leaf.requires_grad)

    return pytree.tree_map(clone, tree)


def _found(module: Any, arguments: tuple[Any, Any]) -> Found:
    """Values, gradients, their gradients where there are any, and buffers, after one call."""
    torch.manual_seed(3)
    args, kwargs = arguments
    values = [v for v in pytree.tree_leaves(module(*args, **kwargs)) if isinstance(v, Tensor)]
    given = [v for v in pytree.tree_leaves(arguments) if isinstance(v, Tensor)]
    leaves = [v for v in (*given, *module.parameters()) if v.requires_grad]
    found: Found = {"value": [v.detach() for v in values]}
    asked = [v for v in values if v.requires_grad]
    if asked and leaves:
        first = torch.autograd.grad(
            asked, leaves, _cotangents(asked), create_graph=True, allow_unused=True
        )
        found["gradient"] = [*first]
        again = [g for g in first if g is not None and g.requires_grad]
        if again:
            found |= _second(again, leaves)
    found["buffers"] = [b.clone() for b in module.buffers()]
    return found


def _second(again: list[Tensor], leaves: list[Tensor]) -> Found:
    try:
        second = torch.autograd.grad(again, leaves, _cotangents(again), allow_unused=True)
    except RuntimeError as error:  # eager has no second derivative of some
        assert "not implemented" in str(error), error
        return {}
    return {"second": [*second]}


def _cotangents(values: list[Tensor]) -> list[Tensor]:
    torch.manual_seed(5)
    return [torch.randn(v.shape, dtype=v.dtype) for v in values]


def _calls(info: ModuleInfo, training: bool) -> Iterator[tuple[Any, tuple[Any, Any]]]:
    """Modules in float64 with arguments."""
    inputs = info.module_inputs_func(
        info, device="cpu", dtype=torch.float64, requires_grad=True, training=training
    )
    for given in inputs[:: math.ceil(len(inputs) / INPUTS)]:
        if given.forward_input is None:
            continue
        torch.manual_seed(1)
        made = given.constructor_input
        module = info.module_cls(*made.args, **made.kwargs).to(torch.float64)
        yield module.train(training), (given.forward_input.args, given.forward_input.kwargs)


@pytest.mark.cases(6)
@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's own, of what its table gives; strict
@pytest.mark.parametrize(  # raises where ours would warn
    "info", [pytest.param(i, id=i.name) for i in module_db]
)
def test_module(info: ModuleInfo) -> None:
    tried = 0
    for training in (True, False):
        for module, arguments in _calls(info, training):
            ours = copy.deepcopy(module)
            compiled = differentiate(ours, strict=True)
            want, second = (_found(module, _clone(arguments)) for _ in range(2))
            for expected in (want, second):  # the second call may be compiled otherwise
                got = _found(compiled, _clone(arguments))
                _compare(got, expected, ADDS.get(info.name, 1e-10))
            assert compiled.cache_info().forward_runs
            tried += 1
    assert tried


def _compare(got: Found, want: Found, rtol: float) -> None:
    for what, values in want.items():
        mine = got.get(what, [None] * len(values))
        assert len(mine) == len(values)
        for have, value in zip(mine, values, strict=True):
            if have is None or value is None:  # a gradient that is zero everywhere may be either
                other = value if have is None else have
                assert other is None or not other.any(), what
            else:
                said = functools.partial("{}: {}".format, what)
                torch.testing.assert_close(
                    have.detach(), value.detach(), rtol=rtol, atol=1e-12, equal_nan=True, msg=said
                )
