"""Functions as C function pointers."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np
import pytest

import gradof
from gradof.codegen.machine.engine import vector_bits
from gradof.errors import InputError

pytestmark = pytest.mark.skipif(not vector_bits(), reason="no native code here")


def loss(x: Any, w: Any) -> Any:
    return np.sum(np.tanh(x @ w) ** 2) + np.sum(x[1:] * x[:-1])


def density(x: Any) -> Any:
    return -0.5 * np.sum((x[1:] - x[:-1] ** 2) ** 2) - np.sum(np.log1p(x**2))


def test_value_and_gradients_through_pointers() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal(20), rng.standard_normal((20, 7))
    f = gradof.cfunc(loss, ["f64[20]", "f64[20,7]"], argnums=(0, 1))
    assert f.declaration == "int32_t f(void *const *inputs, void *const *outputs)"
    assert f.outputs == ("f64[]", "f64[20]", "f64[20,7]")
    value, (gx, gw) = gradof.value_and_grad(loss, argnums=(0, 1))(x, w)
    for mine, other in zip(f(x, w), (value, gx, gw), strict=True):
        assert np.array_equal(mine, other)
    call = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(f.address)
    made = [np.empty(()), np.empty(20), np.empty((20, 7))]
    places = (ctypes.c_void_p * 5)(*(a.ctypes.data for a in (x, w, *made)))
    assert call(places, ctypes.addressof(places) + 16) == 0
    assert made[0] == value and np.array_equal(made[2], gw)


def test_scipy_integrates_it() -> None:
    scipy = pytest.importorskip("scipy.integrate")
    bell = gradof.cfunc(
        lambda x: np.exp(-x[0] ** 2) * np.cos(x[0]) + x[0] * 2.0, ["f64[1]"], argnums=None,
        form="number",
    )  # fmt: skip
    found, _ = scipy.quad(bell.low_level(), 0.0, 2.0)
    expected, _ = scipy.quad(lambda t: np.exp(-(t**2)) * np.cos(t) + t * 2.0, 0.0, 2.0)
    assert found == pytest.approx(expected, rel=1e-12)


def test_samplers_form_in_eight_threads() -> None:
    f = gradof.cfunc(density, ["f64[300]"], form="logp")
    points = np.random.default_rng(1).standard_normal((8, 300))
    value_and_grad = gradof.value_and_grad(density)
    wanted = [value_and_grad(x) for x in points]
    wrong = []

    def work(k: int) -> None:
        gradient, value = np.empty(300), ctypes.c_double()
        for _ in range(200):
            status = f.ctypes(300, points[k].ctypes.data, gradient.ctypes.data,
                              ctypes.addressof(value), None)  # fmt: skip
            if status or value.value != wanted[k][0] or not np.array_equal(gradient, wanted[k][1]):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_an_index_out_of_range_is_a_status() -> None:
    f = gradof.cfunc(lambda x, i: np.sum(np.sin(x[i]) * x[i] + x[0]), ["f64[5]", "i64[3]"])
    x = np.arange(5.0)
    picked = x[[0, 4, 4]]
    assert f(x, np.array([0, 4, -1]))[0] == pytest.approx(np.sum(np.sin(picked) * picked))
    with pytest.raises(InputError, match="failed"):
        f(x, np.array([0, 5, 1]))


def test_what_cannot_be_one_is_refused() -> None:
    w = np.ones(3)
    with pytest.raises(InputError, match="no type"):
        gradof.cfunc(density, ["double[3]]"])
    with pytest.raises(InputError, match="reads or changes state"):
        gradof.cfunc(lambda x: np.sum(x * w), ["f64[3]"])
    with pytest.raises(InputError, match="fft"):
        gradof.cfunc(lambda x: np.sum(np.abs(np.fft.rfft(x)) ** 2), ["f64[8]"])
    with pytest.raises(InputError, match="one argument"):
        gradof.cfunc(loss, ["f64[20]", "f64[20,7]"], form="logp")
