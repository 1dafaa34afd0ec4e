"""trace_numpy: one concrete run of a numpy function, recorded.

    def f(p):
        return np.sum(100 * (p[1:] - p[:-1] ** 2) ** 2 + (1 - p[:-1]) ** 2)

    trace_numpy(f, (np.zeros(5),), {}).graph
    graph f(%p : f64[5]): ...

The arrays among the arguments become TracedArrays; plain numpy code does the rest. torch is never imported.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradof.errors import TraceError
from gradof.ir.core import Value
from gradof.passes.eliminate_dead_code import eliminate_dead_code
from gradof.tracer import numpy_linalg, numpy_shapes
from gradof.tracer.numpy_array import TracedArray
from gradof.tracer.numpy_functions import record_function
from gradof.tracer.numpy_indexing import get_item, set_item
from gradof.tracer.numpy_recorder import Handlers, Recorder, checksum
from gradof.tracer.numpy_ufuncs import record_ufunc
from gradof.tracer.pytree import flatten, flatten_call, thaw
from gradof.tracer.result import ConstantOut, InputOut, OutputLeaf, TensorOut, Traced, WriteBack

_HANDLERS = Handlers(record_ufunc, record_function, get_item, set_item)
_ADAPTORS = (numpy_linalg, numpy_shapes)  # importing them registers their functions


def trace_numpy(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    static_argnames: Sequence[str] = (),
) -> Traced:
    """Record one call; the caller's arrays stay as they are.

    Raises UnsupportedOpError, DataDependentError (a Python branch or number by value), DataDependentShapeError,
    and TraceError for random numbers drawn from numpy's global state.
    """
    leaves, tree, paths = flatten_call(fn, args, kwargs, static_argnames)
    recorder = Recorder(fn, getattr(fn, "__name__", "f").strip("<>"), _HANDLERS)
    names = _names(fn, paths)
    traced: dict[int, TracedArray] = {}
    values: list[Any] = []
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, (np.ndarray, np.generic)):
            traced[i] = recorder.add_argument(np.asarray(leaf), names[i])
            values.append(traced[i])
        else:
            values.append(thaw(leaf))
    positional, named = tree.unflatten(values)
    before = np.random.get_state(legacy=False)
    result = fn(*positional, **named)
    _refuse_random(before, fn)
    return _finish(recorder, fn, leaves, tree, paths, traced, result)


def _names(fn: Callable[..., Any], paths: Sequence[str]) -> list[str | None]:
    """The parameter's name for an argument that is one leaf; the last key otherwise."""
    parameters = list(inspect.signature(fn).parameters)
    names: list[str | None] = []
    for path in paths:
        head, _, rest = path.partition("]")
        if not rest and head.startswith("args["):
            index = int(head.removeprefix("args["))
            names.append(parameters[min(index, len(parameters) - 1)])
        else:
            tail = path.replace("]", "").replace("'", "").replace(".", "[").split("[")[-1]
            names.append(tail if tail.isidentifier() else None)
    return names


def _refuse_random(before: Any, fn: Callable[..., Any]) -> None:
    after = np.random.get_state(legacy=False)
    same = all(
        np.array_equal(before["state"][k], after["state"][k]) for k in before["state"]
    )
    if not same:
        np.random.set_state(before)
        raise TraceError(
            f"{getattr(fn, '__name__', fn)} draws random numbers from numpy's global state, which "
            "would be baked into the trace",
            hint="draw them outside and pass them as an argument",
        )


def _finish(
    recorder: Recorder, fn: Any, leaves: Sequence[Any], tree: Any, paths: tuple[str, ...],
    traced: dict[int, TracedArray], result: Any,
) -> Traced:  # fmt: skip
    out_leaves, out_tree = flatten(result)
    inputs = [*traced.values(), *(lifted for _, _, lifted in recorder.free.values())]
    params = recorder.graph.inputs
    _order_inputs(recorder, traced)
    values: list[Value] = []
    outputs: list[OutputLeaf] = []
    for leaf in out_leaves:
        if not isinstance(leaf, TracedArray):
            outputs.append(ConstantOut(leaf))
            continue
        same = [i for i, array in enumerate(inputs) if array is leaf]
        if same:
            outputs.append(InputOut(same[0]))
        else:
            outputs.append(TensorOut(len(values)))
            values.append(leaf.expr.value)
    writebacks: list[WriteBack] = []
    for i, array in enumerate(inputs):
        if array.expr.value is not params[i]:
            writebacks.append(WriteBack(len(values), i))
            values.append(array.expr.value)
    recorder.graph.set_outputs(values)
    eliminate_dead_code(recorder.graph)
    return Traced(
        graph=recorder.graph,
        library="numpy",
        in_tree=tree,
        arg_leaves=tuple(traced),
        static_leaves=tuple((i, thaw(v)) for i, v in enumerate(leaves) if i not in traced),
        origins=tuple(origin for _, origin, _ in recorder.free.values()),
        out_tree=out_tree,
        outputs=tuple(outputs),
        writebacks=tuple(writebacks),
        requires_grad=(False,) * len(inputs),
        arg_paths=paths,
        content=_content(recorder),
    )


def _order_inputs(recorder: Recorder, traced: dict[int, TracedArray]) -> None:
    assert len(recorder.graph.inputs) == len(traced) + len(recorder.free)


def _content(recorder: Recorder) -> tuple[tuple[Any, int], ...]:
    """Free arrays that were not lifted, with checksums, if anything was baked in.

    `X[:10]` of a plain array makes a plain array that numpy does not tell us of. It becomes a constant, which
    is right as long as the arrays it may come from hold what they held.
    """
    if not recorder.baked:
        return ()
    lifted = set(recorder.free)
    return tuple(
        (origin, checksum(array))
        for array, origin in recorder.origins.all()
        if id(array) not in lifted
    )


__all__ = ["trace_numpy"]
assert _ADAPTORS
