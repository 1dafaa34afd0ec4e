"""The trace as a whole: free arrays, creation inside, structure, what is left alone, errors."""

from __future__ import annotations

import queue
import subprocess
import sys
import textwrap
import threading
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.special
from numpy import zeros
from scipy.special import logsumexp

import gradof
from gradof.errors import (
    DtypeError,
    GradofError,
    LeafTypeError,
)
from gradof.ir.contents import checksum
from gradof.tracer.core.result import ConstantOut, InputOut, TensorOut
from tests.tracer.numpy_eager import check, kinds, run, trace

V = np.array([0.3, -1.2, 2.0])
X = np.random.default_rng(0).standard_normal((5, 3))
LABELS = np.array([0, 2, 1, 1, 0])
SCALE = 3.0
STRONG = np.float32(2.0)


# --- values that are not arguments ----------------------------------------------------------------


def test_free_arrays_become_inputs_that_are_read_again() -> None:
    local = np.array([1.0, 2.0, 3.0])

    def fn(w: Any) -> Any:
        return np.sum((X @ w) ** 2) + np.sum(local * w)

    traced = check(fn, V)
    assert traced.input_names == ("args[0]", "global 'X'", "closure 'local'")
    assert traced.content == ()
    local[0] = 50.0
    np.testing.assert_allclose(run(traced, fn, (V,)), fn(V))


def test_views_of_free_arrays_are_read_again() -> None:
    data = np.arange(24.0).reshape(4, 6)

    def fn(w: Any) -> Any:
        return (data[1:3, ::2] * w).sum() + (data.T[::-1] @ data[:, 0]) @ data[0] * w[0]

    traced = check(fn, V)
    assert "closure 'data'" in traced.input_names
    data[1, 2] = -7.0

    def viewed(w: Any) -> Any:
        return data[1:3, ::2] * w + data[0, 3:] - data.reshape(3, 8)[2, 5:]

    traced = check(viewed, V)
    assert traced.content == (), "nothing is baked in"
    data[...] = np.sin(data)
    np.testing.assert_allclose(run(traced, viewed, (V,)), viewed(V))


def test_what_plain_numpy_computed_is_guarded_by_content() -> None:
    data = np.arange(6.0).reshape(2, 3)

    def fn(w: Any) -> Any:
        return (data * w - data.mean(axis=0)).sum()

    traced = check(fn, V)
    assert [str(origin) for origin, _ in traced.content] == ["closure 'data'"]
    compiled = gradof.grad(fn)
    np.testing.assert_allclose(compiled(V), data.sum(axis=0))
    data += 1
    np.testing.assert_allclose(compiled(V), data.sum(axis=0))
    value = gradof.differentiate(fn)
    for _ in range(2):
        np.testing.assert_allclose(value(V), fn(V))
        data *= 2
        np.testing.assert_allclose(value(V), fn(V))


def test_numbers_from_plain_numpy_are_guarded_too() -> None:
    data = np.arange(6.0)

    def fn(w: Any) -> Any:
        return np.sum(w) * data.max() + w[0] * float(data[1])

    value = gradof.differentiate(fn)
    for _ in range(2):
        np.testing.assert_allclose(value(V), fn(V))
        data += 3


def test_free_index_arrays_are_inputs() -> None:
    def fn(w: Any) -> Any:
        return w[LABELS] * 2 + X[np.arange(5), LABELS]

    traced = check(fn, V)
    assert "global 'LABELS'" in traced.input_names


def test_attributes_and_containers_are_origins() -> None:
    class Model:
        def __init__(self) -> None:
            self.params = {"w": [np.ones(3), np.full(3, 2.0)]}

        def __call__(self, x: Any) -> Any:
            return np.tanh(x * self.params["w"][0]) + STRONG * SCALE * x * self.params["w"][1]

    traced = check(Model(), V)
    assert len(traced.origins) == 2


def test_other_subclasses_are_refused() -> None:
    masked = np.ma.masked_array(V, [False, True, False])
    with pytest.raises(LeafTypeError, match="MaskedArray"):
        trace(lambda x: x * 2, masked)
    with pytest.raises(GradofError, match="MaskedArray"):
        trace(lambda x: np.add(x, masked), V)
    with pytest.raises(LeafTypeError, match="object"):
        trace(lambda x: np.stack([x, np.array([1, None, 2], dtype=object)]), V)
    with pytest.raises(LeafTypeError, match="<U1"):
        trace(lambda x: x, np.array(["a"]))
    with pytest.raises(DtypeError, match=r"longdouble|float128"):
        trace(lambda x: x * 2, V.astype(np.longdouble))


# --- arrays made inside ---------------------------------------------------------------------------


def test_created_arrays_hold_traced_values() -> None:
    def fn(x: Any) -> Any:
        a, b, c = np.zeros(3), np.ones((2, 3)), np.empty(3)
        d, e, f = np.full(2, 4.0), np.eye(3), np.zeros_like(X)
        a[0], b[1], c[:] = x[0], x * 2, x
        d[1], e[0, 2], f[0] = x[1], x[2], x
        return a.sum() + (b * c).sum() + d @ d + np.trace(e @ e.T) + f.sum()

    check(fn, V)


def test_arrays_of_traced_elements() -> None:
    check(lambda x: np.array([x[0] ** 2, 1.0, x[1] * x[2]]), V)
    check(lambda x: np.array([[x[0], x[1]], [0, x[2]]]) @ np.array([1.0, 2.0]), V)
    check(lambda x: np.asarray([x, 2 * x]).T, V)
    check(lambda x: np.array([v * v for v in x]), V)
    check(lambda x: np.array((x[0], x[1]), dtype=np.float32), V, rtol=1e-6, gradient=False)
    check(lambda x: np.full((2, 3), x), V)
    check(lambda x: np.full_like(X, x[0]), V)
    check(lambda x: np.sum([x[0], x[1] * 2]) + np.max([v**2 for v in x]), V)
    check(lambda x: x * [1.0, 2.0, 3.0] + np.array(x), V)
    check(lambda x: np.add([x[0], x[1], 2.0], x), V)


def test_created_arrays_serve_as_plain_ones() -> None:
    def fn(x: Any) -> Any:
        weights = np.ones(3)
        assert weights.sum() == 3.0 and weights.all() and float(weights[0]) == 1.0
        table = scipy.special.roots_legendre(3)[0]
        count = np.zeros(3, dtype=int)
        count[1] = 2
        norm = np.linalg.svd(np.eye(3))[1]
        if weights[0] > 0.5:
            x = x * 2
        return x * weights * table * norm + count[1] * len(np.unique(weights))

    check(fn, V)


def test_functions_of_scipy_special() -> None:
    check(lambda x: scipy.special.logsumexp(x), V)
    check(lambda x: logsumexp(x, axis=1, keepdims=True), X)
    check(lambda x: scipy.special.softmax(x, axis=0), X)
    infinite = np.array([1.0, np.inf, 0.0])
    with np.errstate(invalid="ignore"):
        found = gradof.differentiate(lambda x: scipy.special.softmax(x))(infinite)
    assert np.isnan(found).all()
    check(lambda x: scipy.special.log_softmax(x), V)


def test_other_threads_see_plain_numpy() -> None:
    seen: list[type] = []
    go, done = threading.Event(), threading.Event()

    def other() -> None:
        go.wait(10)
        seen.extend(type(a) for a in (np.zeros(3), np.array([1.0]), np.ones(2), np.eye(2)))
        done.set()

    thread = threading.Thread(target=other)
    thread.start()

    def fn(x: Any) -> Any:
        go.set()
        assert done.wait(10)
        y = np.zeros(3)
        y[0] = x[0]
        return y

    traced = trace(fn, V)
    thread.join()
    assert "slice_scatter" in kinds(traced.graph)
    assert seen == [np.ndarray] * 4


def test_modules_are_left_as_they_were() -> None:
    during = queue.SimpleQueue[bool]()  # its content is no state that is put back

    def fn(x: Any) -> Any:
        during.put(np is sys.modules["numpy"] or id(sys.modules["numpy"].zeros) != real)
        return np.zeros(3) + zeros(3) + x

    before, mine, real = dict(vars(np)), dict(globals()), id(np.zeros)
    trace(fn, V)
    with pytest.raises(ZeroDivisionError):
        trace(lambda x: np.zeros(3) * x / (1 // 0), V)
    assert not during.get(block=False), "the module's `np` is a proxy, numpy itself as it was"
    assert dict(vars(np)) == before
    assert all(globals()[name] is value for name, value in mine.items())


def test_code_for_several_libraries_compares_the_module() -> None:
    """`numpy` as a key or as one side of `==` is numpy while the trace runs, too."""
    scale = {np: 2.0, pytest: 3.0}
    module = np

    def fn(x: Any) -> Any:
        assert np == module and module == np and np != pytest and pytest != np
        return x * scale[np]

    assert kinds(trace(fn, V).graph) == ["Constant", "mul"]


def test_c_code_gets_plain_arrays() -> None:
    # Generator.random takes the result of np.empty without a look at its type
    check(lambda x: x * np.random.default_rng(7).random(3) + np.zeros(3), V)


def test_traces_in_two_threads() -> None:
    inside, both = threading.Barrier(2, timeout=10), threading.Barrier(2, timeout=10)
    texts: dict[int, str] = {}

    def fn(x: Any) -> Any:
        inside.wait()
        y = np.zeros(3)
        y[0] = x[0]
        both.wait()
        return np.array([y[0], y[1], x[2]])

    def one(n: int) -> None:
        texts[n] = str(trace(fn, V).graph)

    threads = [threading.Thread(target=one, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts[0] == texts[1] and "slice_scatter" in texts[0]
    assert type(np.zeros(2)) is np.ndarray and type(np).__name__ == "module"


# --- structure, names, types ----------------------------------------------------------------------


class Pair(NamedTuple):
    left: Any
    right: Any


def test_nested_arguments_and_results() -> None:
    def fn(params: Any, pair: Pair, flag: bool, *, name: str = "a") -> Any:
        y = params["w"] @ params["b"][0] + pair.left
        return {"y": y, "same": pair, "n": (3, name, flag), "none": None}

    args = ({"w": X, "b": [V]}, Pair(np.ones(5), np.float64(2.0)), True)
    traced = check(fn, *args)
    assert traced.outputs[1:] == (
        InputOut(2), InputOut(3, is_number=True), ConstantOut(3), ConstantOut("a"),
        ConstantOut(True), ConstantOut(None),
    )  # fmt: skip
    assert isinstance(traced.outputs[0], TensorOut)


def test_names_and_lines_are_the_users() -> None:
    def fn(x: Any, w: Any) -> Any:
        hidden = np.tanh(x @ w)
        loss = np.sum(hidden * hidden)
        return loss

    text = str(trace(fn, X, V).graph)
    assert "%x : f64[5,3], %w : f64[3]" in text
    assert "%hidden : f64[5] = tanh" in text and "%loss : f64[] = sum" in text
    first = fn.__code__.co_firstlineno
    assert f"test_numpy_tracer.py:{first + 1}" in text
    assert f"test_numpy_tracer.py:{first + 2}" in text


def test_results_that_are_no_traced_arrays() -> None:
    def fn(x: Any) -> Any:
        return x * 2, V, np.arange(3.0), np.float64(1.5), 2.5

    traced = check(fn, V + 1)
    assert [type(o) for o in traced.outputs] == [
        TensorOut, InputOut, TensorOut, ConstantOut, ConstantOut
    ]  # fmt: skip


def test_attributes_of_ndarray() -> None:
    def fn(x: Any) -> Any:
        assert isinstance(x, np.ndarray)
        assert (x.shape, x.ndim, x.size, x.dtype, x.nbytes) == ((5, 3), 2, 15, float, 120)
        assert (len(x), x.itemsize, np.shape(x), np.ndim(x), np.size(x)) == (5, 8, (5, 3), 2, 15)
        assert np.result_type(x, np.float32) == np.dtype(float) and np.isrealobj(x)
        return [
            x.T, x.mT, x.real, x.imag + x, x.flat[3], x.conj(), x.sum(), x.mean(0), x.std(1),
            x.var(ddof=1), x.max(axis=1, keepdims=True), x.min(), x.prod(1), x.cumsum(),
            x.cumprod(0), x.dot(x.T), x.ravel(), x.flatten("F"), x.reshape(3, 5),
            x.reshape((15,)), x.squeeze(), x.swapaxes(0, 1), x.transpose(1, 0), x.transpose(),
            x.clip(-1, 1), x.take([0, 1], axis=1), x.repeat(2), x.trace(), x.diagonal(),
            x.astype(float), x.copy(), x.round(12) * 0 + x,
        ]  # fmt: skip

    check(fn, X)
    check(lambda x: x.astype(np.float32) * 2, X, gradient=False)


def test_python_numbers_are_static() -> None:
    traced = check(lambda x, n, s: x * n + s, V, 2, 0.5)
    assert traced.static_leaves == ((1, 2), (2, 0.5))


# --- without torch --------------------------------------------------------------------------------


def test_torch_is_never_imported() -> None:
    source = """
    import sys

    class Blocked:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in ("torch", "triton"):
                raise ImportError(f"{name} is blocked")

    sys.meta_path.insert(0, Blocked())
    import numpy as np
    import gradof

    def loss(w, x, y):
        z = np.zeros(len(y))
        z[:] = np.tanh(x @ w)
        return np.mean((z - y) ** 2) + np.linalg.norm(w)

    rng = np.random.default_rng(0)
    args = rng.standard_normal(3), rng.standard_normal((5, 3)), rng.standard_normal(5)
    value, grad = gradof.value_and_grad(loss)(*args)
    step = 1e-6 * np.eye(3)
    want = [(loss(args[0] + s, *args[1:]) - loss(args[0] - s, *args[1:])) / 2e-6 for s in step]
    np.testing.assert_allclose(value, loss(*args))
    np.testing.assert_allclose(grad, want, rtol=1e-6, atol=1e-8)
    assert gradof.hessian(loss)(*args).shape == (3, 3)
    assert not any(name.partition(".")[0] == "torch" for name in sys.modules)
    print("ran")
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(source)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.stdout == "ran\n", done.stderr


# --- checksums ------------------------------------------------------------------------------------


def test_checksums_tell_contents_shapes_and_dtypes() -> None:
    arrays = [
        np.zeros(0), np.zeros((0, 3)), np.array(0.0), np.zeros(1), np.zeros(2), np.zeros((2, 1)),
        np.zeros(2, np.float32), np.zeros(2, bool), np.array(["a", "b"]), np.ones(2)[::-1] * 3,
        np.array([None, "x"], dtype=object), np.zeros(2, [("a", "i4")]),
        np.array(["2020-01-01"], dtype="M8[D]"), np.arange(6.0).reshape(2, 3),
        np.arange(6.0).reshape(3, 2).T, np.arange(6.0).reshape(2, 3)[:, ::-1],
        np.ma.masked_equal(np.zeros(3), 0.0), np.ma.array(np.zeros(3)),
    ]  # fmt: skip
    sums = [checksum(a) for a in arrays]
    assert sums == [checksum(a.copy("K")) for a in arrays]
    assert len(set(sums)) == len(sums)
