"""One scalar op of a loop nest as a Triton expression.

>>> expression("relu", F32, ["x"], [F32], {})
'tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)'

Only what `triton.language` itself has is used, because its interpreter has no libdevice: tanh,
expm1 and log1p are functions of their own (`HELPERS`), accurate to a few ulps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from gradof.errors import CodegenError
from gradof.ir.attrs import Attr
from gradof.ir.types import BF16, BOOL, F16, F32, F64, I32, I64, DType

NAMES = {
    F32: "float32", F64: "float64", F16: "float16", BF16: "bfloat16", I32: "int32", I64: "int64",
    BOOL: "int1",
}  # fmt: skip
HALF = (F16, BF16)
_NAN = "propagate_nan=tl.PropagateNan.ALL"
# x, a, b, c: operands
_ANY = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "square": "{0} * {0}",
    "neg": "-{0}", "abs": "tl.abs({0})", "copy": "{0}", "alias": "{0}", "detach": "{0}",
    "eq": "{0} == {1}", "ne": "{0} != {1}", "lt": "{0} < {1}", "le": "{0} <= {1}",
    "gt": "{0} > {1}", "ge": "{0} >= {1}",
}  # fmt: skip
_LOGICAL = {
    "logical_and": "{0} & {1}", "logical_or": "{0} | {1}", "logical_xor": "{0} ^ {1}",
    "logical_not": "{0} == 0",
}  # fmt: skip
_FLOAT = {
    "div": "{0} / {1}", "reciprocal": "1.0 / {0}", "exp": "tl.exp({0})", "exp2": "tl.exp2({0})",
    "log": "tl.log({0})", "log2": "tl.log2({0})", "sqrt": "tl.sqrt_rn({0})",
    "rsqrt": "1.0 / tl.sqrt_rn({0})", "sin": "tl.sin({0})", "cos": "tl.cos({0})",
    "erf": "tl.erf({0})", "floor": "tl.floor({0})", "ceil": "tl.ceil({0})",
    "trunc": "tl.where({0} < 0, tl.ceil({0}), tl.floor({0}))",
    "sigmoid": "1.0 / (1.0 + tl.exp(-{0}))", "tanh": "_tanh({0})", "expm1": "_expm1({0})",
    "log1p": "_log1p({0})", "log1p_exp": "_log1p(tl.exp({0}))",
    "sign": "tl.where({0} > 0, 1.0, tl.where({0} < 0, -1.0, tl.where({0} == 0, 0.0, {0})))",
    "isnan": "{0} != {0}", "isinf": 'tl.abs({0}) == float("inf")',
    "isfinite": 'tl.abs({0}) < float("inf")', "relu": f"tl.maximum({{0}}, 0.0, {_NAN})",
    "maximum": f"tl.maximum({{0}}, {{1}}, {_NAN})",
    "minimum": f"tl.minimum({{0}}, {{1}}, {_NAN})",
}  # fmt: skip
_INTEGER = {
    "maximum": "tl.maximum({0}, {1})", "minimum": "tl.minimum({0}, {1})",
    "relu": "tl.maximum({0}, 0)",
}  # fmt: skip
OPS = frozenset({*_ANY, *_LOGICAL, *_FLOAT, *_INTEGER, "where", "cast", "clamp"})
_COMPARE = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})

HELPERS = {
    # Cephes' tanhf and tanh: a polynomial, or a quotient of two, near 0; exp elsewhere
    "_tanh": '''@triton.jit
def _tanh(x):
    z = x * x
    if x.dtype == tl.float64:
        p = (-9.64399179425052238628e-1 * z - 9.92877231001918586564e1) * z
        p -= 1.61468768441708447952e3
        q = ((z + 1.12811678491632931402e2) * z + 2.23548839060100448583e3) * z
        near = x + x * z * (p / (q + 4.84406305325125486048e3))
    else:
        p = (-5.70498872745e-3 * z + 2.06390887954e-2) * z - 5.37397155531e-2
        near = x + x * z * ((p * z + 1.33314422036e-1) * z - 3.33332819422e-1)
    far = 1.0 - 2.0 / (tl.exp(2.0 * tl.abs(x)) + 1.0)
    return tl.where(tl.abs(x) < 0.625, near, tl.where(x < 0, -far, far))
''',
    # exp(x) - 1 = 2 tanh(x / 2) / (1 - tanh(x / 2))
    "_expm1": '''@triton.jit
def _expm1(x):
    t = _tanh(0.5 * x)
    return tl.where(tl.abs(x) < 0.5, 2.0 * t / (1.0 - t), tl.exp(x) - 1.0)
''',
    # The rounding of 1 + x cancels in log(u) x / (u - 1); Kahan's
    "_log1p": '''@triton.jit
def _log1p(x):
    u = 1.0 + x
    exact = (u == 1.0) | (tl.abs(x) == float("inf"))
    small = tl.where(u == 1.0, x, tl.log(u))
    return tl.where(exact, small, tl.log(u) * (x / tl.where(exact, 1.0, u - 1.0)))
''',
    "_max": '''@triton.jit
def _max(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
''',
    "_min": '''@triton.jit
def _min(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
''',
    "_prod": '''@triton.jit
def _prod(a, b):
    return a * b
''',
}  # fmt: skip


def supports(op: str, given: Sequence[DType], result: DType) -> bool:
    """Whether an op on operands of these dtypes is a Triton expression."""
    if op not in OPS or any(d not in NAMES for d in (*given, result)):
        return False
    if op == "cast":
        return not (given[0].is_float and result in (I32, I64))  # of nan and of what does not fit
    if op in ("where", "copy", "alias", "detach", "eq", "ne"):
        return True
    if op in _LOGICAL:
        return all(d == BOOL for d in given)
    if op in _ANY:
        return all(d != BOOL for d in given)
    if all(d.is_float for d in given):
        return True
    return op in _INTEGER and all(d in (I32, I64) for d in given)


def expression(
    op: str, dtype: DType, args: Sequence[str], given: Sequence[DType], attrs: Mapping[str, Attr]
) -> str:
    """The expression; operands are names or literals, tensors of one dtype (`given`) among them.

    Half precision is computed in float32 and rounded. CodegenError for an op that has none.
    """
    if not supports(op, given, dtype):
        raise CodegenError(f"{op} of {', '.join(map(str, given))} is no Triton op")
    own = given[0] if given else dtype
    if op == "cast":
        if dtype == BOOL:
            return f"{args[0]} != 0"
        # torch converts to half precision from float32, whatever it starts from
        through = ".to(tl.float32)" if dtype in HALF and given and own not in (F32, *HALF) else ""
        return f"({args[0]}){through}.to(tl.{NAMES[dtype]})"
    if op == "where":
        if dtype == F64:  # triton reads a bare number as float32
            args = [a if a.isidentifier() else f"tl.full((), {a}, tl.float64)" for a in args]
        return f"tl.where({', '.join(args)}).to(tl.{NAMES[dtype]})"
    half = own in HALF and op not in ("copy", "alias", "detach")
    if half:
        args = [f"{a}.to(tl.float32)" if a.isidentifier() else a for a in args]
    if op == "clamp":
        text = args[0]
        for bound, f in (("low", "maximum"), ("high", "minimum")):
            if attrs[bound] is not None:
                nan = f", {_NAN}" if own.is_float else ""
                text = f"tl.{f}({text}, {literal(attrs[bound])}{nan})"
    else:
        table = _FLOAT if op in _FLOAT and own.is_float else {**_ANY, **_LOGICAL, **_INTEGER}
        text = table[op].format(*args)
        if own == F64:  # sqrt_rn is of float32; sqrt is exact in float64 and not in float32
            text = text.replace("tl.sqrt_rn(", "tl.sqrt(")
    return f"({text}).to(tl.{NAMES[dtype]})" if half and dtype != BOOL else text


def literal(value: object) -> str:
    """A Python number as Triton reads it."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return f"({value!r})" if isinstance(value, int | float) and value < 0 else repr(value)
