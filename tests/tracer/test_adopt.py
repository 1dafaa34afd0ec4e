"""Plain arrays are taken into the trace where traced values are written to them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg.blas

from gradof import differentiate, grad
from gradof.errors import UnsupportedOpError

FIRST = """
import numpy as np, gradof

def f(x):
    view = np.linspace(0.0, 1.0, 4).reshape(2, 2)
    view[0] = x[:2]
    return np.sum(view**2)

assert gradof.grad(f)(np.ones(3)).tolist() == [2.0, 2.0, 0.0]
"""


def test_the_first_function_of_a_process_adopts_them() -> None:
    """Python 3.12 tells of instructions only where a frame has asked before `sys.settrace`."""
    subprocess.run([sys.executable, "-c", FIRST], check=True)


class Model:
    """Writes to arrays that it keeps, as statsmodels' GLM does for its Hessian."""

    def __init__(self) -> None:
        self.x = np.arange(12.0).reshape(6, 2) + 1
        self.kept = np.full((6, 2), 9.0)

    def into_a_view(self, p: Any) -> Any:
        kept = self.kept
        np.multiply(self.x.T, p, out=kept.T)
        return -kept.T.dot(self.x)

    def into_a_named_view(self, p: Any) -> Any:
        view = self.kept.T
        view[0] = p
        np.add(view, p, out=view)
        return view @ self.x

    def by_rows(self, p: Any) -> Any:
        for row, number in zip(self.kept, p, strict=True):
            row += number
        return self.kept.T.dot(self.x)

    def by_methods(self, p: Any) -> Any:
        self.kept.T.fill(p[1])
        kept = self.kept
        kept.put([0, 1], p[:2])
        kept.sort(axis=0)
        return kept.T.dot(self.x)


@pytest.mark.parametrize("name", [n for n in vars(Model) if n[0] in "bi"])
def test_an_array_of_the_state_that_is_written_through_a_view_is_read_anew(name: str) -> None:
    theirs, ours = Model(), Model()
    compiled: Callable[[Any], Any] = differentiate(getattr(ours, name))
    for scale in (1.0, 1.0, 2.0):
        p = np.linspace(0.5, 2.0, 6) * scale
        np.testing.assert_allclose(compiled(p), getattr(theirs, name)(p), rtol=1e-14)
        np.testing.assert_allclose(ours.kept, theirs.kept, rtol=1e-14)


BASE = np.arange(3.0)


def test_an_array_of_two_names_that_a_method_changes_is_refused() -> None:
    def changed(x: Any) -> Any:
        plain = BASE * 1.0  # of an operator that no trace sees
        second = [plain]
        other = plain
        other.fill(x[1])
        return plain.dot(np.arange(3.0)) + second[0].sum()

    with pytest.raises(UnsupportedOpError, match=r"into a plain array(.|\n)*test_adopt.py"):
        differentiate(changed)(np.ones(3))


class Basis:
    """Gives plain arrays whose methods are called with traced values."""

    def __init__(self) -> None:
        self.matrices = {"A": np.arange(9.0).reshape(3, 3) + 5 * np.eye(3)}

    def matrix(self, scale: float = 2.0) -> Any:
        return self.matrices["A"] * scale

    @property
    def inverse(self) -> Any:
        return np.linalg.inv(self.matrices["A"])

    def both(self) -> Any:
        return self.matrix(), self.inverse

    def of_method(self, x: Any) -> Any:
        return self.matrix(scale=3.0).dot(x)

    def of_property(self, x: Any) -> Any:
        return self.inverse.T.dot(x) + self.inverse.dot(x)

    def of_tuple(self, x: Any) -> Any:
        return self.both()[1].dot(x)

    def of_function(self, x: Any) -> Any:
        return _made().dot(x) * _made()[np.argsort(x)][0]

    def of_another(self, x: Any) -> Any:
        return BASIS.matrix().dot(x)


BASIS = Basis()


def _made() -> Any:
    return BASE * 2.0


@pytest.mark.parametrize("name", [n for n in vars(Basis) if n[:3] == "of_"])
def test_a_method_of_an_array_that_code_gives_takes_a_traced_one(name: str) -> None:
    function = getattr(Basis(), name)
    compiled = differentiate(function)
    for x in (np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.0, 1.0])):
        np.testing.assert_allclose(compiled(x), function(x), rtol=1e-13)
        gradient = grad(lambda x: np.sum(function(x)))(x)
        slopes = [np.sum(function(x + e) - function(x - e)) / 2e-6 for e in 1e-6 * np.eye(3)]
        np.testing.assert_allclose(gradient, slopes, rtol=1e-7, atol=1e-9)


of: Any = scipy.linalg.blas.dnrm2  # code in C that no trace sees


def of_the_name(x: Any) -> Any:
    return of(x)


def test_a_place_that_failed_gives_what_another_function_gives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = np.array([1.0, 2.0, 3.0])
    with pytest.raises(UnsupportedOpError):
        differentiate(of_the_name)(x)
    monkeypatch.setitem(globals(), "of", lambda x: (x * 2.0, 1))
    found = differentiate(of_the_name)(x)
    assert type(found) is tuple and type(found[0]) is np.ndarray and found[1] == 1
    np.testing.assert_array_equal(found[0], x * 2.0)
