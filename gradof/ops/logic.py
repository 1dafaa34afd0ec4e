"""Elementwise ops without a gradient: rounding, sign, comparisons, logic of truths and of bits."""

from __future__ import annotations

import math
from collections.abc import Callable

from gradof.ir.types import BOOL
from gradof.ops.expr import Expr, F, zeros_for
from gradof.ops.families import ALL, ANY, INTEGERS, LOGICAL, NUMBERS, binary, predicate, unary
from gradof.ops.registry import op

# --- rounding: zero gradient almost everywhere, as in torch ------------------------------------

def _whole(x: Expr) -> Expr | None:
    return None if x.dtype.is_float else F.copy(x)


def _sign(x: Expr) -> Expr:
    at_rest = F.where(x == 0, 0, x) if x.dtype.is_float else x  # nan stays nan
    return F.where(x > 0, 1, F.where(x < 0, -1, at_rest))


for _name, _ufunc in (("floor", "np.floor"), ("ceil", "np.ceil"), ("trunc", "np.trunc"),
                      ("round", "np.round({x})"), ("sign", "np.sign")):
    op(f"{_name}(x) -> y", family=unary(NUMBERS), numpy=_ufunc, traits={"jumps"},
       torch="torch.sign" if _name == "sign" else None,  # torch: sign(nan) is 0, numpy: nan
       vjp={"x": zeros_for}, scalar=_sign if _name == "sign" else _whole,
       names=[f"aten.{_name}", "numpy.rint" if _name == "round" else f"numpy.{_name}"])

# --- comparisons and logic: no gradient ---------------------------------------------------------


def _of_bools(name: str) -> Callable[[Expr, Expr], Expr | None]:
    """The logical op of numbers, of which each but zero is true."""
    return lambda a, b: None if a.dtype == BOOL else getattr(F, name)(a != 0, b != 0)


def _signbit(x: Expr) -> Expr | None:
    return None if x.dtype.is_float else x < 0 if x.dtype.kind == "int" else x != x


_OF_ONE: dict[str, Callable[[Expr], Expr | None]] = {
    "logical_not": lambda x: None if x.dtype == BOOL else x == 0,
    "isnan": lambda x: x != x,
    "isinf": lambda x: F.abs(x) == math.inf if x.dtype.is_float else x != x,
    "isfinite": lambda x: F.abs(x) < math.inf if x.dtype.is_float else x == x,
    "signbit": _signbit,
}
_ORDERS = ("gt", "ge", "lt", "le")
for _name, _ufunc in (("gt", "np.greater"), ("ge", "np.greater_equal"), ("lt", "np.less"),
                      ("le", "np.less_equal"), ("eq", "np.equal"), ("ne", "np.not_equal"),
                      ("logical_and", "np.logical_and"), ("logical_or", "np.logical_or"),
                      ("logical_xor", "np.logical_xor")):
    op(f"{_name}(a, b) -> y", family=predicate(ANY if _name in _ORDERS else ALL), numpy=_ufunc,
       vjp={"a": None, "b": None}, traits={"jumps"},
       scalar=_of_bools(_name) if _name.startswith("logical") else None,
       names=[f"numpy.{_ufunc.removeprefix('np.')}"])
for _name, _ufunc in (("logical_not", "np.logical_not"), ("isnan", "np.isnan"),
                      ("isinf", "np.isinf"), ("isfinite", "np.isfinite"),
                      ("signbit", "np.signbit")):
    op(f"{_name}(x) -> y", family=predicate(ANY if _name == "signbit" else ALL), numpy=_ufunc,
       vjp={"x": None}, scalar=_OF_ONE[_name], names=[f"aten.{_name}", f"numpy.{_name}"])
for _name, _ufunc in (("bitwise_and", "np.bitwise_and"), ("bitwise_or", "np.bitwise_or"),
                      ("bitwise_xor", "np.bitwise_xor")):
    op(f"{_name}(a, b) -> y", family=binary(LOGICAL), numpy=_ufunc, vjp={"a": None, "b": None},
       names=[f"numpy.{_name}"])
op("bitwise_not(x) -> y", family=unary(LOGICAL), numpy="np.invert", vjp={"x": None},
   names=["aten.bitwise_not", "numpy.invert"])
for _name, _ufunc in (("left_shift", "np.left_shift"), ("right_shift", "np.right_shift")):
    op(f"{_name}(a, b) -> y", family=binary(INTEGERS), numpy=_ufunc, vjp={"a": None, "b": None},
       names=[f"numpy.{_name}"])
