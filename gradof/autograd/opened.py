"""Primitives that are recorded with their rules, as a graph, rather than called.

    @primitive
    def safe_exp(x): return np.exp(np.clip(x, -np.inf, 700.0))
    defvjp(safe_exp, lambda ans, x: lambda g: g * ans)

A call of Python at each run costs more than such a function computes, and keeps the graph around it
from being one native function. So a short function of numpy's is traced once by itself, rule and
all. Where that gives nothing but a graph, calls of it are a `CustomRule`, as those of
`gradof.custom_vjp` are. All others stay calls: what branches on values, reads or writes state,
takes long, asks for types, or what gradof has no name for.

A rule may call its own function, as a difference quotient does. That call has a rule, too, and so
on for ever: it is a `python_call`, whose rule is traced when it is asked for, and of which the
graph is known.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from types import CodeType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from gradof import tuning
from gradof.errors import GradofError
from gradof.ir.core import Graph
from gradof.ops.python_call import Known, graph_called
from gradof.runtime.custom_numpy import record
from gradof.runtime.thread import calling_compiled
from gradof.tracer.core.pytree import flatten
from gradof.tracer.core.result import TensorOut, Traced
from gradof.tracer.numpy.active import active_recorder, deactivated
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.black_box import untraced
from gradof.tracer.numpy.deferred import real
from gradof.tracer.numpy.tracer import trace_numpy
from gradof.tracer.state.source import user_loc
from gradof.tracer.state.unheard import heard

_KINDS = 256  # of arguments, of one primitive
_ARRAYS = (TracedArray, np.ndarray)
# A primitive is given plain arrays: what would tell them from traced ones.
_ASKS = frozenset({"isinstance", "type", "getval", "isbox", "ArrayBox", "Box", "id", "hasattr"})
_RULES: ContextVar[tuple[Any, ...]] = ContextVar("primitives whose rules run", default=())
Gradients = Callable[[Any, Any, Any], list[Any]]


class _Call:
    """One call, as `custom_numpy.record` takes them."""

    def __init__(self, fn: Callable[..., Any], gradients: Gradients, given: Any) -> None:
        self.fn, self.gradients = fn, gradients
        self.leaves, self._tree = flatten(given)
        self.line = user_loc()

    def forward(self, leaves: Sequence[Any]) -> tuple[Any, Any]:
        """The result, and what the rule reads."""
        args, kwargs = given = self._tree.unflatten(list(leaves))
        result = heard(self.fn, args, kwargs)
        return result, (given, result)

    def residuals_with(self, residuals: Any, result: Any) -> Any:
        """The arguments, and the result that has the rule: it is differentiated by that."""
        return residuals[0], result

    def backward(self, residuals: Any, cotangent: Any) -> list[Any]:
        """One gradient or None for each leaf."""
        given, result = residuals
        token = _RULES.set((*_RULES.get(), self.fn))
        try:
            found: list[Any] = heard(self.gradients, (given, result, cotangent), {})
            return found
        finally:
            _RULES.reset(token)


# By primitive and kinds of arguments, whether calls are recorded; the rules may be set anew.
_known: WeakKeyDictionary[Any, dict[Any, bool]] = WeakKeyDictionary()


def call_opened(
    primitive: Any, live: Sequence[int], gradients: Gradients, args: Any, kwargs: Any
) -> Any:
    """The result of a call that is recorded; NotImplemented for one that is to be made.

    `primitive.fun` is the function, `gradients(given, result, cotangent)` gives one gradient or
    None for each leaf of the arguments, those of the arguments `live`, by its rule.
    """
    recorder, fn = active_recorder(), primitive.fun
    assert recorder is not None
    leaves, tree = flatten((args, kwargs))
    if _runs_own_rule(fn):
        return NotImplemented  # that has a rule, too, and so on for ever
    if not _may_be_a_graph(fn) or not all(type(x) in _ARRAYS for x in leaves):
        return NotImplemented  # a number of Python's may be an option
    key = tree, tuple(live), _kinds(leaves), primitive.rules()
    known = _known.setdefault(primitive, {})
    if key not in known:
        if len(known) > _KINDS:
            del known[next(iter(known))]
        known[key] = _is_a_graph(fn, gradients, tree, [*map(_given, leaves)])
    if not known[key]:
        return NotImplemented
    return record(_Call(fn, gradients, (args, kwargs)), recorder)


def known_in_own_rule(
    primitive: Any, live: Sequence[int], args: Any, kwargs: Any
) -> Known | None:
    """What a primitive computes that is called by its own rule, from the arrays among these."""
    fn, (leaves, tree) = primitive.fun, flatten((args, kwargs))
    arrays = all(type(x) in _ARRAYS for x in leaves)
    if not _runs_own_rule(fn) or not _may_be_a_graph(fn) or not arrays:
        return None
    recorder = active_recorder()
    assert recorder is not None
    known = recorder.known_calls  # of this trace: what the code reads may be different in the next
    key = primitive, tree, tuple(live), _kinds(leaves), primitive.rules()
    if key not in known:
        known[key] = _known_as(fn, tree, [*map(_given, leaves)])
    found: Known | None = known[key]
    return found


def _runs_own_rule(fn: Any) -> bool:
    return any(fn is other for other in _RULES.get())


def _kinds(leaves: Sequence[Any]) -> tuple[Any, ...]:
    return tuple((x.dtype, x.shape, _is_scalar(x), type(x) is np.ndarray) for x in leaves)


def _given(leaf: Any) -> Any:
    return np.array(real(leaf))[()] if _is_scalar(leaf) else np.array(real(leaf))


def _known_as(fn: Callable[..., Any], tree: Any, given: list[Any]) -> Known | None:
    """The trace of a function alone, where that is a graph from these arrays to one."""

    def computed(*leaves: Any) -> Any:
        args, kwargs = tree.unflatten(list(leaves))
        return fn(*args, **kwargs)

    tree.unflatten(given)  # it keeps its number of leaves, which is no write of the function's
    traced = _traced(computed, given)
    if traced is None or traced.arg_leaves != tuple(range(len(given))):
        return None
    (out, *others) = traced.outputs
    is_alone = not others and isinstance(out, TensorOut) and len(traced.graph.outputs) == 1
    return Known(traced.graph) if is_alone else None


def _is_a_graph(fn: Callable[..., Any], gradients: Gradients, tree: Any, given: list[Any]) -> bool:
    """Whether a trace of the function and its rule by themselves is nothing but a graph."""

    def both(*leaves: Any) -> Any:
        call = _Call(fn, gradients, tree.unflatten(list(leaves)))
        result, residuals = call.forward(call.leaves)
        if type(result) is not TracedArray:
            raise TypeError("more than one array")
        found = call.backward(residuals, np.ones_like(result))
        return result, [g for g in found if g is not None]

    args, kwargs = tree.unflatten(list(given))
    try:
        with untraced(), calling_compiled():
            start = time.thread_time()
            fn(*args, **kwargs)
            if time.thread_time() - start > tuning.OPENED_SECONDS:
                return False
    except (TypeError, ValueError, NotImplementedError, AttributeError):
        return False  # it is called, and raises its error itself
    return _traced(both, given) is not None


def _traced(fn: Callable[..., Any], given: list[Any]) -> Traced | None:
    """The trace of a function where it is nothing but a short graph."""
    try:
        with untraced(), deactivated():
            traced = trace_numpy(fn, tuple(given), {})
    except (GradofError, TypeError, ValueError, NotImplementedError, AttributeError):
        return None  # it is called, and raises its error itself where it has one
    if (
        traced.deciding is not None or traced.performs or traced.stores or traced.writebacks
        or traced.generators or traced.origins or traced.content or traced.layouts
        or len(traced.graph.block) > tuning.OPENED_NODES or _calls_python(traced.graph)
    ):  # fmt: skip
        return None
    return traced


def _calls_python(graph: Graph) -> bool:
    calls = (node for node in graph.walk() if node.kind == "python_call")
    return any(graph_called(call) is None for call in calls)


def _may_be_a_graph(fn: Any) -> bool:
    code = getattr(fn, "__code__", None)
    named = isinstance(code, CodeType) and _ASKS.isdisjoint(_names(code))
    return named or isinstance(fn, np.ufunc)


def _is_scalar(leaf: Any) -> bool:
    return type(leaf) is TracedArray and leaf.is_scalar


def _names(code: CodeType) -> set[str]:
    found = set(code.co_names)
    for const in code.co_consts:
        if isinstance(const, CodeType):
            found |= _names(const)
    return found
