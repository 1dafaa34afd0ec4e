"""What numpy code asks of an array's memory: strides, flags, views by strides, a shape set anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from gradof import differentiate, grad, vjp
from gradof.errors import UnsupportedOpError

pytestmark = pytest.mark.filterwarnings("ignore:Setting the shape:DeprecationWarning")
X = np.arange(12.0).reshape(3, 4) + 1
NUMPY: Any = np


def _windows(x: Any, n: int) -> Any:
    """As scikit-image's view_as_windows."""
    x = np.ascontiguousarray(x)
    shape = (x.shape[0] - n + 1, x.shape[1] - n + 1, n, n)
    return as_strided(x, shape=shape, strides=x.strides + x.strides)


def _written(x: Any) -> Any:
    y = x * 2
    diagonal = as_strided(y, (3,), (40,))
    diagonal[:] = x[:, 0] ** 2
    return y


def _argument(x: Any) -> Any:
    as_strided(x, (3,), (40,))[:] = 5.0
    return x * 2


def _shaped(x: Any) -> Any:
    y = np.ascontiguousarray(x) * 2
    row = y[1:]
    y.shape = -1
    y[5] = x[0, 0] ** 2
    y.shape = (4, 3)
    row[0] = 3.0 * x[0]
    return y + row.sum()


def _shaped_view(x: Any) -> Any:
    y = (x * 2)[1:]
    y.shape = (2, 2, 2)
    y += x[0, 0]
    return y


def _shaped_view_of_the_argument(x: Any) -> Any:
    y = x[1:]
    y.shape = (2, 2, 2)
    y += 1
    return y.sum(0)


def _diagonals(x: Any) -> Any:
    e = np.zeros((4, 3, 3))
    np.einsum("ijj->ij", e)[...] = x.T ** 2
    d = np.einsum("ii->i", e[1])
    d += x[:, 0]
    return e


def _written_where_it_may_be(x: Any) -> Any:
    y = np.broadcast_to(x[0], (3, 4))
    assert not y.flags.writeable and x.flags.writeable and x.T.flags["W"]
    y = np.require(y, requirements="W")
    y[0] = 1.0
    return y * x


def _set_where_it_is_large(x: Any) -> Any:
    x[x > 1] = 0.5
    return x


CALLS: list[Callable[[Any], Any]] = [
    lambda x: _windows(x, 2).sum(axis=(0, 1)) * x[0, 0],
    lambda x: as_strided(x.T.copy(), (2, 3), (8, 8)) ** 2,
    lambda x: as_strided(x[1:], (2, 2), x.strides) ** 2,
    _written, _argument, _shaped, _shaped_view, _shaped_view_of_the_argument, _diagonals,
    lambda x: x * 2 if x.flags.c_contiguous else x * 3,
    lambda x: x * 2 if x.T.flags["F_CONTIGUOUS"] else x * 3,
    lambda x: x * x.strides[0] + x.itemsize,
    lambda x: x.T.copy().ravel("K") * 2,
    lambda x: x * 2 if np.may_share_memory(x, np.asarray(x)[1:]) and x.device == "cpu" else x,
    lambda x: x * 3 if np.shares_memory(x, x * 2) else x * 2,
    _written_where_it_may_be,
    lambda x: np.require(x.T, np.float64, ["C", "W"]).ravel("K") ** 2,
    lambda x: NUMPY.array(x.T, copy=NUMPY._CopyMode.IF_NEEDED) ** 2,  # as scikit-learn asks
    lambda x: np.require([x[0], x[1]]) * np.require(x[:2], requirements="O"),
    lambda x: _set_where_it_is_large(np.asarray(x[0, 1])) * x,
]  # fmt: skip


@pytest.mark.parametrize("given", [X, np.asfortranarray(X)], ids=["rows", "columns"])
@pytest.mark.parametrize("at", range(len(CALLS)))
def test_as_numpy_has_it(at: int, given: np.ndarray[Any, Any]) -> None:
    call = CALLS[at]
    compiled = differentiate(call)
    for scale in (1.0, 1.0, 1.5):
        mine, theirs = np.copy(given, order="K") * scale, np.copy(given, order="K") * scale
        np.testing.assert_allclose(compiled(mine), call(theirs), rtol=1e-12)
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)
    value, pull = vjp(call, np.copy(given, order="K"))
    cotangent = np.random.default_rng(at).standard_normal(value.shape)
    (gradient,) = pull(cotangent)
    direction = np.random.default_rng(9).standard_normal(X.shape)

    def moved(h: float) -> Any:
        x = np.copy(given, order="K")
        x += h * direction
        return np.sum(cotangent * call(x))

    slope = (moved(1e-6) - moved(-1e-6)) / 2e-6
    np.testing.assert_allclose(np.sum(gradient * direction), slope, rtol=1e-6)


def _no_row(x: Any) -> Any:
    y = x.T * 1
    y.shape = -1
    return y.sum()


def test_what_numpy_code_may_not_do_is_refused_with_its_line() -> None:
    def overlapping(x: Any) -> Any:
        y = x * 2
        as_strided(y, (3, 2), (8, 8))[:] = 5.0
        return y

    for call, text in (
        (overlapping, "shows more than once"),
        (lambda x: as_strided(x, (30,), (8,)), "beyond the elements"),
        (lambda x: as_strided(x, (2,), (4,)), "beyond the elements"),
        (lambda x: x * x.flags.owndata, "ndarray.flags.owndata"),
    ):
        with pytest.raises(UnsupportedOpError, match=f"{text}(.|\n)*test_numpy_layouts.py"):
            grad(lambda x, call=call: call(x).sum())(X)
    with pytest.raises(AttributeError, match="Incompatible shape for in-place modification"):
        grad(_no_row)(X)


def _in_a_row(x: Any) -> Any:
    y = x * 2
    try:
        y.shape = -1
    except AttributeError:
        return x * 7
    return y


OF_COMPUTED: list[Callable[[Any], Any]] = [
    lambda x: as_strided(x * 2, (3,), (40,)), lambda x: (x * 2).ravel("K"), _in_a_row,
    lambda x: np.exp(x).reshape(-1, order="A"), lambda x: x * (x + 1).strides[0],
    lambda x: np.where(x > 3, x, 0).ravel("K"), lambda x: np.stack([x, x]).sum(0).ravel("A"),
    lambda x: x * 2 if (x.T * 2).flags.c_contiguous else x * 3,
]  # fmt: skip


@pytest.mark.parametrize("at", range(len(OF_COMPUTED)))
def test_the_layout_of_what_is_computed_is_that_of_its_arguments(at: int) -> None:
    function = OF_COMPUTED[at]
    compiled = differentiate(function)
    for x in (X, np.asfortranarray(X), X * 2, np.asfortranarray(X) * 2):
        np.testing.assert_allclose(
            compiled(x.copy(order="K")), function(x.copy(order="K")), rtol=1e-14
        )
    assert compiled.cache_info().misses == 2


def test_a_layout_that_is_asked_for_is_part_of_the_trace() -> None:
    compiled = differentiate(lambda x: x * 2 if x.flags.c_contiguous else x * 3)
    np.testing.assert_array_equal(compiled(X), X * 2)
    np.testing.assert_array_equal(compiled(np.asfortranarray(X)), X * 3)
    np.testing.assert_array_equal(compiled(X), X * 2)
    assert compiled.cache_info().misses == 2


RANGES: list[Callable[[Any], Any]] = [
    lambda x: np.arange(0, x[3], x[1] / 3) ** 2,
    lambda x: np.arange(x[3] * 1.2) * x[0],
    lambda x: np.arange(x[1].astype("f4"), x[3].astype("f4"), np.float32(0.3)),
    lambda x: NUMPY.arange(start=x[1], stop=x[2], step=0.25, dtype=np.float64),
    lambda x: np.mgrid[x[0]:x[3]:1.0] * 2,
    lambda x: np.mgrid[x[0]:x[3]:1.0, 0:2],
    lambda x: np.mgrid[x[0]:x[3]:4j, 0:x[2]:2j],
    lambda x: np.ogrid[x[0]:x[3]:4j, 0:x[2]:0.7][1] ** 2,
    lambda x: np.r_[x[0]:x[3]:4j, x, x[1]:x[3]:0.3],
]  # fmt: skip


@pytest.mark.parametrize("at", range(len(RANGES)))
def test_ranges_between_traced_numbers(at: int) -> None:
    call, given = RANGES[at], np.array([0.1, 0.93, 2.2, 3.37])
    compiled = differentiate(call)
    for x in (given, given, given * 1.001, given * 2):
        want = call(x)
        found = compiled(x)
        assert found.dtype == want.dtype
        np.testing.assert_allclose(found, want, rtol=1e-6 if want.itemsize == 4 else 1e-13)
    value, pull = vjp(call, given)
    cotangent = np.random.default_rng(at).standard_normal(value.shape).astype(value.dtype)
    (gradient,) = pull(cotangent)
    h = 1e-3 if at == 2 else 1e-7  # of single precision
    for i in range(4):
        e = h * np.eye(4)[i]
        slope = np.sum(cotangent * (call(given + e) - call(given - e))) / (2 * h)
        np.testing.assert_allclose(gradient[i], slope, rtol=1e-2 if at == 2 else 1e-3, atol=1e-5)


ORDERS: dict[str, Callable[[Any], Any]] = {
    "reshape": lambda x: np.reshape(x, (2, 6), order="f"),  # type: ignore[call-overload]
    "method": lambda x: x.reshape(2, 6, order="f"),
    "ravel": lambda x: np.ravel(x.reshape(3, 4), order="f"),  # type: ignore[call-overload]
    "flatten": lambda x: x.reshape(3, 4).flatten("f"),
    "asarray": lambda x: np.asarray(x.reshape(3, 4), order="c"),  # type: ignore[call-overload]
    "array": lambda x: np.array(x.reshape(3, 4), order="f"),  # type: ignore[call-overload]
    "astype": lambda x: x.reshape(3, 4).astype(float, order="f"),
    "places": lambda x: x * np.unravel_index(np.argmax(x), (3, 4), order="c")[1],  # type: ignore[call-overload]
    "place": lambda x: x[np.ravel_multi_index(([2], [1]), (3, 4), order="f")],  # type: ignore[call-overload]
}


@pytest.mark.parametrize("name", ORDERS)
def test_orders_in_small_letters(name: str) -> None:
    x = np.random.default_rng(2).standard_normal(12)
    np.testing.assert_array_equal(differentiate(ORDERS[name])(x), ORDERS[name](x))
