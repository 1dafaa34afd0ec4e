"""TracedArray: a numpy array-like that records what is done to it.

    x = TracedArray(...)          # carries the real array and an SSA value
    y = np.tanh(x)[1:] * 2.0      # __array_ufunc__, __getitem__, operators: each emits IR
    y[0] = x[0]                   # a view knows its parent: tanh(x)'s array changes too

Note [Views are re-read]
Basic indexing, `.T`, `reshape` and their like return views, as in numpy. A view holds its parent and how to read
itself from it and write itself into it. Writing goes up to the root; each array has a version, and a view whose
parent's version moved on reads itself anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from gradof.errors import DataDependentError, UnsupportedOpError
from gradof.ops.expr import Expr
from gradof.tracer.source import user_loc

if TYPE_CHECKING:
    from gradof.tracer.numpy_recorder import Recorder

Read = Callable[[Expr], Expr]
Write = Callable[[Expr, Expr], Expr]


class View:
    """How a view is read from its parent and written into it."""

    __slots__ = ("parent", "read", "version", "write")

    def __init__(self, parent: TracedArray, read: Read, write: Write) -> None:
        self.parent = parent
        self.read = read
        self.write = write
        self.version = parent.version


class TracedArray(NDArrayOperatorsMixin):
    """See the module docstring. `real` is the concrete array, `expr` the SSA value now."""

    __slots__ = ("_expr", "_version", "real", "recorder", "view")
    __hash__ = None  # type: ignore[assignment]
    __array_priority__ = 1000

    def __init__(
        self, recorder: Recorder, real: Any, expr: Expr, view: View | None = None
    ) -> None:
        self.recorder = recorder
        self.real = np.asarray(real)
        self._expr = expr
        self._version = 0
        self.view = view

    # --- values and mutation ----------------------------------------------------------------

    @property
    def version(self) -> int:
        """Counts changes of this array, through itself or through any view of its root."""
        root = self
        while root.view is not None:
            root = root.view.parent
        return root._version

    @property
    def expr(self) -> Expr:
        """The current value; see Note [Views are re-read]."""
        view = self.view
        if view is not None and view.version != self.version:
            self._expr = view.read(view.parent.expr)
            view.version = self.version
        return self._expr

    def assign(self, expr: Expr) -> None:
        """This array now has the value `expr` (the caller updates `real`)."""
        view = self.view
        if view is None:
            self._expr = expr
            self._version += 1
            return
        view.parent.assign(view.write(view.parent.expr, expr))
        self._expr = expr
        view.version = self.version

    # --- numpy's protocols ------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return self.recorder.handlers.ufunc(self.recorder, ufunc, method, inputs, kwargs)

    def __array_function__(
        self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        return self.recorder.handlers.function(self.recorder, func, args, kwargs)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise UnsupportedOpError(
            "a traced array would become a plain numpy array, and its gradient would be lost",
            loc=user_loc(),
            hint="assigning into np.zeros(...)? start from np.zeros_like(x) of an argument, or "
            "build it with np.stack or np.concatenate",
        )

    # --- Python's protocols -----------------------------------------------------------------

    def _python_value(self, what: str) -> DataDependentError:
        return DataDependentError(
            f"{what} needs the value of a traced array: this trace would be wrong for others",
            loc=user_loc(),
            hint="use np.where for a choice by value, or make the argument static "
            "(static_argnames)",
        )

    def __bool__(self) -> bool:
        raise self._python_value("a branch (bool)")

    def __float__(self) -> float:
        raise self._python_value("float()")

    def __int__(self) -> int:
        raise self._python_value("int()")

    def __index__(self) -> int:
        raise self._python_value("an index")

    def item(self, *args: Any) -> Any:
        """Refused: a Python number cannot carry a gradient."""
        raise self._python_value("item()")

    def tolist(self) -> Any:
        """Refused: Python numbers cannot carry a gradient."""
        raise self._python_value("tolist()")

    def __len__(self) -> int:
        return len(self.real)

    def __iter__(self) -> Iterator[TracedArray]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"TracedArray({self.expr.value.type})"

    # --- indexing ---------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> TracedArray:
        result: TracedArray = self.recorder.handlers.get_item(self, index)
        return result

    def __setitem__(self, index: Any, value: Any) -> None:
        self.recorder.handlers.set_item(self, index, value)

    # --- attributes and methods of ndarray -------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, a plain tuple: it is part of the cache key."""
        return tuple(self.real.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype."""
        return self.real.dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self.real.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.real.size

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.real.nbytes

    @property
    def T(self) -> Any:
        """All dims reversed, a view."""
        return np.transpose(self)

    @property
    def mT(self) -> Any:
        """The last two dims swapped, a view."""
        return np.swapaxes(self, -1, -2)

    @property
    def real_part(self) -> TracedArray:
        """The array itself: it is real."""
        return self

    def astype(self, dtype: Any, copy: bool = True) -> Any:
        """Another dtype."""
        return self.recorder.cast(self, np.dtype(dtype))

    def copy(self, order: str = "C") -> Any:
        """A copy."""
        return np.copy(self)

    def reshape(self, *shape: Any, order: str = "C") -> Any:
        """Another shape, a view."""
        return np.reshape(self, shape[0] if len(shape) == 1 else shape, order=order)  # type: ignore[call-overload]

    def transpose(self, *axes: Any) -> Any:
        """Permuted dims, a view."""
        if len(axes) == 1 and not isinstance(axes[0], int):
            axes = tuple(axes[0]) if axes[0] is not None else ()
        return np.transpose(self, axes or None)

    def flatten(self, order: str = "C") -> Any:
        """One dim, a copy."""
        return np.copy(np.ravel(self))

    def fill(self, value: Any) -> None:
        """Set every element."""
        self[...] = value


def _method(name: str) -> Callable[..., Any]:
    function = getattr(np, name)

    def method(self: TracedArray, *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"As `np.{name}`."
    return method


for _name in (
    "sum", "prod", "mean", "std", "var", "max", "min", "any", "all", "argmax", "argmin", "cumsum",
    "cumprod", "dot", "ravel", "squeeze", "swapaxes", "clip", "take", "repeat", "trace", "diagonal",
    "round", "argsort", "searchsorted",
):  # fmt: skip
    setattr(TracedArray, _name, _method(_name))
