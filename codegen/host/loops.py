"""A Loop as a Python `for`, in code for numpy arrays.

    def f_body(t, h, x, ut):                   # the body, as any graph is emitted
        ...
        return (next, next_1)

    def f(h, x0, u):
        x = x0
        path = np.empty((50, 3), np.float64)
        for t in steps(50):
            x, path[t] = f_body(t, h, x, u[t])
        ...

Stacked outputs are allocated once. Where the body writes into what it carries
(`Loop.written_in_place`), the loop starts from a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.ir.attrs import to_numpy_dtype
from gradof.ir.core import Value
from gradof.ir.loop import Loop
from gradof.ir.types import TensorType

Naming = Callable[[str], str]


def steps(most: int, count: Any = None, backwards: bool = False) -> Any:
    """The numbers of the steps that run, in order, as numpy's integers."""
    numbers = np.arange(most if count is None else min(int(count), most))
    return numbers[::-1] if backwards else numbers


def owned_params(loop: Loop) -> frozenset[int]:
    """The params of the body whose arrays it writes into."""
    written = {node.inputs[0] for node in loop.written_in_place()}
    return frozenset(p.index for p in loop.carried_params if p in written)


def loop_lines(
    loop: Loop, called: tuple[str, str], names: dict[Value, str], unique: Naming,
    written: frozenset[int],
) -> list[str]:  # fmt: skip
    """Statements that run the loop; `names` has its operands, and gets its outputs.

    `called` are the names of `steps` and of the body's function, which writes into some params.
    """
    numbers, function = called
    may_be_none = loop.steps == 0 or loop.count is not None or loop.goes_on() is not None
    at = unique("t")
    lines, state = [], []
    first = 1 + len(loop.constants)
    for k, (value, out) in enumerate(zip(loop.initial, loop.finals, strict=True)):
        name = unique(out.hint or "carried")
        start = names[value]
        copied = may_be_none or first + k in written
        lines.append(f"{name} = np.array({start})" if copied else f"{name} = {start}")
        state.append(name)
    targets = list(state)
    for out in loop.stacks:
        assert isinstance(out.type, TensorType) and out.type.shape is not None
        name = unique(out.hint or "rows")
        make = "np.empty" if loop.count is None else "np.zeros"
        dtype = to_numpy_dtype(out.type.dtype).name.replace("bool", "bool_")
        lines.append(f"{name} = {make}({out.type.shape}, np.{dtype})")
        names[out] = name
        targets.append(f"{name}[{at}]")
    given = [at, *(names[v] for v in loop.constants), *state]
    given += [f"{names[v]}[{at}]" for v in loop.sequences]
    arguments = [str(loop.steps), *([names[loop.count]] if loop.count is not None else [])]
    arguments += ["backwards=True"] if loop.backwards else []
    lines.append(f"for {at} in {numbers}({', '.join(arguments)}):")
    going = loop.goes_on()
    if going is not None:
        lines += [f"    if not {state[going]}:", "        break"]
    call = f"{function}({', '.join(given)})"
    lines.append(f"    {', '.join(targets)}{',' * (len(targets) == 1)} = {call}")
    names.update(zip(loop.finals, state, strict=True))
    return lines
