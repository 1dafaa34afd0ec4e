"""TracedArray: a numpy array-like that records what is done to it.

    x = TracedArray(...)          # carries the concrete array and an SSA value
    y = np.tanh(x)[1:] * 2.0      # __array_ufunc__, __getitem__, operators: each emits IR
    y[0] = x[0]                   # a view knows its parent: tanh(x)'s array changes too

Note [Views are re-read]
Basic indexing, `.T`, `reshape` and their like return views wherever numpy's result shares memory.
A view holds its parent, how to read itself from it and how to write itself into it. Writing goes up
to the root; the root has a version, and a view that is behind it reads itself anew.

Note [Scalars are rebound]
`x[0]` and `x.sum()` are numpy scalars: `+=` on one makes another, and no view of `x` comes to be. A
TracedArray knows whether numpy's own result was a scalar (`is_scalar`).
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from gradof.errors import TraceError, UnsupportedOpError
from gradof.ir.core import Loc
from gradof.ops.expr import Expr
from gradof.tracer.numpy.active import namespace
from gradof.tracer.numpy.adopt import INTO_PLAIN
from gradof.tracer.numpy.index import placed
from gradof.tracer.numpy.instruction import asks, stores
from gradof.tracer.numpy.kinds import kind_of
from gradof.tracer.numpy.layouts import LaidOut
from gradof.tracer.numpy.lengths import in_function, in_ufunc, is_users, sized
from gradof.tracer.numpy.sized import Sized, note_bounds
from gradof.tracer.numpy.values import PythonValues
from gradof.tracer.numpy.view import View
from gradof.tracer.numpy.whole import number, numbers
from gradof.tracer.state.source import scipy_call, user_loc
from gradof.tracer.state.unheard import quietly

if TYPE_CHECKING:
    from gradof.tracer.numpy.recorder import Recorder

class Later:
    """A number of numpy's whose value nobody has asked for; `memory` is to hold it."""

    __slots__ = ("memory",)
    shape = ()

    def __init__(self, memory: np.ndarray[Any, Any]) -> None:
        self.memory = memory

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype."""
        found: np.dtype[Any] = self.memory.dtype
        return found


class TracedArray(Sized, LaidOut, PythonValues, NDArrayOperatorsMixin):
    """See the module docstring. `expr` is the SSA value now, `concrete` numpy's array.

    `memory` is that array, too, but its elements may not be there yet (`deferred`). `kind` is a
    number of its dtype, shape, strides, `is_scalar` and `is_python`, in keys of `templates`; the
    last says that it is a number of Python's (`tracer.numpy.floats`).
    """

    __slots__ = (
        "_expr", "_version", "is_python", "is_scalar", "kind", "link", "memory", "recorder",
    )  # fmt: skip
    memory: np.ndarray[Any, Any]
    __hash__ = PythonValues.__hash__
    __array_priority__ = 1000

    def __init__(
        self, recorder: Recorder, concrete: Any, expr: Expr, link: View | None = None
    ) -> None:
        self.recorder = recorder
        if type(concrete) is np.ndarray:
            self.memory, self.is_scalar = concrete, False
        else:
            waits = type(concrete) is Later
            self.memory = concrete.memory if waits else np.asarray(concrete)
            self.is_scalar = waits or isinstance(concrete, np.generic)
        self.is_python = False
        self._version = 0
        self.link = link
        self.lie_in(self.memory, expr)

    # isinstance(x, np.ndarray) holds, so that code which asks takes the branch it takes in numpy
    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return self.memory.dtype.type if self.is_scalar else np.ndarray

    # --- values and mutation ----------------------------------------------------------------

    @property
    def concrete(self) -> np.ndarray[Any, Any]:
        """numpy's array, with its elements."""
        self.recorder.deferred.settle(self.memory)
        return self.memory

    @property
    def version(self) -> int:
        """Counts changes of this array, through itself or through any view of its root."""
        return self.root._version

    @property
    def root(self) -> TracedArray:
        """The array that this one is a view of, or itself."""
        root = self
        while root.link is not None:
            root = root.link.parent
        return root

    @property
    def expr(self) -> Expr:
        """The current value; see Note [Views are re-read]."""
        link = self.link
        if link is not None and link.version != self.version:
            self._expr = link.read(link.current())
            link.version = self.version
        return self._expr

    def assign(self, expr: Expr) -> None:
        """This array now has the value `expr` (the caller updates `concrete`)."""
        link = self.link
        if link is None:
            self._expr = expr
            self._version += 1
            return
        link.parent.assign(link.written(expr))
        self._expr = expr
        link.version = self.version

    def lie_in(self, memory: np.ndarray[Any, Any], expr: Expr) -> None:
        """Have this value, and this memory of numpy's."""
        self.memory, self._expr = memory, expr
        self.kind = kind_of(
            (memory.dtype, memory.shape, memory.strides, self.is_scalar, self.is_python)
        )

    def become(self, other: TracedArray) -> None:
        """Be another array of the same type, of which nobody else knows."""
        self.memory, self._expr, self.link = other.memory, other.expr, other.link
        self._version += 1

    @property
    def is_constant(self) -> bool:
        """Whether no graph input takes part in the value: then it may serve as a plain array."""
        return self.recorder.is_constant(self.expr.value)

    # --- numpy's protocols ------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        run = self.recorder.handlers.ufunc
        plain = OURS.issuperset(map(type, inputs))
        if not plain or method != "__call__":
            inputs = in_ufunc(self.recorder.loops.sizes, ufunc, method, inputs)
        if plain and type(ufunc) is np.ufunc and not kwargs:
            return quietly(run, self.recorder, ufunc, method, inputs, kwargs)
        return run(self.recorder, ufunc, method, numbers(inputs), numbers(kwargs))

    def __array_function__(
        self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if is_users(sys._getframe(1)):
            args = in_function(self.recorder.loops.sizes, func, args, kwargs)
        found = quietly(_attempted, self.recorder, func, args, kwargs)
        if found is not NotImplemented:
            return found
        return self.recorder.handlers.function(
            self.recorder, func, numbers(args), numbers(kwargs)
        )

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        if self.is_constant:
            return self.plain() if dtype is None else self.plain().astype(dtype)
        caller, frame = scipy_call(), sys._getframe(1)
        if asks(frame, "__array__"):  # by Python code, which has no use for a plain one
            return self if dtype is None else self.astype(dtype)
        self.recorder.adoptions.note(frame, failed=self.dtype.kind != "b")
        if stores(frame):
            raise UnsupportedOpError(INTO_PLAIN[0], loc=user_loc(), hint=INTO_PLAIN[1])
        if self.dtype == bool and not self.recorder.adoptions.fresh:
            return self._bits() if dtype is None else self._bits().astype(dtype)
        raise plain_error(caller, user_loc())

    def plain(self) -> np.ndarray[Any, Any]:
        """The concrete array, read-only: writing into it would be lost."""
        result = self.concrete.view()
        result.flags.writeable = False
        return result

    # --- Python's protocols -----------------------------------------------------------------

    def __array_namespace__(self, *, api_version: Any = None) -> Any:
        return namespace()

    def __copy__(self) -> Any:
        return np.copy(self)

    def __deepcopy__(self, memo: Any) -> Any:
        return np.copy(self)

    def __reduce__(self) -> NoReturn:
        raise TraceError("a traced array cannot be pickled", loc=user_loc(),
                         hint="pickle the results of the compiled function")  # fmt: skip

    def __iter__(self) -> Iterator[TracedArray]:
        if not self.memory.shape:
            raise TypeError("iteration over a 0-d array")
        rows: Iterator[TracedArray] = self.recorder.handlers.rows(self, sys._getframe(1))
        return rows

    # --- indexing ---------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> TracedArray:
        result: TracedArray
        run = self.recorder.handlers.get_item
        kind = type(index)
        if kind is slice or kind is tuple:
            note_bounds(self, index)
        if kind is int or kind in OURS or _is_plain_index(index):
            result = quietly(run, self, index)
        else:
            result = run(self, placed(index))
        return result

    def __setitem__(self, index: Any, value: Any) -> None:
        run = self.recorder.handlers.set_item
        if type(index) is slice or type(index) is tuple:
            note_bounds(self, index)
        if type(value) in OURS and (type(index) in OURS or _is_plain_index(index)):
            quietly(run, self, index, value)
        else:
            run(self, placed(index), number(value))

    def __getattr__(self, name: str) -> NoReturn:
        if not name.startswith("_") and hasattr(np.ndarray, name):
            raise UnsupportedOpError(f"ndarray.{name} of a traced array", loc=user_loc(),
                                     hint="rewrite it with functions of numpy")  # fmt: skip
        raise AttributeError(f"a numpy array has no attribute {name!r}")

    # --- attributes and methods of ndarray --------------------------------------------------

    @property
    def T(self) -> Any:
        """All dims reversed, a view."""
        return np.transpose(self)

    @property
    def mT(self) -> Any:
        """The last two dims swapped, a view."""
        return np.swapaxes(self, -1, -2)

    @property
    def real(self) -> Any:
        """The real part, a view (of a real array, itself)."""
        if self.dtype.kind != "c":
            return self
        return self.as_float(np.real(self)) if self.is_python else np.real(self)

    @real.setter
    def real(self, value: Any) -> None:
        self.real[...] = value

    @property
    def imag(self) -> Any:
        """The imaginary part, a view (of a real array, zeros)."""
        if self.is_python:
            return self.as_float(np.imag(self)) if self.dtype.kind == "c" else 0.0
        return np.imag(self) if self.dtype.kind == "c" else np.zeros_like(self)

    @imag.setter
    def imag(self, value: Any) -> None:
        if self.dtype.kind != "c":
            raise TypeError("cannot set imaginary component of a non-complex array")
        self.imag[...] = value

    def conj(self) -> Any:
        """The conjugate (of a real array, itself)."""
        return np.conjugate(self) if self.dtype.kind == "c" else self

    conjugate = conj

    def reshape(self, *shape: Any, order: Any = "C") -> Any:
        """Another shape, a view where numpy's is one."""
        target = sized(shape[0] if len(shape) == 1 else shape)
        return np.reshape(self, target, order=order)

    def transpose(self, *axes: Any) -> Any:
        """Permuted dims, a view."""
        if len(axes) == 1 and not isinstance(axes[0], (int, np.integer)):
            axes = tuple(axes[0]) if axes[0] is not None else ()
        return np.transpose(self, axes or None)

    def fill(self, value: Any) -> None:
        """Set every element."""
        self[...] = value

    def sort(self, axis: int = -1, kind: Any = None) -> None:
        """Sort in place."""
        self[...] = np.sort(self, axis=axis, kind=kind)

    def partition(self, kth: Any, axis: int = -1, kind: Any = "introselect") -> None:
        """Order in place around the kth elements."""
        self[...] = np.partition(self, kth, axis=axis, kind=kind)

    def compress(self, condition: Any, axis: Any = None, out: Any = None) -> Any:
        """The slices where the condition holds."""
        return np.compress(condition, self, axis=axis, out=out)


def plain_error(caller: str | None, loc: Loc | None) -> UnsupportedOpError:
    """The error for a traced array of which code in C wants a plain one."""
    return UnsupportedOpError(
        ("" if caller is None else f"in {caller}, ")
        + "a traced array would become a plain numpy array, and its gradient would be lost",
        loc=loc,
        hint="code in C cannot be traced: make it a gradof.primitive with a vjp, or compute it "
        "outside; write X @ x for X.dot(x), and give an array a name before you index it by "
        "traced integers or write into it",
    )


# Operands in which there is no code of the user's: the tracer's own need not be heard.
OURS = frozenset({
    TracedArray, np.ndarray, int, float, bool, complex, np.float64, np.float32, np.int64,
    type(None), type(...),
})  # fmt: skip


_BOUNDS = frozenset({int, type(None)})


def is_ours(args: Collection[Any]) -> bool:
    """Whether no code of the user's takes part in these: they, or nests of them, are numpy's."""
    for x in args:
        kind = type(x)
        if kind is list or kind is tuple:
            if not is_ours(x):
                return False
        elif kind not in OURS:
            return False
    return True


def _attempted(recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The record of a call in which there is no code of the user's; else NotImplemented."""
    if not is_ours(args) or not is_ours(kwargs.values()):
        return NotImplemented
    return recorder.handlers.function(recorder, func, args, kwargs)


def _is_plain_index(index: Any) -> bool:
    kind = type(index)
    if kind is slice:
        return (
            type(index.start) in _BOUNDS and type(index.stop) in _BOUNDS
            and type(index.step) in _BOUNDS
        )
    if kind is not tuple:
        return False
    for x in index:
        if type(x) not in OURS and not (type(x) is slice and _is_plain_index(x)):
            return False
    return True
