"""What a torch function does, as calls of aten: the program that `gradof.testing.shrink` cuts.

    whole = record(loss, (x, w), {})
    print(whole.body())
        def program(x, w):
            mm = aten.mm.default(x, w)  # model.py:7
            tanh = aten.tanh.default(mm)  # model.py:7
            return (tanh,)

Recorded by torch's own `make_fx` under `functionalize`, so in-place calls arrive functional.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import Interpreter, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from gradof.runtime.thread import calling_plain
from gradof.testing.shrinking import Call, Program
from gradof.tracer.core.pytree import flatten
from gradof.tracer.state.source import user_loc


def record(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Program | None:
    """The calls of one run, with the values they had; None where `make_fx` cannot follow it."""
    leaves, tree = flatten((args, kwargs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    tensors = [leaves[i].detach().clone().requires_grad_(leaves[i].requires_grad) for i in places]

    lines = _Lines()

    def flat(*given: torch.Tensor) -> list[torch.Tensor]:
        filled = list(leaves)
        for place, tensor in zip(places, given, strict=True):
            filled[place] = tensor
        positional, named = tree.unflatten(filled)
        with lines:
            result = fn(*positional, **named)
        return [t for t in flatten(result)[0] if isinstance(t, torch.Tensor)]

    with calling_plain(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = make_fx(torch.func.functionalize(flat))(*tensors)
        lines.give(module)
        module.graph.eliminate_dead_code()
        module.recompile()
        torch.manual_seed(0)
        values = _Values(module)
        with torch.no_grad():
            values.run(*[t.detach().clone() for t in tensors])
    return _program(getattr(fn, "__qualname__", type(fn).__name__), module, values.seen, tensors)


class _Lines(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own __init_subclass__
    """Keeps the user's line of every call, in order."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[tuple[Any, str]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.seen.append((func, str(user_loc() or "")))
        return func(*args, **(kwargs or {}))

    def give(self, module: Any) -> None:
        """Write the lines into the nodes of the graph that was recorded meanwhile."""
        left = iter(self.seen)
        for node in module.graph.nodes:
            if node.op == "call_function" and node.target is not operator.getitem:
                node.meta["loc"] = next((loc for func, loc in left if func is node.target), "")


class _Values(Interpreter):
    """Keeps what every node gave."""

    def __init__(self, module: Any) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.seen: dict[str, Any] = {}

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        self.seen[n.name] = result
        return result


def _program(name: str, module: Any, seen: dict[str, Any], tensors: list[torch.Tensor]) -> Program:
    calls: list[Call] = []
    grads: set[str] = set()
    results: frozenset[str] = frozenset()
    placeholders = iter(tensors)
    for node in module.graph.nodes:
        if node.op == "placeholder":
            if next(placeholders).requires_grad:
                grads.add(node.name)
        elif node.op == "get_attr":
            if seen[node.name].requires_grad:
                grads.add(node.name)
        elif node.op == "output":
            results = frozenset(n.name for n in node.all_input_nodes)
        elif node.target is not operator.getitem:
            calls.append(_call(node, seen))
    for call in calls:  # what is read between calls is differentiated too
        for made in call.writes:
            value = seen.get(made)
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                grads.add(made)
    return Program(name, "torch", tuple(calls), seen, frozenset(grads), results)


def _call(node: Node, seen: dict[str, Any]) -> Call:
    reads = tuple(n.name for n in node.all_input_nodes)
    writes: tuple[str, ...] = (node.name,)
    value = seen[node.name]
    several = isinstance(value, (tuple, list))
    if several:
        picked = {user.args[1]: user.name for user in node.users}
        writes = tuple(picked.get(k, f"{node.name}_{k}") for k in range(len(value)))
        seen.update((n, v) for n, v in zip(writes, value, strict=True) if n not in seen)

    def text(sizes: Mapping[int, int]) -> str:
        shown = [_source(a, sizes) for a in node.args]
        shown += [f"{k}={_source(v, sizes)}" for k, v in node.kwargs.items()]
        return f"{node.target}({', '.join(shown)})"

    return Call(text, reads, writes, node.meta["loc"], unpack=several)


def _source(value: Any, sizes: Mapping[int, int]) -> str:
    if isinstance(value, Node):
        return value.name
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(_source(v, sizes) for v in value) + "]"
    if isinstance(value, int) and not isinstance(value, bool):
        return str(sizes.get(value, value))
    if isinstance(value, torch.device):
        return f"torch.{value!r}"
    return repr(value)
