"""Functions that are not traced: called with arrays now, and again whenever the graph runs.

    call(recorder, "solve", solve, (S, b), example=None)
        →  %y : f64[3] = python_call[function='solve#2', ...](%b)      S is held by the function
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from gradof.errors import DataDependentError, OutputError, TraceError
from gradof.ir.attrs import Dense
from gradof.ir.builder import Builder
from gradof.ir.clone import inline
from gradof.ir.core import Graph
from gradof.ir.types import TensorType
from gradof.ops.expr import Expr
from gradof.ops.python_call import Derivative, Known, held
from gradof.passes.guards import guards_of
from gradof.tracer.core.pytree import TreeDef, flatten
from gradof.tracer.core.result import ConstantOut, InputOut, OutputLeaf, TensorOut
from gradof.tracer.numpy.active import active_recorder, deactivated
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.functions import as_array
from gradof.tracer.numpy.recorder import Recorder, is_plain, real
from gradof.tracer.state.source import function_loc
from gradof.tracer.state.unheard import unprofiled

Types = tuple[tuple[Any, Any], ...]  # dtypes and shapes
_ATOMS = (int, float, complex, str, bytes, type(None))


def call(
    recorder: Recorder, name: str, fn: Callable[..., Any], args: tuple[Any, ...],
    example: Callable[..., Any] | None, rule: Callable[..., Any] | None, generator: Any = None,
    known: Known | None = None, rule_is_called: bool = False,
) -> Any:  # fmt: skip
    """Record one call; the result has the types of `example`'s, or of the function's own now.

    `rule(args, result, cotangent)` gives one gradient or None per argument; it is traced when a
    gradient is first asked for (Note [Rules that are traced late]). With `rule_is_called` one that
    cannot be traced is called whenever the gradient is computed. A function that draws from a
    `generator` is called once for each call in the program, in the same order. The graph of a
    `known` function of arrays is what runs (`gradof.passes.open_calls`).

    Raises OutputError for results that are no arrays.
    """
    recorder.enter()
    leaves, tree = flatten(args)
    places = [i for i, leaf in enumerate(leaves) if _is_array(leaf)]
    operands = [recorder.traced(leaves[i]) for i in places]
    scalars = [o.is_scalar for o in operands]
    given_none = [] if operands else [recorder.full((), np.dtype(np.float64), 0.0).value]
    now = list(map(real, leaves))
    # The call that follows writes what it writes; a graph writes nothing.
    with recorder.apart() if known is None else nullcontext(), untraced():
        shown = (fn if example is None else example)(*tree.unflatten(list(now)))
    found, out_tree = flatten(shown)
    results = [_as_array(r, name, fn) for r in found]
    types = tuple((recorder.ir_dtype(r.dtype), tuple(r.shape)) for r in results)
    others = [x for i, x in enumerate(leaves) if i not in places]
    if any(generator is None or not isinstance(x, _ATOMS) for x in others):
        recorder.baked = True  # what the others hold may come from free arrays

    def function(*arrays: Any) -> tuple[Any, ...]:
        if generator is not None and not recorder.closed:
            return tuple(results)  # the trace asks again what it has drawn
        given = list(leaves)
        for place, array, scalar in zip(places, arrays[: len(places)], scalars, strict=True):
            given[place] = array[()] if scalar else array
        return _results(fn, name, tree, given, out_tree)

    called = None if known is None else known.function
    if called is None:
        taken = tuple((o.expr.dtype, o.expr.shape) for o in operands)
        derivative = rule and _Rule(rule, name, tree, now, places, results, out_tree, types, taken,
                                    rule_is_called)  # fmt: skip
        uses, graph = (fn, rule, *others), None if known is None else known.graph
        called = held(name, function, derivative, recorder.loc, generator, uses, graph)
    if known is not None:
        known.function = called
    node = recorder.builder.emit_node(
        "python_call" if generator is None else "python_draw", *(o.expr.value for o in operands),
        *given_none, types=types, function=called,
    )  # fmt: skip
    if generator is not None:
        for value in node.outputs:
            recorder.note_varying(value)
    return out_tree.unflatten([
        recorder.wrap(np.array(r) if isinstance(r, np.ndarray) else r, Expr(v, recorder.emitter))
        for r, v in zip(results, node.outputs, strict=True)
    ])  # fmt: skip


class _Rule:
    """The derivative of one call, traced when it is first asked for."""

    def __init__(
        self, rule: Callable[..., Any], name: str, tree: TreeDef, leaves: list[Any],
        places: list[int], results: list[Any], out_tree: TreeDef, types: Types, operands: Types,
        may_be_called: bool,
    ) -> None:  # fmt: skip
        self.rule, self.name, self.tree, self.out_tree = rule, name, tree, out_tree
        self.leaves, self.places, self.results = leaves, places, results
        self.types, self.operands, self.may_be_called = types, operands, may_be_called
        self.found: Derivative | None = None

    def __call__(self) -> Derivative:
        if self.found is None:
            try:
                self.found = self._traced()
            except (DataDependentError, TraceError):
                if not self.may_be_called:
                    raise
                self.found = self._called()
        return self.found

    def _called(self) -> Derivative:
        """A call of the rule, which has no derivative itself."""
        ones = [np.ones(np.shape(r), np.asarray(r).dtype)[()] for r in self.results]
        with untraced():
            shown = self._run(ones, self.results, [self.leaves[i] for i in self.places])
        floats = [k for k, place in enumerate(self.places) if _is_float(self.leaves[place])]
        with_gradient = [k for k in floats if shown[k] is not None]
        count = len(self.results)

        def run(*arrays: Any) -> tuple[Any, ...]:
            given = [a[()] if np.ndim(a) == 0 else a for a in arrays]
            with untraced():
                grads = self._run(given[:count], given[count : 2 * count], given[2 * count :])
            if with_gradient != [k for k in floats if grads[k] is not None]:
                raise OutputError(
                    f"the rule of {self.name} gives gradients of other arguments than it did",
                    loc=function_loc(self.rule), hint="return zeros, and not None, where one is 0",
                )
            return tuple(
                np.asarray(grads[k]).astype(arrays[2 * count + k].dtype, copy=False)
                for k in with_gradient
            )

        graph = Graph(f"d{self.name}")
        params = [graph.block.add_param(TensorType(dtype, shape))
                  for dtype, shape in (*self.types, *self.types, *self.operands)]  # fmt: skip
        if not with_gradient:
            return Derivative(graph, ())
        called = held(f"d{self.name}", run, None, function_loc(self.rule), None, (self.rule,))
        node = Builder(graph.block).emit_node(
            "python_call", *params, function=called,
            types=tuple(self.operands[k] for k in with_gradient),
        )  # fmt: skip
        graph.set_outputs(list(node.outputs))
        return Derivative(graph, tuple(with_gradient))

    def _run(
        self, cotangents: Sequence[Any], results: Sequence[Any], operands: Sequence[Any]
    ) -> list[Any]:
        """The rule's gradients of the operands."""
        leaves = list(self.leaves)
        for place, operand in zip(self.places, operands, strict=True):
            leaves[place] = operand
        result, cotangent = (self.out_tree.unflatten(list(x)) for x in (results, cotangents))
        grads = self.rule(self.tree.unflatten(leaves), result, cotangent)
        return [grads[place] for place in self.places]

    def _traced(self) -> Derivative:
        from gradof.tracer.numpy.tracer import trace_numpy

        def rule(cotangents: Any, results: Any, operands: Any) -> Any:
            grads = self._run(cotangents, results, operands)
            return [
                None if grad is None or not _is_float(self.leaves[place])
                else as_array(grad).astype(operand.dtype, copy=False)
                for grad, place, operand in zip(grads, self.places, operands, strict=True)
            ]

        operands = [self.leaves[i] for i in self.places]
        ones = [np.ones(np.shape(r), np.asarray(r).dtype)[()] for r in self.results]
        traced = trace_numpy(rule, (ones, list(self.results), operands), {})
        if traced.deciding is not None:
            raise DataDependentError(
                f"the rule of {self.name} branches on a value",
                loc=guards_of(traced.deciding)[0].loc or function_loc(self.rule),
                hint="use np.where, so that the rule is the same for all values",
            )
        if traced.performs:
            raise TraceError(
                f"the rule of {self.name} does more than compute: {traced.performs}",
                loc=function_loc(self.rule), hint="let it return gradients, and nothing else",
            )
        for store in traced.stores:
            if store.mode != "set" or any(not isinstance(o, ConstantOut) for o in store.outputs):
                raise TraceError(
                    f"the rule of {self.name} writes to Python's state",
                    loc=function_loc(self.rule), hint="let it return gradients, and nothing else",
                )
            leaves = traced.leaves(store.outputs, (), (), {})
            store.write(leaves, {})  # such as a table of a library's
        graph = Graph(f"d{self.name}")
        count = len(traced.arg_leaves)
        params = [graph.block.add_param(v.type, v.hint) for v in traced.graph.inputs[:count]]
        builder = Builder(graph.block)
        free = [  # they are guarded by their elements: Note [Baked constants]
            builder.constant(Dense.of(np.asarray(origin.read(rule)))) for origin in traced.origins
        ]
        values = inline(traced.graph.block, [*params, *free], graph.block, graph.block.returns)
        inputs = [*params, *free]
        given = {n: o for n, o in enumerate(traced.outputs) if not isinstance(o, ConstantOut)}
        graph.set_outputs([
            values[o.index] if isinstance(o, TensorOut) else inputs[_input(o)]
            for o in given.values()
        ])  # fmt: skip
        return Derivative(graph, tuple(given))


def _input(out: OutputLeaf) -> int:
    assert isinstance(out, InputOut), out  # every gradient is an array
    return out.index


def _results(
    fn: Callable[..., Any], name: str, tree: TreeDef, given: list[Any], out_tree: TreeDef
) -> tuple[Any, ...]:
    with untraced():
        leaves, structure = flatten(fn(*tree.unflatten(given)))
    if structure != out_tree:
        raise OutputError(
            f"{name} returns {structure}, where it returned {out_tree} when it was traced",
            loc=function_loc(fn), hint="return the same structure for arguments of the same types",
        )
    return tuple(_as_array(leaf, name, fn) for leaf in leaves)


@contextmanager
def untraced() -> Iterator[None]:
    """Within it, nothing is recorded, and what runs is not noted as the traced function's.

    Outside of a trace the hooks are a profiler's or a debugger's, and stay.
    """
    if active_recorder() is None:
        yield
        return
    trace = sys.gettrace()
    sys.settrace(None)
    try:
        with unprofiled(), deactivated():
            yield
    finally:
        sys.settrace(trace)


def _is_float(leaf: Any) -> bool:
    return np.asarray(leaf).dtype.kind in "fc"


def _is_array(leaf: Any) -> bool:
    kind = leaf.dtype.kind if is_plain(leaf) or isinstance(leaf, (TracedArray, np.generic)) else "O"
    return kind in "biufc" and (type(leaf) in (np.ndarray, TracedArray) or np.ndim(leaf) == 0)


def _as_array(result: Any, name: str, fn: Callable[..., Any]) -> Any:
    if isinstance(result, (bool, int, float, complex)) and not isinstance(result, np.generic):
        return np.asarray(result)[()]
    if isinstance(result, (np.ndarray, np.generic)) and result.dtype.kind in "biufc":
        return np.asarray(result) if isinstance(result, np.ndarray) else result
    raise OutputError(
        f"{name} returns a {type(result).__name__}", loc=function_loc(fn),
        hint="return arrays or numbers, or a nest of them",
    )
