"""torch's meta kernels written in Python, run without loading `torch._dynamo`.

    x.exp_()        # functionalization asks the meta kernel of exp_ whether the shapes fit

Eighty of these kernels are marked as none of Dynamo's business. What marks them imports all of
`torch._dynamo`, two to four seconds, when the first of them is called: by the first `exp_`,
`clamp_` or in-place hardswish of a trace. While a trace runs each is called as it is, which is what
Dynamo would do with it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from functools import cache
from types import FunctionType
from typing import Any

import torch
from torch._compile import _disable_dynamo
from torch._decomp import global_decomposition_table

_MARK = "__dynamo_disable"  # where torch keeps, on a function, what is called in its place


@contextlib.contextmanager
def meta_kernels_alone() -> Iterator[None]:
    """See the module docstring; nothing is changed once Dynamo is loaded."""
    if "torch._dynamo" in sys.modules:
        yield
        return
    unmarked = [kernel for kernel in _marked_kernels() if _MARK not in vars(kernel)]
    for kernel in unmarked:
        setattr(kernel, _MARK, kernel)
    try:
        yield
    finally:
        for kernel in unmarked:
            delattr(kernel, _MARK)


@cache
def _marked_kernels() -> list[Any]:
    """The functions that torch calls through `_disable_dynamo`."""
    through = _disable_dynamo(lambda: None).__code__
    tables: list[dict[Any, Any]] = [
        *global_decomposition_table.values(), vars(torch._refs), vars(torch._prims),
    ]  # fmt: skip
    waiting = [function for table in tables for function in table.values()]
    seen: set[int] = set()
    found: list[Any] = []
    while waiting:  # one wrapper holds the next in its closure
        function = waiting.pop()
        if not isinstance(function, FunctionType) or id(function) in seen:
            continue
        seen.add(id(function))
        cells = function.__closure__ or ()
        names = function.__code__.co_freevars
        held = {n: cell.cell_contents for n, cell in zip(names, cells, strict=True)}
        if function.__code__ is through:
            found.append(held["fn"])
        waiting += held.values()
    return found
