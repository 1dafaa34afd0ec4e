"""`math_result`: what a function of Python's `math` gives, or the error that it raises.

    math.log(x[0])        %0 : f64[] = log(%x0)
                          %1 : f64[] = math_result[function='log'](%0, %x0)

The operators of floats are functions, too: `truediv`, `floordiv`, `mod`, `float_pow`.

numpy has a nan or an infinity where Python raises. So a nan of numbers that are none, and an
infinity of finite ones, are Python's to compute again.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gradof.errors import DataDependentError, InferenceError
from gradof.ir.attrs import Attr
from gradof.ir.types import F64, TensorType, Type
from gradof.ops.expr import Expr
from gradof.ops.registry import Family, op

_NUMBER = TensorType(F64, ())


def _float_pow(x: float, y: float) -> float:
    made: float | complex = x**y
    if isinstance(made, complex):
        raise DataDependentError(
            f"{x} ** {y} is complex in Python",
            hint="use np.power, which gives nan there, or complex numbers",
        )
    return made


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: value for name, value in vars(math).items() if callable(value)},
    "truediv": operator.truediv, "floordiv": operator.floordiv, "mod": operator.mod,
    "float_pow": _float_pow,
}  # fmt: skip


def _infer(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    if len(inputs) < 2 or any(type_ != _NUMBER for type_ in inputs):
        raise InferenceError("math_result takes a result and operands, each an f64 number")
    if attrs["function"] not in _FUNCTIONS:
        raise InferenceError(f"math has no function {attrs['function']!r}")
    return (_NUMBER,)


def check_math(result: Any, *operands: Any, function: str) -> Any:
    """The result; what Python raises where it raises."""
    if not math.isfinite(result):
        _FUNCTIONS[function](*map(float, operands))
    return result


def _vjp(g: Expr, xs: list[Expr]) -> list[Expr | None]:
    return [g, *([None] * (len(xs) - 1))]


op("math_result(*xs; function) -> y", family=Family(_infer), numpy=check_math, vjp={"xs": _vjp},
   doc="The first operand, what a function of Python's `math` gives for the others, or its error.")
