"""Linear maps that exist as objects: factors of scipy.sparse.linalg, LinearOperator, its solvers.

    lu = splu(A)                        # outside: an object of C code
    lu.solve(b)                         # what traced code sees in its place is a `Factor`
    LinearOperator(shape, matvec) @ x   # the user's matvec is traced
    cg(A, b)                            # a solve by scipy; its gradient is one with A's transpose

A solve is linear in its right-hand side: the gradient is a solve with the transpose, which is
recorded in the same way, so that derivatives of any order are there.
"""

from __future__ import annotations

import importlib
import warnings
import weakref
from collections.abc import Callable
from types import BuiltinFunctionType
from typing import Any

import numpy as np

from gradof.tracer.numpy.active import active_recorder
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.black_box import call as call_black_box
from gradof.tracer.numpy.functions import as_array
from gradof.tracer.numpy.names import STAND_INS
from gradof.tracer.scipy.calls import holds_traced, scipy_function

_TURNED = {"N": "T", "T": "N", "H": "N"}


class Factor:
    """A `SuperLU`, whose solves are recorded by the thread that traces; all else is its own."""

    def __init__(self, factor: Any) -> None:
        self.__dict__["factor"] = factor

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        kind: type = type(self.__dict__["factor"])
        return kind

    def solve(self, rhs: Any, trans: str = "N") -> Any:
        """As SuperLU's."""
        return _solved(self.__dict__["factor"], rhs, trans)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["factor"], name)


def _solved(factor: Any, rhs: Any, trans: str = "N") -> Any:
    recorder = active_recorder()
    if recorder is None or recorder.closed or type(rhs) is not TracedArray:
        return factor.solve(rhs, trans)
    if trans not in _TURNED or rhs.dtype.kind == "c":
        raise recorder.unsupported("solve of complex numbers", "solve real and imaginary parts")

    def run(b: Any) -> Any:
        return factor.solve(np.array(b), trans)

    def rule(args: Any, result: Any, cotangent: Any) -> Any:
        return [_solved(factor, as_array(cotangent), _TURNED[trans])]

    return call_black_box(recorder, "SuperLU.solve", run, (rhs,), None, rule)


_FACTORS: weakref.WeakValueDictionary[int, Factor] = weakref.WeakValueDictionary()


def _stand_in(value: Any) -> tuple[Any, Any] | None:
    """A factor, or its method `solve`, and what traced code sees in its place."""
    kind: Any = type(value)
    if kind is Factor:
        return value.__dict__["factor"], value
    if kind.__name__ == "SuperLU":
        found = _FACTORS.get(id(value))
        if found is None:
            found = _FACTORS[id(value)] = Factor(value)
        return value, found
    if kind is BuiltinFunctionType and value.__name__ == "solve":
        owner: Any = type(value.__self__)
        if owner.__name__ == "SuperLU":
            return value, Factor(value.__self__).solve
    return None


STAND_INS.append(_stand_in)


@scipy_function("scipy.sparse.linalg.spilu", raw=True)
def _spilu(original: Any, A: Any, *args: Any, **kwargs: Any) -> Any:
    recorder = active_recorder()
    if recorder is not None and holds_traced(A):
        raise recorder.unsupported("spilu of traced elements", "use splu: its factor is exact")
    return Factor(original(A, *args, **kwargs))


# --- LinearOperator -------------------------------------------------------------------------------

_OPERATOR = "scipy.sparse.linalg.LinearOperator"
_AT = "scipy.sparse.linalg._interface.LinearOperator"


def _is_operator(value: Any) -> bool:
    found = importlib.import_module("scipy.sparse.linalg").LinearOperator
    return isinstance(value, found)


def _vector(name: str) -> None:
    @scipy_function(f"{_OPERATOR}.{name}", at=f"{_AT}.{name}", raw=True)
    def applied(original: Any, self: Any, x: Any) -> Any:
        if type(x) is not TracedArray and not holds_traced(self):
            return original(self, x)
        x = as_array(x)
        m, n = self.shape if name == "matvec" else self.shape[::-1]
        if x.shape not in ((n,), (n, 1)):
            raise ValueError("dimension mismatch")
        y = getattr(self, f"_{name}")(x)
        return np.reshape(y, (m,) if x.ndim == 1 else (m, 1))


def _matrix(name: str) -> None:
    @scipy_function(f"{_OPERATOR}.{name}", at=f"{_AT}.{name}", raw=True)
    def applied(original: Any, self: Any, X: Any) -> Any:
        if type(X) is not TracedArray and not holds_traced(self):
            return original(self, X)
        return getattr(self, f"_{name}")(as_array(X))


_vector("matvec")
_vector("rmatvec")
_matrix("matmat")
_matrix("rmatmat")


@scipy_function(f"{_OPERATOR}.dot", at=f"{_AT}.dot", raw=True)
def _dot(original: Any, self: Any, x: Any) -> Any:
    if type(x) is not TracedArray or np.ndim(x) == 0:
        return original(self, x)
    return self.matvec(x) if x.ndim == 1 or x.shape[1] == 1 else self.matmat(x)


# --- iterative solves -----------------------------------------------------------------------------


def _transposed(A: Any) -> Any:
    return A.T


def _iterative(name: str, transposed: Callable[[Any], Any]) -> None:
    path = f"scipy.sparse.linalg.{name}"

    @scipy_function(path, raw=True)
    def solve(original: Any, A: Any, b: Any, x0: Any = None, **options: Any) -> Any:
        if not any(map(holds_traced, (A, b, x0, *options.values()))):
            return original(A, b, x0, **options)
        recorder: Any = active_recorder()
        if holds_traced(A) or holds_traced(options.get("M")):
            raise TypeError(f"argument A of traced values with {name}; spsolve takes it")

        def of(matrix: Any, given: dict[str, Any], rhs: Any, gradient: bool = True) -> Any:
            def run(b: Any) -> Any:
                x, info = original(matrix, np.array(b), **given)
                if info and gradient:
                    warnings.warn(f"the solve of a gradient of {path} did not converge: {info}",
                                  RuntimeWarning, stacklevel=2)  # fmt: skip
                return x, np.int64(info)

            def rule(args: Any, result: Any, cotangent: Any) -> Any:
                other = {k: v for k, v in given.items() if k not in ("callback", "x0")}
                if other.get("M") is not None:
                    other["M"] = _transposed(other["M"])
                g = np.reshape(as_array(cotangent[0]), -1)
                return [np.reshape(of(transposed(matrix), other, g)[0], np.shape(args[0]))]

            return call_black_box(recorder_now(), path, run, (rhs,), None, rule)

        def recorder_now() -> Any:
            return active_recorder() or recorder

        given = dict(options) if x0 is None else options | {"x0": _start(x0)}
        x, info = of(A, given, np.reshape(as_array(b), -1), gradient=False)
        return x, int(info)


def _start(x0: Any) -> Any:
    """Where a solver starts: the solution does not depend on it."""
    return x0.plain() if type(x0) is TracedArray and x0.is_constant else (
        np.array(x0.concrete) if type(x0) is TracedArray else x0
    )


for _name in ("cg", "minres"):  # of symmetric matrices
    _iterative(_name, lambda A: A)
for _name in ("bicg", "bicgstab", "cgs", "gmres", "lgmres", "gcrotmk", "qmr", "tfqmr"):
    _iterative(_name, _transposed)
