"""What the check of a call costs: is it still the call that was traced?

    python benchmarks/guard.py          # ten arrays, a six-layer GPT-2, chains of small arrays

The check of the model is the function's own (`Differentiated.bind`) on the arguments of a call that
was traced; the chains are whole calls, torch's in turns with eager.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from gradof import differentiate, value_and_grad

TENSORS = 10


def add_all(*arrays: Any) -> Any:
    """Ten arrays, little work."""
    total = arrays[0]
    for array in arrays[1:]:
        total = total + array
    return total


def check_seconds(repeats: int = 25, calls: int = 1000) -> float:
    """Seconds that the check of ten arrays adds to a call.

    The median of a call's time, less that of the prepared call, which runs the same kernels and
    leaves the check out.
    """
    arrays = [np.full(4, float(i)) for i in range(TENSORS)]
    checked = differentiate(add_all)
    prepared = checked.prepare(*arrays)
    if not np.array_equal(checked(*arrays), prepared(*arrays)):
        raise SystemExit("guard check: the prepared call has another value")
    differences = [
        _seconds(checked, arrays, calls) - _seconds(prepared, arrays, calls) for _ in range(repeats)
    ]
    return statistics.median(differences)


def _seconds(call: Callable[..., Any], arrays: list[Any], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call(*arrays)
    return (time.perf_counter() - start) / calls


def model_check_seconds(repeats: int = 25, calls: int = 200) -> float:
    """Seconds of the check of a six-layer GPT-2, parameters and state; the least of the repeats."""
    import torch
    from transformers import GPT2Config, GPT2Model

    config = GPT2Config(n_layer=6, n_embd=64, n_head=2, vocab_size=256, n_positions=64)
    model = GPT2Model(config).eval()
    checked = differentiate(model.forward)
    tokens = torch.arange(16)[None]
    for _ in range(3):
        checked(tokens, use_cache=False).last_hidden_state.sum().backward()
    if checked.cache_info().misses != 1:
        raise SystemExit(f"guard check: the model was traced again: {checked.cache_info()}")
    bind = functools.partial(checked.bind, (tokens,), {"use_cache": False})
    return min(_seconds(bind, [], calls) for _ in range(repeats))


def chain_seconds(library: str, repeats: int = 25, calls: int = 500) -> dict[str, float]:
    """Seconds of a value and gradient through a chain of 16 x 16 numbers, by who is called."""
    import torch

    x = np.random.default_rng(0).standard_normal((16, 16))
    if library == "numpy":
        sides = {"value_and_grad": functools.partial(value_and_grad(_numpy_chain), x)}
    else:
        t = torch.from_numpy(x).requires_grad_()
        compiled, ours = differentiate(_torch_chain), value_and_grad(_torch_chain)
        sides = {
            "value_and_grad": functools.partial(ours, t),
            "differentiate": lambda: torch.autograd.grad(compiled(t), t),
            "eager": lambda: torch.autograd.grad(_torch_chain(t), t),
            "an empty autograd.Function": _empty_function(t),
        }
    times = dict.fromkeys(sides, float("inf"))
    for _ in range(repeats):
        for name, run in sides.items():
            times[name] = min(times[name], _seconds(run, [], calls))
    return times


def _empty_function(t: Any) -> Callable[[], Any]:
    """What torch itself takes for a node of ours and a backward: the floor of `differentiate`."""
    import torch

    class Empty(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.new_empty(())

        @staticmethod
        def backward(ctx: Any, *cotangents: Any) -> Any:
            return cotangents[0].new_empty((16, 16))

    return lambda: torch.autograd.grad(Empty.apply(t), t)  # type: ignore[no-untyped-call]


def _numpy_chain(x: Any) -> Any:
    return np.sum(np.tanh(np.exp(-x * x) * 0.5 + x))


def _torch_chain(x: Any) -> Any:
    return ((-x * x).exp() * 0.5 + x).tanh().sum()


def main() -> None:
    """Print every figure in microseconds."""
    table = Table("call", "us", title="Checks and small calls")
    table.add_row("check of ten arrays", f"{check_seconds() * 1e6:.2f}")
    table.add_row("check of a six-layer GPT-2", f"{model_check_seconds() * 1e6:.1f}")
    for library in ("numpy", "torch"):
        for name, seconds in chain_seconds(library).items():
            table.add_row(f"16x16 chain, {library}, {name}", f"{seconds * 1e6:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
