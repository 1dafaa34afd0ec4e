"""Large results of numpy traces wait: typed as computed ones, not computed unless they are read."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np
import pytest

import gradof
from gradof import tuning
from gradof.errors import ShapeError, TraceError
from gradof.tracer.numpy import deferred, waiting
from gradof.tracer.numpy.array import Later
from gradof.tracer.numpy.recorder import Recorder
from gradof.tracer.numpy.tracer import _HANDLERS, trace_numpy
from tests.tracer.numpy_eager import check

Array = np.ndarray[Any, Any]
N = tuning.DEFERRED_CELLS
RNG = np.random.default_rng(7)


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, int]]]:
    """Of each trace: how many arrays were never computed, how many later than they were made."""
    counts: list[tuple[int, int]] = []
    forget, run, done = deferred.Deferred.forget, deferred._run, [0]

    def counting(self: deferred.Deferred) -> None:
        counts.append((len(self._waiting), done[0]))
        done[0] = 0
        forget(self)

    def running(call: Any) -> None:
        done[0] += 1
        run(call)

    monkeypatch.setattr(deferred.Deferred, "forget", counting)
    monkeypatch.setattr(deferred, "_run", running)
    yield counts


@pytest.fixture
def everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small results wait, too, however many are read."""
    monkeypatch.setattr(tuning, "DEFERRED_CELLS", 0)
    monkeypatch.setattr(tuning, "DEFERRED_READS", 1 << 30)


def _heat(u: Array, k: Array, y: Array) -> Any:
    for _ in range(3):
        step = u[2:, 1:-1] + u[:-2, 1:-1] - 2.0 * u[1:-1, 1:-1]
        u = np.pad(u[1:-1, 1:-1] + k[1:-1, 1:-1] * step, 1)
    return np.mean((u - y) ** 2)


def _cross_entropy(x: Array, w: Array, t: Array) -> Any:
    z = np.maximum(x @ w, 0.0)
    z = z - np.max(z, axis=1, keepdims=True)
    logs = z - np.log(np.sum(np.exp(z), axis=1, keepdims=True))
    return -np.mean(logs[np.arange(len(t)), t])


def test_what_nobody_reads_is_not_computed(waited: list[tuple[int, int]]) -> None:
    u, k, y = (RNG.random((N // 256, 512)) for _ in range(3))
    trace_numpy(_heat, (u, k, y), {})
    assert waited[-1][0] > 20 and waited[-1][1] == 0
    trace_numpy(_heat, (u[:9, :9], k[:9, :9], y[:9, :9]), {})
    assert waited[-1] == (0, 0), "small results are computed at once"
    t = RNG.integers(0, 8, N // 16)
    trace_numpy(_cross_entropy, (RNG.random((N // 16, 16)), RNG.random((16, 8)), t), {})
    assert waited[-1][0] > 8 and waited[-1][1] == 0


def test_a_rule_of_the_users_own_computes_nothing(waited: list[tuple[int, int]]) -> None:
    @gradof.custom_vjp
    def clipped(x: Array) -> Any:
        return np.clip(x, -1.0, 1.0)

    clipped.defvjp(
        lambda x: (np.clip(x, -1.0, 1.0), x), lambda x, g: (g * 0.5 + 0.0 * x,)
    )  # fmt: skip
    x = 2.0 * RNG.standard_normal(N)
    grad = gradof.grad(lambda x: np.sum(clipped(x * 1.0) * 3.0))(x)
    assert waited[-1][0] > 4 and waited[-1][1] == 0
    np.testing.assert_allclose(grad, np.full(N, 1.5))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_and_gradients_of_what_waits(dtype: Any) -> None:
    u, k, y = (RNG.random((N // 256, 512)).astype(dtype) for _ in range(3))
    value, grads = gradof.value_and_grad(_heat, argnums=(0, 1))(u, k * 0.1, y)
    np.testing.assert_allclose(value, _heat(u, k * 0.1, y), rtol=2e-5)
    assert [(g.shape, g.dtype) for g in grads] == [(u.shape, u.dtype)] * 2


# --- types ----------------------------------------------------------------------------------------

_X = RNG.standard_normal((6, 5, 4))
_OPERANDS = {
    "f64": _X, "f32": _X.astype(np.float32), "f16": _X.astype(np.float16), "bool": _X > 0,
    "i32": (_X * 9).astype(np.int32), "u8": np.abs(_X * 9).astype(np.uint8), "c64": _X + 1j * _X,
    "fortran": np.asfortranarray(_X), "permuted": _X.transpose(1, 0, 2).copy().transpose(1, 0, 2),
    "reversed": _X[::-1, :, ::-1], "row": _X[:1], "plane": _X[0], "column": _X[:, :1, :1],
    "strided": RNG.random((6, 10, 8))[:, ::2, ::2], "one": np.array(2.5), "matrix": _X[0].T,
}  # fmt: skip
_BINARY = (np.add, np.multiply, np.true_divide, np.maximum, np.less, np.power, np.floor_divide,
           np.logical_and, np.arctan2, np.hypot, np.copysign, np.divmod)  # fmt: skip
_UNARY = (np.exp, np.sqrt, np.abs, np.negative, np.isnan, np.sign, np.logical_not, np.square,
          np.modf, np.floor, np.copy)  # fmt: skip
_REDUCED: list[dict[str, Any]] = [
    {}, {"axis": 0}, {"axis": -1}, {"axis": (0, 2)}, {"axis": 1, "keepdims": True},
    {"keepdims": True}, {"axis": ()},
]  # fmt: skip
_OTHERS: list[Callable[[Any, Any], tuple[Any, ...]]] = [
    lambda a, b: (np.where, a > 0 if a.dtype.kind != "c" else a == a, a, b),
    lambda a, b: (np.where, a == a, a, 2.0), lambda a, b: (np.where, a == a, 0, b),
    lambda a, b: (np.clip, a, -1, 1), lambda a, b: (np.clip, a, None, b),
    lambda a, b: (np.pad, a, 1), lambda a, b: (np.pad, a, ((0, 2),) * a.ndim),
    lambda a, b: (np.matmul, a, b), lambda a, b: (np.matmul, a, b.T), lambda a, b: (np.dot, a, b),
    lambda a, b: (np.dot, a.T, b), lambda a, b: (np.reshape, a, -1),
    lambda a, b: (np.ravel, a.T), lambda a, b: (np.concatenate, [a, a, b]),
    lambda a, b: (np.stack, [a, b], -1), lambda a, b: (np.take, a, [0, 0], 0),
    lambda a, b: (np.diagonal, a), lambda a, b: (np.atleast_3d, a), lambda a, b: (np.roll, a, 1, 0),
    lambda a, b: (np.zeros_like, a), lambda a, b: (np.tril, a), lambda a, b: (np.squeeze, a),
]  # fmt: skip


def _layout(array: Any) -> tuple[Any, ...]:
    array = array.memory if isinstance(array, Later) else np.asarray(array)
    steps = [s for n, s in zip(array.shape, array.strides, strict=True) if n > 1]
    return array.shape, array.dtype, steps, array.flags.c_contiguous, array.flags.f_contiguous


def _compare(recorder: Recorder, function: Any, *args: Any, **kwargs: Any) -> bool:
    """The call as numpy makes it and as it waits; whether it does."""
    plain = deferred.real(list(args))
    try:
        with np.errstate(all="ignore"):
            want = function(*plain, **kwargs)
    except (ValueError, TypeError):
        return False
    got = recorder.deferred.call(function, args, kwargs)
    assert isinstance(got, tuple) == isinstance(want, tuple)
    results = got if isinstance(got, tuple) else (got,)
    arrays = [r.memory if isinstance(r, Later) else np.asarray(r) for r in results]
    waits = all(map(recorder.deferred.waits, arrays))
    for g, w in zip(results, want if isinstance(want, tuple) else (want,), strict=True):
        assert isinstance(g, (Later, np.generic)) == isinstance(w, np.generic), function
        assert _layout(g) == _layout(w), (function, args, kwargs)
        memory = g.memory if isinstance(g, Later) else np.asarray(g)
        recorder.deferred.settle(memory)
        assert not recorder.deferred.waits(memory)
        np.testing.assert_array_equal(memory, w)
    return waits


def _operands(one: Array, other: Array) -> tuple[Recorder, Any, Any]:
    """Arguments of a trace, which wait."""
    recorder = Recorder(_branch, "f", _HANDLERS)
    return recorder, recorder.add_argument(one, None), recorder.add_argument(other, None)


@pytest.mark.usefixtures("everything")
def test_types_are_those_of_computed_results() -> None:
    """Shapes, dtypes, strides and scalars, over dtypes, layouts, and all that may wait."""
    tried: set[Any] = set()

    def note(recorder: Recorder, function: Any, *args: Any, **kwargs: Any) -> None:
        if _compare(recorder, function, *args, **kwargs):
            tried.add(function)

    makers: list[Any] = [*_OTHERS, *_BINARY]
    for one, other in itertools.product(_OPERANDS.values(), repeat=2):
        for make in makers:
            recorder, a, b = _operands(one, other)
            call = (make, a, b) if isinstance(make, np.ufunc) else make(a, b)
            note(recorder, *call)
    for one in _OPERANDS.values():
        for function in _UNARY:
            recorder, a, _ = _operands(one, one)
            note(recorder, function, a)
        for number in (2, 2.5, True, 1j, np.float32(2), np.int64(3), _OPERANDS["plane"]):
            recorder, a, b = _operands(one, one)
            note(recorder, np.add, a, number)
            note(recorder, np.multiply, number, b)
        for reduction, kwargs in itertools.product(waiting._REDUCTIONS, _REDUCED):
            recorder, a, _ = _operands(one, one)
            note(recorder, reduction, a, **kwargs)
    assert tried >= waiting._RULES.keys() | set(_BINARY) | set(_UNARY)


# --- what is read ---------------------------------------------------------------------------------

_TABLE = RNG.standard_normal((4, 3))


def _branch(x: Array) -> Any:
    y = np.exp(x) * 2.0
    return np.sum(y) if np.all(np.mean(y * 1.0, axis=0) > 0.5) else np.sum(y * x)


def _changed_in_place(x: Array) -> Any:
    y = np.tanh(x) * 1.0
    before = y * 3.0
    y[1:-1] += x[:-2] * before[2:]
    y[0] = 2.0 * y[1]
    y[:, 0] *= y[:, 1]
    return np.sum(y * before) if (before > 0).any() else np.sum(y)


def _argument_changed(x: Array) -> Any:
    y = x * 2.0
    inner = x[1:, 1:]
    inner *= 3.0
    x[0, 0] = y[1, 1] + inner[0, 1]
    return np.sum(x * y)


def _views(x: Array) -> Any:
    y = np.sin(x)
    flat = y.T.ravel()  # a copy
    same = y.reshape(-1)  # a view
    same[1] = flat[2] * 4.0
    rows = y[::-1, None, :]
    return np.sum(flat * same) + np.sum(np.squeeze(rows) * y) + y[1, 1] * np.diagonal(y)[0]


def _scalars(x: Array) -> Any:
    top, total = np.max(x), np.sum(x * x)
    mean = total / x.size
    first = x[0, 0]
    x[0, 0] = 9.0
    mean += top * first
    return np.sqrt(mean + 1e3) * np.where(mean > -1e9, x, 0.0).sum()


def _plain_changed(x: Array) -> Any:
    weights = np.linspace(1.0, 2.0, 12).reshape(4, 3)
    y = x * weights
    picked = np.where(x > 0, weights, y)
    weights[...] = 0.0
    return np.sum(y) + np.sum(picked) if np.isfinite(y * x).all() else np.sum(x)


def _closure(x: Array) -> Any:
    return np.sum((x @ _TABLE.T)[1:] * _TABLE[1:, :1]) + np.sum(np.stack([x, _TABLE]) ** 2)


def _out_and_where(x: Array) -> Any:
    made = np.zeros_like(x)
    np.multiply(x, 2.0, out=made)
    np.add(made, x, out=made, where=x > 0)
    np.exp(made, out=made[...])
    np.add.at(made, ([0, 0], [1, 1]), 2.0 * x[0, 0])
    return np.sum(made * np.where(np.isnan(x), 0.0, x))


def _mixed(x: Array) -> Any:
    small = x.astype(np.float32)
    counts = (x > 0).sum(axis=0)
    both = small * 2 + counts.astype(np.float32)
    return np.sum(both.astype(np.float64) * x) + np.sum(np.array([1, 2, 3]) * counts * x)


def _constants(x: Array) -> Any:
    grid = np.zeros((4, 3)) + np.arange(3.0)
    n = int(np.sum(grid[0]))  # of a constant, which may be read
    return np.sum(x * grid) + n * np.sum(np.asarray(grid) * x) + float(np.max(grid))


def _others(x: Array) -> Any:
    s = np.sort(np.sin(x), axis=0)[1:] + np.cumsum(x * 1.0, axis=1)[1:]
    norm = np.linalg.norm(x * 2.0) + np.std(x) + np.var(x, axis=0, ddof=1).sum()
    padded = np.pad(x, ((1, 0), (0, 2)), constant_values=3) + np.pad(np.cos(x), ((0, 1), (2, 0)))
    return np.sum(s) * norm + np.sum(np.concatenate([padded, padded[:2]], axis=0) ** 2)


def _drawn(x: Array) -> Any:
    noise = np.random.default_rng(3).standard_normal((4, 3))
    y = x + noise
    return np.sum(y * noise) if np.max(y + 0.0) > -9 else np.sum(x)


_PROGRAMS = [_branch, _changed_in_place, _argument_changed, _views, _scalars, _plain_changed,
             _closure, _out_and_where, _mixed, _constants, _others, _drawn]  # fmt: skip


@pytest.mark.usefixtures("everything")
@pytest.mark.parametrize("fn", _PROGRAMS)
def test_programs(fn: Callable[..., Any]) -> None:
    x = np.random.default_rng(2).standard_normal((4, 3)) + 0.5
    if fn is _mixed:
        check(fn, x, rtol=1e-6, gradient=False)
    else:
        check(fn, x)


@pytest.mark.usefixtures("everything")
@pytest.mark.parametrize("fn", _PROGRAMS)
@pytest.mark.parametrize("layout", [np.array, np.asfortranarray], ids=["C", "F"])
def test_the_graph_is_that_of_computed_results(
    fn: Callable[..., Any], layout: Callable[..., Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = layout(np.random.default_rng(2).standard_normal((4, 3)) + 0.5)
    waited = trace_numpy(fn, (x,), {})
    monkeypatch.setattr(tuning, "DEFERRED_CELLS", N)
    computed = trace_numpy(fn, (x,), {})
    assert waited.graph == computed.graph and waited.recorded == computed.recorded
    assert waited.outputs == computed.outputs and waited.content == computed.content


def test_a_function_that_reads_on_is_computed_as_it_goes(waited: list[tuple[int, int]]) -> None:
    def fn(x: Array) -> Any:
        y = x
        for _ in range(9):
            y = np.tanh(y)
            y = y * 2.0 if np.max(y) > -9.0 else y
        return np.sum(y)

    trace_numpy(fn, (RNG.random(N),), {})
    assert waited[-1][0] <= 2 and waited[-1][1] <= 4 * tuning.DEFERRED_READS


@pytest.mark.usefixtures("everything")
def test_what_is_computed_keeps_no_operands() -> None:
    """Arrays that nobody has any more go during the trace, as they do without it."""
    alive: list[weakref.ref[Array]] = []

    def fn(x: Array) -> Any:
        y = x
        for _ in range(5):
            y = np.tanh(y)
            alive.append(weakref.ref(y.memory))  # type: ignore[attr-defined]
        assert sum(a() is not None for a in alive) == 5
        total = np.sum(x) if np.max(y) > -9.0 else np.sum(y)
        assert [a() is not None for a in alive] == [False] * 4 + [True]
        return total

    trace_numpy(fn, (RNG.random(5),), {})


@pytest.mark.usefixtures("everything")
def test_long_chains_are_computed_without_recursion() -> None:
    def fn(x: Array) -> Any:
        y = x
        for i in range(3000):
            y = np.maximum(y, float(i % 3) - 1.0)
        return np.sum(x) if np.max(y) > 0.5 else np.sum(x * x)

    x = np.full(3, 0.25)
    assert gradof.grad(fn)(x).tolist() == [1.0, 1.0, 1.0]


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("fn", [
    lambda x: x + np.ones(7), lambda x: x @ x, lambda x: np.exp(x).sum(axis=4),
    lambda x: np.max(x * 1.0, axis=(0, 0)), lambda x: np.where(x > 0, x, np.ones(3)),
    lambda x: (x * 2.0)[:, 9], lambda x: np.max((x * 2.0)[:0]), lambda x: (x * 2.0).reshape(3, 7),
    lambda x: np.concatenate([x * 1.0, np.ones((2, 3))]), lambda x: np.pad(x * 1.0, -1),
    lambda x: np.arange(N).reshape(x.shape) ** np.full(x.shape, -1) * x,
])  # fmt: skip
def test_errors_are_those_of_numpy(fn: Callable[[Array], Any]) -> None:
    x = RNG.random((N // 4, 4))
    with pytest.raises((ValueError, IndexError)) as eager:
        fn(x)
    with pytest.raises((ShapeError, type(eager.value))) as ours:
        trace_numpy(fn, (x,), {})
    assert str(eager.value) in str(ours.value)  # with the user's line, and a hint


def test_elements_of_a_finished_trace_are_not_read() -> None:
    kept: ContextVar[Any] = ContextVar("kept")

    def fn(x: Array) -> Any:
        kept.set(np.zeros(N) + 1.0)
        return np.sum(x)

    trace_numpy(fn, (RNG.random(N),), {})
    with pytest.raises(TraceError, match="finished trace"):
        np.asarray(kept.get())


def test_arguments_are_not_changed_by_what_waits() -> None:
    def fn(x: Array) -> Any:
        y = x * 2.0
        x[: N // 2] += 1.0
        return np.sum(x * y)

    x = RNG.random(N)
    before = x.copy()
    trace_numpy(fn, (x,), {})
    np.testing.assert_array_equal(x, before)
