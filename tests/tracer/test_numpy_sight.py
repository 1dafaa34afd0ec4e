"""Arrays that a numpy function reads: seen when its code runs, wherever they are held."""

from __future__ import annotations

import builtins
import collections
import cProfile
import functools
import math
import queue
import types
from collections.abc import Callable
from typing import Any
from unittest.mock import MagicMock

import networkx
import numpy as np
import pytest

from gradof import differentiate, grad, tuning, vjp
from gradof.errors import TraceError
from gradof.tracer.numpy import templates
from gradof.tracer.numpy.creation import replacements
from gradof.tracer.numpy.sight import Sight
from gradof.tracer.numpy.tracer import trace_numpy
from gradof.tracer.state import leads
from gradof.tracer.state.iterators import position
from gradof.tracer.state.reads import Reads

Function = Callable[[Any], Any]


class Weights:
    shared = np.ones(3)

    def __init__(self, array: Any) -> None:
        self.array = array
        self.parts = ({"w": array},)

    def by_default(self, x: Any, w: Any = shared) -> Any:
        return x * w

    def product(self, x: Any) -> Any:
        return x * self.parts[0]["w"]


def _instance(w: Any) -> Function:
    return Weights(w).product


def _default(w: Any) -> Function:
    def f(x: Any, *, w: Any = w) -> Any:
        return x * w

    return lambda x: f(x)


def _nested(w: Any) -> Function:
    def outer(x: Any) -> Any:
        def inner(y: Any) -> Any:
            return y * w + own

        own = np.linspace(0.0, 1.0, 3)
        return inner(x)

    return outer


def _graph(w: Any) -> Function:
    graph = networkx.Graph()
    graph.add_node(0, w=w)
    return lambda x: x * graph.nodes[0]["w"]


def _queue(w: Any) -> Function:
    waiting: queue.Queue[Any] = queue.Queue()
    waiting.put(w)
    return lambda x: x * waiting.queue[0]


def _user_dict(w: Any) -> Function:
    held = collections.UserDict({"w": w})
    return lambda x: x * held["w"]


def _module(w: Any) -> Function:
    settings = types.ModuleType("settings_of_a_test")
    settings.w = w  # type: ignore[attr-defined]
    return lambda x: x * settings.w


def _computed(w: Any) -> Function:
    held = types.SimpleNamespace(w0=w)
    return lambda x: x * getattr(held, f"w{0}")


def _by_map(w: Any) -> Function:
    held = [w, w]
    return lambda x: sum(map(lambda v: x * v, held))


def _plain_before(w: Any) -> Function:
    """Plain numpy computes with it first: what meets the argument is a constant."""
    return lambda x: x * (w * 2.0 + 1.0)


def _decides(w: Any) -> Function:
    return lambda x: x * 2.0 if w[0] > 1.0 else x * 3.0


HOLDERS = (
    _instance, _default, _nested, _graph, _queue, _user_dict, _module, _computed, _by_map,
    _plain_before, _decides,
)  # fmt: skip


@pytest.mark.parametrize("holder", HOLDERS)
def test_what_an_array_holds_is_read_at_every_call(holder: Callable[[Any], Function]) -> None:
    w, x = np.array([0.5, 1.5, -2.0]), np.array([1.0, 2.0, 3.0])
    fn = holder(w)
    compiled = differentiate(fn)
    for value in (0.5, 0.5, 2.5):
        w[0] = value
        assert np.array_equal(compiled(x), fn(x))
    assert compiled.cache_info().eager_runs == 0


def test_arrays_of_the_run_are_constants() -> None:
    fn = _nested(np.ones(3))
    compiled = differentiate(fn)
    for _ in range(3):
        compiled(np.ones(3))
    assert compiled.cache_info().misses == 1


def test_an_array_without_a_path_becomes_a_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    w, v, x = np.array([2.0, 3.0]), np.array([5.0, 7.0]), np.array([1.0, 4.0])

    def fn(x: Any) -> Any:
        return np.sum((x * w)[::-1] * v)

    whole = Sight.paths

    def without(self: Sight, fn: Any, wanted: Any) -> Any:
        return {k: p for k, p in whole(self, fn, wanted).items() if p[0] is not w}

    monkeypatch.setattr(Sight, "paths", without)
    traced = trace_numpy(fn, (x,), {})
    assert [str(o) for o in traced.origins] == ["closure 'v'"]
    assert len(traced.graph.inputs) == 2
    monkeypatch.setattr(Sight, "paths", whole)
    assert len(trace_numpy(fn, (x,), {}).graph.inputs) == 3


def test_what_no_code_touches_is_not_looked_at() -> None:
    library = types.ModuleType("a_large_library")
    library.table = [{"row": [i]} for i in range(20_000)]  # type: ignore[attr-defined]
    exec("def lookup(i):\n    return table[i]", vars(library))
    w = np.ones(2)

    def fn(x: Any) -> Any:
        return x * w if x.ndim == 1 else library.lookup(3)

    reads = Reads()
    trace_numpy(fn, (np.ones(2),), {}, reads=reads)
    assert len(reads.held.met) < 200


def test_our_own_entries_are_not_looked_into() -> None:
    space: dict[str, Any] = {"np": np, "table": [{"row": [i]} for i in range(2_000)]}
    exec("def inner(x):\n    return np.sin(x) * len(table[0])", space)
    _, pullback = vjp(space["inner"], np.ones(2))  # its entry leads to the globals of `inner`

    reads = Reads()
    trace_numpy(lambda x: x * pullback(np.ones(2))[0], (np.ones(2),), {}, reads=reads)
    assert id(space["table"][0]) not in reads.held.met


def test_the_constructor_of_a_named_tuple_is_not_heard() -> None:
    pair = collections.namedtuple("pair", "a b")
    reads = Reads()
    trace_numpy(lambda x: pair(x, 2.0).a * 2, (np.ones(2),), {}, reads=reads)
    assert pair.__new__.__code__ not in reads.codes


def test_a_profiler_goes_on_after_the_trace() -> None:
    profile = cProfile.Profile()
    profile.enable()
    try:
        assert grad(lambda x: np.sum(x**3))(np.array([2.0]))[0] == 12.0
        _after_the_trace()
    finally:
        profile.disable()
    profile.create_stats()
    names = {key[2] for key in profile.stats}
    assert "_after_the_trace" in names


def test_a_torch_function_is_traced_under_a_profiler() -> None:
    torch = pytest.importorskip("torch")
    weight = torch.ones(3)
    loss = differentiate(lambda x: (x * weight).sum(), strict=True)
    profile = cProfile.Profile()
    profile.enable()
    try:
        loss(torch.ones(3, requires_grad=True)).backward()
        _after_the_trace()
    finally:
        profile.disable()
    profile.create_stats()
    assert loss.cache_info().backward_runs == 1
    assert "_after_the_trace" in {key[2] for key in profile.stats}


def _after_the_trace() -> None:
    """Something to be found in the profile."""


def test_what_a_list_of_the_runs_own_holds_is_not_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[Any] = []

    def children_of(obj: Any, deep: bool) -> list[Any]:
        looked_at.append(obj)
        return []

    monkeypatch.setattr(leads, "children_of", children_of)

    def means(x: Any) -> Any:
        seen: list[Any] = []
        for t in range(50):
            seen.append(x * t)
        return np.sum(np.stack(seen))

    trace_numpy(means, (np.ones(3),), {})
    assert not looked_at


# --- templates ------------------------------------------------------------------------------------


def _loop(x: Any) -> Any:
    y, total = x, 0.0
    for t in range(6):
        y = np.tanh(y) * (t + 0.5) + x[t % 3] - 1 / (t + 1.0)
        total = total + np.sum(y) * np.sum(np.stack([y[0], y[-1], x[t % 3]]))
        y = np.where(y > 0.1 * t, y, -y)
    return total


def _signs(x: Any) -> Any:
    return np.array([np.copysign(x[0], 0.0), np.copysign(x[0], -0.0), x[0] * 0.0, x[0] * -0.0])


def _alike(x: Any) -> Any:
    a, b = np.exp(x), np.sin(x)
    return a * a + a * b + b * b + x**2 + x**3 + x**2.5 + x**0.5


def _views(x: Any) -> Any:
    y = np.copy(x)
    for t in range(3):
        part = y[t : t + 2] if t < 2 else y[:1]
        part *= 2.0 + t
    return y[0] * y[1] + y[-1]


# No code of the user's: lines and names are those of the function that is traced.
_in_full: dict[str, Any] = {"__name__": "gradof.in_full"}
exec("def through(*args, **named):\n    return args[4]()", _in_full)


def _written(x: Any) -> Any:
    table = np.zeros((4, 3))
    table[0] = x
    for i in range(1, 4):
        for j in range(1, 3):
            table[i, j] = table[i - 1, j - 1] * 0.5 + min(i, j) * x[j]
        table[-i, 0] = 2.0
        table[i, 1:] = table[i, :2] + table[i, 1:]
    table[:, 1] = table[:, 1]
    return table


def _turned(x: Any) -> Any:
    total, table = 0.0, np.outer(x, x + 1.0)
    for t in range(3):
        flat, side = table.T, np.swapaxes(table, 0, 1)
        flat[t] = x * (t + 1.0)
        side[0, t] += np.sum(flat[1] @ table.T)
        total = total + np.sum(table.T @ table - flat)
    return total


def _plain_and_picked(x: Any) -> Any:
    move, order = np.array([[0.9, 0.1, 0.0], [0.2, 0.8, 0.3], [0.0, 0.1, 0.7]]), np.argsort(x)
    table, total = np.outer(x, x), 0.0
    for t in range(4):
        x = move @ x + table[:, order[t % 3]] * np.array([1.0, 0.5, 0.25]) - move.T @ x
        total = total + x[order[0]] + np.array([2, 3, 4])[order[t % 3]]
    return total


@pytest.mark.parametrize(
    "fn", [_loop, _signs, _alike, _views, _written, _turned, _plain_and_picked]
)
def test_templates_emit_what_is_recorded_in_full(
    fn: Function, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.array([0.3, 0.7, 1.9])
    first = str(trace_numpy(fn, (x,), {}).graph)
    again = str(trace_numpy(fn, (x,), {}).graph)
    with monkeypatch.context() as patch:
        patch.setattr(templates, "through", _in_full["through"])
        whole = str(trace_numpy(fn, (x,), {}).graph)
    assert first == again == whole


def test_templates_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "TEMPLATES", 5)
    monkeypatch.setattr(templates, "_templates", {})
    for n in range(1, 20):
        trace_numpy(lambda x: np.sum(x * x), (np.ones(n),), {})
    assert 0 < len(templates._templates) <= 5


def test_a_refused_trace_leaves_the_interpreters_names() -> None:
    space: dict[str, Any] = {}
    exec("def scale(x): return 2 * x", space)  # which gives the dict its `__builtins__`
    weights = np.ones(200_000)  # more than is copied, to be an input of a second try
    before = builtins.__import__

    def fn(x: Any) -> Any:
        weights[0] += 1.0
        return np.sum(space["scale"](x))

    with pytest.raises(TraceError, match="changed"):
        grad(fn)(np.ones(3))
    assert builtins.__import__ is before


def test_a_class_that_makes_what_it_is_asked_for_is_not_asked() -> None:
    """A Mock's `__next__` makes another Mock at each look; walking them had no end."""
    plt = MagicMock()
    made: list[Any] = []

    class Making:
        def __get__(self, instance: Any, owner: Any) -> Any:
            made.append(instance)
            return lambda *args: instance

    class Axes:
        __iter__ = __next__ = Making()

    axes = Axes()

    def loss(x: Any) -> Any:
        if axes is None:
            plt.plot(x)
        return np.sum(x**2)

    np.testing.assert_array_equal(grad(loss)(np.ones(2)), [2.0, 2.0])
    assert not made and position(axes) is None


def test_functions_of_the_tracers_keep_what_they_refer_to() -> None:
    _, of_math = replacements()[id(math.sqrt)]
    cells = dict(zip(of_math.__code__.co_freevars, of_math.__closure__, strict=True))
    recorded = cells["of_arrays"].cell_contents

    def fn(x: Any) -> Any:
        functools.wraps(math.sqrt)(recorded)  # as the tracer does, while scipy's `quad` is traced
        return x * recorded(4.0) * math.sqrt(9.0)

    assert differentiate(fn)(np.float64(2.0)) == 12.0
