"""One call of an object of a package, and all that came of it.

`run_once(function, case, number)` makes the inputs of that number, calls, differentiates, and gives
a `Run`: values, gradients, second derivatives, flags, the module's state, or eager's error.
"""

from __future__ import annotations

import inspect
import random
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from tests.models.compare import tensors
from tests.packages.inputs import Recipe, make


@dataclass
class Case:
    """What is called, with which inputs."""

    thing: Any  # a module, or a function
    recipe: Recipe
    grad: bool

    def function(self, module: Any) -> Callable[..., Any]:
        return module.forward if isinstance(module, torch.nn.Module) else module


def seed(number: int) -> None:
    torch.manual_seed(number)
    random.seed(number)
    np.random.seed(number)


def call(function: Any, case: Case, inputs: dict[str, Any]) -> Any:
    """By position, but for what is taken by name alone."""
    shape = inspect.signature(case.function(case.thing)).parameters
    args = [v for n, v in inputs.items() if shape[n].kind is not shape[n].KEYWORD_ONLY]
    return function(*args, **{n: v for n, v in inputs.items()
                              if shape[n].kind is shape[n].KEYWORD_ONLY})  # fmt: skip


@dataclass
class Run:
    """What one call did."""

    values: dict[str, Any] = field(default_factory=dict)
    gradients: dict[str, Any] = field(default_factory=dict)
    second: dict[str, Any] = field(default_factory=dict)
    flags: dict[str, Any] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)
    error: Exception | None = None


def run_once(
    function: Any, case: Case, number: int, batch: int | None = None, second: bool = False,
    module: Any = None, ulp: bool = False, wide: bool = False,
) -> Run:  # fmt: skip
    run = Run()
    module = function if module is None else module
    inputs = make(case.recipe, number, case.grad, batch, wide)
    if ulp:
        for value in inputs.values():
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                value.data.mul_(1 + 2.0**-23)
    given = {k: v.detach().clone() for k, v in inputs.items() if isinstance(v, torch.Tensor)}
    leaves = {f"input {k}": v for k, v in inputs.items()
              if isinstance(v, torch.Tensor) and v.requires_grad}  # fmt: skip
    seed(number)
    try:
        finish(run, call(function, case, inputs), module, leaves, number, second)
    except Exception as error:
        run.error = error
    settle(run, module, {k: (inputs[k], v) for k, v in given.items()})
    return run


def finish(
    run: Run, result: Any, module: Any, leaves: dict[str, Any], number: int, second: bool
) -> None:
    """Take down the result of a call, and the gradients of it: of leaves, and of parameters."""
    run.values = dict(tensors(result))
    run.flags = {"result": shaped(result), **{
        f"value {k}": (v.requires_grad, v.layout is torch.strided and v.is_contiguous())
        for k, v in run.values.items()}}  # fmt: skip
    if isinstance(module, torch.nn.Module):
        leaves |= {f"parameter {k}": v for k, v in module.named_parameters()
                   if v.requires_grad}  # fmt: skip
    _derive(run, leaves, number, second)


def settle(run: Run, module: Any, inputs: dict[str, tuple[Any, Any]]) -> None:
    """Take down what a call has left: random states, inputs beside what they were, the module."""
    run.values = {k: _copied(v) for k, v in run.values.items()}
    run.flags["random"] = (torch.rand(1).item(), random.random(), np.random.rand())
    run.flags["inputs"] = {
        k: now.shape == then.shape and bool(torch.equal(now, then) or then.isnan().any())
        for k, (now, then) in inputs.items()
    }  # fmt: skip
    run.state = state(module)


def _derive(run: Run, leaves: dict[str, Any], number: int, second: bool) -> None:
    generator = torch.Generator().manual_seed(number)

    def weighed(found: dict[str, Any]) -> Any:
        terms = []
        for value in found.values():
            if value is None or not (value.is_floating_point() or value.is_complex()):
                continue
            weight = torch.randn(value.shape, generator=generator).to(value.dtype)
            if value.requires_grad:
                term = (value * weight).sum()
                terms.append(term.real if term.is_complex() else term)
        return sum(t.double() for t in terms) if terms else None

    total = weighed(run.values)
    if total is None or not leaves:
        return
    names, given = list(leaves), list(leaves.values())
    if not second:
        found = torch.autograd.grad(total, given, allow_unused=True)
        run.gradients = {n: _copied(g) for n, g in zip(names, found, strict=True)}
        return
    found = torch.autograd.grad(total, given, allow_unused=True, create_graph=True)
    gradients = dict(zip(names, found, strict=True))
    run.gradients = {n: _copied(g) for n, g in gradients.items()}
    again = weighed(gradients)
    if again is not None:
        found = torch.autograd.grad(again, given, allow_unused=True)
        run.second = {n: _copied(g) for n, g in zip(names, found, strict=True)}


def _copied(tensor: Any) -> Any:
    if tensor is None:
        return None
    tensor = tensor.detach()
    return (tensor.to_dense() if tensor.layout is not torch.strided else tensor).clone()


def shaped(result: Any, depth: int = 0) -> Any:
    """The classes of a result and of its parts."""
    kind = type(result).__name__
    if depth > 5 or isinstance(result, torch.Tensor):
        return kind
    if isinstance(result, dict):
        return kind, tuple((str(k), shaped(v, depth + 1)) for k, v in result.items())
    if isinstance(result, (list, tuple)):
        return kind, tuple(shaped(v, depth + 1) for v in result)
    if isinstance(result, (int, float, str, bool, type(None))):
        return kind, round(result, 4) if isinstance(result, float) else result
    return kind


def state(module: Any) -> dict[str, Any]:
    """Buffers, parameters and plain attributes of a module and its children."""
    if not isinstance(module, torch.nn.Module):
        return {}
    found: dict[str, Any] = {}
    for path, child in module.named_modules():
        for name, value in vars(child).items():
            tables = ("_modules", "_parameters", "_buffers", "_graph")  # that of torch.fx is code
            if name not in tables and "hooks" not in name:
                found.update(_plain(f"{path}.{name}", value, 0))
        for name, value in (*child._buffers.items(), *child._parameters.items()):
            found[f"{path}.{name}"] = None if value is None else _copied(value)
    return found


def _plain(path: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, torch.Tensor):
        yield path, _copied(value)
        yield f"{path}!", (type(value).__name__, value.requires_grad, value.is_leaf)
    elif isinstance(value, np.ndarray) and value.dtype != object:
        yield path, torch.from_numpy(value.copy())
    elif isinstance(value, (int, float, str, bool, type(None), complex)):
        yield path, value
    elif isinstance(value, (list, tuple, set, frozenset)) and depth < 4:
        kind: Any = next(c for c in (list, tuple, set, frozenset) if isinstance(value, c))
        yield f"{path}!", (type(value).__name__, kind.__len__(value))  # a subclass may have none
        if not isinstance(value, (set, frozenset)):
            for i, part in enumerate(kind.__iter__(value)):
                yield from _plain(f"{path}[{i}]", part, depth + 1)
    elif isinstance(value, dict) and depth < 4:
        yield f"{path}!", tuple(map(str, value))
        for key, part in value.items():
            yield from _plain(f"{path}.{key}", part, depth + 1)
    elif hasattr(value, "__dict__") and not callable(value) and depth < 2:
        for key, part in vars(value).items():
            yield from _plain(f"{path}.{key}", part, depth + 1)


def said(error: BaseException | None) -> str:
    text = str(error) or type(error).__name__
    return f"{type(error).__name__}: {' '.join(text.split())[:300]}"


def where(error: BaseException | None) -> str:
    frames = traceback.extract_tb(error.__traceback__) if error is not None else []
    inner = [f for f in frames[-3:]]
    return said(error) + " (" + " < ".join(
        f"{f.filename.rpartition('/')[2]}:{f.lineno}" for f in reversed(inner)) + ")"
