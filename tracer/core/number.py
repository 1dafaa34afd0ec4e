"""TracedNumber: a Python int or float among the arguments that differs from call to call.

    def f(x, lr):                graph f(%x : f32[3], %lr : f64[]):
        return x * (2 * lr)        %0 : f64[] = mul(%lr, 2.0)
                                   ...

It is a number to the function (`isinstance(lr, float)` holds); arithmetic is recorded, and where it
meets an array it gives way to the array's dtype as a Python number does.

Note [Pinned numbers]
What needs the number itself (an index, a size, `math.sqrt`, a dictionary) gets it, and the argument
is *pinned*: the trace is taken again with its value as a constant. A float may be compared; the
trace then holds for what the comparison gave. Where Python raises and the recorded op would not
(a division by zero), that is guarded too.
"""

from __future__ import annotations

import functools
import math
import operator
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn, Protocol

import numpy as np

from gradof.ir.builder import Builder
from gradof.ir.core import Loc, Value
from gradof.ir.types import F64, I64, DType
from gradof.ops.expr import Emitter, Expr, F
from gradof.tracer.core.size_numbers import OF_SIZES, are_of_sizes, as_traced, is_positive
from gradof.tracer.state.source import user_frame, user_loc

Number = int | float  # a np.float64 is a float
NUMBERS = (int, float, np.float64)  # of numpy's is what its functions make of a number
Decide = Callable[[FrameType, int, Value, bool], tuple[Value, bool]]
LARGEST = 2**31  # an int beyond it is a constant: sums of such do not leave 64 bits


class Recorder(Protocol):
    """What the recorders of both libraries have."""

    builder: Builder
    emitter: Emitter
    guards: int


class Numbers:
    """The numbers of one trace: how they record, and which arguments were pinned, and where."""

    def __init__(self, recorder: Recorder, note: Callable[[Value], object]) -> None:
        self.recorder = recorder
        self.note = note  # told of every value that is recorded
        self.pinned: dict[Any, Loc | None] = {}
        self.active = False  # whether there are any
        self.ufunc: Callable[..., Any] | None = None  # numpy's functions of numbers, if recorded
        self.told: Callable[[str], str] | None = None  # told of texts of numbers, if they may vary
        self.tell: Callable[[Number], object] = float  # told of numbers of sizes that are needed
        self.converted: Callable[[FrameType], object] = lambda frame: None  # told of `float(n)`
        self.decide: Decide = as_it_is  # asked as Python branches on what a comparison gave

    def element(self, value: Number, of: Value) -> TracedNumber:
        """The number that is an element of a tensor: `of` is a scalar of 64 bits."""
        self.active = True
        return TracedNumber(self, value, self.recorder.emitter.wrap(of), frozenset(), read=True)

    def argument(self, leaf: Any, value: Number, input_: Value) -> TracedNumber:
        """The number that stands for an argument."""
        self.active = True
        return TracedNumber(self, value, self.recorder.emitter.wrap(input_), frozenset({leaf}))

    def emit(self, build: Callable[[], Expr]) -> Expr:
        """Record one op at the user's line."""
        self.recorder.builder.loc = user_loc()
        expr = build()
        self.note(expr.value)
        return expr

    def branch(self, build: Callable[[], Expr], value: bool, frame: FrameType) -> bool:
        """What a comparison gives in a frame: the trace holds where it does again."""
        decided, value = self.decide(frame, frame.f_lasti, self.emit(build).value, value)
        if decided.node is None or decided.node.kind != "Constant":
            self.recorder.builder.loc = user_loc()
            self.recorder.builder.emit_node(  # numpy's numbers compare to a bool of numpy's
                "Guard", decided, value=bool(value), number=self.recorder.guards
            )
            self.recorder.guards += 1
        return value

    def guard(self, build: Callable[[], Expr], value: bool | Number) -> None:
        """The trace holds where the expression has this value again."""
        expr = self.emit(build)
        self.recorder.builder.emit_node(
            "Guard", expr.value, value=value, number=self.recorder.guards
        )
        self.recorder.guards += 1


def as_it_is(
    frame: FrameType, offset: int, value: Value, outcome: bool
) -> tuple[Value, bool]:
    """A branch comes out as it does."""
    return value, outcome


class TracedNumber:
    """See the module docstring. `value` is what it is in this run, `expr` an f64 or i64 scalar."""

    __slots__ = ("expr", "leaves", "numbers", "read", "value")

    def __init__(
        self, numbers: Numbers, value: Number, expr: Expr, leaves: frozenset[Any],
        read: bool = False,
    ) -> None:  # fmt: skip
        self.numbers = numbers
        self.value = value
        self.expr = expr
        self.leaves = leaves  # the arguments and places it comes from
        self.read = read  # whether it comes from a tensor's element, too

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self.value)

    def pin(self) -> Number:
        """The number itself; see Note [Pinned numbers]."""
        for leaf in self.leaves - {OF_SIZES}:
            self.numbers.pinned.setdefault(leaf, user_loc())
        if OF_SIZES in self.leaves:
            self.numbers.tell(self.value)
        if self.read:
            self.numbers.guard(lambda: self.expr, self.value)
            self.read = False  # once is enough
        return self.value

    def outcome(self) -> Value:
        """The graph's value, for a result or a place that the number is stored in."""
        return self.numbers.emit(lambda: F.detach(self.expr)).value

    def cast(self, dtype: DType) -> Expr:
        """The number as a scalar of another dtype."""
        return self.numbers.emit(lambda: self.expr.cast(dtype))

    # --- arithmetic -------------------------------------------------------------------------

    def _binary(self, other: Any, name: str, flipped: bool = False) -> Any:
        other = as_traced(other) if isinstance(self.value, float) else other  # a size
        if type(other) not in (*NUMBERS, bool, TracedNumber):
            if isinstance(other, (int, float, complex)) and not hasattr(other, "dtype"):
                return _apply(name, self.pin(), other, flipped)
            return NotImplemented  # an array's own operator is next
        a, b = (other, self) if flipped else (self, other)
        if name in _COMPARED:
            return self._compared(a, b, name)
        if name in _BITS:
            return self._bits(a, b, name)
        if name == "pow" and isinstance(_value(a), int) and type(b) is int and 1 < b <= _POWER:
            return functools.reduce(operator.mul, [a] * b)
        value = getattr(operator, name)(_value(a), _value(b))  # raises what Python raises
        if type(value) not in NUMBERS or not self._defined(a, b, name):
            _pin(a, b)
            return value
        real = isinstance(value, float)
        x, y = _operand(a, real), _operand(b, real)
        expr = self.numbers.emit(lambda: getattr(F, _OPS[name])(x, y))
        leaves = _leaves(a) | _leaves(b)
        return TracedNumber(self.numbers, value, expr, leaves, _is_read(a) or _is_read(b))

    def _bits(self, a: Any, b: Any, name: str) -> Any:
        """Shifts by a constant are products and quotients; else the bits are asked for."""
        if name in ("lshift", "rshift") and type(b) is int and 0 <= b < LARGEST.bit_length():
            return a * 2**b if name == "lshift" else a // 2**b
        value = getattr(operator, name)(_value(a), _value(b))  # raises what Python raises
        _pin(a, b)
        return value

    def _defined(self, a: Any, b: Any, name: str) -> bool:
        """Whether the op is Python's for other numbers too, guarded where it need be."""
        if name in ("add", "sub"):
            return True
        whole = not (isinstance(_value(a), float) or isinstance(_value(b), float))
        if name == "mul":
            return not whole or LARGEST > abs(_value(a) * _value(b))
        if name == "pow":
            if whole or _value(a) <= 0:
                return False
            if type(a) is TracedNumber and not is_positive(a.expr.value):
                self.numbers.guard(lambda: a.expr > 0, True)
            return True
        if type(b) is TracedNumber and not is_positive(b.expr.value):  # a quotient
            self.numbers.guard(lambda: F.eq(b.expr, 0), False)
        return True

    def _compared(self, a: Any, b: Any, name: str) -> bool:
        value: bool = getattr(operator, name)(_value(a), _value(b))
        if are_of_sizes(a, b) or any(
            type(x) is TracedNumber and type(x.value) is int
            and any(type(leaf) is int for leaf in x.leaves)
            for x in (a, b)
        ):  # fmt: skip
            _pin(a, b)  # a counter: each of its values would be a path of its own
            return value
        real = isinstance(_value(a), float) or isinstance(_value(b), float)
        x, y = _operand(a, real), _operand(b, real)
        frame = user_frame(sys._getframe(1))
        if frame is None:
            self.numbers.guard(lambda: getattr(F, name)(x, y), value)
            return value
        return self.numbers.branch(lambda: getattr(F, name)(x, y), value, frame)

    def __neg__(self) -> Any:
        expr = self.numbers.emit(lambda: F.neg(self.expr))
        return TracedNumber(self.numbers, -self.value, expr, self.leaves, self.read)

    def __pos__(self) -> Any:
        return self

    def __invert__(self) -> Any:
        return ~self.pin()  # type: ignore[operator]  # TypeError for a float

    def __abs__(self) -> Any:
        expr = self.numbers.emit(lambda: F.abs(self.expr))
        return TracedNumber(self.numbers, abs(self.value), expr, self.leaves, self.read)

    def __bool__(self) -> bool:
        return bool(self._binary(0, "ne"))

    # --- where the number itself is needed --------------------------------------------------

    def __float__(self) -> float:
        self.numbers.converted(sys._getframe(1))
        return float(self.pin())

    def __int__(self) -> int:
        self.numbers.converted(sys._getframe(1))
        return int(self.pin())

    def __complex__(self) -> complex:
        return complex(self.pin())

    def __index__(self) -> int:
        return operator.index(self.pin())  # type: ignore[arg-type]  # TypeError for a float

    def __hash__(self) -> int:
        return hash(self.pin())

    def __round__(self, *digits: Any) -> Any:
        return round(self.pin(), *digits) if digits else self.whole(round, "round")

    def __trunc__(self) -> Any:
        return self.whole(math.trunc, "trunc")

    def __floor__(self) -> Any:
        return self.whole(math.floor, "floor")

    def __ceil__(self) -> Any:
        return self.whole(math.ceil, "ceil")

    def whole(self, function: Callable[[Any], int], op: str) -> Any:
        """A function of Python's that makes whole numbers; pinned where it raises or is large."""
        value = function(self.value)  # raises what Python raises
        if isinstance(self.value, int):
            return self
        if abs(value) >= LARGEST:
            return function(self.pin())
        self.numbers.guard(lambda: F.abs(self.expr) < LARGEST, True)
        expr = self.numbers.emit(lambda: getattr(F, op)(self.expr).cast(I64))
        return TracedNumber(self.numbers, value, expr, self.leaves, self.read)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __str__(self) -> str:
        return self._text(str)

    def __repr__(self) -> str:
        return self._text(repr)

    def __format__(self, spec: str) -> str:
        return self._text(format, spec)

    def _text(self, shown: Callable[..., str], *spec: str) -> str:
        told = self.numbers.told
        if told is None or OF_SIZES in self.leaves:
            return shown(self.pin(), *spec)
        return told(shown(self.value, *spec))

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _same, (self.pin(),)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.pin(), name)  # .is_integer(), .real, ...

    # --- arrays -----------------------------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array(self.pin(), dtype=dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if any(hasattr(type(x), "gradof_node") for x in inputs):
            return NotImplemented  # an array in a torch function, which knows what to do
        numbers = self.numbers
        if numbers.ufunc is not None:
            return numbers.ufunc(ufunc, method, inputs, kwargs)
        _pin(*inputs)
        return getattr(ufunc, method)(*map(_value, inputs), **kwargs)

    def clip(self, low: Any, high: Any, out: Any = None) -> Any:
        """What `np.clip` asks of an object: a float within bounds."""
        numbers = [x for x in (self, low, high) if type(_value(x)) in NUMBERS]
        if out is not None or len(numbers) < 3 or type(self.value) is int:
            return np.clip(self.pin(), low, high, out=out)
        return min(max(self, low), high) * np.float64(1.0)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> NoReturn:
        # torch asks only whether there is such a method; the mode of the trace comes first
        raise NotImplementedError(f"{func} of a traced number outside the trace's mode")


_OPS = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "pow": "pow",
    "floordiv": "floor_divide", "mod": "remainder",
}  # fmt: skip
_BITS = ("lshift", "rshift", "and_", "or_", "xor")
_POWER = 4  # the largest power of a whole number that is written as a product
_COMPARED = ("lt", "le", "gt", "ge", "eq", "ne")


def _same(value: Number) -> Number:
    return value


def _value(x: Any) -> Any:
    return x.value if type(x) is TracedNumber else x


def _leaves(x: Any) -> frozenset[Any]:
    return x.leaves if type(x) is TracedNumber else frozenset()


def _is_read(x: Any) -> bool:
    return type(x) is TracedNumber and x.read


def _pin(*operands: Any) -> None:
    for x in operands:
        if type(x) is TracedNumber:
            x.pin()


def _operand(x: Any, real: bool) -> Any:
    if type(x) is TracedNumber:
        return x.cast(F64) if real else x.expr
    return float(x) if real else int(x)


def _apply(name: str, a: Any, b: Any, flipped: bool) -> Any:
    x, y = (b, a) if flipped else (a, b)
    return getattr(operator, name)(x, y)


def _define(name: str) -> None:
    def plain(self: TracedNumber, other: Any) -> Any:
        return self._binary(other, name)

    def reflected(self: TracedNumber, other: Any) -> Any:
        return self._binary(other, name, flipped=True)

    method = name.removesuffix("_")  # `and_` of the module operator
    setattr(TracedNumber, f"__{method}__", plain)
    if name not in _COMPARED:
        setattr(TracedNumber, f"__r{method}__", reflected)


for _name in (*_OPS, *_COMPARED, *_BITS):
    _define(_name)


def converted(cls: type, number: TracedNumber) -> Any:
    """`float(n)` or `int(n)`, called where the trace can see it."""
    if cls is int:
        return math.trunc(number)
    value = float(number.value)
    return TracedNumber(number.numbers, value, number.cast(F64), number.leaves, number.read)
