"""Functions of numpy that ask for a layout: `as_strided` and `require`.

    as_strided(x, (n, 3), x.strides * 2)   the elements at these places, a view
    np.require(x, np.float64, "CW")        the array itself where it is so, else a copy
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradof.ops.expr import Expr, F
from gradof.tracer.numpy.active import active_recorder
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.layouts import ask_layout, in_order, tell_sizes
from gradof.tracer.numpy.operands import contains_traced
from gradof.tracer.numpy.view import View


def as_strided(original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`np.lib.stride_tricks.as_strided`, of a traced array in its own memory."""
    recorder = active_recorder()
    array = args[0] if args else kwargs.get("x")
    if recorder is None or type(array) is not TracedArray:
        return original(*args, **kwargs)
    recorder.enter()
    tell_sizes(array)
    recorder.deferred.settle(array.root.memory)  # whose memory the view is of
    named = {name: value for name, value in kwargs.items() if name != "x"}
    return _strided(recorder, array, original(array.concrete, *args[1:], **named))


def _strided(recorder: Any, array: Any, want: Any) -> Any:
    """The elements of the root of an array that are where those of `want` are."""
    ask_layout(array)
    root = array.root
    order = tuple(sorted(range(root.ndim), key=lambda d: (-root.memory.strides[d], d)))
    places = _places(want, root.memory)
    if not root.memory.transpose(order).flags.c_contiguous or places is None:
        raise recorder.unsupported(
            "as_strided beyond the elements of an array that is in the graph",
            "take it of an array without gaps, with whole steps that stay in it",
        )
    back = tuple(order.index(d) for d in range(root.ndim))
    alone = np.unique(places).size == places.size
    index = recorder.constant(places)

    def read(x: Expr) -> Expr:
        return F.take(x.permute(order).reshape((x.type.size,)), index)

    def write(x: Expr, source: Expr) -> Expr:
        if not alone:
            raise recorder.unsupported(
                "a write to elements that as_strided shows more than once", "write to the array"
            )
        moved = x.permute(order)
        flat = moved.reshape((x.type.size,))
        flat = F.index_put(flat, source, index, dims=(0,), accumulate=False)
        return flat.reshape(moved.shape).permute(back)

    return recorder.wrap(want, read(root.expr), View(root, read, write))


def _places(want: Any, memory: Any) -> Any:
    """Which elements of one array, in the order of its memory, are those of another; or None."""
    at = want.__array_interface__["data"][0] - memory.__array_interface__["data"][0]
    steps = (at, *want.strides)
    if any(step % memory.itemsize for step in steps):
        return None
    places = np.full(want.shape, at // memory.itemsize, np.int64)
    for dim, step in enumerate(want.strides):
        along = np.arange(want.shape[dim]) * (step // memory.itemsize)
        places += along.reshape((-1,) + (1,) * (want.ndim - dim - 1))
    inside = not places.size or (places.min() >= 0 and places.max() < memory.size)
    return places if inside else None


def require(original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`np.require`: the array itself, or a copy that can be written to or lies in this order."""
    recorder = active_recorder()
    if recorder is None or not contains_traced((*args, *kwargs.values())):
        return original(*args, **kwargs)
    a, dtype, requirements = _required(*args, **kwargs)
    array = recorder.traced(a)
    original(array.memory[:0], None, requirements)  # numpy's own errors
    wanted = {text.upper()[0] for text in requirements or ()}
    if dtype is not None:
        array = array.astype(dtype, copy=False)
    if order := wanted & {"C", "F"}:
        array = in_order(array, order.pop())
    is_part = "O" in wanted and array.link is not None
    copied = is_part or ("W" in wanted and not array.flags.writeable)
    return np.copy(array) if copied else array


def _required(a: Any, dtype: Any = None, requirements: Any = None) -> tuple[Any, Any, Any]:
    return a, dtype, requirements
