"""`scan`, `fori_loop`, `while_loop`, `cond`: loops and branches by name, with JAX's signatures.

    def step(level, z):                                   # carry, x -> carry, y
        return 0.3 * z + 0.7 * level, z - level
    level, errors = gradof.scan(step, seen[0], seen[1:])

They run anywhere, as Python does. In a numpy function that is being traced the body is recorded
once, as a `Loop` (`control_numpy`); in a torch function the steps are recorded, and rolled into a
Loop as those of a Python `for` are (`gradof.passes.roll_loops`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.errors import OutputError, ShapeError
from gradof.runtime.arrays import is_tensor, torch_if_loaded
from gradof.tracer.core.pytree import TreeDef, flatten
from gradof.tracer.numpy.active import active_recorder
from gradof.tracer.state.source import function_loc, user_loc

Fn = Callable[..., Any]


def scan(
    f: Fn, init: Any, xs: Any = None, length: int | None = None, reverse: bool = False
) -> tuple[Any, Any]:
    """Run `carry, y = f(carry, x)` for each row `x` of `xs`; gives the last carry and the ys.

    `init`, `xs` and what `f` returns are arrays in nested containers; the leaves of `xs` have one
    first dim, `length` where there are none. The ys are stacked in a new first dim. With `reverse`
    the last row comes first. The carry keeps its structure, shapes and dtypes. Raises ShapeError
    for lengths that differ, OutputError for what `f` returns.
    """
    leaves, tree = ([], None) if xs is None else flatten(xs)
    count = _length(leaves, length)
    recorder = active_recorder()
    if recorder is not None:
        from gradof.runtime.control_numpy import record_scan

        return record_scan(f, init, leaves, tree, count, reverse, recorder)
    carry, rows = init, []
    for t in range(count - 1, -1, -1) if reverse else range(count):
        x = None if tree is None else tree.unflatten([leaf[t] for leaf in leaves])
        carry, y = pair(f, f(carry, x))
        rows.append(y)
    return carry, _stacked(f, rows[::-1] if reverse else rows, carry, leaves, tree)


def fori_loop(lower: Any, upper: Any, body_fun: Fn, init_val: Any) -> Any:
    """`for i in range(lower, upper): val = body_fun(i, val)`; gives the last `val`.

    `val` keeps its structure, shapes and dtypes.
    """
    first, last = int(lower), int(upper)
    recorder = active_recorder()
    if recorder is not None and last > first:
        from gradof.runtime.control_numpy import record_fori

        return record_fori(body_fun, init_val, first, last, recorder)
    value = init_val
    for i in range(first, last):
        value = body_fun(i, value)
    return value


def while_loop(cond_fun: Fn, body_fun: Fn, init_val: Any) -> Any:
    """`while cond_fun(val): val = body_fun(val)`; gives the last `val`.

    It has a gradient in reverse mode, too, which JAX's has not: of what the steps save as many are
    kept as there is room for, a power of two that a traced call fits; one that takes more steps is
    traced again with more room.
    """
    recorder = active_recorder()
    if recorder is not None:
        from gradof.runtime.control_numpy import record_while

        return record_while(cond_fun, body_fun, init_val, recorder)
    value = init_val
    while bool(cond_fun(value)):
        value = body_fun(value)
    return value


def cond(pred: Any, true_fun: Fn, false_fun: Fn, *operands: Any) -> Any:
    """`true_fun(*operands) if pred else false_fun(*operands)`; only that one runs.

    In a traced numpy function both are recorded: they return the same structure, shapes and
    dtypes, else OutputError. The gradient is that of the one that has run.
    """
    recorder = active_recorder()
    if recorder is not None:
        from gradof.runtime.control_numpy import record_cond

        return record_cond(pred, true_fun, false_fun, operands, recorder)
    return (true_fun if bool(pred) else false_fun)(*operands)


def pair(f: Fn, result: Any) -> tuple[Any, Any]:
    """The two things that the function of a scan returns; OutputError for anything else."""
    if not isinstance(result, tuple) or len(result) != 2:
        raise OutputError(
            f"the function of scan returns a {type(result).__name__}, not a pair (carry, y)",
            loc=function_loc(f), hint="return carry, None where there is nothing to stack",
        )  # fmt: skip
    return result


def _length(leaves: list[Any], length: int | None) -> int:
    found = {int(leaf.shape[0]) for leaf in leaves}
    found |= set() if length is None else {length}
    if len(found) != 1:
        raise ShapeError(
            f"scan over arrays of lengths {sorted(found)}" if found
            else "scan over nothing, for no length",
            loc=user_loc(), hint="give xs of one first dim, or a length",
        )  # fmt: skip
    return found.pop()


def _stacked(
    f: Fn, rows: list[Any], carry: Any, leaves: list[Any], tree: TreeDef | None
) -> Any:
    """The ys, each leaf stacked; of no rows, those of a row of zeros with no rows left."""
    if not rows:
        zeros = [_zeros(leaf) for leaf in leaves]
        _, y = pair(f, f(carry, None if tree is None else tree.unflatten(zeros)))
        found, shape = flatten(y)
        return shape.unflatten([_stack([leaf])[:0] for leaf in found])
    flat = [flatten(row) for row in rows]
    columns = zip(*(found for found, _ in flat), strict=True)
    return flat[0][1].unflatten([_stack(list(column)) for column in columns])


def _zeros(leaf: Any) -> Any:
    if is_tensor(leaf):
        return leaf.new_zeros(leaf.shape[1:])
    return np.zeros(leaf.shape[1:], leaf.dtype)


def _stack(rows: list[Any]) -> Any:
    if rows[0] is None:
        return None
    if any(map(is_tensor, rows)):
        torch = torch_if_loaded()
        assert torch is not None
        return torch.stack([torch.as_tensor(row) for row in rows])
    return np.stack(rows)
