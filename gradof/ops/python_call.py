"""`python_call`: a function of the user's own, called with arrays whenever the graph runs.

    %y : f64[3] = python_call[function='solve#2', types=((f64, (3,)),)](%b)

The attribute is a name that holds the function (`Held`): it lives as long as a graph has it. Text
of the IR has the name alone, and can be run while the function is there.

Note [Rules that are traced late]
The gradient is another graph, made from the user's rule when it is first asked for: a rule may call
its own function (that of `solve` does), and rules traced beside the forward would never end.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from gradof.errors import CodegenError, InferenceError, OutputError, UnsupportedOpError
from gradof.ir.attrs import Attr, to_numpy_dtype
from gradof.ir.clone import inline
from gradof.ir.core import Graph, Loc, Node
from gradof.ir.types import DType, TensorType, Type
from gradof.ops.expr import Expr, F
from gradof.ops.families import int_tuple
from gradof.ops.registry import Family, op

_LIVE: weakref.WeakValueDictionary[str, Held] = weakref.WeakValueDictionary()
_number = itertools.count(1)

DRAWS = "a random draw: "  # how the names of functions that draw begin


class Held(str):
    """The name of a function, which it keeps alive. No two have the same."""

    function: Callable[..., Any]
    derivative: Callable[[], Derivative] | None
    loc: Loc | None  # where it was called first
    generator: Any  # that a `python_draw` draws from
    uses: tuple[Any, ...]  # what of the user's it refers to, but for arrays
    graph: Graph | None  # what it computes, where that is known


@dataclass
class Known:
    """What a function computes, and the name that all calls of it have."""

    graph: Graph
    function: Held | None = None


@dataclass(frozen=True)
class Derivative:
    """A graph from cotangents, results and operands of a call to gradients of some operands."""

    graph: Graph
    places: tuple[int, ...]  # whose gradients its outputs are


def held(
    name: str, function: Callable[..., Any], derivative: Callable[[], Derivative] | None,
    loc: Loc | None, generator: Any = None, uses: tuple[Any, ...] = (),
    graph: Graph | None = None,
) -> Held:  # fmt: skip
    """A new name for a function of arrays that returns a tuple of arrays.

    `uses` is what of the user's it refers to, but for arrays; `graph` computes the same.
    """
    made = Held(f"{name}#{next(_number)}")
    made.function, made.derivative, made.loc = function, derivative, loc
    made.generator, made.uses, made.graph = generator, uses, graph
    _LIVE[str(made)] = made  # by a string of its own: as its key it would keep itself alive
    return made


def _infer(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    types = attrs["types"]
    if not isinstance(types, tuple):
        raise InferenceError("python_call has a tuple of result types")
    results: list[Type] = []
    for pair in types:
        if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[0], DType):
            raise InferenceError(f"{pair!r} is not the dtype and shape of a result")
        results.append(TensorType(pair[0], tuple(pair[1])))  # type: ignore[arg-type]
    return tuple(results)


def call_python(*xs: Any, function: str, types: tuple[tuple[Any, tuple[int, ...]], ...]) -> Any:
    """The function's results; OutputError where they are not what they were when it was traced."""
    found = _LIVE.get(function)
    if found is None:
        raise CodegenError(f"the function {function} is gone", hint="trace the program again")
    results = found.function(*(_readable(x) for x in xs))
    arrays = []
    for result, (kind, shape) in zip(results, types, strict=True):
        array = np.asarray(result)
        dtype = to_numpy_dtype(kind) if isinstance(kind, DType) else np.dtype(kind)
        if array.shape != tuple(shape) or array.dtype != dtype:
            raise OutputError(
                f"{function.partition('#')[0]} gives {array.dtype}{list(array.shape)}, where it "
                f"gave {dtype}{list(shape)} when it was traced",
                hint="return arrays whose shapes and dtypes follow from those of the arguments",
            )
        arrays.append(np.array(array))
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


def _readable(array: Any) -> Any:
    """An array that the function cannot change."""
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


def _rule(
    g: list[Expr | None], xs: list[Expr], ys: list[Expr], function: str, types: Any
) -> list[Expr | None]:
    found = _LIVE.get(function)
    if found is None or found.derivative is None:  # an error, if the gradient is not zero
        seed = next(seed for seed in g if seed is not None)
        where = "" if found is None or found.loc is None else str(found.loc)
        return [
            F.no_derivative(seed, function=function, loc=where, dtype=x.dtype, shape=x.shape)
            if x.dtype.is_inexact else None
            for x in xs
        ]  # fmt: skip
    derivative = found.derivative()
    emitter = next(seed for seed in g if seed is not None).emitter
    cotangents = [
        F.full.with_emitter(emitter)(dtype=y.dtype, shape=y.shape, device="cpu", value=0)
        if seed is None else seed
        for seed, y in zip(g, ys, strict=True)
    ]
    values = inline(
        derivative.graph.block, [e.value for e in (*cotangents, *ys, *xs)], emitter.body.block,
        emitter.body.anchor,
    )
    grads: list[Expr | None] = [None] * len(xs)
    for place, value in zip(derivative.places, values, strict=True):
        grads[place] = emitter.wrap(value)
    return grads


op("python_call(*xs; function, types) -> *ys", family=Family(_infer), numpy=call_python,
   vjp={"xs": _rule}, traits={"wirtinger"},
   doc="A function of the user's own, called when the graph runs.")  # fmt: skip

op("python_draw(*xs; function, types) -> *ys", family=Family(_infer, frozenset({"random"})),
   numpy=call_python, vjp={"xs": _rule}, traits={"wirtinger"},
   doc="Random numbers of a generator of numpy's or Python's own.")  # fmt: skip


def graph_called(node: Node) -> Graph | None:
    """What the function that a node calls computes, where that is known."""
    name = node.attrs.get("function") if node.kind == "python_call" else None
    found = _LIVE.get(name) if isinstance(name, str) else None
    return None if found is None else found.graph


def used_by_calls(graph: Graph) -> list[Any]:
    """What the functions that a graph's nodes call refer to of the user's."""
    names = {n for node in graph.walk() if isinstance(n := node.attrs.get("function"), str)}
    found = (_LIVE.get(name) for name in names)
    return [used for call in found if call is not None for used in call.uses]


def _infer_gradient(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    dtype = attrs["dtype"]
    if not isinstance(dtype, DType):
        raise InferenceError("no_derivative has the dtype of a gradient")
    return (TensorType(dtype, int_tuple(attrs["shape"], "shape")),)


def refuse_derivative(g: Any, function: str, loc: str, dtype: Any, shape: Any) -> NoReturn:
    """Raise UnsupportedOpError."""
    name = function.partition("#")[0]
    if name.startswith(DRAWS):
        raise UnsupportedOpError(
            f"a gradient is asked of {name} by its parameters", loc=loc or None,
            hint="scale standard numbers, as rng.gamma(k) * scale; or pass it stop_gradient(x)",
        )
    raise UnsupportedOpError(
        f"a gradient is asked of {name}, which is not traced and has no rule",
        loc=loc or None, hint="give it one: primitive(fn, vjp=...), or pass it stop_gradient(x)",
    )


op("no_derivative(g; function, loc, dtype, shape) -> y", family=Family(_infer_gradient),
   numpy=refuse_derivative, vjp={"g": None}, doc="An error when it is computed.")  # fmt: skip
