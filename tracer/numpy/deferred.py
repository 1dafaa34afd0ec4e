"""Results of a numpy trace that nobody has read: their memory is there, their elements are not.

    deferred.call(np.exp, (x,), {})      # an array of np.exp(x)'s type, not filled
    x.concrete                           # filled, as everything it is computed from

Why, and when they are computed after all, is told in `gradof.tracer.core.deferred`.
`TracedArray.memory` is the array as it is, `concrete` the array with its elements. What is computed
late needs more memory than what is computed at once, so a function that reads again and again (a
loop that changes an array in place) waits no longer.

What waits, and with which types, is told in `waiting`.

Note [What a call that waits reads]
Arrays of the trace change through `set_item` and `add_at` only, which first compute what waits for
their elements (`before_write`). Plain arrays can be changed by plain numpy at any time: they are
copied, but for the arguments and those of which the trace finds out that they have changed.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradof import tuning
from gradof.errors import TraceError
from gradof.tracer.core.deferred import Call, Waiting
from gradof.tracer.numpy.array import Later, TracedArray
from gradof.tracer.numpy.waiting import MOVERS, TYPES_ONLY, Results, results_of
from gradof.tracer.state.source import user_loc

Array = NDArray[Any]


class Deferred(Waiting):
    """The calls of one trace that wait, by the owner of each result's memory.

    `is_watched` says of a plain array that the trace fails if it changes.
    """

    def __init__(self, is_watched: Callable[[Array], bool]) -> None:
        super().__init__()
        self._is_watched = is_watched
        self._reads = 0
        self._borrowed: dict[int, Array] = {}
        self._lost: dict[int, weakref.ref[Array]] = {}

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Any) -> Any:
        """The result or results, now or later; numpy's own exception where it raises one."""
        small = self.at_once(args, kwargs)
        if small is not None:
            return function(*small)
        if self._may_wait(args):
            if function in TYPES_ONLY:
                return function(*memories(args), **memories(kwargs))
            if function in MOVERS:
                return self._moved(function, args, real(kwargs))
            if next(_memories(list(kwargs.values())), None) is None:
                found = results_of(function, memories(args), kwargs)
                if found is not None:
                    return self._later(function, [self._held(a) for a in args], kwargs, found)
        return function(*map(real, args), **real(kwargs))

    def at_once(self, args: Sequence[Any], kwargs: Any) -> list[Any] | None:
        """The operands, if they are small arrays and numbers, and nothing waits; else None."""
        return None if self._waiting or kwargs else _small(args)

    def item(self, array: TracedArray, index: Any) -> Any:
        """`array[index]`, for an index that has its elements."""
        if not self.waits(array.memory):
            return array.memory[index]
        return self._moved(operator.getitem, (array, index), {})

    def argument(self, array: Any) -> Any:
        """A copy of an argument, which stays as it is while the trace runs."""
        if isinstance(array, np.generic):
            return array
        if not _is_dense(array):  # strides decide whether reshape gives a view
            return _copy_with_strides(array)
        if array.size < max(tuning.DEFERRED_CELLS, 1):
            return np.array(array)
        made = np.empty_like(array, subok=False)
        self.add(Call(np.asarray, (array,), {}, (made,)))
        return made

    def cast(self, array: TracedArray, dtype: np.dtype[Any]) -> Any:
        """`array.astype(dtype)`; now, where it might warn."""
        memory = array.memory
        if memory.size and np.can_cast(memory.dtype, dtype, "safe") and self._may_wait((array,)):
            made = np.empty_like(memory, dtype=dtype)
            self.add(Call(np.asarray, (array,), {}, (made,)))
            return Later(made) if array.is_scalar else made
        concrete = array.concrete.astype(dtype)
        return concrete[()] if array.is_scalar else concrete

    def settle(self, memory: Array) -> None:
        """Compute the elements of an array; TraceError where the trace has ended without."""
        if self._waiting:
            self.fill(id(owner(memory)))
        elif self._lost:
            lost = self._lost.get(id(owner(memory)))
            if lost is not None and lost() is owner(memory):
                raise TraceError(
                    "an array of a finished trace is used", loc=user_loc(),
                    hint="return it from the function that made it",
                )

    def before_write(self, memory: Array) -> None:
        """Compute an array that is about to change, and all that waits for its elements."""
        self.settle(memory)
        self.fill_readers(id(owner(memory)))

    def borrow(self, array: Array) -> None:
        """The array is the user's, who may change it by plain numpy."""
        self._borrowed[id(owner(array))] = owner(array)

    def borrows(self, array: Array) -> bool:
        """Whether it keeps an array of the user's."""
        return self._borrowed.get(id(array)) is array

    def later(self, memories: Sequence[Array], compute: Callable[[], list[Any]]) -> None:
        """The elements of these arrays, which wait for nothing, are what `compute` gives."""
        self.add(Call(compute, (), {}, memories))

    def forget(self) -> None:
        """Let go of every call that waits: the trace has ended."""
        for call in self._waiting.values():
            for result in call.made():
                self._lost[id(owner(result))] = weakref.ref(owner(result))
        super().forget()
        self._borrowed.clear()

    # --- waiting ----------------------------------------------------------------------------------

    def _may_wait(self, args: Sequence[Any]) -> bool:
        return self._reads < tuning.DEFERRED_READS and any(
            a.size >= tuning.DEFERRED_CELLS or self.waits(a) for a in _memories(args)
        )

    def _later(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any],
        found: Results,
    ) -> Any:  # fmt: skip
        """The results of a call that waits, as numpy would give them."""
        made, is_scalar, is_tuple = found
        self.add(Call(function, args, kwargs, made))
        shown = tuple(Later(m) if is_scalar else m for m in made)
        return shown if is_tuple else shown[0]

    def _moved(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Any) -> Any:
        """The result of a function that only rearranges its first argument."""
        rest = real(list(args[1:]))
        sources = {id(owner(a)) for a in _memories(args[:1])}
        made = function(memories(args[0]), *rest, **kwargs)
        if sources.isdisjoint(self._waiting):
            return made
        parts = made if isinstance(made, (tuple, list)) else (made,)
        fresh = [None if _is_of(p, sources) else np.asarray(p) for p in parts]
        if any(p is not None for p in fresh):
            held = [self._held(args[0]), *map(_copied, rest)]
            self.add(Call(function, held, kwargs, fresh))
        shown = [
            p if f is None else Later(f) if isinstance(p, np.generic) else f
            for p, f in zip(parts, fresh, strict=True)
        ]
        return type(made)(shown) if isinstance(made, (tuple, list)) else shown[0]

    def _held(self, value: Any) -> Any:
        """An operand that stays as it is; see Note [What a call that waits reads]."""
        if isinstance(value, TracedArray):
            return value if id(owner(value.memory)) not in self._borrowed else _copied(real(value))
        if isinstance(value, (list, tuple)):
            return [self._held(v) for v in value]
        watched = isinstance(value, np.ndarray) and self._is_watched(value)
        return value if watched else _copied(value)

    def fill(self, key: int) -> None:
        """As for any library, and counted: a function that reads much waits no longer."""
        self._reads += key in self._waiting
        super().fill(key)

    def key(self, array: Array) -> int:
        """The array whose memory it is."""
        return id(owner(array))

    def operands(self, call: Call) -> Iterator[Array]:
        """The memories of the traced arrays; those among the keywords have their elements."""
        return _memories(call.args)

    def run(self, call: Call) -> None:
        """Write the results where they are to be."""
        with np.errstate(all="ignore"):
            _run(call)


def _small(args: Sequence[Any]) -> list[Any] | None:
    """The operands, if they are small arrays and numbers that nothing has to be computed for."""
    plain: list[Any] = []
    for x in args:
        kind = type(x)
        if kind is TracedArray:
            memory = x.memory
            if memory.size >= tuning.DEFERRED_CELLS:
                return None
            plain.append(memory[()] if x.is_scalar else memory)
        elif kind is float or kind is int:
            plain.append(x)
        else:
            return None
    return plain


def _run(call: Call) -> None:
    args = real(list(call.args))
    if isinstance(call.function, np.ufunc):
        call.function(*args, **call.kwargs, out=tuple(call.results))
        return
    out = call.function(*args, **call.kwargs)
    values = out if isinstance(out, (tuple, list)) else (out,)
    for result, value in zip(call.results, values, strict=True):
        if result is not None:
            result[...] = value


# --- operands -------------------------------------------------------------------------------------


def real(value: Any) -> Any:
    """The concrete value behind an operand; containers are searched."""
    if isinstance(value, TracedArray):
        return value.concrete[()] if value.is_scalar else value.concrete
    return _each(real, value)


def memories(value: Any) -> Any:
    """As `real`, for its types: elements may not be there."""
    return value.memory if isinstance(value, TracedArray) else _each(memories, value)


def _each(function: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(function, value))
    if isinstance(value, (list, tuple)):
        return type(value)(map(function, value))
    if isinstance(value, dict):
        return {k: function(v) for k, v in value.items()}
    return value


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else _each(_copied, value)


def _memories(tree: Any) -> Iterator[Array]:
    """The arrays behind the traced ones in a nest."""
    if isinstance(tree, TracedArray):
        yield tree.memory
    elif isinstance(tree, (list, tuple)):
        for item in tree:
            yield from _memories(item)


def _is_of(part: Any, owners: set[int]) -> bool:
    return isinstance(part, np.ndarray) and id(owner(part)) in owners


def _is_dense(array: Array) -> bool:
    """Whether the elements follow one another in memory, in some order of the axes."""
    if array.flags.c_contiguous or array.flags.f_contiguous:
        return True
    axes = sorted((s, n) for s, n in zip(array.strides, array.shape, strict=True) if n != 1)
    step = array.itemsize
    for stride, n in axes:
        if stride != step:
            return False
        step *= n
    return True


def _copy_with_strides(array: Array) -> Array:
    """A copy with the very strides: negative ones, gaps, and elements that share memory."""
    sized = [(n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)]
    if not array.size:
        return np.array(array)
    first = -sum(n for n in sized if n < 0)
    memory = np.empty(sum(map(abs, sized)) + array.itemsize, np.uint8)
    made: Array = np.ndarray(array.shape, array.dtype, memory.data, first, array.strides)
    made[...] = array
    return made


def owner(array: Array) -> Array:
    """The array whose memory it is; views share it."""
    base: Any = array.base
    while base is not None:
        if isinstance(base, np.ndarray):
            array = base
        base = getattr(base, "base", None)  # views by strides have an object between
    return array
