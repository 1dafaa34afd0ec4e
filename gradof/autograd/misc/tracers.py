"""A function recorded once, to be run again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradof.autograd.core import as_arrays
from gradof.runtime.once import compiled_once


def const_graph(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
    """The function of its first argument alone, compiled."""

    def unary(x: Any) -> Any:
        return fun(x, *args, **kwargs)

    compiled = compiled_once(unary)
    return lambda x: compiled(as_arrays(x))


const_graph_unary = const_graph
