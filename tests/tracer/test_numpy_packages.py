"""Code of installed packages, in which numpy's names are left alone, is followed all the same.

As colour-science, pymap3d and scikit-fuzzy have it: each begins with `np.asarray`.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradof import differentiate, grad
from gradof.errors import UnsupportedOpError
from gradof.tracer.numpy import names
from gradof.tracer.state.libraries import LIBRARY_FOLDERS

PACKAGE = '''
import math
import random
import numpy as np

DTYPE = np.float64


class Signal:
    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.array([self.values[0], self.values[1], self.values[2]], dtype)


def as_float(a, dtype=None):
    dtype = dtype or DTYPE
    return dtype(np.asarray(a))


def norm(a):
    a = np.array(a, dtype=float, ndmin=2)
    out = np.zeros(a.shape[1])
    for i in range(a.shape[1]):
        out[i] = a[0, i] ** 2
    return math.sqrt(out.sum()) * np.atleast_1d(as_float(out))


def ranges(a):
    a = np.ascontiguousarray(a)
    return np.r_[a, a[0] : a[2] : 3j] * np.sum([a[0], a[1]])


def of_objects(a):
    return np.asarray(Signal(a)) * 2 + np.exp([a[0], 1.0, a[2]])


def rotations(angles, out=None):
    c, s = np.cos(angles), np.sin(angles)
    if out is None:
        out = np.empty(c.shape + (2, 2))
    out[..., 0, 0] = c
    out[..., 0, 1] = -s
    out[..., 1, 0] = s
    out[..., 1, 1] = c
    return out


def poses(a):
    """As pytransform3d fills parts of its matrices."""
    out = np.zeros((len(a), 3, 3))
    rotations(np.asarray(a), out=out[..., :2, :2])
    out[..., 0, 2] = a
    return out.reshape(-1)[:6]


def noisy(a):
    a = np.asarray(a)
    return a * np.random.rand(3) + random.random()


def seeded(a):
    np.random.seed(3)
    return np.asarray(a) * np.random.randn(3)


def compiled(a):
    return memoryview(a)[0]
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "a_package.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(names, "LIBRARY_FOLDERS", (*LIBRARY_FOLDERS, str(tmp_path)))
    sys.modules.pop("a_package", None)
    return importlib.import_module("a_package")


@pytest.mark.parametrize(
    "name", ["as_float", "norm", "ranges", "of_objects", "poses", "noisy", "seeded"]
)
def test_functions_of_packages(package: Any, name: str) -> None:
    function = getattr(package, name)
    compiled, space = differentiate(function), dict(vars(package))
    weights = np.arange(1.0, 7.0)

    def value(x: Any) -> Any:
        y = function(x)
        return np.sum(y * weights[: y.shape[0]])

    for scale in (1.0, 1.0, 1.5):
        x = np.array([0.5, 1.25, 2.0]) * scale
        np.random.seed(1)
        package.random.seed(2)
        want, drawn = function(x), (np.random.rand(), package.random.random())
        np.random.seed(1)
        package.random.seed(2)
        np.testing.assert_allclose(compiled(x), want, rtol=1e-14)
        assert drawn == (np.random.rand(), package.random.random())
    assert compiled.cache_info().misses <= 2
    assert all(vars(package)[n] is v for n, v in space.items())

    def at(x: Any) -> Any:
        np.random.seed(1)
        package.random.seed(2)
        return value(x)

    np.random.seed(1)
    package.random.seed(2)
    gradient = grad(value)(x)
    slopes = [(at(x + e) - at(x - e)) / 2e-6 for e in 1e-6 * np.eye(3)]
    np.testing.assert_allclose(gradient, slopes, rtol=1e-5)


def test_compiled_code_that_wants_the_memory_is_named_with_the_users_line(package: Any) -> None:
    with pytest.raises(UnsupportedOpError, match=r"plain numpy array(.|\n)*a_package.py:\d+") as e:
        grad(package.compiled)(np.ones(3))
    assert "TracedArray" not in str(e.value) and isinstance(e.value.__cause__, TypeError)


def test_compiled_code_that_finds_no_version_for_its_arguments_is_named(package: Any) -> None:
    text = b"f(): incompatible function arguments."  # pybind11's; Cython has another

    def told(x: Any) -> Any:
        return ctypes.pythonapi.PyErr_SetString(ctypes.py_object(TypeError), text)

    def of_the_users(x: Any) -> Any:
        return x * told_nothing()

    def told_nothing() -> Any:
        return ctypes.pythonapi.PyErr_SetString(ctypes.py_object(TypeError), text)

    with pytest.raises(UnsupportedOpError, match="plain numpy array"):
        grad(told)(np.ones(3))
    with pytest.raises(TypeError, match="incompatible function"):
        grad(of_the_users)(np.ones(3))


class Quantity(np.ndarray):
    """Like astropy's, which knows its unit."""

    def tobytes(self, order: Any = "C") -> Any:
        raise NotImplementedError("cannot write Quantities to bytes")

    def __setitem__(self, key: Any, value: Any) -> None:
        if not isinstance(value, Quantity):
            raise TypeError("only Quantities can be assigned")
        super().__setitem__(key, value)


def test_arrays_of_a_subclass_in_the_state_are_compared_by_their_elements() -> None:
    lengths = np.arange(3.0).view(Quantity)

    def scaled(x: Any) -> Any:
        return x * np.asarray(lengths).sum() * len(lengths)

    compiled = differentiate(scaled)
    for change in (0.0, 0.0, 2.0):
        np.asarray(lengths)[0] += change
        np.testing.assert_allclose(compiled(np.ones(3)), scaled(np.ones(3)))


def test_an_error_of_the_codes_own_is_its_own(package: Any) -> None:
    def told(x: Any) -> Any:
        raise ValueError(f"not a {type(x).__name__}, please")

    with pytest.raises(ValueError, match="please"):
        grad(told)(np.ones(3))


def test_a_trace_that_fails_leaves_the_random_state(package: Any) -> None:
    def drawn(x: Any) -> Any:
        return package.compiled(x * package.np.random.rand(3))

    np.random.seed(4)
    with pytest.raises(UnsupportedOpError):
        grad(drawn)(np.ones(3))
    first = np.random.rand()
    np.random.seed(4)
    assert np.random.rand() == first
