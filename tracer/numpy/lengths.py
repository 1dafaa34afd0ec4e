"""What the traced code is told of sizes: so another length can be known to do the same.

    n = len(obs)                 # a Length, where the length of `obs` is known to vary: 33, and "n"
    x = np.zeros((n, 3))         # a size of the graph
    obs[n - 1 - t], s / n        # a place; a number of the graph
    h = 1.0 / n; math.sqrt(n)    # a number of the graph, too: `size_numbers`
    if n > 100: ...              # a condition: n - 100 > 0
    [0] * n, n ** 2              # a number by itself: the trace is one of this length

Note [Told sizes]
Each number that follows from a size and reaches the user's code is noted, in order (`Sizes.told`):
those that are followed further with their formula, all others plain. Of two traces the notes are
compared one by one. Where all formulas hold for both, and what was plain was the same, the code has
seen nothing else of a length: what it did then, it does for every length that meets the conditions.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from types import FrameType, MappingProxyType
from typing import Any

import numpy as np

from gradof.ir.extent import Form, Lengths
from gradof.ir.types import F64
from gradof.ops.expr import F
from gradof.tracer.core.number import TracedNumber
from gradof.tracer.core.size_numbers import OF_SIZES, as_traced
from gradof.tracer.numpy.active import active_recorder
from gradof.tracer.numpy.whole import Whole, number

# Ufuncs whose record is the same for any number of one Python type.
OPEN = frozenset({
    np.add, np.subtract, np.multiply, np.divide, np.maximum, np.minimum, np.greater,
    np.greater_equal, np.less, np.less_equal, np.equal, np.not_equal,
})  # fmt: skip
TAKES_SIZES = frozenset({np.reshape, np.broadcast_to})
# Functions whose record is that of any length, but for the numbers in it.
UNIFORM = TAKES_SIZES | {
    np.sum, np.prod, np.mean, np.var, np.std, np.max, np.min, np.cumsum, np.dot, np.vdot, np.inner,
    np.outer, np.where, np.stack, np.concatenate, np.clip, np.linalg.norm, np.cross, np.diff,
    np.transpose, np.swapaxes, np.moveaxis, np.ravel, np.squeeze, np.expand_dims, np.copy, np.flip,
    np.hstack, np.vstack, np.column_stack, np.zeros_like, np.ones_like, np.empty_like, np.full_like,
    np.argmax, np.argmin, np.any, np.all, np.atleast_1d, np.real, np.imag, np.roll, np.ndim,
    np.tensordot, np.copyto,
}  # fmt: skip


class Sizes:
    """What one run was told; `lengths` are those that are known to vary, by name.

    `then` are the same in an earlier run, and `earlier` what that was told. Leaves that are lengths
    are `given` as such.
    """

    def __init__(
        self, lengths: Mapping[str, int] = MappingProxyType({}),
        then: Mapping[str, int] = MappingProxyType({}), earlier: Sizes | None = None,
        given: Mapping[int, str] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self.lengths, self._then, self._given = Lengths(lengths), then, given
        self._earlier: Sequence[tuple[float, Form | None]] = () if earlier is None else earlier.told
        self.told: list[tuple[float, Form | None]] = []
        self.handles = False  # whether the code handles errors, which may be of sizes

    def plain(self, number: Any) -> Any:
        """A number that may follow from a size and is not followed further."""
        self.told.append((number, None))
        return number

    def argument(self, leaf: int, value: Any) -> Any:
        """What the function is given for a leaf."""
        name = self._given.get(leaf)
        return value if name is None else Length(value, Form(0, ((name, 1),)), self)

    def length(self, size: int) -> Any:
        """A size, as a Length where it may be one."""
        form = self.guess(size)
        self.told.append((size, form))
        return size if form is None else Length(size, form, self)

    def guess(self, size: int) -> Form | None:
        """The formula that a size may have, by what the earlier run was told in its place."""
        if not self.lengths.values:
            return None
        at = len(self.told)
        before = self._earlier[at][0] if at < len(self._earlier) else size
        for name, now in self.lengths.values.items():
            then = self._then[name]
            if size != before and size - before == now - then:
                return Form(size - now, ((name, 1),))
        return None

    def count(self, steps: int) -> int:
        """Steps that a loop runs one by one, as far as is known; the place of the note."""
        self.plain(steps)
        return len(self.told) - 1

    def few_stood_for(self, note: int) -> None:
        """A few steps have stood for as many as there are: nobody has counted them."""
        self.told[note] = 0, None

    def clamps(self, bound: int | None, size: int) -> None:
        """Whether a bound of a slice is beyond its array is a condition."""
        if bound is None:
            return
        whole = self.guess(size)
        self.told.append((size, whole))
        if whole is None and type(bound) is int:
            return
        form, whole = _form(bound) or Form(int(bound)), whole or Form(size)
        self.compare(form, "lt")
        self.compare(form.plus(whole), "lt")
        self.compare(form.plus(whole, -1), "le")

    def compare(self, form: Form, how: str) -> bool:
        """Whether a formula compares so with 0."""
        if form.terms:
            return self.lengths.compare(form, how)
        found: bool = getattr(operator, how)(form.constant, 0)
        return found

    def agree(self, earlier: Sizes) -> bool:
        """Whether the notes of the earlier run say the same; Note [Told sizes]."""
        if self.handles or earlier.handles:
            return False
        if len(self.told) != len(earlier.told) or not self.lengths.hold(self._then):
            return False
        return all(
            size == before if form is None else form.value(self._then) == before
            for (size, form), (before, _) in zip(self.told, earlier.told, strict=True)
        )


def in_function(sizes: Sizes, func: Any, args: Any, kwargs: Any) -> Any:
    """The arguments of a call of the user's, which may see the sizes of arrays among them."""
    if func not in UNIFORM:
        tell(sizes, (args, kwargs))
    return sized(args) if func in TAKES_SIZES else args


def tell(sizes: Sizes, tree: Any) -> None:
    """The sizes of arrays in a nest are told, plain."""
    if type(tree) in (tuple, list):
        for x in tree:
            tell(sizes, x)
    elif type(tree) is dict:
        tell(sizes, list(tree.values()))
    elif type(memory := getattr(tree, "memory", None)) is np.ndarray:
        for n in memory.shape:
            sizes.plain(n)


def tell_plain(sizes: Sizes, array: Any) -> None:
    """An array that is none of the trace's has sizes that are not followed further."""
    for n in np.shape(array):
        sizes.plain(n)


def in_ufunc(sizes: Sizes, ufunc: Any, method: str, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The operands of a ufunc, where lengths are numbers of the graph."""
    if method not in ("__call__", "reduce"):
        tell(sizes, inputs)
    return sized(inputs) if ufunc in OPEN and method == "__call__" else inputs


class Length(Whole):
    """See the module docstring."""

    __slots__ = ("_sizes", "_value", "form")

    def __init__(self, value: int, form: Form, sizes: Sizes) -> None:
        self._value, self.form, self._sizes = value, form, sizes

    def number(self) -> int:
        """The number, for anything that may depend on it."""
        self._sizes.plain(self._value)
        return self._value

    def size(self) -> int:
        """The number, for what is in the graph."""
        return self._value

    def _of(self, form: Form) -> Any:
        value = form.value(self._sizes.lengths.values)
        return Length(value, form, self._sizes) if form.terms else value

    def __add__(self, other: Any) -> Any:
        form = _form(other)
        return _otherwise(operator.add, self, other) if form is None else self._of(
            self.form.plus(form)
        )

    def __radd__(self, other: Any) -> Any:
        form = _form(other)
        return _otherwise(operator.add, other, self) if form is None else self._of(
            self.form.plus(form)
        )

    def __sub__(self, other: Any) -> Any:
        form = _form(other)
        return _otherwise(operator.sub, self, other) if form is None else self._of(
            self.form.plus(form, -1)
        )

    def __rsub__(self, other: Any) -> Any:
        form = _form(other)
        return _otherwise(operator.sub, other, self) if form is None else self._of(
            form.plus(self.form, -1)
        )

    def __mul__(self, other: Any) -> Any:
        if type(other) is not int:
            return _otherwise(operator.mul, self, other)
        return self._of(self.form.times(other))

    def __rmul__(self, other: Any) -> Any:
        if type(other) is not int:
            return _otherwise(operator.mul, other, self)
        return self._of(self.form.times(other))

    def __truediv__(self, other: Any) -> Any:
        return _otherwise(operator.truediv, self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _otherwise(operator.truediv, other, self)

    def __neg__(self) -> Any:
        return self._of(self.form.times(-1))

    def gradof_number(self) -> Any:
        """The number as a float of the graph, for any size but zero; plain outside of a trace."""
        recorder = active_recorder()
        if recorder is None or recorder.closed or not self._sizes.compare(self.form, "gt"):
            return self.number()
        numbers, value = recorder.numbers, float(self._value)
        made = F.full.with_emitter(recorder.emitter)(dtype=F64, shape=(), device="cpu", value=value)
        numbers.active = True
        return TracedNumber(numbers, value, made, frozenset({OF_SIZES}))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "__call__" and not kwargs and _gives_a_float(ufunc, inputs):
            return ufunc(*map(as_traced, inputs))
        return super().__array_ufunc__(ufunc, method, *inputs, **kwargs)

    def __bool__(self) -> bool:
        return self._sizes.compare(self.form, "ne")


_REAL = (float, np.float64, TracedNumber)
_FLOATS = frozenset({
    np.divide, np.sqrt, np.log, np.log2, np.log10, np.log1p, np.exp, np.expm1, np.sin, np.cos,
    np.tan, np.tanh, np.arctan,
})  # fmt: skip
_NUMBERS = (float, complex, np.generic)


def _gives_a_float(ufunc: Any, inputs: tuple[Any, ...]) -> bool:
    """Whether a ufunc of these is the same of lengths as floats, which the graph may have."""
    kinds = {type(x) for x in inputs} - {Length}
    return kinds <= {*_REAL, int} and (ufunc in _FLOATS or not kinds.isdisjoint(_REAL))


def _otherwise(how: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    """Arithmetic with a number that is no size; all else knows lengths itself."""
    others = {type(x) for x in (a, b)} - {Length}
    if others <= {*_REAL, int} and (how is operator.truediv or not others <= {int}):
        return how(as_traced(a), as_traced(b))
    if isinstance(a, _NUMBERS) or isinstance(b, _NUMBERS):
        return how(number(a), number(b))
    if type(a) is type(b):
        return how(a.number(), b.number())
    return NotImplemented


def _form(other: Any) -> Form | None:
    if type(other) is Length:
        return other.form
    return Form(int(other)) if type(other) in (int, bool) else None


def _comparing(how: str) -> Callable[[Length, Any], Any]:
    def method(self: Length, other: Any) -> Any:
        form = _form(other)
        if form is None:
            return getattr(operator, how)(self.number(), number(other))
        return self._sizes.compare(self.form.plus(form, -1), how)

    return method


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Length, f"__{_name}__", _comparing(_name))


def sized(tree: Any) -> Any:
    """A nest of arguments, with numbers for lengths that are in the graph as they are."""
    kind = type(tree)
    if kind is tuple or kind is list:
        return kind(map(sized, tree))
    return tree.size() if kind is Length else tree


def has_length(tree: Any) -> bool:
    """Whether there is a Length in a nest."""
    kind = type(tree)
    return kind is Length or ((kind is tuple or kind is list) and any(map(has_length, tree)))


def is_users(frame: FrameType) -> bool:
    """Whether code that asks is none of ours."""
    return not str(frame.f_globals.get("__name__", "")).startswith("gradof.")


def sees_numbers(frame: FrameType) -> bool:
    """Whether it is numpy's or scipy's own Python code, which gets plain numbers."""
    name = str(frame.f_globals.get("__name__", ""))
    return name.partition(".")[0] in ("numpy", "scipy")
