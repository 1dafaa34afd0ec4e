"""The functional API for numpy: closed forms, finite differences, scipy, and no torch in sight."""

from __future__ import annotations

import functools
import gc
import operator
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.optimize

import gradof
from gradof import errors

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
X, W, B = RNG.standard_normal((4, 3)), RNG.standard_normal((3, 2)), RNG.standard_normal(2)


def loss(x: Array, w: Array, b: Array) -> Any:
    return np.mean(np.tanh(x @ w + b) ** 2)


def rosenbrock(p: Array) -> Any:
    return np.sum(100 * (p[1:] - p[:-1] ** 2) ** 2 + (1 - p[:-1]) ** 2)


def differences(fn: Callable[[Array], Any], at: Array, step: float = 1e-6) -> Array:
    """Central differences of an array function: output shape + input shape."""
    columns = []
    for i in range(at.size):
        shift = np.zeros(at.size)
        shift[i] = step
        moved = shift.reshape(at.shape)
        columns.append((np.asarray(fn(at + moved)) - np.asarray(fn(at - moved))) / (2 * step))
    stacked = np.stack(columns, -1)
    return stacked.reshape((*stacked.shape[:-1], *at.shape))


def near(got: Any, want: Any, atol: float = 1e-8) -> None:
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=atol)


def test_value_and_grad() -> None:
    fn = gradof.value_and_grad(loss, argnums=(0, 1, 2))
    value, (gx, gw, gb) = fn(X, W, B)
    assert value == gradof.differentiate(loss)(X, W, B)
    np.testing.assert_allclose(value, loss(X, W, B), rtol=2e-15)  # native tanh: within 4 ulps
    near(gx, differences(lambda x: loss(x, W, B), X))
    near(gw, differences(lambda w: loss(X, w, B), W))
    near(gb, differences(lambda b: loss(X, W, b), B))
    info = fn.base.cache_info()
    assert (info.misses, info.backward_runs) == (1, 1)
    fn(X, W, B)
    assert fn.base.cache_info()[:2] == (1, 1)


def test_argnums() -> None:
    assert isinstance(gradof.grad(loss)(X, W, B), np.ndarray)
    single = gradof.grad(loss, (1,))(X, W, B)
    assert isinstance(single, tuple)
    near(single[0], gradof.grad(loss, 1)(X, W, B), 0)
    gb, gx = gradof.grad(loss, (2, 0))(X, W, B)
    assert (gb.shape, gx.shape) == (B.shape, X.shape)


def test_has_aux() -> None:
    def fn(p: dict[str, Array], x: Array) -> tuple[Any, Array]:
        h = np.tanh(x @ p["w"] + p["b"])
        return np.sum(h * h), h

    params = {"w": W, "b": B}
    (value, aux), slopes = gradof.value_and_grad(fn, has_aux=True)(params, X)
    near(aux, np.tanh(X @ W + B))
    near(value, np.sum(aux**2))
    near(slopes["b"], 2 * np.sum(aux * (1 - aux**2), 0))
    assert slopes.keys() == params.keys()


def test_scalars() -> None:
    assert gradof.grad(lambda x: x**3)(2.0) == pytest.approx(12.0)
    value, slope = gradof.value_and_grad(lambda x: np.sin(x) * x)(np.float64(0.5))
    assert isinstance(value, np.float64)
    assert isinstance(slope, np.float64)
    assert slope == pytest.approx(np.cos(0.5) * 0.5 + np.sin(0.5))


def test_vjp() -> None:
    out, pullback = gradof.vjp(lambda x, w: (x @ w, np.exp(x)), X, W)
    near(out[0], X @ W)
    g, h = RNG.standard_normal((4, 2)), RNG.standard_normal((4, 3))
    gx, gw = pullback((g, h))
    near(gx, g @ W.T + h * np.exp(X))
    near(gw, X.T @ g)
    with pytest.raises(errors.CotangentError):
        pullback((g, g))


def test_jacobian() -> None:
    def fn(w: Array) -> Any:
        return np.tanh(X @ w) * np.sum(w)

    near(gradof.jacobian(fn)(W), differences(fn, W))
    assert gradof.jacobian(fn)(W).shape == (4, 2, 3, 2)


def test_hessian_and_hvp() -> None:
    p = RNG.standard_normal(5)
    hessian = gradof.hessian(rosenbrock)(p)
    near(hessian, scipy.optimize.rosen_hess(p))
    v = RNG.standard_normal(5)
    (product,) = gradof.hvp(rosenbrock, (p,), (v,))
    near(product, hessian @ v)
    blocks = gradof.hessian(loss, (1, 2))(X, W, B)
    near(blocks[0][1], differences(lambda b: gradof.grad(loss, 1)(X, W, b), B), 1e-6)
    near(blocks[1][0], np.moveaxis(blocks[0][1], -1, 0))


def test_scipy_minimises() -> None:
    fn = gradof.value_and_grad(lambda p: rosenbrock(p))
    result = scipy.optimize.minimize(fn, np.zeros(6), jac=True, method="BFGS")
    near(result.x, np.ones(6), 1e-4)
    assert fn.base.cache_info().backward_runs == result.nfev
    assert fn.base.cache_info().misses == 1
    hess = gradof.hessian(rosenbrock)
    newton = scipy.optimize.minimize(
        fn, np.zeros(6), jac=True, hess=lambda p: hess(p), method="trust-exact",
        options={"gtol": 1e-10},
    )
    near(newton.x, np.ones(6), 1e-6)


def test_a_gradient_asked_for_anew_at_every_call_is_traced_once() -> None:
    calls: list[int] = []

    def loss(x: Any) -> Any:
        calls.append(1)
        return np.sum(np.sin(x) ** 2)

    @functools.wraps(loss)  # copies the attributes of `loss`, which is compiled by then
    def half(x: Any) -> Any:
        return 0.5 * loss(x)

    for _ in range(5):
        near(gradof.grad(loss)(X), np.sin(2 * X))
        near(gradof.value_and_grad(loss)(X)[1], np.sin(2 * X))
    assert gradof.grad(loss).cache_info().misses == 1 and len(calls) == 10
    near(gradof.grad(half)(X), 0.5 * np.sin(2 * X))


def test_masks_may_go_to_code_in_c() -> None:
    table = np.arange(12.0).reshape(6, 2)

    def in_c(a: Any) -> Any:  # what pandas does with the key of a data frame
        return operator.methodcaller("__array__")(a)

    def loss(p: Any, t: Any) -> Any:
        return np.sum(table[in_c(t > 2.0)] @ p)

    fn, t = gradof.grad(loss), np.array([1.0, 2.0, 3.0, 4.0, 5.0, 1.0])
    for moved in (0.0, 0.5, 0.0, 1.5):
        near(fn(np.ones(2), t + moved), table[t + moved > 2.0].sum(0))
    assert fn.cache_info().misses == 3  # one for each mask
    with pytest.raises(errors.UnsupportedOpError, match="its gradient would be lost"):
        gradof.grad(lambda p: np.sum(in_c(p)))(X)
    long = np.arange(1000.0)
    count = gradof.grad(lambda p, t: p * np.count_nonzero(in_c(t % 7 > 2)))
    for k in (0, 1, 0, 1):  # the last of them alone differ
        shifted = long + k * (long > 995)
        assert count(2.0, shifted) == np.sum(shifted % 7 > 2)
    assert count.cache_info().misses == 2


def test_methods_share_a_trace_by_instance() -> None:
    class Model:
        def __init__(self, scale: float) -> None:
            self.scale = scale

        def loss(self, x: Any) -> Any:
            return np.sum(self.scale * x**2)

    two, three = Model(2.0), Model(3.0)
    for _ in range(3):
        near(gradof.grad(two.loss)(X), 4 * X)
        near(gradof.grad(three.loss)(X), 6 * X)
    assert gradof.grad(two.loss).cache_info().misses == 1
    two.scale = 5.0
    near(gradof.grad(two.loss)(X), 10 * X)


@pytest.mark.parametrize("slots", [False, True])
def test_a_gradient_of_a_method_keeps_no_object_alive(slots: bool) -> None:
    gone: list[int] = []

    class Scale:
        def __init__(self, value: int) -> None:
            self.value = value

        def __del__(self) -> None:
            gone.append(self.value)

    class Model:
        if slots:
            __slots__ = ("scale",)

        def __init__(self, value: int) -> None:
            self.scale = Scale(value)

        def loss(self, x: Any) -> Any:
            return np.sum(self.scale.value * x**2)

    for value in range(3):
        model = Model(value)
        near(gradof.grad(model.loss)(X), 2 * value * X)
    del model
    for _ in range(3):  # what one frees frees more
        gc.collect()
    assert sorted(gone) == [0, 1, 2]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_dtypes(dtype: Any) -> None:
    x = X.astype(dtype)
    slope = gradof.grad(lambda a: np.sum(a * a))(x)
    assert slope.dtype == dtype
    np.testing.assert_array_equal(slope, 2 * x)


@pytest.mark.parametrize("x", [X.T, X[::2, ::-1], np.broadcast_to(B, (3, 2)), np.zeros((0, 3))])
def test_memory_layouts(x: Array) -> None:
    before = x.copy()
    slope = gradof.grad(lambda a: np.sum(np.sin(a) * a))(x)
    near(slope, np.cos(x) * x + np.sin(x))
    np.testing.assert_array_equal(x, before)
    slope += 1  # results are writable arrays of their own
    np.testing.assert_array_equal(x, before)


def test_differentiate_runs_numpy() -> None:
    fn = gradof.differentiate(loss)
    assert fn(X, W, B) == pytest.approx(loss(X, W, B), rel=1e-12)
    assert fn.cache_info().forward_runs == 1
    assert fn.gradient(X, W, B).df_output_vjps == [0, 1, 2]
    assert "numpy arrays" in str(fn.explain(X, W, B))


def test_free_arrays_are_read_again() -> None:
    weight = W.copy()
    fn = gradof.grad(lambda x: np.sum(np.exp(x @ weight)))
    near(fn(X), np.exp(X @ weight) @ weight.T)
    weight[:] *= 2
    near(fn(X), np.exp(X @ weight) @ weight.T)
    weight = RNG.standard_normal((3, 2))
    near(fn(X), np.exp(X @ weight) @ weight.T)
    assert fn.base.cache_info()[:2] == (2, 1)


def test_write_back() -> None:
    def fn(x: Array, count: Array) -> Any:
        count += 1
        return np.sum(x * count)

    compiled, count = gradof.differentiate(fn), np.zeros(3)
    for n in (1, 2, 3):
        assert compiled(B.repeat(2)[:3], count) == pytest.approx(n * B.repeat(2)[:3].sum())
        np.testing.assert_array_equal(count, n)
    assert compiled.cache_info()[:2] == (2, 1)


def test_bad_arguments() -> None:
    with pytest.raises(errors.OutputError, match="not a scalar"):
        gradof.grad(lambda x: x * 2)(X)
    with pytest.raises(errors.OutputError, match="complex"):
        gradof.grad(lambda x: np.sum(x))(X + 0j)
    with pytest.raises(errors.DtypeError, match="integers"):
        gradof.grad(lambda x: np.sum(x) * 0.5)(np.arange(3))
    with pytest.raises(errors.DtypeError, match="byte order"):
        gradof.grad(lambda x: np.sum(x))(X.astype(">f8"))
    with pytest.raises(errors.LeafTypeError, match="dtype"):
        gradof.grad(lambda x: np.sum(x))(np.array(["a"]))


BLOCKED = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ImportError("torch is not installed")

sys.meta_path.insert(0, Blocker())
import numpy as np
import gradof

def loss(p, x):
    h = np.tanh(x @ p["w"])
    h[0] *= 2
    return np.sum(h ** 2) / h.shape[0]

params, x = {"w": np.ones((3, 2))}, np.linspace(-1, 1, 12).reshape(4, 3)
value, slopes = gradof.value_and_grad(loss)(params, x)
print(f"{value:.6f} {np.sum(slopes['w']):.6f}")
gradof.hessian(lambda v: np.sum(v ** 3))(np.ones(3))
print(gradof.differentiate(loss).explain(params, x).library, "torch" in sys.modules)
"""


def test_without_torch() -> None:
    done = subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

    def plain(w: Array) -> Any:
        h = np.tanh(np.linspace(-1, 1, 12).reshape(4, 3) @ w)
        h[0] *= 2
        return np.sum(h**2) / 4

    want = plain(np.ones((3, 2))), differences(plain, np.ones((3, 2))).sum()
    first, second = done.stdout.splitlines()
    assert [float(v) for v in first.split()] == pytest.approx(want, abs=2e-5)
    assert second == "numpy False"


def test_vjp_of_arguments_returned_repeated_and_changed() -> None:
    x, g = np.arange(1.0, 4.0), RNG.standard_normal((3, 3))

    def returned(x: Array) -> Any:
        y = x * x
        return y, x, y

    near(gradof.vjp(returned, x)[1](tuple(g))[0], 2 * x * (g[0] + g[2]) + g[1])

    def changed(x: Array) -> Any:
        x *= x
        return x

    value, pullback = gradof.vjp(changed, x.copy())
    near(value, x * x)
    near(pullback(g[0])[0], 2 * x * g[0])

    def overwritten(x: Array) -> Any:
        x[1:] = x[:-1] ** 2
        return x * x

    grad = gradof.vjp(overwritten, x.copy())[1](g[0])[0]
    near(grad, differences(lambda a: overwritten(a.copy()) @ g[0], x))
